"""Logistic regression on a few features, for calibrators of one number per row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Matrix, Vector
from cordcal.calibrators._newton import damped_newton

# Newton steps of a fit; two or three well-posed parameters need fewer than ten.
_MAX_STEPS = 100
# With a mean loss this small the data are separable.
_MIN_LOSS = 1e-10
# A coefficient beyond this diverges: the rows are separable.
_MAX_COEFFICIENT = 1e6
# Relative size of the ridge that keeps equal inputs solvable; too small to change the result.
_RIDGE = 1e-12


@dataclass(frozen=True, slots=True)
class Odds:
    """A fitted logistic model: coefficients, mean loss, and whether the search converged."""

    coefficients: Vector
    value: float
    converged: bool


def sigmoid(x: Vector) -> Vector:
    """Return 1/(1 + e^−x), without overflow.

    Examples
    --------
    >>> sigmoid(np.array([-800.0, 0.0, 800.0]))
    array([0. , 0.5, 1. ])
    """
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0.0, e, 1.0) / (1.0 + e))


class LogisticProblem:
    """The mean binary cross-entropy of ``sigmoid(θ · features)``, plus θ·penalty·θ."""

    def __init__(
        self, features: Matrix, target: Vector, weight: Vector, penalty: Matrix | None = None
    ) -> None:
        size = features.shape[0]
        self.features, self.target, self.weight = features, target, weight
        self.penalty = np.zeros((size, size)) if penalty is None else penalty
        self.hessian: Matrix

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient, and store the Hessian."""
        x = theta @ self.features
        e = np.exp(-np.abs(x))
        p = np.where(x < 0.0, e, 1.0) / (1.0 + e)
        value = float(self.weight @ (np.maximum(x, 0.0) + np.log1p(e) - self.target * x))
        gradient = self.features @ (self.weight * (p - self.target))
        variance = self.weight * p * (1.0 - p)
        self.hessian = (self.features * variance) @ self.features.T + 2.0 * self.penalty
        pull = self.penalty @ theta
        return value + float(theta @ pull), gradient + 2.0 * pull

    def step(self, theta: Vector, gradient: Vector) -> Vector:
        """Return the Newton step."""
        size = self.hessian.trace()
        hessian = self.hessian + _RIDGE * size * np.eye(theta.size)
        return -np.asarray(np.linalg.lstsq(hessian, gradient)[0], dtype=np.float64)


def fit_odds(features: Matrix, target: Vector, weight: Vector) -> Odds:
    """Fit a logistic model by Newton's method; features are rows, and weights sum to one.

    Examples
    --------
    >>> x = np.array([[-1.0, 0.0, 1.0, 2.0], np.ones(4)])
    >>> fit_odds(x, np.array([0.0, 1.0, 0.0, 1.0]), np.full(4, 0.25)).coefficients.round(3)
    array([ 0.908, -0.454])
    """
    return search(LogisticProblem(features, target, weight), np.zeros(features.shape[0]))


def search(problem: LogisticProblem, start: Vector) -> Odds:
    """Minimise a logistic problem."""
    best = damped_newton(
        problem,
        start,
        problem.step,
        max_iter=_MAX_STEPS,
        floor=_MIN_LOSS,
        report=lambda step, value, gradient_norm: None,
        largest=_MAX_COEFFICIENT,
    )
    return Odds(best.theta, best.value, best.converged)


def fit_rising_odds(features: Matrix, target: Vector, weight: Vector) -> Odds:
    """Fit a logistic model whose coefficients, except the last, are nonnegative.

    The problem is convex, so the optimum is the best feasible fit with some of them zero.
    """
    best = fit_odds(features, target, weight)
    rising = features.shape[0] - 1
    if best.coefficients[:rising].min() >= 0.0:
        return best
    feasible: list[Odds] = []
    for size in range(rising):
        for subset in itertools.combinations(range(rising), size):
            columns = [*subset, rising]
            part = fit_odds(features[columns], target, weight)
            coefficients = np.zeros(rising + 1)
            coefficients[columns] = part.coefficients
            if coefficients[:rising].min() >= 0.0:
                feasible.append(Odds(coefficients, part.value, part.converged))
    return min(feasible, key=lambda odds: odds.value)


def smoothed(event: npt.NDArray[np.bool_], weight: Vector) -> Vector:
    """Return Platt's targets: one extra row of each kind keeps the odds of rare events finite."""
    hits = float(weight @ event)
    misses = float(weight.sum()) - hits
    return np.where(event, (hits + 1.0) / (hits + 2.0), 1.0 / (misses + 2.0))
