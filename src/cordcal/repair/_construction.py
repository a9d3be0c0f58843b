"""Construction: from calibration rows to the shared scalar (Section 3.3 and 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cordcal.arrays import Array
from cordcal.repair import _array, _compiled, _foreign, _rows
from cordcal.repair._array import EPSILON
from cordcal.repair._exact import ExactSum, total_weight
from cordcal.repair._results import Construction
from cordcal.repair._rows import Decisions, Description, Vector
from cordcal.repair._scalar import Constraint, Probe, Solution, solve

# Sums of n doubles that differ by more than this share of n differ truly: every summand
# carries a rounding error of at most 2^-52.
_CLEAR_MARGIN = 1e-9


@dataclass(frozen=True, slots=True)
class CalibrationRows:
    """Described calibration rows and their weights: all a construction needs."""

    description: Description
    weight: Vector | None
    classes: int
    threads: int

    @classmethod
    def of(
        cls,
        original: Array,
        direct: Array,
        decision: Decisions | None,
        weight: Vector | None,
        threads: int,
    ) -> CalibrationRows:
        """Check and describe the rows, with the compiled kernels where there are any."""
        kernels = _compiled.kernels()
        if not isinstance(direct, np.ndarray):
            description = _foreign.describe(original, direct, decision, weight)
        elif kernels is None:
            description = _rows.describe(original, direct, decision, weight)
        else:
            description = _compiled.describe(kernels, original, direct, decision, weight, threads)
        return cls(description, weight, direct.shape[1], threads)

    def __len__(self) -> int:
        return int(self.description.lower.shape[0])

    def probe(self, eta: float) -> Probe:
        """Evaluate Σ w (s(η) − τ), its derivative, and the rows at each bound."""
        found = self.description
        vectors = (found.reference, found.reference_rest, found.lower, self.weight)
        kernels = _compiled.kernels()
        if kernels is None:
            result = _rows.probe(eta, *vectors)
        else:
            result = _compiled.probe(kernels, eta, *vectors, self.threads)
        excess = result.excess + found.reference_shift
        return Probe(excess, result.slope, result.at_lower, result.at_upper)

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

    def _solve(self, lowest_mean: float, highest_mean: float, total: ExactSum) -> Solution:
        wanted = self.description.target_sum.mean(total)
        inside = lowest_mean + _CLEAR_MARGIN < wanted < highest_mean - _CLEAR_MARGIN
        return solve(
            Constraint(
                self.probe,
                self.next_edge,
                # h_g at the lower bound is at least -1/lower ≥ -K, at the upper at most 1/ε(1-ε).
                lowest=-float(self.classes),
                highest=1.0 / (EPSILON * (1.0 - EPSILON)),
                surely_attainable=inside,
            )
        )

    def _unconstrained(self) -> Solution:
        probe = self.probe(0.0)
        return Solution(0.0, probe.excess, probe, 1)

    def construct(self, *, decision_given: bool, free: bool = False) -> Construction:
        """Find the shared scalar (Eq. 8) and record what was done.

        With ``free`` the mean is not constrained: the scalar is zero.
        """
        found = self.description
        total = total_weight(len(self), self.weight)
        lowest_mean, highest_mean = found.lower_sum.mean(total), 1.0 - EPSILON
        solution = self._unconstrained() if free else self._solve(lowest_mean, highest_mean, total)

        def mean(excess: ExactSum) -> float:
            return (found.target_sum + excess).mean(total)

        return Construction(
            n=len(self),
            n_classes=self.classes,
            direct_mean=found.direct_sum.mean(total),
            target=mean(solution.target),
            attainable=(lowest_mean, highest_mean),
            attained=mean(solution.reached.excess),
            eta=solution.eta,
            n_changed=found.n_changed,
            n_at_lower=solution.reached.at_lower,
            n_at_upper=solution.reached.at_upper,
            decision_given=decision_given,
            passes=solution.passes,
            effective_n=_effective_n(len(self), self.weight),
        )


def _effective_n(rows: int, weight: Vector | None) -> float:
    """Return (Σw)² / Σw², from exact sums so that the order of rows does not show."""
    if weight is None:
        return float(rows)
    total, square = ExactSum.of(weight), ExactSum.of_products(weight, weight)
    return float(total) ** 2 / float(square)
