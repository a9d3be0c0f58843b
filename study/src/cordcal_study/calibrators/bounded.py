"""Probability bounding (``pb``): a softmax with one lower and one upper bound for all classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Array, Labels, Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR, row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators.isotonic import TIE_BREAK, break_ties_to_first
from cordcal.calibrators.temperature import (
    CrossEntropy,
    apply_temperature,
    fit_temperature,
    softmax_at_temperature,
    warn_about_temperature,
)
from cordcal.expressions import (
    Parameters,
    add_in_place,
    maximum,
    minimum,
    multiply_in_place,
    shares,
)

# Maximum number of steps to find a row's factor.  Newton's method on a piecewise linear function
# needs about five; bisection brings the factor close first where Newton's method cannot start.
_MAX_STEPS = 36
# A sum this close to one counts as one.
_SUM_TOLERANCE = 2.0**-51
# The initial bracket of the factor.
_MIN_FACTOR, _MAX_FACTOR = 1e-30, 1e290
# The caps are searched on logistic scales.  At the first end a cap makes all probabilities
# uniform, at the second it has no effect.
_UNIFORM, _NO_EFFECT = -10.0, 30.0
# Points of the initial grid for a cap, two apart on its scale.
_GRID_POINTS = 21
# Maximum number of rounds over the two caps, which hardly depend on each other, and the relative
# gain below which the rounds end.
_MAX_ROUNDS, _MIN_GAIN = 50, 1e-13


class ProbabilityBounding(Calibrator):
    """PB: temperature scaling, then probabilities kept between two caps.

    After `TemperatureScaling` the probabilities of a row are multiplied by one factor and
    clipped to [lower, upper]; the factor makes the row sum to one (the box-constrained
    softmax).  The caps minimise the mean cross-entropy of probabilities clipped at 1e-12.  Two
    classes at one cap would tie, so 1e-9 times the tempered probabilities is added, which keeps
    their order.  There are no hyperparameters.

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
        The caps; 0 and 1 if they do not lower the loss.
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

    parameter_names = ("temperature_", "lower_", "upper_")

    temperature_: float
    lower_: float
    upper_: float
    objective_: float

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        best = fit_temperature(CrossEntropy, scores, labels, weight)
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        p = apply_temperature(scores, self.temperature_)
        self.lower_, self.upper_, self.objective_ = fit_caps(CappedLoss(p, labels, weight))

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        top = xp.argmax(scores, axis=1)
        p = softmax_at_temperature(scores, params, xp)
        capped = box_constrained(p, params["lower_"], params["upper_"], xp)
        # Divide by the sum, not by 1 + 1e-9, which a graph optimiser rounds to one.
        mixed = shares(add_in_place(capped, multiply_in_place(p, TIE_BREAK, xp), xp), xp)
        return break_ties_to_first(mixed, top, xp)


def box_constrained(p: Array, lower: Any, upper: Any, xp: Any) -> Array:
    """Return ``clip(c·p, lower, upper)`` with c such that rows sum to one.

    Examples
    --------
    >>> box_constrained(np.array([[0.7, 0.2, 0.1]]), 0.0, 0.5, np).round(4)
    array([[0.5   , 0.3333, 0.1667]])
    """

    def sums(factor: Array) -> tuple[Array, Array]:
        scaled = p * factor
        free = xp.where((scaled > lower) & (scaled < upper), p, xp.zeros_like(p))
        total = xp.sum(minimum(maximum(scaled, lower, xp), upper, xp), axis=1, keepdims=True)
        return total, xp.sum(free, axis=1, keepdims=True)

    factor = solve_factor(sums, xp.ones_like(xp.max(p, axis=1, keepdims=True)), xp)
    # With many masked classes a row may need to exceed the upper cap to sum to one.
    return shares(minimum(maximum(p * factor, lower, xp), upper, xp), xp)


def solve_factor(sums: Callable[[Array], tuple[Array, Array]], factor: Array, xp: Any) -> Array:
    """Return each row's factor c at which ``clip(c·p, lower, upper)`` sums to one.

    ``sums`` returns that sum and its derivative, the sum of the entries that are not clipped.
    Newton's method in a shrinking bracket; every fourth step takes the geometric mean of the
    bracket, in case Newton's method is slow.
    """
    low, high = factor * _MIN_FACTOR, factor * _MAX_FACTOR
    for step in range(_MAX_STEPS):
        total, free = sums(factor)
        excess = total - 1.0
        done = (excess <= _SUM_TOLERANCE) & (excess >= -_SUM_TOLERANCE)
        if xp is np and done.all():
            break
        above = excess > 0.0
        high, low = xp.where(above, factor, high), xp.where(above, low, factor)
        newton = factor - excess / xp.where(free > 0.0, free, xp.ones_like(free))
        in_bracket = (free > 0.0) & (newton >= low) & (newton <= high)
        middle = xp.sqrt(low) * xp.sqrt(high)
        candidate = middle if step % 4 == 3 else xp.where(in_bracket, newton, middle)
        factor = xp.where(done, factor, candidate)
    return factor


class CappedLoss:
    """The mean cross-entropy as a function of the caps; rows are sorted once."""

    def __init__(self, p: Matrix, labels: Labels, weight: Vector | None) -> None:
        rows, classes = p.shape
        self.classes: int = classes
        self.weight = row_weights(rows, weight)
        self.label_probability = p[np.arange(rows), labels]
        p.sort(axis=1)
        self.ascending = p
        self.cumulative = np.zeros((rows, self.classes + 1))
        np.cumsum(p, axis=1, out=self.cumulative[:, 1:])

    def __call__(self, lower: float, upper: float) -> float:
        """Return the loss of label probabilities, clipped at 1e-12."""

        def sums(factor: Vector) -> tuple[Vector, Vector]:
            rows = np.arange(factor.size)
            # Entries up to index `start` are at the lower cap, those from `end` on at the upper.
            start, end = self._count_at_most(lower / factor), self._count_at_most(upper / factor)
            free = self.cumulative[rows, end] - self.cumulative[rows, start]
            return lower * start + upper * (self.classes - end) + factor * free, free

        factor = solve_factor(sums, np.ones_like(self.label_probability), np)
        capped = np.clip(self.label_probability * factor, lower, upper)
        return float(-self.weight @ np.log(np.maximum(capped, LOG_FLOOR)))

    def _count_at_most(self, bound: Vector) -> npt.NDArray[np.intp]:
        """Return the number of entries of each sorted row that are at most its bound."""
        rows = np.arange(bound.size)
        count = np.zeros(bound.size, dtype=np.intp)
        for stride in 2 ** np.arange(self.classes.bit_length() - 1, -1, -1):
            candidate = np.minimum(count + stride, self.classes)
            count = np.where(self.ascending[rows, candidate - 1] <= bound, candidate, count)
        return count


def fit_caps(loss: CappedLoss) -> tuple[float, float, float]:
    """Return the best lower and upper cap and their loss, by alternating searches."""

    def upper_at(x: float) -> float:
        """Return the upper cap at a point of its scale, between 1/K and 1."""
        return 1.0 - (1.0 - 1.0 / loss.classes) / (1.0 + math.exp(x))

    def lower_at(x: float) -> float:
        """Return the lower cap at a point of its scale, between 1/K and 0."""
        return 1.0 / loss.classes / (1.0 + math.exp(x))

    # Both read the current value of the other cap.
    def loss_of_upper(x: float) -> float:
        return loss(lower, upper_at(x))

    def loss_of_lower(x: float) -> float:
        return loss(lower_at(x), upper)

    lower, upper = 0.0, 1.0
    best = loss(lower, upper)
    for _ in range(_MAX_ROUNDS):
        before = best
        x, value = _minimise(loss_of_upper)
        if value < best:
            upper, best = upper_at(x), value
        x, value = _minimise(loss_of_lower)
        if value < best:
            lower, best = lower_at(x), value
        if best >= before * (1.0 - _MIN_GAIN):
            break
    return lower, upper, best


def _minimise(loss: Callable[[float], float]) -> tuple[float, float]:
    """Return the minimiser of a cap's loss and the minimum: a grid, then Brent's method."""
    from scipy.optimize import minimize_scalar

    grid = np.linspace(_UNIFORM, _NO_EFFECT, _GRID_POINTS)
    at = int(np.argmin([loss(x) for x in grid]))
    bounds = grid[max(at - 1, 0)], grid[min(at + 1, _GRID_POINTS - 1)]
    result = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    return float(result.x), float(result.fun)
