"""Lift: preserve the prediction, and learn from labels how confident to be of it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, warn
from cordcal._numeric import arrays
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import (
    Array,
    ArrayLike,
    Arrays,
    DType,
    Floats,
    Meta,
    Predictions,
    Vector,
)
from cordcal._validation import layouts
from cordcal._validation.context import ContextValues
from cordcal._validation.labels import check_predictions, check_weights
from cordcal._validation.scores import as_matrix, check_same_shape
from cordcal._validation.table import match
from cordcal.repair import dispatch, engine, lift_rule, rule
from cordcal.repair.context import FittedContext, fit_context
from cordcal.repair.engine import Block
from cordcal.repair.fitted import FittedRepair, check_fitted, check_pair, output_array, output_dtype
from cordcal.repair.lift_rule import Curve, Margin, Prefer, fit_curve
from cordcal.repair.prediction_rule import PredictionRule, check_rule
from cordcal.repair.results import Explanation, LiftConstruction
from cordcal.repair.rule import RowState


@dataclass(frozen=True, slots=True)
class Masses:
    """The direct masses b on the predictions, and 1 − b, as two vectors."""

    mass: Vector
    rest: Vector


class Lift(FittedRepair):
    """Repair a calibrator's probabilities with labels: learn the confidence in each prediction.

    Like `CORD` it keeps the classifier's prediction strictly the largest entry.  Its probability
    is s = σ(α·log b − β·log(1 − b) + γ) with α, β ≥ 0, where b is its direct probability; `fit`
    learns the three parameters from whether the predictions are right.  The other classes keep
    their relative direct probabilities in all rows in which s is then the largest entry.

    In the other rows, at the bound, the labels speak against the prediction, and ``prefer``
    decides what is kept.  The margin over the other classes survives rounding to four decimals.

    The labels are used a second time.  Pass probabilities of rows the calibrator was not fitted
    on, or let `PreservingCalibrator` cross-fit them: an overfitted calibrator is too confident on
    the rows it was fitted on.

    Parameters
    ----------
    prefer : {"confidence", "likelihood"}
        What is kept in rows at the bound.  ``"confidence"`` keeps s, and brings the other
        classes below it in their order.  No confidence below 1/K can be on top: such rows share
        one confidence with the next ones, their mean.  ``"likelihood"`` raises s as little as
        possible: the prediction and its largest rivals share their mass equally, the others
        stay, and the confidence is above what the labels say.
    rule : "argmax", PredictionRule or array_like of shape (K,)
        How a vector predicts, as for `CORD`.

    Attributes
    ----------
    curve_ : Curve
        α, β and γ, and the confidence that low rows share.
    construction_ : LiftConstruction
        The record of `fit`: the parameters, losses before and after, rows at a bound.
    n_classes_ : int
        Number of classes seen by `fit`.
    rule_ : PredictionRule or None
        The rule, None for the argmax.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=200)
    >>> original = 0.8 * rng.dirichlet(np.ones(3), 200) + 0.2 * np.eye(3)[labels]
    >>> direct = rng.dirichlet(np.ones(3), 200) / 2 + original / 2
    >>> lift = Lift().fit(original, direct, labels)
    >>> bool((lift.transform(original, direct).argmax(axis=1) == original.argmax(axis=1)).all())
    True
    >>> lift.construction_.loss_after < lift.construction_.loss_before
    True
    """

    curve_: Curve
    construction_: LiftConstruction
    n_classes_: int
    # Set by `PreservingCalibrator.fit` with context=.
    context_: FittedContext | None = None

    def __init__(
        self,
        prefer: Prefer = "confidence",
        *,
        rule: Literal["argmax"] | PredictionRule | ArrayLike = "argmax",
    ) -> None:
        self.prefer = prefer
        self.rule = rule

    def fit(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        labels: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        axis: int | None = None,
    ) -> Self:
        """Learn the three parameters on calibration rows.

        Parameters
        ----------
        original : array_like of shape (n, K)
            The classifier's own probabilities.
        direct : array_like of shape (n, K)
            The calibrator's probabilities for the same rows, ideally rows it was not fitted on.
        labels : array_like of int of shape (n,)
            The true classes, as column indices.
        prediction : array_like of int, optional
            The class to preserve per row; by default the argmax of ``original`` (ties go to
            the smallest index).
        sample_weight : array_like, optional
            Weights of the rows; weight 2 equals the row twice.
        axis : int, optional
            The dimension of the classes, for dense arrays such as (B, K, H, W).

        Returns
        -------
        self : Lift
            The fitted repair.

        Notes
        -----
        Dask arrays and data frames are read on the workers that hold their blocks, which return
        a few numbers per row.
        """
        if labels is None:
            raise InputError("labels", "is missing", "Lift learns from labels; CORD needs none")
        rows = match(
            {"original": original, "direct": direct},
            labels=labels,
            prediction=prediction,
            sample_weight=sample_weight,
        )
        (original, direct), labels, names = rows.matrices, rows.labels, rows.columns
        prediction, sample_weight = rows.prediction, rows.sample_weight
        collection = layouts.lazy_handler(original, direct)
        if collection is None:
            classes = int(np.shape(direct)[-1 if axis is None else axis])
            weights = self.weights_for(classes, names)
            parts = list(
                _described(axis, original, direct, labels, prediction, sample_weight, weights)
            )
        elif axis is not None:
            raise InputError("axis", "is not supported for dask collections", "pass blocks of rows")
        else:
            weights = self.weights_for(int(np.shape(direct)[1]), names)
            classes, parts = collection.described(
                functools.partial(_described_block, weights),
                direct=direct,
                original=original,
                labels=labels,
                prediction=prediction,
                sample_weight=sample_weight,
            )
        if sample_weight is not None:
            whole = np.concatenate([part.weight for part in parts])
            check_weights(whole, len(whole))
        return self._learn(
            parts,
            classes,
            None,
            weighted=sample_weight is not None,
            prediction_given=prediction is not None,
            names=names,
        )

    def fit_checked(
        self,
        original: Floats,
        direct: Floats,
        labels: Predictions,
        prediction: Predictions,
        weight: Vector | None,
        *,
        held_out: Masses | None = None,
        context: ContextValues | None = None,
    ) -> Self:
        """Learn from checked rows.

        ``held_out`` replaces their direct masses by those of models not fitted on the rows;
        ``context`` are columns next to the scores.
        """
        class_weights = self.weights_for(direct.shape[1])
        parts = list(_labelled(original, direct, labels, prediction, weight, class_weights))
        weighted = weight is not None
        return self._learn(
            parts,
            direct.shape[1],
            held_out,
            weighted=weighted,
            prediction_given=True,
            context=context,
        )

    def _learn(
        self,
        parts: list[_LabelledRows],
        classes: int,
        held_out: Masses | None,
        *,
        weighted: bool,
        prediction_given: bool,
        names: list[str] | None = None,
        context: ContextValues | None = None,
    ) -> Self:
        check_prefer(self.prefer)
        rows = _LabelledRows(
            *(
                np.concatenate([getattr(part, field.name) for part in parts])
                for field in fields(_LabelledRows)
            )
        )
        weight = rows.weight if weighted else None
        masses = Masses(rows.mass, rows.rest) if held_out is None else held_out
        right = rows.label == rows.prediction
        fitted = fit_curve(masses.mass, masses.rest, right, weight)
        chosen_rule = check_rule(self.rule, classes, names=names)
        class_weights = self.weights_for(classes, names)
        margin = Margin.under_rule(classes, class_weights, np.float64)
        least = None
        if self.prefer == "confidence" and class_weights is None:
            least = float(margin.least(rows.prediction, xp=np))
            held_out_mass, _ = lift_rule.confidence(fitted.curve, masses.mass, masses.rest)
            curve = lift_rule.pool_low(fitted.curve, held_out_mass, least, weight)
            fitted = replace(fitted, curve=curve)
        curve = row_curve = fitted.curve
        fitted_context = None
        if context is not None:
            fitted_context = fit_context(
                context, rows.prediction, masses.mass, masses.rest, right, weight, fitted, least
            )
            row_curve = fitted_context.row_curves(context, rows.prediction)
        mass, rest = lift_rule.confidence(row_curve, rows.mass, rows.rest)
        construction = LiftConstruction(
            n=len(right),
            n_classes=classes,
            prefer=self.prefer,
            **curve._asdict(),
            ridge=fitted.ridge,
            credibility=fitted.credibility,
            loss_before=fitted.loss_before,
            loss_after=fitted.loss_after,
            gap=fitted.gap,
            cross_fitted=held_out is not None,
            n_right=int(right.sum()),
            n_changed=int(rows.changed.sum()),
            n_at_lower=int((mass < margin.bound(rows.lower, rows.prediction, xp=np)).sum()),
            n_at_upper=int((rest < rule.EPSILON).sum()),
            n_pooled=int((mass <= row_curve.pooled_below).sum()),
            prediction_given=prediction_given,
            effective_n=_effective(rows.weight),
        )
        # In one step, so that an interrupted fit leaves the previous one intact.
        self.__dict__.update(
            construction_=construction,
            curve_=curve,
            context_=fitted_context,
            n_classes_=construction.n_classes,
            rule_=chosen_rule,
            columns_=names,
        )
        return self

    def transform_checked(
        self,
        original: Floats,
        direct: Floats,
        prediction: Predictions,
        dtype: DType,
        context: ContextValues | None = None,
    ) -> Floats:
        """Repair a pair of matrices with checked predictions, and context if `fit` had it."""
        if context is None or self.context_ is None:
            return super().transform_checked(original, direct, prediction, dtype)
        out = output_array(direct, dtype, None, False)
        curve = self.context_.row_curves(context, prediction)
        self._repair_rows(original, direct, prediction, out, curve)
        return out

    def _repair_rows(
        self,
        original: Floats,
        direct: Floats,
        prediction: Predictions | None,
        out: Floats,
        curve: Curve | None = None,
    ) -> None:
        curve = self.curve_ if curve is None else curve
        weights = self.fitted_weights(out.dtype)
        margin = Margin.under_rule(direct.shape[1], weights, out.dtype)
        engine.visit_blocks(
            lambda block: self._write(block, curve.take(block.rows), margin, out[block.rows]),
            original,
            direct,
            prediction,
            weights,
        )

    def _write(self, block: Block, curve: Curve, margin: Margin, out: Floats) -> None:
        """Write the repaired rows of one block."""
        state = block.state
        mass, rest = _confidence(curve, state)
        low = np.flatnonzero(mass < margin.bound(state.lower, state.prediction, xp=np))
        if low.size:  # before ``out``, which may be the direct rows, is written
            some, keep = block.supplied[low].astype(np.float64), state.prediction[low]
            rows = lift_rule.rows_at_bound(some, keep, mass[low], self.prefer, margin)
        inside, inside_rest, _, _ = rule.clip_to_interval(mass, rest, state.lower, xp=np)
        block.write(inside, inside_rest, out)
        if low.size:
            out[low] = rule.make_first(rows.astype(out.dtype), keep, block.class_weights)

    def _repair_foreign(
        self, original: ArrayLike, direct: ArrayLike, prediction: Predictions | None, dtype: DType
    ) -> Any:
        weights = self.fitted_weights(dtype)
        state, part, wide = dispatch.describe_foreign(original, direct, prediction, weights)
        like = dispatch.weights_like(weights, wide)
        mass, rest = _confidence(self.curve_, state)
        return lift_rule.keep_prediction(wide, state, part, mass, rest, dtype, self.prefer, like)

    def explain_checked(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        prediction: Predictions | None,
        context: ContextValues | None = None,
    ) -> Explanation:
        """Explain rows with checked predictions, and context if `fit` had it."""
        curve = self.curve_
        if context is not None and self.context_ is not None and prediction is not None:
            curve = self.context_.row_curves(context, prediction)
        weights = self.fitted_weights()
        states = list(dispatch.row_states(original, direct, prediction, weights))
        state = RowState(
            *(
                np.concatenate([getattr(state, field.name) for state in states])
                for field in fields(RowState)
            )
        )
        margin = Margin.under_rule(direct.shape[1], weights, np.float64)
        reference, _ = lift_rule.confidence(curve, state.direct_mass, state.direct_rest)
        mass, rest = _confidence(curve, state)
        lower, high = margin.bound(state.lower, state.prediction, xp=np), rest < rule.EPSILON
        low = np.flatnonzero(mass < lower)
        repaired = np.where(high, 1.0 - rule.EPSILON, mass)
        if low.size:
            wide, keep = np.asarray(direct)[low].astype(np.float64), state.prediction[low]
            rows = lift_rule.rows_at_bound(wide, keep, mass[low], self.prefer, margin)
            repaired[low] = rows[np.arange(low.size), keep]
        return Explanation(
            state.prediction,
            state.direct_mass,
            reference,
            lower,
            repaired,
            state.changed,
            np.where(mass < lower, -1, np.where(high, 1, 0)).astype(np.int8),
        )

    def to_state(self) -> tuple[Arrays, Meta]:
        """Return the content of a model file: the three parameters and the construction."""
        check_fitted(self)
        tensors = {"curve": np.array(self.curve_), **self._rule_state()}
        meta = {"construction": self.construction_.to_dict(), "class_names": self.columns_}
        if self.context_ is not None:
            meta["context"] = self.context_.to_dict()
        return tensors, meta

    @classmethod
    def from_state(cls, tensors: dict[str, Floats], meta: Meta) -> Self:
        """Rebuild a fitted repair from the content of a model file."""
        lift = cls(meta["construction"]["prefer"])
        lift.construction_ = LiftConstruction.from_dict(meta["construction"])
        lift.curve_ = Curve(*tensors["curve"].tolist())
        lift.n_classes_ = lift.construction_.n_classes
        if "context" in meta:
            lift.context_ = FittedContext.from_dict(meta["context"])
        lift._restore_rule(tensors, meta)
        return lift

    def __repr__(self) -> str:
        parts = [] if self.prefer == "confidence" else [f"prefer={self.prefer!r}"]
        if not isinstance(self.rule, str):
            parts.append(f"rule={self.rule!r}")
        if hasattr(self, "curve_"):
            parts += [f"{name}={value:.6g}" for name, value in self.curve_._asdict().items()]
        return f"Lift({', '.join(parts)})"


def _confidence(curve: Curve, state: RowState) -> tuple[Array, Array]:
    """Return s and 1 − s of described rows."""
    mass, rest = lift_rule.confidence(curve, state.direct_mass, state.direct_rest)
    return lift_rule.pool(curve, mass, rest)


def check_prefer(prefer: object) -> None:
    """Raise an error unless the preference is one of the two."""
    if prefer not in ("confidence", "likelihood"):
        raise InputError("prefer", f"is {prefer!r}", 'write "confidence" or "likelihood"')


@dataclass(frozen=True, slots=True)
class _LabelledRows:
    """Calibration rows, described: vectors with one entry per row."""

    prediction: Predictions
    label: Predictions
    weight: Vector
    mass: Vector
    rest: Vector
    lower: Vector
    changed: npt.NDArray[np.bool_]


def _described(
    axis: int | None,
    original: ArrayLike,
    direct: ArrayLike,
    labels: ArrayLike,
    prediction: ArrayLike | None,
    weight: ArrayLike | None,
    class_weights: Vector | None,
) -> Iterator[_LabelledRows]:
    """Check and describe the rows; dense arrays in several views."""
    if not layouts.is_dense(axis, original, direct):
        yield from _checked(original, direct, labels, prediction, weight, class_weights)
        return
    assert axis is not None
    check_same_shape(original, "original", direct, "direct")
    row_vectors = (labels, prediction, weight)
    for _, (p, q), vectors in layouts.row_views(axis, (original, direct), row_vectors):
        label, keep, w = vectors
        yield from _checked(p, q, label, keep, w, class_weights)


def _described_block(
    class_weights: Vector | None,
    *,
    original: ArrayLike,
    direct: ArrayLike,
    labels: ArrayLike,
    prediction: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> list[_LabelledRows]:
    """Check and describe one block of a lazy collection."""
    return list(_checked(original, direct, labels, prediction, sample_weight, class_weights))


def _checked(
    original: ArrayLike,
    direct: ArrayLike,
    labels: ArrayLike,
    prediction: ArrayLike | None,
    weight: ArrayLike | None,
    class_weights: Vector | None,
) -> Iterator[_LabelledRows]:
    p, q = check_pair(original, direct)
    rows, classes = q.shape
    label = check_predictions(labels, rows, classes, "labels")
    keep = None if prediction is None else check_predictions(prediction, rows, classes)
    w = None if weight is None else check_weights(weight, rows, some=False)
    yield from _labelled(p, q, label, keep, w, class_weights)


def _labelled(
    original: Array,
    direct: Array,
    label: Predictions,
    prediction: Predictions | None,
    weight: Vector | None,
    class_weights: Vector | None,
) -> Iterator[_LabelledRows]:
    """Describe checked rows block by block."""
    w = np.ones(len(label)) if weight is None else weight
    start = 0
    for state in dispatch.row_states(original, direct, prediction, class_weights):
        at = slice(start, start + len(state.prediction))
        yield _LabelledRows(
            state.prediction,
            label[at],
            w[at],
            state.direct_mass,
            state.direct_rest,
            state.lower,
            state.changed,
        )
        start = at.stop


def _effective(weight: Vector) -> float:
    scaled = weight / weight.max()
    return float(scaled.sum() ** 2 / (scaled * scaled).sum())


def prediction_masses(direct: Vector, prediction: Predictions) -> Masses:
    """Return b and 1 − b, stabilised as in a repair, so that both are positive."""
    mass, rest = np.empty(len(direct)), np.empty(len(direct))
    for at in row_blocks(*direct.shape):
        mass[at], rest[at] = engine.prediction_masses(direct[at], prediction[at])
    return Masses(mass, rest)


def lift_confidences(
    confidence: ArrayLike,
    prediction: ArrayLike | None,
    rest: ArrayLike,
    prefer: Prefer = "confidence",
    *,
    dtype: DType | None = None,
) -> Floats:
    """Turn confidences in predictions into probabilities whose argmax is the prediction.

    This extends any scalar calibrator (of the largest probability, of "the prediction is
    right") to probabilities of all classes.

    Parameters
    ----------
    confidence : array_like of shape (n,)
        The probability that each prediction is right, between 0 and 1.
    prediction : array_like of int of shape (n,)
        The prediction per row, which becomes the largest entry.
    rest : array_like of shape (n, K)
        How to distribute one minus the confidence over the other classes, such as the
        classifier's probabilities: not negative, the entry at the prediction is ignored, rows
        need not sum to one, and a row of zeros means evenly.
    prefer : {"confidence", "likelihood"}
        What is kept where the confidence is too small to be the largest entry.
        ``"confidence"`` keeps it, and brings larger classes below it in their order;
        ``"likelihood"`` raises it as little as possible: the prediction and its largest rivals
        share their mass equally.
    dtype : dtype, optional
        float64, float32 or float16; by default that of ``rest``.  The prediction is strictly
        the largest entry in this dtype.

    Returns
    -------
    probabilities : ndarray of shape (n, K)
        One distribution per row.

    Warns
    -----
    UserWarning
        With ``prefer="confidence"``, if rows have a confidence so small (about 1/K) that the others
        cannot all be below it; it is raised just enough.

    Examples
    --------
    >>> rest = [[0.5, 0.3, 0.2], [0.7, 0.1, 0.2]]
    >>> lift_confidences([0.9, 0.4], [0, 2], rest).round(3)
    array([[0.9 , 0.06, 0.04],
           [0.4 , 0.2 , 0.4 ]])
    >>> lift_confidences([0.9, 0.4], [0, 2], rest, prefer="likelihood").round(3)
    array([[0.9  , 0.06 , 0.04 ],
           [0.462, 0.075, 0.463]])
    """
    check_prefer(prefer)
    matched = match(
        {"rest": rest},
        prediction=prediction,
        others={"confidence": confidence},
        leader="confidence",
    )
    prediction, confidence = matched.prediction, matched.others["confidence"]
    shares = arrays.to_numpy(as_matrix(matched.matrices[0], "rest", allow_row=True))
    matrix = np.atleast_2d(shares)
    rows, classes = matrix.shape
    keep = check_predictions(prediction, rows, classes)
    mass = _checked_confidence(confidence, rows)
    output = matrix.dtype if dtype is None else output_dtype(matrix, dtype)
    result = np.empty(matrix.shape, output)
    for at in row_blocks(rows, classes):
        result[at] = _lift_block(
            mass[at], keep[at], _checked_rest(matrix[at], at.start), output, prefer
        )
    if prefer == "confidence":
        _warn_if_infeasible(mass, classes)
    return result if shares.ndim == 2 else result[0]


def _lift_block(
    mass: Vector, prediction: Predictions, rest: Vector, dtype: DType, prefer: Prefer
) -> Floats:
    """Lift some rows, as distributions with half of their mass on the prediction."""
    chosen = rule.chosen_entries(rest, prediction, xp=np)
    others = np.where(chosen, 0.0, rest)
    # Scaled by the largest entry first, so that no sum of many large numbers overflows.
    largest = others.max(axis=1, keepdims=True)
    empty = largest == 0.0
    others = np.where(empty, ~chosen, others / np.where(empty, 1.0, largest))
    total = others.sum(axis=1, keepdims=True)
    half = np.where(chosen, 0.5, 0.5 * (others / total))
    part, unmoved = rule.split(half, prediction), np.zeros(len(mass), dtype=bool)
    state = rule.split_state(part, rule.normalised(part), prediction, unmoved, xp=np)
    return np.asarray(lift_rule.keep_prediction(half, state, part, mass, 1.0 - mass, dtype, prefer))


def _checked_confidence(confidence: ArrayLike, rows: int) -> Vector:
    array = np.atleast_1d(arrays.to_numpy(confidence, "confidence")).astype(np.float64)
    if array.shape != (rows,):
        raise InputError(
            "confidence",
            f"has shape {array.shape} but rest has {rows} rows",
            "pass one probability for each row",
        )
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(
            "confidence",
            "is not a probability",
            "pass numbers between 0 and 1",
            rows=np.flatnonzero(bad),
            detail=f"is {array[row]:.6g}, not a probability",
        )
    return array


def _checked_rest(rest: Floats, first: int) -> Vector:
    bad = ~((rest >= 0.0) & np.isfinite(rest)).all(axis=1)
    if bad.any():
        raise InputError(
            "rest",
            "contains a number that is negative, infinite or NaN",
            "pass shares, such as the classifier's probabilities",
            rows=first + np.flatnonzero(bad),
        )
    return rest.astype(np.float64)


def _warn_if_infeasible(mass: Vector, classes: int) -> None:
    least = float(Margin(classes).least(np.zeros(1, int), xp=np))
    infeasible = int(np.count_nonzero(mass < least))
    if infeasible:
        warn(
            f"confidence is below {least:.6g} in {infeasible:,} of {len(mass):,} rows, too little "
            f"to be on top of {classes} classes; it was raised to that"
        )
