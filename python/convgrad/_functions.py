# Written by scripts/python_signatures.py from the op table: change that, or the table.
"""One function per op.

Arrays are NumPy's (bf16 through ml_dtypes) or anything with `__dlpack__`; results are of the kind of
the first argument. Nothing is copied, except inputs whose strides are negative, zero or not whole
elements. Attributes have the specification's names; one integer stands for all spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from . import _core
from ._arguments import gradient_outputs
from ._types import (
    Array,
    AutoPad,
    DataFormat,
    Gradients,
    Ints,
    TransposedWeightsFormat,
    WeightsFormat,
)


def convolution(
    src: Array,
    weights: Array,
    bias: Array | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: WeightsFormat = "XIO",
    relu: bool = False,
    add: Array | None = None,
    out: Array | None = None,
    engine: _core.Engine | None = None,
) -> Array:
    """dst of a convolution: max(0, conv + bias + add) with `relu`, else conv + bias + add."""
    return _core.run(  # type: ignore[no-any-return]
        13,  # Convolution
        (src, weights, bias, add),
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
        None,
        out,
        None,
        False,
        relu,
        None,
        engine,
    )


def convolution_backward_data(
    diff_dst: Array,
    weights: Array,
    dst_shape: Sequence[int] | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: WeightsFormat = "XIO",
    output_padding: Ints | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    engine: _core.Engine | None = None,
) -> Array:
    """diff_src of a convolution. `dst_shape` is its shape; without it and `out` the smallest that
    fits, plus `output_padding`. `accumulate` adds into `out`.
    """
    return _core.run(  # type: ignore[no-any-return]
        14,  # ConvolutionBackwardData
        (diff_dst, weights, None, None),
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
        dst_shape,
        out,
        None,
        accumulate,
        False,
        None,
        engine,
    )


@overload
def convolution_backward_weights(
    src: Array,
    diff_dst: Array,
    weights_shape: Sequence[int] | None = ...,
    *,
    strides: Ints = ...,
    pads_begin: Ints = ...,
    pads_end: Ints = ...,
    dilations: Ints = ...,
    auto_pad: AutoPad = ...,
    groups: int = ...,
    data_format: DataFormat = ...,
    weights_format: WeightsFormat = ...,
    dtype: object = ...,
    diff_bias: Literal[False] = ...,
    out: Array | None = ...,
    accumulate: bool = ...,
    engine: _core.Engine | None = ...,
) -> Array: ...
@overload
def convolution_backward_weights(
    src: Array,
    diff_dst: Array,
    weights_shape: Sequence[int] | None = ...,
    *,
    strides: Ints = ...,
    pads_begin: Ints = ...,
    pads_end: Ints = ...,
    dilations: Ints = ...,
    auto_pad: AutoPad = ...,
    groups: int = ...,
    data_format: DataFormat = ...,
    weights_format: WeightsFormat = ...,
    dtype: object = ...,
    diff_bias: Literal[True] | Array,
    out: Array | None = ...,
    accumulate: bool = ...,
    engine: _core.Engine | None = ...,
) -> tuple[Array, Array]: ...
def convolution_backward_weights(
    src: Any,
    diff_dst: Any,
    weights_shape: Sequence[int] | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: WeightsFormat = "XIO",
    dtype: object = None,
    diff_bias: Any = False,
    out: Any = None,
    accumulate: bool = False,
    engine: _core.Engine | None = None,
) -> Any:
    """diff_weights of a convolution, of shape `weights_shape` (or that of `out`).

    `dtype="f32"` asks for f32 gradients of 16-bit data. `diff_bias=True`, or an array to write to,
    asks for the bias gradient too; then the result is (diff_weights, diff_bias).
    """
    return _core.run(
        15,  # ConvolutionBackwardWeights
        (src, diff_dst, None, None),
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
        weights_shape,
        out,
        diff_bias,
        accumulate,
        False,
        dtype,
        engine,
    )


def conv_transpose(
    src: Array,
    weights: Array,
    bias: Array | None = None,
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
    relu: bool = False,
    add: Array | None = None,
    out: Array | None = None,
    engine: _core.Engine | None = None,
) -> Array:
    """dst of a transposed convolution, with `relu` and `add` as for `convolution`."""
    return _core.run(  # type: ignore[no-any-return]
        16,  # ConvTranspose
        (src, weights, bias, add),
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
        None,
        out,
        None,
        False,
        relu,
        None,
        engine,
    )


def conv_transpose_backward_data(
    diff_dst: Array,
    weights: Array,
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
    out: Array | None = None,
    accumulate: bool = False,
    engine: _core.Engine | None = None,
) -> Array:
    """diff_src of a transposed convolution. `accumulate` adds into `out`."""
    return _core.run(  # type: ignore[no-any-return]
        17,  # ConvTransposeBackwardData
        (diff_dst, weights, None, None),
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
        None,
        out,
        None,
        accumulate,
        False,
        None,
        engine,
    )


@overload
def conv_transpose_backward_weights(
    src: Array,
    diff_dst: Array,
    weights_shape: Sequence[int] | None = ...,
    *,
    strides: Ints = ...,
    pads_begin: Ints = ...,
    pads_end: Ints = ...,
    dilations: Ints = ...,
    auto_pad: AutoPad = ...,
    groups: int = ...,
    data_format: DataFormat = ...,
    weights_format: TransposedWeightsFormat = ...,
    output_padding: Ints | None = ...,
    dtype: object = ...,
    diff_bias: Literal[False] = ...,
    out: Array | None = ...,
    accumulate: bool = ...,
    engine: _core.Engine | None = ...,
) -> Array: ...
@overload
def conv_transpose_backward_weights(
    src: Array,
    diff_dst: Array,
    weights_shape: Sequence[int] | None = ...,
    *,
    strides: Ints = ...,
    pads_begin: Ints = ...,
    pads_end: Ints = ...,
    dilations: Ints = ...,
    auto_pad: AutoPad = ...,
    groups: int = ...,
    data_format: DataFormat = ...,
    weights_format: TransposedWeightsFormat = ...,
    output_padding: Ints | None = ...,
    dtype: object = ...,
    diff_bias: Literal[True] | Array,
    out: Array | None = ...,
    accumulate: bool = ...,
    engine: _core.Engine | None = ...,
) -> tuple[Array, Array]: ...
def conv_transpose_backward_weights(
    src: Any,
    diff_dst: Any,
    weights_shape: Sequence[int] | None = None,
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
    dtype: object = None,
    diff_bias: Any = False,
    out: Any = None,
    accumulate: bool = False,
    engine: _core.Engine | None = None,
) -> Any:
    """diff_weights of a transposed convolution; see `convolution_backward_weights`."""
    return _core.run(
        18,  # ConvTransposeBackwardWeights
        (src, diff_dst, None, None),
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
        weights_shape,
        out,
        diff_bias,
        accumulate,
        False,
        dtype,
        engine,
    )


def bias_add_backward(
    diff_dst: Array,
    *,
    data_format: DataFormat = "NXC",
    dtype: object = None,
    out: Array | None = None,
    accumulate: bool = False,
    engine: _core.Engine | None = None,
) -> Array:
    """diff_bias alone: the sum of `diff_dst` over batch and space. `dtype="f32"` asks for f32
    sums of 16-bit data; `accumulate` adds into `out`.
    """
    return _core.run(  # type: ignore[no-any-return]
        9,  # BiasAddBackward
        (diff_dst, None, None, None),
        (
            None,
            None,
            None,
            None,
            None,
            None,
            data_format,
            None,
            None,
        ),
        None,
        out,
        None,
        accumulate,
        False,
        dtype,
        engine,
    )


def convolution_backward(
    src: Array,
    diff_dst: Array,
    weights: Array,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: AutoPad = "none",
    groups: int = 1,
    data_format: DataFormat = "NXC",
    weights_format: WeightsFormat = "XIO",
    dtype: object = None,
    diff_bias: bool = False,
    out: Sequence[Any] | None = None,
    accumulate: bool = False,
    engine: _core.Engine | None = None,
) -> Gradients:
    """Both gradients of a convolution, and the bias gradient if `diff_bias`.

    `out` may give (diff_src, diff_weights) or (diff_src, diff_weights, diff_bias) to write to; None
    in it means: a new one. `dtype` is that of diff_weights and diff_bias.
    """
    return Gradients(
        *_core.run_both(
            13,  # Convolution
            (src, diff_dst, weights),
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
            gradient_outputs(out, diff_bias),
            accumulate,
            dtype,
            engine,
        )
    )


def conv_transpose_backward(
    src: Array,
    diff_dst: Array,
    weights: Array,
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
    dtype: object = None,
    diff_bias: bool = False,
    out: Sequence[Any] | None = None,
    accumulate: bool = False,
    engine: _core.Engine | None = None,
) -> Gradients:
    """Both gradients of a transposed convolution; see `convolution_backward`."""
    return Gradients(
        *_core.run_both(
            16,  # ConvTranspose
            (src, diff_dst, weights),
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
            gradient_outputs(out, diff_bias),
            accumulate,
            dtype,
            engine,
        )
    )
