"""Which of two implementations computes a layer: PyTorch's or this library's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# On a CPU PyTorch's is taken only where it is faster by more than clocks and neighbours differ. On a
# CUDA device ours is taken where it clearly pays: what a short kernel saves, its call may cost.
_MARGIN = 0.97
_CUDA_MARGIN, _CUDA_SECONDS = 1.1, 150e-6
_ROUNDS = 4


def signature(input: Tensor, tensors: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    """Everything that the time of a layer depends on, its own settings aside."""
    kind = input.device.type
    grad = torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
    settings = (
        torch.get_num_threads()
        if kind == "cpu"
        else (input.device, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark)
    )
    return (
        input.shape,
        input.stride(),
        input.dtype,
        autocast,
        settings,
        *(grad and t is not None and t.requires_grad for t in (input, *tensors)),
    )


def may_measure(input: Tensor) -> bool:
    """Not while a graph is captured, which may not wait for anything."""
    return input.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def is_expected(input: Tensor, weight: Tensor, groups: int) -> bool:
    """Whether this library is likely to be faster, where it cannot be measured: on CUDA devices in
    depthwise layers."""
    if input.device.type != "cuda":
        return True
    square = weight.dim() == 4 and weight.shape[2] == weight.shape[3]
    return weight.shape[1] == 1 and groups > 1 and square and weight.shape[2] in (3, 5, 7)


def seconds(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *given: Tensor | None
) -> tuple[float, float]:
    """Times of a layer computed by both, backward too where gradients are wanted; on a CUDA device
    with what queuing them takes the host."""
    tensors = [None if t is None else t.detach().requires_grad_(t.requires_grad) for t in given]
    wanted = [t for t in tensors if t is not None and t.requires_grad]
    on_cuda = tensors[0] is not None and tensors[0].device.type == "cuda"

    def run(function: Callable[..., Tensor]) -> None:
        output = function(*tensors)
        if output.requires_grad:
            torch.autograd.grad(output, wanted, torch.ones_like(output))

    def time_on_host(function: Callable[..., Tensor]) -> float:
        begin = time.perf_counter()
        run(function)
        return time.perf_counter() - begin

    def time_on_device(function: Callable[..., Tensor]) -> float:
        # What queuing takes the host counts too: a step that the device does not fill waits for it.
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        queued = time_on_host(function)
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3 + queued

    best = {ours: math.inf, theirs: math.inf}
    for number in range(_ROUNDS):
        for function in best:
            spent = (time_on_device if on_cuda else time_on_host)(function)
            if number > 0:  # the first touches memory, and starts what is to be started
                best[function] = min(best[function], spent)
    return best[ours], best[theirs]


def is_faster(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *given: Tensor | None
) -> bool:
    kind = "cpu" if given[0] is None else given[0].device.type
    return is_better(*seconds(ours, theirs, *given), kind)


def is_better(ours: float, theirs: float, kind: str) -> bool:
    """Whether ours is taken, by the times of both on a kind of device."""
    if kind == "cuda":
        return ours * _CUDA_MARGIN <= theirs and ours + _CUDA_SECONDS <= theirs
    return ours * _MARGIN <= theirs
