"""A drop-in for scikit-learn's `CalibratedClassifierCV` that keeps every prediction."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Literal, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import BaseCrossValidator, LeaveOneOut, StratifiedGroupKFold, check_cv
from sklearn.svm import LinearSVC
from sklearn.utils import Tags, assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from cordcal import calibrators
from cordcal._errors import InputError, warn
from cordcal._numeric import arrays
from cordcal._numeric.types import Array, Kind, Labels, Matrix, NumPyArray, Predictions, Vector
from cordcal._validation.caveats import bound_caveats, warn_about
from cordcal._validation.context import ContextValues, check_context_by_position
from cordcal._validation.context_caveats import context_caveats
from cordcal._validation.data_caveats import no_errors
from cordcal._validation.labels import cluster_numbers
from cordcal.calibrators import Calibrator
from cordcal.calibrators.adapters import adapted, fit_calibrator
from cordcal.calibrators.crossfit import masses_held_out
from cordcal.calibrators.learnt_rule import LearntRule, learn_rule
from cordcal.calibrators.registry import DISTRIBUTIONS
from cordcal.preserving import PreservingCalibrator
from cordcal.repair import CORD, ConfidenceGap, Lift, PredictionRule
from cordcal.repair.fitted import measure_gap
from cordcal.repair.lift import Masses
from cordcal.repair.lift_rule import Prefer
from cordcal.repair.options import check_repair_of_context, needs_context, new_repair
from cordcal.repair.prediction_rule import check_rule
from cordcal.sklearn._members import (
    SKLEARN_METHODS,
    Classifier,
    Fold,
    Library,
    Member,
    Names,
    Outputs,
    ScoreCalibrator,
    Scorer,
    SklearnCalibrator,
    fit_fold,
    nearly_tied,
    positions,
    to_numpy,
    vote,
)

# Calibration rows with tied scores that show how an estimator decides ties.
_MIN_TIES = 3
_THRESHOLD_WRAPPERS = ("ThresholdClassifier", "ThresholdClassifierCV")


@dataclass(frozen=True, eq=False)
class _TrainingRows:
    """The training rows, checked: labels as the user, the estimators and the calibrators see them.

    ``targets`` are the labels that estimators are fitted on and ``target_classes`` their classes;
    they differ from ``classes`` only if names had to be encoded for another array library.
    """

    targets: Array
    target_classes: Names
    labels: Labels
    classes: Names
    library: Library
    weight: Vector | None
    clusters: Labels | None
    context: ContextValues | None = None


@dataclass(frozen=True, eq=False)
class _CalibratedRows:
    """Calibration rows with direct probabilities, and for a Lift the masses held out."""

    original: Matrix
    direct: Matrix
    prediction: Predictions
    labels: Labels
    weight: Vector | None
    masses: Masses | None
    context: ContextValues | None

    @classmethod
    def concatenated(cls, parts: Sequence[_CalibratedRows]) -> _CalibratedRows:
        """Return the rows of all members."""

        def join(name: str) -> NumPyArray:
            return np.concatenate([getattr(part, name) for part in parts])

        masses = [part.masses for part in parts if part.masses is not None]
        mass, rest = ([getattr(held_out, name) for held_out in masses] for name in ("mass", "rest"))
        contexts = [part.context for part in parts if part.context is not None]
        return cls(
            join("original"),
            join("direct"),
            join("prediction"),
            join("labels"),
            None if parts[0].weight is None else join("weight"),
            Masses(np.concatenate(mass), np.concatenate(rest)) if masses else None,
            ContextValues.concatenated(contexts) if contexts else None,
        )


class PreservingCalibratedClassifierCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate a classifier's probabilities and keep each of its predictions.

    The arguments and fitted attributes are those of
    `sklearn.calibration.CalibratedClassifierCV`; :doc:`one table </guides/guide_1_scikit_learn>`
    lists the differences.  By default several calibrators are blended and the predictions are
    then restored (`cordcal.PreservingCalibrator` describes this default).

    ``direct_proba`` returns the calibrator's own probabilities; ``predict_proba`` returns the same
    probabilities repaired, so that their argmax is the **original prediction**, which ``predict``
    returns:

    - by default, ``predict`` of the estimator fitted on all rows, or of the prefit one, even if
      that is not the argmax of its probabilities (``SVC``, threshold wrappers, ties);
    - with ``ensemble=True``, the class that most fold members predict.  Among several such
      classes, the one with the largest mean original probability, then the first.  The ensemble
      is another classifier, whose predictions differ in some rows.

    The repair is fitted on the held-out rows of the folds.  Rows of X, y and weights are matched
    by position, also for pandas objects, as in scikit-learn.

    Parameters
    ----------
    estimator : estimator, optional
        The classifier, with ``decision_function`` or ``predict_proba``; by default
        ``LinearSVC``.  Wrap a fitted one in `sklearn.frozen.FrozenEstimator`.
    method : str or object, optional
        ``"isotonic"``, ``"sigmoid"`` or ``"temperature"`` (from scikit-learn 1.8 on), fitted by
        scikit-learn, or the key of a cordcal calibrator such as ``"svs"``, which takes prediction
        values as logits.  Also a calibrator object, as for `cordcal.compare`; each member gets
        a copy.  By default ``"blend"``.
    repair : {"cord", "lift"} or Lift, optional
        `cordcal.CORD`, or `cordcal.Lift`, which learns the confidence of predictions from the
        labels, on cross-fitted probabilities.  By default ``"lift"`` if no method is named,
        else ``"cord"``.
    prefer : {"confidence", "likelihood"}, optional
        What Lift keeps where the labels speak against a prediction, as for
        `cordcal.PreservingCalibrator`; by default the confidence.
    preserve : int or "ranking"
        How many of the top ranks the repair keeps, as for `cordcal.CORD`.
    rule : {"argmax", "learnt"}, PredictionRule or array_like of shape (K,)
        How a probability vector predicts.  ``"argmax"``: by its largest entry.  For estimators
        whose prediction is deliberately not the likeliest class (``class_weight``, resampled
        rows, threshold wrappers), ``"learnt"`` finds the weights per class with which the
        largest ``weights * probability`` is the prediction; the probabilities then stay close
        to the calibrator's, and **their argmax may be another class than** ``predict``
        **returns**.
    cv : int, splitter or iterable, optional
        As in `CalibratedClassifierCV`; not used for a prefit estimator without ensemble.
    n_jobs : int, optional
        Number of folds fitted in parallel.
    ensemble : bool or "auto"
        Whether to keep the estimator of every fold and average probabilities; ``"auto"``,
        scikit-learn's default, is True unless the estimator is prefit.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The classes, in the order of the columns.
    calibrated_classifiers_ : list
        One member per fold, or a single one: each has ``estimator``, ``calibrators`` as in
        scikit-learn, ``calibrator``, ``predict`` and ``predict_proba`` (the direct probabilities).
    repair_ : CORD or Lift
        The fitted repair.
    rule_ : PredictionRule or None
        The rule under which the probabilities give the prediction:
        ``classes_[rule_.predict(predict_proba(X))]`` equals ``predict(X)``.  None is the argmax.
    learnt_rule_ : LearntRule or None
        With ``rule="learnt"``, how many held-out predictions the weights explain.
    confidence_ : ConfidenceGap
        Confidence minus accuracy on the held-out rows before and after, and how many predictions
        are kept against the evidence.
    n_features_in_, feature_names_in_
        As on the estimator.
    response_ : str
        The method of the estimator whose output is calibrated: ``"decision_function"`` if it has
        one, else ``"predict_proba"``.

    Notes
    -----
    An estimator without ``predict`` predicts the argmax of its scores.  Where ``predict`` was the
    argmax of the scores in all calibration rows, ``predict_proba`` evaluates the estimator once,
    and calls ``predict`` only for rows whose two largest scores are nearly equal, unless three or
    more such calibration rows showed that it is the argmax there, too.

    A class without rows among the training rows of a fold has probability zero in that fold before
    calibration, as in scikit-learn (1e-12 among decision values, which scikit-learn replaces by the
    smallest number).  After calibration it may have more, except that scikit-learn's isotonic and
    sigmoid calibration leave it at zero in that member of an ensemble.

    With ``sklearn.set_config(array_api_dispatch=True)``, X may be a torch tensor or another array
    that the estimator accepts; predictions and probabilities are then of the same library, on the
    same device.  Calibrators of cordcal and the repair compute with NumPy.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PreservingCalibratedClassifierCV(GaussianNB()).fit(X, y)
    >>> predictions = GaussianNB().fit(X, y).predict(X)
    >>> bool((model.predict_proba(X).argmax(axis=1) == predictions).all())
    True
    >>> bool((model.direct_proba(X).argmax(axis=1) == predictions).all())
    False
    """

    classes_: Array
    calibrated_classifiers_: list[Member]
    repair_: CORD | Lift
    rule_: PredictionRule | None
    learnt_rule_: LearntRule | None
    confidence_: ConfidenceGap
    response_: str

    def __init__(
        self,
        estimator: Classifier | None = None,
        *,
        method: str | object | None = None,
        repair: Literal["cord", "lift"] | Lift | None = None,
        prefer: Prefer | None = None,
        preserve: int | Literal["ranking"] = 1,
        rule: Literal["argmax", "learnt"] | PredictionRule | object = "argmax",
        cv: int | BaseCrossValidator | Iterable[object] | None = None,
        n_jobs: int | None = None,
        ensemble: bool | str = False,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.repair = repair
        self.prefer = prefer
        self.preserve = preserve
        self.rule = rule
        self.cv = cv
        self.n_jobs = n_jobs
        self.ensemble = ensemble

    def fit(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        clusters: object = None,
        *,
        context: object = None,
        **fit_params: object,
    ) -> Self:
        """Fit the classifier, its calibrator and the repair.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Training rows; calibration rows if the estimator is prefit.
        y : array_like of shape (n,)
            Class labels.
        sample_weight : array_like of shape (n,), optional
            Weights for the calibrator, the repair and, if it accepts them, the estimator.
        clusters : array_like of shape (n,), optional
            What rows belong to, such as a patient, user or session: rows of one cluster are held
            out together, by ``cv`` and by the calibrator.  By default ``cv`` is then
            `StratifiedGroupKFold`; a splitter receives them as ``groups``.
        context : data frame or mapping of str to array_like, optional
            Columns that say how far to trust a prediction, as for `PreservingCalibrator.fit`, with
            the rows of X by position; second opinions are probabilities.  It needs `Lift`, and
            within other estimators ``set_fit_request(context=True)`` and
            ``set_predict_proba_request(context=True)``.
        **fit_params
            Passed to the estimator's ``fit``, or as metadata routing requests.

        Returns
        -------
        self : PreservingCalibratedClassifierCV
            The fitted model.
        """
        estimator = self._base()
        self._check_parameters(estimator)
        X, y, clusters = indexable(X, y, clusters)
        prefit = isinstance(estimator, FrozenEstimator)
        ensemble = not prefit if self.ensemble == "auto" else bool(self.ensemble)
        rows = self._check_rows(estimator if prefit else None, X, y, sample_weight, clusters)
        if context is not None:
            check_repair_of_context(self.make_repair())
            shape = len(rows.labels), len(rows.classes)
            values = check_context_by_position(context, shape, rows.classes.tolist())
            rows = replace(rows, context=values)
        if not self._learns_rule:
            check_rule(self.rule, len(rows.classes), "y")
        fit_kwargs, split_kwargs = self._route_metadata(estimator, rows, sample_weight, fit_params)
        classes = rows.classes, rows.target_classes
        if prefit and not ensemble:
            scorer = Scorer(estimator, *classes)
            folds = [Fold(scorer, np.arange(len(rows.labels)), scorer.outputs(X))]
        else:
            splits = self._splits(rows, X, split_kwargs)
            folds = Parallel(n_jobs=self.n_jobs)(
                delayed(fit_fold)(clone(estimator), X, rows.targets, *classes, split, fit_kwargs)
                for split in splits
            )
            _warn_about_missing_classes(folds)
        if ensemble:
            self._check_held_out(folds, rows)
            fits = [self._fit_member(fold.scorer, [fold], rows) for fold in folds]
        else:
            if not prefit:
                scorer = Scorer(clone(estimator).fit(X, rows.targets, **fit_kwargs), *classes)
            fits = [self._fit_member(scorer, folds, rows)]
        members = [member for member, _ in fits]
        calibrated = _CalibratedRows.concatenated([part for _, part in fits])
        repair, learnt = self._fit_repair(calibrated)
        confidence = _measure_confidence(repair, calibrated)
        reason = None if repair.rule_ is not None else why_not_likeliest(estimator)
        if isinstance(repair, Lift) or reason is not None:
            because = "" if reason is None else f'. {reason}: rule="learnt" is made for that'
            warn_about(bound_caveats(confidence.sentence and confidence.sentence + because))
        feature_attributes = {
            name: getattr(members[0].estimator, name)
            for name in ("n_features_in_", "feature_names_in_")
            if hasattr(members[0].estimator, name)
        }
        # In one step, so that an interrupted fit leaves the earlier one intact.
        self.__dict__.update(
            classes_=Library.of(y).array(rows.classes),
            repair_=repair,
            rule_=repair.rule_,
            learnt_rule_=learnt,
            confidence_=confidence,
            response_=members[0].response,
            calibrated_classifiers_=members,
            **feature_attributes,
        )
        return self

    def predict_proba(self, X: object, context: object = None) -> Array:
        """Return the repaired probabilities, whose argmax is the original prediction.

        With a ``rule``, it is the largest ``rule_.weights * probability`` instead.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Rows to predict.
        context : data frame or mapping of str to array_like, optional
            The columns of `fit` that have an effect.  Required if `fit` had context; ``{}`` if
            nothing is known.

        Returns
        -------
        repaired : array of shape (n, K)
            Probabilities, columns as in ``classes_``; float64 in NumPy, in other libraries of the
            dtype of the estimator's scores.
        """
        check_is_fitted(self)
        needs = needs_context(self.repair_, context)
        outputs = [member.outputs(X) for member in self.calibrated_classifiers_]
        checked = [part.checked() for part in outputs]
        original = _mean([part.probabilities for part in checked])
        parts = zip(self.calibrated_classifiers_, outputs, checked, strict=True)
        direct = _mean([member.direct(output, rows) for member, output, rows in parts])
        prediction = vote([part.prediction for part in outputs], original)
        library = Library.of(outputs[0].scores)
        dtype = np.float64 if library.xp is None else checked[0].raw.dtype
        values = None
        if needs:
            names = to_numpy(self.classes_).tolist()
            values = check_context_by_position(context, original.shape, names)
        return library.array(
            self.repair_.transform_checked(original, direct, prediction, np.dtype(dtype), values)
        )

    def direct_proba(self, X: object) -> Array:
        """Return the direct probabilities: the calibrator's own output."""
        check_is_fitted(self)
        return _mean([member.predict_proba(X) for member in self.calibrated_classifiers_])

    def predict(self, X: object) -> Array:
        """Return the original predictions, as labels."""
        check_is_fitted(self)
        members = self.calibrated_classifiers_
        if len(members) == 1:
            prediction = members[0].prediction(X)
        else:
            outputs = [member.outputs(X) for member in members]
            original = _mean([part.checked().probabilities for part in outputs])
            prediction = vote([part.prediction for part in outputs], original)
        library = Library.of(self.classes_)
        return library.array(to_numpy(self.classes_)[prediction])

    def to_calibrator(self) -> PreservingCalibrator:
        """Return the calibration without the estimator, to save or export it.

        Returns
        -------
        calibrator : PreservingCalibrator
            It takes the estimator's scores: its decision values as logits if it has
            ``decision_function``, otherwise its probabilities.  A single decision value z for two
            classes becomes the columns −z/2 and z/2.  The estimator is not in it, and it keeps the
            argmax of the scores, which is what most estimators predict; ``SVC`` and threshold
            wrappers may predict another class.  With a ``rule`` it then asks for ``prediction=``.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> model = PreservingCalibratedClassifierCV(LogisticRegression(C=0.1)).fit(X, y)
        >>> scores = model.calibrated_classifiers_[0].estimator.decision_function(X)
        >>> bool((model.to_calibrator().predict_proba(scores) == model.predict_proba(X)).all())
        True
        """
        check_is_fitted(self)
        if len(self.calibrated_classifiers_) > 1:
            raise InputError(
                "model",
                f"is an ensemble of {len(self.calibrated_classifiers_)} estimators, whose scores "
                f"are calibrated one by one and averaged",
                "fit with {option}",
                option=("ensemble", "False"),
            )
        (member,) = self.calibrated_classifiers_
        names = to_numpy(self.classes_).tolist()
        calibrator = PreservingCalibrator.from_fitted(
            member.calibrator, self.repair_, member.kind, names
        )
        calibrator.needs_prediction_ = self.rule_ is not None and not member.predicts_argmax
        name = type(_unwrapped(member.estimator)).__name__
        calibrator.scores_from_ = f"{name}.{self.response_}"
        return calibrator

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = str(super().__repr__(N_CHAR_MAX))
        fitted = getattr(self, "response_", None)
        return text if fitted is None else f"{text}  # fitted on {fitted}"

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata requests of this object, the estimator and the splitter."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                estimator=self._base(),
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
            .add(
                splitter=self.cv,
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        estimator_tags = get_tags(self._base())
        tags.input_tags.sparse = estimator_tags.input_tags.sparse
        tags.array_api_support = estimator_tags.array_api_support
        return tags

    def _base(self) -> Classifier:
        if self.estimator is not None:
            return self.estimator
        # Deterministic, because this class has no random_state.
        estimator = LinearSVC(random_state=0)
        if get_config()["enable_metadata_routing"]:
            estimator.set_fit_request(sample_weight=True)
        return estimator  # type: ignore[no-any-return]

    def _check_parameters(self, estimator: Classifier) -> None:
        known = [*SKLEARN_METHODS, *calibrators.available()]
        if isinstance(self.method, str):
            if self.method not in (*known, *DISTRIBUTIONS):
                raise ValueError(f"method is {self.method!r}; choose one of {', '.join(known)}")
        elif self.method is not None:
            adapted(self.method, "probabilities", "method")
        self.make_repair()  # raises if the repair is invalid
        if not (isinstance(self.ensemble, bool | np.bool_) or self.ensemble == "auto"):
            raise ValueError(f'ensemble is {self.ensemble!r}; pass True, False or "auto"')
        if not any(hasattr(estimator, name) for name in ("decision_function", "predict_proba")):
            raise ValueError(
                f"estimator {type(estimator).__name__} has neither decision_function nor "
                f"predict_proba, so there is nothing to calibrate; use a classifier with one of "
                f"them"
            )

    def _check_rows(
        self,
        prefit: Classifier | None,
        X: object,
        y: object,
        sample_weight: object,
        clusters: object,
    ) -> _TrainingRows:
        """Check the labels and weights; X is left to the estimator."""
        arrays.refuse_masked(y, "y")
        arrays.refuse_masked(sample_weight, "sample_weight")
        names = column_or_1d(to_numpy(y), warn=True)
        assert_all_finite(names, input_name="y")
        check_classification_targets(names)
        classes = np.unique(names) if prefit is None else to_numpy(prefit.classes_)
        if len(classes) < 2:
            raise ValueError(
                f"y holds {len(classes)} class(es), {classes.tolist()}; a classifier "
                f"needs rows of at least two classes"
            )
        if prefit is not None and names.dtype.kind in "OSU" and classes.dtype.kind in "biuf":
            raise InputError(
                "y",
                f"has names such as {names[0]!r} but the estimator was fitted on numbers, "
                f"{', '.join(map(str, classes[:4].tolist()))}{', …' if len(classes) > 4 else ''}",
                "pass y coded as for the estimator's own fit",
            )
        labels = positions(names, classes, "y")
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(to_numpy(sample_weight), labels, dtype=np.float64)
        library = Library.of(X)
        targets, target_classes = names, classes
        if library.xp is not None:
            if names.dtype.kind not in "biuf":
                targets, target_classes = labels, np.arange(len(classes))
            targets = library.array(targets)
        number = None if clusters is None else cluster_numbers(to_numpy(clusters), len(labels))
        return _TrainingRows(targets, target_classes, labels, classes, library, weight, number)

    def _route_metadata(
        self,
        estimator: Classifier,
        rows: _TrainingRows,
        sample_weight: object,
        fit_params: dict[str, object],
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Return the keyword arguments of the estimator's ``fit`` and of the splitter."""
        if rows.weight is not None and rows.library.xp is not None:
            sample_weight = rows.library.array(rows.weight)
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            return routed.estimator.fit, routed.splitter.split
        kwargs = dict(fit_params)
        if sample_weight is not None and not isinstance(estimator, FrozenEstimator):
            if "sample_weight" in signature(estimator.fit).parameters:
                kwargs["sample_weight"] = sample_weight
            else:
                warn(
                    f"{type(estimator).__name__}.fit does not accept sample_weight; only the "
                    f"calibrator and the repair use the weights"
                )
        return kwargs, {}

    def _splits(
        self, rows: _TrainingRows, X: object, split_kwargs: dict[str, object]
    ) -> list[tuple[Labels, Labels]]:
        """Return the rows to fit on and the rows held out, of every fold."""
        if rows.clusters is not None:
            split_kwargs = {"groups": rows.clusters, **split_kwargs}
        with warnings.catch_warnings():
            if rows.clusters is not None:  # a splitter that ignores them is refused below
                warnings.simplefilter("ignore", UserWarning)
            splits = list(self._splitter(rows).split(X, to_numpy(rows.targets), **split_kwargs))
        for number, (train, test) in enumerate(splits):
            if rows.clusters is None:
                break
            if np.intersect1d(rows.clusters[train], rows.clusters[test]).size:
                raise InputError(
                    "cv",
                    f"divides a cluster in fold {number}: some of its rows are fitted on, others "
                    f"held out",
                    "leave cv out, or pass a splitter of groups such as StratifiedGroupKFold",
                )
        return splits

    def _splitter(self, rows: _TrainingRows) -> BaseCrossValidator:
        folds = self.cv if isinstance(self.cv, int) else getattr(self.cv, "n_splits", None)
        counts = np.bincount(rows.labels, minlength=len(rows.classes))
        if folds is not None and counts.min() < folds:
            rarest = rows.classes.tolist()[counts.argmin()]
            raise ValueError(
                f"Requesting {folds}-fold cross-validation needs {folds} rows of every class, and "
                f"class {rarest!r} has {counts.min()}; pass a smaller cv"
            )
        if isinstance(self.cv, LeaveOneOut):
            raise ValueError(
                "LeaveOneOut cross-validation does not put rows of every class into every fold; "
                "use a splitter that does, such as StratifiedKFold"
            )
        if rows.clusters is not None and (self.cv is None or isinstance(self.cv, int)):
            return StratifiedGroupKFold(5 if self.cv is None else self.cv)
        return check_cv(self.cv, to_numpy(rows.targets), classifier=True)

    def _check_held_out(self, folds: Sequence[Fold], rows: _TrainingRows) -> None:
        """Refuse folds of one class: cordcal's calibrators need two, scikit-learn's do not."""
        if isinstance(self.method, str) and self.method in SKLEARN_METHODS:
            return
        for number, fold in enumerate(folds):
            if len(np.unique(rows.labels[fold.rows])) < 2:
                name = rows.classes.tolist()[rows.labels[fold.rows][0]]
                raise InputError(
                    "cv",
                    f"holds out rows of a single class, class {name!r}, in fold {number}, and a "
                    f"member of an ensemble is calibrated on these rows alone",
                    "pass a smaller cv or a splitter that mixes the classes, or write {option}",
                    option=("ensemble", "False"),
                )

    def _fit_member(
        self, scorer: Scorer, folds: Sequence[Fold], rows: _TrainingRows
    ) -> tuple[Member, _CalibratedRows]:
        """Fit one calibrator on the held-out scores of some folds."""
        indices = np.concatenate([fold.rows for fold in folds])
        order = np.argsort(indices, kind="stable")
        indices = indices[order]
        outputs = Outputs.concatenated([fold.outputs for fold in folds], order)
        checked = outputs.checked()
        if rows.clusters is not None:
            checked = replace(checked, clusters=rows.clusters[indices])
        labels = rows.labels[indices]
        weight = None if rows.weight is None else rows.weight[indices]
        calibrator = self.make_calibrator(scorer)
        if isinstance(calibrator, SklearnCalibrator):
            calibrator.fit(outputs.scores, labels, weight)
        else:
            fit_calibrator(calibrator, checked, labels, weight)
        member = Member(scorer.estimator, rows.classes, rows.target_classes, calibrator)
        is_argmax = bool((checked.raw.argmax(axis=1) == checked.prediction).all())
        member.predicts_argmax = is_argmax and not _decides_otherwise(scorer.estimator)
        enough_ties = len(nearly_tied(checked.raw)) >= _MIN_TIES
        member.ties_are_first = member.predicts_argmax and enough_ties
        masses = None
        if isinstance(self.make_repair(), Lift):
            new = functools.partial(self.make_calibrator, scorer)
            masses = masses_held_out(calibrator, new, checked, labels, weight)
        direct = member.direct(outputs, checked)
        return member, _CalibratedRows(
            checked.probabilities,
            direct,
            checked.prediction,
            labels,
            weight,
            masses,
            None if rows.context is None else rows.context.take(indices),
        )

    def _fit_repair(self, rows: _CalibratedRows) -> tuple[CORD | Lift, LearntRule | None]:
        """Fit one repair on the rows of all members, and learn its rule if asked to."""
        rule, learnt = self.rule, None
        if self._learns_rule:
            rule, learnt = learn_rule(rows.direct, rows.prediction, rows.weight)
        repair = self.make_repair().set_params(rule=rule)
        pair = rows.original, rows.direct
        if isinstance(repair, CORD):
            return repair.fit_checked(*pair, rows.prediction, rows.weight), learnt
        repair.fit_checked(
            *pair,
            rows.labels,
            rows.prediction,
            rows.weight,
            held_out=rows.masses,
            context=rows.context,
        )
        return repair, learnt

    @property
    def _learns_rule(self) -> bool:
        return isinstance(self.rule, str) and self.rule == "learnt"

    def make_repair(self) -> CORD | Lift:
        default: Literal["cord", "lift"] = "lift" if self.method is None else "cord"
        return new_repair(self.repair, self.preserve, default=default, prefer=self.prefer)

    def make_calibrator(self, scorer: Scorer) -> ScoreCalibrator:
        """Return a new calibrator, or a copy of the caller's."""
        kind: Kind = scorer.kind
        if isinstance(self.method, str) and self.method in SKLEARN_METHODS:
            return SklearnCalibrator(self.method, scorer.response, scorer.columns)
        if self.method is None or isinstance(self.method, str):
            return calibrators.make(self.method or "blend", input=kind)
        calibrator: ScoreCalibrator = clone(adapted(self.method, kind, "method"), safe=False)
        return (
            calibrator.set_params(input=kind) if isinstance(calibrator, Calibrator) else calibrator
        )


def _measure_confidence(repair: CORD | Lift, rows: _CalibratedRows) -> ConfidenceGap:
    """Compare confidence and accuracy on the held-out rows; warn if every prediction is right."""
    prediction, labels, weight = rows.prediction, rows.labels, rows.weight
    all_right = no_errors(prediction, labels, weight)
    caveats = [] if all_right is None else [all_right]
    if rows.context is not None:
        caveats += context_caveats(rows.context, prediction, labels, weight)
    warn_about(caveats)
    pair = rows.original, rows.direct
    repaired = repair.transform_checked(*pair, prediction, np.float64, rows.context)
    return measure_gap(repair, *pair, repaired, prediction, labels, weight)


def why_not_likeliest(estimator: object) -> str | None:
    """Return why an estimator may deliberately not predict the likeliest class, if it shows.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> why_not_likeliest(LogisticRegression(class_weight="balanced"))
    "LogisticRegression has class_weight='balanced'"
    >>> why_not_likeliest(LogisticRegression())
    """
    for part in _nested(estimator):
        name = type(part).__name__
        if hasattr(part, "fit_resample"):
            return f"{name} resamples the classes"
        if name.endswith(_THRESHOLD_WRAPPERS):
            return f"{name} predicts by a threshold"
        own = part.get_params(deep=False) if hasattr(part, "get_params") else {}
        for option, equal in (("class_weight", None), ("scale_pos_weight", 1)):
            value = own.get(option)
            if value is not None and value != equal:
                return f"{name} has {option}={value!r}"
    return None


def _nested(estimator: object) -> list[object]:
    """Return an estimator and all its parameters, among them the estimators inside."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    return [estimator, *parameters.values()]


def _unwrapped(estimator: object) -> object:
    return estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator


def _decides_otherwise(estimator: object) -> bool:
    """Return whether `predict` may differ from the argmax of the scores in rows not seen yet.

    SVC counts votes of pairs of classes, and wrappers of thresholds do not take the argmax.

    Examples
    --------
    >>> from sklearn.svm import SVC
    >>> _decides_otherwise(SVC()), _decides_otherwise(LinearSVC())
    (True, False)
    """
    return any(
        hasattr(part, "break_ties") or type(part).__name__.endswith(_THRESHOLD_WRAPPERS)
        for part in _nested(_unwrapped(estimator))
    )


def _warn_about_missing_classes(folds: Sequence[Fold]) -> None:
    """Warn about a fold whose training rows lack a class; its scores of that class say nothing."""
    for number, fold in enumerate(folds):
        classes = fold.scorer.classes
        missing = np.setdiff1d(np.arange(len(classes)), fold.scorer.columns)
        if missing.size:
            warn(
                f"the training rows of fold {number} have no row of class "
                f"{classes.tolist()[missing[0]]!r}, which has probability zero there before "
                f"calibration; use a splitter that puts every class into every fold"
            )
            return


def _mean(parts: Sequence[Array]) -> Array:
    return sum(parts[1:], start=parts[0]) / len(parts)
