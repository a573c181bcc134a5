"""The six ops against JAX, for all types, formats and strides; out, accumulate and the rest."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import FUNCTIONS, Case, scattered

import convgrad

SEEDS = st.integers(0, 2**32 - 1)
GRADIENTS = [op for op in FUNCTIONS if "Backward" in op]
WEIGHTS_GRADIENTS = [op for op in FUNCTIONS if op.endswith("Weights")]


@pytest.mark.parametrize("op", FUNCTIONS)
@given(seed=SEEDS)
def test_against_jax(op, seed):
    case = Case(op, seed)
    packed = case.call()
    assert type(packed) is np.ndarray and packed.dtype == case.inputs[0].dtype
    assert packed.flags.c_contiguous
    case.check(packed)

    out = scattered(np.zeros(case.value.shape, packed.dtype), case.rng)
    views = [scattered(x, case.rng) for x in case.inputs]
    assert case.call(*views, out=out) is out
    case.check(out)


@pytest.mark.parametrize("op", GRADIENTS)
@given(seed=SEEDS)
def test_accumulate(op, seed):
    case = Case(op, seed)
    start = np.random.default_rng(seed).integers(-4, 5, case.value.shape)
    out = start.astype(case.inputs[0].dtype)
    case.call(out=out, accumulate=True)
    case.value = case.value + start
    case.sum_error = case.sum_error + np.abs(case.value) * 2.0**-23
    case.check(out)


@pytest.mark.parametrize("op", WEIGHTS_GRADIENTS)
@given(seed=SEEDS)
def test_f32_gradients_and_bias(op, seed):
    case = Case(op, seed)
    diff_weights, diff_bias = case.call(dtype="f32", diff_bias=True)
    assert diff_weights.dtype == diff_bias.dtype == np.float32
    case.check(diff_weights, type="f32")
    diff_dst = case.inputs[1].astype(np.float64)
    channel = 1 if case.problem.data_format == "NCX" else diff_dst.ndim - 1
    axes = tuple(d for d in range(diff_dst.ndim) if d != channel)
    np.testing.assert_allclose(diff_bias, diff_dst.sum(axes), rtol=1e-5, atol=1e-4)

    mine = np.ones_like(diff_bias)
    again = case.call(out=diff_weights.copy(), diff_bias=mine, accumulate=True)
    assert again[1] is mine
    np.testing.assert_allclose(mine, diff_bias + 1, rtol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_both_gradients(transposed, dtype):
    rng = np.random.default_rng(3)
    src = rng.standard_normal((2, 9, 8, 6)).astype(dtype)
    prefix = "conv_transpose" if transposed else "convolution"
    weights = rng.standard_normal((3, 3, 4, 6) if transposed else (3, 3, 6, 4)).astype(dtype)
    attributes = {"strides": 2, "pads_begin": 1, "pads_end": [1, 1]}
    dst = getattr(convgrad, prefix)(src, weights, **attributes)
    diff_dst = rng.standard_normal(dst.shape).astype(dtype)

    both = getattr(convgrad, prefix + "_backward")
    got = both(src, diff_dst, weights, diff_bias=True, **attributes)
    shape = () if transposed else (src.shape,)
    diff_src = getattr(convgrad, prefix + "_backward_data")(diff_dst, weights, *shape, **attributes)
    diff_weights, diff_bias = getattr(convgrad, prefix + "_backward_weights")(
        src, diff_dst, weights.shape, diff_bias=True, **attributes
    )
    for one, other in zip(got, (diff_src, diff_weights, diff_bias)):
        assert one.tobytes() == other.tobytes()
    assert both(src, diff_dst, weights, **attributes).diff_bias is None

    # Into given memory, adding: every element doubles.
    outs = tuple(x.astype(dtype) for x in got)
    summed = both(src, diff_dst, weights, out=outs, accumulate=True, **attributes)
    for one, other, before in zip(summed, outs, got):
        assert one is other
        twice = 2 * before.astype(np.float64)
        np.testing.assert_allclose(one.astype(np.float64), twice, rtol=0.02, atol=1e-6)


def test_relu_and_add():
    rng = np.random.default_rng(5)
    src = rng.standard_normal((1, 6, 3)).astype(np.float32)
    weights = rng.standard_normal((3, 3, 4)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    add = rng.standard_normal((1, 4, 4)).astype(np.float32)
    plain = convgrad.convolution(src, weights, bias)
    got = convgrad.convolution(src, weights, bias, add=add, relu=True)
    np.testing.assert_allclose(got, np.maximum(plain + add, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_empty_batch(op):
    data = np.ones((0, 5, 4), np.float32)
    if op.endswith("Weights"):
        got = FUNCTIONS[op](data, data, (1, 4, 4))
        assert np.array_equal(got, np.zeros((1, 4, 4)))
    else:
        assert FUNCTIONS[op](data, np.ones((1, 4, 4), np.float32)).shape == (0, 5, 4)


def test_one_number_stands_for_all_axes():
    src = np.ones((1, 9, 9, 1), np.float32)
    weights = np.ones((3, 3, 1, 1), np.float32)
    one = convgrad.convolution(src, weights, strides=2, pads_begin=1, pads_end=1, dilations=2)
    other = convgrad.convolution(
        src, weights, strides=(2, 2), pads_begin=[1, 1], pads_end=np.array([1, 1]), dilations=(2, 2)
    )
    assert np.array_equal(one, other)


def test_threads_do_not_change_bits():
    rng = np.random.default_rng(1)
    src = rng.standard_normal((4, 20, 20, 24)).astype(np.float32)
    diff_dst = rng.standard_normal((4, 18, 18, 40)).astype(np.float32)
    results = {
        convgrad.convolution_backward_weights(
            src, diff_dst, (3, 3, 24, 40), engine=convgrad.Engine(threads=n)
        ).tobytes()
        for n in (1, 2, 5)
    }
    assert len(results) == 1


def test_formats_are_read_in_any_case():
    src = np.ones((2, 3, 6, 5), np.float32)
    diff_dst = np.ones((2, 4, 6, 5), np.float32)
    weights = np.ones((4, 3, 1, 1), np.float32)
    formats = {"data_format": "ncx", "weights_format": "oix"}
    both = convgrad.convolution_backward(src, diff_dst, weights, diff_bias=True, **formats)
    alone = convgrad.convolution_backward_weights(
        src, diff_dst, (4, 3, 1, 1), diff_bias=True, **formats
    )
    for diff_bias in (both[2], alone[1]):
        np.testing.assert_array_equal(diff_bias, np.full(4, 60, np.float32))


@given(seed=SEEDS)
def test_bias_gradient(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(0, 7, rng.integers(2, 6)))
    dtype = [np.float32, ml_dtypes.bfloat16, np.float16][rng.integers(3)]
    diff_dst = scattered(rng.integers(-4, 5, shape).astype(dtype), rng)
    data_format = ["NXC", "NCX"][rng.integers(2)]
    channel = 1 if data_format == "NCX" else len(shape) - 1
    axes = tuple(d for d in range(len(shape)) if d != channel)
    expected = diff_dst.astype(np.float64).sum(axes)

    packed = convgrad.bias_add_backward(diff_dst, data_format=data_format)
    assert packed.dtype == dtype
    np.testing.assert_array_equal(packed, expected.astype(dtype))
    wide = convgrad.bias_add_backward(diff_dst, data_format=data_format, dtype="f32")
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide, expected)
    assert convgrad.bias_add_backward(
        diff_dst, data_format=data_format, out=wide, accumulate=True
    ) is wide
    np.testing.assert_array_equal(wide, 2 * expected)

    assert convgrad.infer_shape("bias_add_backward", shape, data_format=data_format) == packed.shape
    compiled = convgrad.compile("bias_add_backward", [diff_dst], data_format=data_format)
    np.testing.assert_array_equal(compiled(diff_dst), packed)
    explained = convgrad.explain("BiasAddBackward", [diff_dst], data_format=data_format)
    assert explained.algorithm == "sums.fma"


def test_bias_gradient_refuses():
    with pytest.raises(convgrad.InvalidShape, match="ranks 2 to 5"):
        convgrad.bias_add_backward(np.zeros(3, np.float32))
    with pytest.raises(convgrad.InvalidArgument, match="accumulate adds into out"):
        convgrad.bias_add_backward(np.zeros((3, 2), np.float32), accumulate=True)
    with pytest.raises(convgrad.InvalidOp, match='no attribute "groups"'):
        convgrad.compile("bias_add_backward", [np.zeros((3, 2), np.float32)], groups=2)
