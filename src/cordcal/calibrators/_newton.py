"""Exact minimisers for the calibrators' objectives: one number, or many."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# A step that could still win less than this share of the objective ends the search;
# it leaves the parameter within about 1e-7 of the optimum.
_RELATIVE_DECREASE = 1e-15


@dataclass(frozen=True, slots=True)
class ScalarOptimum:
    """Where a one-dimensional search ended."""

    at: float
    value: float
    slope: float
    passes: int
    converged: bool
    at_bound: bool


def minimise_scalar(
    function: Callable[[float], tuple[float, float, float]],
    start: float,
    low: float,
    high: float,
    *,
    floor: float,
    max_iter: int = 100,
) -> ScalarOptimum:
    """Minimise over [low, high] by Newton steps inside a shrinking bracket of slope signs.

    Parameters
    ----------
    function : callable
        Returns the value, the slope and the curvature at a point.
    start, low, high : float
        Where to begin, and the interval.
    floor : float
        A value at or below this ends the search: the loss has vanished.
    max_iter : int
        Most evaluations.

    Examples
    --------
    >>> best = minimise_scalar(lambda x: ((x - 1) ** 2 + 1, 2 * (x - 1), 2.0), 3.0, -9, 9, floor=0)
    >>> best.at, best.passes
    (1.0, 2)
    """
    ends = low, high
    here = min(max(start, low), high)
    for passes in range(1, max_iter + 1):
        value, slope, curvature = function(here)
        if value <= floor:
            return ScalarOptimum(here, value, slope, passes, False, False)
        if here == ends[slope < 0.0] and slope != 0.0:
            return ScalarOptimum(here, value, slope, passes, False, True)
        small = slope == 0.0 or (
            curvature > 0.0 and slope * slope <= 2.0 * _RELATIVE_DECREASE * curvature * value
        )
        if small:
            return ScalarOptimum(here, value, slope, passes, True, False)
        low, high = (here, high) if slope < 0.0 else (low, here)
        following = here - slope / curvature if curvature > 0.0 else math.nan
        if low < following < high:
            here = following
        else:
            # Try an end of the interval once; inside, halve.
            beyond = high if slope < 0.0 else low
            here = beyond if beyond in ends else 0.5 * (low + high)
        if high - low <= 1e-14 * max(1.0, abs(low)):
            return ScalarOptimum(here, value, slope, passes, True, False)
    return ScalarOptimum(here, value, slope, max_iter, False, False)
