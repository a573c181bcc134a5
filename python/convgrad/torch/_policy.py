"""Which of two implementations computes a layer: PyTorch's or this library's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _ops

# On a CPU PyTorch's is taken only where it is faster by more than clocks and neighbours differ.
_MARGIN = 0.97
# A step waits for a CUDA device or for the host that queues its work, which of them is not known here:
# what the host saves counts half.
_CUDA_MARGIN, _HOST_SHARE = 1.03, 0.5
_ROUNDS, _CUDA_ROUNDS = 4, 6

# In C++; NotImplemented is its answer to tensors of other classes.
_facts = None if _ops.native is None else _ops.native.signature


class Seconds(NamedTuple):
    """Of the device that computes; on CUDA devices also of the host, which queues the work."""

    device: float
    host: float = 0.0


def _allows_tf32() -> bool | None:
    try:
        return bool(torch._C._get_cudnn_allow_tf32())
    except RuntimeError:
        return None  # set by other names, which do not mix with this one


def signature(input: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    """Everything that the time of a layer depends on, its own settings aside."""
    facts = NotImplemented if _facts is None else _facts(input, weight, bias)
    if facts is NotImplemented:
        kind = input.device.type
        grad = torch.is_grad_enabled()
        facts = (
            input.shape,
            input.stride(),
            input.dtype,
            torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind),
            torch.get_num_threads() if kind == "cpu" else input.device,
            *(grad and t is not None and t.requires_grad for t in (input, weight, bias)),
        )
    return (facts, _allows_tf32()) if input.is_cuda else facts


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


def _seconds_on_host(run: Callable[[], None]) -> Seconds:
    begin = time.perf_counter()
    run()
    return Seconds(time.perf_counter() - begin)


def _seconds_on_cuda(run: Callable[[], None], queuing: float) -> Seconds:
    """The device is kept busy until all is queued, so that it never waits for the host in between:
    short kernels would be drowned in what calling them takes."""
    cycles_of_a_second = 2e9  # of the fastest clocks there are
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(int((2 * queuing + 100e-6) * cycles_of_a_second))
    first.record()
    begin = time.perf_counter()
    run()
    queued = time.perf_counter() - begin
    last.record()
    last.synchronize()
    return Seconds(float(first.elapsed_time(last)) / 1e3, queued)


def seconds(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *given: Tensor | None
) -> tuple[Seconds, Seconds]:
    """Times of a layer computed by both, backward too where gradients are wanted."""
    tensors = [None if t is None else t.detach().requires_grad_(t.requires_grad) for t in given]
    wanted = [t for t in tensors if t is not None and t.requires_grad]
    on_cuda = tensors[0] is not None and tensors[0].device.type == "cuda"

    def run(function: Callable[..., Tensor]) -> None:
        output = function(*tensors)
        if output.requires_grad:
            torch.autograd.grad(output, wanted, torch.ones_like(output))

    best = {ours: Seconds(math.inf, math.inf), theirs: Seconds(math.inf, math.inf)}
    for number in range(_CUDA_ROUNDS if on_cuda else _ROUNDS):
        for function, least in best.items():
            queuing = least.host if math.isfinite(least.host) else 1e-3
            work = lambda function=function: run(function)  # noqa: E731
            spent = _seconds_on_cuda(work, queuing) if on_cuda else _seconds_on_host(work)
            if number > 0:  # the first touches memory, and starts what is to be started
                best[function] = Seconds(*map(min, least, spent))
    return best[ours], best[theirs]


def is_faster(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *given: Tensor | None
) -> bool:
    kind = "cpu" if given[0] is None else given[0].device.type
    return is_better(*seconds(ours, theirs, *given), kind)


def is_better(ours: Seconds, theirs: Seconds, kind: str) -> bool:
    """Whether ours is taken, by the times of both on a kind of device."""
    if kind != "cuda":
        return ours.device * _MARGIN <= theirs.device
    ours_cost, theirs_cost = (s.device + _HOST_SHARE * s.host for s in (ours, theirs))
    return ours_cost * _CUDA_MARGIN <= theirs_cost
