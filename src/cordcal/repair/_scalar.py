"""The shared scalar: the nearest-zero solution of the mean constraint (Eq. 8).

Candidates live on a fixed grid, `GRID_BITS` binary digits below max(1, |η|).  On
that grid the summed response is monotone in spite of rounding, so the nearest-zero
solution is one definite grid point: every search, on one machine or many, in any
order of probes, ends at the same double.  The grid is ten thousand times finer than
anything a report can show: moving η by one step moves no mass by more than 2^-49.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cordcal.repair._exact import ExactSum

# The computed response equals the exact one at an η a few units of 2^-53·max(1, |η|)
# away; 47 bits leave a factor of 2^6 above that noise.
GRID_BITS = 47
_BINADE = 1 << GRID_BITS


@dataclass(frozen=True, slots=True)
class Probe:
    """The constraint at one candidate: Σ w (s − b) and its derivative in η."""

    excess: ExactSum
    slope: float


@dataclass(frozen=True, slots=True)
class Constraint:
    """Everything the search asks of the calibration rows.

    Attributes
    ----------
    probe : callable
        ``probe(eta)`` evaluates the constraint.
    next_edge : callable
        ``next_edge(eta, upwards)`` returns the nearest scalar beyond ``eta`` at which a
        row enters or leaves a bound, or None.
    lowest, highest : float
        The finite bracket of Appendix A: all rows sit at their lower bounds at
        ``lowest`` and at their upper bounds at ``highest``.
    at_lowest, at_highest : ExactSum
        Σ w (s − b) with every row at its lower, its upper bound.
    """

    probe: Callable[[float], Probe]
    next_edge: Callable[[float, bool], float | None]
    lowest: float
    highest: float
    at_lowest: ExactSum
    at_highest: ExactSum

    @property
    def target(self) -> ExactSum:
        """The excess to reach: zero, or the nearest attainable value (Eq. 6)."""
        return ExactSum(max(self.at_lowest.units, min(self.at_highest.units, 0)))


@dataclass(frozen=True, slots=True)
class Solution:
    """The shared scalar, the excess it leaves, and how many passes it took."""

    eta: float
    excess: ExactSum
    passes: int


def grid_value(index: int) -> float:
    """Return the grid point with this index: steps of 2^-47 up to 1, then 47-bit floats.

    Examples
    --------
    >>> grid_value(0), grid_value(grid_index(0.5)), grid_value(-grid_index(3.0))
    (0.0, 0.5, -3.0)
    """
    size = abs(index)
    if size < _BINADE:
        value = math.ldexp(size, -GRID_BITS)
    else:
        binade, offset = divmod(size, _BINADE)
        value = math.ldexp(_BINADE + offset, binade - 1 - GRID_BITS)
    return math.copysign(value, index) if index else 0.0


def grid_index(value: float) -> int:
    """Return the index of the first grid point at or above a non-negative number."""
    if value < 1.0:
        return math.ceil(math.ldexp(value, GRID_BITS))
    mantissa, exponent = math.frexp(value)
    # value = 2·mantissa · 2^(exponent-1) lies in the binade [2^(exponent-1), 2^exponent).
    return exponent * _BINADE + math.ceil(math.ldexp(2.0 * mantissa - 1.0, GRID_BITS))


def solve(constraint: Constraint) -> Solution:
    """Return the scalar closest to zero at which the constraint meets its target.

    With the sign chosen so that the target lies ahead of zero, this is the smallest
    grid point whose excess has reached the target.  Newton steps propose candidates, a
    bracket of grid indices disposes, and flat stretches are crossed by their edges.
    """
    target = constraint.target.units
    start = constraint.probe(0.0)
    if start.excess.units == target:
        return Solution(0.0, start.excess, 1)
    upwards = start.excess.units < target
    sign = 1 if upwards else -1
    far = constraint.highest if upwards else -constraint.lowest

    # Invariant: the excess has not reached the target at `low`; at `high` it has.
    low, high = 0, grid_index(max(far, 0.0)) + 2
    reached: ExactSum | None = None
    here, probe, passes = 0, start, 1
    widths = [high - low]
    while high - low > 1:
        short = sign * (target - probe.excess.units) / (1 << 1126)
        here = _propose(constraint, sign, here, short, probe.slope)
        stalled = len(widths) > 3 and 2 * widths[-1] > widths[-4]
        if stalled:
            here = (low + high) // 2
            widths = widths[-1:]
        here = min(max(here, low + 1), high - 1)
        probe = constraint.probe(grid_value(sign * here))
        passes += 1
        if sign * (probe.excess.units - target) >= 0:
            high, reached = here, probe.excess
        else:
            low = here
        widths.append(high - low)
    eta = grid_value(sign * high)
    if reached is None:
        reached = constraint.probe(eta).excess
        passes += 1
    return Solution(eta, reached, passes)


def _propose(constraint: Constraint, sign: int, here: int, short: float, slope: float) -> int:
    """Return the next candidate's index, as if the bracket were infinite."""
    eta = grid_value(sign * here)
    if slope > 0.0:
        step = sign * eta + short / slope
        return grid_index(step) if 0.0 <= step < math.inf else (0 if step < 0.0 else 1 << 62)
    # Every row is clipped: the edge ahead starts the next rise, the edge behind ended the last.
    edge = constraint.next_edge(eta, (sign > 0) == (short > 0.0))
    return here if edge is None else grid_index(max(sign * edge, 0.0))
