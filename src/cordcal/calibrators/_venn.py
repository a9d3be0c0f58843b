"""Venn–Abers prediction: two isotonic regressions, with the new row as a miss and as a hit.

Both are step functions of the new row's abscissa.  With the new row as a hit, the isotonic
value is the slope of the bridge between two convex hulls of the cumulative sums: of the
points before the row, moved back by the hit, and of those after it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Vector
from cordcal.calibrators._pav import group_starts

# How far beside an abscissa its neighbouring steps begin: less than half of what separates
# two abscissas (1e-15), more than float64's spacing below one.
_BESIDE = 4e-16


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
    as_hit = value_as_hit(mass, hits)
    # A miss among hits is a hit among misses, seen from the other side.
    as_miss = 1.0 - value_as_hit(mass[::-1], (mass - hits)[::-1])[::-1]
    at = merged(as_miss, as_hit)
    between = merged(np.append(0.0, as_miss), np.append(as_hit, 1.0))
    return _as_knots(x[order][start], at, between)


def merged(as_miss: Vector, as_hit: Vector) -> Vector:
    """Return the one probability that a pair of Venn–Abers predictions stands for."""
    return as_hit / (1.0 - as_miss + as_hit)


def value_as_hit(mass: Vector, hits: Vector) -> Vector:
    """Return the isotonic value at each group if a hit of mass 1 is added to it."""
    n = np.append(0.0, np.cumsum(mass)).tolist()
    s = np.append(0.0, np.cumsum(hits)).tolist()
    after, before = _after(n, s), _before(n, s)
    values = np.empty(mass.size)
    for i in range(mass.size):
        left, right = i, i + 1
        slope = (s[right] - s[left] + 1.0) / (n[right] - n[left] + 1.0)
        moved = True
        while moved:
            moved = False
            while (further := after[right]) >= 0:
                steeper = (s[further] - s[left] + 1.0) / (n[further] - n[left] + 1.0)
                if steeper > slope:
                    break
                right, slope, moved = further, steeper, True
            while (further := before[left]) >= 0:
                steeper = (s[right] - s[further] + 1.0) / (n[right] - n[further] + 1.0)
                if steeper < slope:
                    break
                left, slope, moved = further, steeper, True
        values[i] = slope
    return values


def _after(n: list[float], s: list[float]) -> list[int]:
    """Return the next corner of the lower hull of the points from each one on; −1 at the end."""
    following = [-1] * len(n)
    for i in range(len(n) - 2, -1, -1):
        j = i + 1
        while (k := following[j]) >= 0 and _is_above(n, s, i, j, k):
            j = k
        following[i] = j
    return following


def _before(n: list[float], s: list[float]) -> list[int]:
    """Return the corner before each point on the lower hull of the points up to it."""
    preceding = [-1] * len(n)
    for i in range(1, len(n)):
        j = i - 1
        while (k := preceding[j]) >= 0 and _is_above(n, s, k, j, i):
            j = k
        preceding[i] = j
    return preceding


def _is_above(n: list[float], s: list[float], a: int, b: int, c: int) -> bool:
    """Tell whether point b lies on or above the line from a to c."""
    return (s[b] - s[a]) * (n[c] - n[a]) >= (s[c] - s[a]) * (n[b] - n[a])


def _as_knots(x: Vector, at: Vector, between: Vector) -> tuple[Vector, Vector]:
    """Return steps as knots: the values at the abscissas, and those on either side."""
    knot_x = np.stack([x - _BESIDE, x, x + _BESIDE], axis=1).ravel()
    knot_y = np.stack([between[:-1], at, between[1:]], axis=1).ravel()
    keep = np.ones(knot_x.size, dtype=bool)
    same = knot_y[1:] == knot_y[:-1]
    keep[1:-1] = ~(same[1:] & same[:-1])
    return knot_x[keep], knot_y[keep]
