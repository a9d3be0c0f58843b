"""Ensemble temperature scaling (``ets``): mixes tempered, original and uniform probabilities."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.expressions import exp, plus, shares, times
from cordcal._numeric.types import Array, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators.temperature import (
    Objective,
    apply_temperature,
    cross_entropy,
    fit_temperature,
    softmax_at_temperature,
    warn_about_temperature,
)


class EnsembleTemperature(Calibrator):
    """ETS: ``w0·softmax(z/T) + w1·softmax(z) + w2/K`` with weights on the simplex.

    T minimises the mean squared error of the tempered probabilities, then the weights
    minimise that of the mixture; both exactly, as published (squared error, not
    cross-entropy).  There are no hyperparameters.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order; equal logits stay equal.
    | −inf logits count as probability 0 and become w2/K.
    | Cost: O(nK) per pass, about ten passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

    Attributes
    ----------
    temperature_ : float
        T.
    weights_ : ndarray of shape (3,)
        Weights w0, w1, w2 of the tempered, original and uniform probabilities.
    objective_ : float
        The mean squared error over all n·K entries.

    References
    ----------
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for
    uncertainty calibration in deep learning. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 3.5], [2.0, 0.0]])
    >>> ets = EnsembleTemperature().fit(logits, [0, 1, 1, 0])
    >>> bool(abs(ets.weights_.sum() - 1.0) < 1e-12)
    True
    """

    key = "ets"
    title = "Ensemble temperature scaling"
    short = "ETS"
    size = Size(fixed=4)
    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    cost = "O(nK) per pass, about 10 passes"
    reference = "Zhang et al. 2020, ICML"

    _parameter_names = ("temperature_", "weights_")

    temperature_: float
    weights_: Vector
    objective_: float

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        near = None if self._near is None else self._near.temperature_
        best = fit_temperature(
            squared_error, scores, labels, weight, make_guide=cross_entropy, near=near
        )
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        self.weights_, self.objective_ = self._mix(scores, labels, weight)

    def _mix(self, shifted: Matrix, labels: Labels, weight: Vector | None) -> tuple[Vector, float]:
        """Return the best weights and their mean squared error."""
        rows, classes = shifted.shape
        w = row_weights(rows, weight) / classes
        gram, moment = np.zeros((3, 3)), np.zeros(3)
        for at in row_blocks(rows, classes):
            tempered = apply_temperature(shifted[at].copy(), self.temperature_)
            original = apply_temperature(shifted[at].copy(), 1.0)
            members = [tempered, original, np.full_like(tempered, 1.0 / classes)]
            label_entries = np.arange(tempered.shape[0]), labels[at]
            for i, first in enumerate(members):
                moment[i] += w[at] @ first[label_entries]
                for j, second in enumerate(members):
                    gram[i, j] += w[at] @ np.vecdot(first, second)
        return best_mixture(gram, moment, 1.0 / classes)

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        w0, w1, w2 = (params["weights_"][i] for i in range(3))
        mixed = times(softmax_at_temperature(scores * 1.0, params, xp), w0, xp)
        mixed = plus(mixed, times(shares(exp(scores, xp), xp), w1, xp), xp)
        return plus(mixed, w2 / scores.shape[1], xp)


def best_mixture(gram: Matrix, moment: Vector, constant: float) -> tuple[Vector, float]:
    """Minimise ``w·gram·w − 2 w·moment + constant`` over the simplex, exactly, face by face."""
    best: tuple[float, npt.NDArray[np.float64]] = (math.inf, np.zeros(moment.size))
    for size in range(1, moment.size + 1):
        for face in map(list, combinations(range(moment.size), size)):
            system = np.ones((size + 1, size + 1))
            system[:size, :size], system[size, size] = gram[np.ix_(face, face)], 0.0
            right = np.append(moment[face], 1.0)
            # Members may coincide (T = 1), so the system may be singular.
            inner = np.linalg.lstsq(system, right)[0][:size]
            if inner.min() < 0.0:
                continue
            weights = np.zeros(moment.size)
            weights[face] = inner / inner.sum()
            value = float(weights @ gram @ weights - 2.0 * weights @ moment + constant)
            if value < best[0]:
                best = value, weights
    return best[1], best[0]


def squared_error(shifted: Matrix, labels: Labels, weight: Vector | None) -> Objective:
    """Return the mean squared error of ``softmax(β·shifted)`` as a function of log β."""
    rows, classes = shifted.shape
    w = row_weights(rows, weight) / classes

    def objective(log_beta: float) -> tuple[float, float, float]:
        beta = math.exp(log_beta)
        value = slope = curvature = convex = 0.0
        for at in row_blocks(rows, classes):
            z = shifted[at]
            q = apply_temperature(z.copy(), 1.0 / beta)
            centred = z - np.vecdot(q, z)[:, None]
            first = q * centred  # dq/dβ
            second = first * centred - q * np.vecdot(first, centred)[:, None]  # d²q/dβ²
            error = q
            error[np.arange(q.shape[0]), labels[at]] -= 1.0
            value += float(w[at] @ np.vecdot(error, error))
            slope += 2.0 * float(w[at] @ np.vecdot(error, first))
            convex += 2.0 * float(w[at] @ np.vecdot(first, first))
            curvature += 2.0 * float(w[at] @ np.vecdot(error, second))
        exact = beta * beta * (convex + curvature) + beta * slope
        return value, beta * slope, exact if exact > 0.0 else beta * beta * convex

    return objective
