"""Arrays and offsets beyond 2**31 and 2**32 elements, and sizes that overflow."""

import mmap

import numpy as np
import pytest

import convgrad

FAR = [2**31 + 3, 2**32 + 7]


def far_array(values, far):
    """A copy of `values` whose items along axis 0 lie `far` elements apart, in memory never touched."""
    length = ((values.shape[0] - 1) * far + values[0].size) * values.itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, length, flags=flags)
    strides = (far * values.itemsize, *values.strides[1:])
    array = np.ndarray(values.shape, values.dtype, memory, strides=strides)
    array[...] = values
    return array


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_far_images(far, dtype):
    random = np.random.default_rng(1)
    src = random.standard_normal((2, 6, 5, 3)).astype(dtype)
    weights = random.standard_normal((3, 3, 3, 4)).astype(dtype)
    near = convgrad.convolution(src, weights, pads_begin=1, pads_end=1)
    out = far_array(np.zeros_like(near), far)
    convgrad.convolution(far_array(src, far), weights, pads_begin=1, pads_end=1, out=out)
    assert np.array_equal(out, near)
    gradient = convgrad.convolution_backward_weights(
        far_array(src, far), out, weights.shape, pads_begin=1, pads_end=1
    )
    assert np.array_equal(
        gradient,
        convgrad.convolution_backward_weights(src, near, weights.shape, pads_begin=1, pads_end=1),
    )


def test_array_of_more_than_32_bits():
    """Untouched memory reads as zeros; a stride keeps the op from reading all of it."""
    length, step = 2**32 + 9, 2**28
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, 2 * length, flags=flags)
    src = np.ndarray((1, length, 1), np.float16, memory)
    src[0, ::step, 0] = np.arange(17)
    result = convgrad.convolution(src, np.full((1, 1, 1), 2, np.float16), strides=step)
    assert np.array_equal(result[0, :, 0], 2 * np.arange(17))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"pads_begin": 2**63 - 1}, "overflows"),
        ({"pads_begin": 2**62, "pads_end": 2**62}, "overflows"),
        ({"dilations": 2**63 - 1}, "Convolution"),
        ({"strides": 2**64}, "strides"),
    ],
)
def test_sizes_that_overflow(change, words):
    src, weights = np.ones((1, 8, 1), np.float32), np.ones((3, 1, 1), np.float32)
    with pytest.raises(convgrad.Error, match=words):
        convgrad.convolution(src, weights, **change)


def test_shapes_that_overflow():
    diff_dst, weights = np.ones((1, 8, 1), np.float32), np.ones((3, 1, 1), np.float32)
    # NumPy, which makes the result's array, or the library: both say which size is too large.
    with pytest.raises(ValueError, match="too big|overflows"):
        convgrad.convolution_backward_data(diff_dst, weights, (1, 2**62, 1), strides=2**59)
