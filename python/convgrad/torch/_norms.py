"""Batch normalisation of training steps on the CPU, and ReLU behind it, beside the convolutions."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _ops

# In C++; NotImplemented is its answer to what is left to PyTorch.
_normalize = None if _ops.native is None else _ops.native.normalize
_bound = None if _ops.native is None else _ops.native.bound


class _BatchNorm:
    """What the three modules share, in front of PyTorch's own class: training steps are computed by
    this library, all else (evaluation, other devices and types, compilation) by PyTorch."""

    def forward(self: Any, input: Tensor) -> Tensor:
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        if _normalize is None or not by_batch or not input.is_cpu or torch.compiler.is_compiling():
            theirs: Tensor = super().forward(input)  # type: ignore[misc]
            return theirs
        self._check_input_dim(input)
        share = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                share = 1.0 / float(self.num_batches_tracked)
        keeps = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if keeps else (None, None)
        made = _normalize(input, self.weight, self.bias, mean, var, float(share), float(self.eps))
        if made is not NotImplemented:
            ours: Tensor = made
            return ours
        return F.batch_norm(input, mean, var, self.weight, self.bias, True, share, self.eps)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d`, in training steps on the CPU computed by convgrad."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d`, in training steps on the CPU computed by convgrad."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d`, in training steps on the CPU computed by convgrad."""


def _bounded(input: Tensor, inplace: bool, low: float, high: float) -> Any:
    """In place behind a batch normalisation, whose gradient then takes care of it as well."""
    if not inplace or _bound is None or not input.is_cpu or torch.compiler.is_compiling():
        return NotImplemented
    return _bound(input, low, high)


class ReLU(nn.ReLU):
    """`torch.nn.ReLU`; in place behind `BatchNorm1d` … `BatchNorm3d` their gradients are one."""

    def forward(self, input: Tensor) -> Tensor:
        made = _bounded(input, self.inplace, 0.0, math.inf)
        return super().forward(input) if made is NotImplemented else made


class ReLU6(nn.ReLU6):
    """`torch.nn.ReLU6`; in place behind `BatchNorm1d` … `BatchNorm3d` their gradients are one."""

    def forward(self, input: Tensor) -> Tensor:
        made = _bounded(input, self.inplace, float(self.min_val), float(self.max_val))
        return super().forward(input) if made is NotImplemented else made


MODULES: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d,
    nn.BatchNorm3d: BatchNorm3d,
    nn.ReLU: ReLU,
    nn.ReLU6: ReLU6,
}
