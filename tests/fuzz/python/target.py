"""Calls of the Python package made from bytes: almost right ones, with garbage strewn in.

Whatever is asked, the answer is a result, a `convgrad.Error` or a `TypeError`.
"""

import ml_dtypes
import numpy as np

import convgrad

FUNCTIONS = (
    "convolution",
    "convolution_backward_data",
    "convolution_backward_weights",
    "conv_transpose",
    "conv_transpose_backward_data",
    "conv_transpose_backward_weights",
    "convolution_backward",
    "conv_transpose_backward",
)
LISTS = ("strides", "pads_begin", "pads_end", "dilations", "output_padding")
NAMES = (*LISTS, "auto_pad", "groups", "data_format", "weights_format", "relu", "add", "out",
         "accumulate", "diff_bias", "dtype", "dst_shape", "weights_shape", "bias")  # fmt: skip
TYPES = (np.float32, np.float16, ml_dtypes.bfloat16)
ODD_TYPES = (np.float64, np.int32, np.uint8, np.complex64, np.dtype(">f4"), np.bool_, object)
# More elements than this are not worth a fuzzer's time.
MOST_ELEMENTS = 50_000


class Input:
    """Decisions drawn from bytes; where they end, every decision is 0."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        if self.at >= len(self.data):
            return 0
        self.at += 1
        return self.data[self.at - 1]

    def between(self, low, high):
        return low + self.byte() % (high - low + 1)

    def chance(self, one_in):
        return self.byte() % one_in == one_in - 1

    def pick(self, choices):
        return choices[self.byte() % len(choices)]

    def number(self):
        kind = self.byte()
        if kind >= 240:
            return self.pick((0, -1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, -(2**63), 2**70, 7919))
        return kind % 8

    def garbage(self):
        kind = self.byte() % 14
        if kind == 0:
            return None
        if kind == 1:
            return self.number()
        if kind == 2:
            return [self.number() for _ in range(self.byte() % 6)]
        if kind == 3:
            return tuple(self.garbage() for _ in range(self.byte() % 3))
        if kind == 4:
            return self.pick((1.5, float("nan"), float("inf"), True, False, b"x", {}, object()))
        if kind == 5:
            return self.pick(("NCX", "NXC", "OIX", "XIO", "XOI", "IOX", "same_upper", "valid", "",
                              "\0", "\udcff", "x" * 300, "f32", "bf16"))  # fmt: skip
        if kind == 6:
            return np.int64(self.number() % 2**62)
        if kind == 7:
            return np.array([self.number() % 2**31 for _ in range(self.byte() % 4)], np.int32)
        if kind == 8:
            return range(self.byte() % 5)
        return self.array([self.between(0, 5) for _ in range(self.byte() % 7)])

    def array(self, shape, dtype=np.float32):
        """An array of this shape somewhere in memory, in some order."""
        if self.chance(16):
            dtype = self.pick(ODD_TYPES)
        kind = self.byte() % 12
        if kind == 0:  # every second element, backwards
            return np.ones([2 * n for n in shape], dtype)[tuple(np.s_[::-2] for _ in shape)]
        if kind == 1:
            return np.ones(shape[::-1], dtype).T
        if kind == 2:
            return np.broadcast_to(np.ones((), dtype), shape)
        if kind == 3:
            made = np.ones(shape, dtype)
            made.flags.writeable = False
            return made
        if kind == 4 and dtype is not object:  # no element at a multiple of its size
            size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            return np.zeros(size + 1, np.uint8)[1:].view(dtype).reshape(shape)
        if kind == 5 and shape:
            return np.ones([n + 1 for n in shape], dtype)[tuple(np.s_[1:] for _ in shape)]
        return np.ones(shape, dtype)


class Call:
    """A layer right in everything, as arguments of one function."""

    def __init__(self, source):
        self.source = source
        self.name = source.pick(FUNCTIONS)
        transposed = self.name.startswith("conv_transpose")
        axes = source.between(1, 3)
        groups = source.pick((1, 1, 2, 4))
        ic, oc = groups * source.between(1, 4), groups * source.between(1, 4)
        channels_first, space_first = source.chance(2), not source.chance(2)
        space = [source.between(1, 7) for _ in range(axes)]
        kernel = [source.between(1, 3) for _ in range(axes)]
        mb = source.between(0, 2)
        self.type = source.pick(TYPES)
        self.attributes = {
            "strides": [source.between(1, 3) for _ in range(axes)],
            "pads_begin": [source.between(0, 2) for _ in range(axes)],
            "pads_end": [source.between(0, 2) for _ in range(axes)],
            "dilations": [source.between(1, 2) for _ in range(axes)],
            "groups": groups,
            "data_format": "NCX" if channels_first else "NXC",
            "weights_format": ("XOI" if space_first else "IOX")
            if transposed
            else ("XIO" if space_first else "OIX"),
        }
        data = lambda c, x: [mb, c, *x] if channels_first else [mb, *x, c]
        self.src = data(ic, space)
        pair = [oc // groups, ic] if transposed else [ic // groups, oc]
        self.weights = [*kernel, *pair] if space_first else [*pair[::-1], *kernel]
        self.channels = oc
        forward = "conv_transpose" if transposed else "convolution"
        self.dst = convgrad.infer_shape(forward, self.src, self.weights, **self.attributes)

    def spoil(self):
        source = self.source
        name = source.pick(NAMES)
        if name in LISTS and source.chance(2):
            self.attributes[name] = [source.number() for _ in range(source.byte() % 5)]
        elif name in ("out", "add", "diff_bias") and source.chance(2):
            shape = source.pick((self.dst, self.src, self.weights, [self.channels]))
            self.attributes[name] = source.array(list(shape), self.type)
        else:
            self.attributes[name] = source.garbage()
        if source.chance(4):
            shape = source.pick((self.src, self.weights))
            if shape:
                shape[source.byte() % len(shape)] = source.between(0, 9)

    def arguments(self):
        array = lambda shape: self.source.array(list(shape), self.type)
        if self.name.endswith("_backward"):
            made = [array(self.src), array(self.dst), array(self.weights)]
        elif self.name.endswith("_data"):
            made = [array(self.dst), array(self.weights)]
            if not self.name.startswith("conv_t"):
                self.attributes.setdefault("dst_shape", self.src)
        elif self.name.endswith("_weights"):
            made = [array(self.src), array(self.dst)]
            self.attributes.setdefault("weights_shape", self.weights)
        else:
            made = [array(self.src), array(self.weights)]
            if self.source.chance(4):
                self.attributes.setdefault("bias", array([self.channels]))
        if self.source.chance(16):
            made[self.source.byte() % len(made)] = self.source.garbage()
        return made

    def is_small(self, arguments):
        """Whether the output, as far as attributes decide it, has few elements."""
        for name in ("dst_shape", "weights_shape"):
            sizes = self.attributes.get(name)
            if isinstance(sizes, (list, tuple)) and all(isinstance(n, int) for n in sizes):
                if abs(np.prod([float(n) for n in sizes])) > MOST_ELEMENTS:
                    return False
        for name in LISTS:
            values = self.attributes.get(name, 0)
            values = values if isinstance(values, (list, tuple, range)) else [values]
            if any(isinstance(n, (int, np.integer)) and 50 < n < 2**62 for n in values):
                return False
        return all(not isinstance(a, np.ndarray) or a.size < MOST_ELEMENTS for a in arguments)


def make_engine(source):
    return convgrad.Engine(
        threads=source.pick((1, 2)) if not source.chance(8) else source.number() % 2000,
        max_isa=source.pick((None, "portable", "avx2", "avx512", "x")),
        math=source.pick(("accurate", "strict", "fast", "")),
        workspace_limit=source.pick((None, None, 0, 10_000, -1, 2**70)),
    )


def run_compiled(call, source, arguments):
    extra = ("relu", "add", "out", "dtype", "bias", "diff_bias")
    attributes = {k: v for k, v in call.attributes.items() if k not in extra}
    if call.name.endswith("_backward"):
        attributes.pop("dst_shape", None)
    patterns = arguments
    if source.chance(3):
        shapes = [getattr(a, "shape", (1,)) for a in arguments]
        patterns = [
            convgrad.LogicalTensor(i, source.pick(("f32", "bf16", "f16", call.type)), shape)
            for i, shape in enumerate(shapes)
        ]
    if source.chance(4):
        str(convgrad.explain(call.name, patterns, **attributes))
    compiled = convgrad.compile(call.name, patterns, **attributes)
    compiled.describe()
    if source.chance(8):
        arguments = arguments[:-1]
    if source.chance(8):
        arguments = [source.garbage(), *arguments[1:]]
    compiled(*arguments, out=source.garbage() if source.chance(8) else None)


def run_graph(call, source):
    kinds = ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights",
             "ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights", "Add",
             "")  # fmt: skip
    shapes = [call.src, call.weights, call.dst]
    tensors = []
    for i in range(3):
        shape = source.pick(shapes)
        if source.chance(4):
            shape = source.garbage()
        strides = source.garbage() if source.chance(16) else None
        tensors.append(convgrad.LogicalTensor(i, source.pick(("f32", call.type, "x")), shape, strides))
    op = convgrad.Op(source.byte(), source.pick(kinds), tensors[:2], tensors[2:], "op",
                     **call.attributes)  # fmt: skip
    graph = convgrad.Graph()
    graph.add(op).finalize()
    for partition in graph.partitions():
        compiled = partition.compile()
        inputs = [source.array([n or 0 for n in t.shape], call.type) for t in compiled.inputs]
        if call.is_small(inputs):
            compiled(*inputs)


def run_one(data):
    """One input of the fuzzer."""
    source = Input(data)
    try:
        call = Call(source)
        while source.chance(3):
            call.spoil()
        what = source.byte() % 8
        if what == 7:
            return run_graph(call, source)
        if source.chance(4):
            call.attributes["engine"] = make_engine(source)
        arguments = call.arguments()
        if not call.is_small(arguments):
            return
        if what >= 5:
            run_compiled(call, source, arguments)
        else:
            getattr(convgrad, call.name)(*arguments, **call.attributes)
    except (convgrad.Error, TypeError) as e:
        assert str(e), "an error without a message"
