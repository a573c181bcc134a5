"""The custom calls of XLA, their derivatives, and what is checked before."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .. import _core

for _name, _target in _core.xla_targets().items():
    jax.ffi.register_ffi_target(_name, _target, platform="cpu")


class _Layer(NamedTuple):
    """A layer with fixed attributes and shapes: the static part of the functions below."""

    op: str
    attributes: tuple[tuple[str, Any], ...]
    src: tuple[int, ...]
    weights: tuple[int, ...]
    dst: tuple[int, ...]

    @property
    def channel_axis(self) -> int:
        return 1 if dict(self.attributes)["data_format"].upper() == "NCX" else len(self.dst) - 1

    @property
    def bias(self) -> tuple[int]:
        return (self.dst[self.channel_axis],)


def _axes(x: Any) -> frozenset[str]:
    """The mesh axes along which the parts of an array inside `shard_map` may differ."""
    kind = jax.typeof(x)
    if hasattr(kind, "manual_axis_type"):
        return kind.manual_axis_type.varying
    return getattr(kind, "vma", frozenset())


def _vary(x: Any, axes: frozenset[str]) -> Any:
    """The same array as one that differs along these mesh axes too."""
    missing = tuple(sorted(axes - _axes(x)))
    if not missing:
        return x
    return (
        jax.lax.pcast(x, missing, to="varying")
        if hasattr(jax.lax, "pcast")
        else jax.lax.pvary(x, missing)
    )


def _call(layer: _Layer, suffix: str, shapes: Sequence[tuple[int, ...]], *arrays: Any) -> list[Any]:
    """Calls one of the library's functions; results have these shapes and the arrays' type."""
    attributes = {
        name: np.array(value, np.int64) if isinstance(value, tuple) else value
        for name, value in layer.attributes
    }
    # Mapped dimensions come first, of length 1 where an array is not mapped: the library loops, or
    # takes them for a part of the batch. Nothing is repeated in memory.
    call = jax.ffi.ffi_call(
        f"convgrad.{layer.op}{suffix}",
        [jax.ShapeDtypeStruct(shape, arrays[0].dtype) for shape in shapes],
        vmap_method="expand_dims",
    )
    results = call(*arrays, rank=np.int64(len(layer.src)), **attributes)
    return [_vary(r, _axes(arrays[0])) for r in results]


# The forward op and its gradients are linear in each argument, and the derivatives of each are the
# others: that is all there is to derivatives of any order. Which derivatives somebody wants is known
# when a function is differentiated (`symbolic_zeros`), so that both gradients go together where both
# are wanted, and nothing is computed in vain.


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _forward(layer: _Layer, src: Any, weights: Any, bias: Any) -> Any:
    """dst; `bias` may be None."""
    arrays = (src, weights) if bias is None else (src, weights, bias)
    return _call(layer, "", [layer.dst], *arrays)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _backward_data(layer: _Layer, diff_dst: Any, weights: Any) -> Any:
    """diff_src."""
    return _call(layer, "_backward_data", [layer.src], diff_dst, weights)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _backward_weights(layer: _Layer, with_bias: bool, src: Any, diff_dst: Any) -> Any:
    """[diff_weights], or [diff_weights, diff_bias]."""
    shapes = [layer.weights, layer.bias] if with_bias else [layer.weights]
    return _call(layer, "_backward_weights", shapes, src, diff_dst)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _backward(layer: _Layer, with_bias: bool, src: Any, diff_dst: Any, weights: Any) -> Any:
    """[diff_src, diff_weights], or [diff_src, diff_weights, diff_bias]."""
    shapes = [layer.src, layer.weights, layer.bias][: 3 if with_bias else 2]
    return _call(layer, "_backward", shapes, src, diff_dst, weights)


class _Saved(NamedTuple):
    """Values that rules need. What is None is not needed, because nobody wants what it is for."""

    values: tuple[Any, ...]
    wanted: tuple[Any, ...]  # () or None for each argument


def _save(*arguments: Any) -> tuple[tuple[Any, ...], _Saved]:
    """The values of arguments of a forward rule, and the same with what is wanted."""
    values = tuple(None if x is None else x.value for x in arguments)
    wanted = tuple(None if x is None or not x.perturbed else () for x in arguments)
    return values, _Saved(values, wanted)


def _given(cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents with None for those that are known to be zero."""
    return [None if isinstance(c, SymbolicZero) else c for c in cotangents]


def _sum_of(*terms: Any) -> Any:
    """The sum of those that are not None."""
    present = [t for t in terms if t is not None]
    return functools.reduce(jnp.add, present) if present else None


def _over_channels(layer: _Layer, vector: Any) -> Any:
    """One value per channel, broadcast to dst."""
    shape = [-1 if d == layer.channel_axis else 1 for d in range(len(layer.dst))]
    return jnp.broadcast_to(vector.reshape(shape), layer.dst)


def _sum_over_all_else(layer: _Layer, diff_dst: Any) -> Any:
    """diff_bias where no weights gradient is wanted."""
    axes = tuple(d for d in range(diff_dst.ndim) if d != layer.channel_axis)
    return jnp.sum(diff_dst, axes, dtype=jnp.float32).astype(diff_dst.dtype)


def _forward_save(layer: _Layer, src: Any, weights: Any, bias: Any) -> Any:
    values, saved = _save(src, weights, bias)
    needed = (
        None if saved.wanted[1] is None else values[0],
        None if saved.wanted[0] is None else values[1],
    )
    return _forward(layer, *values), saved._replace(values=needed)


def _forward_rule(layer: _Layer, saved: _Saved, cotangent: Any) -> Any:
    (diff_dst,) = _given([cotangent])
    src, weights = saved.values
    wants_src, wants_weights, wants_bias = (w is not None for w in saved.wanted)
    if diff_dst is None:
        return None, None, None
    diff_src = diff_weights = diff_bias = None
    if wants_src and wants_weights:
        results = _backward(layer, wants_bias, src, diff_dst, weights)
        diff_src, diff_weights = results[:2]
        diff_bias = results[2] if wants_bias else None
    elif wants_weights:
        results = _backward_weights(layer, wants_bias, src, diff_dst)
        diff_weights = results[0]
        diff_bias = results[1] if wants_bias else None
    else:
        if wants_src:
            diff_src = _backward_data(layer, diff_dst, weights)
        if wants_bias:
            diff_bias = _sum_over_all_else(layer, diff_dst)
    return diff_src, diff_weights, diff_bias


def _data_save(layer: _Layer, diff_dst: Any, weights: Any) -> Any:
    values, saved = _save(diff_dst, weights)
    return _backward_data(layer, *values), saved


def _data_rule(layer: _Layer, saved: _Saved, cotangent: Any) -> Any:
    (of_src,) = _given([cotangent])
    diff_dst, weights = saved.values
    wants_diff_dst, wants_weights = (w is not None and of_src is not None for w in saved.wanted)
    return (
        _forward(layer, of_src, weights, None) if wants_diff_dst else None,
        _backward_weights(layer, False, of_src, diff_dst)[0] if wants_weights else None,
    )


def _weights_save(layer: _Layer, with_bias: bool, src: Any, diff_dst: Any) -> Any:
    values, saved = _save(src, diff_dst)
    return _backward_weights(layer, with_bias, *values), saved


def _weights_rule(layer: _Layer, with_bias: bool, saved: _Saved, cotangents: Any) -> Any:
    of_weights, of_bias = (*_given(cotangents), None)[:2]
    src, diff_dst = saved.values
    wants_src, wants_diff_dst = (w is not None for w in saved.wanted)
    for_src = for_diff_dst = None
    if wants_src and of_weights is not None:
        for_src = _backward_data(layer, diff_dst, of_weights)
    if wants_diff_dst:
        for_diff_dst = _diff_dst_of_weights(layer, src, of_weights, of_bias)
    return for_src, for_diff_dst


def _diff_dst_of_weights(layer: _Layer, src: Any, of_weights: Any, of_bias: Any) -> Any:
    if of_weights is not None:
        return _forward(layer, src, of_weights, of_bias)
    return None if of_bias is None else _over_channels(layer, of_bias)


def _both_save(layer: _Layer, with_bias: bool, src: Any, diff_dst: Any, weights: Any) -> Any:
    values, saved = _save(src, diff_dst, weights)
    return _backward(layer, with_bias, *values), saved


def _both_rule(layer: _Layer, with_bias: bool, saved: _Saved, cotangents: Any) -> Any:
    of_src, of_weights, of_bias = (*_given(cotangents), None)[:3]
    src, diff_dst, weights = saved.values
    wants_src, wants_diff_dst, wants_weights = (w is not None for w in saved.wanted)
    for_src = for_diff_dst = for_weights = None
    if wants_src and of_weights is not None:
        for_src = _backward_data(layer, diff_dst, of_weights)
    if wants_diff_dst:
        for_diff_dst = _sum_of(
            None if of_src is None else _forward(layer, of_src, weights, None),
            _diff_dst_of_weights(layer, src, of_weights, of_bias),
        )
    if wants_weights and of_src is not None:
        for_weights = _backward_weights(layer, False, of_src, diff_dst)[0]
    return for_src, for_diff_dst, for_weights


for _function, _keep, _rule in (
    (_forward, _forward_save, _forward_rule),
    (_backward_data, _data_save, _data_rule),
    (_backward_weights, _weights_save, _weights_rule),
    (_backward, _both_save, _both_rule),
):
    _function.defvjp(_keep, _rule, symbolic_zeros=True)


def _static(value: Any, axes: int) -> Any:
    """Attributes that can be compared and hashed, lists with one number for each axis."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)):
        return (int(value),) * axes
    return tuple(int(v) for v in value)


def _check_type(name: str, x: Any, src: Any) -> None:
    if x.dtype != src.dtype:
        raise _core.InvalidOp(
            f"invalid op: src has type {src.dtype} but {name} has {x.dtype}; they must be equal"
        )


def _layer(op: str, src: Any, weights: Any, values: tuple[Any, ...]) -> _Layer:
    if src.dtype not in (jnp.float32, jnp.bfloat16, jnp.float16):
        raise _core.InvalidOp(
            f"invalid op: src has type {src.dtype}; it must be float32, bfloat16 or float16"
        )
    _check_type("weights", weights, src)
    dst = _core.infer_shape(op, src.shape, weights.shape, values)
    static = {
        name: np.int64(value) if name == "groups" else _static(value, src.ndim - 2)
        for name, value in zip(_core.ATTRIBUTES, values)
        if value is not None
    }
    return _Layer(op, tuple(static.items()), tuple(src.shape), tuple(weights.shape), tuple(dst))


def run(op: str, src: Any, weights: Any, bias: Any, values: tuple[Any, ...]) -> Any:
    """A layer with attributes in the order of `_core.ATTRIBUTES`."""
    src, weights = jnp.asarray(src), jnp.asarray(weights)
    layer = _layer(op, src, weights, values)
    if bias is not None:
        bias = jnp.asarray(bias)
        if bias.shape != layer.bias:
            raise _core.InvalidShape(
                f"invalid shape: bias has shape {bias.shape}; it must be {layer.bias}"
            )
        _check_type("bias", bias, src)
    # Inside `shard_map` operands must differ along the same mesh axes; the gradient of one that did
    # not becomes the sum along the axis.
    given = [x for x in (src, weights, bias) if x is not None]
    axes = frozenset().union(*map(_axes, given))
    return _forward(layer, *(None if x is None else _vary(x, axes) for x in (src, weights, bias)))
