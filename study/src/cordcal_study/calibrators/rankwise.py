"""Rank-wise constrained transformation (``mcct-i``): a scale and a bias for each rank of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import warn
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Vector
from cordcal.calibrators._affine_loss import VectorProblem
from cordcal.calibrators._base import Calibrator, Size, check_positive_integer
from cordcal.calibrators._newton import bounded_step, damped_newton, progress
from cordcal.calibrators.affine import tempered_start, warn_about_search
from cordcal.calibrators.temperature import VANISHED_LOSS
from cordcal.expressions import Parameters, add_in_place, multiply_in_place, subtract_in_place


class RankwiseTransformation(Calibrator):
    """MCCT-I: ``softmax(s_r / t_r + b_r)`` by rank r of the sorted logits s.

    The scales 1/t_r and the biases b_r increase with the rank and minimise the mean
    cross-entropy.  The problem is convex in 1/t_r, and Newton steps under the constraints solve
    it exactly.  There are no hyperparameters.

    **Not invariant to a shift of a row**: raw logits and log-probabilities give different
    models, and the map keeps the prediction only where the largest logit is positive; other
    rows raise a warning.  With ``input="probabilities"`` the map works on log(p / 1e-12),
    clipped at 0, so that no score is negative.

    | Works on raw logits.
    | Keeps the argmax where the top logit is positive, the order where no logit is negative;
      tied logits are ranked with the smallest index on top.
    | −inf logits raise an error.
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
        1/t_r and b_r, from the smallest logit to the largest; the first bias is 0, as only
        differences matter.
    objective_ : float
        The mean cross-entropy of the calibration rows.
    gradient_norm_ : float
        The largest entry of the gradient under the constraints.
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
    most_classes = 100, "its solver costs O(K³), too slow"

    parameter_names = ("scale_", "bias_")

    scale_: Vector
    bias_: Vector
    objective_: float
    gradient_norm_: float
    n_iter_: int

    def __init__(self, *, input: Kind = "logits", max_iter: int = 100) -> None:
        super().__init__(input=input)
        self.max_iter = max_iter

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        check_positive_integer("max_iter", self.max_iter)
        if self.input == "probabilities":
            scores -= np.log(self.log_floor_)
        else:
            self._warn_about_sign(scores)
        label_rank = np.empty_like(labels)
        for at in row_blocks(*scores.shape):
            block = scores[at]
            order = ascending_order(block)
            block[:] = np.take_along_axis(block, order, axis=1)
            label_rank[at] = (order == labels[at, None]).argmax(axis=1)
        problem = RankProblem(scores, label_rank, weight)
        with progress(self.key, scores.size * scores.shape[1]) as report:
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

    def _predict_in_domain(self, scores: Matrix) -> Matrix:
        if self.input == "logits":
            self._warn_about_sign(scores)
        return super()._predict_in_domain(scores)

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        params = super().parameters()
        if self.input == "probabilities":
            params["floor_"] = np.log(np.asarray(self.log_floor_))
        return params

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        if "floor_" in params:  # log(p / 1e-12) of probabilities
            scores = subtract_in_place(scores, params["floor_"], xp)
        rank = ranks(scores, xp)
        scaled = multiply_in_place(scores, params["scale_"][rank], xp)
        return add_in_place(scaled, params["bias_"][rank], xp)

    @staticmethod
    def _warn_about_sign(scores: Matrix) -> None:
        bad = scores.max(axis=1) <= 0.0
        if bad.any():
            warn(
                f"mcct-i: the largest logit is not positive in {int(bad.sum()):,} row(s), first "
                f"row {int(np.argmax(bad))}; there the map may change the prediction, and it is "
                f"not invariant to shifts. Subtract each row's smallest logit, both for fitting "
                f"and for prediction, or use 'ts'"
            )


class RankProblem(VectorProblem):
    """The objective on sorted rows; scales and biases must increase with the rank."""

    def constrained_step(self, theta: Matrix, gradient: Matrix) -> Matrix:
        """Return the step to the quadratic model's minimum under the constraints.

        In terms of the increments of scales and biases the constraints are lower bounds of 0.
        """
        classes = theta.shape[1]
        hessian = by_increments(by_increments(self.own_hessian()).T)
        current = np.diff(theta, axis=1, prepend=0.0).ravel()
        slope = by_increments(gradient.reshape(-1, 1))[:, 0]
        # The first bias shifts all logits alike, which has no effect.
        free = np.delete(np.arange(2 * classes), classes)
        step = np.zeros(2 * classes)
        step[free] = bounded_step(hessian[np.ix_(free, free)], slope[free], current[free])
        return np.cumsum(step.reshape(2, classes), axis=1)


def by_increments(derivative: Matrix) -> Matrix:
    """Convert derivatives in scales and biases (rows) to derivatives in their increments."""
    both = derivative.reshape(2, -1, derivative.shape[-1])
    return np.cumsum(both[:, ::-1], axis=1)[:, ::-1].reshape(derivative.shape)


def ascending_order(block: Matrix) -> npt.NDArray[np.intp]:
    """Return indices from smallest to largest; among ties the smallest index comes last."""
    reversed_order = np.argsort(block[:, ::-1], axis=1, kind="stable")
    return np.asarray(block.shape[1] - 1 - reversed_order)


def ranks(scores: Array, xp: Any) -> Array:
    """Return each entry's rank, 0 for the smallest; among ties the smallest index is highest."""
    if xp is np:
        order = ascending_order(scores)
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(scores.shape[1])[None, :], axis=1)
        return rank
    order = xp.argsort(scores, axis=1, descending=True, stable=True)
    return (scores.shape[1] - 1) - xp.argsort(order, axis=1)
