"""Isotonic maps: monotone step functions of the probabilities, one a class or one for all."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cordcal.calibrators._base import Calibrator
from cordcal.calibrators._pav import fit_knots
from cordcal.calibrators._scores import Domain, Kind, Labels, Matrix, Vector

# Rows mapped at a time: enough for one interpolation call a class to be cheap.
_ROWS = 2048


class IsotonicOneVsAll(Calibrator):
    """IROvA: an isotonic regression of each class against the rest, rows renormalised.

    For each class k, least-squares isotonic regression of 1[y = k] on the probability of
    k over all rows, linear between its knots and constant beyond them.  Exact zeros are
    kept; a row in which every class gets zero keeps its original probabilities.  There
    is nothing to tune.

    | Works on probabilities (the softmax of logits), in float64 whatever the input.
    | Does not keep the argmax.
    | −inf logits count as probability 0.
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

    key: ClassVar[str] = "irova"
    title: ClassVar[str] = "Isotonic regression, one versus all"
    parameters: ClassVar[str] = "knots"
    works_on: ClassVar[Domain] = "probabilities"
    keeps_argmax: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    takes_masked: ClassVar[bool] = True
    cost: ClassVar[str] = "O(Kn log n)"
    reference: ClassVar[str] = "Zadrozny and Elkan 2002, KDD"

    knot_x_: Vector
    knot_y_: Vector
    knot_start_: npt.NDArray[np.int64]

    def __init__(self, *, input: Kind = "logits") -> None:
        super().__init__(input=input)

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        self._fit_classes(working, labels, weight)

    def _fit_classes(self, probabilities: Matrix, labels: Labels, weight: Vector | None) -> None:
        knots = [
            fit_knots(probabilities[:, k].copy(), labels == k, weight)
            for k in range(probabilities.shape[1])
        ]
        self.knot_x_ = np.concatenate([x for x, _ in knots])
        self.knot_y_ = np.concatenate([y for _, y in knots])
        self.knot_start_ = np.cumsum([0, *(x.size for x, _ in knots)], dtype=np.int64)

    def _predict(self, working: Matrix) -> Matrix:
        return self._map_classes(working)

    def _map_classes(self, probabilities: Matrix) -> Matrix:
        """Interpolate class by class and renormalise, over the given rows."""
        pieces = list(zip(self.knot_start_[:-1], self.knot_start_[1:], strict=True))
        for start in range(0, probabilities.shape[0], _ROWS):
            block = probabilities[start : start + _ROWS]
            columns = block.T.copy(order="C")
            for column, (a, b) in zip(columns, pieces, strict=True):
                column[:] = np.interp(column, self.knot_x_[a:b], self.knot_y_[a:b])
            renormalise(columns.T, block)
        return probabilities


def renormalise(mapped: Matrix, original: Matrix) -> None:
    """Write the mapped rows divided by their sums over ``original``, all-zero rows apart."""
    total = mapped.sum(axis=1, keepdims=True)
    np.divide(mapped, total, out=original, where=total > 0.0)
