"""Smoothing splines of the log-odds: each class against the rest, rows renormalised."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._numeric.expressions import maximum, minimum, softmax, softplus
from cordcal._numeric.types import Array, Kind, Matrix, Parameters, Vector
from cordcal._validation.scores import LOG_FLOOR
from cordcal.calibrators._base import check_positive_integer
from cordcal.calibrators._binary import LogisticProblem, search, sigmoid
from cordcal.calibrators._curves import interpolate_each
from cordcal.calibrators.confidence import weighted_quantiles
from cordcal.calibrators.isotonic import IsotonicOneVsAll

# Strengths of the roughness penalty that are tried, as published, in whole decades.
_STRENGTHS = 10.0 ** np.arange(4, -5, -1)
# Of strengths whose left-out losses agree to this, the largest is taken, as published.
_AS_GOOD = 1e-4
# Rows added on the diagonal, in all: they pull a curve that few rows speak of to identity.
_PRIOR_ROWS = 20.0
# A leverage nearer to one than this says that the row stands alone.
_ALONE = 1e-3
# Straight pieces between two knots of a spline: their error is far below a fit's.
_PIECES = 8


class SplineOneVsRest(IsotonicOneVsAll):
    """A smoothing spline of each class's log-odds against the rest, rows renormalised.

    Each class's log-odds become a natural cubic spline of themselves, fitted as a penalised
    logistic regression; twenty rows' worth of points on the diagonal pull it to identity.
    The penalty on its roughness is the largest whose left-out loss, by the usual
    approximation from each row's leverage, is as good as the best one's to four digits.

    | Works on probabilities (the softmax of logits), kept within 1e-12 of 0 and 1.
    | Does not keep the argmax.
    | −inf logits count as probability 1e-12, which the map may raise.
    | Cost: O(nK) per pass with the number of knots, about forty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.
    knots : int
        Knots at quantiles of a class's log-odds; nine more are at 10 % … 90 %.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Log-odds before and after, eight points for each piece of a spline, one class after
        the other.
    knot_start_ : ndarray of int
        Where each class's points begin; K + 1 entries.

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

    def _fit_curve(
        self, x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        check_positive_integer("knots", self.knots)
        w = np.ones(x.size) if weight is None else weight
        return fit_spline(log_odds(x), positive, w, self.knots)

    @classmethod
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        p = minimum(maximum(working, LOG_FLOOR, xp), 1.0 - LOG_FLOOR, xp)
        odds = interpolate_each(xp.log(p) - xp.log(1.0 - p), held, xp)
        # The softmax of the sigmoids' logarithms: the sigmoids, divided by their sum.
        return softmax(0.0 - softplus(0.0 - odds, xp), xp)


def log_odds(p: Vector) -> Vector:
    """Return the log-odds of probabilities, kept within 1e-12 of 0 and 1."""
    inside = np.clip(p, LOG_FLOOR, 1.0 - LOG_FLOOR)
    return np.asarray(np.log(inside) - np.log(1.0 - inside))


class Basis(NamedTuple):
    """Natural cubic splines that are one at one knot each, and straight beyond the outer two."""

    knots: Vector
    spline: Any

    def at(self, x: Vector) -> Matrix:
        """Return the value of each at given points, one row each."""
        first, last = self.knots[0], self.knots[-1]
        inside = self.spline(np.clip(x, first, last)).T
        below = np.outer(self.spline(first, 1), np.minimum(x - first, 0.0))
        above = np.outer(self.spline(last, 1), np.maximum(x - last, 0.0))
        return np.asarray(inside + below + above)

    def roughness(self) -> Matrix:
        """Return the integrals of products of their second derivatives, straight in between."""
        bend = self.spline(self.knots, 2)
        left, right = bend[:-1], bend[1:]
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

    spread = weighted_quantiles(x, weight, np.linspace(0.0, 1.0, knots))
    at = np.unique(np.append(spread, log_odds(np.linspace(0.1, 0.9, 9))))
    basis = Basis(at, CubicSpline(at, np.eye(at.size), bc_type="natural"))
    points, share = diagonal()
    target = np.append(positive.astype(np.float64), points)
    w = np.append(weight, share)
    theta = best_spline(basis, np.append(x, log_odds(points)), target, w, x.size)
    pieces = np.linspace(at[:-1], at[1:], _PIECES, endpoint=False, axis=1).ravel()
    ends = log_odds(np.array([0.0, 1.0]))
    curve = np.unique(np.concatenate([pieces, at[-1:], ends]))
    return curve, theta @ basis.at(curve)


def diagonal() -> tuple[Vector, Vector]:
    """Return the added points, which are their own targets, and their weights."""
    low = 10.0 ** np.linspace(-8.0, -2.0, 18, endpoint=False)
    points = np.concatenate([low, np.linspace(0.01, 0.99, 99), 1.0 - low])
    weight = np.concatenate([np.full(18, 1.0 / 18.0), np.ones(99), np.full(18, 1.0 / 18.0)])
    return points, weight * (_PRIOR_ROWS / weight.sum())


def best_spline(basis: Basis, x: Vector, target: Vector, weight: Vector, rows: int) -> Vector:
    """Return the coefficients under the largest penalty that is as good as the best one."""
    features, roughness = basis.at(x), basis.roughness()
    total = float(weight.sum())
    theta, found = basis.knots, []
    for strength in _STRENGTHS:
        problem = LogisticProblem(features, target, weight / total, strength / total * roughness)
        theta = search(problem, theta).coefficients
        found.append((left_out_loss(problem, theta, total, rows), theta))
    enough = min(loss for loss, _ in found) + _AS_GOOD
    return next(theta for loss, theta in found if loss <= enough)


def left_out_loss(problem: LogisticProblem, theta: Vector, total: float, rows: int) -> float:
    """Return the mean loss of the first rows, each left out of the fit, to first order."""
    problem.evaluate(theta)
    odds = theta @ problem.features
    share = sigmoid(odds)
    doubt = share * (1.0 - share)
    ridge = 1e-12 * problem.hessian.trace() * np.eye(theta.size)
    reach = np.linalg.solve(total * (problem.hessian + ridge), problem.features)
    leverage = np.einsum("ij,ij->j", problem.features, reach)
    # A Newton step without the row: its odds move by leverage·gap/(1 − leverage·doubt).
    free = np.maximum(1.0 - leverage * doubt, _ALONE)
    away = (odds - leverage * (problem.target - share) / free)[:rows]
    loss = np.maximum(away, 0.0) - problem.target[:rows] * away + np.log1p(np.exp(-np.abs(away)))
    return float(problem.weight[:rows] @ loss / problem.weight[:rows].sum())
