"""The operators torch.ops.convgrad.forward and torch.ops.convgrad.backward.

Everything else, gradients of gradients included, is composed of these two. Here are their schemas and
what they do with tensors that have no memory; their kernels are C++ (_native), or Python (_kernels)
where that has not been built.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _core
from . import _kernels, _native

# An engine made now, after PyTorch was loaded, finds PyTorch's threads for all engines.
_core.Engine()

_GEOMETRY = (
    "SymInt[] stride, SymInt[] pads_begin, SymInt[] pads_end, SymInt[] dilation, bool transposed, "
    "SymInt[] output_padding, SymInt groups"
)


def define(namespace: str) -> torch.library.Library:
    """A namespace with both operators, without kernels."""
    library = torch.library.Library(namespace, "DEF")
    library.define(
        f"forward(Tensor input, Tensor weight, Tensor? bias, {_GEOMETRY}) -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    library.define(
        f"backward(Tensor grad, Tensor input, Tensor weight, {_GEOMETRY}, bool[3] wanted)"
        " -> (Tensor, Tensor, Tensor)",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    torch.library.register_fake(f"{namespace}::forward", _forward_fake, lib=library)
    torch.library.register_fake(f"{namespace}::backward", _kernels.empty_gradients, lib=library)
    return library


def _forward_fake(input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    return torch.empty(
        _kernels.output_shape(input, weight, *geometry),
        dtype=input.dtype,
        device=input.device,
        memory_format=_kernels.memory_format(input, weight),
    )


_library = define("convgrad")
native = _native.load()
if native is None:
    _kernels.register("convgrad", _library)

forward = torch.ops.convgrad.forward.default
