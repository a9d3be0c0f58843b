"""The shared scalar: the nearest-zero solution of the mean constraint (Eq. 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cordcal._numeric.exact import UNIT_BITS, ExactSum

# The computed response equals the exact one at an η a few units of 2^-53·max(1, |η|)
# away; 47 bits leave a factor of 2^6 above that noise.
GRID_BITS = 47
_BINADE = 1 << GRID_BITS


@dataclass(frozen=True, slots=True)
class ConstraintValue:
    """The constraint at one candidate: Σ w (s − b) and its derivative in η."""

    excess: ExactSum
    slope: float
    at_lower: int
    at_upper: int

    def __add__(self, other: ConstraintValue) -> ConstraintValue:
        return ConstraintValue(
            self.excess + other.excess,
            self.slope + other.slope,
            self.at_lower + other.at_lower,
            self.at_upper + other.at_upper,
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of the scalar.

    Attributes
    ----------
    lowest, highest : float
        A finite bracket (Appendix A): every row is at its lower bound at ``lowest`` and at its
        upper bound at ``highest``.
    surely_attainable : bool
        Whether the direct mean lies well inside the attainable interval, so that the ends need
        no evaluation.
    """

    lowest: float
    highest: float
    surely_attainable: bool


ProbeMany = Callable[[Sequence[float]], Sequence[ConstraintValue]]
"""Evaluates the constraint at several candidates at once."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """The mean constraint, as the search for the scalar needs it.

    Attributes
    ----------
    probes : callable
        ``probes(etas)`` evaluates the constraint at some candidates.
    next_edge : callable
        ``next_edge(eta, upwards)`` returns the nearest scalar beyond ``eta`` at which a
        row enters or leaves a bound, or None.
    bounds : Bounds
        The range of the scalar.
    search : callable
        ``search()`` returns an approximate solution, or zero.
    """

    probes: ProbeMany
    next_edge: Callable[[float, bool], float | None]
    bounds: Bounds
    search: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Solution:
    """The shared scalar, the target excess and the value reached, and the number of passes."""

    eta: float
    target: ExactSum
    reached: ConstraintValue
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
    grid point whose excess has reached the target.
    """
    bounds = constraint.bounds
    guess = constraint.search() if bounds.surely_attainable else 0.0
    if guess:
        search = _Search(constraint, 1 if guess > 0.0 else -1)
        index = min(grid_index(abs(guess)), search.high - 1)
        # If the guess is exact, these two candidates prove it.
        search.evaluate(index - 1, index)
        solution = search.run(index if search.low == index else index - 1)
        if solution is not None:
            return solution

    (start,) = constraint.probes([0.0])
    if start.excess.units == 0:
        return Solution(0.0, start.excess, start, 1)
    search = _Search(constraint, 1 if start.excess.units < 0 else -1)
    search.known[0] = start
    if not bounds.surely_attainable:
        end = search.high
        search.evaluate(end)
        # The target is zero, or the nearest attainable excess (Eq. 6).
        search.target = search.sign * min(0, search.sign * search.known[end].excess.units)
        search.low, search.high = 0, end
        if start.excess.units == search.target:
            return Solution(0.0, ExactSum(search.target), start, 2)
    solution = search.run(0)
    assert solution is not None
    return solution


class _Search:
    """A bracket of grid indices on one side of zero, and the constraint values in it."""

    def __init__(self, constraint: Constraint, sign: int) -> None:
        self.constraint, self.sign = constraint, sign
        self.target = 0
        self.known: dict[int, ConstraintValue] = {}
        bounds = constraint.bounds
        # Invariant: the excess has not reached the target at `low`; at `high` it has.
        self.low = 0
        self.high = grid_index(bounds.highest if sign > 0 else -bounds.lowest) + 2

    def evaluate(self, *indices: int) -> None:
        """Evaluate the constraint and narrow the bracket."""
        probes = self.constraint.probes([grid_value(self.sign * index) for index in indices])
        for index, probe in zip(indices, probes, strict=True):
            self.known[index] = probe
            if self.sign * (probe.excess.units - self.target) >= 0:
                self.high = min(self.high, index)
            else:
                self.low = max(self.low, index)

    def run(self, index: int) -> Solution | None:
        """Search from an evaluated index; return None if zero is beyond the target.

        Newton steps propose candidates, the bracket limits them, and the edges of flat stretches
        lead across those.
        """
        widths = [self.high - self.low]
        while self.high - self.low > 1:
            index = self._propose(index)
            if len(widths) > 3 and 2 * widths[-1] > widths[-4]:
                # Three candidates have not halved the bracket: bisect once.
                index, widths = (self.low + self.high) // 2, widths[-1:]
            index = min(max(index, self.low + 1), self.high - 1)
            self.evaluate(index)
            widths.append(self.high - self.low)
        for end in (self.low, self.high):
            if end not in self.known:
                self.evaluate(end)
        if self.high == 0:
            return None
        eta = grid_value(self.sign * self.high)
        return Solution(eta, ExactSum(self.target), self.known[self.high], len(self.known))

    def _propose(self, index: int) -> int:
        """Return the next candidate's index, without regard to the bracket."""
        eta, probe = grid_value(self.sign * index), self.known[index]
        short = self.sign * (self.target - probe.excess.units) / (1 << UNIT_BITS)
        if probe.slope > 0.0:
            step = self.sign * eta + short / probe.slope
            return grid_index(step) if 0.0 <= step < math.inf else (0 if step < 0.0 else 1 << 62)
        # Every row is clipped: the edge ahead starts the next rise, the edge behind ended the last.
        edge = self.constraint.next_edge(eta, (self.sign > 0) == (short > 0.0))
        return index if edge is None else grid_index(max(self.sign * edge, 0.0))


ROUNDS = 10

# Rounds that follow the slopes; later rounds cut the bracket, which guarantees the end.
_SLOPE_ROUNDS = 4
# Even cuts of the bracket in the first rounds, for constraints that do not follow their slopes.
_CUTS = 8
# The first candidates: powers of two up to the largest possible scalar, denser around one.
_LADDER = [2.0**e for e in (-12, -8, -5, -3, -2, -1, 0, 1, 2, 3, 5, 8, 12, 18, 25, 33)]


def solve_in_rounds(bounds: Bounds, probe: ProbeMany, *, free: bool = False) -> Solution:
    """Return the scalar closest to zero at which the constraint meets its target.

    ``passes`` of the solution counts rounds, at most ten.  With ``free`` the mean is not
    constrained: the scalar is zero.
    """
    if free:
        (at_zero,) = probe([0.0])
        return Solution(0.0, at_zero.excess, at_zero, 1)
    known: dict[int, ConstraintValue] = {}

    def evaluate(indices: set[int]) -> None:
        unknown = sorted(indices - known.keys())
        answers = probe([grid_value(index) for index in unknown])
        known.update(zip(unknown, answers, strict=True))

    ends = {1: grid_index(bounds.highest) + 2, -1: -(grid_index(-bounds.lowest) + 2)}
    ladder = {sign * grid_index(x) for x in _LADDER for sign in (1, -1)}
    first = {0} | {index for index in ladder if ends[-1] < index < ends[1]}
    evaluate(first if bounds.surely_attainable else first | set(ends.values()))
    rounds = 1
    start = known[0]
    if start.excess.units == 0:
        return Solution(0.0, start.excess, start, rounds)
    sign = 1 if start.excess.units < 0 else -1
    target = 0
    if not bounds.surely_attainable:
        # The target is zero, or the nearest attainable excess (Eq. 6).
        target = sign * min(0, sign * known[ends[sign]].excess.units)
        if start.excess.units == target:
            return Solution(0.0, ExactSum(target), start, rounds)

    low, high = 0, sign * ends[sign]
    while True:
        # Invariant: the excess has not reached the target at `low`; at `high` it has.
        for index in sorted(sign * position for position in known):
            if low < index < high:
                if sign * (known[sign * index].excess.units - target) >= 0:
                    high = index
                else:
                    low = index
        if high - low == 1 and sign * high in known:
            return Solution(grid_value(sign * high), ExactSum(target), known[sign * high], rounds)
        cuts = _CUTS if rounds < _SLOPE_ROUNDS else _cuts_needed(high - low, ROUNDS - rounds)
        evaluate(
            {sign * position for position in _candidates(low, high, known, sign, target, cuts)}
        )
        rounds += 1


def _cuts_needed(width: int, rounds: int) -> int:
    """Return how many equal parts reduce a bracket to width one in this many rounds."""
    parts = max(2, int(width ** (1.0 / rounds)))
    while parts**rounds < width:
        parts += 1
    return parts


def _candidates(
    low: int, high: int, known: dict[int, ConstraintValue], sign: int, target: int, cuts: int
) -> set[int]:
    """Return even cuts of the bracket, and candidates around the Newton steps."""
    width = high - low
    candidates = {low + -(-width * part // cuts) for part in range(1, cuts)}
    candidates.add(high)
    for index in (low, high):
        probe = known.get(sign * index)
        if probe is None or not probe.slope > 0.0:
            continue
        short = sign * (target - probe.excess.units) / (1 << UNIT_BITS)
        step = sign * grid_value(sign * index) + short / probe.slope
        if not 0.0 <= step < grid_value(high) + 1.0:
            continue
        centre = grid_index(step)
        # Distances shrink by sixteen: the better the guess, the smaller the next bracket.
        size = width
        while size:
            size //= 16
            candidates |= {centre - size, centre + size}
        candidates |= {centre - 1, centre + 1}
    return {index for index in candidates if low < index <= high}
