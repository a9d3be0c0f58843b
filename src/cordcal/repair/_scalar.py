"""The shared scalar: the nearest-zero solution of the mean constraint (Eq. 8).

Candidates live on a fixed grid, `GRID_BITS` binary digits below max(1, |η|).  On
that grid the summed response is monotone in spite of rounding, so the nearest-zero
solution is one definite grid point: every search, on one machine or many, in any
order of probes, ends at the same double.  The grid is finer than it need be: a response
rises by at most one for each unit of η, and by 1/η² for a large one, so that a step moves
no mass by more than 2^-47.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cordcal.repair._exact import UNIT_BITS, ExactSum

# The computed response equals the exact one at an η a few units of 2^-53·max(1, |η|)
# away; 47 bits leave a factor of 2^6 above that noise.
GRID_BITS = 47
_BINADE = 1 << GRID_BITS


@dataclass(frozen=True, slots=True)
class Probe:
    """The constraint at one candidate: Σ w (s − b) and its derivative in η."""

    excess: ExactSum
    slope: float
    at_lower: int
    at_upper: int

    def __add__(self, other: Probe) -> Probe:
        return Probe(
            self.excess + other.excess,
            self.slope + other.slope,
            self.at_lower + other.at_lower,
            self.at_upper + other.at_upper,
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the scalar can lie.

    Attributes
    ----------
    lowest, highest : float
        A finite bracket (Appendix A): every row sits at its lower bound at ``lowest`` and
        at its upper bound at ``highest``.
    surely_attainable : bool
        Whether the direct mean lies well inside the attainable interval, so that the ends
        need not be visited.
    """

    lowest: float
    highest: float
    surely_attainable: bool


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
    bounds : Bounds
        Where the scalar can lie.
    """

    probe: Callable[[float], Probe]
    next_edge: Callable[[float, bool], float | None]
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Solution:
    """The shared scalar, the excess aimed at and reached, and how many passes it took."""

    eta: float
    target: ExactSum
    reached: Probe
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
    start = constraint.probe(0.0)
    if start.excess.units == 0:
        return Solution(0.0, start.excess, start, 1)
    upwards = start.excess.units < 0
    sign = 1 if upwards else -1
    bounds = constraint.bounds
    far = bounds.highest if upwards else -bounds.lowest

    # Invariant: the excess has not reached the target at `low`; at `high` it has.
    low, high = 0, grid_index(far) + 2
    target, reached, passes = 0, None, 1
    if not bounds.surely_attainable:
        reached = constraint.probe(grid_value(sign * high))
        passes += 1
        # The target is zero, or the nearest attainable excess (Eq. 6).
        target = sign * min(0, sign * reached.excess.units)
        if start.excess.units == target:
            return Solution(0.0, ExactSum(target), start, passes)

    here, probe = 0, start
    widths = [high - low]
    while high - low > 1:
        short = sign * (target - probe.excess.units) / (1 << UNIT_BITS)
        here = _propose(constraint, sign, here, short, probe.slope)
        if len(widths) > 3 and 2 * widths[-1] > widths[-4]:
            # Three proposals have not halved the bracket: bisect once.
            here, widths = (low + high) // 2, widths[-1:]
        here = min(max(here, low + 1), high - 1)
        probe = constraint.probe(grid_value(sign * here))
        passes += 1
        if sign * (probe.excess.units - target) >= 0:
            high, reached = here, probe
        else:
            low = here
        widths.append(high - low)
    eta = grid_value(sign * high)
    if reached is None:
        reached, passes = constraint.probe(eta), passes + 1
    return Solution(eta, ExactSum(target), reached, passes)


def _propose(constraint: Constraint, sign: int, here: int, short: float, slope: float) -> int:
    """Return the next candidate's index, as if the bracket were infinite."""
    eta = grid_value(sign * here)
    if slope > 0.0:
        step = sign * eta + short / slope
        return grid_index(step) if 0.0 <= step < math.inf else (0 if step < 0.0 else 1 << 62)
    # Every row is clipped: the edge ahead starts the next rise, the edge behind ended the last.
    edge = constraint.next_edge(eta, (sign > 0) == (short > 0.0))
    return here if edge is None else grid_index(max(sign * edge, 0.0))
