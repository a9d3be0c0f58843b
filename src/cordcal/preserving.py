"""`PreservingCalibrator`: a calibrator and a repair. Confidence changes, predictions do not."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, renumber_rows, row_error
from cordcal._numeric.arrays import array_like, dtype_name, row_digests, to_numpy
from cordcal._numeric.types import (
    Array,
    ArrayLike,
    Arrays,
    Flags,
    Floats,
    Kind,
    Labels,
    Meta,
    NumPyArray,
    NumPyDType,
    Predictions,
    Vector,
)
from cordcal._validation import layouts
from cordcal._validation.caveats import (
    bound_caveats,
    context_caveats,
    find_caveats,
    suppress_repeats,
    warn_about,
)
from cordcal._validation.context import ContextValues, check_context, split_context
from cordcal._validation.estimator import Estimator
from cordcal._validation.labels import (
    as_texts,
    check_labels,
    check_predictions,
    check_weights,
    cluster_numbers,
    is_missing,
)
from cordcal._validation.names import (
    Name,
    check_class_names,
)
from cordcal._validation.scores import (
    CheckedScores,
    as_scores,
    check_kind,
    check_scores,
)
from cordcal._validation.table import MatchedRows, match
from cordcal.calibrators import Calibrator, calibrator_class, make
from cordcal.calibrators.adapters import adapted, fit_calibrator, predict_calibrated
from cordcal.calibrators.crossfit import masses_held_out
from cordcal.calibrators.learnt_rule import LearntRule, learn_rule
from cordcal.certification import Certificate, certify
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
from cordcal.repair.fitted import refuse_ranking
from cordcal.repair.lift import check_prefer
from cordcal.repair.lift_rule import Prefer
from cordcal.repair.prediction_rule import PredictionRule, check_rule

# Confidence and accuracy are compared on rows with this many entries: 100,000 rows of ten classes.
_MOST_MEASURED = 1_000_000
# Digests of the rows of the fit that a model keeps, the smallest ones: 80 KB in a file.
_MAX_FIT_ROWS = 10_000
# A model file stores the calibrator's arrays under names that start with this.
_CALIBRATOR_PREFIX = "calibrator."


@dataclass(frozen=True, eq=False)
class Outputs:
    """The direct and the repaired probabilities of the same rows, and the predictions.

    Attributes
    ----------
    direct : array of shape (n, K)
        The calibrator's own probabilities, in its own dtype.
    repaired : array of shape (n, K)
        The repaired probabilities, whose argmax is the prediction in every row; under a rule,
        the largest weight times probability is.
    prediction : array of int of shape (n,)
        The classifier's predictions, as column indices.
    """

    direct: Floats
    repaired: Floats
    prediction: Predictions

    def to_dict(self) -> Arrays:
        """Return the arrays by name."""
        return {"direct": self.direct, "repaired": self.repaired, "prediction": self.prediction}


class PreservingCalibrator(Estimator):
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

    calibrator_: Any
    repair_: CORD | Lift
    n_classes_: int
    columns_: list[str] | None
    learnt_rule_: LearntRule | None = None
    confidence_: ConfidenceGap | None = None
    certificate_: Certificate | None = None
    # Metrics on rows held out, as `cordcal fit` stores them for the model card.
    measured_: dict[str, Any] | None = None
    # Digests of rows of the fit, by their scores or by ids; None for models without them.
    _fit_rows: npt.NDArray[np.uint64] | None = None
    _fit_ids = False
    # Whether fit had predictions that need not be the argmax of the scores.
    needs_prediction_ = False
    # The estimator's method that gave the scores, such as "SVC.decision_function", if it is known.
    scores_from_: str | None = None
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
        vectors, opinions = split_context({} if context is None else context)
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
        digests = _id_digests(rows.ids) if ids is not None else row_digests(original.raw)
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
        self._fit_ids = ids is not None
        self._fit_rows = np.unique(digests)[:_MAX_FIT_ROWS]
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
        construction = self.construction_
        if isinstance(construction, RankingConstruction):
            construction = construction.levels[0]
        return ConfidenceGap.of(
            part.probabilities,
            outputs.direct,
            outputs.repaired,
            part.prediction,
            labels[rows],
            weight,
            at_bound=construction.n_at_lower / construction.n,
            repair=self.repair_.prefer if isinstance(self.repair_, Lift) else "cord",
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
        self._check_fitted("repair_")
        groups = None if by is None or isinstance(by, str) else by
        names = self.output_names()
        rows = self._match(
            scores,
            prediction,
            context if self._needs_context(context) else None,
            labels=labels,
            groups=groups,
            clusters=clusters,
            ids=ids,
        )
        original = self._checked(rows.matrices[0], rows.prediction)
        caveats = self._find_fit_rows(original, None if ids is None else rows.ids)
        if ids is not None and clusters is None:
            caveats += _repeated_ids(_id_digests(rows.ids))
        outputs = self.predict_checked(original, context=self._checked_context(rows, context))
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
        used = context if self._needs_context(context) else None
        rows = self._match(scores, prediction, used, groups=groups)
        original = self._checked(rows.matrices[0], rows.prediction)
        outputs = self.predict_checked(original, context=self._checked_context(rows, context))
        mass = outputs.repaired[np.arange(original.rows), outputs.prediction]
        return self.certificate_.accepts_confidence(mass, outputs.prediction, rows.groups)

    def _find_fit_rows(self, original: CheckedScores, ids: Any) -> tuple[str, ...]:
        """Refuse rows of the fit by their ids, or count equal score vectors in a caveat."""
        if self._fit_rows is None or not len(self._fit_rows):
            return ("it is not known which rows were used to fit",)
        if self._fit_ids and ids is None:
            return ("fit had ids, but these rows have none, so rows of the fit are not recognised",)
        digests = _id_digests(ids) if self._fit_ids else row_digests(original.raw)
        # Only the smallest digests were kept, so only those are compared.
        is_kept = len(self._fit_rows) < _MAX_FIT_ROWS or digests <= self._fit_rows[-1]
        repeated = np.isin(digests, self._fit_rows) & is_kept
        if not repeated.any():
            return ()
        if self._fit_ids:
            raise InputError(
                "ids",
                "has rows that were used to fit",
                "certify on other rows",
                rows=np.flatnonzero(repeated),
                detail="was used to fit",
            )
        return (
            f"{int(repeated.sum()):,} of {len(digests):,} rows have the scores of a row that was "
            f"used to fit; if they are the same rows, the promise does not hold",
        )

    def digest(self) -> str:
        """Return a digest of everything that the probabilities depend on."""
        if not isinstance(self.calibrator_, Calibrator):
            return "foreign"
        arrays, meta = self._own_state()
        whole = hashlib.sha256(json.dumps(meta, sort_keys=True, default=str).encode())
        for name, array in sorted(arrays.items()):
            whole.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()[:16]

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
        used = context if self._needs_context(context) else None
        rows = self._match(scores, prediction, used, labels=labels)
        original = self._checked(rows.matrices[0], rows.prediction)
        outputs = self.predict_checked(original, context=self._checked_context(rows, context))
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
            out_dtype = _output_dtype(dtype, scores)
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
        needs_context = self._needs_context(context)
        is_plain = prediction is None and axis is None and not needs_context
        if type(scores) is np.ndarray and is_plain:
            # There is nothing to align, and results are of the same library.
            original = self._checked(scores)
            return self.predict_checked(original, _output_dtype(dtype, original.raw))
        rows = self._match(scores, prediction, context if needs_context else None)
        values, prediction = rows.matrices[0], rows.prediction
        if needs_context:
            self._check_context_options(axis, None)
        if layouts.is_dense(axis, values):
            outputs = self._predict_dense(to_numpy(values), dtype, axis, prediction)
        else:
            original = self._checked(values, prediction)
            out_dtype = _output_dtype(dtype, original.raw)
            checked = self._checked_context(rows, context)
            outputs = self.predict_checked(original, out_dtype, checked)
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
        rows = self._match(scores, prediction, context if self._needs_context(context) else None)
        original = self._checked(rows.matrices[0], rows.prediction)
        direct = predict_calibrated(self.calibrator_, original)
        pair = original.probabilities, direct, original.prediction
        if isinstance(self.repair_, Lift):
            return self.repair_.explain_checked(*pair, self._checked_context(rows, context))
        return self.repair_.explain_checked(*pair)

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
        rows = (original.probabilities, direct, original.prediction, dtype)
        if isinstance(self.repair_, Lift):
            repaired = self.repair_.transform_checked(*rows, context)
        else:
            repaired = self.repair_.transform_checked(*rows)
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
        repaired = np.empty(scores.shape, _output_dtype(dtype, scores))
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

    def _needs_context(self, context: ArrayLike | None) -> bool:
        self._check_fitted("repair_")
        return needs_context(self.repair_, context)

    def _checked_context(
        self, rows: MatchedRows, context: ArrayLike | None
    ) -> ContextValues | None:
        """Return matched context; None if `fit` had none."""
        if self._fitted_context() is None:
            return None
        return check_context(rows, context, self.score_kind())

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
        columns, opinions = split_context({} if context is None else context)
        return match(
            {"scores": scores, **opinions},
            others=columns,
            **vectors,
            fitted_names=self.columns_ if names is None else names,
            fitted_source="fit" if self.class_names is None else "class_names",
            prediction=prediction,
        )

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

    def to_state(self) -> tuple[Arrays, Meta]:
        """Return the arrays and the JSON metadata of a model file."""
        self._check_fitted("repair_")
        if not isinstance(self.calibrator_, Calibrator):
            raise ValueError(
                f"a model file cannot hold the foreign calibrator "
                f"{type(self.calibrator_).__name__}; save model.repair_, which is all the repair "
                f"needs, and keep the calibrator in its own format"
            )
        arrays, meta = self._own_state()
        if self.scores_from_ is not None:
            meta["scores_from"] = self.scores_from_
        if self._fit_rows is not None:
            arrays["fit_rows"] = self._fit_rows
            meta["fit_ids"] = self._fit_ids
        if self.confidence_ is not None:
            meta["confidence"] = self.confidence_.to_dict()
        if self.certificate_ is not None:
            meta["certificate"] = self.certificate_.to_state()
        return arrays, meta

    def _own_state(self) -> tuple[Arrays, Meta]:
        """Return what the probabilities depend on."""
        calibrator_arrays, calibrator_meta = self.calibrator_.to_state()
        repair_arrays, repair_meta = self.repair_.to_state()
        names = self.output_names()
        return {
            **repair_arrays,
            **{_CALIBRATOR_PREFIX + key: value for key, value in calibrator_arrays.items()},
        }, {
            "calibrator": calibrator_meta,
            "lift" if isinstance(self.repair_, Lift) else "cord": repair_meta,
            "input": self.score_kind(),
            "class_names": None if names is None else np.asarray(names).tolist(),
            **({"prediction_given": True} if self.needs_prediction_ else {}),
        }

    @classmethod
    def from_state(cls, arrays: Arrays, meta: Meta) -> Self:
        """Rebuild a fitted model from the result of `to_state`."""
        calibrator_arrays = {
            name.removeprefix(_CALIBRATOR_PREFIX): value
            for name, value in arrays.items()
            if name.startswith(_CALIBRATOR_PREFIX)
        }
        calibrator = calibrator_class(meta["calibrator"]["key"]).from_state(
            calibrator_arrays, meta["calibrator"]
        )
        repair: CORD | Lift
        if "lift" in meta:
            repair = Lift.from_state(arrays, meta["lift"])
        else:
            repair = CORD.from_state(arrays, meta["cord"])
        model = cls.from_fitted(calibrator, repair, meta["input"], meta["class_names"])
        model.needs_prediction_ = bool(meta.get("prediction_given", False))
        model.scores_from_ = meta.get("scores_from")
        model._fit_rows = arrays.get("fit_rows")
        model._fit_ids = bool(meta.get("fit_ids", False))
        if "confidence" in meta:
            model.confidence_ = ConfidenceGap.from_state(meta["confidence"])
        if "certificate" in meta:
            certificate = Certificate.from_state(meta["certificate"])
            if certificate.model != model.digest():
                raise InputError("certificate", "is that of another model", "certify it again")
            model.certificate_ = certificate
        return model

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


def new_repair(
    repair: Literal["cord", "lift"] | Lift | None,
    preserve: int | Literal["ranking"],
    *,
    default: Literal["cord", "lift"],
    rule: object = "argmax",
    prefer: Prefer | None = None,
) -> CORD | Lift:
    """Return an unfitted repair; ``default`` replaces None.

    The rule "learnt" is set later, when there are direct probabilities to learn it from.
    """
    refuse_ranking(preserve, rule)
    if prefer is not None:
        check_prefer(prefer)
    learnt = isinstance(rule, str) and rule == "learnt"
    options: dict[str, Any] = {} if learnt else {"rule": rule}
    choice = default if repair is None else repair
    if choice == "cord":
        if prefer is not None:
            raise InputError(
                "prefer",
                f"is {prefer!r} but CORD keeps the calibrator's mean confidence",
                "leave it out, or write {option}",
                option=("repair", "lift"),
            )
        return CORD(preserve, **options)
    if choice != "lift" and not isinstance(choice, Lift):
        raise InputError(
            "repair", f"is {choice!r}", "write 'cord', 'lift' or Lift(prefer='likelihood')"
        )
    if preserve != 1:
        raise InputError(
            "preserve",
            f"is {preserve!r} but Lift learns the confidence of one prediction, not of a ranking",
            "leave it out, or write {option}",
            option=("repair", "cord"),
        )
    if choice == "lift":
        return Lift(prefer or "confidence", **options)
    own = choice.get_params()
    if prefer not in (None, own["prefer"]):
        raise InputError("prefer", "is passed twice", "leave it out, or out of Lift(...)")
    if isinstance(own["rule"], str):
        own.update(options)
    elif own["rule"] is not rule and (learnt or not isinstance(rule, str)):
        raise InputError("rule", "is passed twice", "leave it out of Lift(...)")
    return Lift(**own)


def needs_context(repair: CORD | Lift, context: ArrayLike | None) -> bool:
    """Return whether `fit` had context, which must then be passed, and else must not be."""
    fitted = repair.context_ if isinstance(repair, Lift) else None
    if fitted is not None and context is None:
        names = ", ".join(map(repr, fitted.names))
        raise InputError(
            "context",
            f"is missing: fit had the columns {names}",
            "pass context= with them, or context={} if nothing is known about these rows",
        )
    if fitted is None and context is not None:
        raise InputError("context", "is not used: fit had none", "leave it out")
    return fitted is not None


def check_repair_of_context(repair: CORD | Lift) -> None:
    """Refuse context for a repair that does not learn from labels."""
    if not isinstance(repair, Lift):
        raise InputError(
            "context",
            "needs a repair that learns from labels",
            "write {option}",
            option=("repair", "lift"),
        )


def _id_digests(ids: Any) -> npt.NDArray[np.uint64]:
    """Return a digest of each id, as its text; a whole number is the same in every dtype."""
    values = to_numpy(ids, "ids")
    raise_first(
        row_error(is_missing(values), "ids", "has no id", "give every row an id, or pass no ids")
    )
    texts = (text.encode("utf-8", "surrogatepass") for text in as_texts(values).tolist())
    digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _repeated_ids(digests: npt.NDArray[np.uint64]) -> tuple[str, ...]:
    """Return a caveat if rows to certify on share an id."""
    repeated = len(digests) - len(np.unique(digests))
    if not repeated:
        return ()
    return (
        f"{repeated:,} rows repeat an id: rows of one id are not independent, so the promise may "
        f"not hold unless they are passed as clusters",
    )


def _output_dtype(dtype: npt.DTypeLike | None, scores: ArrayLike) -> NumPyDType:
    """Return the dtype of the repaired probabilities: the one asked for, or that of the scores."""
    requested = getattr(scores, "dtype", np.float64) if dtype is None else dtype
    if dtype is not None and "float" not in dtype_name(dtype):
        raise InputError("dtype", f"is {dtype!r}", "pass float64, float32 or float16")
    if isinstance(requested, np.dtype) and requested.kind == "f" and requested.itemsize <= 8:
        return requested
    name = dtype_name(requested)
    # NumPy has no bfloat16; scores may be whole numbers.
    return np.dtype({"bfloat16": "float32"}.get(name, name if "float" in name else "float64"))


def _indices_or_none(labels: ArrayLike, shape: tuple[int, ...]) -> Labels | None:
    """Return labels that are column indices; a foreign calibrator may take other ones."""
    try:
        return None if labels is None else check_labels(labels, *shape)
    except InputError:
        return None


__all__ = ["Outputs", "PreservingCalibrator"]
