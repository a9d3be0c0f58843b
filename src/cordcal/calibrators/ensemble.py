"""Ensemble temperature scaling (``ets``): mixes tempered, original and uniform probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import row_blocks_of
from cordcal._numeric.types import Array, Labels, Matrix, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._base import Calibrator, FoldRows, Size
from cordcal.calibrators._newton import ScalarOptimum
from cordcal.calibrators.temperature import (
    CrossEntropy,
    TemperedLoss,
    apply_temperature,
    fit_fold_temperatures,
    fit_temperature,
    softmax_at_temperature,
    warn_about_temperature,
)
from cordcal.expressions import (
    Parameters,
    add_in_place,
    copied,
    multiply_in_place,
    softmax_of_shifted,
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

    parameter_names = ("temperature_", "weights_")

    temperature_: float
    weights_: Vector
    objective_: float

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        best = fit_temperature(SquaredError, scores, labels, weight, make_guide=CrossEntropy)
        ((gram, moment),) = _mixture_sums(
            scores, labels, row_weights(len(labels), weight), [best], [slice(0, 0)]
        )
        self._store(best, gram, moment)

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if not rows.many:
            yield from super()._fit_folds(rows)
            return
        loss = SquaredError(rows.scores(self.works_on), rows.labels, rows.weight)
        optima = fit_fold_temperatures(loss, self.temperature_, rows.folds)
        sums = _mixture_sums(loss.shifted, rows.labels, loss.weight, optima, rows.folds)
        for fold, best, (gram, moment) in zip(rows.folds, optima, sums, strict=True):
            share = float(np.delete(loss.weight, fold).sum())
            model = self._unfitted_copy(rows.original.classes)
            model._store(best, gram / share, moment / share)
            yield model

    def _store(self, best: ScalarOptimum, gram: Matrix, moment: Vector) -> None:
        """Set the fitted attributes; the weights minimise the mixture's mean squared error."""
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        self.weights_, self.objective_ = best_mixture(gram, moment, 1.0 / self.n_classes_)

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        weights = params["weights_"]
        w0, w1, w2 = weights.tolist() if xp is np else (weights[i] for i in range(3))
        mixed = multiply_in_place(softmax_at_temperature(copied(scores, xp), params, xp), w0, xp)
        mixed = add_in_place(mixed, multiply_in_place(softmax_of_shifted(scores, xp), w1, xp), xp)
        return add_in_place(mixed, w2 / scores.shape[1], xp)


def best_mixture(gram: Matrix, moment: Vector, constant: float) -> tuple[Vector, float]:
    """Minimise ``w·gram·w − 2 w·moment + constant`` over the simplex, exactly, face by face."""
    best: tuple[float, npt.NDArray[np.float64]] = (math.inf, np.zeros(moment.size))
    for size in range(1, moment.size + 1):
        for face in map(list, itertools.combinations(range(moment.size), size)):
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


def _mixture_sums(
    shifted: Matrix,
    labels: Labels,
    weight: Vector,
    optima: Sequence[ScalarOptimum],
    folds: Sequence[slice],
) -> list[tuple[Matrix, Vector]]:
    """Return the quadratic of the mixture's squared error for each temperature and left-out fold.

    Its parts are the products of the tempered, original and uniform probabilities with each
    other, and with the labels.
    """
    rows, classes = shifted.shape
    sums = [(np.zeros((3, 3)), np.zeros(3)) for _ in folds]
    edges = sorted({0, rows, *(fold.start for fold in folds), *(fold.stop for fold in folds)})
    for part in itertools.starmap(slice, itertools.pairwise(edges)):
        for at in row_blocks_of(part, classes):
            w, label_entries = weight[at] / classes, (np.arange(at.stop - at.start), labels[at])
            original = apply_temperature(shifted[at].copy(), 1.0)
            uniform = np.full_like(original, 1.0 / classes)
            for best, fold, (gram, moment) in zip(optima, folds, sums, strict=True):
                if fold.start <= at.start < fold.stop:
                    continue
                tempered = apply_temperature(shifted[at].copy(), math.exp(-best.at))
                members = [tempered, original, uniform]
                moment += [w @ member[label_entries] for member in members]
                for i, j in itertools.combinations_with_replacement(range(3), 2):
                    gram[i, j] += w @ np.vecdot(members[i], members[j])
    for gram, _ in sums:
        gram += np.triu(gram, 1).T
    return sums


class SquaredError(TemperedLoss):
    """The mean squared error of ``softmax(β·shifted)`` as a function of log β."""

    def sums(self, log_beta: float, rows: slice) -> Vector:
        """Return the sums of the loss, its slope and its curvature, in two parts, in β."""
        sums = np.zeros(4)
        for at in row_blocks_of(rows, self.shifted.shape[1]):
            z, w = self.shifted[at], self.weight[at] / self.shifted.shape[1]
            q = apply_temperature(z.copy(), math.exp(-log_beta))
            centred = z - np.vecdot(q, z)[:, None]
            first = q * centred  # dq/dβ
            second = first * centred - q * np.vecdot(first, centred)[:, None]  # d²q/dβ²
            error = q
            error[np.arange(q.shape[0]), self.labels[at]] -= 1.0
            sums[0] += w @ np.vecdot(error, error)
            sums[1] += 2.0 * (w @ np.vecdot(error, first))
            sums[2] += 2.0 * (w @ np.vecdot(first, first))
            sums[3] += 2.0 * (w @ np.vecdot(error, second))
        return sums

    def from_sums(self, log_beta: float, sums: Vector) -> tuple[float, float, float]:
        """Return the loss and its derivatives in log β."""
        beta, (value, slope, convex, curvature) = math.exp(log_beta), sums.tolist()
        exact = beta * beta * (convex + curvature) + beta * slope
        return value, beta * slope, exact if exact > 0.0 else beta * beta * convex
