"""A temperature and a bias for each predicted class (``ts-class``).

The prediction selects the parameters and its bias is not negative, so the map keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from cordcal._numeric.types import Array, Kind, Labels, Matrix, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._newton import minimise_scalar, sigmoid
from cordcal.calibrators.temperature import (
    LOG_SCALE_RADIUS,
    VANISHED_LOSS,
    CrossEntropy,
    fit_temperature,
    logit_unit,
    positive_curvature,
    warn_about_temperature,
)
from cordcal.expressions import LOWEST_SHIFTED, Parameters, add_in_place, chosen, multiply_in_place

# With a larger bias the other classes get less than float64 resolves.
_MAX_BIAS = 40.0


class ClasswiseTemperature(Calibrator):
    """A temperature, and a bias of the top class, for each predicted class.

    Rows whose largest logit is class a become ``softmax(z / T_a + b_a e_a)`` with T_a > 0 and
    b_a ≥ 0.  Each class's mean cross-entropy is convex in 1/T_a and b_a; it is minimised
    exactly.  A class that is never predicted, or whose predictions are all correct, has no
    optimum: it takes the temperature of all rows and no bias.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the whole order; of tied top logits the first may be raised.
    | −inf logits keep probability 0.
    | Cost: O(nK) per pass, about twenty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    bias : bool
        Whether to fit biases as well as temperatures.

    Attributes
    ----------
    scale_ : ndarray of shape (K,)
        1/T of each predicted class.
    bias_ : ndarray of shape (K,)
        The bias of each predicted class.
    objective_ : float
        The mean cross-entropy of the calibration rows.

    References
    ----------
    Kirscher (2026). Calibration of segmentation networks under an argmax constraint. arXiv
    2607.01902.  (Parameters by predicted class; the map is our reading of the abstract.)

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> model = ClasswiseTemperature().fit(logits, labels)
    >>> bool((model.bias_ >= 0.0).all() and (model.scale_ > 0.0).all())
    True
    """

    key = "ts-class"
    title = "Temperature and bias by predicted class"
    short = "TS-class"
    size = Size(per_class=2)
    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    cost = "O(nK) per pass, about 20 passes"
    reference = "after Kirscher 2026, arXiv"

    parameter_names = ("scale_", "bias_")

    scale_: Vector
    bias_: Vector
    objective_: float

    def __init__(self, *, input: Kind = "logits", bias: bool = True) -> None:
        super().__init__(input=input)
        self.bias = bias

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        shared = fit_temperature(CrossEntropy, scores, labels, weight)
        warn_about_temperature(self, shared)
        self.scale_ = np.full(self.n_classes_, math.exp(shared.at))
        self.bias_ = np.zeros(self.n_classes_)
        middle = -math.log(logit_unit(scores, weight))
        for a, group in predicted_groups(scores, labels, weight):
            fitted = group.fit(shared.at, middle, bias=self.bias)
            if fitted is not None:
                self.scale_[a], self.bias_[a] = fitted
        label_probability = self._predict_in_domain(scores)[np.arange(labels.size), labels]
        log_loss = -np.log(np.maximum(label_probability, np.finfo(np.float64).tiny))
        self.objective_ = float(row_weights(labels.size, weight) @ log_loss)

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        prediction = xp.argmax(scores, axis=1)
        scale, bias = params["scale_"][prediction][:, None], params["bias_"][prediction][:, None]
        raised = xp.where(chosen(scores, prediction, xp), bias, xp.zeros_like(scores))
        return add_in_place(multiply_in_place(scores, scale, xp), raised, xp)


def predicted_groups(
    shifted: Matrix, labels: Labels, weight: Vector | None
) -> Iterator[tuple[int, PredictedGroup]]:
    """Yield each predicted class and its calibration rows."""
    w = row_weights(labels.size, weight)
    prediction = shifted.argmax(axis=1)
    order = np.argsort(prediction, kind="stable")
    order = order[w[order] > 0.0]
    predicted, first = np.unique(prediction[order], return_index=True)
    for a, rows in zip(predicted.tolist(), np.split(order, first[1:]), strict=True):
        yield a, PredictedGroup(a, shifted[rows], labels[rows], w[rows])


class PredictedGroup:
    """The calibration rows with predicted class a, whose logit is 0.

    With R = Σ exp(s·z) over the other classes, a row's loss is log(e^b + R), minus b if the
    prediction is correct and minus s·z_y if it is not.
    """

    def __init__(self, prediction: int, shifted: Matrix, labels: Labels, weight: Vector) -> None:
        self.correct = labels == prediction
        self.label_logit = shifted[np.arange(labels.size), labels]
        shifted[:, prediction] = LOWEST_SHIFTED
        self.others = shifted
        self.highest = shifted.max(axis=1)
        self.weight = weight / weight.sum()
        self.max_bias = _MAX_BIAS

    def fit(self, start: float, middle: float, *, bias: bool) -> tuple[float, float] | None:
        """Return the scale and bias of least cross-entropy, or None if larger is always better."""
        if self.correct.all():
            return None
        self.max_bias = _MAX_BIAS if bias else 0.0
        low, high = middle - LOG_SCALE_RADIUS, middle + LOG_SCALE_RADIUS
        best = minimise_scalar(self.profile, start, low, high, floor=VANISHED_LOSS)
        scale = math.exp(best.at)
        return scale, self.best_bias(self.log_sum_others(scale)[0])

    def profile(self, log_scale: float) -> tuple[float, float, float]:
        """Return the loss with the best bias, and two derivatives, as a function of log s."""
        s, w = math.exp(log_scale), self.weight
        log_others, first, second = self.log_sum_others(s)
        b = self.best_bias(log_others)
        p = sigmoid(log_others - b)
        variance = w * p * (1.0 - p)
        value = float(w @ (np.logaddexp(b, log_others) - b * self.correct - s * self.label_logit))
        slope = float(w @ (p * first - self.label_logit))
        curvature = float(w @ (p * second) + variance @ (first * first))
        if 0.0 < b < self.max_bias:  # the best bias depends on s
            curvature -= float(variance @ first) ** 2 / float(variance.sum())
        return value, s * slope, positive_curvature(s, slope, curvature)

    def log_sum_others(self, scale: float) -> tuple[Vector, Vector, Vector]:
        """Return log R and its first two derivatives in s."""
        e = np.exp(scale * (self.others - self.highest[:, None]))
        total = e.sum(axis=1)
        e *= self.others
        first = e.sum(axis=1) / total
        second = np.vecdot(e, self.others) / total - first * first
        return scale * self.highest + np.log(total), first, second

    def best_bias(self, log_others: Vector) -> float:
        """Return the best bias between 0 and its maximum."""

        def loss(b: float) -> tuple[float, float, float]:
            p = sigmoid(b - log_others)
            value = float(self.weight @ (np.logaddexp(b, log_others) - b * self.correct))
            slope = float(self.weight @ (p - self.correct))
            return value, slope, float(self.weight @ (p * (1.0 - p)))

        return minimise_scalar(loss, 0.0, 0.0, self.max_bias, floor=VANISHED_LOSS).at
