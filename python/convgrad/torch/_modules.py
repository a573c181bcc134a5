"""Modules that take over PyTorch's own, one by one or in whole models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _norms, _policy
from ._functions import convolution, has_engine, transposed

_PLAIN = (F.conv1d, F.conv2d, F.conv3d)
_PLAIN_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def _both(
    axes: int, is_transposed: bool, rest: tuple[Any, ...]
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """A layer as this library computes it, and as PyTorch does."""
    ours = transposed if is_transposed else convolution
    theirs = (_PLAIN_TRANSPOSED if is_transposed else _PLAIN)[axes - 1]
    return (lambda x, w, b: ours(axes, x, w, b, *rest), lambda x, w, b: theirs(x, w, b, *rest))


def _takes_ours(
    module: Any,
    is_transposed: bool,
    rest: tuple[Any, ...],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
) -> bool:
    """The policy "faster": whether this library was faster on such tensors. Asked in every call."""
    if torch.compiler.is_compiling():
        return _policy.is_expected(input, weight, module.groups)
    known = module._convgrad_faster
    key = _policy.signature(input, weight, bias)
    taken = known.get(key)
    if taken is None:
        if not has_engine(input.device):
            return False
        if not _policy.may_measure(input):
            return _policy.is_expected(input, weight, module.groups)
        both = _both(module._axes, is_transposed, rest)
        taken = known[key] = _policy.is_faster(*both, input, weight, bias)
    return bool(taken)


class _Convolution:
    """What the three convolution modules share, in front of PyTorch's own class."""

    _axes: int

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        rest = (self.stride, padding, self.dilation, self.groups)
        if "_convgrad_faster" in self.__dict__:
            if not _takes_ours(self, False, rest, input, weight, bias):
                return _PLAIN[self._axes - 1](input, weight, bias, *rest)
        return convolution(self._axes, input, weight, bias, *rest)


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
        rest = (self.stride, self.padding, output_padding, self.groups, self.dilation)
        given = (input, self.weight, self.bias)
        if "_convgrad_faster" in self.__dict__ and not _takes_ours(self, True, rest, *given):
            return _PLAIN_TRANSPOSED[self._axes - 1](*given, *rest)
        return transposed(self._axes, *given, *rest)


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
    """A module of this package that takes over a `torch.nn` convolution or batch normalisation: the
    same parameters (not copies), settings and hooks. Optimizers and state dictionaries do not notice.
    """
    made_type = _MODULES.get(type(module)) or _norms.MODULES.get(type(module))
    if made_type is None:
        raise TypeError(
            f"{type(module).__name__} cannot be taken over; it must be one of "
            + ", ".join(sorted(t.__name__ for t in [*_MODULES, *_norms.MODULES]))
        )
    made: nn.Module = object.__new__(made_type)
    made.__dict__.update(module.__dict__)
    return made


def accelerate(
    model: nn.Module,
    *,
    policy: str | Callable[[nn.Module], bool] = "all",
    batch_norm: bool = True,
) -> nn.Module:
    """Swaps all convolutions of a model, in place, and returns the model.

    Parameters stay the same objects, so it may be called before or after an optimizer is made.
    Subclasses of PyTorch's modules may compute something else and are left alone. A model that is
    itself one convolution is not changed; the module that takes it over is returned.

    `policy="all"`: this library computes them all. `policy="faster"`: whoever is faster. The first
    time that a layer sees tensors of some shape, type and layout it is computed by both, several times
    each, and the choice is kept (not under `torch.compile` or in the capture of a CUDA graph, where
    this library computes on CPUs, and on CUDA devices depthwise layers). Which one it is decides the
    last bits of the results. A function: this library computes the layers for which it is true.

    Batch normalisations of models with convolutions are swapped as well, unless `batch_norm` is false:
    their training steps on the CPU, where PyTorch may take longer for them than for the convolutions.
    """
    if not callable(policy) and policy not in ("all", "faster"):
        raise ValueError(f'policy is {policy!r}; it must be "all", "faster" or a function')

    def take(module: nn.Module) -> nn.Module:
        if callable(policy) and not policy(module):
            return module
        made = from_module(module)
        if policy == "faster":
            made.__dict__["_convgrad_faster"] = {}
        return made

    if type(model) in _MODULES:
        return take(model)
    taken: dict[nn.Module, nn.Module] = {}  # one module used twice stays one
    batch_norm = batch_norm and any(type(m) in _MODULES for m in model.modules())
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is None or not _is_taken(type(child), batch_norm):
                continue
            if child not in taken:
                taken[child] = take(child) if type(child) in _MODULES else from_module(child)
            parent._modules[name] = taken[child]
    return model


def _is_taken(kind: type[nn.Module], batch_norm: bool) -> bool:
    return kind in _MODULES or (batch_norm and kind in _norms.MODULES)
