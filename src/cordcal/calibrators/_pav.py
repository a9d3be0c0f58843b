"""Isotonic regression of 0/1 targets: the knots of the fitted step function.

The result is scikit-learn's: values closer than 1e-15 to the start of their group are
merged and averaged, pool-adjacent-violators gives the levels, and inside a level only
its first and last points stay.  A run of groups without a positive row always ends up
in one level, so only the groups with positives and the runs between them are pooled:
the millions of points of a pooled regression cost one sort and no more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from cordcal.calibrators._scores import Vector

# What float64 resolves near one in decimal digits; closer abscissas count as equal.
_RESOLUTION = 1e-15

# Points of a chain looked at together.
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
    else:
        mass = np.add.reduceat(weight, begin)
    target = np.bincount(element, weights=hit_weight, minlength=begin.size) / mass
    level = np.asarray(isotonic_regression(target, weights=mass).x)
    return _knots(ordered[begin], ordered[start[last_group]], level)


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
    for first, last in zip(start[chained].tolist(), end[chained].tolist(), strict=True):
        _cut_chain(x[first:last], apart[first:last])
    return np.flatnonzero(apart)


def _cut_chain(x: Vector, apart: npt.NDArray[np.bool_]) -> None:
    """Mark the greedy group starts inside one chain of close neighbours."""
    here, size = 0, x.size
    while here < size:
        first, last = here, min(here + _CHAIN_PIECE, size)
        following = _jumps(x, first, last).tolist()
        found = []
        while here < last:
            found.append(here)
            here = following[here - first]
        apart[found] = True


def _jumps(x: Vector, first: int, last: int) -> Positions:
    """Return, for each point of a piece, the first point at least the resolution beyond it."""
    piece = x[first:last]
    jump = np.searchsorted(x, piece + _RESOLUTION)
    # The sum was rounded, and the rule is on differences, which are exact: step to its answer.
    while True:
        short = (jump < x.size) & (x[np.minimum(jump, x.size - 1)] - piece < _RESOLUTION)
        long = x[jump - 1] - piece >= _RESOLUTION
        if not (short.any() or long.any()):
            return jump
        jump = jump + short - long
