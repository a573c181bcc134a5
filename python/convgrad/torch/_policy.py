"""Which of two implementations computes a layer: PyTorch's or this library's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# PyTorch's is taken only where it is faster by more than clocks and neighbours differ.
_MARGIN = 0.97
_ROUNDS = 4


def signature(input: Tensor, tensors: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    """Everything that the time of a layer depends on, its own settings aside."""
    grad = torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
    return (
        input.shape,
        input.stride(),
        input.dtype,
        autocast,
        torch.get_num_threads(),
        *(grad and t is not None and t.requires_grad for t in (input, *tensors)),
    )


def is_faster(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *given: Tensor | None
) -> bool:
    """Computes the layer with both, backward too where gradients are wanted, and compares."""
    tensors = [None if t is None else t.detach().requires_grad_(t.requires_grad) for t in given]
    wanted = [t for t in tensors if t is not None and t.requires_grad]

    def run(function: Callable[..., Tensor]) -> None:
        output = function(*tensors)
        if output.requires_grad:
            torch.autograd.grad(output, wanted, torch.ones_like(output))

    best = {ours: math.inf, theirs: math.inf}
    for number in range(_ROUNDS):
        for function in best:
            begin = time.perf_counter()
            run(function)
            if number > 0:  # the first touches memory, and starts what is to be started
                best[function] = min(best[function], time.perf_counter() - begin)
    return best[ours] * _MARGIN <= best[theirs]
