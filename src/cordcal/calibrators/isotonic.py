"""Isotonic maps: monotone functions of the probabilities, with steps or centred, and Venn-Abers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cordcal._numeric.expressions import chosen, exp, plus, shares, times
from cordcal._numeric.types import Array, Domain, Labels, Matrix, Parameters, Vector
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._curves import (
    fit_centres,
    fit_knots,
    interpolate,
    interpolate_each,
    search_strides,
    venn_abers_knots,
)
from cordcal.calibrators.temperature import (
    cross_entropy,
    fit_temperature,
    tempered,
    tempered_softmax,
    warn_about_temperature,
)

# The share of the original that makes the pooled map strictly increasing.
TIE_BREAK = 1e-9


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
    short = "IROvA"
    size = Size(curves_per_class=1)
    works_on: ClassVar[Domain] = "probabilities"
    keeps_argmax = False
    keeps_order = False
    takes_masked = True
    role = "base"
    cost = "O(Kn log n)"
    reference = "Zadrozny and Elkan 2002, KDD"

    _parameter_names: ClassVar[tuple[str, ...]] = ("knot_x_", "knot_y_", "knot_start_")
    # Enough for one interpolation call a class to be cheap.
    _min_block_rows = 2048

    knot_x_: Vector
    knot_y_: Vector
    knot_start_: npt.NDArray[np.int64]

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        knots = [
            self._curve(scores[:, k].copy(), labels == k, weight) for k in range(scores.shape[1])
        ]
        self.knot_x_ = np.concatenate([x for x, _ in knots])
        self.knot_y_ = np.concatenate([y for _, y in knots])
        self.knot_start_ = np.cumsum([0, *(x.size for x, _ in knots)], dtype=np.int64)

    def _curve(
        self, x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        """Return the knots of one class's curve."""
        return fit_knots(x, positive, weight)

    def _parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {**super()._parameters(), "stride_": search_strides(self.knot_x_, self.knot_start_)}

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        return each_class(scores, lambda: scores, params, xp)


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
    short = "IROvA-TS"
    size = Size(fixed=1, curves_per_class=1)
    works_on = "shifted"
    cost = "O(Kn log n)"
    reference = "Zhang et al. 2020, ICML"

    _parameter_names = ("temperature_", "knot_x_", "knot_y_", "knot_start_")

    temperature_: float

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        best = fit_temperature(cross_entropy, scores, labels, weight)
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        super()._fit(tempered_softmax(scores, self.temperature_), labels, weight)

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        inputs = tempered(scores * 1.0, params, xp)
        return each_class(inputs, lambda: shares(exp(scores, xp), xp), params, xp)


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
    short = "IRM"
    size = Size(curves=1)
    works_on = "probabilities"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    cost = "O(nK log nK)"
    reference = "Zhang et al. 2020, ICML"

    _parameter_names = ("knot_x_", "knot_y_")

    knot_x_: Vector
    knot_y_: Vector

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        rows, classes = scores.shape
        own = np.zeros((rows, classes), dtype=bool)
        own[np.arange(rows), labels] = True
        each = None if weight is None else np.repeat(weight, classes)
        self.knot_x_, self.knot_y_ = fit_knots(scores.ravel(), own.ravel(), each)

    def _parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {**super()._parameters(), "stride_": search_strides(self.knot_x_)}

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        top = xp.argmax(scores, axis=1)
        mapped = interpolate(scores, params, xp)
        mapped = shares(plus(mapped, times(scores, TIE_BREAK, xp), xp), xp)
        return break_ties_to_first(mapped, top, xp)


def each_class(
    probabilities: Array, original: Callable[[], Array], params: Parameters, xp: Any
) -> Array:
    """Return each class's curve, rows divided by their sums; empty rows stay as they were."""
    mapped = interpolate_each(probabilities, params, xp)
    total = xp.sum(mapped, axis=1, keepdims=True)
    empty = total == 0.0
    if xp is np and not empty.any():
        return np.divide(mapped, total, out=probabilities)
    return xp.where(empty, original(), mapped / xp.where(empty, xp.ones_like(total), total))


def break_ties_to_first(report: Array, top: Array, xp: Any) -> Array:
    """Raise the top class where it rounds to a tie: probabilities within 1e-7 of each other."""
    if xp is np:
        tied = np.flatnonzero(report.argmax(axis=1) != top)
        report[tied, top[tied]] = np.nextafter(report[tied].max(axis=1), 2.0)
        return report
    lost = (xp.argmax(report, axis=1) != top)[:, None]
    above = xp.max(report, axis=1, keepdims=True) * (1.0 + 2.0**-52)
    return xp.where(chosen(report, top, xp) & lost, above, report)


class CentredIsotonic(IsotonicOneVsAll):
    """CIR: centred isotonic regression of each class against the rest, rows renormalised.

    As `IsotonicOneVsAll`, but every flat piece of a class's isotonic regression shrinks to
    one point at the mean probability of its rows, and the map is linear between these
    points; so it rises strictly between the outermost ones.  Beyond them a share of 1e-9 of
    the original probability keeps rows apart.  There is nothing to tune.

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
        Abscissas and values of all classes' points, one class after the other.
    knot_start_ : ndarray of int
        Where each class's points begin; K + 1 entries.

    References
    ----------
    Oron, Flournoy (2017). Centered isotonic regression: point and interval estimation for
    dose-response studies. Statistics in Biopharmaceutical Research.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    >>> cir = CentredIsotonic(input="probabilities").fit(p, [0, 1, 0, 1])
    >>> cir.predict_proba([[0.6, 0.4]]).round(3)
    array([[0.571, 0.429]])
    """

    key = "cir"
    title = "Centred isotonic regression, one versus all"
    short = "CIR"
    cost = "O(Kn log n)"
    reference = "Oron and Flournoy 2017"

    def _curve(
        self, x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        return fit_centres(x, positive, weight)

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        return shares(interpolate_each(scores, params, xp) + TIE_BREAK * scores, xp)


class VennAbers(IsotonicOneVsAll):
    """Venn–Abers predictors of each class against the rest, rows renormalised.

    For each class two isotonic regressions of 1[y = k] on its probability: with the new row
    among the calibration rows as a miss, which gives p0, and as a hit, which gives p1.  The
    class's value is p1/(1 − p0 + p1); it is never 0.  There is nothing to tune.

    | Works on probabilities (the softmax of logits), in float64 whatever the input.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map raises.
    | Cost: O(Kn log n); the curves have up to 3n knots a class.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of all classes' steps, one class after the other.
    knot_start_ : ndarray of int
        Where each class's knots begin; K + 1 entries.

    References
    ----------
    Vovk, Petej, Fedorova (2015). Large-scale probabilistic predictors with and without
    guarantees of validity. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    >>> model = VennAbers(input="probabilities").fit(p, [0, 1, 0, 1])
    >>> model.predict_proba(p).round(3)
    array([[0.667, 0.333],
           [0.5  , 0.5  ],
           [0.5  , 0.5  ],
           [0.333, 0.667]])
    """

    key = "venn-abers"
    title = "Venn–Abers, one versus all"
    short = "Venn–Abers"
    cost = "O(Kn log n)"
    reference = "Vovk et al. 2015, NeurIPS"
    most_classes = 999, "keeps a curve of every row for each class, too large"

    def _curve(
        self, x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        return venn_abers_knots(x, positive, weight)
