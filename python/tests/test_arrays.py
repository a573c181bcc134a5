"""What comes in and goes out: kinds of arrays, memory, strides."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import convgrad

RNG = np.random.default_rng(11)
SRC = RNG.standard_normal((2, 7, 6, 3)).astype(np.float32)
WEIGHTS = RNG.standard_normal((3, 3, 3, 5)).astype(np.float32)
DST = convgrad.convolution(SRC, WEIGHTS)


class Exporter:
    """An array that is known by its DLPack methods only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_jax_in_jax_out():
    dst = convgrad.convolution(jnp.asarray(SRC), jnp.asarray(WEIGHTS))
    assert isinstance(dst, jax.Array) and np.array_equal(dst, DST)
    half = convgrad.convolution(jnp.asarray(SRC, jnp.bfloat16), jnp.asarray(WEIGHTS, jnp.bfloat16))
    assert isinstance(half, jax.Array) and half.dtype == jnp.bfloat16
    expected = convgrad.convolution(
        SRC.astype(ml_dtypes.bfloat16), WEIGHTS.astype(ml_dtypes.bfloat16)
    )
    assert np.array_equal(np.asarray(half), expected)


def test_jax_gradients_of_a_layer():
    got = convgrad.convolution_backward(
        jnp.asarray(SRC), jnp.asarray(DST), jnp.asarray(WEIGHTS), diff_bias=True
    )
    expected = convgrad.convolution_backward(SRC, DST, WEIGHTS, diff_bias=True)
    for one, other in zip(got, expected):
        assert isinstance(one, jax.Array) and np.array_equal(one, other)


def test_other_dlpack_objects():
    dst = convgrad.convolution(Exporter(SRC), Exporter(WEIGHTS))
    assert type(dst) is np.ndarray and np.array_equal(dst, DST)
    out = np.zeros_like(DST)
    given = Exporter(out)
    assert convgrad.convolution(SRC, WEIGHTS, out=given) is given
    assert np.array_equal(out, DST)


def test_read_only_inputs():
    src = SRC.copy()
    src.flags.writeable = False
    assert np.array_equal(convgrad.convolution(src, WEIGHTS), DST)
    half = src.astype(ml_dtypes.bfloat16)
    half.flags.writeable = False
    convgrad.convolution(half, WEIGHTS.astype(ml_dtypes.bfloat16))


def test_inputs_that_have_to_be_copied():
    backwards = SRC[:, ::-1, :, ::-1]
    expected = convgrad.convolution(backwards.copy(), WEIGHTS)
    assert np.array_equal(convgrad.convolution(backwards, WEIGHTS), expected)
    repeated = np.broadcast_to(SRC[:1], SRC.shape)
    expected = convgrad.convolution(repeated.copy(), WEIGHTS)
    assert np.array_equal(convgrad.convolution(repeated, WEIGHTS), expected)
    fields = np.zeros(SRC.shape, [("mark", "i1"), ("value", "f4")])
    fields["value"] = SRC
    assert np.array_equal(convgrad.convolution(fields["value"], WEIGHTS), DST)
    odd = np.frombuffer(b"x" + SRC.tobytes(), np.float32, offset=1).reshape(SRC.shape)
    assert np.array_equal(convgrad.convolution(odd, WEIGHTS), DST)


def test_outputs_are_never_copied():
    fixed = np.zeros_like(DST)
    fixed.flags.writeable = False
    with pytest.raises(convgrad.InvalidArgument, match="read-only"):
        convgrad.convolution(SRC, WEIGHTS, out=fixed)
    with pytest.raises(convgrad.InvalidArgument, match="strides"):
        convgrad.convolution(SRC, WEIGHTS, out=np.zeros_like(DST)[:, ::-1])
    with pytest.raises(convgrad.InvalidArgument, match="never change"):
        convgrad.convolution(SRC, WEIGHTS, out=jnp.zeros(DST.shape))


def test_results_are_not_tied_to_their_inputs():
    kept = [convgrad.convolution(jnp.asarray(SRC), jnp.asarray(WEIGHTS)) for _ in range(20)]
    assert all(np.array_equal(dst, DST) for dst in kept)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex64, ">f4", object])
def test_other_types_are_refused(dtype):
    with pytest.raises(convgrad.Error):
        convgrad.convolution(SRC.astype(dtype), WEIGHTS.astype(dtype))


@pytest.mark.parametrize("what", [None, 3, [[1.0]], "text"])
def test_what_is_no_array_is_a_type_error(what):
    with pytest.raises(TypeError, match="src is a"):
        convgrad.convolution(what, WEIGHTS)
