"""What the affine maps share: the search, its warnings, and prediction."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from cordcal._door.blocks import row_blocks
from cordcal._door.errors import Refusal
from cordcal._door.expressions import log, plus, times
from cordcal._door.types import Array, Kind, Labels, Matrix, Vector
from cordcal.calibrators._affine import AffineProblem
from cordcal.calibrators._base import Calibrator, Held
from cordcal.calibrators._newton import Optimum, Report, Separable, newton_cg
from cordcal.calibrators._progress import progress
from cordcal.calibrators.temperature import (
    VANISHED_LOSS,
    cross_entropy,
    fit_temperature,
    sample_of,
    tempered,
    warn_about_temperature,
)


class AffineCalibrator(Calibrator):
    """Base of the maps ``softmax(A x + b)``: a convex fit by Newton's method."""

    max_iter: int
    objective_: float
    gradient_norm_: float
    n_iter_: int

    def __init__(self, *, input: Kind = "logits", max_iter: int = 100) -> None:
        super().__init__(input=input)
        self.max_iter = max_iter

    @abstractmethod
    def _problem(self, working: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        """Return the objective, with its ridge."""

    @abstractmethod
    def _keep(self, theta: Matrix) -> None:
        """Store the parameters under their names."""

    def _search(self, problem: AffineProblem, start: Matrix, report: Report) -> Optimum:
        return newton_cg(problem, start, max_iter=self.max_iter, floor=VANISHED_LOSS, report=report)

    def _start(self, problem: AffineProblem) -> Matrix:
        return tempered_start(problem)

    def _known_steps(self, problem: AffineProblem) -> int | None:
        """Return how many steps the search takes, where that can be told beforehand."""
        return None

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        check_max_iter(self.max_iter)
        problem = self._problem(working, labels, weight)
        work = working.size * problem.identity.shape[1]
        with progress(self.key, work, self._known_steps(problem)) as report:
            best = self._search(problem, self._start(problem), report)
        self._keep(best.theta)
        self.objective_, self.gradient_norm_ = best.value, best.gradient_norm
        self.n_iter_ = best.n_iter
        warn_about_search(self, problem, best, self._advice())

    def _advice(self) -> str:
        return "raise max_iter"


class StructuredCalibrator(AffineCalibrator):
    """Base of the structured maps: temperature and Laplace mix first, ridge towards identity.

    The map works on L = log((1 − w)·softmax(z/T) + w/K) with w = 1/(n + 1); the mix is part
    of the model, so L is bounded and masked classes are welcome.
    """

    temperature_: float
    mix_: float

    def _start(self, problem: AffineProblem) -> Matrix:
        return problem.identity

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        best = fit_temperature(cross_entropy, working, labels, weight)
        self.temperature_ = float(np.exp(-best.at))
        warn_about_temperature(self, best)
        rows = working.shape[0] if weight is None else float(weight.sum())
        self.mix_ = 1.0 / (rows + 1.0)
        held = {name: getattr(self, name) for name in ("temperature_", "mix_")}
        for at in row_blocks(*working.shape):
            mixed(working[at], held, np)
        super()._fit(working, labels, weight)

    @classmethod
    def _map(cls, working: Array, held: Held, *, xp: Any) -> Array:
        return super()._map(mixed(working, held, xp), held, xp=xp)


def mixed(shifted: Array, held: Held, xp: Any) -> Array:
    """Return L = log((1 − w)·softmax(shifted / T) + w/K)."""
    mix = held["mix_"]
    masses = times(tempered(shifted, held, xp), 1.0 - mix, xp)
    return log(plus(masses, mix / shifted.shape[1], xp), xp)


def check_max_iter(value: Any) -> None:
    """Refuse a cap that allows no step."""
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise Refusal("max_iter", f"is {value!r}", "pass a whole number from 1 on")


def tempered_start(problem: AffineProblem) -> Matrix:
    """Return a tempered identity: saturated scores leave Newton's method nothing to see."""
    scores, labels, weight = sample_of(problem.scores, problem.labels, problem.weight)
    shifted = scores - scores.max(axis=1, keepdims=True)
    best = fit_temperature(cross_entropy, shifted, labels, weight)
    return problem.identity * float(np.exp(min(best.at, 0.0)))


def warn_about_search(
    calibrator: Calibrator, problem: Separable, best: Optimum, advice: str = "raise max_iter"
) -> None:
    """Say what to do when the rows are separable or the search was cut short."""
    if best.value <= VANISHED_LOSS or problem.is_separated(best.value):
        calibrator._warn(
            f"the calibration rows are perfectly separable, so the parameters grow without "
            f"end; stopped at a loss of {best.value:.2g}. Fit on more rows, or use a "
            f"regularised map such as 'svs'"
        )
    elif not best.converged:
        calibrator._warn(
            f"stopped after {best.n_iter} steps with a gradient norm of "
            f"{best.gradient_norm:.3g}; {advice}"
        )
