"""Smoothing splines of the log-odds of each class against the rest, rows renormalised.

One calibrator, ``spline``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Array, Kind, Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR
from cordcal.calibrators._base import Calibrator, check_positive_integer
from cordcal.calibrators._curves import Knots, interpolate, join_knots
from cordcal.calibrators._newton import LogisticProblem, search, sigmoid
from cordcal.calibrators.isotonic import IsotonicOneVsAll
from cordcal.expressions import Parameters, maximum, minimum, softmax, softplus
from cordcal_study.calibrators.confidence import weighted_quantiles

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

# Candidate strengths of the roughness penalty, as published, in whole decades.
_STRENGTHS = 10.0 ** np.arange(4, -5, -1)
# Of strengths whose leave-one-out losses are within this of the best, the largest is taken, as
# published.
_LOSS_TOLERANCE = 1e-4
# Total weight of the points on the diagonal that pull a curve with few rows to the identity.
_PRIOR_ROWS = 20.0
# Lower bound of 1 − leverage·p(1 − p), for rows that determine their own fit.
_MIN_FREEDOM = 1e-3
# Linear pieces between two knots of a spline; their error is far below that of a fit.
_PIECES = 8


class SplineOneVsRest(IsotonicOneVsAll):
    """A smoothing spline of each class's log-odds against the rest, rows renormalised.

    Each class's log-odds become a natural cubic spline of themselves, fitted as a penalised
    logistic regression.  Added points on the diagonal, with the weight of twenty rows, pull it
    to the identity.  The roughness penalty is the largest whose leave-one-out loss is within
    1e-4 of the best one; the loss is approximated from each row's leverage.

    | Works on probabilities (the softmax of logits), clipped to [1e-12, 1 − 1e-12].
    | Does not keep the argmax.
    | −inf logits count as probability 1e-12, which the map may raise.
    | Cost: O(nK) per pass, times the number of knots, about forty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.
    knots : int
        Number of knots at quantiles of a class's log-odds; nine more are at the log-odds of
        10 % … 90 %.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Log-odds before and after, eight points for each piece of a spline, all classes
        concatenated.
    knot_start_ : ndarray of int of shape (K + 1,)
        Index of each class's first point.

    References
    ----------
    Lucena (2018). Spline-based probability calibration. arXiv.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> q = SplineOneVsRest().fit(logits, labels).predict_proba(logits)
    >>> bool((abs(q.sum(axis=1) - 1.0) < 1e-12).all())
    True
    """

    key = "spline"
    title = "Smoothing spline of log-odds, one versus rest"
    short = "Spline"
    cost = "O(nK) per pass, about 40 passes"
    reference = "Lucena 2018, arXiv"
    most_classes = 999, "fits a spline of many knots for each class, too slow"

    def __init__(self, *, input: Kind = "logits", knots: int = 15) -> None:
        super().__init__(input=input)
        self.knots = knots

    _fit_folds = Calibrator._fit_folds
    _join = staticmethod(join_knots)

    def _fit_curve(
        self, x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
    ) -> Knots:
        check_positive_integer("knots", self.knots)
        w = np.ones(x.size) if weight is None else weight
        return fit_spline(log_odds(x), positive, w, self.knots)

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        p = minimum(maximum(scores, LOG_FLOOR, xp), 1.0 - LOG_FLOOR, xp)
        odds = interpolate(xp.log(p) - xp.log(1.0 - p), params, xp)
        # The softmax of the sigmoids' logarithms is the sigmoids divided by their sum.
        return softmax(0.0 - softplus(0.0 - odds, xp), xp)


def log_odds(p: Vector) -> Vector:
    """Return the log-odds of probabilities, clipped to [1e-12, 1 − 1e-12]."""
    clipped = np.clip(p, LOG_FLOOR, 1.0 - LOG_FLOOR)
    return np.asarray(np.log(clipped) - np.log(1.0 - clipped))


class SplineBasis(NamedTuple):
    """Natural cubic splines, each 1 at one knot and 0 at the others, linear beyond all knots."""

    knots: Vector
    spline: CubicSpline

    def at(self, x: Vector) -> Matrix:
        """Return the values at the points ``x``, one row per basis function."""
        first, last = self.knots[0], self.knots[-1]
        inside = self.spline(np.clip(x, first, last)).T
        below = np.outer(self.spline(first, 1), np.minimum(x - first, 0.0))
        above = np.outer(self.spline(last, 1), np.maximum(x - last, 0.0))
        return np.asarray(inside + below + above)

    def roughness(self) -> Matrix:
        """Return the integrals of products of second derivatives, which are piecewise linear."""
        second = self.spline(self.knots, 2)
        left, right = second[:-1], second[1:]
        thirds = np.diff(self.knots)[:, None] / 3.0
        cross = (left * thirds).T @ right
        return np.asarray(
            (left * thirds).T @ left + (right * thirds).T @ right + 0.5 * (cross + cross.T)
        )


def fit_spline(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector, knots: int
) -> tuple[Vector, Vector]:
    """Return log-odds before and after, as the knots of a piecewise linear curve."""
    from scipy.interpolate import CubicSpline

    quantiles = weighted_quantiles(x, weight, np.linspace(0.0, 1.0, knots))
    knot_x = np.unique(np.append(quantiles, log_odds(np.linspace(0.1, 0.9, 9))))
    basis = SplineBasis(knot_x, CubicSpline(knot_x, np.eye(knot_x.size), bc_type="natural"))
    prior, prior_weight = diagonal_prior()
    target = np.append(positive.astype(np.float64), prior)
    w = np.append(weight, prior_weight)
    theta = select_spline(basis, np.append(x, log_odds(prior)), target, w, x.size)
    pieces = np.linspace(knot_x[:-1], knot_x[1:], _PIECES, endpoint=False, axis=1).ravel()
    ends = log_odds(np.array([0.0, 1.0]))
    curve = np.unique(np.concatenate([pieces, knot_x[-1:], ends]))
    return curve, theta @ basis.at(curve)


def diagonal_prior() -> tuple[Vector, Vector]:
    """Return the added probabilities, which are their own targets, and their weights."""
    low = 10.0 ** np.linspace(-8.0, -2.0, 18, endpoint=False)
    points = np.concatenate([low, np.linspace(0.01, 0.99, 99), 1.0 - low])
    weight = np.concatenate([np.full(18, 1.0 / 18.0), np.ones(99), np.full(18, 1.0 / 18.0)])
    return points, weight * (_PRIOR_ROWS / weight.sum())


def select_spline(
    basis: SplineBasis, x: Vector, target: Vector, weight: Vector, rows: int
) -> Vector:
    """Return the coefficients for the largest penalty that is about as good as the best one."""
    features, roughness = basis.at(x), basis.roughness()
    total = float(weight.sum())
    theta, candidates = basis.knots, []
    for strength in _STRENGTHS:
        problem = LogisticProblem(features, target, weight / total, strength / total * roughness)
        theta = search(problem, theta).coefficients
        candidates.append((leave_one_out_loss(problem, theta, total, rows), theta))
    threshold = min(loss for loss, _ in candidates) + _LOSS_TOLERANCE
    return next(theta for loss, theta in candidates if loss <= threshold)


def leave_one_out_loss(problem: LogisticProblem, theta: Vector, total: float, rows: int) -> float:
    """Return the mean leave-one-out loss of the first ``rows`` rows, to first order."""
    problem.evaluate(theta)
    odds = theta @ problem.features
    p = sigmoid(odds)
    variance = p * (1.0 - p)
    ridge = 1e-12 * problem.hessian.trace() * np.eye(theta.size)
    solved = np.linalg.solve(total * (problem.hessian + ridge), problem.features)
    leverage = np.einsum("ij,ij->j", problem.features, solved)
    # A Newton step without the row changes its odds by leverage·(p − y)/(1 − leverage·variance).
    freedom = np.maximum(1.0 - leverage * variance, _MIN_FREEDOM)
    x = (odds - leverage * (problem.target - p) / freedom)[:rows]
    loss = np.maximum(x, 0.0) - problem.target[:rows] * x + np.log1p(np.exp(-np.abs(x)))
    return float(problem.weight[:rows] @ loss / problem.weight[:rows].sum())
