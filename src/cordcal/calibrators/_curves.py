"""Piecewise linear curves between fitted knots, as expressions for every array library.

A curve's knots lie in ``knot_x_`` and ``knot_y_``; where there is one curve a class,
``knot_start_`` says where each class's begin.  NumPy has a search of its own; elsewhere the
knot to the left is found by halving steps that all entries take together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.expressions import at_least
from cordcal._door.types import Array
from cordcal.calibrators._base import Held


def interpolate(x: Array, held: Held, xp: Any) -> Array:
    """Return the one curve at every entry, as `numpy.interp`."""
    if xp is np:
        return np.interp(x, held["knot_x_"], held["knot_y_"])
    return _between(x, held, 0, held["knot_x_"].shape[0], xp)


def interpolate_each(x: Array, held: Held, xp: Any) -> Array:
    """Return each column's own curve."""
    start = held["knot_start_"]
    if xp is not np:
        return _between(x, held, start[:-1], start[1:], xp)
    columns = x.T.copy(order="C")
    for column, first, end in zip(columns, start[:-1], start[1:], strict=True):
        column[:] = np.interp(column, held["knot_x_"][first:end], held["knot_y_"][first:end])
    return columns.T


def search_strides(
    knot_x: npt.NDArray[Any], knot_start: npt.NDArray[Any] | None = None
) -> npt.NDArray[np.int64]:
    """Return the strides with which any knot of a class is reached from its first one.

    Examples
    --------
    >>> search_strides(np.arange(9.0), np.array([0, 3, 9]))
    array([4, 2, 1])
    """
    most = len(knot_x) if knot_start is None else int(np.diff(knot_start).max())
    return 2 ** np.arange((most - 1).bit_length(), dtype=np.int64)[::-1]


def _between(x: Array, held: Held, first: Any, end: Any, xp: Any) -> Array:
    """Interpolate between knots ``first`` to ``end`` of each column."""
    knot_x, knot_y = held["knot_x_"], held["knot_y_"]
    last = end - 1
    left = xp.astype(xp.zeros_like(x), xp.int64) + first
    for number in range(held["stride_"].shape[0]):
        further = left + held["stride_"][number]
        inside = further <= last
        further = xp.where(inside, further, left)
        left = xp.where(inside & (knot_x[further] <= x), further, left)
    right = xp.where(left < last, left + 1, left)
    x0, y0 = knot_x[left], knot_y[left]
    run = knot_x[right] - x0
    slope = (knot_y[right] - y0) / xp.where(run > 0.0, run, xp.ones_like(run))
    return slope * at_least(x - x0, 0.0, xp) + y0
