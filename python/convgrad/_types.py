"""Types that signatures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, Union


class SupportsDLPack(Protocol):
    """NumPy arrays, PyTorch tensors, JAX arrays and all else that exports DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


Array = TypeVar("Array", bound=SupportsDLPack)
#: One value per spatial axis, or one for all of them.
Ints = Union[int, Sequence[int]]
AutoPad = Literal["none", "same_upper", "same_lower", "valid"]
DataFormat = Literal["NXC", "NCX"]
WeightsFormat = Literal["XIO", "OIX"]
TransposedWeightsFormat = Literal["XOI", "IOX"]


class Gradients(NamedTuple):
    """Both gradients of a layer; `diff_bias` is None unless it was asked for."""

    diff_src: Any
    diff_weights: Any
    diff_bias: Any = None
