"""convgrad for JAX: differentiable convolutions that run on the CPU.

    dst = convgrad.jax.convolution(src, weights, strides=2, auto_pad="same_upper")

The functions take the attributes of the specification, work under `jax.jit`, `jax.grad` (any number of
times) and `jax.vmap`, and are computed by the library through a host callback.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _core, _functions
from ._types import AutoPad, DataFormat, Ints, TransposedWeightsFormat, WeightsFormat

__all__ = ["conv_transpose", "convolution"]


class _Layer(NamedTuple):
    """A convolution with fixed attributes and shapes: the static part of the functions below."""

    transposed: bool
    attributes: tuple[tuple[str, Any], ...]
    src: tuple[int, ...]
    weights: tuple[int, ...]
    dst: tuple[int, ...]


def _call(layer: _Layer, function: Any, shape: tuple[int, ...], *arrays: jax.Array) -> jax.Array:
    """Calls one of the library's functions on the host, on arrays of these shapes."""

    def compute(*given: Any) -> np.ndarray[Any, Any]:
        inputs = [np.asarray(x) for x in given]
        out = np.empty(shape, inputs[0].dtype)
        function(*inputs, out=out, **dict(layer.attributes))
        return out

    result = jax.ShapeDtypeStruct(shape, arrays[0].dtype)
    return jax.pure_callback(compute, result, *arrays, vmap_method="sequential")


# The forward op and its two gradients. Each is linear in both arguments, and the derivatives of each
# are the other two: that is all there is to derivatives of any order.


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _forward(layer: _Layer, src: jax.Array, weights: jax.Array) -> jax.Array:
    function = _functions.conv_transpose if layer.transposed else _functions.convolution
    return _call(layer, function, layer.dst, src, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _backward_data(layer: _Layer, diff_dst: jax.Array, weights: jax.Array) -> jax.Array:
    function = (
        _functions.conv_transpose_backward_data
        if layer.transposed
        else _functions.convolution_backward_data
    )
    return _call(layer, function, layer.src, diff_dst, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _backward_weights(layer: _Layer, src: jax.Array, diff_dst: jax.Array) -> jax.Array:
    function = (
        _functions.conv_transpose_backward_weights
        if layer.transposed
        else _functions.convolution_backward_weights
    )
    return _call(layer, function, layer.weights, src, diff_dst)


def _forward_rule(layer: _Layer, saved: Any, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    src, weights = saved
    return _backward_data(layer, cotangent, weights), _backward_weights(layer, src, cotangent)


def _data_rule(layer: _Layer, saved: Any, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    diff_dst, weights = saved
    return _forward(layer, cotangent, weights), _backward_weights(layer, cotangent, diff_dst)


def _weights_rule(layer: _Layer, saved: Any, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    src, diff_dst = saved
    return _backward_data(layer, diff_dst, cotangent), _forward(layer, src, cotangent)


for _function, _rule in (
    (_forward, _forward_rule),
    (_backward_data, _data_rule),
    (_backward_weights, _weights_rule),
):
    _function.defvjp(lambda layer, a, b, function=_function: (function(layer, a, b), (a, b)), _rule)


def _static(value: Any) -> Any:
    """Attributes that can be compared and hashed."""
    if value is None or isinstance(value, (int, str)):
        return value
    return tuple(int(v) for v in value)


def _layer(
    transposed: bool, src: jax.Array, weights: jax.Array, attributes: dict[str, Any]
) -> _Layer:
    if src.dtype not in (jnp.float32, jnp.bfloat16, jnp.float16):
        raise _core.InvalidOp(
            f"invalid op: src has type {src.dtype}; it must be float32, bfloat16 or float16"
        )
    if src.dtype != weights.dtype:
        raise _core.InvalidOp(
            f"invalid op: src has type {src.dtype} but weights has {weights.dtype}; "
            "they must be equal"
        )
    names = ("strides", "pads_begin", "pads_end", "dilations", "auto_pad", "groups", "data_format")
    values = [attributes.get(name) for name in (*names, "weights_format", "output_padding")]
    dst = _core.infer_shape(
        "conv_transpose" if transposed else "convolution", src.shape, weights.shape, tuple(values)
    )
    static = tuple((name, _static(value)) for name, value in attributes.items())
    return _Layer(transposed, static, tuple(src.shape), tuple(weights.shape), tuple(dst))


def _add_bias(dst: jax.Array, bias: jax.Array | None, data_format: str) -> jax.Array:
    if bias is None:
        return dst
    channel = 1 if data_format == "NCX" else dst.ndim - 1
    if bias.shape != (dst.shape[channel],):
        raise _core.InvalidShape(
            f"invalid shape: bias has shape {bias.shape}; it must be ({dst.shape[channel]},)"
        )
    return dst + bias.reshape([-1 if d == channel else 1 for d in range(dst.ndim)])


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
    src, weights = jnp.asarray(src), jnp.asarray(weights)
    attributes = {
        "strides": strides,
        "pads_begin": pads_begin,
        "pads_end": pads_end,
        "dilations": dilations,
        "auto_pad": auto_pad,
        "groups": groups,
        "data_format": data_format,
        "weights_format": weights_format,
    }
    layer = _layer(False, src, weights, attributes)
    return _add_bias(_forward(layer, src, weights), bias, data_format)


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
    output_padding: Ints | Sequence[int] = 0,
) -> jax.Array:
    """`convgrad.conv_transpose` as a differentiable function of JAX."""
    src, weights = jnp.asarray(src), jnp.asarray(weights)
    attributes = {
        "strides": strides,
        "pads_begin": pads_begin,
        "pads_end": pads_end,
        "dilations": dilations,
        "auto_pad": auto_pad,
        "groups": groups,
        "data_format": data_format,
        "weights_format": weights_format,
        "output_padding": output_padding,
    }
    layer = _layer(True, src, weights, attributes)
    return _add_bias(_forward(layer, src, weights), bias, data_format)
