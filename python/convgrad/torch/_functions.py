"""Functions with the signatures of torch.nn.functional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _core
from . import _kernels, _ops

_Size = Union[int, Sequence[int]]

# In C++ from the arguments on; it answers NotImplemented to what is left to the functions below.
_convolve = None if _ops.native is None else _ops.native.convolve


def _list(value: _Size, axes: int, name: str) -> list[int]:
    if isinstance(value, int):
        return [value] * axes
    values = list(value)
    if len(values) == 1:
        return values * axes
    if len(values) != axes:
        raise _core.InvalidShape(
            f"invalid shape: {name} is {values}; it must have one value, or {axes}"
        )
    return values


_cuda_devices: dict[int, bool] = {}


@torch.compiler.assume_constant_result
def _has_cuda_device(index: int) -> bool:
    if index not in _cuda_devices:
        _cuda_devices[index] = _core.has_cuda_device(index)
    return _cuda_devices[index]


def has_engine(device: torch.device) -> bool:
    """Whether the library computes on a device: on CUDA ones with operators in C++ only."""
    if device.type == "cuda" and _ops.native is not None:
        return _has_cuda_device(device.index)
    return device.type == "cpu"


def _is_ours(input: Tensor, weight: Tensor) -> bool:
    """Whether the library computes it; under autocast every floating-point input is."""
    if input.device != weight.device or not has_engine(input.device):
        return False
    kind = input.device.type
    if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) in _kernels.TYPES:
        return input.dtype in _kernels.TYPES and weight.dtype in _kernels.TYPES
    return input.dtype in _kernels.TYPES and input.dtype == weight.dtype


def convolution(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: _Size,
    padding: _Size | str,
    dilation: _Size,
    groups: int,
) -> Tensor:
    if _convolve is not None and not torch.compiler.is_compiling():
        made = _convolve(False, axes, input, weight, bias, stride, padding, 0, dilation, groups)
        if made is not NotImplemented:
            return made
    if not _is_ours(input, weight):
        function = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
        return function(input, weight, bias, stride, padding, dilation, groups)
    strides, dilations = _list(stride, axes, "stride"), _list(dilation, axes, "dilation")
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):
        if padding != "same" or any(s != 1 for s in strides):
            raise _core.InvalidOp(
                f"invalid op: padding is {padding!r} and stride is {strides}; padding must be "
                "numbers, 'valid', or with a stride of 1 'same'"
            )
        totals = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:])]
        begin = [t // 2 for t in totals]
        end = [t - b for t, b in zip(totals, begin)]
    else:
        begin = end = _list(padding, axes, "padding")
    return _batched(
        axes, input, weight, bias, strides, begin, end, dilations, False, [0] * axes, groups
    )


def transposed(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: _Size,
    padding: _Size,
    output_padding: _Size,
    groups: int,
    dilation: _Size,
) -> Tensor:
    if _convolve is not None and not torch.compiler.is_compiling():
        made = _convolve(
            True, axes, input, weight, bias, stride, padding, output_padding, dilation, groups
        )
        if made is not NotImplemented:
            return made
    if not _is_ours(input, weight):
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    pads = _list(padding, axes, "padding")
    return _batched(
        axes,
        input,
        weight,
        bias,
        _list(stride, axes, "stride"),
        pads,
        pads,
        _list(dilation, axes, "dilation"),
        True,
        _list(output_padding, axes, "output_padding"),
        groups,
    )


def _batched(
    axes: int, input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any
) -> Tensor:
    if input.dim() == axes + 1:
        return _ops.forward(input.unsqueeze(0), weight, bias, *geometry).squeeze(0)
    if input.dim() != axes + 2:
        raise _core.InvalidShape(
            f"invalid shape: input has {input.dim()} dimensions; it must have {axes + 2}, or "
            f"{axes + 1} without a batch"
        )
    return _ops.forward(input, weight, bias, *geometry)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv1d`, computed by convgrad."""
    return convolution(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv2d`, computed by convgrad."""
    return convolution(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv3d`, computed by convgrad."""
    return convolution(3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size = 0,
    output_padding: _Size = 0,
    groups: int = 1,
    dilation: _Size = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose1d`, computed by convgrad."""
    return transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size = 0,
    output_padding: _Size = 0,
    groups: int = 1,
    dilation: _Size = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose2d`, computed by convgrad."""
    return transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size = 0,
    output_padding: _Size = 0,
    groups: int = 1,
    dilation: _Size = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose3d`, computed by convgrad."""
    return transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
