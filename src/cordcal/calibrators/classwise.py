"""Temperatures for each predicted class: the decision picks the numbers, so it is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from cordcal._numeric.expressions import LOWEST_SHIFTED, chosen, plus, softmax, times
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._binary import sigmoid
from cordcal.calibrators._newton import minimise_scalar
from cordcal.calibrators.temperature import (
    LOG_SCALE_RADIUS,
    VANISHED_LOSS,
    cross_entropy,
    fit_temperature,
    logit_unit,
    positive_curvature,
    warn_about_temperature,
)

# A bias beyond this leaves the other classes less than float64 resolves.
_LARGEST_BIAS = 40.0


class ClasswiseTemperature(Calibrator):
    """A temperature, and a bias of the decision, for each predicted class.

    Rows whose largest logit is class a become ``softmax(z / T_a + b_a e_a)`` with T_a > 0 and
    b_a ≥ 0.  In terms of 1/T_a and b_a each class's mean cross-entropy is convex; it is
    minimised exactly.  A class that is never predicted, or whose predictions are all right,
    has no best numbers: it takes the temperature of all rows and no bias.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the whole order; of tied top logits the first may be raised.
    | −inf logits keep probability 0.
    | Cost: O(nK) per pass, about twenty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    bias : bool
        Whether the decision may gain a bias; without, these are temperatures only.

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

    _holds = ("scale_", "bias_")

    scale_: Vector
    bias_: Vector
    objective_: float

    def __init__(self, *, input: Kind = "logits", bias: bool = True) -> None:
        super().__init__(input=input)
        self.bias = bias

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        shared = fit_temperature(cross_entropy, working, labels, weight)
        warn_about_temperature(self, shared)
        self.scale_ = np.full(self.n_classes_, math.exp(shared.at))
        self.bias_ = np.zeros(self.n_classes_)
        middle = -math.log(logit_unit(working, weight))
        for a, group in predicted_groups(working, labels, weight):
            found = group.fit(shared.at, middle, bias=self.bias)
            if found is not None:
                self.scale_[a], self.bias_[a] = found
        self.objective_ = self._loss(working, labels, weight)

    @classmethod
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        decision = xp.argmax(working, axis=1)
        scale, bias = held["scale_"][decision][:, None], held["bias_"][decision][:, None]
        raised = xp.where(chosen(working, decision, xp), bias, xp.zeros_like(working))
        return softmax(plus(times(working, scale, xp), raised, xp), xp)

    def _loss(self, working: Matrix, labels: Labels, weight: Vector | None) -> float:
        own = self._predict(working)[np.arange(labels.size), labels]
        tiny = np.finfo(np.float64).tiny
        return float(-row_weights(labels.size, weight) @ np.log(np.maximum(own, tiny)))


def predicted_groups(
    shifted: Matrix, labels: Labels, weight: Vector | None
) -> Iterator[tuple[int, Group]]:
    """Yield each predicted class and its calibration rows."""
    w = row_weights(labels.size, weight)
    decision = shifted.argmax(axis=1)
    order = np.argsort(decision, kind="stable")
    order = order[w[order] > 0.0]
    predicted, first = np.unique(decision[order], return_index=True)
    for a, rows in zip(predicted.tolist(), np.split(order, first[1:]), strict=True):
        yield a, Group(a, shifted[rows], labels[rows], w[rows])


class Group:
    """The calibration rows of one decision a, whose own logits are 0.

    With R = Σ exp(s·z) over the other classes, a row's loss is log(e^b + R), less b where the
    decision is right and less s·z_y where it is not.
    """

    def __init__(self, decision: int, shifted: Matrix, labels: Labels, weight: Vector) -> None:
        self.right = labels == decision
        self.own = shifted[np.arange(labels.size), labels]
        shifted[:, decision] = LOWEST_SHIFTED
        self.others = shifted
        self.highest = shifted.max(axis=1)
        self.weight = weight / weight.sum()
        self.most = _LARGEST_BIAS

    def fit(self, start: float, middle: float, *, bias: bool) -> tuple[float, float] | None:
        """Return scale and bias of least cross-entropy; none where larger ones always win."""
        if self.right.all():
            return None
        self.most = _LARGEST_BIAS if bias else 0.0
        low, high = middle - LOG_SCALE_RADIUS, middle + LOG_SCALE_RADIUS
        best = minimise_scalar(self.profile, start, low, high, floor=VANISHED_LOSS)
        scale = math.exp(best.at)
        return scale, self.best_bias(self.rest(scale)[0])

    def profile(self, log_scale: float) -> tuple[float, float, float]:
        """Return the loss under the best bias as a function of log s."""
        s, w = math.exp(log_scale), self.weight
        log_rest, first, second = self.rest(s)
        b = self.best_bias(log_rest)
        share = sigmoid(log_rest - b)
        doubt = w * share * (1.0 - share)
        value = float(w @ (np.logaddexp(b, log_rest) - b * self.right - s * self.own))
        slope = float(w @ (share * first - self.own))
        curvature = float(w @ (share * second) + doubt @ (first * first))
        if 0.0 < b < self.most:  # the best bias moves along
            curvature -= float(doubt @ first) ** 2 / float(doubt.sum())
        return value, s * slope, positive_curvature(s, slope, curvature)

    def rest(self, scale: float) -> tuple[Vector, Vector, Vector]:
        """Return log R, and its two derivatives by s."""
        e = np.exp(scale * (self.others - self.highest[:, None]))
        total = e.sum(axis=1)
        e *= self.others
        first = e.sum(axis=1) / total
        second = np.vecdot(e, self.others) / total - first * first
        return scale * self.highest + np.log(total), first, second

    def best_bias(self, log_rest: Vector) -> float:
        """Return the best bias between 0 and the largest."""

        def loss(b: float) -> tuple[float, float, float]:
            share = sigmoid(b - log_rest)
            value = float(self.weight @ (np.logaddexp(b, log_rest) - b * self.right))
            slope = float(self.weight @ (share - self.right))
            return value, slope, float(self.weight @ (share * (1.0 - share)))

        return minimise_scalar(loss, 0.0, 0.0, self.most, floor=VANISHED_LOSS).at
