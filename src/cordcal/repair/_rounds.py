"""The shared scalar in few rounds of many candidates, for rows that live on other machines.

A round costs a trip to every worker, a candidate only arithmetic there.  Each round asks
for the constraint at some dozens of grid points at once; the answer, the smallest grid
point at which the target is reached, is the one that `_scalar.solve` finds.

Neither search serves both: on 2,000 rows this one asks for 131 candidates in four rounds
where that one proves its guess with two; but that one asks for its next candidate only when it
knows the last, and seeks its guess in steps, each of which would be a trip to every worker.
They share the grid, the probes and what they prove.
"""

from __future__ import annotations

from cordcal._numeric.exact import UNIT_BITS, ExactSum
from cordcal.repair._scalar import Bounds, Probe, ProbeMany, Solution, grid_index, grid_value

ROUNDS = 10

# Rounds that trust the slopes alone; from there on sections guarantee the rest.
_TRUSTING = 4
# Even cuts of the bracket in those rounds, for constraints that defy their slopes.
_CUTS = 8
# The first look: powers of two up to the largest scalar there can be, denser around one.
_LADDER = [2.0**e for e in (-12, -8, -5, -3, -2, -1, 0, 1, 2, 3, 5, 8, 12, 18, 25, 33)]


def solve_in_rounds(bounds: Bounds, probe: ProbeMany, *, free: bool = False) -> Solution:
    """Return the scalar closest to zero at which the constraint meets its target.

    ``passes`` of the solution counts rounds, of which there are ten at the most.  With
    ``free`` the mean is not constrained: the scalar is zero.
    """
    if free:
        (at_zero,) = probe([0.0])
        return Solution(0.0, at_zero.excess, at_zero, 1)
    known: dict[int, Probe] = {}

    def ask(indices: set[int]) -> None:
        wanted = sorted(indices - known.keys())
        answers = probe([grid_value(index) for index in wanted])
        known.update(zip(wanted, answers, strict=True))

    ends = {1: grid_index(bounds.highest) + 2, -1: -(grid_index(-bounds.lowest) + 2)}
    ladder = {sign * grid_index(x) for x in _LADDER for sign in (1, -1)}
    first = {0} | {index for index in ladder if ends[-1] < index < ends[1]}
    ask(first if bounds.surely_attainable else first | set(ends.values()))
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
        for index in sorted(sign * each for each in known):
            if low < index < high:
                if sign * (known[sign * index].excess.units - target) >= 0:
                    high = index
                else:
                    low = index
        if high - low == 1 and sign * high in known:
            return Solution(grid_value(sign * high), ExactSum(target), known[sign * high], rounds)
        cuts = _CUTS if rounds < _TRUSTING else _cuts_needed(high - low, ROUNDS - rounds)
        ask({sign * each for each in _candidates(low, high, known, sign, target, cuts)})
        rounds += 1


def _cuts_needed(width: int, rounds: int) -> int:
    """Return how many equal parts bring a bracket down to one in this many rounds."""
    parts = max(2, int(width ** (1.0 / rounds)))
    while parts**rounds < width:
        parts += 1
    return parts


def _candidates(
    low: int, high: int, known: dict[int, Probe], sign: int, target: int, cuts: int
) -> set[int]:
    """Return even cuts of the bracket, and a cluster around where the slopes point."""
    width = high - low
    found = {low + -(-width * part // cuts) for part in range(1, cuts)}
    found.add(high)
    for index in (low, high):
        probe = known.get(sign * index)
        if probe is None or not probe.slope > 0.0:
            continue
        short = sign * (target - probe.excess.units) / (1 << UNIT_BITS)
        step = sign * grid_value(sign * index) + short / probe.slope
        if not 0.0 <= step < grid_value(high) + 1.0:
            continue
        centre = grid_index(step)
        # Steps of one sixteenth of the last: however good the guess, the bracket shrinks to it.
        size = width
        while size:
            size //= 16
            found |= {centre - size, centre + size}
        found |= {centre - 1, centre + 1}
    return {index for index in found if low < index <= high}
