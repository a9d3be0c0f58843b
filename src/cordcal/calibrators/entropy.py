"""Entropy temperature: how undecided a row is sets its temperature, so every order is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.expressions import log, maximum, minimum, over, softmax, softplus, times
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, Size, check_positive_integer
from cordcal.calibrators._binary import sigmoid
from cordcal.calibrators._newton import damped_newton, progress
from cordcal.calibrators.affine import warn_about_search
from cordcal.calibrators.temperature import (
    VANISHED_LOSS,
    cross_entropy,
    fit_temperature,
    logit_unit,
    subsample,
)

# The smallest share of the largest entropy whose logarithm is taken, as published.
_LEAST_ENTROPY = 1e-12
# Temperatures, in the unit of the logits, are kept in this interval: far beyond, a softmax is
# one-hot or uniform anyway.
COLDEST, HOTTEST = 1e-3, 1e5


class EntropyTemperature(Calibrator):
    """HTS: ``softmax(z / T)`` with a temperature that depends on the row's entropy.

    T = softplus(w·log H + b), where H is the entropy of the original probabilities as a share
    of log K.  The two numbers minimise the mean cross-entropy, by Newton's method from the
    best temperature for all rows.  Logits of a size that no network puts out, whose entropies
    would all be 0 or log K, are divided by a unit first.

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
        What logits are divided by first: 1, or a power of two if the rows' logits span less than
        1/16 or more than 1024.
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

    _holds = ("unit_", "slope_", "intercept_")

    unit_: float = 1.0
    slope_: float
    intercept_: float
    objective_: float
    gradient_norm_: float
    n_iter_: int

    def __init__(self, *, input: Kind = "logits", max_iter: int = 100) -> None:
        super().__init__(input=input)
        self.max_iter = max_iter

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        check_positive_integer("max_iter", self.max_iter)
        self.unit_ = logit_unit(working, weight)
        working /= self.unit_
        problem = EntropyProblem(working, labels, weight)
        with progress(self.key, working.size) as report:
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
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        working = times(working, 1.0 / held["unit_"], xp)
        x = held["slope_"] * log_entropy(working, xp) + held["intercept_"]
        temperature = minimum(maximum(softplus(x, xp), COLDEST, xp), HOTTEST, xp)
        return softmax(over(working, temperature[:, None], xp), xp)


def log_entropy(shifted: Array, xp: Any) -> Array:
    """Return the logarithm of each row's entropy as a share of log K."""
    powers = xp.exp(shifted)
    total = xp.sum(powers, axis=1)
    # Cut-off logits have power 0, and 0 times −1e15 is 0.
    share = (xp.log(total) - xp.sum(powers * shifted, axis=1) / total) / math.log(shifted.shape[1])
    return log(maximum(share, _LEAST_ENTROPY, xp), xp)


class EntropyProblem:
    """The mean cross-entropy of ``softmax(β z)``, β = 1/softplus(u), u = w·log H + b."""

    def __init__(self, shifted: Matrix, labels: Labels, weight: Vector | None) -> None:
        rows = labels.size
        self.shifted, self.labels = shifted, labels
        self.weight = row_weights(rows, weight)
        self.own = shifted[np.arange(rows), labels]
        undecided = [log_entropy(shifted[at], np) for at in row_blocks(*shifted.shape)]
        self.inputs = np.stack([np.concatenate(undecided), np.ones(rows)], axis=1)
        self.hessian: Matrix

    def start(self) -> Vector:
        """Return the parameters of one temperature for all rows, no colder than the scores."""
        best = fit_temperature(cross_entropy, *subsample(self.shifted, self.labels, self.weight))
        temperature = math.exp(-min(best.at, 0.0))
        return np.array([0.0, math.log(math.expm1(min(temperature, 100.0)))])

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient; a positive Hessian is kept."""
        u = self.inputs @ theta
        temperature = np.logaddexp(0.0, u)
        clipped = np.clip(temperature, COLDEST, HOTTEST)
        beta = 1.0 / clipped
        inside = clipped == temperature
        # dβ/du and d²β/du², none where the temperature is cut.
        gate = sigmoid(u)
        first = np.where(inside, -gate * beta**2, 0.0)
        second = np.where(inside, (2.0 * gate**2 * beta - gate * (1.0 - gate)) * beta**2, 0.0)
        value, slope, curvature = self._by_beta(beta)
        gradient = self.inputs.T @ (slope * first)
        convex = self._outer(curvature * first**2)
        exact = convex + self._outer(slope * second)
        # Where the exact Hessian is not positive, its convex part leads downhill.
        self.hessian = exact if np.linalg.eigvalsh(exact)[0] > 0.0 else convex
        return value, gradient

    def _by_beta(self, beta: Vector) -> tuple[float, Vector, Vector]:
        """Return the mean loss and each row's weighted derivatives by its β."""
        value = 0.0
        slope, curvature = np.empty_like(beta), np.empty_like(beta)
        for at in row_blocks(*self.shifted.shape):
            z, w, own = self.shifted[at], self.weight[at], self.own[at]
            e = np.exp(z * beta[at, None])
            total = e.sum(axis=1)
            e *= z
            mean = e.sum(axis=1) / total
            value += float(w @ (np.log(total) - beta[at] * own))
            slope[at] = w * (mean - own)
            curvature[at] = w * (np.vecdot(e, z) / total - mean * mean)
        return value, slope, curvature

    def _outer(self, factor: Vector) -> Matrix:
        return np.asarray((self.inputs * factor[:, None]).T @ self.inputs)

    def step(self, theta: Vector, gradient: Vector) -> Vector:
        """Return the Newton step."""
        return -np.asarray(np.linalg.lstsq(self.hessian, gradient)[0], dtype=np.float64)

    def is_separated(self, value: float) -> bool:
        """Tell whether every row's own class has more than half: colder is always better."""
        return value < math.log(2.0) * float(self.weight[self.weight > 0.0].min())
