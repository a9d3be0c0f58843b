"""Temperature maps: one positive number divides all logits, so every order is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cordcal._numeric.arrays import block_buffer, row_blocks
from cordcal._numeric.expressions import LOWEST_SHIFTED, exp, shares, times
from cordcal._numeric.types import Array, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._newton import ScalarOptimum, minimise_scalar

# log(1/T) is searched in this interval around that of the logits' unit: T between 1e-7 and 9e6
# units, beyond which a softmax is one-hot or uniform.
LARGEST_LOG = 16.0

# Logits whose rows span this much are as a network puts them out; their unit is one.
_ORDINARY_SPANS = 2.0**-4, 2.0**10
# What rows span in the unit of others: that of a classifier with some doubt.
_SPAN = 8.0
# Cut logits are −1e15, and must be far below the others in any unit.
_LARGEST_UNIT = 2.0**30

# A mean loss this small is separable data: no temperature is best, colder always wins.
VANISHED_LOSS = 1e-10

# Rows enough to start from: about 8 MB of float64.
_START_ENTRIES = 2**20

Objective = Callable[[float], tuple[float, float, float]]
"""Maps log(1/T) to the mean loss, its slope and a positive curvature."""

ObjectiveOf = Callable[[Matrix, Labels, Vector | None], Objective]


class TemperatureScaling(Calibrator):
    r"""Temperature scaling: ``softmax(z / T)`` with one T > 0 for all rows.

    T minimises the mean cross-entropy exactly: a safeguarded Newton search on log(1/T),
    started from a sample of the rows.  There is nothing to tune, so the only parameter
    is the kind of input.

    | Works on logits; log-probabilities give the same T.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(nK) a pass, three to six passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.

    Attributes
    ----------
    temperature_ : float
        T.
    objective_ : float
        The mean cross-entropy of the calibration rows.
    n_iter_ : int
        Passes over all calibration rows.

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
    cost = "O(nK) a pass, 3–6 passes"
    reference = "Guo et al. 2017, ICML"

    _parameter_names = ("temperature_",)

    temperature_: float
    objective_: float
    n_iter_: int

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        best = fit_temperature(self._objective, scores, labels, weight)
        self.temperature_ = math.exp(-best.at)
        self.objective_ = best.value
        self.n_iter_ = best.passes
        warn_about_temperature(self, best)

    @staticmethod
    def _objective(shifted: Matrix, labels: Labels, weight: Vector | None) -> Objective:
        return cross_entropy(shifted, labels, weight)

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        return tempered(scores, params, xp)


class TopVersusAllTemperature(TemperatureScaling):
    """TS-TvA: a temperature for the top class against all others.

    The same map as `TemperatureScaling`, but T minimises the binary cross-entropy between
    the largest probability and whether the largest class is right, exactly.

    | Works on logits; log-probabilities give the same T.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(nK) a pass, four to eight passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.

    Attributes
    ----------
    temperature_ : float
        T.
    objective_ : float
        The mean binary cross-entropy of the calibration rows.
    n_iter_ : int
        Passes over all calibration rows.

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
    cost = "O(nK) a pass, 4–8 passes"
    reference = "Le Coz et al. 2024, NeurIPS"

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        rows = np.arange(labels.size)
        top = scores.argmax(axis=1)
        # What is left of a row is its other classes; the top one's logit is 0.
        scores[rows, top] = LOWEST_SHIFTED
        super()._fit(scores, (top != labels).astype(np.intp), weight)

    @staticmethod
    def _objective(shifted: Matrix, labels: Labels, weight: Vector | None) -> Objective:
        return top_versus_all(shifted, labels, weight)


def tempered(shifted: Array, params: Parameters, xp: Any) -> Array:
    """Return ``softmax(shifted / T)``; the largest entry, 0, needs no shift."""
    return shares(exp(times(shifted, 1.0 / params["temperature_"], xp), xp), xp)


def tempered_softmax(shifted: Matrix, temperature: float) -> Matrix:
    """Return ``softmax(shifted / temperature)``, written over ``shifted``."""
    params = {"temperature_": temperature}
    for at in row_blocks(*shifted.shape):
        tempered(shifted[at], params, np)
    return shifted


def fit_temperature(
    objective_of: ObjectiveOf,
    shifted: Matrix,
    labels: Labels,
    weight: Vector | None,
    *,
    guide_of: ObjectiveOf | None = None,
) -> ScalarOptimum:
    """Minimise over log(1/T): first on a sample of the rows, then, from there, on all.

    An objective that is flat far from its minimum takes its start from another, the guide.
    """
    sample = sample_of(shifted, labels, weight)
    middle = start = -math.log(logit_unit(shifted, weight))
    if guide_of is not None or sample[0].shape[0] < shifted.shape[0]:
        start = _search((guide_of or objective_of)(*sample), start, middle).at
        # A separable or hopeless sample says little: begin in the middle then.
        start = start if abs(start - middle) < 0.5 * LARGEST_LOG else middle
    return _search(objective_of(shifted, labels, weight), start, middle)


def logit_span(shifted: Matrix, weight: Vector | None) -> float:
    """Return the median over rows of the distance between their largest and smallest logit.

    Masked classes do not count, nor rows in which all logits are equal.

    Examples
    --------
    >>> logit_span(np.array([[0.0, -2.0], [-6.0, 0.0], [0.0, LOWEST_SHIFTED]]), None)
    4.0
    """
    some = slice(None, None, max(1, shifted.size // _START_ENTRIES))
    rows = shifted[some] if weight is None else shifted[some][weight[some] > 0.0]
    lowest = np.where(rows > LOWEST_SHIFTED, rows, 0.0).min(axis=1, initial=0.0)
    spans = -lowest[lowest < 0.0]
    return float(np.median(spans)) if spans.size else 1.0


def logit_unit(shifted: Matrix, weight: Vector | None) -> float:
    """Return what to divide logits by that no network puts out: a power of two, mostly one.

    Examples
    --------
    >>> rows = np.array([[0.0, -2.0], [-6.0, 0.0]])
    >>> logit_unit(rows, None), logit_unit(2.0**20 * rows, None), logit_unit(1e-9 * rows, None)
    (1.0, 524288.0, 4.656612873077393e-10)
    """
    span = logit_span(shifted, weight)
    low, high = _ORDINARY_SPANS
    if low <= span <= high:
        return 1.0
    return min(2.0 ** round(math.log2(span / _SPAN)), _LARGEST_UNIT)


def sample_of(
    scores: Matrix, labels: Labels, weight: Vector | None
) -> tuple[Matrix, Labels, Vector | None]:
    """Return evenly spaced rows, enough for a first guess; all rows where they are few."""
    some = slice(None, None, max(1, scores.size // _START_ENTRIES))
    if weight is None or not weight[some].any():
        return scores[some], labels[some], None
    return scores[some], labels[some], weight[some]


def _search(objective: Objective, start: float, middle: float) -> ScalarOptimum:
    low, high = middle - LARGEST_LOG, middle + LARGEST_LOG
    return minimise_scalar(objective, start, low, high, floor=VANISHED_LOSS)


def warn_about_temperature(calibrator: Calibrator, best: ScalarOptimum) -> None:
    """Say what to do when the temperature ran away or the search was cut short."""
    if best.converged:
        return
    temperature = math.exp(-best.at)
    if best.value <= VANISHED_LOSS or (best.at_bound and best.slope < 0.0):
        calibrator._warn(
            f"every calibration row is classified correctly, so no temperature is best; it was "
            f"stopped at T = {temperature:.3g}. Fit on more rows, or rows the classifier was "
            f"not trained on"
        )
    elif best.at_bound:
        calibrator._warn(
            f"the scores say nothing about the labels, so the temperature grew to its bound, "
            f"T = {temperature:.3g}. Check that labels and scores are in the same row and "
            f"class order",
            blames_labels=True,
        )
    else:
        calibrator._warn(
            f"the search for the temperature did not converge: |slope| = {abs(best.slope):.3g} "
            f"at T = {temperature:.6g}. Check the scores for outliers"
        )


def positive_curvature(beta: float, slope: float, curvature: float) -> float:
    """Return the curvature in log β, or where that is not positive its convex part."""
    convex = beta * beta * curvature
    return convex + beta * slope if convex + beta * slope > 0.1 * convex else convex


def cross_entropy(shifted: Matrix, labels: Labels, weight: Vector | None) -> Objective:
    """Return the mean cross-entropy of ``softmax(β·shifted)`` as a function of log β."""
    rows, classes = shifted.shape
    own = shifted[np.arange(rows), labels]
    w = row_weights(rows, weight)
    buffer = block_buffer(rows, classes)
    ones = np.ones(classes)  # BLAS sums short rows several times faster

    def objective(log_beta: float) -> tuple[float, float, float]:
        beta = math.exp(log_beta)
        value = slope = curvature = 0.0
        for at in row_blocks(rows, classes):
            z = shifted[at]
            e = np.multiply(z, beta, out=buffer[: z.shape[0]])
            np.exp(e, out=e)
            total = e @ ones
            e *= z
            first = (e @ ones) / total
            second = np.vecdot(e, z) / total
            value += float(w[at] @ (np.log(total) - beta * own[at]))
            slope += float(w[at] @ (first - own[at]))
            curvature += float(w[at] @ (second - first * first))
        return value, beta * slope, positive_curvature(beta, slope, curvature)

    return objective


def top_versus_all(others: Matrix, wrong: Labels, weight: Vector | None) -> Objective:
    """Return the mean binary cross-entropy of the top class as a function of log β.

    With R = Σ exp(β·others) the top class has probability 1/(1 + R), so a row's loss is
    log(1 + R), less log R where the top class is wrong.
    """
    from scipy.special import expit  # a loaded map needs no SciPy

    rows, classes = others.shape
    highest = others.max(axis=1)
    w = row_weights(rows, weight)
    buffer = block_buffer(rows, classes)

    def objective(log_beta: float) -> tuple[float, float, float]:
        beta = math.exp(log_beta)
        value = slope = curvature = convex = 0.0
        for at in row_blocks(rows, classes):
            z, high, miss = others[at], highest[at], wrong[at]
            e = np.subtract(z, high[:, None], out=buffer[: z.shape[0]])
            e *= beta
            np.exp(e, out=e)
            total = e.sum(axis=1)
            log_r = beta * high + np.log(total)
            e *= z
            first = e.sum(axis=1) / total
            second = np.vecdot(e, z) / total
            rest = expit(log_r)
            bend = rest * (1.0 - rest) * first * first
            value += float(w[at] @ (np.logaddexp(0.0, log_r) - miss * log_r))
            slope += float(w[at] @ ((rest - miss) * first))
            curvature += float(w[at] @ ((rest - miss) * (second - first * first) + bend))
            convex += float(w[at] @ bend)
        exact = beta * beta * curvature + beta * slope
        return value, beta * slope, exact if exact > 0.0 else beta * beta * convex

    return objective
