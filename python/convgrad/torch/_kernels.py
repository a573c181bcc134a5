"""The operators' kernels in Python: what runs where those in C++ have not been built.

Slower by tens of microseconds a call, with the same results; see _native/ops.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core

# Values of the op kinds and data types of the library.
_CONVOLUTION, _BACKWARD_DATA, _BACKWARD_WEIGHTS = 13, 14, 15
_TRANSPOSE, _TRANSPOSE_BACKWARD_DATA, _TRANSPOSE_BACKWARD_WEIGHTS = 16, 17, 18
TYPES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}


def _view(tensor: Tensor) -> _core.View:
    return _core.View(tensor.data_ptr(), TYPES[tensor.dtype], tensor.shape, tensor.stride())


def _readable(tensor: Tensor) -> Tensor:
    """The tensor itself, unless elements share memory (an expanded gradient) or are to be negated."""
    if 0 in tensor.stride() or tensor.is_neg():
        return tensor.contiguous().resolve_neg()
    return tensor


def memory_format(*tensors: Tensor) -> torch.memory_format:
    """channels_last if one of the tensors is, as PyTorch's own convolutions decide."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(tensors[0].dim())
    for tensor in tensors:
        if wanted is None or tensor.is_contiguous():
            continue
        if tensor.is_contiguous(memory_format=wanted):
            return wanted
    return torch.contiguous_format


def output_shape(
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> list[int]:
    shape = [input.shape[0], weight.shape[1] * groups if transposed else weight.shape[0]]
    for i, length in enumerate(input.shape[2:]):
        extent = dilation[i] * (weight.shape[2 + i] - 1) + 1
        pads = pads_begin[i] + pads_end[i]
        if transposed:
            shape.append(stride[i] * (length - 1) + extent + output_padding[i] - pads)
        else:
            shape.append((length + pads - extent) // stride[i] + 1)
    return shape


def _attributes(
    stride: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> tuple[Any, ...]:
    return (
        stride,
        pads_begin,
        pads_end,
        dilation,
        "none",
        groups,
        "NCX",
        "IOX" if transposed else "OIX",
        output_padding if transposed else None,
    )


def _run(
    kind: int, inputs: tuple[Any, ...], attributes: tuple[Any, ...], out: Tensor, bias: Any = None
) -> None:
    _core.run(kind, inputs, attributes, None, _view(out), bias, False, False, None, None)


def _check_types(*tensors: Tensor | None) -> None:
    types = {str(t.dtype) for t in tensors if t is not None}
    if len(types) > 1:
        raise _core.InvalidOp(
            "invalid op: tensors of one convolution have the types "
            f"{', '.join(sorted(types))}; they must be equal"
        )


def _forward_cpu(input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    _check_types(input, weight, bias)
    shape = output_shape(input, weight, *geometry)
    if min(shape) < 0:
        _core.infer_shape(  # refuses, and says why
            "conv_transpose" if geometry[4] else "convolution",
            input.shape,
            weight.shape,
            _attributes(*geometry),
        )
    output = torch.empty(
        [max(d, 0) for d in shape],
        dtype=input.dtype,
        memory_format=memory_format(input, weight),
    )
    input, weight = _readable(input), _readable(weight)
    bias = None if bias is None else _readable(bias)
    _run(
        _TRANSPOSE if geometry[4] else _CONVOLUTION,
        (_view(input), _view(weight), None if bias is None else _view(bias), None),
        _attributes(*geometry),
        output,
    )
    return output


def _backward_cpu(
    grad: Tensor, input: Tensor, weight: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *geometry, wanted = rest
    _check_types(grad, input, weight)
    attributes = _attributes(*geometry)
    transposed = geometry[4]
    grads = empty_gradients(grad, input, weight, *rest)
    grad, input, weight = _readable(grad), _readable(input), _readable(weight)
    bias = _view(grads[2]) if wanted[2] else None
    if wanted[0] and wanted[1]:
        _core.run_both(
            _TRANSPOSE if transposed else _CONVOLUTION,
            (_view(input), _view(grad), _view(weight)),
            attributes,
            (_view(grads[0]), _view(grads[1]), bias),
            False,
            None,
            None,
        )
        return grads
    if wanted[0]:
        kind = _TRANSPOSE_BACKWARD_DATA if transposed else _BACKWARD_DATA
        _run(kind, (_view(grad), _view(weight), None, None), attributes, grads[0])
    if wanted[1]:
        kind = _TRANSPOSE_BACKWARD_WEIGHTS if transposed else _BACKWARD_WEIGHTS
        _run(kind, (_view(input), _view(grad), None, None), attributes, grads[1], bias)
    elif wanted[2]:
        torch.sum(grad, [0, *range(2, grad.dim())], out=grads[2])
    return grads


def empty_gradients(
    grad: Tensor, input: Tensor, weight: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in the memory format of what they belong to; an empty one stands for 'not wanted'."""
    wanted = rest[-1]
    formats = (memory_format(input, weight), memory_format(weight))
    made = [
        torch.empty(t.shape, dtype=t.dtype, device=t.device, memory_format=f)
        if w
        else t.new_empty(0)
        for t, f, w in zip((input, weight), formats, wanted)
    ]
    return made[0], made[1], weight.new_empty(grad.shape[1] if wanted[2] else 0)


def register(namespace: str, library: torch.library.Library) -> None:
    """Kernels, derivatives and autocast for the operators of a namespace."""
    ops = getattr(torch.ops, namespace)

    def save_forward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, bias, *ctx.geometry = inputs
        ctx.save_for_backward(input, weight)
        ctx.with_bias = bias is not None

    def differentiate_forward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        input, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        wanted = [needs[0], needs[1], ctx.with_bias and needs[2]]
        grads = ops.backward(grad, input, weight, *ctx.geometry, wanted)
        return (*(g if w else None for g, w in zip(grads, wanted)), *[None] * len(ctx.geometry))

    def save_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        grad, input, weight, *ctx.geometry, ctx.wanted = inputs
        ctx.save_for_backward(grad, input, weight)

    def differentiate_backward(
        ctx: Any, grad_input: Tensor | None, grad_weight: Tensor | None, grad_bias: Tensor | None
    ) -> tuple[Any, ...]:
        """The gradient is linear in each of grad, input and weight: so are these, by the same ops."""
        grad, input, weight = ctx.saved_tensors
        needs, geometry = ctx.needs_input_grad, ctx.geometry
        for_grad = for_input = for_weight = None
        forward, backward = ops.forward, ops.backward
        if ctx.wanted[0] and grad_input is not None:
            if needs[0]:
                for_grad = forward(grad_input, weight, None, *geometry)
            if needs[2]:
                for_weight = backward(grad, grad_input, weight, *geometry, [False, True, False])[1]
        if ctx.wanted[1] and grad_weight is not None:
            if needs[0]:
                more = forward(input, grad_weight, None, *geometry)
                for_grad = more if for_grad is None else for_grad + more
            if needs[1]:
                for_input = backward(grad, input, grad_weight, *geometry, [True, False, False])[0]
        if ctx.wanted[2] and grad_bias is not None and needs[0]:
            more = grad_bias.reshape(1, -1, *[1] * (grad.dim() - 2)).expand_as(grad)
            for_grad = more if for_grad is None else for_grad + more
        return (for_grad, for_input, for_weight, *[None] * (len(geometry) + 1))

    def forward_autocast(
        keyset: Any, input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any
    ) -> Tensor:
        dtype = torch.get_autocast_dtype("cpu")
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        ):
            return ops.forward(
                input.to(dtype),
                weight.to(dtype),
                None if bias is None else bias.to(dtype),
                *geometry,
            )

    library.impl("forward", _forward_cpu, "CPU")
    library.impl("backward", _backward_cpu, "CPU")
    library.impl("forward", forward_autocast, "AutocastCPU", with_keyset=True)
    torch.library.register_autograd(
        f"{namespace}::forward", differentiate_forward, setup_context=save_forward, lib=library
    )
    torch.library.register_autograd(
        f"{namespace}::backward", differentiate_backward, setup_context=save_backward, lib=library
    )
