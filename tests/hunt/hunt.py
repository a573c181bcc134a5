"""The hunt through the Python package: random problems against an f64 evaluation of its own.

    python tests/hunt/hunt.py COUNT [SEED]

Shares nothing with the library or the other tests: the specification once more, with NumPy, tap by tap.
Tensors lie in permuted order with gaps full of NaN, inputs also overlap themselves; values are small
whole numbers, so that every sum is exact and every result of strict math must be equal (`accurate` may
take Winograd's tiles, whose fractions round); gaps and inputs must stay as they were. Ways to call: functions, functions that write into memory given to them, compiled ops, graphs.
"""

import collections
import itertools
import random
import sys
import time

import ml_dtypes
import numpy as np

import convgrad

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
NAMES = ["Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights",
         "ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights"]  # fmt: skip
FUNCTIONS = {
    "Convolution": convgrad.convolution,
    "ConvolutionBackwardData": convgrad.convolution_backward_data,
    "ConvolutionBackwardWeights": convgrad.convolution_backward_weights,
    "ConvTranspose": convgrad.conv_transpose,
    "ConvTransposeBackwardData": convgrad.conv_transpose_backward_data,
    "ConvTransposeBackwardWeights": convgrad.conv_transpose_backward_weights,
}

Axis = collections.namedtuple("Axis", "large small kernel stride dilation begin end")


class Problem:
    """A convolution from `large` (N, G·I, X...) to `small` (N, G·O, Y...); a transposed op has their
    roles exchanged."""

    def __init__(self, draw):
        self.name = draw.choice(NAMES)
        self.transposed = "Transpose" in self.name
        self.type = draw.choice(list(TYPES))
        self.rank = draw.choice([1, 2, 2, 2, 3])
        self.batch = draw.choice([0, 1, 1, 2, 3]) if draw.random() < 0.1 else draw.randint(1, 3)
        self.groups = draw.choice([1, 1, 1, 2, 3, 8])
        most = {1: 40, 2: 20, 3: 6}[self.groups if self.groups < 3 else 3]
        self.i, self.o = (draw.choice([1, 2, 3, draw.randint(1, most), 16]) for _ in range(2))
        if draw.random() < 0.2:
            self.groups, self.i, self.o = draw.randint(2, 40), 1, draw.choice([1, 1, 2])
        self.axes = [self.axis(draw) for _ in range(self.rank)]
        self.data_format = draw.choice(["NXC", "NCX"])
        first = ["XIO", "OIX"] if not self.transposed else ["XOI", "IOX"]
        self.weights_format = draw.choice(first)

    def axis(self, draw):
        while True:
            kernel = draw.choice([1, 2, 3, 3, 3, 4, 5, 7])
            stride, dilation = draw.choice([1, 1, 1, 2, 3]), draw.choice([1, 1, 1, 2, 3])
            begin, end = (draw.choice([0, 1, 1, 2, draw.randint(0, 6)]) for _ in range(2))
            large = draw.randint(1, {1: 40, 2: 14, 3: 7}[self.rank])
            span = large + begin + end - dilation * (kernel - 1) - 1
            if span < 0:
                continue
            small = span // stride + 1
            if self.transposed or self.name == "ConvolutionBackwardData":
                large = (small - 1) * stride - begin - end + dilation * (kernel - 1) + 1
            if large > 0:
                return Axis(large, small, kernel, stride, dilation, begin, end)

    def shape_of(self, role):
        """In canonical order: (N, C, X...) and (O, I, K...), channels of all groups but I."""
        if role == "large":
            return (self.batch, self.groups * self.i, *(a.large for a in self.axes))
        if role == "small":
            return (self.batch, self.groups * self.o, *(a.small for a in self.axes))
        return (self.groups * self.o, self.i, *(a.kernel for a in self.axes))

    def order_of(self, role):
        """Axes of the op's own tensor, as numbers of canonical ones."""
        spatial = list(range(2, 2 + self.rank))
        if role == "weights":
            return [*spatial, 1, 0] if self.weights_format in ("XIO", "XOI") else [0, 1, *spatial]
        return [0, *spatial, 1] if self.data_format == "NXC" else [0, 1, *spatial]

    def roles(self):
        src, dst = ("small", "large") if self.transposed else ("large", "small")
        if self.name.endswith("Data"):
            return (dst, "weights"), src
        if self.name.endswith("Weights"):
            return (src, dst), "weights"
        return (src, "weights"), dst

    def attributes(self):
        return {
            "strides": [a.stride for a in self.axes],
            "dilations": [a.dilation for a in self.axes],
            "pads_begin": [a.begin for a in self.axes],
            "pads_end": [a.end for a in self.axes],
            "groups": self.groups,
            "data_format": self.data_format,
            "weights_format": self.weights_format,
        }


def evaluate(problem, large, small, weights, wanted):
    """The one of the three that is wanted, from the other two, in f64 and canonical order."""
    result = np.zeros(problem.shape_of(wanted))
    for taps in itertools.product(*(range(a.kernel) for a in problem.axes)):
        at_small, at_large = [], []
        for axis, tap in zip(problem.axes, taps):
            positions = np.arange(axis.small) * axis.stride - axis.begin + tap * axis.dilation
            inside = np.flatnonzero((positions >= 0) & (positions < axis.large))
            at_small.append(inside)
            at_large.append(positions[inside])
        for g in range(problem.groups):
            o = np.arange(g * problem.o, (g + 1) * problem.o)
            i = np.arange(g * problem.i, (g + 1) * problem.i)
            every = np.arange(problem.batch)
            to_small, to_large = np.ix_(every, o, *at_small), np.ix_(every, i, *at_large)
            tap = (o, slice(None), *taps)
            # Positions of a tap are different places, so that += adds each.
            if wanted == "small":
                result[to_small] += np.einsum("oi,ni...->no...", weights[tap], large[to_large])
            elif wanted == "large":
                result[to_large] += np.einsum("oi,no...->ni...", weights[tap], small[to_small])
            else:
                over = [0, *range(2, 2 + problem.rank)]
                result[tap] += np.tensordot(small[to_small], large[to_large], (over, over))
    return result


class Memory:
    """An array in a buffer of NaN: any order of axes, gaps, or (inputs) elements that share memory."""

    def __init__(self, draw, shape, dtype, overlapping):
        strides, step = [0] * len(shape), draw.choice([1, 1, 1, 2])
        for axis in draw.sample(range(len(shape)), len(shape)):
            strides[axis] = step
            step = step * max(shape[axis], 1) + draw.choice([0, 0, 1, 5])
        if overlapping:
            strides[draw.randrange(len(shape))] = draw.randint(1, 4)
        places = 1 + sum(max(n - 1, 0) * s for n, s in zip(shape, strides))
        margin = draw.randint(0, 9)
        self.buffer = np.full(places + 2 * margin + 8, np.nan, dtype)
        size = self.buffer.itemsize
        self.array = np.lib.stride_tricks.as_strided(
            self.buffer[margin:], shape, [s * size for s in strides]
        )

    def fill(self, draw, most):
        values = np.random.default_rng(draw.getrandbits(32))
        self.array[...] = values.integers(-most, most + 1, self.array.shape)
        self.before = self.buffer.tobytes()
        return self


def call(problem, draw, inputs, output, expected_shape):
    """(result, way, math mode): `output` is memory that some ways write to."""
    attributes = problem.attributes()
    name = problem.name
    shapes = {"ConvolutionBackwardData": "dst_shape"}
    key = "weights_shape" if name.endswith("Weights") else shapes.get(name)
    math = draw.choice(["accurate", "strict"])
    engine = convgrad.Engine(threads=draw.choice([1, 2, 3]), math=math)
    way = draw.choice(["function", "out", "compiled", "graph"])
    if key and way != "graph":
        attributes[key] = expected_shape
    if way == "function":
        return FUNCTIONS[name](*inputs, **attributes, engine=engine), way, math
    if way == "out":
        attributes.pop(key, None)
        return FUNCTIONS[name](*inputs, **attributes, out=output.array, engine=engine), way, math
    if way == "compiled":
        return convgrad.compile(name, inputs, **attributes, engine=engine)(*inputs), way, math
    if 0 in expected_shape or any(0 in x.shape for x in inputs):
        return FUNCTIONS[name](*inputs, **attributes, **({key: expected_shape} if key else {})), way, "accurate"
    tensors = [
        convgrad.LogicalTensor(
            n, problem.type, x.shape, [s // x.itemsize for s in x.strides]
        )
        for n, x in enumerate(inputs)
    ]
    out = convgrad.LogicalTensor(2, problem.type, expected_shape)
    graph = convgrad.Graph()
    if name.endswith("Weights"):
        attributes["weights_shape"] = expected_shape
    graph.add(convgrad.Op(0, name, tensors, [out], **attributes))
    graph.finalize()
    (partition,) = graph.partitions()
    return partition.compile(engine=engine)(*inputs), way, math


def bound(problem, wanted, most, expected):
    """How far Winograd's tiles may be from a sum of whole numbers: some roundings of its magnitude in
    f32, and then perhaps the other of two neighbours in the result's type."""
    terms = {"large": problem.o, "small": problem.i, "weights": problem.batch}[wanted]
    for axis in problem.axes:
        terms *= axis.small if wanted == "weights" else axis.kernel
    unit = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[problem.type]
    return 64 * 2.0**-24 * terms * most**2 + 2 * unit * np.abs(expected.astype(np.float64))


def trial(seed):
    """What is wrong, or nothing; and the way that was taken."""
    draw = random.Random(seed)
    problem = Problem(draw)
    dtype = TYPES[problem.type]
    roles, wanted = problem.roles()
    most = 2 if problem.type == "f32" else 1
    memories, canonical = [], {"large": None, "small": None, "weights": None}
    for role in roles:
        order, shape = problem.order_of(role), problem.shape_of(role)
        own = [shape[axis] for axis in order]
        memory = Memory(draw, own, dtype, draw.random() < 0.2).fill(draw, most)
        memories.append(memory)
        canonical[role] = np.transpose(memory.array.astype(np.float64), np.argsort(order))
    exact = evaluate(problem, canonical["large"], canonical["small"], canonical["weights"], wanted)
    expected = np.transpose(exact, problem.order_of(wanted)).astype(np.float32).astype(dtype)
    output = Memory(draw, expected.shape, dtype, False)
    got, way, math = call(problem, draw, [m.array for m in memories], output, expected.shape)
    faults = []
    if got.shape != expected.shape or got.dtype != dtype:
        faults.append(f"{got.shape} {got.dtype} instead of {expected.shape} {dtype}")
    else:
        error = np.abs(np.asarray(got).astype(np.float64) - expected.astype(np.float64))
        if not np.all(error <= bound(problem, wanted, most, expected) * (math == "accurate")):
            faults.append(f"other values, {math}")
    if any(m.buffer.tobytes() != m.before for m in memories):
        faults.append("an input was changed")
    if way == "out":
        output.array[...] = np.nan  # what is left was written between the elements
        if not np.all(np.isnan(output.buffer.astype(np.float32))):
            faults.append("memory between elements was written")
    return [f"{fault} ({way}, {vars(problem)})" for fault in faults], way, problem


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    start, finds = time.monotonic(), 0
    ways, ops, types = (collections.Counter() for _ in range(3))
    for seed in range(first, first + count):
        try:
            faults, way, problem = trial(seed)
        except Exception as error:
            faults, way, problem = [f"{type(error).__name__}: {error}"], "", None
        for fault in faults:
            print(f"seed {seed}: {fault}")
        finds += bool(faults)
        if problem:
            ways[way] += 1
            ops[problem.name] += 1
            types[problem.type] += 1
    print(f"{count} problems from seed {first}, {finds} finds; {time.monotonic() - start:.0f} s")
    for counter in (ways, ops, types):
        print("  " + ", ".join(f"{key} {n}" for key, n in sorted(counter.items())))
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
