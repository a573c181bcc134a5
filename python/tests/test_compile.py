"""Compiled ops, graphs, explanations and questions about shapes."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from support import FUNCTIONS, Case

import convgrad
from convgrad import Graph, LogicalTensor, Op

RNG = np.random.default_rng(2)
SRC = RNG.standard_normal((2, 8, 8, 6)).astype(np.float32)
WEIGHTS = RNG.standard_normal((3, 3, 6, 5)).astype(np.float32)
DIFF_DST = RNG.standard_normal((2, 6, 6, 5)).astype(np.float32)


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("seed", [1, 2])
def test_compiled_equals_eager(op, seed):
    case = Case(op, seed)
    expected = case.call()
    compiled = convgrad.compile(op, case.inputs, **case.attributes)
    assert compiled(*case.inputs).tobytes() == expected.tobytes()
    out = np.empty_like(expected)
    assert compiled(*case.inputs, out=out) is out
    assert out.tobytes() == expected.tobytes()
    assert op in compiled.describe()
    assert compiled.outputs[0].shape == expected.shape


def test_compiled_from_descriptions():
    tensors = [LogicalTensor(0, "f32", SRC.shape), LogicalTensor(1, np.float32, WEIGHTS.shape)]
    compiled = convgrad.compile("convolution", tensors)
    assert np.array_equal(compiled(SRC, WEIGHTS), convgrad.convolution(SRC, WEIGHTS))
    assert compiled.workspace_size > 0
    assert compiled.query(0) == tensors[0]
    with pytest.raises(convgrad.InvalidArgument, match="compiled as"):
        compiled(SRC[:1], WEIGHTS)
    with pytest.raises(convgrad.InvalidArgument, match="inputs"):
        compiled(SRC)


def test_compiled_backward():
    compiled = convgrad.compile(
        "convolution_backward", [SRC, DIFF_DST, WEIGHTS], diff_bias=True, accumulate=True
    )
    expected = convgrad.convolution_backward(SRC, DIFF_DST, WEIGHTS, diff_bias=True)
    outs = [np.zeros_like(x) for x in expected]
    compiled(SRC, DIFF_DST, WEIGHTS, out=outs)
    for one, other in zip(outs, expected):
        assert np.array_equal(one, other)


def test_compiled_options():
    compiled = convgrad.compile("Convolution", [SRC, WEIGHTS, DIFF_DST], add=True, relu=True)
    expected = convgrad.convolution(SRC, WEIGHTS, add=DIFF_DST, relu=True)
    assert np.array_equal(compiled(SRC, WEIGHTS, DIFF_DST), expected)
    half = [x.astype(ml_dtypes.bfloat16) for x in (SRC, DIFF_DST)]
    wide = LogicalTensor(0, "f32", WEIGHTS.shape)
    compiled = convgrad.compile("convolution_backward_weights", half, [wide])
    assert compiled(*half).dtype == np.float32


def test_compiled_with_jax_arrays():
    src, weights = jnp.asarray(SRC), jnp.asarray(WEIGHTS)
    compiled = convgrad.compile("convolution", [src, weights])
    assert np.array_equal(compiled(src, weights), convgrad.convolution(SRC, WEIGHTS))


ATTRIBUTES = {
    "strides": (1, 1),
    "pads_begin": (0, 0),
    "pads_end": (0, 0),
    "dilations": (1, 1),
    "groups": 1,
    "data_format": "NXC",
}


def layer_graph():
    src, weights = LogicalTensor(0, "f32", (None, 8, 8, 6)), LogicalTensor(1, "f32", WEIGHTS.shape)
    diff_dst = LogicalTensor(2, "f32", (None, 6, 6, 5))
    diff_src, diff_weights = LogicalTensor(3, "f32"), LogicalTensor(4, "f32", WEIGHTS.shape)
    graph = Graph()
    graph.add(Op(0, "ConvolutionBackwardData", [diff_dst, weights], [diff_src], **ATTRIBUTES))
    graph.add(
        Op(
            1,
            "ConvolutionBackpropWeights-1",
            [src, diff_dst],
            [diff_weights],
            "wgrad",
            **ATTRIBUTES,
        )
    )
    return graph


def test_graph():
    graph = layer_graph()
    graph.finalize()
    assert graph.is_finalized
    (partition,) = graph.partitions()
    assert partition.ops == [0, 1]
    arrays = {0: SRC, 1: WEIGHTS, 2: DIFF_DST}
    shapes = [LogicalTensor(t.id, "f32", arrays[t.id].shape) for t in partition.inputs]
    compiled = partition.compile(shapes, [])
    results = compiled(*(arrays[t.id] for t in compiled.inputs))
    by_id = dict(zip((t.id for t in compiled.outputs), results))
    expected = convgrad.convolution_backward(SRC, DIFF_DST, WEIGHTS)
    assert np.array_equal(by_id[3], expected.diff_src)
    assert np.array_equal(by_id[4], expected.diff_weights)


def test_graph_with_a_shape_input():
    diff_dst = LogicalTensor(0, "f32", DIFF_DST.shape)
    weights = LogicalTensor(1, "f32", WEIGHTS.shape)
    shape = LogicalTensor(2, "s32", (4,))
    constant = LogicalTensor(2, "s32", value=SRC.shape)
    assert constant.value == SRC.shape and constant.shape == (4,)
    for given in (shape, constant):
        graph = Graph()
        op = Op(0, "ConvolutionBackwardData", [diff_dst, weights, given], [LogicalTensor(3, "f32")])
        with pytest.raises(convgrad.InvalidOp, match="strides"):
            graph.add(op)
        graph.add(
            Op(
                0,
                "ConvolutionBackwardData",
                [diff_dst, weights, given],
                [LogicalTensor(3, "f32")],
                **ATTRIBUTES,
            )
        )
        graph.finalize()
        compiled = graph.partitions()[0].compile()
        values = np.array(SRC.shape, np.int32)
        out = np.empty_like(SRC)
        compiled(DIFF_DST, WEIGHTS, values, out=out)
        assert np.array_equal(out, convgrad.convolution_backward_data(DIFF_DST, WEIGHTS))
        if given is shape:
            with pytest.raises(convgrad.InvalidArgument, match="must be given"):
                compiled(DIFF_DST, WEIGHTS, values)


def test_graph_errors():
    graph = layer_graph()
    with pytest.raises(convgrad.InvalidGraph):
        graph.partitions()
    graph.finalize()
    with pytest.raises(convgrad.InvalidGraph):
        graph.add(Op(2, "Convolution", [], [], **ATTRIBUTES))
    with pytest.raises(convgrad.InvalidOp, match="ConvolutionBackwardData"):
        Op(0, "ConvolutionBackwardDat", [], [])


def test_explain():
    e = convgrad.explain(
        "convolution_backward_weights", [SRC, DIFF_DST], weights_shape=WEIGHTS.shape
    )
    assert e.op == "ConvolutionBackwardWeights" and e.output_shape == WEIGHTS.shape
    assert e.algorithm and e.blocks and e.instruction_set in str(e)
    assert e.flops == 2 * WEIGHTS.size * 2 * 6 * 6
    assert e.refusals and all(r.reason and r.reason in str(e) for r in e.refusals)
    portable = convgrad.explain(
        "Convolution", [SRC, WEIGHTS], engine=convgrad.Engine(max_isa="portable", threads=1)
    )
    assert portable.instruction_set == "portable" and portable.threads == 1


def test_shapes_and_pads():
    assert convgrad.infer_shape("convolution", SRC.shape, WEIGHTS.shape, strides=2) == (2, 3, 3, 5)
    assert convgrad.resolve_pads("convolution", SRC.shape, (3, 4), auto_pad="same_upper") == (
        (1, 1),
        (1, 2),
    )
