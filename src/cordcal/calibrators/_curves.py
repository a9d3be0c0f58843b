"""Monotone curves between fitted knots: isotonic regression, Venn-Abers, interpolation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._numeric.expressions import maximum
from cordcal._numeric.types import Array, Parameters, Vector


def interpolate(x: Array, params: Parameters, xp: Any) -> Array:
    """Evaluate one curve at every entry, as `numpy.interp` does."""
    if xp is np:
        return np.interp(x, params["knot_x_"], params["knot_y_"])
    return _interpolate_by_search(x, params, 0, params["knot_x_"].shape[0], xp)


def interpolate_each(x: Array, params: Parameters, xp: Any) -> Array:
    """Evaluate a different curve per column."""
    start = params["knot_start_"]
    if xp is not np:
        return _interpolate_by_search(x, params, start[:-1], start[1:], xp)
    columns = x.T.copy(order="C")
    bounds = start.tolist()
    for column, first, end in zip(columns, bounds[:-1], bounds[1:], strict=True):
        _interpolate_column(column, params["knot_x_"][first:end], params["knot_y_"][first:end])
    return columns.T


def _interpolate_column(x: Vector, knot_x: Vector, knot_y: Vector) -> None:
    """Evaluate a curve in place; with many classes most entries lie on its first flat piece."""
    if x.size < _MANY_ROWS or knot_x.size < 3 or knot_y[1] != knot_y[0]:
        x[:] = np.interp(x, knot_x, knot_y)
        return
    above = np.flatnonzero(x > knot_x[1])
    values = np.interp(x[above], knot_x, knot_y)
    x.fill(knot_y[0])
    x[above] = values


def search_strides(
    knot_x: npt.NDArray[Any], knot_start: npt.NDArray[Any] | None = None
) -> npt.NDArray[np.int64]:
    """Return the strides of a binary search over the knots of a class.

    Examples
    --------
    >>> search_strides(np.arange(9.0), np.array([0, 3, 9]))
    array([4, 2, 1])
    """
    longest = len(knot_x) if knot_start is None else int(np.diff(knot_start).max())
    return 2 ** np.arange((longest - 1).bit_length(), dtype=np.int64)[::-1]


def _interpolate_by_search(x: Array, params: Parameters, first: Any, end: Any, xp: Any) -> Array:
    """Interpolate between knots ``first`` to ``end`` of each column, found by binary search."""
    knot_x, knot_y = params["knot_x_"], params["knot_y_"]
    last = end - 1
    left = xp.astype(xp.zeros_like(x), xp.int64) + first
    for i in range(params["stride_"].shape[0]):
        candidate = left + params["stride_"][i]
        inside = candidate <= last
        candidate = xp.where(inside, candidate, left)
        left = xp.where(inside & (knot_x[candidate] <= x), candidate, left)
    right = xp.where(left < last, left + 1, left)
    x0, y0 = knot_x[left], knot_y[left]
    run = knot_x[right] - x0
    slope = (knot_y[right] - y0) / xp.where(run > 0.0, run, xp.ones_like(run))
    return slope * maximum(x - x0, 0.0, xp) + y0


# With fewer rows a second look at them costs more than it saves.
_MANY_ROWS = 256

# Float64 resolution near one, rounded to a power of ten; closer abscissas count as equal.
_RESOLUTION = 1e-15

# Levels lie between 0 and 1; those that differ by less differ only by rounding.
_SAME_LEVEL = 1e-13

# Points of chains that are processed together.
_CHAIN_PIECE = 2**18

Positions = npt.NDArray[np.intp]


def fit_knots(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None
) -> tuple[Vector, Vector]:
    """Return the knots of the isotonic regression of ``positive`` on ``x``.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    >>> fit_knots(x, np.array([False, True, False, True, True]))
    (array([0.1, 0.2, 0.3, 0.4, 0.5]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    pooled = _pool(x, positive, weight)
    return _knots(pooled.first, pooled.last, pooled.level)


def fit_centres(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None
) -> tuple[Vector, Vector]:
    """Return the knots of the centred isotonic regression: a level at its rows' mean abscissa.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    >>> fit_centres(x, np.array([False, True, False, True, True]))
    (array([0.1 , 0.25, 0.45]), array([0. , 0.5, 1. ]))
    """
    pooled = _pool(x, positive, weight)
    # Levels equal up to rounding are one level: 0.1 / 0.2 and 0.3 / 0.6 need not be equal.
    new = np.flatnonzero(np.append(True, np.diff(pooled.level) > _SAME_LEVEL))
    centre = np.add.reduceat(pooled.moment, new) / np.add.reduceat(pooled.mass, new)
    # Rounding may put the means of close abscissas out of order.
    return np.maximum.accumulate(centre), pooled.level[new]


class _Pooled(NamedTuple):
    """Groups of an isotonic regression: first and last abscissa, mass, Σ mass·x, level."""

    first: Vector
    last: Vector
    mass: Vector
    moment: Vector
    level: Vector


def _pool(x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None) -> _Pooled:
    """Pool rows of equal abscissa and runs of negative rows, and regress on these elements."""
    if weight is None:
        return _pool_sorted(np.sort(x), x[positive])
    counted = weight > 0.0
    x, positive, weight = x[counted], positive[counted], weight[counted]
    order = np.argsort(x, kind="stable")
    return _pool_sorted(x[order], x[positive], weight[order], weight[positive])


def _pool_sorted(
    ordered: Vector, hits: Vector, weight: Vector | None = None, hit_weight: Vector | None = None
) -> _Pooled:
    """Regress on sorted abscissas; ``hits`` are those of positive rows."""
    start, last_group = _elements(ordered, hits)
    element = np.searchsorted(ordered[start], hits, side="right") - 1
    if weight is None:
        mass = np.diff(start, append=ordered.size).astype(np.float64)
        moment = np.add.reduceat(ordered, start)
    else:
        mass = np.add.reduceat(weight, start)
        moment = np.add.reduceat(weight * ordered, start)
    target = np.bincount(element, weights=hit_weight, minlength=start.size) / mass
    return _Pooled(ordered[start], ordered[last_group], mass, moment, _isotonic(target, mass))


def _elements(ordered: Vector, hits: Vector) -> tuple[Positions, Positions]:
    """Return where elements of sorted abscissas begin, and where their last groups begin.

    Abscissas that count as equal are a group.  A group with a positive row is an element, and so
    are all groups between two of these.
    """
    start = group_starts(ordered)
    with_hits = np.zeros(start.size + 1, dtype=bool)
    with_hits[np.searchsorted(start, np.searchsorted(ordered, hits), side="right") - 1] = True
    begins = with_hits.copy()
    begins[1:] |= with_hits[:-1]
    begins[0], begins[-1] = True, True
    first_group = np.flatnonzero(begins)
    return start[first_group[:-1]], start[first_group[1:] - 1]


def _isotonic(target: Vector, mass: Vector) -> Vector:
    from scipy.optimize import isotonic_regression  # imported late: prediction needs no SciPy

    return np.asarray(isotonic_regression(target, weights=mass).x)


# Close values this far below every positive row do not matter.
_FAR_BELOW = 1e-9


class FoldCurve:
    """Isotonic regressions of the same rows without one fold each; every fold is sorted once.

    The elements of all rows are found first.  Without a fold they have smaller masses, and some
    are empty; a regression needs no more.  If different values count as equal, which ones do
    depends on the fold that is left out, and the other folds are merged.

    Parameters
    ----------
    x : sequence of ndarray
        The sorted abscissas of each fold.
    hits : sequence of ndarray
        The abscissas of its positive rows.
    """

    def __init__(self, x: Sequence[Vector], hits: Sequence[Vector]) -> None:
        self._x, self._hits = x, hits
        every = range(len(x))
        ordered, all_hits = self._merged(every)
        gap = np.diff(ordered)
        relevant = ordered[1:] >= np.min(all_hits, initial=np.inf) - _FAR_BELOW
        self._close = bool(((gap > 0.0) & (gap < _RESOLUTION) & relevant).any())
        if self._close:
            return
        edges = ordered[_elements(ordered, all_hits)[0]]
        shape = len(x), edges.size
        self._mass, self._positive = np.empty(shape), np.empty(shape)
        self._first, self._last = np.full(shape, np.inf), np.full(shape, -np.inf)
        for fold in every:
            begin = np.searchsorted(x[fold], edges)
            end = np.append(begin[1:], x[fold].size)
            element = np.searchsorted(edges, hits[fold], side="right") - 1
            self._mass[fold] = end - begin
            self._positive[fold] = np.bincount(element, minlength=edges.size)
            filled = np.flatnonzero(end > begin)
            self._first[fold, filled] = x[fold][begin[filled]]
            self._last[fold, filled] = x[fold][end[filled] - 1]

    def _merged(self, folds: Iterable[int]) -> tuple[Vector, Vector]:
        """Return the sorted abscissas of several folds, and their positive rows."""
        # A stable sort merges sorted runs.
        x, hits = zip(*((self._x[fold], self._hits[fold]) for fold in folds), strict=True)
        return np.sort(np.concatenate(x), kind="stable"), np.concatenate(hits)

    def knots_without(self, fold: int) -> tuple[Vector, Vector]:
        """Return the knots of the regression on all other folds, as `fit_knots` does."""
        others = [number for number in range(len(self._x)) if number != fold]
        if self._close:
            pooled = _pool_sorted(*self._merged(others))
            return _knots(pooled.first, pooled.last, pooled.level)
        mass = self._mass[others].sum(axis=0)
        filled = np.flatnonzero(mass)
        first = self._first[others].min(axis=0)[filled]
        last = self._last[others].max(axis=0)[filled]
        target = self._positive[others].sum(axis=0)[filled] / mass[filled]
        return _knots(first, last, _isotonic(target, mass[filled]))


def _knots(first: Vector, last: Vector, level: Vector) -> tuple[Vector, Vector]:
    """Return each level's first and last abscissa, once where they coincide."""
    new = np.append(True, level[1:] != level[:-1])
    x = np.stack([first[new], last[np.append(new[1:], True)]], axis=1).ravel()
    y = np.repeat(level[new], 2)
    keep = np.ones(x.size, dtype=bool)
    keep[1::2] = x[1::2] != x[::2]
    return x[keep], y[keep]


def group_starts(x: Vector) -> Positions:
    """Return the positions in sorted ``x`` where groups of equal values begin, found greedily."""
    apart = np.append(True, x[1:] - x[:-1] >= _RESOLUTION)
    start = np.flatnonzero(apart)
    end = np.append(start[1:], x.size)
    # All neighbours in a chain may be close while its ends are not: cut such chains greedily.
    chained = x[end - 1] - x[start] >= _RESOLUTION
    if not chained.any():
        return start
    points = np.flatnonzero(np.repeat(chained, end - start))
    for piece in range(0, points.size, _CHAIN_PIECE):
        _cut_chains(x, apart, points[piece : piece + _CHAIN_PIECE])
    return np.flatnonzero(apart)


def _cut_chains(x: Vector, apart: npt.NDArray[np.bool_], points: Positions) -> None:
    """Mark the greedy group starts within chains of close neighbours, in place."""
    # A piece may begin inside a group; that group starts at the last mark before it.
    first = int(points[0])
    while not apart[first]:
        first -= 1
    start, starts = float(x[first]), []
    values = zip(points.tolist(), x[points].tolist(), apart[points].tolist(), strict=True)
    for point, value, begins in values:
        if begins or value - start >= _RESOLUTION:
            start = value
            starts.append(point)
    apart[starts] = True


# Distance of an abscissa to the steps on either side: less than half of what separates two
# abscissas (1e-15), more than float64's spacing below one.
_STEP_OFFSET = 4e-16


def venn_abers_knots(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None
) -> tuple[Vector, Vector]:
    """Return p1/(1 − p0 + p1) as knots of a piecewise linear function with steep steps.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.3, 0.4])
    >>> knots = venn_abers_knots(x, np.array([False, True, False, True]))
    >>> np.interp([0.0, 0.1, 0.25, 0.4, 1.0], *knots).round(4)
    array([0.3333, 0.3333, 0.5   , 0.6667, 0.6667])
    """
    w = np.ones(x.size) if weight is None else weight
    counted = w > 0.0
    x, positive, w = x[counted], positive[counted], w[counted]
    order = np.argsort(x, kind="stable")
    start = group_starts(x[order])
    mass = np.add.reduceat(w[order], start)
    hits = np.add.reduceat((w * positive)[order], start)
    as_hit = _values_with_hit(mass, hits)
    # By symmetry, adding a miss is adding a hit with classes and order reversed.
    as_miss = 1.0 - _values_with_hit(mass[::-1], (mass - hits)[::-1])[::-1]
    at = _merge_pair(as_miss, as_hit)
    between = _merge_pair(np.append(0.0, as_miss), np.append(as_hit, 1.0))
    return _step_knots(x[order][start], at, between)


def _merge_pair(as_miss: Vector, as_hit: Vector) -> Vector:
    """Merge a pair of Venn–Abers predictions into one probability, p1/(1 − p0 + p1)."""
    return as_hit / (1.0 - as_miss + as_hit)


def _values_with_hit(mass: Vector, hits: Vector) -> Vector:
    """Return the isotonic value at each group after adding a hit of mass 1 to it."""
    n = np.append(0.0, np.cumsum(mass)).tolist()
    s = np.append(0.0, np.cumsum(hits)).tolist()
    after, before = _next_corners(n, s), _previous_corners(n, s)
    values = np.empty(mass.size)
    for i in range(mass.size):
        left, right = i, i + 1
        slope = (s[right] - s[left] + 1.0) / (n[right] - n[left] + 1.0)
        moved = True
        while moved:
            moved = False
            while (corner := after[right]) >= 0:
                new_slope = (s[corner] - s[left] + 1.0) / (n[corner] - n[left] + 1.0)
                if new_slope > slope:
                    break
                right, slope, moved = corner, new_slope, True
            while (corner := before[left]) >= 0:
                new_slope = (s[right] - s[corner] + 1.0) / (n[right] - n[corner] + 1.0)
                if new_slope < slope:
                    break
                left, slope, moved = corner, new_slope, True
        values[i] = slope
    return values


def _next_corners(n: list[float], s: list[float]) -> list[int]:
    """Return each point's next corner on the lower hull of it and all later points, or −1."""
    following = [-1] * len(n)
    for i in range(len(n) - 2, -1, -1):
        j = i + 1
        while (k := following[j]) >= 0 and _is_above(n, s, i, j, k):
            j = k
        following[i] = j
    return following


def _previous_corners(n: list[float], s: list[float]) -> list[int]:
    """Return each point's previous corner on the lower hull of it and all earlier ones, or −1."""
    preceding = [-1] * len(n)
    for i in range(1, len(n)):
        j = i - 1
        while (k := preceding[j]) >= 0 and _is_above(n, s, k, j, i):
            j = k
        preceding[i] = j
    return preceding


def _is_above(n: list[float], s: list[float], a: int, b: int, c: int) -> bool:
    """Return whether point b lies on or above the line from a to c."""
    return (s[b] - s[a]) * (n[c] - n[a]) >= (s[c] - s[a]) * (n[b] - n[a])


def _step_knots(x: Vector, at: Vector, between: Vector) -> tuple[Vector, Vector]:
    """Return a step function as knots: values at the abscissas, and on either side."""
    knot_x = np.stack([x - _STEP_OFFSET, x, x + _STEP_OFFSET], axis=1).ravel()
    knot_y = np.stack([between[:-1], at, between[1:]], axis=1).ravel()
    keep = np.ones(knot_x.size, dtype=bool)
    same = knot_y[1:] == knot_y[:-1]
    keep[1:-1] = ~(same[1:] & same[:-1])
    return knot_x[keep], knot_y[keep]
