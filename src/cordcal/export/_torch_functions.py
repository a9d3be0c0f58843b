"""torch's functions for array expressions: array-api-compat's, but some without its overhead.

Those look for types to promote, which takes several times as long as a small operation.
"""

from array_api_compat.torch import *  # noqa: F403
from torch import Tensor, amax, amin, cumsum, gather, where
from torch import sum as _sum

# torch's registries fail when doctest inspects them, and no expression uses them.
for _registry in ("classes", "ops"):
    globals().pop(_registry, None)


def sum(x: Tensor, *, axis: int, keepdims: bool = False) -> Tensor:
    """Return the sum along an axis."""
    return _sum(x, dim=axis, keepdim=keepdims)


def max(x: Tensor, *, axis: int, keepdims: bool = False) -> Tensor:
    """Return the maximum along an axis."""
    return amax(x, dim=axis, keepdim=keepdims)


def min(x: Tensor, *, axis: int, keepdims: bool = False) -> Tensor:
    """Return the minimum along an axis."""
    return amin(x, dim=axis, keepdim=keepdims)


def take_along_axis(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """Return the entries at indices, which are not negative, along an axis."""
    return gather(x, axis, indices)


def cumulative_sum(x: Tensor, *, axis: int) -> Tensor:
    """Return the sums up to each entry along an axis."""
    return cumsum(x, dim=axis)


__all__ = ["cumulative_sum", "max", "min", "sum", "take_along_axis", "where"]
