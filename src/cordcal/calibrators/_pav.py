"""Isotonic regression of 0/1 targets: the knots of the fitted step function.

The result is scikit-learn's: values closer than 1e-15 to the start of their group are
merged and averaged, pool-adjacent-violators gives the levels, and inside a level only
its first and last points stay.  A run of groups without a positive row always ends up
in one level, so only the groups with positives and the runs between them are pooled:
the millions of points of a pooled regression cost one sort and no more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Vector

# What float64 resolves near one in decimal digits; closer abscissas count as equal.
_RESOLUTION = 1e-15

# Levels, which lie between 0 and 1, differ by more unless it is by rounding.
_SAME_LEVEL = 1e-13

# Points of chains looked at together.
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
    """Return the centred isotonic regression: each level once, at its rows' mean abscissa.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    >>> fit_centres(x, np.array([False, True, False, True, True]))
    (array([0.1 , 0.25, 0.45]), array([0. , 0.5, 1. ]))
    """
    pooled = _pool(x, positive, weight)
    # Levels that agree to rounding are one: 0.1 / 0.2 and 0.3 / 0.6 need not be equal.
    new = np.flatnonzero(np.append(True, np.diff(pooled.level) > _SAME_LEVEL))
    centre = np.add.reduceat(pooled.moment, new) / np.add.reduceat(pooled.mass, new)
    # Means of many close abscissas may round past each other.
    return np.maximum.accumulate(centre), pooled.level[new]


class _Pooled(NamedTuple):
    """Elements of an isotonic regression: first and last abscissa, mass, Σ mass·x, level."""

    first: Vector
    last: Vector
    mass: Vector
    moment: Vector
    level: Vector


def _pool(x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None) -> _Pooled:
    """Pool runs of negative rows, and rows of equal abscissa, and regress on the elements."""
    if weight is None:
        ordered, hits, hit_weight = np.sort(x), x[positive], None
    else:
        counted = weight > 0.0
        x, positive, weight = x[counted], positive[counted], weight[counted]
        order = np.argsort(x, kind="stable")
        ordered, hits, hit_weight = x[order], x[positive], weight[positive]
        weight = weight[order]
    start = group_starts(ordered)
    group = np.searchsorted(start, np.searchsorted(ordered, hits), side="right") - 1
    # Groups that begin an element: those with a positive row, and the ones right after.
    with_hits = np.zeros(start.size + 1, dtype=bool)
    with_hits[group] = True
    first = with_hits.copy()
    first[1:] |= with_hits[:-1]
    first[0], first[-1] = True, True
    first_group = np.flatnonzero(first)
    last_group, first_group = first_group[1:] - 1, first_group[:-1]
    element = np.searchsorted(first_group, group)
    begin = start[first_group]
    if weight is None:
        mass = np.diff(begin, append=ordered.size).astype(np.float64)
        moment = np.add.reduceat(ordered, begin)
    else:
        mass = np.add.reduceat(weight, begin)
        moment = np.add.reduceat(weight * ordered, begin)
    target = np.bincount(element, weights=hit_weight, minlength=begin.size) / mass
    from scipy.optimize import isotonic_regression  # a loaded map needs no SciPy

    level = np.asarray(isotonic_regression(target, weights=mass).x)
    return _Pooled(ordered[begin], ordered[start[last_group]], mass, moment, level)


def _knots(first: Vector, last: Vector, level: Vector) -> tuple[Vector, Vector]:
    """Return each level's first and last abscissa, once where they coincide."""
    new = np.append(True, level[1:] != level[:-1])
    x = np.stack([first[new], last[np.append(new[1:], True)]], axis=1).ravel()
    y = np.repeat(level[new], 2)
    keep = np.ones(x.size, dtype=bool)
    keep[1::2] = x[1::2] != x[::2]
    return x[keep], y[keep]


def group_starts(x: Vector) -> Positions:
    """Return where groups of equal values begin in sorted ``x``; groups are formed greedily."""
    apart = np.append(True, x[1:] - x[:-1] >= _RESOLUTION)
    start = np.flatnonzero(apart)
    end = np.append(start[1:], x.size)
    # Neighbours may be close and the ends of their chain apart: cut such chains greedily.
    chained = x[end - 1] - x[start] >= _RESOLUTION
    if not chained.any():
        return start
    points = np.flatnonzero(np.repeat(chained, end - start))
    for piece in range(0, points.size, _CHAIN_PIECE):
        _cut_chains(x, apart, points[piece : piece + _CHAIN_PIECE])
    return np.flatnonzero(apart)


def _cut_chains(x: Vector, apart: npt.NDArray[np.bool_], points: Positions) -> None:
    """Mark the greedy group starts among points of chains of close neighbours."""
    # A piece may begin inside a group: its start is the last one marked before.
    first = int(points[0])
    while not apart[first]:
        first -= 1
    start, found = float(x[first]), []
    values = zip(points.tolist(), x[points].tolist(), apart[points].tolist(), strict=True)
    for point, value, begins in values:
        if begins or value - start >= _RESOLUTION:
            start = value
            found.append(point)
    apart[found] = True
