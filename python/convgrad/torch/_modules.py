"""Modules that take over PyTorch's own, one by one or in whole models."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ._functions import convolution, transposed


class _Convolution:
    """What the three convolution modules share, in front of PyTorch's own class."""

    _axes: int

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return convolution(
            self._axes, input, weight, bias, self.stride, padding, self.dilation, self.groups
        )


class _Transposed:
    """The same for the transposed ones."""

    _axes: int

    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        output_padding = self._output_padding(
            input,
            output_size,
            self.stride,
            self.padding,
            self.kernel_size,
            self._axes,
            self.dilation,
        )
        return transposed(
            self._axes,
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )


class Conv1d(_Convolution, nn.Conv1d):
    """`torch.nn.Conv1d`, computed by convgrad."""

    _axes = 1


class Conv2d(_Convolution, nn.Conv2d):
    """`torch.nn.Conv2d`, computed by convgrad."""

    _axes = 2


class Conv3d(_Convolution, nn.Conv3d):
    """`torch.nn.Conv3d`, computed by convgrad."""

    _axes = 3


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d`, computed by convgrad."""

    _axes = 1


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d`, computed by convgrad."""

    _axes = 2


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """`torch.nn.ConvTranspose3d`, computed by convgrad."""

    _axes = 3


_MODULES: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
}


def from_module(module: nn.Module) -> nn.Module:
    """A module of this package that takes over a `torch.nn` convolution: the same parameters (not
    copies), settings and hooks. Optimizers and state dictionaries do not notice.
    """
    made_type = _MODULES.get(type(module))
    if made_type is None:
        raise TypeError(
            f"{type(module).__name__} cannot be taken over; it must be one of "
            + ", ".join(sorted(t.__name__ for t in _MODULES))
        )
    made: nn.Module = object.__new__(made_type)
    made.__dict__.update(module.__dict__)
    return made


def accelerate(model: nn.Module) -> nn.Module:
    """Swaps all convolutions of a model, in place, and returns the model.

    Parameters stay the same objects, so it may be called before or after an optimizer is made.
    Subclasses of PyTorch's modules may compute something else and are left alone. A model that is
    itself one convolution is not changed; the module that takes it over is returned.
    """
    if type(model) in _MODULES:
        return from_module(model)
    taken: dict[nn.Module, nn.Module] = {}  # one module used twice stays one
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and type(child) in _MODULES:
                if child not in taken:
                    taken[child] = from_module(child)
                parent._modules[name] = taken[child]
    return model
