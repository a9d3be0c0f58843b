"""`PreservingCalibrator`: a calibrator and a repair. Confidence changes, predictions do not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.arrays import array_like, to_numpy
from cordcal._numeric.types import (
    Array,
    ArrayLike,
    Flags,
    Floats,
    Kind,
    Labels,
    NumPyArray,
    NumPyDType,
    Predictions,
    Vector,
)
from cordcal._validation import layouts
from cordcal._validation.caveats import bound_caveats, suppress_repeats, warn_about
from cordcal._validation.context import ContextValues, check_context, split_context
from cordcal._validation.context_caveats import context_caveats
from cordcal._validation.data_caveats import find_caveats
from cordcal._validation.labels import (
    check_labels,
    check_predictions,
    check_weights,
    cluster_numbers,
)
from cordcal._validation.names import Name, check_class_names
from cordcal._validation.scores import CheckedScores, as_scores, check_kind, check_scores
from cordcal._validation.table import MatchedRows, match
from cordcal.calibrators import Calibrator, make
from cordcal.calibrators.adapters import adapted, fit_calibrator, predict_calibrated
from cordcal.calibrators.crossfit import masses_held_out
from cordcal.calibrators.learnt_rule import LearntRule, learn_rule
from cordcal.certification import Certificate, certify
from cordcal.preserving.fit_rows import FitRows, repeated_ids
from cordcal.preserving.outputs import Outputs, output_dtype
from cordcal.preserving.state import StoredModel
from cordcal.repair import (
    CORD,
    ConfidenceGap,
    Construction,
    ContextEffect,
    Explanation,
    Lift,
    LiftConstruction,
    RankingConstruction,
)
from cordcal.repair.context import FittedContext
from cordcal.repair.decimals import check_decimals, round_to_decimals
from cordcal.repair.fitted import measure_gap
from cordcal.repair.lift_rule import Prefer
from cordcal.repair.options import check_repair_of_context, needs_context, new_repair
from cordcal.repair.prediction_rule import PredictionRule, check_rule

# Confidence and accuracy are compared on rows with this many entries: 100,000 rows of ten classes.
_MOST_MEASURED = 1_000_000


class PreservingCalibrator(StoredModel):
    """A calibrator that keeps predictions: it fits a calibrator, then a repair.

    ``PreservingCalibrator()`` is the default to use if you do not want to choose: a `Blend` of
    calibrators, repaired by `Lift`.  A calibrator that you name is repaired by `CORD`, unless
    you ask for ``repair="lift"``.

    The prediction is the argmax of the scores as passed, in their own dtype (the smallest
    index on ties), or what you pass as ``prediction``.  It is never recomputed from a softmax.

    A model trained with class weights or used with a threshold deliberately predicts another
    class than the likeliest in some rows.  With ``rule="learnt"`` its predictions are kept as the
    largest *weight times probability*: use `predict` or ``rule_.predict(probabilities)``, since
    the argmax of the probabilities can be another class.

    Parameters
    ----------
    calibrator : str or object, optional
        A key such as ``"svs"`` (see `cordcal.calibrators.describe`), a calibrator of
        cordcal, any object with ``fit(scores, labels)`` and ``predict_proba(scores)``, or
        anything else that `cordcal.compare` accepts as a calibrator.  By default ``"blend"``.
    repair : {"cord", "lift"} or Lift, optional
        `CORD` needs no labels and keeps the calibrator's mean confidence; `Lift` learns the
        confidence from the labels, on probabilities cross-fitted in five folds.  By default
        ``"lift"`` if no calibrator is named, else ``"cord"``.
    prefer : {"confidence", "likelihood"}, optional
        For `Lift`: what is kept in the rows whose prediction the labels speak against.  By
        default ``"confidence"``: it is what the labels say, and the other classes are brought
        below it.  ``"likelihood"`` has the lower log loss and a confidence that is too high there.
    input : {"logits", "probabilities"}, optional
        What the scores are.  By default the calibrator's own ``input``, else logits.
    preserve : int or "ranking"
        How many of the original's first ranks to keep, as for `CORD`: 1 keeps the prediction.
    prefit : bool
        The calibrator is already fitted: `fit` only fits the repair.  CORD then needs no
        labels; Lift does, and rows that the calibrator was not fitted on.
    rule : {"argmax", "learnt"}, PredictionRule or array_like of shape (K,)
        How probabilities predict.  By default the prediction is the largest of them.
        ``"learnt"`` finds one weight per class that explains the predictions from the direct
        probabilities, without labels; weights may also be passed, such as the class weights of
        training.  ``preserve`` must then be 1.
    class_names : sequence, optional
        One name per column; `predict` then returns names.  By default the columns of the data
        frame passed to `fit`, if there is one: labels may be among them, and `predict` returns
        what the labels were, names or column indices.  If the names are integers other than
        0..K-1 in order, numeric labels are names.  Columns of later frames are matched by name.

    Attributes
    ----------
    calibrator_ : object
        The fitted calibrator.
    repair_ : CORD or Lift
        The fitted repair.
    construction_ : Construction, RankingConstruction or LiftConstruction
        A record of the fit of the repair.
    rule_ : PredictionRule or None
        The rule that predicts from the repaired probabilities; None for the argmax.
    learnt_rule_ : LearntRule or None
        With ``rule="learnt"``, how many predictions the weights explain.
    confidence_ : ConfidenceGap or None
        Confidence minus accuracy on the calibration rows before and after, and how many
        predictions are kept against the evidence; None without labels.
    certificate_ : Certificate or None
        What `certify` found on rows that were not used to fit; None before.
    n_classes_ : int
        Number of classes.
    classes_ : ndarray of shape (K,)
        What `predict` returns for each column: its name, or its index.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> model = PreservingCalibrator().fit(logits, labels)
    >>> bool((model.predict_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    True
    >>> model = PreservingCalibrator("irova").fit(logits, labels)
    >>> bool((model.direct_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    False
    >>> bool((model.predict_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    True
    """

    n_classes_: int
    columns_: list[str] | None
    learnt_rule_: LearntRule | None = None
    # Metrics on rows held out, as `cordcal fit` stores them for the model card.
    measured_: dict[str, Any] | None = None
    # The names that fit's labels used, from class_names or from a data frame.
    _label_names: list[Name] | None = None

    def __init__(
        self,
        calibrator: Any = None,
        *,
        repair: Literal["cord", "lift"] | Lift | None = None,
        prefer: Prefer | None = None,
        input: Kind | None = None,
        preserve: int | Literal["ranking"] = 1,
        prefit: bool = False,
        rule: Literal["argmax", "learnt"] | PredictionRule | ArrayLike = "argmax",
        class_names: Sequence[Name] | None = None,
    ) -> None:
        self.calibrator = calibrator
        self.repair = repair
        self.prefer = prefer
        self.input = input
        self.preserve = preserve
        self.prefit = prefit
        self.rule = rule
        self.class_names = class_names

    def fit(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        axis: int | None = None,
        ignore_index: int | None = None,
    ) -> Self:
        """Fit the calibrator and the repair on the same calibration rows.

        Rows of pandas objects are matched by index (:doc:`the rule </start>`). Arguments without
        an index are matched to the scores by position.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            The classifier's logits or probabilities; see ``input``.
        labels : array_like of int of shape (n,)
            The true classes, as column indices or class names. Not needed with
            ``prefit=True`` and CORD.
        prediction : array_like of shape (n,), optional
            The classifier's predictions, as column indices or class names, where they are not
            the argmax of the scores; `predict_proba` then needs those of its rows.
        context : data frame or mapping of str to array_like, optional
            Columns that say how far to trust a prediction, by name: numbers, categories (text or
            bool), or a second opinion, which is a matrix of another model's scores of the same
            kind and classes; that model must not have been fitted on these rows.  They change
            the confidence and never the prediction, need `Lift`, and `predict_proba` then needs
            them too.  None or NaN where a value is unknown.
        sample_weight : array_like of shape (n,), optional
            Weights of the rows, for the calibrator and for the repair.  Weight 2 equals the row
            twice, and weights that sum to one count as a single row.
        clusters : array_like of shape (n,), optional
            What rows belong to, such as a patient, user or session.  Blend and lift learn from
            rows that they hold out; rows of one cluster are then held out together, in place of
            rows with equal scores.
        ids : array_like of shape (n,), optional
            What identifies the rows, so that `certify` can refuse rows of the fit.
        axis : int, optional
            The dimension of the classes, for dense scores such as (B, K, H, W). Labels and
            weights then have the shape without that dimension.
        ignore_index : int, optional
            The label of rows or positions without a label; they are left out.

        Returns
        -------
        self : PreservingCalibrator
            The fitted model.

        Warns
        -----
        UserWarning
            If scores or labels look like a mistake: accuracy below the share of the most
            frequent class or no better than with shuffled labels; labels numbered from 1; columns
            in another order, or one that is not a class; percentages; a softmax applied
            twice; the same scores in every row; fewer than 20 rows; no wrong prediction; a class
            without rows.  And if 5 % of the predictions or more are kept against the evidence.
        """
        vectors, opinions = split_context(context)
        rows = match(
            {"scores": scores, **opinions},
            class_names=self.class_names,
            labels=labels,
            prediction=prediction,
            sample_weight=sample_weight,
            clusters=clusters,
            ids=ids,
            others=vectors,
            ignore_index=ignore_index,
        )
        scores, labels, columns = rows.matrices[0], rows.labels, rows.columns
        prediction, sample_weight = rows.prediction, rows.sample_weight
        clusters = rows.clusters
        if context is not None:
            self._check_context_options(axis, ignore_index)
        if layouts.is_dense(axis, scores) or ignore_index is not None:
            scores, labels, sample_weight, prediction, clusters = layouts.rows_to_fit(
                axis, rows.ignore_index, scores, labels, sample_weight, prediction, clusters
            )
        kind = self.score_kind()
        array = as_scores(scores)
        if self.class_names is not None:
            check_class_names(self.class_names, array.shape[1])
        by_argmax = isinstance(self.rule, str) and self.rule == "argmax"
        if not isinstance(self.rule, str):
            # Before the calibrator is fitted.
            check_rule(self.rule, array.shape[1], "scores", columns)
        if labels is not None and isinstance(self.calibrator, str | Calibrator | None):
            labels = check_labels(labels, *array.shape)  # a foreign calibrator checks its own
        weight = None if sample_weight is None else check_weights(sample_weight, len(array))
        original = CheckedScores.from_scores(array, kind, fitting=not self.prefit)
        if prediction is not None:
            keep = check_predictions(prediction, *array.shape)
            original = replace(original, prediction=keep)
        if clusters is not None:
            original = replace(original, clusters=cluster_numbers(clusters, len(array)))
        fit_rows = FitRows.of(original.raw, rows.ids)
        checked_context = None if context is None else check_context(rows, context, kind)
        truth = _indices_or_none(labels, array.shape)
        caveats = find_caveats(original, truth, weight, columns, by_argmax=by_argmax)
        if checked_context is not None and truth is not None:
            caveats += context_caveats(checked_context, original.prediction, truth, weight)
        warn_about(caveats)
        with suppress_repeats(caveats):
            self.fit_checked(
                original,
                labels,
                weight,
                columns=columns,
                label_names=rows.label_names,
                prediction_given=prediction is not None,
                context=checked_context,
            )
        self.confidence_ = self._measure_confidence(original, truth, weight, checked_context)
        self._fit_rows = fit_rows
        is_lifted = isinstance(self.repair_, Lift)
        if self.confidence_ is not None and is_lifted and not caveats:
            warn_about(bound_caveats(self.confidence_.sentence))
        return self

    def _measure_confidence(
        self,
        original: CheckedScores,
        labels: Labels | None,
        weight: Vector | None,
        context: ContextValues | None,
    ) -> ConfidenceGap | None:
        """Compare confidence and accuracy on the calibration rows, or on some of many."""
        if labels is None:
            return None
        step = -(-original.rows * original.classes // _MOST_MEASURED)
        rows = np.arange(0, original.rows, step)
        if weight is not None:
            rows = rows[weight[rows] > 0.0]
            weight = weight[rows]
        part = original.take(rows)
        outputs = self.predict_checked(
            part, context=None if context is None else context.take(rows)
        )
        return measure_gap(
            self.repair_,
            part.probabilities,
            outputs.direct,
            outputs.repaired,
            part.prediction,
            labels[rows],
            weight,
        )

    def fit_checked(
        self,
        original: CheckedScores,
        labels: ArrayLike,
        weight: Vector | None,
        *,
        columns: list[str] | None = None,
        label_names: list[Name] | None = None,
        prediction_given: bool = False,
        context: ContextValues | None = None,
    ) -> Self:
        """Fit on rows that are already validated."""
        repair, calibrator = self.make_repair(), self.make_calibrator(original.kind)
        if labels is None and not (self.prefit and isinstance(repair, CORD)):
            hint = "or prefit=True with a calibrator that is fitted already, and repair='cord'"
            raise InputError("labels", "is missing", f"pass the true classes, {hint}")
        if not self.prefit:
            fit_calibrator(calibrator, original, labels, weight)
        direct = predict_calibrated(calibrator, original)
        rows = (original.probabilities, direct)
        learnt: LearntRule | None = None
        if isinstance(self.rule, str) and self.rule == "learnt":
            repair.rule, learnt = learn_rule(direct, original.prediction, weight)
        if isinstance(repair, CORD):
            repair.fit_checked(*rows, original.prediction, weight)
        else:
            held_out = None
            if not self.prefit:
                new = functools.partial(self.make_calibrator, original.kind)
                held_out = masses_held_out(calibrator, new, original, labels, weight)
            repair.fit_checked(
                *rows, labels, original.prediction, weight, held_out=held_out, context=context
            )
        # Set together, so that a failed or interrupted fit leaves the previous one intact.
        self.__dict__.update(
            calibrator_=calibrator,
            repair_=repair,
            n_classes_=original.classes,
            columns_=columns,
            learnt_rule_=learnt,
            _label_names=label_names,
            needs_prediction_=prediction_given,
            certificate_=None,
            measured_=None,
            _fit_rows=None,
        )
        return self

    def certify(
        self,
        scores: ArrayLike,
        labels: ArrayLike,
        error: float = 0.02,
        *,
        confidence: float = 0.95,
        by: Literal["class"] | ArrayLike | None = None,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> Certificate:
        """Find and store the thresholds above which predictions may be acted on.

        Parameters
        ----------
        scores, labels : array_like
            Rows that were not used to fit.
        error, confidence, by, clusters
            As for `cordcal.certify`.
        prediction, context : array_like, optional
            As for `predict_proba`.
        ids : array_like of shape (n,), optional
            What identifies the rows.  If `fit` had ids, rows of the fit are refused.  Otherwise
            rows whose scores equal those of a row of the fit are counted in a caveat.

        Returns
        -------
        certificate : Certificate
            Also stored as ``certificate_``, and in the model file.
        """
        groups = None if by is None or isinstance(by, str) else by
        rows, original, used = self._read(
            scores,
            prediction,
            context,
            labels=labels,
            groups=groups,
            clusters=clusters,
            ids=ids,
        )
        names = self.output_names()
        caveats: tuple[str, ...] = ("it is not known which rows were used to fit",)
        if self._fit_rows is not None:
            caveats = self._fit_rows.caveats(original.raw, rows.ids)
        if ids is not None and clusters is None:
            caveats += repeated_ids(rows.ids)
        outputs = self.predict_checked(original, context=used)
        certificate = certify(
            outputs.repaired,
            check_predictions(rows.labels, *original.shape, "labels"),
            error,
            confidence=confidence,
            by=by if groups is None else rows.groups,
            prediction=outputs.prediction,
            clusters=rows.clusters,
        )
        parts = certificate.parts
        if certificate.by == "class" and names is not None:
            parts = tuple(
                replace(part, name=str(name)) for part, name in zip(parts, names, strict=True)
            )
        self.certificate_ = replace(
            certificate,
            parts=parts,
            rule=None if self.rule_ is None else tuple(self.rule_.weights.tolist()),
            needs_prediction=self.needs_prediction_,
            caveats=caveats,
            model=self.digest(),
            class_names=None if self.columns_ is None else tuple(self.columns_),
        )
        return self.certificate_

    def accepts(
        self,
        scores: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Flags:
        """Return for each row whether its prediction may be acted on; see `certify`.

        Parameters
        ----------
        scores, prediction, context : array_like
            As for `predict_proba`.
        groups : array_like of shape (n,), optional
            The group of each row, if the certificate is by group.

        Returns
        -------
        accepted : ndarray of bool of shape (n,)
            True for the predictions to act on.
        """
        self._check_fitted("repair_")
        if self.certificate_ is None:
            raise InputError("model", "has no certificate", "call model.certify(scores, labels)")
        rows, original, used = self._read(scores, prediction, context, groups=groups)
        outputs = self.predict_checked(original, context=used)
        mass = outputs.repaired[np.arange(original.rows), outputs.prediction]
        return self.certificate_.accepts_confidence(mass, outputs.prediction, rows.groups)

    def score(
        self,
        scores: ArrayLike,
        labels: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the accuracy of `predict`, as classifiers of scikit-learn do.

        It is the original classifier's, which calibration does not change: choose calibrators by
        `cordcal.metrics` of `predict_proba`, or `cordcal.sklearn.scorers`.

        Parameters
        ----------
        scores, prediction : array_like
            As for `predict_proba`.
        labels : array_like of shape (n,)
            The true classes, as column indices or class names.
        sample_weight : array_like of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        accuracy : float
            The share of predictions that are right.
        """
        rows = self._match(scores, prediction, labels=labels, sample_weight=sample_weight)
        original = self._checked(rows.matrices[0], rows.prediction)
        truth = check_labels(rows.labels, *original.shape)
        weight = (
            None if rows.sample_weight is None else check_weights(rows.sample_weight, len(truth))
        )
        return float(np.average(original.prediction == truth, weights=weight))

    def plot(
        self,
        scores: ArrayLike,
        labels: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the reliability diagram before and after, on rows that were not used to fit.

        Parameters
        ----------
        scores, prediction, context : array_like
            As for `predict_proba`.
        labels : array_like of shape (n,)
            The true classes, as column indices or class names.
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        ax : matplotlib Axes
            The axes of the diagram; see `cordcal.plots.reliability_diagram`.
        """
        rows, original, used = self._read(scores, prediction, context, labels=labels)
        outputs = self.predict_checked(original, context=used)
        shown = {"original": original.probabilities, "repaired": outputs.repaired}
        # By name: figures lie above models, and need matplotlib.
        plots = import_module("cordcal.plots")
        return plots.reliability_diagram(shown, check_labels(rows.labels, *original.shape), ax=ax)

    def predict_proba(
        self,
        scores: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
        dtype: npt.DTypeLike | None = None,
        axis: int | None = None,
        decimals: int | None = None,
    ) -> Array:
        """Return the repaired probabilities.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            Scores of the same kind as in `fit`.
        prediction : array_like of shape (n,), optional
            The classifier's predictions, as column indices or class names; by default the argmax
            of the scores.  Required if `fit` had them.
        context : data frame or mapping of str to array_like, optional
            The columns of `fit` that have an effect; others are ignored.  Required if `fit` had
            context; ``context={}`` if nothing is known.
        dtype : dtype, optional
            float64, float32 or float16, by default that of the scores; the prediction is
            strictly the largest entry of its row in this dtype, or strictly the first under the
            rule.
        axis : int, optional
            The dimension of the classes, for dense scores such as (B, K, H, W).
        decimals : int, optional
            Round to so many decimals, for display and text: multiples of 10⁻ᵈ that sum to one,
            with the prediction strictly on top.  Small classes become zero, so do not compute
            metrics from them.

        Returns
        -------
        repaired : array of shape (n, K)
            Probabilities whose argmax is the original prediction: an array of the library that
            the scores come from, lazy for dask collections.
        """
        lazy = None if type(scores) is np.ndarray else layouts.lazy_handler(scores)
        if lazy is not None:
            out_dtype = output_dtype(dtype, scores)
            function = functools.partial(self.predict_proba, dtype=out_dtype, decimals=decimals)
            return self._predict_lazily(
                lazy,
                function,
                scores,
                out_dtype,
                axis=axis,
                prediction=prediction,
                context=context,
            )
        outputs = self.predict_both(
            scores, prediction=prediction, context=context, dtype=dtype, axis=axis
        )
        if decimals is None:
            return outputs.repaired
        repaired = to_numpy(outputs.repaired)
        digits = check_decimals(decimals, repaired.dtype)
        last = np.moveaxis(repaired, -1 if axis is None else axis, -1)
        rounded = round_to_decimals(
            last.reshape(-1, self.n_classes_),
            to_numpy(outputs.prediction).ravel(),
            digits,
            None if self.rule_ is None else self.rule_.weights,
        ).reshape(last.shape)
        return array_like(np.moveaxis(rounded, -1, -1 if axis is None else axis), scores)

    def direct_proba(self, scores: ArrayLike, *, axis: int | None = None) -> Array:
        """Return the direct probabilities, the calibrator's own output in its own dtype.

        They are not rounded to the dtype of the scores, which could change their argmax.
        """
        lazy = layouts.lazy_handler(scores)
        if lazy is not None:
            out_dtype = np.dtype(np.float64)
            return self._predict_lazily(lazy, self.direct_proba, scores, out_dtype, axis=axis)
        (values,) = self._match(scores).matrices
        if layouts.is_dense(axis, values):
            # Any predictions will do: direct probabilities do not depend on them.
            assert axis is not None
            prediction = np.zeros(np.delete(np.shape(values), axis), dtype=np.intp)
            return self._predict_dense(to_numpy(values), None, axis, prediction).direct
        original = CheckedScores.from_scores(values, self.score_kind(), classes=self.n_classes_)
        return array_like(predict_calibrated(self.calibrator_, original), scores)

    def predict_both(
        self,
        scores: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
        dtype: npt.DTypeLike | None = None,
        axis: int | None = None,
    ) -> Outputs:
        """Return the direct and the repaired probabilities in one pass.

        Parameters
        ----------
        scores, prediction, context, dtype, axis
            As for `predict_proba`; ``dtype`` is the dtype of the repaired probabilities.

        Returns
        -------
        outputs : Outputs
            ``direct``, ``repaired`` and ``prediction``.
        """
        self._check_fitted("repair_")
        is_plain = prediction is None and axis is None and not needs_context(self.repair_, context)
        if type(scores) is np.ndarray and is_plain:
            # There is nothing to align, and results are of the same library.
            original = self._checked(scores)
            return self.predict_checked(original, output_dtype(dtype, original.raw))
        if axis is not None and needs_context(self.repair_, context):
            self._check_context_options(axis, None)
        if axis is not None and layouts.is_dense(axis, scores):
            rows = self._match(scores, prediction)
            outputs = self._predict_dense(to_numpy(rows.matrices[0]), dtype, axis, rows.prediction)
        else:
            _, original, used = self._read(scores, prediction, context)
            outputs = self.predict_checked(original, output_dtype(dtype, original.raw), used)
        return Outputs(
            array_like(outputs.direct, scores),
            array_like(outputs.repaired, scores),
            array_like(outputs.prediction, scores),
        )

    def explain(
        self,
        scores: ArrayLike,
        *,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
    ) -> Explanation:
        """Explain the repair of each row: prediction, masses, interval, and bounds reached.

        Parameters
        ----------
        scores, prediction, context : array_like
            As for `predict_proba`.

        Returns
        -------
        explanation : Explanation
            As of `CORD.explain`, for the calibrator's direct probabilities.
        """
        _, original, used = self._read(scores, prediction, context)
        direct = predict_calibrated(self.calibrator_, original)
        return self.repair_.explain_checked(
            original.probabilities, direct, original.prediction, used
        )

    def predict(
        self, scores: ArrayLike, *, prediction: ArrayLike | None = None, axis: int | None = None
    ) -> Array:
        """Return the original predictions: class names if they are known, else indices.

        They are also what the repaired probabilities predict, by their argmax or the rule, so
        that nothing is computed from them.
        """
        lazy = layouts.lazy_handler(scores)
        if lazy is not None:
            self._check_fitted("repair_")
            return self._predict_lazily(
                lazy,
                self.predict,
                scores,
                self.classes_.dtype,
                "i",
                axis=axis,
                prediction=prediction,
            )
        rows = self._match(scores, prediction)
        (values,), prediction = rows.matrices, rows.prediction
        if layouts.is_dense(axis, values):
            assert axis is not None
            views = layouts.row_views(axis, [values], [prediction])
            predicted = np.concatenate(
                [to_numpy(self.predict(view, prediction=own)) for _, (view,), (own,) in views]
            )
            return predicted.reshape(np.delete(np.shape(values), axis))
        array = as_scores(values, self.n_classes_)
        check_scores(array, self.score_kind())
        indices = self._prediction_of(array, prediction)
        if self.output_names() is None:
            return array_like(indices, scores)
        return self.classes_[indices]

    def _prediction_of(self, scores: Floats, prediction: ArrayLike | None) -> Predictions:
        """Return the predictions as column indices: those passed, else the argmax."""
        if prediction is None:
            if self.needs_prediction_:
                raise InputError(
                    "prediction",
                    "is missing: fit had predictions, which need not be the argmax",
                    "pass {option}",
                    option=("prediction", "…"),
                )
            return np.asarray(scores.argmax(axis=1))
        return check_predictions(prediction, *scores.shape)

    def predict_checked(
        self,
        original: CheckedScores,
        dtype: npt.DTypeLike = np.float64,
        context: ContextValues | None = None,
    ) -> Outputs:
        """Return both sets of probabilities of rows that are already validated."""
        direct = predict_calibrated(self.calibrator_, original)
        repaired = self.repair_.transform_checked(
            original.probabilities, direct, original.prediction, dtype, context
        )
        return Outputs(direct, repaired, original.prediction)

    def _predict_dense(
        self,
        scores: Floats,
        dtype: npt.DTypeLike | None,
        axis: int | None,
        prediction: ArrayLike | None,
    ) -> Outputs:
        """Predict one view of rows at a time, into arrays with the layout of the scores."""
        assert axis is not None
        direct = np.empty(scores.shape)
        repaired = np.empty(scores.shape, output_dtype(dtype, scores))
        predictions: list[Predictions] = []
        views_of_rows = layouts.row_views(axis, (scores, direct, repaired), [prediction])
        for first, views, (own,) in views_of_rows:
            rows, direct_rows, repaired_rows = views
            with renumber_rows(first):
                outputs = self.predict_both(rows, prediction=own, dtype=dtype)
            direct_rows[:], repaired_rows[:] = outputs.direct, outputs.repaired
            predictions.append(outputs.prediction)
        shape = np.delete(scores.shape, axis)
        return Outputs(direct, repaired, np.concatenate(predictions).reshape(shape))

    def _predict_lazily(
        self,
        lazy: layouts.LazyHandler,
        function: Callable[..., Array],
        scores: ArrayLike,
        dtype: NumPyDType,
        shape: str = "ij",
        **unsupported: object,
    ) -> Array:
        """Return a lazy collection of ``function`` applied to every block of scores."""
        if any(value is not None for value in unsupported.values()):
            raise InputError(
                "axis, prediction and context",
                "are not supported for dask collections",
                "leave them out",
            )
        self._check_fitted("repair_")
        return lazy.apply(function, self._match(scores).matrices[0], dtype, shape=shape)

    @property
    def construction_(self) -> Construction | RankingConstruction | LiftConstruction:
        """A record of the fit of the repair."""
        self._check_fitted("repair_")
        return self.repair_.construction_

    @property
    def rule_(self) -> PredictionRule | None:
        """The rule that predicts from the repaired probabilities; None for the argmax."""
        self._check_fitted("repair_")
        return self.repair_.rule_

    @property
    def classes_(self) -> NumPyArray:
        """What `predict` returns for each column: its name, or its index."""
        self._check_fitted("repair_")
        names = self.output_names()
        return np.arange(self.n_classes_) if names is None else np.asarray(names)

    def score_kind(self) -> Kind:
        """Return what the scores are: ``input``, else the calibrator's, else logits."""
        kind = self.input
        if isinstance(self.calibrator, Calibrator):
            kind = self.calibrator.input
            if self.input is not None and self.input != kind:
                raise InputError(
                    "input",
                    f'is {self.input!r} but the calibrator was made with input="{kind}"',
                    "write the same for both, or only the calibrator's",
                )
        kind = kind or "logits"
        check_kind(kind)
        return kind

    def make_repair(self) -> CORD | Lift:
        """Return an unfitted repair."""
        default: Literal["cord", "lift"] = "lift" if self.calibrator is None else "cord"
        return new_repair(
            self.repair, self.preserve, default=default, rule=self.rule, prefer=self.prefer
        )

    def make_calibrator(self, kind: Kind) -> Any:
        """Return an unfitted calibrator, or with ``prefit`` the fitted one."""
        if self.calibrator is None or isinstance(self.calibrator, str):
            key = self.calibrator or "blend"
            if self.prefit:
                raise InputError(
                    "prefit=True",
                    f"needs a fitted calibrator, not the key {key!r}",
                    "pass the fitted object, or leave prefit out",
                )
            return make(key, input=kind)
        if self.prefit and hasattr(self.calibrator, "predict_proba"):
            return self.calibrator
        calibrator = adapted(self.calibrator, kind)
        if self.prefit:
            return calibrator
        from sklearn.base import clone

        return clone(calibrator, safe=False)

    def _fitted_context(self) -> FittedContext | None:
        self._check_fitted("repair_")
        return self.repair_.context_ if isinstance(self.repair_, Lift) else None

    def _check_context_options(self, axis: int | None, ignore_index: int | None) -> None:
        """Refuse what context does not go with."""
        for name, value in (("axis", axis), ("ignore_index", ignore_index)):
            if value is not None:
                raise InputError(
                    "context", f"is not supported with {name}=", "pass one row per prediction"
                )
        check_repair_of_context(self.make_repair())

    def context_effects(self) -> tuple[ContextEffect, ...]:
        """Return what each category and number of the context does to the confidence.

        Columns that did not explain whether predictions are right have no effect and are not
        listed.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(3, size=2000)
        >>> source = np.where(rng.random(2000) < 0.5, "photo", "pdf")
        >>> noise = np.where(source == "photo", 2.0, 0.5)[:, None]
        >>> logits = 2.0 * np.eye(3)[labels] + noise * rng.normal(size=(2000, 3))
        >>> model = PreservingCalibrator().fit(logits, labels, context={"source": source})
        >>> for effect in model.context_effects():
        ...     print(effect)
        source pdf: +2.19 [+1.84, +2.55], 0.80 → 0.97
        source photo: -1.97 [-2.29, -1.65], 0.80 → 0.36
        """
        fitted = self._fitted_context()
        return () if fitted is None else fitted.effects()

    def _match(
        self,
        scores: ArrayLike,
        prediction: ArrayLike | None = None,
        context: ArrayLike | None = None,
        **vectors: Any,
    ) -> MatchedRows:
        """Match rows with each other, and columns with those of fit."""
        self._check_fitted("repair_")
        names = self.output_names()
        columns, opinions = split_context(context)
        return match(
            {"scores": scores, **opinions},
            others=columns,
            **vectors,
            fitted_names=self.columns_ if names is None else names,
            fitted_source="fit" if self.class_names is None else "class_names",
            prediction=prediction,
        )

    def _read(
        self,
        scores: ArrayLike,
        prediction: ArrayLike | None,
        context: ArrayLike | None,
        **vectors: Any,
    ) -> tuple[MatchedRows, CheckedScores, ContextValues | None]:
        """Match and check rows: their vectors, their scores, and the context if `fit` had some."""
        self._check_fitted("repair_")
        uses_context = needs_context(self.repair_, context)
        rows = self._match(scores, prediction, context if uses_context else None, **vectors)
        original = self._checked(rows.matrices[0], rows.prediction)
        used = check_context(rows, context, self.score_kind()) if uses_context else None
        return rows, original, used

    def _checked(self, scores: ArrayLike, prediction: ArrayLike | None = None) -> CheckedScores:
        """Return matched scores, validated, with the predictions passed."""
        if not hasattr(self, "repair_"):
            raise self._not_fitted_error()
        try:
            checked = CheckedScores.from_scores(scores, self.score_kind(), classes=self.n_classes_)
        except InputError as error:
            if self.scores_from_ is None:
                raise
            raise error.with_hint(f"the model takes {self.scores_from_}") from None
        if prediction is None and not self.needs_prediction_:
            return checked
        return replace(checked, prediction=self._prediction_of(checked.raw, prediction))

    def output_names(self) -> Sequence[Name] | None:
        """Return the class names that `predict` returns, or None if it returns indices."""
        return self._label_names if self.class_names is None else self.class_names

    def __repr__(self) -> str:
        text = super().__repr__()
        return text if self.scores_from_ is None else f"{text}  # takes {self.scores_from_}"

    def _facts(self) -> list[str]:
        if not hasattr(self, "repair_"):
            return []
        record = self.construction_
        facts = [f"{record.n:,} rows × {record.n_classes:,} classes"]
        facts += [] if self.confidence_ is None else str(self.confidence_).splitlines()
        return facts + ([] if self.certificate_ is None else str(self.certificate_).splitlines())

    def _parts(self) -> dict[str, Any]:
        if not hasattr(self, "repair_"):
            return {}
        return {"calibrator": self.calibrator_, "repair": self.repair_}

    @classmethod
    def from_fitted(
        cls, calibrator: Any, repair: CORD | Lift, kind: Kind, names: Sequence[Any] | None
    ) -> Self:
        """Join a fitted calibrator and a fitted repair; ``names`` are the classes' names."""
        model = cls(
            calibrator,
            repair=repair if isinstance(repair, Lift) else "cord",
            input=kind,
            preserve=repair.preserve if isinstance(repair, CORD) else 1,
            prefit=True,
            rule=repair.rule,
            class_names=names,
        )
        model.calibrator_, model.repair_ = calibrator, repair
        model.n_classes_ = repair.n_classes_
        model.columns_ = None if names is None else [str(name) for name in names]
        return model


def _indices_or_none(labels: ArrayLike, shape: tuple[int, ...]) -> Labels | None:
    """Return labels that are column indices; a foreign calibrator may take other ones."""
    try:
        return None if labels is None else check_labels(labels, *shape)
    except InputError:
        return None
