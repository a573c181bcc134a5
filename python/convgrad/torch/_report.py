"""What each layer of a model takes, computed by this library and by PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _policy
from ._functions import has_engine
from ._modules import _MODULES, _both

_AXES = {kind: made._axes for kind, made in _MODULES.items()}


class Layer(NamedTuple):
    """Times in milliseconds: forward, and backward where gradients are wanted; smallest of three. Those
    of CUDA devices are of the device alone, and what queuing the work takes the host is beside them."""

    name: str
    kind: str
    input: tuple[int, ...]
    dtype: str
    layout: str
    device: str
    ours: float
    theirs: float
    ours_host: float = 0.0
    theirs_host: float = 0.0

    @property
    def takes_ours(self) -> bool:
        """What `accelerate(model, policy="faster")` decides."""
        ours = _policy.Seconds(self.ours / 1e3, self.ours_host / 1e3)
        theirs = _policy.Seconds(self.theirs / 1e3, self.theirs_host / 1e3)
        return _policy.is_better(ours, theirs, self.device)


def _axes_of(module: nn.Module) -> int | None:
    for kind, axes in _AXES.items():
        if type(module) in (kind, _MODULES[kind]):
            return axes
    return None


def _measure(name: str, module: Any, axes: int, input: Tensor) -> Layer:
    is_transposed = module.transposed
    rest: tuple[Any, ...]
    if is_transposed:
        rest = (module.stride, module.padding, module.output_padding, module.groups)
        rest += (module.dilation,)
    else:
        padding = module.padding
        if module.padding_mode != "zeros":
            pads = module._reversed_padding_repeated_twice
            input = F.pad(input, pads, mode=module.padding_mode)
            padding = 0
        rest = (module.stride, padding, module.dilation, module.groups)
    given = (input, module.weight, module.bias)
    ours, theirs = _policy.seconds(*_both(axes, is_transposed, rest), *given)
    kind = input.device.type
    autocast = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if autocast else input.dtype
    last = input.dim() == 4 and not input.is_contiguous()
    last = last and input.is_contiguous(memory_format=torch.channels_last)
    return Layer(
        name,
        nn.Module._get_name(module),
        tuple(input.shape),
        str(dtype).removeprefix("torch."),
        "channels_last" if last else "contiguous",
        kind,
        ours.device * 1e3,
        theirs.device * 1e3,
        ours.host * 1e3,
        theirs.host * 1e3,
    )


def report(model: nn.Module, *input: Any, quiet: bool = False) -> list[Layer]:
    """Runs a model once on `input`, measures each of its convolutions with both implementations on the
    tensors that it saw, prints a table (unless `quiet`) and returns its rows. The model is not changed;
    it may have been accelerated or not.
    """
    seen: list[tuple[str, nn.Module, int, Tensor]] = []
    hooks = []

    def watch(name: str, axes: int) -> Any:
        def look(module: nn.Module, given: tuple[Any, ...]) -> None:
            kept = given[0].detach().requires_grad_(given[0].requires_grad)
            seen.append((name, module, axes, kept))

        return look

    for name, module in model.named_modules():
        axes = _axes_of(module)
        if axes is not None:
            hooks.append(module.register_forward_pre_hook(watch(name, axes)))
    try:
        model(*input)
    finally:
        for hook in hooks:
            hook.remove()
    rows = [_measure(n, m, a, t) for n, m, a, t in seen if has_engine(t.device)]
    if not quiet:
        print(_table(rows))
    return rows


def _table(rows: list[Layer]) -> str:
    head = (
        "layer",
        "kind",
        "input",
        "dtype",
        "layout",
        "convgrad ms",
        "PyTorch ms",
        "ratio",
        "faster",
    )
    lines = [head]
    for r in rows:
        shape = "x".join(map(str, r.input))
        times = (f"{r.ours:.3f}", f"{r.theirs:.3f}", f"{r.theirs / r.ours:.2f}")
        lines.append(
            (
                r.name,
                r.kind,
                shape,
                r.dtype,
                r.layout,
                *times,
                "convgrad" if r.takes_ours else "PyTorch",
            )
        )
    ours, theirs = sum(r.ours for r in rows), sum(r.theirs for r in rows)
    best = sum(r.ours if r.takes_ours else r.theirs for r in rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(
            cell.rjust(w) if 5 <= i <= 7 else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]
    text.append(
        f"all: convgrad {ours:.3f} ms, PyTorch {theirs:.3f} ms, the faster of each {best:.3f} ms"
    )
    return "\n".join(text)
