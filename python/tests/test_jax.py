"""convgrad.jax against lax.conv_general_dilated, through every transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from support import Case

import convgrad
import convgrad.jax

RNG = np.random.default_rng(8)


def make(*shape, dtype=jnp.float32):
    return jnp.asarray(RNG.standard_normal(shape), dtype)


def ours(x, w):
    return convgrad.jax.convolution(
        x, w, strides=(2, 1), pads_begin=1, pads_end=(1, 2), dilations=(1, 2), groups=2
    )


def theirs(x, w):
    return lax.conv_general_dilated(
        x,
        w,
        (2, 1),
        [(1, 1), (1, 2)],
        rhs_dilation=(1, 2),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2,
        precision="highest",
    )


X, W = make(2, 7, 8, 4), make(3, 3, 2, 6)


def close(a, b, tolerance=1e-4):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        np.testing.assert_allclose(
            np.asarray(one, np.float64),
            np.asarray(other, np.float64),
            rtol=tolerance,
            atol=tolerance,
        )


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_values_and_gradients(wrap):
    close(wrap(ours)(X, W), theirs(X, W))
    loss = lambda f: lambda x, w: jnp.sum(jnp.sin(f(x, w)))
    close(wrap(jax.grad(loss(ours), (0, 1)))(X, W), jax.grad(loss(theirs), (0, 1))(X, W))


def test_second_derivatives():
    def penalty(f):
        def loss(x, w):
            return jnp.sum(f(x, w) ** 2)

        def norm(x, w):
            return sum(jnp.sum(g**2) for g in jax.grad(loss, (0, 1))(x, w))

        return jax.jit(jax.grad(norm, (0, 1)))

    x, w = X / 8, W / 8
    close(penalty(ours)(x, w), penalty(theirs)(x, w), 1e-3)


def test_vmap():
    xs, ws = make(3, 1, 6, 6, 4), make(3, 3, 3, 2, 6)
    close(jax.vmap(ours)(xs, ws), jnp.stack([theirs(x, w) for x, w in zip(xs, ws)]))
    close(jax.vmap(ours, (0, None))(xs, W), jnp.stack([theirs(x, W) for x in xs]))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_16_bit_types(dtype):
    x, w = X.astype(dtype), W.astype(dtype)
    got, pull = jax.vjp(jax.jit(ours), x, w)
    assert got.dtype == dtype
    expected, push = jax.vjp(theirs, x.astype(jnp.float32), w.astype(jnp.float32))
    close(got, expected, 0.05)
    close(pull(got), push(got.astype(jnp.float32)), 0.3)


@pytest.mark.parametrize("op", ["Convolution", "ConvTranspose"])
@given(seed=st.integers(0, 2**32 - 1))
def test_random_problems(op, seed):
    case = Case(op, seed)
    attributes = dict(case.attributes)
    function = convgrad.jax.conv_transpose if case.problem.transpose else convgrad.jax.convolution
    src, weights, *bias = (jnp.asarray(x) for x in case.inputs)
    dst, pull = jax.vjp(lambda x, w: function(x, w, **attributes), src, weights)
    plain = convgrad.conv_transpose if case.problem.transpose else convgrad.convolution
    assert np.array_equal(dst, plain(*case.inputs[:2], **attributes))
    diff_src, diff_weights = pull(dst)
    backward = (
        convgrad.conv_transpose_backward
        if case.problem.transpose
        else convgrad.convolution_backward
    )
    expected = backward(case.inputs[0], np.asarray(dst), case.inputs[1], **attributes)
    assert np.array_equal(diff_src, expected.diff_src)
    assert np.array_equal(diff_weights, expected.diff_weights)
    if bias:
        close(function(src, weights, *bias, **attributes), case.value, 0.05)


def test_large_arrays_inside_jit():
    """The host callback must not wait for the device that waits for it."""
    x, w = jnp.ones((8, 64, 64, 16), jnp.float32), jnp.ones((3, 3, 16, 16), jnp.float32)
    step = jax.jit(lambda x, w: jnp.sum(convgrad.jax.convolution(x * 2, w) * 0.5))
    for _ in range(3):
        assert float(step(x, w)) == pytest.approx(8 * 62 * 62 * 16 * 9 * 16, rel=1e-4)


def test_errors_come_while_tracing():
    with pytest.raises(convgrad.InvalidShape, match="channels"):
        jax.jit(convgrad.jax.convolution)(X, W)
    with pytest.raises(convgrad.InvalidOp, match="type"):
        convgrad.jax.convolution(X, W.astype(jnp.bfloat16), groups=2)
    with pytest.raises(convgrad.InvalidOp, match="int32"):
        convgrad.jax.convolution(X.astype(jnp.int32), W.astype(jnp.int32), groups=2)
    with pytest.raises(convgrad.InvalidShape, match="bias"):
        convgrad.jax.convolution(X, W, jnp.ones(3), groups=2)
