"""Fit the three parameters of Lift: a convex problem, solved with a certificate.

The loss is the weighted logistic loss of "the decision is right" in z = α·log b −
β·log(1 − b) + γ, before clipping, with a ridge penalty towards the identity and α, β ≥ 0.  The
ridge is the one of four strengths under which the rows are most likely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Vector
from cordcal._validation.scores import rescale_large_weights
from cordcal.repair.lift_rule import IDENTITY, Curve

# Ridge strengths, in rows.  Five rows prevent three parameters from fitting ten errors, and 300
# rows with errors outweigh them; the larger ones leave a calibrated blend alone.
RIDGES = (5.0, 20.0, 80.0, 320.0)
# A squared Newton decrement below this, per row, is rounding: the step changes no digit.
_SETTLED = 1e-26
# Below this, per row, a full step cannot overshoot, and loss differences are mostly rounding.
_NEAR = 1e-12
_MOST_STEPS = 200


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted curve, the mean losses of the identity and of the curve, and the certificate.

    ``gap`` bounds how far the penalised loss per row is above its minimum; ``ridge`` is the
    chosen strength, in rows.
    """

    curve: Curve
    ridge: float
    loss_before: float
    loss_after: float
    gap: float


def fit_curve(
    mass: Vector, rest: Vector, right: npt.NDArray[np.bool_], weight: Vector | None
) -> Fitted:
    """Return the curve that best predicts whether decisions with these masses are right.

    Parameters
    ----------
    mass, rest : ndarray
        b and 1 − b, both positive.
    right : ndarray of bool
        Whether each decision is right.
    weight : ndarray, optional
        Weights of the rows; their sum is the number of rows that the ridge is compared with.
    """
    rows = _Problem.of(mass, rest, right, weight)
    problems = [replace(rows, ridge=ridge) for ridge in RIDGES]
    solutions = [(problem, problem.solve()) for problem in problems]
    problem, theta = max(solutions, key=lambda pair: pair[0].evidence(pair[1]))
    return Fitted(
        Curve(*theta.tolist()),
        problem.ridge,
        problem.loss(np.array(IDENTITY)) / problem.rows,
        problem.loss(theta) / problem.rows,
        problem.gap(theta) / problem.rows,
    )


@dataclass(frozen=True, slots=True)
class _Problem:
    """Rows as columns log b, −log(1 − b) and 1, sorted."""

    columns: npt.NDArray[np.float64]
    right: Vector
    weight: Vector
    ridge: float = RIDGES[0]

    @classmethod
    def of(
        cls, mass: Vector, rest: Vector, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> _Problem:
        w = np.ones(mass.size) if weight is None else rescale_large_weights(weight)
        counted = w > 0.0
        mass, rest, y, w = mass[counted], rest[counted], right[counted].astype(float), w[counted]
        # Sums round alike only in one order; the result must not depend on the order of rows.
        order = np.lexsort((w, y, rest, mass))
        mass, rest, y, w = mass[order], rest[order], y[order], w[order]
        columns = np.stack([np.log(mass), -np.log(rest), np.ones(mass.size)])
        return cls(columns, y, w)

    @property
    def rows(self) -> float:
        """The number of rows, in which a row of weight 2 counts twice."""
        return float(self.weight.sum())

    def loss(self, theta: Vector) -> float:
        """Return the summed logistic loss."""
        z = self._scores(theta)
        return float((self.weight * np.logaddexp(0.0, np.where(self.right > 0.0, -z, z))).sum())

    def value(self, theta: Vector) -> float:
        """Return the loss with its ridge."""
        away = theta - IDENTITY
        return self.loss(theta) + 0.5 * self.ridge * float((away * away).sum())

    def evidence(self, theta: Vector) -> float:
        """Return the log-probability of the rows under this ridge, up to a constant.

        The ridge is a normal prior of the parameters, which are integrated out by Laplace's
        approximation.
        """
        _, hessian = self.slopes(theta)
        volume = float(np.linalg.slogdet(hessian / self.ridge)[1])
        return -self.value(theta) - 0.5 * volume

    def _scores(self, theta: Vector) -> Vector:
        # Written out, because a matrix product may add in another order.
        alpha, beta, gamma = theta.tolist()
        scores: Vector = alpha * self.columns[0] + beta * self.columns[1] + gamma
        return scores

    def slopes(self, theta: Vector) -> tuple[Vector, npt.NDArray[np.float64]]:
        """Return the gradient and the Hessian of `value`."""
        z = self._scores(theta)
        small = np.exp(-np.abs(z))
        sure = 1.0 / (1.0 + small)
        up = np.where(z < 0.0, small * sure, sure)
        error = self.weight * np.where(self.right > 0.0, up - 1.0, up)
        bend = self.weight * small * sure * sure
        gradient = (self.columns * error).sum(axis=1) + self.ridge * (theta - IDENTITY)
        hessian = np.diag(np.full(3, self.ridge))
        for i, column in enumerate(self.columns):
            hessian[i] += (self.columns * (column * bend)).sum(axis=1)
        return gradient, hessian

    def solve(self) -> Vector:
        """Return the optimal parameters, with α and β at least zero."""
        optima = [self.solve_face(face) for face in product((True, False), repeat=2)]
        # By strict convexity, the best feasible optimum of a face is the optimum.
        allowed = [theta for theta in optima if theta[0] >= 0.0 and theta[1] >= 0.0]
        return min(allowed, key=self.value)

    def solve_face(self, free: tuple[bool, ...]) -> Vector:
        """Minimise over one face: α and β are free or fixed at zero."""
        at = np.flatnonzero((*free, True))
        theta = np.where((*free, True), IDENTITY, 0.0)
        for _ in range(_MOST_STEPS):
            gradient, hessian = self.slopes(theta)
            step = np.zeros(3)
            step[at] = -np.linalg.solve(hessian[np.ix_(at, at)], gradient[at])
            decrement = -float((gradient * step).sum()) / self.rows
            if decrement <= _SETTLED:
                break
            theta = theta + (step if decrement < _NEAR else self._shortened(theta, step))
        return theta

    def _shortened(self, theta: Vector, step: Vector) -> Vector:
        """Halve a Newton step until it lowers the loss."""
        before = self.value(theta)
        while self.value(theta + step) >= before and np.abs(step).max() > 1e-300:
            step = 0.5 * step
        return step

    def gap(self, theta: Vector) -> float:
        """Bound how far the value is above its minimum: it is ``ridge``-strongly convex."""
        gradient, _ = self.slopes(theta)
        bound = (theta == 0.0) & np.array([True, True, False])
        # At the bound zero only a negative slope counts.
        pull = np.where(bound, np.minimum(gradient, 0.0), gradient)
        return float((pull * pull).sum()) / (2.0 * self.ridge)
