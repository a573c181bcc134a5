"""convgrad for PyTorch: functions, modules and whole models, on CPUs and CUDA devices.

    model = convgrad.torch.accelerate(model)      # swaps the convolutions, keeps the parameters

`BatchNorm1d` … `BatchNorm3d`, which `accelerate` swaps too, compute training steps on the CPU. `conv1d` … `conv_transpose3d` have the signatures of `torch.nn.functional`; `Conv1d` …
`ConvTranspose3d` are subclasses of PyTorch's modules. Both are differentiable twice and more, work
under `torch.compile` and autocast, and read and write channels_last tensors in place. On CUDA devices
work goes to PyTorch's current stream, with scratch from PyTorch's allocator. What the library does not
compute (double precision, other devices, meta tensors) goes to PyTorch itself.

`report(model, input)` tells what each convolution takes with this library and without.

The operators behind them are compiled once for the installed PyTorch, in the background of the first
process that imports this package or by `build_operators()`; `native_operators` tells whether this
process has them. Without a compiler the same runs in Python, slower by tens of microseconds a call.
"""

from ._functions import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from ._modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    accelerate,
    from_module,
)
from ._native import build as build_operators
from ._norms import ReLU6, BatchNorm1d, BatchNorm2d, BatchNorm3d, ReLU
from ._ops import native as _loaded
from ._report import Layer, report

native_operators: bool = _loaded is not None

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Layer",
    "ReLU",
    "ReLU6",
    "accelerate",
    "build_operators",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "from_module",
    "native_operators",
    "report",
]
