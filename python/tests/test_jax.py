"""convgrad.jax against lax.conv_general_dilated, through every transformation."""

import os
import re
import subprocess

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


def test_second_derivatives_with_bias():
    """Every block of the matrix of second derivatives, against sums outside of the call."""
    apart = lambda x, w, b: convgrad.jax.convolution(x, w) + b
    joint = lambda x, w, b: convgrad.jax.convolution(x, w, b)
    arguments = make(1, 3, 2), make(2, 2, 2), make(2)
    hessian = lambda f: jax.jacrev(jax.jacrev(lambda *a: jnp.sum(f(*a) ** 3), (0, 1, 2)), (0, 1, 2))
    close(hessian(joint)(*arguments), hessian(apart)(*arguments), 1e-3)


def biased(x, w, b):
    return convgrad.jax.convolution(x, w, b, strides=2, auto_pad="same_upper", groups=2)


def test_bias():
    b = make(6)
    plain = lambda x, w, b: (
        convgrad.jax.convolution(x, w, strides=2, auto_pad="same_upper", groups=2) + b
    )
    close(biased(X, W, b), plain(X, W, b))
    loss = lambda f: lambda *a: jnp.sum(jnp.sin(f(*a)))
    wanted = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    for which in wanted:
        got = jax.jit(jax.grad(loss(biased), which))(X, W, b)
        close(got, jax.grad(loss(plain), which)(X, W, b))


def targets(function, *arguments):
    """The library's functions that a computation calls."""
    text = str(jax.make_jaxpr(function)(*arguments))
    return sorted(re.findall(r"target_name=convgrad\.(\w+)", text))


def test_gradients_go_together_and_none_is_computed_in_vain():
    forward, prefix = "convolution", "convolution_backward"
    for which, expected in (
        ((0,), [prefix + "_data"]),
        ((1,), [prefix + "_weights"]),
        ((2,), []),
        ((0, 1), [prefix]),
        ((1, 2), [prefix + "_weights"]),
        ((0, 1, 2), [prefix]),
    ):
        gradient = jax.grad(lambda *a: jnp.sum(jnp.sin(biased(*a))), which)
        assert targets(gradient, X, W, make(6)) == sorted([forward, *expected])


def test_buffers_are_used_where_they_lie():
    """Nothing but the calls themselves: no copy, no transposition."""
    gradient = jax.jit(lambda *a: jax.vjp(ours, *a[:2])[1](a[2]))
    text = gradient.lower(X, W, ours(X, W)).compile().as_text()
    kinds = set(re.findall(r" = \S+ (?:\S+ )?([\w-]+)\(", text))
    assert kinds <= {"parameter", "custom-call", "get-tuple-element", "tuple"}, text
    assert "convgrad.convolution_backward" in text


AXES = [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, None), (0, 0, 0), (4, 1, None)]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_vmap(axes):
    """A loop, for values and gradients, mapped inside and outside.

    Whole numbers: a larger batch may take another algorithm, which sums in another order.
    """
    whole = [jnp.asarray(RNG.integers(-4, 5, a.shape), jnp.float32) for a in (X, W, make(6))]
    batched = [
        x if axis is None else jnp.stack([x * (i + 1) for i in range(3)], axis)
        for x, axis in zip(whole, axes)
    ]
    gradients = jax.grad(lambda *a: jnp.sum(biased(*a) ** 2), (0, 1, 2))
    for function in (biased, gradients):
        got = jax.jit(jax.vmap(function, axes))(*batched)
        for i in range(3):
            one = [x if a is None else jnp.take(x, i, a) for x, a in zip(batched, axes)]
            expected = jax.jit(function)(*one)
            for mine, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected)):
                assert np.array_equal(mine[i], other)
    total = jax.grad(lambda *a: jnp.sum(jax.vmap(biased, axes)(*a) ** 2), (0, 1, 2))
    each = jax.vmap(gradients, axes)(*batched)
    summed = [jnp.sum(g, 0) if a is None else jnp.moveaxis(g, 0, a) for g, a in zip(each, axes)]
    close(total(*batched), summed, 1e-3)


def test_vmap_of_vmap():
    xs, ws = make(2, 2, 7, 8, 4), make(3, 3, 3, 2, 6)
    got = jax.vmap(jax.vmap(ours, (None, 0)), (0, None))(xs, ws)
    for i, x in enumerate(xs):
        for j, w in enumerate(ws):
            assert np.array_equal(got[i, j], ours(x, w))


def test_vmap_of_transposed():
    function = lambda x, w: convgrad.jax.conv_transpose(x, w, strides=2, output_padding=1)
    xs, w = make(3, 2, 5, 4), make(3, 6, 4)
    assert np.array_equal(jax.vmap(function, (0, None))(xs, w), [function(x, w) for x in xs])


def test_empty_batch():
    x = jnp.zeros((0, 7, 8, 4), jnp.float32)
    assert ours(x, W).shape == (0, 4, 7, 6)
    diff_src, diff_weights = jax.grad(lambda x, w: jnp.sum(ours(x, w)), (0, 1))(x, W)
    assert diff_src.shape == x.shape and not diff_weights.any()
    assert jax.vmap(ours, (0, None))(jnp.zeros((0, 2, 7, 8, 4), jnp.float32), W).shape[0] == 0


def test_subnormals_are_kept_whoever_calls():
    """XLA's threads flush them, the program's do not."""
    x = jnp.asarray(np.asarray(X) * np.float32(1e-39))
    with np.errstate(under="ignore"):
        expected = convgrad.convolution(np.asarray(x), np.asarray(W), groups=2)
    function = lambda x, w: convgrad.jax.convolution(x, w, groups=2)
    assert np.any(expected) and np.abs(expected).max() < np.finfo(np.float32).tiny * 100
    for wrap in (lambda f: f, jax.jit):
        assert np.array_equal(wrap(function)(x, W), expected)


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
    """Work for all threads, between other work for them."""
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
    with pytest.raises(convgrad.InvalidOp, match="bias has bfloat16"):
        convgrad.jax.convolution(X, W, jnp.ones(6, jnp.bfloat16), groups=2)


def test_errors_while_running_become_errors_of_xla():
    result = jax.ShapeDtypeStruct((2, 5, 6, 6), jnp.float32)
    call = jax.ffi.ffi_call("convgrad.convolution", result)
    with pytest.raises(Exception, match="INVALID_ARGUMENT: Convolution: .* channels"):
        jax.block_until_ready(call(X, W, rank=np.int64(4)))
    assert call(X, W, rank=np.int64(4), groups=np.int64(2)).shape == result.shape


def test_the_interface_is_that_of_the_header_of_jax(root):
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++20", "-fsyntax-only", "-isystem", jax.ffi.include_dir()]
    sources = root / "python"
    command += ["-I", str(sources / "src"), str(sources / "tests" / "xla_abi_check.cpp")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
