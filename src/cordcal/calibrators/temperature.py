"""Temperature scaling: one positive number divides all logits, so every order is kept.

Temperature scaling (``ts``) and its top-versus-all form (``ts-tva``); other families take the
temperature search from here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from cordcal._numeric.arrays import block_buffer, row_blocks, row_blocks_of
from cordcal._numeric.types import Array, Labels, Matrix, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, FoldRows, Size
from cordcal.calibrators._newton import ScalarOptimum, minimise_scalar
from cordcal.expressions import (
    LOWEST_SHIFTED,
    Parameters,
    multiply_in_place,
    shared,
    softmax_of_shifted,
)

# log(1/T) is searched within this distance of the logits' unit: T between 1e-7 and 9e6 units,
# beyond which a softmax is one-hot or uniform.
LOG_SCALE_RADIUS = 16.0

# Spans of a row's logits that are usual for networks; their unit is one.
_USUAL_SPANS = 2.0**-4, 2.0**10
# Other logits are divided by a unit that gives them this span, typical of an uncertain classifier.
_TARGET_SPAN = 8.0
# Masked logits are −1e15 and must stay far below the others in any unit.
_LARGEST_UNIT = 2.0**30

# A mean loss this small means separable data: a lower temperature is always better.
VANISHED_LOSS = 1e-10

# Entries of the subsample that gives the starting point: about 8 MB of float64.
_SUBSAMPLE_ENTRIES = 2**20

Objective = Callable[[float], tuple[float, float, float]]
"""Maps log(1/T) to the mean loss, its derivative and a positive second derivative."""

ObjectiveFactory = Callable[[Matrix, Labels, Vector | None], Objective]


class TemperatureScaling(Calibrator):
    r"""Temperature scaling: ``softmax(z / T)`` with one T > 0 for all rows.

    T minimises the mean cross-entropy exactly, by a safeguarded Newton search on log(1/T)
    that starts from the optimum on a subsample of the rows.  There are no hyperparameters.

    | Works on logits; log-probabilities give the same T.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(nK) per pass, three to six passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

    Attributes
    ----------
    temperature_ : float
        T.
    objective_ : float
        The mean cross-entropy of the calibration rows.
    n_iter_ : int
        Number of passes over all calibration rows.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 3.5], [2.0, 0.0]])
    >>> ts = TemperatureScaling().fit(logits, [0, 1, 1, 0])
    >>> round(ts.temperature_, 4)
    2.8269
    >>> ts.predict_proba([[2.0, 0.0]]).round(4)
    array([[0.6698, 0.3302]])
    """

    key = "ts"
    title = "Temperature scaling"
    short = "TS"
    size = Size(fixed=1)
    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    cost = "O(nK) per pass, 3–6 passes"
    reference = "Guo et al. 2017, ICML"

    parameter_names = ("temperature_",)

    temperature_: float
    objective_: float
    n_iter_: int

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        self._store(fit_shared_temperature(self, scores, labels, weight))

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if not rows.many:
            yield from super()._fit_folds(rows)
            return
        for best in fit_shared_fold_temperatures(self, rows):
            model = self._unfitted_copy(rows.original.classes)
            model._store(best)
            yield model

    def _store(self, best: ScalarOptimum) -> None:
        self.temperature_ = math.exp(-best.at)
        self.objective_ = best.value
        self.n_iter_ = best.passes
        warn_about_temperature(self, best)

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        return softmax_at_temperature(scores, params, xp)


class TopVersusAllTemperature(TemperatureScaling):
    """TS-TvA: temperature scaling fitted to the top class against all others.

    The map is that of `TemperatureScaling`, but T minimises the binary cross-entropy of the
    event that the top class is correct, exactly.

    | Works on logits; log-probabilities give the same T.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(nK) per pass, four to eight passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

    Attributes
    ----------
    temperature_ : float
        T.
    objective_ : float
        The mean binary cross-entropy of the calibration rows.
    n_iter_ : int
        Number of passes over all calibration rows.

    References
    ----------
    Le Coz, Herbin, Adjed (2024). Confidence calibration of classifiers with many classes.
    NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0, 1.0], [3.0, 0.0, 1.0], [0.0, 3.5, 1.0], [2.0, 0.0, 0.5]])
    >>> tva = TopVersusAllTemperature().fit(logits, [0, 1, 1, 0])
    >>> round(tva.temperature_, 4)
    1.4126
    """

    key = "ts-tva"
    title = "Top-versus-all temperature"
    short = "TS-TvA"
    cost = "O(nK) per pass, 4–8 passes"
    reference = "Le Coz et al. 2024, NeurIPS"

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        rows = np.arange(labels.size)
        top = scores.argmax(axis=1)
        # The objective sees only the other classes; the top logit is 0.
        scores[rows, top] = LOWEST_SHIFTED
        wrong = (top != labels).astype(np.intp)
        self._store(fit_temperature(top_versus_all_loss, scores, wrong, weight))

    _fit_folds = Calibrator._fit_folds


def softmax_at_temperature(shifted: Array, params: Parameters, xp: Any) -> Array:
    """Return ``softmax(shifted / T)`` of rows whose largest entry is 0."""

    def compute() -> Array:
        return softmax_of_shifted(multiply_in_place(shifted, 1.0 / params["temperature_"], xp), xp)

    return shared("tempered", compute, params, xp)


def apply_temperature(shifted: Matrix, temperature: float) -> Matrix:
    """Return ``softmax(shifted / temperature)``, computed in place, block by block."""
    params = Parameters({"temperature_": temperature})
    for at in row_blocks(*shifted.shape):
        softmax_at_temperature(shifted[at], params, np)
    return shifted


def fit_temperature(
    make_objective: ObjectiveFactory,
    shifted: Matrix,
    labels: Labels,
    weight: Vector | None,
    *,
    make_guide: ObjectiveFactory | None = None,
) -> ScalarOptimum:
    """Minimise over log(1/T), first on a subsample of the rows, then from there on all rows.

    For an objective that is flat far from its minimum, ``make_guide`` makes another one that
    gives the starting point.
    """
    sample = subsample(shifted, labels, weight)
    middle = start = -math.log(logit_unit(shifted, weight))
    if make_guide is not None or sample[0].shape[0] < shifted.shape[0]:
        start = _minimise((make_guide or make_objective)(*sample), start, middle).at
        # An extreme optimum, of a separable or uninformative sample, is a bad start.
        start = start if abs(start - middle) < 0.5 * LOG_SCALE_RADIUS else middle
    return _minimise(make_objective(shifted, labels, weight), start, middle)


def fit_fold_temperatures(
    loss: TemperedLoss, temperature: float, folds: Sequence[slice]
) -> list[ScalarOptimum]:
    """Minimise a loss over log(1/T) without one fold each, to seven digits.

    The searches start from the temperature of all rows, where one pass serves all of them.
    """
    start = -math.log(temperature)
    parts = [loss.sums(start, fold) for fold in folds]
    total = np.sum(parts, axis=0)

    def without(fold: slice, part: Vector) -> Objective:
        others = slice(0, fold.start), slice(fold.stop, loss.weight.size)
        share = sum(float(loss.weight[at].sum()) for at in others)

        def objective(point: float) -> tuple[float, float, float]:
            sums = total - part if point == start else sum(loss.sums(point, at) for at in others)
            return loss.from_sums(point, np.asarray(sums) / share)

        return objective

    pairs = zip(folds, parts, strict=True)
    return [_minimise(without(*pair), start, start, near=True) for pair in pairs]


def fit_shared_temperature(
    calibrator: Calibrator, shifted: Matrix, labels: Labels, weight: Vector | None
) -> ScalarOptimum:
    """Return the optimum of the cross-entropy, which several calibrators start with."""
    best: ScalarOptimum = calibrator._share(
        "temperature", lambda: fit_temperature(CrossEntropy, shifted, labels, weight)
    )
    return best


def fit_shared_fold_temperatures(calibrator: Any, rows: FoldRows) -> list[ScalarOptimum]:
    """Return the optimum of the cross-entropy without each fold."""

    def compute() -> list[ScalarOptimum]:
        loss = CrossEntropy(rows.scores("shifted"), rows.labels, rows.weight)
        return fit_fold_temperatures(loss, calibrator.temperature_, rows.folds)

    optima: list[ScalarOptimum] = rows.shared.get("temperatures", compute)
    return optima


def _minimise(
    objective: Objective, start: float, middle: float, *, near: bool = False
) -> ScalarOptimum:
    low, high = middle - LOG_SCALE_RADIUS, middle + LOG_SCALE_RADIUS
    return minimise_scalar(objective, start, low, high, floor=VANISHED_LOSS, near=near)


def logit_span(shifted: Matrix, weight: Vector | None) -> float:
    """Return the median difference between the largest and the smallest logit of a row.

    Masked classes and rows whose logits are all equal do not count.

    Examples
    --------
    >>> logit_span(np.array([[0.0, -2.0], [-6.0, 0.0], [0.0, LOWEST_SHIFTED]]), None)
    4.0
    """
    step = subsample_step(shifted)
    return median_span(row_spans(shifted[::step]), None if weight is None else weight[::step])


def row_spans(shifted: Matrix) -> Vector:
    """Return the difference between the largest and the smallest logit of each row."""
    lowest: Vector = shifted.min(axis=1, initial=0.0)
    masked = np.flatnonzero(lowest <= LOWEST_SHIFTED)
    some = shifted[masked]
    lowest[masked] = np.where(some > LOWEST_SHIFTED, some, 0.0).min(axis=1, initial=0.0)
    return -lowest


def median_span(spans: Vector, weight: Vector | None) -> float:
    """Return the median of positive spans, of rows with a positive weight."""
    spans = spans[spans > 0.0] if weight is None else spans[(spans > 0.0) & (weight > 0.0)]
    return float(np.median(spans)) if spans.size else 1.0


def logit_unit(shifted: Matrix, weight: Vector | None) -> float:
    """Return the power of two to divide logits of an unusual magnitude by; usually 1.

    Examples
    --------
    >>> rows = np.array([[0.0, -2.0], [-6.0, 0.0]])
    >>> logit_unit(rows, None), logit_unit(2.0**20 * rows, None), logit_unit(1e-9 * rows, None)
    (1.0, 524288.0, 4.656612873077393e-10)
    """
    span = logit_span(shifted, weight)
    low, high = _USUAL_SPANS
    if low <= span <= high:
        return 1.0
    return min(2.0 ** round(math.log2(span / _TARGET_SPAN)), _LARGEST_UNIT)


def subsample_step(scores: Matrix) -> int:
    """Return the distance between the rows of a subsample."""
    return max(1, scores.size // _SUBSAMPLE_ENTRIES)


def subsample(
    scores: Matrix, labels: Labels, weight: Vector | None
) -> tuple[Matrix, Labels, Vector | None]:
    """Return evenly spaced rows, enough for a starting point, or all rows if they are few."""
    selected = slice(None, None, subsample_step(scores))
    if weight is None or not weight[selected].any():
        return scores[selected], labels[selected], None
    return scores[selected], labels[selected], weight[selected]


def warn_about_temperature(calibrator: Calibrator, best: ScalarOptimum) -> None:
    """Warn if the temperature is at its bound or the search stopped early."""
    if best.converged:
        return
    temperature = math.exp(-best.at)
    if best.value <= VANISHED_LOSS or (best.at_bound and best.slope < 0.0):
        calibrator._warn(
            f"every calibration row is classified correctly, so there is no optimal temperature; "
            f"stopped at T = {temperature:.3g}. Fit on more rows, or on rows that the classifier "
            f"was not trained on"
        )
    elif best.at_bound:
        calibrator._warn(
            f"the scores carry no information about the labels, so the temperature grew to its "
            f"bound, T = {temperature:.3g}. Check that labels and scores have the same order "
            f"of rows and classes",
            blames_labels=True,
        )
    else:
        calibrator._warn(
            f"the search for the temperature did not converge: |slope| = {abs(best.slope):.3g} "
            f"at T = {temperature:.6g}. Check the scores for outliers"
        )


def positive_curvature(beta: float, slope: float, curvature: float) -> float:
    """Return the second derivative in log β, or its convex part if that is not positive."""
    convex = beta * beta * curvature
    return convex + beta * slope if convex + beta * slope > 0.1 * convex else convex


class TemperedLoss(ABC):
    """A mean loss of ``softmax(β·shifted)`` as a function of log β, from sums over rows."""

    def __init__(self, shifted: Matrix, labels: Labels, weight: Vector | None) -> None:
        self.shifted, self.labels = shifted, labels
        self.weight = row_weights(len(labels), weight)

    def __call__(self, log_beta: float) -> tuple[float, float, float]:
        """Return the loss of all rows, its derivative and a positive second derivative."""
        return self.from_sums(log_beta, self.sums(log_beta, slice(0, self.weight.size)))

    @abstractmethod
    def sums(self, log_beta: float, rows: slice) -> Vector:
        """Return weighted sums over some rows."""

    @abstractmethod
    def from_sums(self, log_beta: float, sums: Vector) -> tuple[float, float, float]:
        """Return what a call returns, from sums over all rows."""


class CrossEntropy(TemperedLoss):
    """The mean cross-entropy of ``softmax(β·shifted)`` as a function of log β."""

    def __init__(self, shifted: Matrix, labels: Labels, weight: Vector | None) -> None:
        super().__init__(shifted, labels, weight)
        self._label_logit = shifted[np.arange(labels.size), labels]
        self._buffer = block_buffer(*shifted.shape)
        self._ones = np.ones(shifted.shape[1])  # BLAS sums short rows several times faster

    def sums(self, log_beta: float, rows: slice) -> Vector:
        """Return the sums of the loss, its slope and its curvature in β."""
        beta = math.exp(log_beta)
        sums = np.zeros(3)
        for at in row_blocks_of(rows, self.shifted.shape[1]):
            z, w, label_logit = self.shifted[at], self.weight[at], self._label_logit[at]
            e = np.multiply(z, beta, out=self._buffer[: z.shape[0]])
            np.exp(e, out=e)
            total = e @ self._ones
            e *= z
            first = (e @ self._ones) / total
            second = np.vecdot(e, z) / total
            sums[0] += w @ (np.log(total) - beta * label_logit)
            sums[1] += w @ (first - label_logit)
            sums[2] += w @ (second - first * first)
        return sums

    def from_sums(self, log_beta: float, sums: Vector) -> tuple[float, float, float]:
        """Return the loss and its derivatives in log β."""
        beta, (value, slope, curvature) = math.exp(log_beta), sums.tolist()
        return value, beta * slope, positive_curvature(beta, slope, curvature)


def top_versus_all_loss(others: Matrix, wrong: Labels, weight: Vector | None) -> Objective:
    """Return the mean binary cross-entropy of the top class as a function of log β.

    With R = Σ exp(β·others) the top class has probability 1/(1 + R), so the loss of a row is
    log(1 + R), minus log R if the top class is wrong.
    """
    from scipy.special import expit  # only fitting needs SciPy

    rows, classes = others.shape
    highest = others.max(axis=1)
    w = row_weights(rows, weight)
    buffer = block_buffer(rows, classes)

    def objective(log_beta: float) -> tuple[float, float, float]:
        beta = math.exp(log_beta)
        value = slope = curvature = convex = 0.0
        for at in row_blocks(rows, classes):
            z, high, is_wrong = others[at], highest[at], wrong[at]
            e = np.subtract(z, high[:, None], out=buffer[: z.shape[0]])
            e *= beta
            np.exp(e, out=e)
            total = e.sum(axis=1)
            log_r = beta * high + np.log(total)
            e *= z
            first = e.sum(axis=1) / total
            second = np.vecdot(e, z) / total
            p_others = expit(log_r)
            convex_part = p_others * (1.0 - p_others) * first * first
            value += float(w[at] @ (np.logaddexp(0.0, log_r) - is_wrong * log_r))
            slope += float(w[at] @ ((p_others - is_wrong) * first))
            curvature += float(
                w[at] @ ((p_others - is_wrong) * (second - first * first) + convex_part)
            )
            convex += float(w[at] @ convex_part)
        exact = beta * beta * curvature + beta * slope
        return value, beta * slope, exact if exact > 0.0 else beta * beta * convex

    return objective
