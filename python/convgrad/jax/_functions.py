# Written by scripts/python_signatures.py from the op table: change that, or the table.
"""The differentiable functions."""

from __future__ import annotations

import jax

from .._types import AutoPad, DataFormat, Ints, TransposedWeightsFormat, WeightsFormat
from ._calls import run


def convolution(
    src: jax.Array,
    weights: jax.Array,
    bias: jax.Array | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: WeightsFormat = "XIO",
) -> jax.Array:
    """`convgrad.convolution` as a differentiable function of JAX."""
    return run(
        "convolution",
        src,
        weights,
        bias,
        (
            strides,
            pads_begin,
            pads_end,
            dilations,
            auto_pad,
            groups,
            data_format,
            weights_format,
            None,
        ),
    )


def conv_transpose(
    src: jax.Array,
    weights: jax.Array,
    bias: jax.Array | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: TransposedWeightsFormat = "XOI",
    output_padding: Ints | None = None,
) -> jax.Array:
    """`convgrad.conv_transpose` as a differentiable function of JAX."""
    return run(
        "conv_transpose",
        src,
        weights,
        bias,
        (
            strides,
            pads_begin,
            pads_end,
            dilations,
            auto_pad,
            groups,
            data_format,
            weights_format,
            output_padding,
        ),
    )
