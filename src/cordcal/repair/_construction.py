"""Construction: from calibration rows to the shared scalar (Section 3.3 and 3.4)."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import numpy as np

from cordcal._door.types import Array, Decisions, Vector
from cordcal._numeric.exact import ExactSum, moderated, total_weight
from cordcal.repair import _array, _foreign
from cordcal.repair._array import EPSILON
from cordcal.repair._engines import PROBE_WORK, engine_for, row_work
from cordcal.repair._results import Construction
from cordcal.repair._rows import Description
from cordcal.repair._scalar import Bounds, Constraint, Probe, Solution, solve
from cordcal.repair._shelf import Shelf

# Sums of n doubles that differ by more than this share of n differ truly: every summand
# carries a rounding error of at most 2^-52.
_CLEAR_MARGIN = 1e-9


@dataclass(frozen=True, slots=True)
class Tally:
    """The exact sums of some calibration rows; those of more rows are their sum.

    ``squares`` is Σ w², or None where every row counts once.
    """

    n: int
    n_changed: int
    weight: ExactSum
    squares: ExactSum | None
    direct: ExactSum
    lower: ExactSum
    target: ExactSum

    def __add__(self, other: Tally) -> Tally:
        squares = None
        if self.squares is not None and other.squares is not None:
            squares = self.squares + other.squares
        return Tally(
            self.n + other.n,
            self.n_changed + other.n_changed,
            self.weight + other.weight,
            squares,
            self.direct + other.direct,
            self.lower + other.lower,
            self.target + other.target,
        )

    @property
    def attainable(self) -> tuple[float, float]:
        """The smallest and the largest mean that keep every decision."""
        return self.lower.mean(self.weight), 1.0 - EPSILON

    @property
    def effective_n(self) -> float:
        """(Σw)² / Σw², from exact sums so that the order of rows does not show."""
        if self.squares is None:
            return float(self.n)
        return float(self.weight) ** 2 / float(self.squares)

    def bounds(self, classes: int) -> Bounds:
        """Return where the scalar of the mean constraint (Eq. 8) can lie."""
        low, high = self.attainable
        wanted = self.target.mean(self.weight)
        return Bounds(
            # h_g at the lower bound is at least -1/lower ≥ -K, at the upper at most 1/ε(1-ε).
            lowest=-float(classes),
            highest=1.0 / (EPSILON * (1.0 - EPSILON)),
            surely_attainable=low + _CLEAR_MARGIN < wanted < high - _CLEAR_MARGIN,
        )

    def record(self, solution: Solution, classes: int, *, decision_given: bool) -> Construction:
        """Say what was done."""

        def mean(excess: ExactSum) -> float:
            return (self.target + excess).mean(self.weight)

        return Construction(
            n=self.n,
            n_classes=classes,
            direct_mean=self.direct.mean(self.weight),
            target=mean(solution.target),
            attainable=self.attainable,
            attained=mean(solution.reached.excess),
            eta=solution.eta,
            n_changed=self.n_changed,
            n_at_lower=solution.reached.at_lower,
            n_at_upper=solution.reached.at_upper,
            decision_given=decision_given,
            passes=solution.passes,
            effective_n=self.effective_n,
        )


@dataclass(frozen=True, slots=True)
class CalibrationRows:
    """Described calibration rows and their weights: all a construction needs.

    The weights are scaled by 2^-exponent, and all sums with them; a block of rows whose
    weights are all zero has no exponent.
    """

    description: Description
    weight: Vector | None
    classes: int
    threads: int
    exponent: int | None = 0

    @classmethod
    def of(
        cls,
        original: Array,
        direct: Array,
        decision: Decisions | None,
        weight: Vector | None,
        threads: int,
    ) -> CalibrationRows:
        """Check and describe the rows, where they are."""
        exponent: int | None = 0
        if weight is not None:
            weight, exponent = moderated(weight)
        if isinstance(direct, np.ndarray):
            engine = engine_for("describe", row_work(direct), original, direct)
            description = engine.describe(original, direct, decision, weight, threads)
        else:
            description = _foreign.describe(original, direct, decision, weight)
        return cls(description, weight, direct.shape[1], threads, exponent)

    @property
    def has_weight(self) -> bool:
        """Whether any row counts."""
        return self.exponent is not None

    def rescaled(self, exponent: int) -> CalibrationRows:
        """Return the rows with their weights scaled by 2^-exponent, as larger ones need."""
        if self.weight is None or self.exponent is None or self.exponent == exponent:
            return self
        by = self.exponent - exponent
        found = self.description
        return replace(
            self,
            weight=np.ldexp(self.weight, by),
            exponent=exponent,
            description=replace(
                found,
                direct_sum=found.direct_sum.scaled(by),
                lower_sum=found.lower_sum.scaled(by),
                target_sum=found.target_sum.scaled(by),
                reference_shift=found.reference_shift.scaled(by),
            ),
        )

    def tally(self) -> Tally:
        """Return the rows' sums."""
        found, weight = self.description, self.weight
        return Tally(
            len(self),
            found.n_changed,
            total_weight(len(self), weight),
            None if weight is None else ExactSum.of_products(weight, weight),
            found.direct_sum,
            found.lower_sum,
            found.target_sum,
        )

    def __len__(self) -> int:
        return int(self.description.lower.shape[0])

    def probes(self, etas: Sequence[float]) -> list[Probe]:
        """Evaluate Σ w (s(η) − τ), its derivative, and the rows at each bound, at candidates."""
        engine = engine_for("probes", PROBE_WORK * len(etas) * len(self))
        found = engine.probes(etas, *self._vectors(), self.threads)
        shift = self.description.reference_shift
        return [
            Probe(probe.excess + shift, probe.slope, probe.at_lower, probe.at_upper)
            for probe in found
        ]

    def seek(self) -> float:
        """Return about the scalar of these rows alone, or zero if that is not known."""
        engine = engine_for("probes", PROBE_WORK * len(self))
        return engine.seek(float(self.description.reference_shift), *self._vectors())

    def _vectors(self) -> tuple[Vector, Vector, Vector, Vector | None]:
        found = self.description
        return found.reference, found.reference_rest, found.lower, self.weight

    def next_edge(self, eta: float, upwards: bool) -> float | None:
        """Return the nearest scalar beyond ``eta`` at which some row enters or leaves a bound."""
        found = self.description
        lower = _array.multiplier(found.lower, 1.0 - found.lower, found.reference)
        upper = (found.reference_rest - EPSILON) / (EPSILON * (1.0 - EPSILON))
        edges = np.concatenate([lower, upper])
        if self.weight is not None:
            edges = edges[np.tile(self.weight > 0.0, 2)]
        beyond = edges[edges > eta] if upwards else edges[edges < eta]
        if beyond.size == 0:
            return None
        return float(beyond.min() if upwards else beyond.max())

    def construct(self, *, decision_given: bool, free: bool = False) -> Construction:
        """Find the shared scalar of these rows alone; see `construct`."""
        return construct([self], decision_given=decision_given, free=free)


def construct(
    blocks: Collection[CalibrationRows] | Shelf[CalibrationRows],
    *,
    decision_given: bool,
    free: bool = False,
) -> Construction:
    """Find the shared scalar (Eq. 8) of all blocks' rows, and record what was done.

    The result does not depend on how the rows are cut into blocks.  With ``free`` the mean
    is not constrained: the scalar is zero.
    """
    shared = common_exponent(block.exponent for block in blocks)

    def visit() -> Iterable[CalibrationRows]:
        return (block.rescaled(shared) for block in blocks)

    tally = sum_of(block.tally() for block in visit())

    def probes(etas: Sequence[float]) -> list[Probe]:
        return sum_of_each(block.probes(etas) for block in visit())

    def next_edge(eta: float, upwards: bool) -> float | None:
        edges = [edge for block in blocks if (edge := block.next_edge(eta, upwards)) is not None]
        if not edges:
            return None
        return min(edges) if upwards else max(edges)

    classes = next(iter(blocks)).classes
    if free:
        (at_zero,) = probes([0.0])
        solution = Solution(0.0, at_zero.excess, at_zero, 1)
    else:
        first = next(iter(visit()))
        solution = solve(Constraint(probes, next_edge, tally.bounds(classes), first.seek))
    return tally.record(solution, classes, decision_given=decision_given)


def common_exponent(exponents: Iterable[int | None]) -> int:
    """Return the exponent that brings the weights of all blocks below one."""
    return max((each for each in exponents if each is not None), default=0)


Summand = TypeVar("Summand", Tally, Probe)


def sum_of(parts: Iterable[Summand]) -> Summand:
    """Add up the tallies or the probes of one or more blocks."""
    return reduce(operator.add, parts)


def sum_of_each(parts: Iterable[list[Probe]]) -> list[Probe]:
    """Add up the probes of one or more blocks, candidate by candidate."""
    return [sum_of(probes) for probes in zip(*parts, strict=True)]
