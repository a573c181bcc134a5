"""Every refusal is an exception of the right class, with the library's message; nothing is written."""

import numpy as np
import pytest

import convgrad

SRC = np.ones((1, 5, 5, 4), np.float32)
WEIGHTS = np.ones((3, 3, 4, 2), np.float32)


def test_classes():
    for name in ("InvalidOp", "InvalidGraph", "InvalidShape", "InvalidArgument", "Unsupported"):
        assert issubclass(getattr(convgrad, name), (convgrad.Error, ValueError))
        assert issubclass(getattr(convgrad, name), ValueError)
    assert issubclass(convgrad.OutOfMemory, MemoryError)
    assert issubclass(convgrad.OutOfMemory, convgrad.Error)


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"strides": 0}, "InvalidOp", "strides"),
        ({"strides": (1, 1, 1)}, "InvalidShape", "strides"),
        ({"strides": 1.5}, "InvalidOp", "1.5"),
        ({"strides": ("a", "b")}, "InvalidOp", "integers"),
        ({"pads_begin": -1}, "InvalidOp", "pads_begin"),
        ({"dilations": 3}, "InvalidShape", "Convolution"),
        ({"groups": 3}, "InvalidShape", "3"),
        ({"groups": "2"}, "InvalidOp", "groups"),
        ({"auto_pad": "same"}, "InvalidOp", "auto_pad"),
        ({"auto_pad": 1}, "InvalidOp", "string"),
        ({"data_format": "NHWC"}, "InvalidOp", "NHWC"),
        ({"weights_format": "XOI"}, "InvalidOp", "XOI"),
        ({"bias": np.ones(3, np.float32)}, "InvalidShape", "bias"),
        ({"bias": np.ones(2, np.float16)}, "InvalidOp", "bias"),
        ({"out": np.ones((1, 3, 3, 3), np.float32)}, "InvalidShape", "3"),
        ({"out": SRC}, "InvalidShape", "dst"),
    ],
)
def test_convolution(change, error, words):
    with pytest.raises(getattr(convgrad, error), match=words):
        convgrad.convolution(SRC, WEIGHTS, **change)


def test_shapes_of_gradients():
    diff_dst = np.ones((1, 3, 3, 2), np.float32)
    with pytest.raises(convgrad.InvalidShape, match="kernel size"):
        convgrad.convolution_backward_weights(SRC, diff_dst)
    with pytest.raises(convgrad.InvalidShape, match="length 9"):
        convgrad.convolution_backward_data(diff_dst, WEIGHTS, (1, 9, 9, 4))
    with pytest.raises(convgrad.InvalidShape, match="out has shape"):
        convgrad.convolution_backward_data(
            diff_dst, WEIGHTS, (1, 5, 5, 4), out=np.ones((1, 6, 6, 4), np.float32)
        )
    with pytest.raises(convgrad.InvalidArgument, match="accumulate"):
        convgrad.convolution_backward_data(diff_dst, WEIGHTS, accumulate=True)
    with pytest.raises(convgrad.InvalidArgument, match="entries"):
        convgrad.convolution_backward(SRC, diff_dst, WEIGHTS, out=(SRC,))
    with pytest.raises(convgrad.Error):
        convgrad.convolution_backward_data(diff_dst, WEIGHTS, (1, -5, 5, 4))


def test_refused_calls_write_nothing():
    out = np.full((1, 3, 3, 2), 7, np.float32)
    with pytest.raises(convgrad.Error):
        convgrad.convolution(SRC, WEIGHTS, strides=2, out=out)
    assert np.all(out == 7)


def test_workspace_limit_is_a_memory_error():
    engine = convgrad.Engine(workspace_limit=0)
    with pytest.raises(convgrad.OutOfMemory):
        convgrad.convolution(SRC, WEIGHTS, engine=engine)


def test_engines():
    assert convgrad.Engine(threads=3).threads == 3
    assert convgrad.Engine(max_isa="portable").instruction_set == "portable"
    assert convgrad.Engine(math="strict").math == "strict"
    assert "threads=" in repr(convgrad.default_engine())
    for wrong in ({"threads": -1}, {"max_isa": "sse"}, {"math": "sloppy"}):
        with pytest.raises(convgrad.InvalidArgument):
            convgrad.Engine(**wrong)


@pytest.mark.parametrize("rank", [0, 1, 2, 6])
def test_odd_ranks(rank):
    array = np.ones((1,) * rank, np.float32)
    with pytest.raises(convgrad.Error):
        convgrad.convolution(array, array)
