"""Isotonic calibrators: monotone curves of the probabilities, without a parametric form.

One curve per class, rows renormalised: isotonic regression (``irova``), the same after
temperature scaling (``irova-ts``) and centred isotonic regression (``cir``).  One curve for all
classes: ``irm``, which keeps the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Array, Domain, Labels, Matrix, Vector
from cordcal.calibrators._base import Calibrator, FoldRows, Size
from cordcal.calibrators._curves import (
    FoldCurve,
    JoinedKnots,
    curve_parameters,
    elements_of,
    elements_of_hits,
    fit_centres,
    fit_knots,
    interpolate,
    join_knots,
    knots_of_elements,
)
from cordcal.calibrators._newton import ScalarOptimum
from cordcal.calibrators.temperature import (
    apply_temperature,
    fit_shared_fold_temperatures,
    fit_shared_temperature,
    softmax_at_temperature,
    warn_about_temperature,
)
from cordcal.expressions import (
    Parameters,
    add_in_place,
    chosen,
    copied,
    divide_in_place,
    multiply_in_place,
    row_max,
    row_sum,
    shares,
    softmax_of_shifted,
)

# This share of the original probabilities makes a map with flat pieces strictly increasing.
TIE_BREAK = 1e-9


class IsotonicOneVsAll(Calibrator):
    """IROvA: an isotonic regression of each class against the rest, rows renormalised.

    For each class k, least-squares isotonic regression of 1[y = k] on the probability of
    k over all rows, linear between its knots and constant beyond them.  Exact zeros stay
    zero; a row in which every class gets zero keeps its original probabilities.  There are
    no hyperparameters.

    | Works on probabilities (the softmax of logits), in float64 for any input.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map may raise.
    | Cost: O(Kn log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of all classes' knots, concatenated.
    knot_start_ : ndarray of int of shape (K + 1,)
        Index of each class's first knot.

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

    parameter_names: ClassVar[tuple[str, ...]] = ("knot_x_", "knot_y_", "knot_start_")

    knot_x_: Vector
    knot_y_: Vector
    knot_start_: npt.NDArray[np.int64]

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        curves = (
            self._fit_curve(scores[:, k].copy(), labels == k, weight)
            for k in range(scores.shape[1])
        )
        self.knot_x_, self.knot_y_, self.knot_start_ = self._join(curves)

    # What a fit gets from one class's column, labels and weights, and how these become knots.
    _fit_curve: ClassVar[Callable[..., Any]] = staticmethod(elements_of)
    _join: ClassVar[Callable[..., JoinedKnots]] = staticmethod(knots_of_elements)

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if rows.weight is not None or not rows.many:
            yield from super()._fit_folds(rows)
            return
        scores = rows.scores(self.works_on)
        curves = []
        for k in range(scores.shape[1]):
            column, positive = scores[:, k].copy(), rows.labels == k
            hits = [column[fold][positive[fold]] for fold in rows.folds]
            curves.append(FoldCurve([column[fold] for fold in rows.folds], hits))
        del scores  # frees memory for the predictions
        for number in range(len(rows.folds)):
            model = self._unfitted_copy(rows.original.classes)
            model.knot_x_, model.knot_y_, model.knot_start_ = knots_of_elements(
                curve.elements_without(number) for curve in curves
            )
            yield model

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        return curve_parameters(self.knot_x_, self.knot_y_, self.knot_start_)

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        return map_each_class(copied(scores, xp), lambda: scores, params, xp)


class IsotonicOneVsAllTempered(IsotonicOneVsAll):
    """IROvA-TS: temperature scaling first, then IROvA on the tempered probabilities.

    The temperature minimises the cross-entropy exactly, as in `TemperatureScaling`.  It is
    not a monotone map of a single class's probability, so the result differs from IROvA's.

    | Works on logits; log-probabilities give the same map.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map may raise.
    | Cost: O(Kn log n), plus the passes of ``ts``.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

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

    parameter_names = ("temperature_", "knot_x_", "knot_y_", "knot_start_")

    temperature_: float

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        best = fit_shared_temperature(self, scores, labels, weight)
        self._fit_tempered(best, scores, labels, weight)

    def _fit_tempered(
        self, best: ScalarOptimum, shifted: Matrix, labels: Labels, weight: Vector | None
    ) -> None:
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        super().fit_parameters(apply_temperature(shifted, self.temperature_), labels, weight)

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if not rows.many:
            yield from Calibrator._fit_folds(self, rows)
            return
        memory = np.empty(rows.original.raw.shape)
        optima = fit_shared_fold_temperatures(self, rows)
        for fold, best in zip(rows.folds, optima, strict=True):
            model = self._unfitted_copy(rows.original.classes)
            model._fit_tempered(best, *rows.without(fold, self.works_on, memory))
            yield model

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        return {"temperature_": np.asarray(self.temperature_), **super().parameters()}

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        inputs = softmax_at_temperature(copied(scores, xp), params, xp)
        return map_each_class(inputs, lambda: softmax_of_shifted(scores, xp), params, xp)


def map_each_class(
    probabilities: Array, original: Callable[[], Array], params: Parameters, xp: Any
) -> Array:
    """Apply each class's curve and renormalise; rows of zeros become ``original()``."""
    mapped = interpolate(probabilities, params, xp)
    total = row_sum(mapped, xp)
    empty = total == 0.0
    if xp is np and not np.count_nonzero(empty):
        return divide_in_place(mapped, total, xp)
    return xp.where(empty, original(), mapped / xp.where(empty, xp.ones_like(total), total))


class CentredIsotonic(IsotonicOneVsAll):
    """CIR: centred isotonic regression of each class against the rest, rows renormalised.

    Like `IsotonicOneVsAll`, but every flat piece of a class's isotonic regression shrinks to
    one point at the mean probability of its rows, and the map is linear between these
    points.  So it is strictly increasing between the outermost points.  Beyond them, 1e-9
    times the original probability is added to break ties.  There are no hyperparameters.

    | Works on probabilities (the softmax of logits), in float64 for any input.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the map may raise.
    | Cost: O(Kn log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of all classes' points, concatenated.
    knot_start_ : ndarray of int of shape (K + 1,)
        Index of each class's first point.

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

    _fit_folds = Calibrator._fit_folds

    _fit_curve = staticmethod(fit_centres)
    _join = staticmethod(join_knots)

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        return shares(
            add_in_place(interpolate(copied(scores, xp), params, xp), TIE_BREAK * scores, xp), xp
        )


class IsotonicPooled(Calibrator):
    """IRM: one isotonic regression for all classes, made strictly increasing, renormalised.

    One isotonic regression g is fitted to all n·K pairs of a probability and whether its class
    is the label.  The result is g(p) + 1e-9·p, rows divided by their sums.  The added term
    makes the map strictly increasing, so it keeps every order; this needs float64, which is
    used for any input.  There are no hyperparameters.

    | Works on probabilities (the softmax of logits).
    | Keeps the argmax and the order; equal probabilities stay equal.
    | −inf logits count as probability 0.
    | Cost: O(nK log nK), one sort of all entries.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.

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

    parameter_names = ("knot_x_", "knot_y_")

    knot_x_: Vector
    knot_y_: Vector

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        rows, classes = scores.shape
        at_label = np.arange(rows), labels
        if weight is None:
            elements = elements_of_hits(scores.reshape(-1), scores[at_label])
            self.knot_x_, self.knot_y_, _ = knots_of_elements([elements])
            return
        is_label = np.zeros((rows, classes), dtype=bool)
        is_label[at_label] = True
        entry_weight = np.repeat(weight, classes)
        self.knot_x_, self.knot_y_ = fit_knots(scores.ravel(), is_label.ravel(), entry_weight)

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if rows.weight is not None or not rows.many:
            yield from super()._fit_folds(rows)
            return
        scores = rows.scores(self.works_on)
        hits = scores[np.arange(len(scores)), rows.labels]
        curve = FoldCurve(
            [scores[fold].reshape(-1) for fold in rows.folds], [hits[fold] for fold in rows.folds]
        )
        del scores  # frees memory for the predictions
        for number in range(len(rows.folds)):
            model = self._unfitted_copy(rows.original.classes)
            elements = curve.elements_without(number)
            model.knot_x_, model.knot_y_, _ = knots_of_elements([elements])
            yield model

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        return curve_parameters(self.knot_x_, self.knot_y_)

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        top = scores.argmax(axis=1) if xp is np else xp.argmax(scores, axis=1)
        mapped = interpolate(copied(scores, xp), params, xp)
        mapped = shares(add_in_place(mapped, multiply_in_place(scores, TIE_BREAK, xp), xp), xp)
        return break_ties_to_first(mapped, top, xp)


def break_ties_to_first(probabilities: Array, top: Array, xp: Any) -> Array:
    """Raise the top class where rounding ties it: originals within 1e-7 of each other."""
    if xp is np:
        is_tied = probabilities.argmax(axis=1) != top
        if np.count_nonzero(is_tied):
            tied = np.flatnonzero(is_tied)
            probabilities[tied, top[tied]] = np.nextafter(probabilities[tied].max(axis=1), 2.0)
        return probabilities
    tied = (xp.argmax(probabilities, axis=1) != top)[:, None]
    above = row_max(probabilities, xp) * (1.0 + 2.0**-52)
    return xp.where(chosen(probabilities, top, xp) & tied, above, probabilities)
