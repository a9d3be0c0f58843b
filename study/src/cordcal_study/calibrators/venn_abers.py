"""Venn–Abers predictors of each class against the rest (``venn-abers``)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Vector
from cordcal.calibrators import Calibrator
from cordcal.calibrators._curves import Knots, group_starts, join_knots
from cordcal.calibrators.isotonic import IsotonicOneVsAll

# Distance of an abscissa to the steps on either side: less than half of what separates two
# abscissas (1e-15), more than float64's spacing below one.
_STEP_OFFSET = 4e-16


def venn_abers_knots(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None
) -> Knots:
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


class VennAbers(IsotonicOneVsAll):
    """Venn–Abers predictors of each class against the rest, rows renormalised.

    For each class k, two isotonic regressions of 1[y = k] on its probability: the new row is
    added to the calibration rows with target 0, which gives p0, and with target 1, which gives
    p1.  The class's value is p1/(1 − p0 + p1), which is never 0.  There are no
    hyperparameters.

    | Works on probabilities (the softmax of logits), in float64 for any input.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map raises.
    | Cost: O(Kn log n); the curves have up to 3n knots per class.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of all classes' steps, concatenated.
    knot_start_ : ndarray of int of shape (K + 1,)
        Index of each class's first knot.

    References
    ----------
    Vovk, Petej, Fedorova (2015). Large-scale probabilistic predictors with and without
    guarantees of validity. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    >>> model = VennAbers(input="probabilities").fit(p, [0, 1, 0, 1])
    >>> model.predict_proba(p).round(3)
    array([[0.667, 0.333],
           [0.5  , 0.5  ],
           [0.5  , 0.5  ],
           [0.333, 0.667]])
    """

    key = "venn-abers"
    title = "Venn–Abers, one versus all"
    short = "Venn–Abers"
    cost = "O(Kn log n)"
    reference = "Vovk et al. 2015, NeurIPS"
    most_classes = 999, "stores a curve through every row for each class, too large"

    _fit_folds = Calibrator._fit_folds

    _fit_curve = staticmethod(venn_abers_knots)
    _join = staticmethod(join_knots)
