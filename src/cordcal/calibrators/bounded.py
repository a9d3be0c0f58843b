"""Probability bounding: a softmax between a lower and an upper cap, the same for all classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.expressions import maximum, minimum, plus, shares, times
from cordcal._numeric.types import Array, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import LOG_FLOOR, row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators.isotonic import TIE_BREAK, break_ties_to_first
from cordcal.calibrators.temperature import (
    apply_temperature,
    cross_entropy,
    fit_temperature,
    softmax_at_temperature,
    warn_about_temperature,
)

# Steps in which a row's factor is found; Newton's method on a piecewise linear function
# needs about five, and halving brings it close where it cannot begin.
_STEPS = 36
# A sum this close to one is one; and where the search for the factor begins.
_EXACT, _SMALLEST, _LARGEST = 2.0**-51, 1e-30, 1e290
# The caps are searched on logistic scales: between these ends a cap goes from the uniform
# report to being idle.
_UNIFORM, _IDLE = -10.0, 30.0
# Points of the first look at a cap, two apart on its scale.
_LOOKS = 21
# Rounds over the two caps, which hardly depend on each other, and the gain that ends them.
_ROUNDS, _SETTLED = 50, 1e-13


class ProbabilityBounding(Calibrator):
    """PB: temperature scaling, then probabilities kept between two caps.

    After `TemperatureScaling` every probability is kept in [lower, upper]: what lies outside is
    cut, and the others are multiplied by one factor that makes the row sum to one (the
    box-constrained softmax).  The caps minimise the mean cross-entropy, its probabilities
    floored at 1e-12.  Two classes at one cap would tie: a share of 1e-9 of the tempered
    probabilities keeps them in order.  There is nothing to tune.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax, and the order except for ties at the lower cap.
    | −inf logits count as probability 0, and get the lower cap.
    | Cost: O(nK log K) once, and O(n log K) for each of some hundred pairs of caps.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

    Attributes
    ----------
    temperature_ : float
        T.
    lower_, upper_ : float
        The caps; 0 and 1 where they would not help.
    objective_ : float
        The mean cross-entropy of the calibration rows.

    References
    ----------
    Atarashi, Oyama, Arai, Kurihara (2026). Probability bounding: post-hoc calibration via
    box-constrained softmax. arXiv.  (The search for the caps is ours.)

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> pb = ProbabilityBounding().fit(logits, labels)
    >>> 0.0 <= pb.lower_ <= 1 / 3 <= pb.upper_ <= 1.0
    True
    """

    key = "pb"
    title = "Probability bounding"
    short = "PB"
    size = Size(fixed=3)
    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    cost = "O(nK log K), and O(n log K) per pass"
    reference = "Atarashi et al. 2026, arXiv"

    _holds = ("temperature_", "lower_", "upper_")

    temperature_: float
    lower_: float
    upper_: float
    objective_: float

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        best = fit_temperature(cross_entropy, working, labels, weight)
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        p = apply_temperature(working, self.temperature_)
        self.lower_, self.upper_, self.objective_ = fit_caps(CappedLoss(p, labels, weight))

    @classmethod
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        top = xp.argmax(working, axis=1)
        p = softmax_at_temperature(working, held, xp)
        capped = between(p, held["lower_"], held["upper_"], xp)
        # Not over 1 + 1e-9: a graph optimiser takes that for one.
        mixed = shares(plus(capped, times(p, TIE_BREAK, xp), xp), xp)
        return break_ties_to_first(mixed, top, xp)


def between(p: Array, lower: Any, upper: Any, xp: Any) -> Array:
    """Return the box-constrained softmax of log p: ``clip(c·p, lower, upper)`` that sums to one.

    Examples
    --------
    >>> between(np.array([[0.7, 0.2, 0.1]]), 0.0, 0.5, np).round(4)
    array([[0.5   , 0.3333, 0.1667]])
    """

    def sums(factor: Array) -> tuple[Array, Array]:
        scaled = p * factor
        free = xp.where((scaled > lower) & (scaled < upper), p, xp.zeros_like(p))
        total = xp.sum(minimum(maximum(scaled, lower, xp), upper, xp), axis=1, keepdims=True)
        return total, xp.sum(free, axis=1, keepdims=True)

    factor = find_factor(sums, xp.ones_like(xp.max(p, axis=1, keepdims=True)), xp)
    # Masked classes may leave too few for the upper cap: such rows exceed it.
    return shares(minimum(maximum(p * factor, lower, xp), upper, xp), xp)


def find_factor(sums: Callable[[Array], tuple[Array, Array]], factor: Array, xp: Any) -> Array:
    """Return each row's factor c at which ``clip(c·p, lower, upper)`` sums to one.

    ``sums`` returns that sum and its slope, the free entries' mass.  Newton's method inside a
    shrinking bracket, with a geometric mean now and then in case it creeps.
    """
    low, high = factor * _SMALLEST, factor * _LARGEST
    for step in range(_STEPS):
        total, free = sums(factor)
        excess = total - 1.0
        done = (excess <= _EXACT) & (excess >= -_EXACT)
        if xp is np and done.all():
            break
        above = excess > 0.0
        high, low = xp.where(above, factor, high), xp.where(above, low, factor)
        newton = factor - excess / xp.where(free > 0.0, free, xp.ones_like(free))
        sound = (free > 0.0) & (newton >= low) & (newton <= high)
        middle = xp.sqrt(low) * xp.sqrt(high)
        following = middle if step % 4 == 3 else xp.where(sound, newton, middle)
        factor = xp.where(done, factor, following)
    return factor


class CappedLoss:
    """The mean cross-entropy as a function of the caps, from rows sorted once."""

    def __init__(self, p: Matrix, labels: Labels, weight: Vector | None) -> None:
        rows, classes = p.shape
        self.classes: int = classes
        self.weight = row_weights(rows, weight)
        self.own = p[np.arange(rows), labels]
        p.sort(axis=1)
        self.rising = p
        self.sums = np.zeros((rows, self.classes + 1))
        np.cumsum(p, axis=1, out=self.sums[:, 1:])

    def __call__(self, lower: float, upper: float) -> float:
        """Return the loss; no probability counts as less than 1e-12."""

        def sums(factor: Vector) -> tuple[Vector, Vector]:
            cut, rest = self._up_to(lower / factor), self._up_to(upper / factor)
            rows = np.arange(factor.size)
            free = self.sums[rows, rest] - self.sums[rows, cut]
            return lower * cut + upper * (self.classes - rest) + factor * free, free

        factor = find_factor(sums, np.ones_like(self.own), np)
        kept = np.clip(self.own * factor, lower, upper)
        return float(-self.weight @ np.log(np.maximum(kept, LOG_FLOOR)))

    def _up_to(self, bound: Vector) -> npt.NDArray[np.intp]:
        """Return how many entries of each sorted row are at most its bound."""
        rows = np.arange(bound.size)
        found = np.zeros(bound.size, dtype=np.intp)
        for stride in 2 ** np.arange(self.classes.bit_length() - 1, -1, -1):
            further = np.minimum(found + stride, self.classes)
            found = np.where(self.rising[rows, further - 1] <= bound, further, found)
        return found


def fit_caps(loss: CappedLoss) -> tuple[float, float, float]:
    """Return the best caps and their loss, found one after the other until neither moves."""
    low, high = 0.0, 1.0
    best = loss(low, high)
    for _ in range(_ROUNDS):
        before = best
        at, value = _search(partial(_loss_of_upper, loss, low))
        if value < best:
            high, best = _upper(loss, at), value
        at, value = _search(partial(_loss_of_lower, loss, high))
        if value < best:
            low, best = _lower(loss, at), value
        if best >= before * (1.0 - _SETTLED):
            break
    return low, high, best


def _upper(loss: CappedLoss, x: float) -> float:
    """Return the upper cap at a point of its scale, between 1/K and 1."""
    return 1.0 - (1.0 - 1.0 / loss.classes) / (1.0 + math.exp(x))


def _lower(loss: CappedLoss, x: float) -> float:
    """Return the lower cap at a point of its scale, between 1/K and 0."""
    return 1.0 / loss.classes / (1.0 + math.exp(x))


def _loss_of_upper(loss: CappedLoss, lower: float, x: float) -> float:
    return loss(lower, _upper(loss, x))


def _loss_of_lower(loss: CappedLoss, upper: float, x: float) -> float:
    return loss(_lower(loss, x), upper)


def _search(loss: Callable[[float], float]) -> tuple[float, float]:
    """Return where a cap's loss is least, and that loss: a look around, then Brent's method."""
    from scipy.optimize import minimize_scalar

    looks = np.linspace(_UNIFORM, _IDLE, _LOOKS)
    at = int(np.argmin([loss(x) for x in looks]))
    ends = looks[max(at - 1, 0)], looks[min(at + 1, _LOOKS - 1)]
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-9})
    return float(found.x), float(found.fun)
