"""Isotonic regression of 0/1 targets: the knots of the fitted step function.

The result is scikit-learn's: values closer than 1e-15 to the start of their group are
merged and averaged, pool-adjacent-violators gives the levels, and inside a level only
its first and last points stay.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from cordcal.calibrators._scores import Vector

# What float64 resolves near one in decimal digits; closer abscissas count as equal.
_RESOLUTION = 1e-15


def fit_knots(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
) -> tuple[Vector, Vector]:
    """Return the knots of the isotonic regression of ``positive`` on ``x``.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    >>> fit_knots(x, np.array([False, True, False, True, True]), None)
    (array([0.1, 0.2, 0.3, 0.4, 0.5]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    if weight is not None:
        counted = weight > 0.0
        x, positive, weight = x[counted], positive[counted], weight[counted]
    order = np.argsort(x, kind="stable")
    x, target = x[order], positive[order].astype(np.float64)
    start = group_starts(x)
    if weight is None:
        mass = np.diff(start, append=x.size).astype(np.float64)
        level = np.add.reduceat(target, start) / mass
    else:
        mass = np.add.reduceat(weight[order], start)
        level = np.add.reduceat(weight[order] * target, start) / mass
    return keep_ends(x[start], np.asarray(isotonic_regression(level, weights=mass).x))


def group_starts(x: Vector) -> npt.NDArray[np.intp]:
    """Return where groups of equal values begin in sorted ``x``; groups are formed greedily."""
    apart = np.diff(x) >= _RESOLUTION
    start = np.concatenate([[0], np.flatnonzero(apart) + 1])
    end = np.append(start[1:], x.size)
    # Neighbours may be close and the ends of their chain apart: cut such chains greedily.
    chained = x[end - 1] - x[start] >= _RESOLUTION
    if not chained.any():
        return start
    extra: list[int] = []
    for first, last in zip(start[chained].tolist(), end[chained].tolist(), strict=True):
        extra.extend(_cut_chain(x[first:last], first))
    return np.sort(np.concatenate([start, np.array(extra, dtype=np.intp)]))


def _cut_chain(x: Vector, offset: int) -> list[int]:
    """Return the greedy starts inside one chain, without its first."""
    jump = np.searchsorted(x, x + _RESOLUTION)
    # x + 1e-15 is rounded; the rule is on differences, which are exact.
    last = x.size - 1
    early = (jump <= last) & (x[np.minimum(jump, last)] - x < _RESOLUTION)
    while early.any():
        jump = jump + early
        early = (jump <= last) & (x[np.minimum(jump, last)] - x < _RESOLUTION)
    late = x[jump - 1] - x >= _RESOLUTION
    while late.any():
        jump = jump - late
        late = x[jump - 1] - x >= _RESOLUTION
    starts, following = [], jump.tolist()
    here = following[0]
    while here <= last:
        starts.append(offset + here)
        here = following[here]
    return starts


def keep_ends(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """Drop the points strictly inside a level."""
    keep = np.ones(x.size, dtype=bool)
    keep[1:-1] = (y[1:-1] != y[:-2]) | (y[1:-1] != y[2:])
    return x[keep], y[keep]
