"""Rank-wise constrained transformation: each rank of a row's logits has its own scale and bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.expressions import minus, plus, softmax, times
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.warn import warn
from cordcal.calibrators._affine_loss import VectorProblem
from cordcal.calibrators._base import Calibrator, Size, check_positive_integer
from cordcal.calibrators._newton import bounded_step, damped_newton, progress
from cordcal.calibrators.affine import tempered_start, warn_about_search
from cordcal.calibrators.temperature import VANISHED_LOSS


class RankwiseTransformation(Calibrator):
    """MCCT-I: ``softmax(s_r / t_r + b_r)`` by rank r of the sorted logits s.

    The scales 1/t_r and the biases b_r rise with the rank; among these maps the one with
    the smallest mean cross-entropy is found.  In terms of 1/t_r the problem is convex, and
    Newton steps under the constraints solve it exactly.  There is nothing to tune.

    **Not invariant to a shift of a row**: raw logits and log-probabilities are different
    models, and the map keeps decisions only where the largest logit is positive; rows where
    it is not raise a warning.  With ``input="probabilities"`` the map sees log(p / 1e-12),
    floored at 0, so that every score is on the safe side.

    | Works on raw logits.
    | Keeps the argmax where the top logit is positive, the order where no logit is negative;
      tied logits are ranked with the smallest index on top.
    | −inf logits are refused.
    | Cost: O(nK²) per step and O(K³) for the constraints, about ten steps.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.
    max_iter : int
        Maximum number of Newton steps; about ten are needed.

    Attributes
    ----------
    scale_, bias_ : ndarray of shape (K,)
        1/t_r and b_r, the smallest logit's first; the first bias is 0, as only differences
        matter.
    objective_ : float
        The mean cross-entropy of the calibration rows.
    gradient_norm_ : float
        The largest slope that the constraints leave.
    n_iter_ : int
        Number of Newton steps taken.

    References
    ----------
    Zhang, Sun, Batista, Kowalczyk (2024). Calibration by constrained transformation.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 + 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> mcct = RankwiseTransformation().fit(logits, labels)
    >>> bool((np.diff(mcct.scale_) >= 0.0).all() and (np.diff(mcct.bias_) >= 0.0).all())
    True
    """

    key = "mcct-i"
    title = "Rank-wise constrained transformation"
    short = "MCCT-I"
    size = Size(per_class=2)
    works_on = "logits"
    keeps_argmax = False  # only where the top logit is positive
    keeps_order = False
    takes_masked = False
    role = "rival"
    cost = "O(nK² + K³) per step, about 10 steps"
    reference = "Zhang, Batista & Kanhere 2025, arXiv:2507.06516"
    most_classes = 100, "its solver grows as K³, too slow"

    _holds = ("scale_", "bias_")

    scale_: Vector
    bias_: Vector
    objective_: float
    gradient_norm_: float
    n_iter_: int

    def __init__(self, *, input: Kind = "logits", max_iter: int = 100) -> None:
        super().__init__(input=input)
        self.max_iter = max_iter

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        check_positive_integer("max_iter", self.max_iter)
        self._place(working)
        ranks = np.empty_like(labels)
        for at in row_blocks(*working.shape):
            block = working[at]
            order = ascending(block)
            block[:] = np.take_along_axis(block, order, axis=1)
            ranks[at] = (order == labels[at, None]).argmax(axis=1)
        problem = RankProblem(working, ranks, weight)
        with progress(self.key, working.size * working.shape[1]) as report:
            best = damped_newton(
                problem,
                tempered_start(problem),
                problem.constrained_step,
                max_iter=self.max_iter,
                floor=VANISHED_LOSS,
                report=report,
            )
        self.scale_, self.bias_ = best.theta[0].copy(), best.theta[1] - best.theta[1, 0]
        self.objective_, self.n_iter_ = best.value, best.n_iter
        self.gradient_norm_ = best.gradient_norm
        warn_about_search(self, problem, best)

    def _predict(self, working: Matrix) -> Matrix:
        if self.input == "logits":
            self._warn_about(working)
        return super()._predict(working)

    def _held(self) -> dict[str, npt.NDArray[Any]]:
        held = super()._held()
        if self.input == "probabilities":
            held["floor_"] = np.log(np.asarray(self.log_floor_))
        return held

    @classmethod
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        if "floor_" in held:  # log-probabilities are measured from their floor
            working = minus(working, held["floor_"], xp)
        place = places(working, xp)
        scaled = times(working, held["scale_"][place], xp)
        return softmax(plus(scaled, held["bias_"][place], xp), xp)

    def _place(self, working: Matrix) -> None:
        """Measure log-probabilities from their floor; warn about logits that are not positive."""
        if self.input == "probabilities":
            working -= np.log(self.log_floor_)
        else:
            self._warn_about(working)

    @staticmethod
    def _warn_about(working: Matrix) -> None:
        bad = working.max(axis=1) <= 0.0
        if bad.any():
            warn(
                f"mcct-i: the largest logit is not positive in {int(bad.sum()):,} row(s), first "
                f"row {int(np.argmax(bad))}; there the map may change the decision, and it is "
                f"not invariant to shifts. Subtract each row's smallest logit from fit and "
                f"prediction rows alike, or use 'ts'"
            )


class RankProblem(VectorProblem):
    """The objective on sorted rows; scales and biases must rise with the rank."""

    def constrained_step(self, theta: Matrix, gradient: Matrix) -> Matrix:
        """Return the step to the quadratic model's minimum under the constraints.

        In the increments of scales and biases the constraints are signs, so the model's
        minimum is a step with bounds.
        """
        classes = theta.shape[1]
        hessian = increments(increments(self.own_hessian()).T)
        here = np.diff(theta, axis=1, prepend=0.0).ravel()
        slope = increments(gradient.reshape(-1, 1))[:, 0]
        # The first bias only shifts all logits, which changes nothing.
        free = np.delete(np.arange(2 * classes), classes)
        step = np.zeros(2 * classes)
        step[free] = bounded_step(hessian[np.ix_(free, free)], slope[free], here[free])
        return np.cumsum(step.reshape(2, classes), axis=1)


def increments(derivative: Matrix) -> Matrix:
    """Turn derivatives by scales and biases (rows) into derivatives by their increments."""
    both = derivative.reshape(2, -1, derivative.shape[-1])
    return np.cumsum(both[:, ::-1], axis=1)[:, ::-1].reshape(derivative.shape)


def ascending(block: Matrix) -> npt.NDArray[np.intp]:
    """Return the order from smallest to largest; among ties the smallest index comes last."""
    backwards = np.argsort(block[:, ::-1], axis=1, kind="stable")
    return np.asarray(block.shape[1] - 1 - backwards)


def places(scores: Array, xp: Any) -> Array:
    """Return each entry's place from the smallest, 0, on; among ties the smallest index is last."""
    if xp is np:
        order = ascending(scores)
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(scores.shape[1])[None, :], axis=1)
        return place
    order = xp.argsort(scores, axis=1, descending=True, stable=True)
    return (scores.shape[1] - 1) - xp.argsort(order, axis=1)
