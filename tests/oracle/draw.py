"""Draws problems of all six ops and computes them with JAX in float64.

Writes to the given directory:
  index.txt  one problem per line, key=value words (lists with commas)
  data.bin   for each problem: input 0, input 1, bias (in the problem's type), then for each output
             element value, sum of |terms| and number of terms (float64, three arrays)

Only convolutions and their transposes by automatic differentiation are used, so that the gradients
are JAX's own, not formulas of ours.
"""

import pathlib
import random
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

jax.config.update("jax_enable_x64", True)

PER_OP = 50
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
OPS = [
    "Convolution",
    "ConvolutionBackwardData",
    "ConvolutionBackwardWeights",
    "ConvTranspose",
    "ConvTransposeBackwardData",
    "ConvTransposeBackwardWeights",
]
JAX_PADDING = {"same_upper": "SAME", "same_lower": "SAME_LOWER", "valid": "VALID"}


class Problem:
    """One convolution geometry; `longer` is src of the convolution or dst of the transposed one."""

    def __init__(self, op, rng):
        self.op, self.transpose = op, op.startswith("ConvTranspose")
        self.type = rng.choice(list(TYPES))
        self.rank = rng.choice([1, 2, 2, 3])
        self.data_format = rng.choice(["NXC", "NCX"])
        self.space_first = rng.random() < 0.5
        self.second_form = self.transpose and rng.random() < 0.5
        self.auto_pad = rng.choice(["none", "none", "none", *JAX_PADDING])
        self.bias = op in ("Convolution", "ConvTranspose") and rng.random() < 0.5
        self.batch = rng.randint(1, 3)
        self.groups = rng.choice([1, 1, 1, 2, 3, 8, 16])
        widths = [1, 1, 2] if self.groups > 4 else [1, 2, 3, 5, 8, 16, 17, 33]
        self.long_channels = self.groups * rng.choice(widths)
        self.short_channels = self.groups * rng.choice(widths)
        self.axes = [self.draw_axis(rng) for _ in range(self.rank)]

    def draw_axis(self, rng):
        """(kernel, stride, dilation, pads, output padding, longer, shorter) that fit together."""
        longest = {1: 40, 2: 16, 3: 8}[self.rank]
        while True:
            kernel, stride = rng.choice([1, 2, 3, 3, 4, 5]), rng.choice([1, 1, 2, 3])
            dilation = rng.choice([1, 1, 2, 3])
            extent = dilation * (kernel - 1) + 1
            pads = [rng.choice([0, 1, 2, extent // 2, extent + 1]) for _ in range(2)]
            extra = 0
            if not self.transpose:
                longer = rng.randint(1, longest)
                if self.auto_pad == "none":
                    room = longer + sum(pads) - extent
                elif self.auto_pad == "valid":
                    room = longer - extent
                else:
                    room = (-(-longer // stride) - 1) * stride
                if room >= 0:
                    return kernel, stride, dilation, pads, extra, longer, room // stride + 1
                continue
            shorter = rng.randint(1, max(1, longest // stride))
            full = stride * (shorter - 1) + extent
            if self.auto_pad == "none":
                extra = rng.choice([0, rng.randrange(max(stride, dilation))])
                longer = full + extra - sum(pads)
            elif self.auto_pad == "valid":
                longer = full
            else:
                longer = full - max(0, extent - stride)
            if longer >= 1:
                return kernel, stride, dilation, pads, extra, longer, shorter

    def column(self, index):
        return [axis[index] for axis in self.axes]

    def data_shape(self, channels, space):
        if self.data_format == "NCX":
            return (self.batch, channels, *space)
        return (self.batch, *space, channels)

    @property
    def longer_shape(self):
        return self.data_shape(self.long_channels, self.column(5))

    @property
    def shorter_shape(self):
        return self.data_shape(self.short_channels, self.column(6))

    @property
    def weights_shape(self):
        """Shape of the op's weights tensor; the convolution's O is the transposed one's I."""
        o, i = self.short_channels, self.long_channels // self.groups
        if self.second_form:
            o, i = self.short_channels // self.groups, self.long_channels
        kernel = self.column(0)
        return (*kernel, i, o) if self.space_first else (o, i, *kernel)

    def to_first_form(self, weights):
        """(O/G, I) weights as the convolution's (O, I/G)."""
        if not self.second_form:
            return weights
        g, o, i = self.groups, self.short_channels, self.long_channels
        if self.space_first:
            kernel = weights.shape[:-2]
            split = weights.reshape(*kernel, g, i // g, o // g)
            return jnp.moveaxis(split, -3, -2).reshape(*kernel, i // g, o)
        kernel = weights.shape[2:]
        split = weights.reshape(o // g, g, i // g, *kernel)
        return jnp.moveaxis(split, 1, 0).reshape(o, i // g, *kernel)

    def convolution(self, src, weights):
        space = "DHW"[-self.rank :]
        data = f"NC{space}" if self.data_format == "NCX" else f"N{space}C"
        kernel = f"{space}IO" if self.space_first else f"OI{space}"
        padding = JAX_PADDING.get(self.auto_pad)
        if padding is None:
            # The end pad that makes both lengths fit; negative where output padding added to it.
            padding = [(p[0], p[1] - q) for p, q in zip(self.column(3), self.column(4))]
        return jax.lax.conv_general_dilated(
            src,
            self.to_first_form(weights),
            window_strides=self.column(1),
            padding=padding,
            rhs_dilation=self.column(2),
            dimension_numbers=(data, kernel, data),
            feature_group_count=self.groups,
            precision=jax.lax.Precision.HIGHEST,
        )

    def conv_transpose(self, src, weights):
        """The adjoint of the convolution in its src."""
        like = jnp.zeros(self.longer_shape, src.dtype)
        _, pull = jax.vjp(lambda x: self.convolution(x, weights), like)
        return pull(src)[0]

    def inputs(self):
        src, dst = self.longer_shape, self.shorter_shape
        if self.transpose:
            src, dst = dst, src
        if self.op.endswith("Data"):
            return dst, self.weights_shape
        if self.op.endswith("Weights"):
            return src, dst
        return src, self.weights_shape

    def function(self):
        """The op as a function of its first two inputs."""
        forward = self.conv_transpose if self.transpose else self.convolution
        if self.op.endswith("Data"):
            shape = self.shorter_shape if self.transpose else self.longer_shape

            def gradient(diff_dst, weights):
                like = jnp.zeros(shape, diff_dst.dtype)
                return jax.vjp(lambda x: forward(x, weights), like)[1](diff_dst)[0]

            return gradient
        if self.op.endswith("Weights"):

            def gradient(src, diff_dst):
                like = jnp.zeros(self.weights_shape, src.dtype)
                return jax.vjp(lambda w: forward(src, w), like)[1](diff_dst)[0]

            return gradient
        return forward

    def index_line(self, out_shape):
        def words(values):
            return ",".join(str(v) for v in values)

        weights_format = {
            (False, False): "OIX",
            (False, True): "XIO",
            (True, False): "IOX",
            (True, True): "XOI",
        }[self.transpose, self.space_first]
        in0, in1 = self.inputs()
        fields = {
            "op": self.op,
            "type": self.type,
            "data_format": self.data_format,
            "weights_format": weights_format,
            "groups": self.groups,
            "strides": words(self.column(1)),
            "dilations": words(self.column(2)),
            "pads_begin": words(p[0] for p in self.column(3)),
            "pads_end": words(p[1] for p in self.column(3)),
            "auto_pad": self.auto_pad,
            "output_padding": words(self.column(4)) if self.transpose else "",
            "in0": words(in0),
            "in1": words(in1),
            "bias": words([out_shape[1 if self.data_format == "NCX" else -1]]) if self.bias else "",
            "out": words(out_shape),
        }
        return " ".join(f"{key}={value}" for key, value in fields.items())


def compute(problem, numbers):
    """The inputs in the problem's type, and value, magnitude and term count of each output."""
    dtype = TYPES[problem.type]
    inputs = [numbers.uniform(-1, 1, shape).astype(dtype) for shape in problem.inputs()]
    wide = [x.astype(np.float64) for x in inputs]
    function = jax.jit(problem.function())
    value = np.array(function(*wide))
    magnitude = np.array(function(*(np.abs(x) for x in wide)))
    terms = np.array(function(*(np.ones_like(x) for x in wide)))
    if problem.bias:
        channel = 1 if problem.data_format == "NCX" else value.ndim - 1
        bias = numbers.uniform(-1, 1, value.shape[channel]).astype(dtype)
        shape = [-1 if d == channel else 1 for d in range(value.ndim)]
        value += bias.astype(np.float64).reshape(shape)
        magnitude += np.abs(bias.astype(np.float64)).reshape(shape)
        inputs.append(bias)
    return inputs, [value, magnitude, terms]


def main(directory):
    rng, numbers = random.Random(20240229), np.random.default_rng(7)
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "index.txt", "w") as index, open(directory / "data.bin", "wb") as data:
        for op in OPS:
            for _ in range(PER_OP):
                problem = Problem(op, rng)
                inputs, outputs = compute(problem, numbers)
                for array in inputs:
                    data.write(np.ascontiguousarray(array).tobytes())
                for array in outputs:
                    data.write(np.ascontiguousarray(array, np.float64).tobytes())
                print(problem.index_line(outputs[0].shape), file=index)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
