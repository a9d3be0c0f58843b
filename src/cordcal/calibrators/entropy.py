"""Entropy temperature (``hts``): a row's entropy sets its temperature; every order is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, Size, check_positive_integer
from cordcal.calibrators._newton import damped_newton, progress, sigmoid
from cordcal.calibrators.affine import warn_about_search
from cordcal.calibrators.temperature import (
    VANISHED_LOSS,
    CrossEntropy,
    fit_temperature,
    logit_unit,
    subsample,
)
from cordcal.expressions import (
    Parameters,
    divide_in_place,
    log,
    maximum,
    minimum,
    multiply_in_place,
    softplus,
)

# Lower bound of the entropy, divided by log K, before its logarithm is taken, as published.
_MIN_ENTROPY = 1e-12
# Temperatures, in the unit of the logits, are clipped to this interval; far outside it a softmax
# is one-hot or uniform.
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e5


class EntropyTemperature(Calibrator):
    """HTS: ``softmax(z / T)`` with a temperature that depends on the row's entropy.

    T = softplus(w·log H + b), where H is the entropy of the original probabilities divided by
    log K.  w and b minimise the mean cross-entropy, by Newton's method from the best
    temperature for all rows.  Logits of an unusual magnitude, whose entropies would all be 0 or
    log K, are divided by a unit first.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(nK) per pass, about ten passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    max_iter : int
        Maximum number of Newton steps; about ten are needed.

    Attributes
    ----------
    slope_, intercept_ : float
        w and b.
    unit_ : float
        Logits are divided by this first: 1, or a power of two if the range of a row's logits is
        typically below 1/16 or above 1024.
    objective_, gradient_norm_ : float
        The mean cross-entropy of the calibration rows, and the largest entry of its gradient.
    n_iter_ : int
        Number of Newton steps taken.

    References
    ----------
    Balanya, Maroñas, Ramos (2022). Adaptive temperature scaling for robust calibration of
    deep neural networks. arXiv.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> hts = EntropyTemperature().fit(logits, labels)
    >>> hts.n_iter_ < 20
    True
    """

    key = "hts"
    title = "Entropy temperature"
    short = "HTS"
    size = Size(fixed=2)
    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    cost = "O(nK) per pass, about 10 passes"
    reference = "Balanya et al. 2022, arXiv"

    parameter_names = ("unit_", "slope_", "intercept_")

    unit_: float = 1.0
    slope_: float
    intercept_: float
    objective_: float
    gradient_norm_: float
    n_iter_: int

    def __init__(self, *, input: Kind = "logits", max_iter: int = 100) -> None:
        super().__init__(input=input)
        self.max_iter = max_iter

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        check_positive_integer("max_iter", self.max_iter)
        self.unit_ = logit_unit(scores, weight)
        scores /= self.unit_
        problem = EntropyProblem(scores, labels, weight)
        with progress(self.key, scores.size) as report:
            best = damped_newton(
                problem,
                problem.start(),
                problem.step,
                max_iter=self.max_iter,
                floor=VANISHED_LOSS,
                report=report,
            )
        self.slope_, self.intercept_ = map(float, best.theta)
        self.objective_, self.n_iter_ = best.value, best.n_iter
        self.gradient_norm_ = best.gradient_norm
        warn_about_search(self, problem, best)

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        scores = multiply_in_place(scores, 1.0 / params["unit_"], xp)
        x = params["slope_"] * log_entropy(scores, xp) + params["intercept_"]
        temperature = minimum(maximum(softplus(x, xp), MIN_TEMPERATURE, xp), MAX_TEMPERATURE, xp)
        return divide_in_place(scores, temperature[:, None], xp)


def log_entropy(shifted: Array, xp: Any) -> Array:
    """Return the logarithm of each row's entropy divided by log K."""
    powers = xp.exp(shifted)
    total = xp.sum(powers, axis=1)
    # Masked logits have power 0, and 0 times −1e15 is 0.
    mean = xp.sum(powers * shifted, axis=1) / total
    entropy = (xp.log(total) - mean) / math.log(shifted.shape[1])
    return log(maximum(entropy, _MIN_ENTROPY, xp), xp)


class EntropyProblem:
    """The mean cross-entropy of ``softmax(β z)``, β = 1/softplus(u), u = w·log H + b."""

    def __init__(self, shifted: Matrix, labels: Labels, weight: Vector | None) -> None:
        rows = labels.size
        self.shifted, self.labels = shifted, labels
        self.weight = row_weights(rows, weight)
        self.label_logit = shifted[np.arange(rows), labels]
        entropies = [log_entropy(shifted[at], np) for at in row_blocks(*shifted.shape)]
        self.inputs = np.stack([np.concatenate(entropies), np.ones(rows)], axis=1)
        self.hessian: Matrix

    def start(self) -> Vector:
        """Return the parameters of the best temperature for all rows, but at least 1."""
        best = fit_temperature(CrossEntropy, *subsample(self.shifted, self.labels, self.weight))
        temperature = math.exp(-min(best.at, 0.0))
        return np.array([0.0, math.log(math.expm1(min(temperature, 100.0)))])

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient, and store a positive Hessian."""
        u = self.inputs @ theta
        temperature = np.logaddexp(0.0, u)
        clipped = np.clip(temperature, MIN_TEMPERATURE, MAX_TEMPERATURE)
        beta = 1.0 / clipped
        inside = clipped == temperature
        # dβ/du and d²β/du², zero where the temperature is clipped.
        gate = sigmoid(u)
        first = np.where(inside, -gate * beta**2, 0.0)
        second = np.where(inside, (2.0 * gate**2 * beta - gate * (1.0 - gate)) * beta**2, 0.0)
        value, slope, curvature = self._by_beta(beta)
        gradient = self.inputs.T @ (slope * first)
        convex = self._outer(curvature * first**2)
        exact = convex + self._outer(slope * second)
        # If the exact Hessian is not positive, its convex part gives a descent direction.
        self.hessian = exact if np.linalg.eigvalsh(exact)[0] > 0.0 else convex
        return value, gradient

    def _by_beta(self, beta: Vector) -> tuple[float, Vector, Vector]:
        """Return the mean loss and each row's weighted first two derivatives in its β."""
        value = 0.0
        slope, curvature = np.empty_like(beta), np.empty_like(beta)
        for at in row_blocks(*self.shifted.shape):
            z, w, label_logit = self.shifted[at], self.weight[at], self.label_logit[at]
            e = np.exp(z * beta[at, None])
            total = e.sum(axis=1)
            e *= z
            mean = e.sum(axis=1) / total
            value += float(w @ (np.log(total) - beta[at] * label_logit))
            slope[at] = w * (mean - label_logit)
            curvature[at] = w * (np.vecdot(e, z) / total - mean * mean)
        return value, slope, curvature

    def _outer(self, factor: Vector) -> Matrix:
        return np.asarray((self.inputs * factor[:, None]).T @ self.inputs)

    def step(self, theta: Vector, gradient: Vector) -> Vector:
        """Return the Newton step."""
        return -np.asarray(np.linalg.lstsq(self.hessian, gradient)[0], dtype=np.float64)

    def is_separated(self, value: float) -> bool:
        """Return whether every label has probability above 1/2: colder is always better."""
        return value < math.log(2.0) * float(self.weight[self.weight > 0.0].min())
