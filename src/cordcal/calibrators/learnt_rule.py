"""Learn a `PredictionRule` from direct probabilities and predictions, without labels.

The predictions are modelled as softmax(τ·log q + β) with τ > 0; the weights are exp(β/τ).  The
summed loss has the penalty λ‖β‖²/(2τ) + μ(τ − 1 − log τ), so that the problem is jointly convex
in (τ, β).  For large τ it becomes τ·(Σ shortfall + λ‖log w‖²/2), where the shortfall of a row is
how far its prediction is below the largest log(w·q): the penalty acts on log w at every scale.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from cordcal._errors import warn
from cordcal._numeric.arrays import first_argmax, row_blocks
from cordcal._numeric.types import Floats, Matrix, Meta, Predictions, Vector
from cordcal._validation.scores import LOG_FLOOR, rescale_large_weights
from cordcal.calibrators._newton import conjugate_gradients, newton_cg, progress
from cordcal.repair.prediction_rule import MAX_RATIO, PredictionRule

# λ and μ, in rows: too small to move weights that a few predictions determine.
_RIDGE, _SCALE_RIDGE = 1e-3, 1e-3
_MAX_STEPS = 200
# Exact Newton steps at the end, until the certificate is this share of the objective.
_MAX_EXACT_STEPS, _SMALL_GAP = 3, 1e-8
# From this mean over all rows on, the probability that must move to predictions that no weights
# explain is worth a warning.
_LARGE_SHIFT = 0.005
# Weights are equal unless they save this share of the entropy of the direct probabilities.
_WORTHWHILE = 0.005
# Rows that predict with less doubt than this have no effect on a step.
_CERTAIN = 1e-15


@dataclass(frozen=True, repr=False)
class LearntRule:
    """The record of a learnt rule.

    Attributes
    ----------
    n : int
        Rows it was learnt from.
    n_explained : int
        Rows whose prediction is the largest ``weights * direct probability``.
    n_argmax : int
        Rows whose prediction is the largest direct probability.
    max_shift, mean_shift : float
        In the other rows, the probability that must move to the prediction to make it the largest
        weighted entry.
    never_predicted : tuple of int
        Classes without a prediction, whose weights are bounded only from above.
    gap : float
        A bound on how far the penalised loss per row is above its minimum.
    """

    n: int
    n_explained: int
    n_argmax: int
    max_shift: float
    mean_shift: float
    never_predicted: tuple[int, ...]
    gap: float

    def to_dict(self) -> Meta:
        """Return the record as plain Python values."""
        return asdict(self)

    def __repr__(self) -> str:
        rest = self.n - self.n_explained
        return (
            f"Rule learnt from {self.n:,} rows\n"
            f"  predictions explained by the weights  {self.n_explained:,} "
            f"({100 * self.n_explained / self.n:.2f} %)\n"
            f"  by the argmax                         {self.n_argmax:,} "
            f"({100 * self.n_argmax / self.n:.2f} %)\n"
            f"  not explained                         {rest:,}; there the repair moves up to "
            f"{self.max_shift:.2g} of probability, {self.mean_shift:.2g} on average\n"
            f"  classes never predicted               {len(self.never_predicted):,}"
        )


def learn_rule(
    direct: Floats, prediction: Predictions, sample_weight: Vector | None = None
) -> tuple[PredictionRule, LearntRule]:
    """Return the weights that best explain predictions, and a record.

    Parameters
    ----------
    direct : ndarray of shape (n, K)
        Checked probabilities.
    prediction : ndarray of int of shape (n,)
        The predictions.
    sample_weight : ndarray of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    rule : PredictionRule
        Equal weights if the argmax explains every prediction, or if keeping it costs less than
        0.5 % of the entropy of the direct probabilities.  If several weights explain all
        predictions, about the middle of these, in logarithms.
    record : LearntRule
        How many predictions it explains, and how far off the others are.

    Examples
    --------
    >>> direct = np.random.default_rng(0).dirichlet(np.ones(3), size=2000)
    >>> rule, record = learn_rule(direct, (direct * [1, 2, 4]).argmax(axis=1))
    >>> (rule.weights / rule.weights[0]).round(1)
    array([1., 2., 4.])
    >>> record.n_explained
    2000
    """
    rows = len(direct)
    weight = np.ones(rows) if sample_weight is None else rescale_large_weights(sample_weight)
    counted = weight > 0.0
    is_argmax = first_argmax(direct) == prediction
    if (is_argmax | ~counted).all():
        rule, gap = PredictionRule(np.ones(direct.shape[1])), 0.0
    else:
        rule, gap = _solve(direct[counted], prediction[counted], weight[counted])
        if not _is_worthwhile(rule, direct, prediction, weight):
            rule = PredictionRule(np.ones(direct.shape[1]))
    explained = rule.predict(direct) == prediction
    mass, least = _masses(direct[~explained], prediction[~explained], rule.weights)
    shift = least - mass
    unseen = np.flatnonzero(np.bincount(prediction[counted], minlength=direct.shape[1]) == 0)
    record = LearntRule(
        n=len(direct),
        n_explained=int(explained.sum()),
        n_argmax=int(is_argmax.sum()),
        max_shift=float(shift.max(initial=0.0)),
        mean_shift=float(shift.mean()) if shift.size else 0.0,
        never_predicted=tuple(unseen.tolist()),
        gap=gap,
    )
    _warn_about(record, equal=rule.is_argmax)
    return rule, record


def _warn_about(record: LearntRule, *, equal: bool) -> None:
    """Warn about weights that predictions do not determine, and predictions that none explain."""
    if record.never_predicted:
        first = ", ".join(map(str, record.never_predicted[:5]))
        more = ", …" if len(record.never_predicted) > 5 else ""
        known = "they get the same weight as the others"
        if not equal:
            known = "their weights are bounded only from above"
        warn(
            f"rule: {len(record.never_predicted)} class(es) ({first}{more}) are never predicted in "
            f"the {record.n:,} rows that the rule is learnt from, so {known}; "
            "pass more rows, or the weights"
        )
    if equal:
        return
    rest = record.n - record.n_explained
    if rest * record.mean_shift > _LARGE_SHIFT * record.n:
        warn(
            f"rule: no weights per class explain all predictions: in {rest:,} of {record.n:,} rows "
            f"the repair moves up to {record.max_shift:.2g} of probability to the prediction, "
            f"{record.mean_shift:.2g} on average; another calibrator may explain more of them"
        )


def _masses(direct: Floats, prediction: Predictions, weights: Vector) -> tuple[Vector, Vector]:
    """Return each prediction's probability, and the least with which the rule predicts it.

    The other classes keep their direct ratios (Eq. 4 with weights).
    """
    q = direct.astype(np.float64)
    at = np.arange(len(q)), prediction
    mass = q[at]
    q[at] = 0.0
    rest, rival = q.sum(axis=1), (weights * q).max(axis=1)
    least = np.zeros(len(q))  # if the other classes have no mass, any mass gives the prediction
    np.divide(rival, rival + weights[prediction] * rest, out=least, where=rest > 0.0)
    return mass / (mass + rest), least


def _is_worthwhile(
    rule: PredictionRule, direct: Floats, prediction: Predictions, weight: Vector
) -> bool:
    """Return whether keeping the argmax instead would cost noticeably more likelihood.

    The cost is what the direct probabilities expect: the mean relative entropy of raising
    predictions that they do not give to the least mass that does.
    """
    from scipy.special import entr, rel_entr  # only fitting needs SciPy

    def cost(weights: Vector) -> float:
        mass, least = _masses(direct, prediction, weights)
        raised = np.maximum(mass, least)
        return float(weight @ (rel_entr(mass, raised) + rel_entr(1.0 - mass, 1.0 - raised)))

    entropy = float(weight @ entr(direct.astype(np.float64)).sum(axis=1))
    return cost(np.ones(direct.shape[1])) - cost(rule.weights) > _WORTHWHILE * entropy


def _solve(direct: Floats, prediction: Predictions, weight: Vector) -> tuple[PredictionRule, float]:
    problem = _Problem(direct, prediction, weight)
    with progress("rule", direct.size) as report:
        optimum = newton_cg(problem, problem.start, max_iter=_MAX_STEPS, floor=0.0, report=report)
    theta = optimum.theta
    _, gradient = problem.evaluate(theta)
    for _ in range(_MAX_EXACT_STEPS):
        if problem.gap() <= _SMALL_GAP * problem.value:
            break
        problem.refresh()
        theta = theta + conjugate_gradients(
            problem, gradient, problem.precondition(-gradient), 1e-9
        )
        _, gradient = problem.evaluate(theta)
    logs = theta[1:] / theta[0]
    middle, half = 0.5 * (logs.max() + logs.min()), 0.5 * math.log(MAX_RATIO)
    weights = np.exp(np.clip(logs - middle, -half, half) * (1.0 - 1e-12))
    return PredictionRule(weights), max(problem.gap(), 0.0) / float(weight.sum())


class _Problem:
    """The penalised loss as a function of θ = (τ, β)."""

    value: float

    def __init__(self, direct: Floats, prediction: Predictions, weight: Vector) -> None:
        self._prediction, self._weight = prediction, weight
        # log q_j − log q_a: zero at the prediction, so that small losses keep their digits.
        self._gaps = np.log(np.maximum(direct, LOG_FLOOR, dtype=np.float64))
        self._gaps -= self._gaps[np.arange(len(prediction)), prediction][:, None]
        self.start = np.concatenate([[1.0], np.zeros(direct.shape[1])])
        self._active: list[tuple[Matrix, Matrix, Predictions, Vector]] = []
        self._moments = self._theta = self.start

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient, and keep the rows in doubt for `product`."""
        tau, beta = float(theta[0]), theta[1:]
        if tau <= 0.0:
            return math.inf, theta
        value, moments, self._active = 0.0, np.zeros_like(theta), []
        for rows in row_blocks(*self._gaps.shape):
            gaps, a, w = self._gaps[rows], self._prediction[rows], self._weight[rows]
            z = tau * gaps + beta
            z -= beta[a][:, None]
            top = z.max(axis=1)  # at least zero, the entry of the prediction
            z -= top[:, None]
            np.exp(z, out=z)
            own = np.exp(-top)
            z[np.arange(len(a)), a] = 0.0
            others = z.sum(axis=1)
            loss = np.where(top > 0.0, top + np.log(own + others), np.log1p(others))
            value += float(w @ loss)
            doubt = np.flatnonzero(others > _CERTAIN)
            mass = z[doubt] * (w[doubt] / (own + others)[doubt])[:, None]
            moments += _moments(mass, gaps[doubt], a[doubt])
            self._active.append((mass, gaps[doubt], a[doubt], w[doubt]))
        self._moments, self._theta = moments, theta
        size = float(beta @ beta)
        value += 0.5 * _RIDGE * size / tau + _SCALE_RIDGE * (tau - 1.0 - math.log(tau))
        gradient = moments.copy()
        gradient[0] += _SCALE_RIDGE * (1.0 - 1.0 / tau) - 0.5 * _RIDGE * size / tau**2
        gradient[1:] += (_RIDGE / tau) * beta
        self.value = value
        return value, gradient

    def refresh(self) -> None:
        """Prepare the preconditioner at the last point: the Hessian's diagonal."""
        tau, beta = float(self._theta[0]), self._theta[1:]
        diagonal = np.zeros_like(self._theta)
        for mass, gaps, a, w in self._active:
            other = mass.sum(axis=1)
            mean = (mass * gaps).sum(axis=1)
            diagonal[0] += float((mass * gaps * gaps).sum() - mean @ (mean / w))
            diagonal[1:] += (mass - mass * mass / w[:, None]).sum(axis=0)
            diagonal[1:] += np.bincount(a, other - other * other / w, minlength=len(beta))
        diagonal[0] += _RIDGE * float(beta @ beta) / tau**3 + _SCALE_RIDGE / tau**2
        diagonal[1:] += _RIDGE / tau
        self._diagonal = diagonal

    def precondition(self, residual: Vector) -> Vector:
        """Return the residual divided by the Hessian's diagonal."""
        return np.asarray(residual / self._diagonal)

    def product(self, direction: Vector) -> Vector:
        """Return the Hessian at the last point times a direction."""
        tau, beta = float(self._theta[0]), self._theta[1:]
        by_tau, by_beta = float(direction[0]), direction[1:]
        result = np.zeros_like(direction)
        for mass, gaps, a, w in self._active:
            change = by_tau * gaps + by_beta
            change -= by_beta[a][:, None]
            mean = (mass * change).sum(axis=1) / w
            change -= mean[:, None]
            change *= mass
            result += _moments(change, gaps, a)
        along = float(beta @ by_beta) / tau
        result[0] += _RIDGE * (by_tau * float(beta @ beta) / tau - along * tau) / tau**2
        result[0] += _SCALE_RIDGE * by_tau / tau**2
        result[1:] += _RIDGE * (by_beta - (by_tau / tau) * beta) / tau
        return result

    def gap(self) -> float:
        """Bound how far the last value is above the minimum, by the dual at its probabilities."""
        tau, beta = float(self._theta[0]), self._theta[1:]
        slope, pull = float(self._moments[0]), self._moments[1:]
        dual = slope - float(pull @ pull) / (2.0 * _RIDGE) + _SCALE_RIDGE
        if dual <= 0.0:
            return math.inf
        primal = tau * slope + float(pull @ beta) + 0.5 * _RIDGE * float(beta @ beta) / tau
        primal += _SCALE_RIDGE * (tau - 1.0 - math.log(tau))
        return primal - _SCALE_RIDGE * math.log(dual / _SCALE_RIDGE)


def _moments(mass: Matrix, gaps: Matrix, prediction: Predictions) -> Vector:
    """Return the derivatives of Σ mass·z by τ and β; the prediction has minus the other mass."""
    by_beta = mass.sum(axis=0)
    by_beta -= np.bincount(prediction, mass.sum(axis=1), minlength=len(by_beta))
    return np.concatenate([[float(np.einsum("ij,ij->", mass, gaps))], by_beta])
