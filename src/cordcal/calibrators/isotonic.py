"""Isotonic maps: monotone step functions of the probabilities, one a class or one for all."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cordcal._door import arrays
from cordcal._door.scores import Domain, Labels, Matrix, Vector, row_blocks
from cordcal.calibrators._base import Calibrator
from cordcal.calibrators._pav import fit_knots
from cordcal.calibrators.temperature import (
    cross_entropy,
    fit_temperature,
    tempered_softmax,
    warn_about_temperature,
)

# Rows mapped at a time: enough for one interpolation call a class to be cheap.
_ROWS = 2048

# The share of the original that makes the pooled map strictly increasing.
_TIE_BREAK = 1e-9


class IsotonicOneVsAll(Calibrator):
    """IROvA: an isotonic regression of each class against the rest, rows renormalised.

    For each class k, least-squares isotonic regression of 1[y = k] on the probability of
    k over all rows, linear between its knots and constant beyond them.  Exact zeros are
    kept; a row in which every class gets zero keeps its original probabilities.  There
    is nothing to tune.

    | Works on probabilities (the softmax of logits), in float64 whatever the input.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map may raise.
    | Cost: O(Kn log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of all classes' knots, one class after the other.
    knot_start_ : ndarray of int
        Where each class's knots begin; K + 1 entries.

    References
    ----------
    Zadrozny, Elkan (2002). Transforming classifier scores into accurate multiclass
    probability estimates. KDD.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    >>> irova = IsotonicOneVsAll(input="probabilities").fit(p, [0, 1, 0, 1])
    >>> irova.predict_proba(p)
    array([[1. , 0. ],
           [0.5, 0.5],
           [0.5, 0.5],
           [0. , 1. ]])
    """

    key = "irova"
    title = "Isotonic regression, one versus all"
    parameters = "knots"
    works_on: ClassVar[Domain] = "probabilities"
    keeps_argmax = False
    keeps_order = False
    takes_masked = True
    cost = "O(Kn log n)"
    reference = "Zadrozny and Elkan 2002, KDD"

    knot_x_: Vector
    knot_y_: Vector
    knot_start_: npt.NDArray[np.int64]

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        probabilities = self._inputs(working)
        knots = [
            fit_knots(probabilities[:, k].copy(), labels == k, weight)
            for k in range(probabilities.shape[1])
        ]
        self.knot_x_ = np.concatenate([x for x, _ in knots])
        self.knot_y_ = np.concatenate([y for _, y in knots])
        self.knot_start_ = np.cumsum([0, *(x.size for x, _ in knots)], dtype=np.int64)

    def _predict(self, working: Matrix) -> Matrix:
        pieces = list(zip(self.knot_start_[:-1], self.knot_start_[1:], strict=True))
        for start in range(0, working.shape[0], _ROWS):
            block = working[start : start + _ROWS]
            columns = self._inputs(block.copy()).T.copy(order="C")
            for column, (a, b) in zip(columns, pieces, strict=True):
                column[:] = np.interp(column, self.knot_x_[a:b], self.knot_y_[a:b])
            total = columns.sum(axis=0)
            empty = total == 0.0
            kept = self._original(block[empty])
            np.divide(columns.T, np.where(empty, 1.0, total)[:, None], out=block)
            block[empty] = kept
        return working

    def _inputs(self, working: Matrix) -> Matrix:
        """Return the probabilities that the regressions see; ``working`` may be overwritten."""
        return working

    def _original(self, working: Matrix) -> Matrix:
        """Return the original probabilities."""
        return working


class IsotonicOneVsAllTempered(IsotonicOneVsAll):
    """IROvA-TS: temperature scaling first, then IROvA on the tempered probabilities.

    The temperature minimises the cross-entropy exactly, as in `TemperatureScaling`.  It is
    no monotone map of a single class's probability, so the result differs from IROvA's.

    | Works on logits; log-probabilities give the same map.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map may raise.
    | Cost: O(Kn log n), and the passes of ``ts``.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.

    Attributes
    ----------
    temperature_ : float
        T.
    knot_x_, knot_y_, knot_start_ : ndarray
        As in `IsotonicOneVsAll`.

    References
    ----------
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for
    uncertainty calibration in deep learning. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 3.5], [2.0, 0.0]])
    >>> model = IsotonicOneVsAllTempered().fit(logits, [0, 1, 1, 0])
    >>> model.predict_proba(logits).round(3)
    array([[1. , 0. ],
           [0.5, 0.5],
           [0. , 1. ],
           [0.5, 0.5]])
    """

    key = "irova-ts"
    title = "Temperature, then isotonic one versus all"
    parameters = "1 + knots"
    works_on = "shifted"
    cost = "O(Kn log n)"
    reference = "Zhang et al. 2020, ICML"

    temperature_: float

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        best = fit_temperature(cross_entropy, working, labels, weight)
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        super()._fit(working, labels, weight)

    def _inputs(self, working: Matrix) -> Matrix:
        return tempered_softmax(working, self.temperature_)

    def _original(self, working: Matrix) -> Matrix:
        return arrays.softmax(working)


class IsotonicPooled(Calibrator):
    """IRM: one isotonic regression for all classes, made strict and renormalised.

    All n·K pairs (probability, is it the label) go into one isotonic regression g; the
    report is g(p) + 1e-9·p, rows divided by their sums.  The added share makes the map
    strictly increasing, so orders are kept; it needs float64, in which it is computed.
    There is nothing to tune.

    | Works on probabilities (the softmax of logits).
    | Keeps the argmax and the order; equal probabilities stay equal.
    | −inf logits count as probability 0.
    | Cost: O(nK log nK), one sort of all entries.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        The knots of g.

    References
    ----------
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for
    uncertainty calibration in deep learning. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    >>> irm = IsotonicPooled(input="probabilities").fit(p, [0, 1, 0, 1])
    >>> irm.predict_proba(p).round(3)
    array([[1. , 0. ],
           [0.5, 0.5],
           [0.5, 0.5],
           [0. , 1. ]])
    """

    key = "irm"
    title = "Isotonic regression, all classes pooled"
    parameters = "knots"
    works_on = "probabilities"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    cost = "O(nK log nK)"
    reference = "Zhang et al. 2020, ICML"

    knot_x_: Vector
    knot_y_: Vector

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        rows, classes = working.shape
        own = np.zeros((rows, classes), dtype=bool)
        own[np.arange(rows), labels] = True
        each = None if weight is None else np.repeat(weight, classes)
        self.knot_x_, self.knot_y_ = fit_knots(working.ravel(), own.ravel(), each)

    def _predict(self, working: Matrix) -> Matrix:
        for at in row_blocks(*working.shape):
            block = working[at]
            top = block.argmax(axis=1)
            mapped = np.interp(block, self.knot_x_, self.knot_y_)
            mapped += np.multiply(block, _TIE_BREAK, out=block)
            np.divide(mapped, mapped.sum(axis=1, keepdims=True), out=block)
            # Probabilities within 1e-7 of each other may round to a tie: the top one wins.
            tied = np.flatnonzero(block.argmax(axis=1) != top)
            block[tied, top[tied]] = np.nextafter(block[tied].max(axis=1), 2.0)
        return working
