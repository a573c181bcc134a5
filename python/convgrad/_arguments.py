"""Outputs that a call leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core

BOTH = ("convolution_backward", "conv_transpose_backward")


def _describe(tensor: Any, shape: Sequence[int] | None = None) -> _core.LogicalTensor:
    """A packed tensor of the same type, and of the same shape unless another one is given."""
    if not isinstance(tensor, _core.LogicalTensor):
        if not hasattr(tensor, "dtype") or not hasattr(tensor, "shape"):
            raise _core.InvalidArgument(
                f"invalid argument: an input is {tensor!r}; it must be an array or a LogicalTensor"
            )
        return _core.LogicalTensor(0, tensor.dtype, shape or tuple(tensor.shape))
    return _core.LogicalTensor(tensor.id, tensor.dtype, shape or tensor.shape)


def op_outputs(
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None,
    dst_shape: Sequence[int] | None,
    weights_shape: Sequence[int] | None,
    diff_bias: bool,
) -> list[Any]:
    """Descriptions of all outputs: those given, the others of the type of input 0."""
    if not inputs:
        raise _core.InvalidArgument("invalid argument: inputs is empty; an op has at least one")
    made = list(outputs or ())
    dtype = _describe(inputs[0]).dtype
    if op in BOTH:
        if len(inputs) != 3:
            raise _core.InvalidArgument(
                f"invalid argument: {op} was given {len(inputs)} inputs; "
                "it takes src, diff_dst, weights"
            )
        made += [_describe(inputs[0]), _describe(inputs[2])][len(made) :]
    elif not made:
        shape = dst_shape if dst_shape is not None else weights_shape
        made.append(_core.LogicalTensor(0, dtype, shape))
    count = 2 if op in BOTH else 1
    if diff_bias and len(made) == count:
        made.append(_core.LogicalTensor(0, dtype))
    return made


def gradient_outputs(out: Sequence[Any] | None, diff_bias: bool) -> tuple[Any, Any, Any]:
    """(diff_src, diff_weights, diff_bias) in which None, or True for diff_bias, asks for a new one."""
    if out is None:
        return None, None, diff_bias
    if len(out) == 2:
        return out[0], out[1], diff_bias
    if len(out) == 3:
        return out[0], out[1], diff_bias if out[2] is None else out[2]
    raise _core.InvalidArgument(
        f"invalid argument: out has {len(out)} entries; it must be "
        "(diff_src, diff_weights) or (diff_src, diff_weights, diff_bias)"
    )
