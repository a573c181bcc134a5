# Written by scripts/python_signatures.py from the op table: change that, or the table.
"""Ops compiled for many calls, explained, or asked for shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._arguments import op_outputs
from ._types import AutoPad, DataFormat, Ints


def compile(
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: str | None = None,
    output_padding: Ints | None = None,
    dst_shape: Sequence[int] | None = None,
    weights_shape: Sequence[int] | None = None,
    accumulate: bool = False,
    relu: bool = False,
    add: bool = False,
    diff_bias: bool = False,
    engine: _core.Engine | None = None,
) -> _core.CompiledPartition:
    """An op made ready for many calls with arrays of the same shapes and strides.

    `op` is the name of a function of this package or of the specification. `inputs` are arrays that
    serve as patterns, or `LogicalTensor`s, in the op's order: src, weights, optionally bias, and with
    `add` one more. `outputs` may describe the outputs (for strides, or an f32 weights gradient of
    16-bit data). Call the result with arrays; `out=` gives memory to write to.
    """
    return _core.compile(
        op,
        inputs,
        op_outputs(op, inputs, outputs, dst_shape, weights_shape, diff_bias),
        (
            strides,
            pads_begin,
            pads_end,
            dilations,
            auto_pad,
            groups,
            data_format,
            weights_format,
            output_padding,
        ),
        accumulate,
        relu,
        add,
        diff_bias,
        engine,
    )


def explain(
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: str | None = None,
    output_padding: Ints | None = None,
    dst_shape: Sequence[int] | None = None,
    weights_shape: Sequence[int] | None = None,
    accumulate: bool = False,
    relu: bool = False,
    add: bool = False,
    diff_bias: bool = False,
    engine: _core.Engine | None = None,
) -> _core.Explanation:
    """What the library would do with an op: algorithm, instruction set, blocks, workspace, and why
    not otherwise. Arguments as for `compile`; nothing is computed.
    """
    return _core.explain(
        op,
        inputs,
        op_outputs(op, inputs, outputs, dst_shape, weights_shape, diff_bias),
        (
            strides,
            pads_begin,
            pads_end,
            dilations,
            auto_pad,
            groups,
            data_format,
            weights_format,
            output_padding,
        ),
        accumulate,
        relu,
        add,
        diff_bias,
        engine,
    )


def infer_shape(
    op: str,
    first: Sequence[int],
    second: Sequence[int] = (),
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: str | None = None,
    output_padding: Ints | None = None,
) -> tuple[int, ...]:
    """The shape of an op's output for inputs 0 and 1 (where it has two) of these shapes."""
    return _core.infer_shape(
        op,
        first,
        second,
        (
            strides,
            pads_begin,
            pads_end,
            dilations,
            auto_pad,
            groups,
            data_format,
            weights_format,
            output_padding,
        ),
    )


def resolve_pads(
    op: str,
    data: Sequence[int] | None,
    kernel: Sequence[int],
    other: Sequence[int] | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: str | None = None,
    output_padding: Ints | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding (begin, end) that `auto_pad` stands for.

    `data` is the shape from which it is taken: src, or diff_dst for the gradients of the transposed
    convolution, or diff_src for `convolution_backward_data`, whose diff_dst is `other`.
    """
    return _core.resolve_pads(
        op,
        data,
        other,
        kernel,
        (
            strides,
            pads_begin,
            pads_end,
            dilations,
            auto_pad,
            groups,
            data_format,
            weights_format,
            output_padding,
        ),
    )
