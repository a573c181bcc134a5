"""Convolutions and their gradients on CPUs.

    >>> import convgrad, numpy as np
    >>> src = np.ones((8, 56, 56, 64), np.float32)
    >>> diff_dst = np.ones((8, 56, 56, 32), np.float32)
    >>> convgrad.convolution_backward_weights(
    ...     src, diff_dst, (3, 3, 64, 32), pads_begin=1, pads_end=1).shape
    (3, 3, 64, 32)

`convgrad.torch` and `convgrad.jax` hold what belongs to these frameworks.
"""

from ._compile import compile, explain, infer_shape, resolve_pads
from ._core import (
    CompiledPartition,
    DeviceFailure,
    Engine,
    Error,
    Explanation,
    Graph,
    InvalidArgument,
    InvalidGraph,
    InvalidOp,
    InvalidShape,
    LogicalTensor,
    Op,
    OutOfMemory,
    Partition,
    Refusal,
    Unsupported,
    __version__,
    default_engine,
    detected_isa,
    release_scratch,
)
from ._functions import (
    bias_add_backward,
    conv_transpose,
    conv_transpose_backward,
    conv_transpose_backward_data,
    conv_transpose_backward_weights,
    convolution,
    convolution_backward,
    convolution_backward_data,
    convolution_backward_weights,
)
from ._types import Gradients

__all__ = [
    "CompiledPartition",
    "Engine",
    "Error",
    "Explanation",
    "Gradients",
    "Graph",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidOp",
    "InvalidShape",
    "LogicalTensor",
    "Op",
    "DeviceFailure",
    "OutOfMemory",
    "Partition",
    "Refusal",
    "Unsupported",
    "__version__",
    "bias_add_backward",
    "compile",
    "conv_transpose",
    "conv_transpose_backward",
    "conv_transpose_backward_data",
    "conv_transpose_backward_weights",
    "convolution",
    "convolution_backward",
    "convolution_backward_data",
    "convolution_backward_weights",
    "default_engine",
    "detected_isa",
    "explain",
    "infer_shape",
    "release_scratch",
    "resolve_pads",
]
