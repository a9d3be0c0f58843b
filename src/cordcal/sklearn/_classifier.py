"""A drop-in for scikit-learn's `CalibratedClassifierCV` that keeps every prediction."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from inspect import signature
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.svm import LinearSVC
from sklearn.utils import assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from cordcal import calibrators
from cordcal._numeric import arrays
from cordcal._numeric.types import Kind
from cordcal.calibrators import Calibrator
from cordcal.calibrators.adapters import adapted
from cordcal.calibrators.crossfit import FOLDS, Folds
from cordcal.preserving import new_repair
from cordcal.repair import CORD, Lift
from cordcal.sklearn._folds import (
    SKLEARN_METHODS,
    Fold,
    Indices,
    Matrix,
    Member,
    SklearnCalibrator,
    check_folds,
    fit_fold,
    label_indices,
    normalised,
    outputs_of,
    prepare_scores,
    response_method,
    vote,
)

# Needs the network's features, which a scikit-learn estimator does not have.
_UNAVAILABLE = ("adats",)


class PreservingCalibratedClassifierCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate a classifier's probabilities and keep each of its predictions.

    The arguments and fitted attributes are those of
    `sklearn.calibration.CalibratedClassifierCV`; :doc:`one table </guides/guide_1_scikit_learn>`
    lists the differences.  ``direct_proba`` returns the probabilities of that
    class; ``predict_proba`` returns the same probabilities repaired by CORD, so that their argmax
    is the **original prediction**, which ``predict`` returns:

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
    method : str or object
        ``"isotonic"``, ``"sigmoid"`` or ``"temperature"`` (from scikit-learn 1.8 on), fitted by
        scikit-learn, or the key of a cordcal calibrator such as ``"svs"``, which takes decision
        values as logits.  Also a calibrator object, as for `cordcal.compare`; each member gets
        a copy.
    repair : {"cord", "lift"} or Lift
        `cordcal.CORD`, or `cordcal.Lift`, which learns the confidence of predictions from the
        labels, on cross-fitted probabilities.
    preserve : int or "ranking"
        How many of the top ranks the repair keeps, as for `cordcal.CORD`.
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
        One member per fold, or a single one: each has ``estimator``, ``calibrator``,
        ``predict`` and ``predict_proba`` (the direct probabilities).
    repair_ : CORD or Lift
        The fitted repair.
    n_features_in_, feature_names_in_
        As on the estimator.

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

    classes_: npt.NDArray[Any]
    calibrated_classifiers_: list[Member]
    repair_: CORD | Lift

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: Any = "isotonic",
        repair: Literal["cord", "lift"] | Lift = "cord",
        preserve: int | Literal["ranking"] = 1,
        cv: Any = None,
        n_jobs: int | None = None,
        ensemble: bool | str = False,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.repair = repair
        self.preserve = preserve
        self.cv = cv
        self.n_jobs = n_jobs
        self.ensemble = ensemble

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit the classifier, its calibrator and the repair.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Training rows; calibration rows if the estimator is prefit.
        y : array_like of shape (n,)
            Class labels.
        sample_weight : array_like of shape (n,), optional
            Weights for the calibrator, the repair and, if it accepts them, the estimator.
        **fit_params
            Passed to the estimator's ``fit``, or as metadata routing requests.

        Returns
        -------
        self : PreservingCalibratedClassifierCV
            The fitted model.
        """
        estimator = self._base()
        self._check_parameters(estimator)
        arrays.refuse_masked(y, "y")
        arrays.refuse_masked(sample_weight, "sample_weight")
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        prefit = isinstance(estimator, FrozenEstimator)
        ensemble = not prefit if self.ensemble == "auto" else bool(self.ensemble)
        classes = np.asarray(estimator.classes_) if prefit else np.unique(np.asarray(y))
        if len(classes) < 2:
            raise ValueError(
                f"y holds {len(classes)} class(es), {classes.tolist()}; a classifier "
                f"needs rows of at least two classes"
            )
        labels = label_indices(y, classes)
        fit_kwargs, split_kwargs = self._route_metadata(estimator, sample_weight, fit_params)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)

        if prefit and not ensemble:
            all_rows = np.arange(len(labels))
            folds = [Fold(estimator, all_rows, *outputs_of(estimator, X, classes))]
        else:
            splits = list(self._splitter(y, labels, classes).split(X, y, **split_kwargs))
            check_folds(splits, labels, classes)
            folds = Parallel(n_jobs=self.n_jobs)(
                delayed(fit_fold)(clone(estimator), X, y, classes, train, test, fit_kwargs)
                for train, test in splits
            )
        rows = np.concatenate([fold.rows for fold in folds])
        row_weight = None if weight is None else weight[rows]
        if ensemble:
            members = [
                self._member(fold.estimator, [fold], classes, labels, weight) for fold in folds
            ]
            direct = [
                member.direct(fold.scores) for member, fold in zip(members, folds, strict=True)
            ]
        else:
            final = estimator if prefit else clone(estimator).fit(X, y, **fit_kwargs)
            members = [self._member(final, folds, classes, labels, weight)]
            direct = [members[0].direct(fold.scores) for fold in folds]
        repair = self._new_repair()
        if isinstance(repair, Lift):
            groups = [[fold] for fold in folds] if ensemble else [folds]
            response = members[0].response
            direct = [self._cross_fitted(group, labels, weight, response) for group in groups]
        repair_labels = (labels[rows],) if isinstance(repair, Lift) else ()
        repair.fit(
            np.concatenate([members[0].original(fold.scores) for fold in folds]),
            normalised(np.concatenate(direct)),
            *repair_labels,
            decision=np.concatenate([fold.decision for fold in folds]),
            sample_weight=row_weight,
        )
        feature_attributes = {
            name: getattr(members[0].estimator, name)
            for name in ("n_features_in_", "feature_names_in_")
            if hasattr(members[0].estimator, name)
        }
        # In one step, so that an interrupted fit leaves the earlier one intact.
        self.__dict__.update(
            classes_=classes, repair_=repair, calibrated_classifiers_=members, **feature_attributes
        )
        return self

    def predict_proba(self, X: Any) -> Matrix:
        """Return the repaired probabilities, whose argmax is the original prediction.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Rows to predict.

        Returns
        -------
        repaired : ndarray of shape (n, K)
            Probabilities, columns as in ``classes_``.
        """
        check_is_fitted(self)
        outputs = [member.outputs(X) for member in self.calibrated_classifiers_]
        original = self._mean(
            member.original(scores) for member, (scores, _) in self._with_members(outputs)
        )
        direct = self._mean(
            member.direct(scores) for member, (scores, _) in self._with_members(outputs)
        )
        decision = vote([decision for _, decision in outputs], original)
        repaired: Matrix = self.repair_.transform(original, normalised(direct), decision=decision)
        return repaired

    def direct_proba(self, X: Any) -> Matrix:
        """Return the direct probabilities: the calibrator's own output."""
        check_is_fitted(self)
        return self._mean(member.predict_proba(X) for member in self.calibrated_classifiers_)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the original predictions, as labels."""
        check_is_fitted(self)
        if len(self.calibrated_classifiers_) == 1:
            return np.asarray(self.calibrated_classifiers_[0].predict(X))
        outputs = [member.outputs(X) for member in self.calibrated_classifiers_]
        original = self._mean(
            member.original(scores) for member, (scores, _) in self._with_members(outputs)
        )
        return np.asarray(self.classes_[vote([decision for _, decision in outputs], original)])

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self._base()).input_tags.sparse
        return tags

    def _base(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        # Deterministic, because this class has no random_state.
        estimator = LinearSVC(random_state=0)
        if get_config()["enable_metadata_routing"]:
            estimator.set_fit_request(sample_weight=True)
        return estimator

    def _check_parameters(self, estimator: Any) -> None:
        known = [*SKLEARN_METHODS, *calibrators.available()]
        allowed = [name for name in known if name not in _UNAVAILABLE]
        if not isinstance(self.method, str):
            adapted(self.method, "probabilities", "method")
        elif self.method not in allowed:
            raise ValueError(f"method is {self.method!r}; choose one of {', '.join(allowed)}")
        self._new_repair()  # raises if the repair is invalid
        if not (isinstance(self.ensemble, bool | np.bool_) or self.ensemble == "auto"):
            raise ValueError(f'ensemble is {self.ensemble!r}; pass True, False or "auto"')
        if not any(hasattr(estimator, name) for name in ("decision_function", "predict_proba")):
            raise ValueError(
                f"estimator {type(estimator).__name__} has neither decision_function nor "
                f"predict_proba, so there is nothing to calibrate; use a classifier with one of "
                f"them"
            )

    def _route_metadata(
        self, estimator: Any, sample_weight: Any, fit_params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the keyword arguments of the estimator's ``fit`` and of the splitter."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            return routed.estimator.fit, routed.splitter.split
        kwargs = dict(fit_params)
        if sample_weight is not None:
            if "sample_weight" in signature(estimator.fit).parameters:
                kwargs["sample_weight"] = sample_weight
            else:
                warnings.warn(
                    f"{type(estimator).__name__}.fit does not accept sample_weight; only the "
                    f"calibrator and the repair use the weights",
                    UserWarning,
                    stacklevel=arrays.stacklevel_outside_package(),
                )
        return kwargs, {}

    def _splitter(self, y: Any, labels: Indices, classes: Any) -> Any:
        folds = self.cv if isinstance(self.cv, int) else getattr(self.cv, "n_splits", None)
        counts = np.bincount(labels, minlength=len(classes))
        if folds is not None and counts.min() < folds:
            rarest = classes.tolist()[counts.argmin()]
            raise ValueError(
                f"class {rarest!r} has {counts.min()} row(s) but cv asks for {folds} folds, each "
                f"with rows of every class; pass a smaller cv"
            )
        if isinstance(self.cv, LeaveOneOut):
            raise ValueError(
                "LeaveOneOut makes folds of one class; use a splitter whose folds have rows of "
                "every class, such as StratifiedKFold"
            )
        return check_cv(self.cv, y, classifier=True)

    def _member(
        self,
        estimator: Any,
        folds: list[Fold],
        classes: Any,
        labels: Indices,
        weight: Matrix | None,
    ) -> Member:
        """Fit one calibrator on the held-out scores of some folds."""
        rows = np.concatenate([fold.rows for fold in folds])
        order = np.argsort(rows, kind="stable")
        rows, scores = rows[order], np.concatenate([fold.scores for fold in folds])[order]
        response = response_method(estimator)
        row_weight = None if weight is None else weight[rows]
        calibrator = self._fit_calibrator(scores, labels[rows], row_weight, response)
        return Member(estimator, calibrator, classes, response)

    def _cross_fitted(
        self, folds: list[Fold], labels: Indices, weight: Matrix | None, response: str
    ) -> Matrix:
        """Return direct probabilities of the folds' rows, each by a calibrator fitted on others."""
        rows = np.concatenate([fold.rows for fold in folds])
        scores = np.concatenate([fold.scores for fold in folds])
        inner_folds = Folds.of(
            scores, labels[rows], FOLDS, seed=0, weight=None if weight is None else weight[rows]
        )
        direct = np.empty(scores.shape)
        for number in range(inner_folds.count):
            held_out = inner_folds.number == number
            train_weight = None if weight is None else weight[rows][~held_out]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit on all rows has already warned
                calibrator = self._fit_calibrator(
                    scores[~held_out], labels[rows][~held_out], train_weight, response
                )
            direct[held_out] = calibrator.predict_proba(
                prepare_scores(scores[held_out], calibrator)
            )
        return direct

    def _fit_calibrator(
        self, scores: Matrix, labels: Indices, weight: Matrix | None, response: str
    ) -> Any:
        """Return a new calibrator, fitted on scores."""
        calibrator: Any
        if isinstance(self.method, str) and self.method in SKLEARN_METHODS:
            calibrator = SklearnCalibrator(self.method, response)
        else:
            kind: Kind = "logits" if response == "decision_function" else "probabilities"
            calibrator = self._new_calibrator(kind)
        extra = {} if weight is None else {"sample_weight": weight}
        calibrator.fit(prepare_scores(scores, calibrator), labels, **extra)
        return calibrator

    def _new_repair(self) -> CORD | Lift:
        return new_repair(self.repair, self.preserve, default="cord")

    def _new_calibrator(self, kind: Kind) -> Any:
        """Return a new cordcal calibrator, or a copy of the caller's."""
        if isinstance(self.method, str):
            return calibrators.make(self.method, input=kind)
        calibrator = clone(adapted(self.method, kind, "method"), safe=False)
        return (
            calibrator.set_params(input=kind) if isinstance(calibrator, Calibrator) else calibrator
        )

    def _with_members(self, outputs: list[Any]) -> Iterable[tuple[Member, Any]]:
        return zip(self.calibrated_classifiers_, outputs, strict=True)

    def _mean(self, probabilities: Iterable[Matrix]) -> Matrix:
        total = sum(probabilities, start=np.zeros(()))
        return np.asarray(total / len(self.calibrated_classifiers_))
