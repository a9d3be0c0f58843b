"""Fold members of the scikit-learn adapter: estimators, held-out outputs, calibrators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import sklearn
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_method_params

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.arrays import softmax
from cordcal._validation.scores import sum_tolerance

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

# scikit-learn's own calibrators; temperature scaling since version 1.8.
SKLEARN_METHODS: tuple[str, ...] = ("isotonic", "sigmoid")
if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8):
    SKLEARN_METHODS += ("temperature",)


class Member(BaseEstimator):  # type: ignore[misc]
    """A fitted estimator with its calibrator; ``predict_proba`` gives direct probabilities."""

    def __init__(
        self, estimator: Any, calibrator: Any, classes: npt.NDArray[Any], response: str
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.classes = classes
        self.response = response

    def outputs(self, X: Any) -> tuple[Matrix, Indices]:
        """Return the estimator's scores, one column per class, and its predictions as indices."""
        return outputs_of(self.estimator, X, self.classes)

    def original(self, scores: Matrix) -> Matrix:
        """Return the estimator's own probabilities."""
        return softmax(scores) if self.response == "decision_function" else normalised(scores)

    def direct(self, scores: Matrix) -> Matrix:
        """Return the direct probabilities of scores."""
        return np.asarray(self.calibrator.predict_proba(prepare_scores(scores, self.calibrator)))

    def predict_proba(self, X: Any) -> Matrix:
        """Return the direct probabilities."""
        return self.direct(scores_of(self.estimator, X, self.classes))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the estimator's own predictions."""
        return own_predictions(self.estimator, X)


class SklearnCalibrator(BaseEstimator):  # type: ignore[misc]
    """One of scikit-learn's calibrators, fitted on scores by its own `CalibratedClassifierCV`."""

    def __init__(self, method: str, response: str) -> None:
        self.method = method
        self.response = response

    def fit(self, scores: Matrix, labels: Indices, sample_weight: Any = None) -> Self:
        absent = np.setdiff1d(np.arange(scores.shape[1]), labels)
        if absent.size:
            # The classes are inferred from the labels, so add absent ones in rows of weight zero.
            weight = np.ones(len(labels)) if sample_weight is None else sample_weight
            sample_weight = np.append(weight, np.zeros(absent.size))
            scores = np.concatenate([scores, np.repeat(scores[:1], absent.size, axis=0)])
            labels = np.concatenate([labels, absent])
        all_rows = np.arange(len(labels))
        self.calibrator_ = CalibratedClassifierCV(
            _PassThroughClassifier(self.response),
            method=self.method,
            cv=[(all_rows, all_rows)],
            ensemble=False,
        )
        with config_context(
            enable_metadata_routing=False
        ):  # the caller has routed metadata already
            self.calibrator_.fit(scores, labels, sample_weight=sample_weight)
        return self

    def predict_proba(self, scores: Matrix) -> Matrix:
        return np.asarray(self.calibrator_.predict_proba(scores))


def _responds_with(name: str) -> Callable[[Any], bool]:
    return lambda estimator: bool(estimator.response == name)


class _PassThroughClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that returns its input: the scores of another classifier."""

    def __init__(self, response: str) -> None:
        self.response = response

    def fit(self, X: Matrix, y: Indices, sample_weight: Any = None) -> Self:
        self.classes_ = np.arange(X.shape[1])
        return self

    def predict(self, X: Matrix) -> Indices:
        return np.asarray(X.argmax(axis=1))

    @available_if(_responds_with("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Matrix) -> Matrix:
        return X[:, 1] - X[:, 0] if X.shape[1] == 2 else X

    @available_if(_responds_with("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Matrix) -> Matrix:
        return X


@dataclass(frozen=True, eq=False)
class Fold:
    """One fold: its estimator, and the scores and predictions of its held-out rows."""

    estimator: Any
    rows: Indices
    scores: Matrix
    decision: Indices


def fit_fold(
    estimator: Any,
    X: Any,
    y: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    train: Indices,
    test: Indices,
    fit_kwargs: dict[str, Any],
) -> Fold:
    kwargs = _check_method_params(X, params=fit_kwargs, indices=train)
    estimator.fit(_safe_indexing(X, train), _safe_indexing(y, train), **kwargs)
    outputs = outputs_of(estimator, _safe_indexing(X, test), classes)
    return Fold(estimator, np.asarray(test), *outputs)


def outputs_of(estimator: Any, X: Any, classes: npt.NDArray[Any]) -> tuple[Matrix, Indices]:
    """Return the scores, one column per class, and the predictions as indices."""
    return scores_of(estimator, X, classes), label_indices(own_predictions(estimator, X), classes)


def own_predictions(estimator: Any, X: Any) -> npt.NDArray[Any]:
    """Return an estimator's predictions, one per row; CatBoost's are a one-column matrix."""
    predictions = np.asarray(estimator.predict(X))
    return predictions[:, 0] if predictions.ndim == 2 and predictions.shape[1] == 1 else predictions


def response_method(estimator: Any) -> str:
    """Return the method whose output is calibrated, chosen as in scikit-learn."""
    return "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"


def scores_of(estimator: Any, X: Any, classes: npt.NDArray[Any]) -> Matrix:
    """Return the estimator's scores, one column per class."""
    values = np.asarray(getattr(estimator, response_method(estimator))(X))
    if values.ndim == 1:
        # One value for two classes: the softmax of ± its half equals its sigmoid.
        values = np.stack([-0.5 * values, 0.5 * values], axis=1)
    if values.shape[1] != len(classes):
        raise InputError(
            f"estimator {type(estimator).__name__}",
            f"gives {values.shape[1]} scores per row but there are {len(classes)} classes",
            "it must give one per class (for SVC, decision_function_shape='ovr')",
        )
    return values


def normalised(probabilities: Matrix) -> Matrix:
    """Divide rows by their sums, which in many estimators differ from one by rounding."""
    wide = probabilities.astype(np.float64)
    total = wide.sum(axis=1, keepdims=True)
    # A larger difference is not rounding; leave the row for validation to report.
    is_close = np.abs(total - 1.0) <= sum_tolerance(probabilities.dtype)
    return np.asarray(np.divide(wide, total, out=wide, where=is_close))


def prepare_scores(scores: Matrix, calibrator: Any) -> Matrix:
    """Normalise scores if the calibrator expects probabilities; scikit-learn's do not."""
    return normalised(scores) if getattr(calibrator, "input", None) == "probabilities" else scores


def label_indices(labels: Any, classes: npt.NDArray[Any]) -> Indices:
    """Return the labels' positions in the sorted classes."""
    array = np.asarray(labels)
    indices = np.minimum(np.searchsorted(classes, array), len(classes) - 1)
    unknown = classes[indices] != array
    raise_first(
        row_error(
            unknown,
            "y",
            "is a class the estimator was not fitted on",
            f"it knows {', '.join(map(repr, classes[:10].tolist()))}",
            detail=lambda row: (
                f"is {array.tolist()[row]!r}, a class the estimator was not fitted on"
            ),
        )
    )
    return indices


def check_folds(
    splits: list[tuple[Indices, Indices]], labels: Indices, classes: npt.NDArray[Any]
) -> None:
    """Refuse folds whose training rows lack a class."""
    for fold, (train, _) in enumerate(splits):
        missing = np.setdiff1d(np.arange(len(classes)), labels[train])
        if missing.size:
            raise ValueError(
                f"the training rows of fold {fold} have no row of class "
                f"{classes.tolist()[missing[0]]!r}; pass a smaller cv, a splitter that puts every "
                f"class into every fold, or more rows of that class"
            )


def vote(decisions: list[Indices], original: Matrix) -> Indices:
    """Return the class that most members predict; ties go to the likeliest, then the first."""
    rows = np.arange(len(original))
    votes = np.zeros(original.shape, dtype=np.intp)
    for decision in decisions:
        votes[rows, decision] += 1
    is_winner = votes == votes.max(axis=1, keepdims=True)
    return np.asarray(np.where(is_winner, original, -1.0).argmax(axis=1))
