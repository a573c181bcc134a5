"""Random problems, arrays in odd places of memory, and bounds for errors."""

import random

import draw
import numpy as np

import convgrad

FUNCTIONS = {
    "Convolution": convgrad.convolution,
    "ConvolutionBackwardData": convgrad.convolution_backward_data,
    "ConvolutionBackwardWeights": convgrad.convolution_backward_weights,
    "ConvTranspose": convgrad.conv_transpose,
    "ConvTransposeBackwardData": convgrad.conv_transpose_backward_data,
    "ConvTransposeBackwardWeights": convgrad.conv_transpose_backward_weights,
}
SHAPE_ARGUMENTS = {
    "ConvolutionBackwardData": "dst_shape",
    "ConvolutionBackwardWeights": "weights_shape",
    "ConvTransposeBackwardWeights": "weights_shape",
}
PRECISION = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
# The least number that is not rounded to a multiple of something larger.
TINY = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}


def attributes(problem):
    """Keyword arguments that describe a problem of the oracle."""
    weights_format = {
        (False, False): "OIX",
        (False, True): "XIO",
        (True, False): "IOX",
        (True, True): "XOI",
    }[problem.transpose, problem.space_first]
    made = {
        "strides": problem.column(1),
        "dilations": problem.column(2),
        "pads_begin": [p[0] for p in problem.column(3)],
        "pads_end": [p[1] for p in problem.column(3)],
        "auto_pad": problem.auto_pad,
        "groups": problem.groups,
        "data_format": problem.data_format,
        "weights_format": weights_format,
    }
    if problem.transpose:
        made["output_padding"] = problem.column(4)
    return made


class Case:
    """One problem with inputs, JAX's result in f64, and how exact ours must be."""

    def __init__(self, op, seed):
        self.rng = random.Random(seed)
        self.problem = draw.Problem(op, self.rng)
        self.op, self.type = op, self.problem.type
        self.inputs, (self.value, magnitude, terms) = draw.compute(
            self.problem, np.random.default_rng(seed)
        )
        self.attributes = attributes(self.problem)
        if op in SHAPE_ARGUMENTS:
            self.attributes[SHAPE_ARGUMENTS[op]] = self.value.shape
        # f32 sums in any order, then one rounding.
        self.sum_error = (terms + 2) * PRECISION["f32"] * magnitude

    def call(self, *inputs, **more):
        return FUNCTIONS[self.op](*(inputs or self.inputs), **self.attributes, **more)

    def bound(self, type=None):
        type = type or self.type
        return self.sum_error * 1.01 + PRECISION[type] * np.abs(self.value) + TINY[type]

    def check(self, got, value=None, type=None):
        value = self.value if value is None else value
        assert got.shape == value.shape
        error = np.abs(np.asarray(got).astype(np.float64) - value)
        assert np.all(error <= self.bound(type)), (self.problem.__dict__, error.max())


def scattered(array, rng):
    """The same values as a view with other strides: axes in another order, gaps between elements."""
    order = list(range(array.ndim))
    rng.shuffle(order)
    steps = [rng.choice([1, 1, 2, 3]) for _ in order]
    wide = [array.shape[axis] * step for axis, step in zip(order, steps)]
    memory = np.full(wide, np.nan, array.dtype)
    view = memory[tuple(slice(0, None, step) for step in steps)].transpose(np.argsort(order))
    view[...] = array
    return view
