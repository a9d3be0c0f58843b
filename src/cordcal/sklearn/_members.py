"""Members of the scikit-learn adapter: estimators, their scores and their calibrators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, Self, cast

import array_api_compat
import numpy as np
import numpy.typing as npt
import sklearn
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.utils import _safe_indexing
from sklearn.utils._array_api import _convert_to_numpy, get_namespace_and_device
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_method_params

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric import arrays
from cordcal._numeric.arrays import softmax
from cordcal._numeric.types import Array, Floats, Kind, Labels, Matrix, Predictions, Vector
from cordcal._validation.scores import LOG_FLOOR, CheckedScores, score_errors, sum_tolerance
from cordcal.calibrators import Calibrator
from cordcal.calibrators.adapters import predict_calibrated

# scikit-learn's own calibrators; temperature scaling since version 1.8.
SKLEARN_METHODS: tuple[str, ...] = ("isotonic", "sigmoid")
if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8):
    SKLEARN_METHODS += ("temperature",)

Names = npt.NDArray[np.generic]
"""Class labels as the user writes them: numbers or strings."""


class Classifier(Protocol):
    """What is used of a scikit-learn classifier; ``predict`` may be missing."""

    classes_: Array

    def fit(self, X: object, y: object, **params: object) -> Self: ...
    def predict(self, X: object) -> Array: ...


class ScoreCalibrator(Protocol):
    """What is used of a calibrator: it is fitted on scores and gives probabilities."""

    def fit(self, scores: Array, labels: Array, *, sample_weight: Array = None) -> object: ...
    def predict_proba(self, scores: Array) -> Array: ...


@dataclass(frozen=True)
class Library:
    """The array library and the device of a result; NumPy unless array API dispatch is on."""

    xp: ModuleType | None = None
    device: object = None

    @classmethod
    def of(cls, values: object) -> Library:
        """Return the library of an array if scikit-learn dispatches on it, else NumPy."""
        dispatches = get_config()["array_api_dispatch"]
        if not (dispatches and array_api_compat.is_array_api_obj(values)):
            return cls()
        if array_api_compat.is_numpy_array(values):
            return cls()
        xp, _, device = get_namespace_and_device(values)
        return cls(xp, device)

    def array(self, values: npt.NDArray[np.generic]) -> Array:
        """Return a NumPy array as an array of this library, on its device."""
        return values if self.xp is None else self.xp.asarray(values, device=self.device)


def to_numpy(values: object) -> npt.NDArray[np.generic]:
    """Return an array of any library, on any device, as a NumPy array."""
    library = Library.of(values)
    if library.xp is None:
        return np.asarray(values)
    return np.asarray(_convert_to_numpy(values, library.xp))


@dataclass(frozen=True, eq=False)
class Outputs:
    """An estimator's outputs on some rows.

    Attributes
    ----------
    scores : array of shape (n, K)
        Decision values or probabilities, one column per class, in the library of X.
    prediction : ndarray of int of shape (n,)
        The estimator's predictions, as column indices.
    kind : {"logits", "probabilities"}
        What the scores are; decision values count as logits.
    """

    scores: Array
    prediction: Predictions
    kind: Kind

    def checked(self) -> CheckedScores:
        """Return them as validated scores, whose prediction is the estimator's own."""
        raw = cast("Floats", to_numpy(self.scores))
        raise_first(*score_errors(raw, "logits"))  # sums of probabilities are checked later
        original = softmax(raw) if self.kind == "logits" else normalised(raw)
        return CheckedScores(raw, self.kind, self.prediction, original)

    @classmethod
    def concatenated(cls, parts: Sequence[Outputs], order: Labels) -> Outputs:
        """Return the rows of several outputs, in the given order."""
        xp = arrays.namespace(parts[0].scores)
        scores = xp.concat([part.scores for part in parts])
        prediction = np.concatenate([part.prediction for part in parts])
        return cls(_safe_indexing(scores, order), prediction[order], parts[0].kind)


class Scorer:
    """A fitted estimator, and the columns of the classes that it was fitted on.

    Parameters
    ----------
    estimator : estimator
        The fitted classifier.
    classes : ndarray of shape (K,)
        All classes, as the user writes them.
    targets : ndarray of shape (K,)
        All classes, as estimators are fitted on them; other numbers only if names had to be
        encoded for an array library without strings.

    Attributes
    ----------
    predicts_argmax : bool
        Whether the argmax of the scores is known to be the prediction, except in ties.
    ties_are_first : bool
        Whether it is known in ties, too.
    """

    def __init__(self, estimator: Classifier, classes: Names, targets: Names) -> None:
        self.estimator = estimator
        self.classes = classes
        self.targets = targets
        self.predicts_argmax = self.ties_are_first = False
        self._known = to_numpy(getattr(estimator, "classes_", targets))
        self.columns = positions(self._known, targets, "estimator.classes_")

    @property
    def response(self) -> str:
        """The method whose output is calibrated, chosen as in scikit-learn."""
        has_values = hasattr(self.estimator, "decision_function")
        return "decision_function" if has_values else "predict_proba"

    @property
    def kind(self) -> Kind:
        """What the scores are."""
        return "logits" if self.response == "decision_function" else "probabilities"

    def outputs(self, X: object) -> Outputs:
        """Return the estimator's scores, one column per class, and its predictions."""
        scores = self.scores(X)
        if not hasattr(self.estimator, "predict"):
            return Outputs(scores, to_numpy(scores).argmax(axis=1), self.kind)
        if not self.predicts_argmax:
            return Outputs(scores, self._own_prediction(X), self.kind)
        values = to_numpy(scores)
        prediction = values.argmax(axis=1)
        close = nearly_tied(values)
        if close.size and not self.ties_are_first:
            prediction[close] = self._own_prediction(_safe_indexing(X, close))
        return Outputs(scores, prediction, self.kind)

    def prediction(self, X: object) -> Predictions:
        """Return the estimator's own predictions, as column indices."""
        if hasattr(self.estimator, "predict"):
            return self._own_prediction(X)
        return self.outputs(X).prediction

    def scores(self, X: object) -> Array:
        """Return the estimator's decision values or probabilities, one column per class.

        A class that the estimator was not fitted on has probability zero; among decision values
        that is a probability of 1e-12.
        """
        values = getattr(self.estimator, self.response)(X)
        xp = arrays.namespace(values)
        values = values if xp is not np else np.asarray(values)
        if values.ndim == 1:
            # One value for two classes: the softmax of ± its half equals its sigmoid.
            values = xp.stack([-0.5 * values, 0.5 * values], axis=1)
        if values.shape[1] != len(self.columns):
            raise InputError(
                f"estimator {type(self.estimator).__name__}",
                f"gives {values.shape[1]} scores per row but there are {len(self.columns)} classes",
                "it must give one per class (for SVC, decision_function_shape='ovr')",
            )
        if np.array_equal(self.columns, np.arange(len(self.classes))):
            return values
        return Library.of(values).array(self._all_columns(to_numpy(values)))

    def predict(self, X: object) -> Names:
        """Return the estimator's own predictions, as labels."""
        return np.asarray(self.classes[self.prediction(X)])

    def _own_prediction(self, X: object) -> Predictions:
        predictions = to_numpy(self.estimator.predict(X))
        if predictions.ndim == 2 and predictions.shape[1] == 1:  # CatBoost's are one column
            predictions = predictions[:, 0]
        return np.asarray(self.columns[positions(predictions, self._known, "predict")])

    def _all_columns(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        full = np.zeros((len(values), len(self.classes)), values.dtype)
        if self.kind == "logits":
            top = values.max(axis=1, keepdims=True)
            total = np.exp(values - top).sum(axis=1, keepdims=True)
            full[:] = top + np.log(total) + np.log(LOG_FLOOR)
        full[:, self.columns] = values
        return full


class Member(Scorer):
    """A fitted estimator with its calibrator; ``predict_proba`` gives direct probabilities.

    Attributes
    ----------
    estimator : estimator
        The fitted classifier.
    calibrator : object
        The fitted calibrator, which takes the estimator's scores.
    calibrators : list
        scikit-learn's fitted calibrators, as in `CalibratedClassifierCV`: one per class, one if
        there are two classes or for temperature scaling; otherwise ``[calibrator]``.
    classes : ndarray of shape (K,)
        The classes.
    """

    def __init__(
        self, estimator: Classifier, classes: Names, targets: Names, calibrator: ScoreCalibrator
    ) -> None:
        super().__init__(estimator, classes, targets)
        self.calibrator = calibrator

    def __repr__(self) -> str:
        return f"Member(estimator={self.estimator!r}, calibrator={self.calibrator!r})"

    @property
    def calibrators(self) -> list[object]:
        """The fitted calibrators, as in `CalibratedClassifierCV`."""
        if isinstance(self.calibrator, SklearnCalibrator):
            return self.calibrator.calibrators
        return [self.calibrator]

    def direct(self, outputs: Outputs, checked: CheckedScores) -> Matrix:
        """Return the direct probabilities of the estimator's outputs."""
        if isinstance(self.calibrator, SklearnCalibrator):
            return normalised(to_numpy(self.calibrator.predict_proba(outputs.scores)))
        direct = predict_calibrated(self.calibrator, checked)
        return direct if isinstance(self.calibrator, Calibrator) else normalised(direct)

    def predict_proba(self, X: object) -> Array:
        """Return the direct probabilities."""
        outputs = self.outputs(X)
        return Library.of(outputs.scores).array(self.direct(outputs, outputs.checked()))


class SklearnCalibrator(BaseEstimator):  # type: ignore[misc]
    """One of scikit-learn's calibrators, fitted on scores by its own `CalibratedClassifierCV`.

    Parameters
    ----------
    method : {"isotonic", "sigmoid", "temperature"}
        The calibrator.
    response : {"decision_function", "predict_proba"}
        What the scores are.
    columns : ndarray of int
        The classes that the estimator knows.  As in scikit-learn the others get probability zero,
        except from temperature scaling.
    """

    def __init__(self, method: str, response: str, columns: Labels) -> None:
        self.method = method
        self.response = response
        self.columns = columns

    def fit(self, scores: Array, labels: Labels, sample_weight: Vector | None = None) -> Self:
        """Fit on scores; temperature scaling computes in their library, the others in NumPy."""
        scores = self._readable(scores)
        absent = np.setdiff1d(np.arange(scores.shape[1]), labels)
        if absent.size:
            # The classes are inferred from the labels, so add absent ones in rows of weight zero.
            weight = np.ones(len(labels)) if sample_weight is None else sample_weight
            sample_weight = np.append(weight, np.zeros(absent.size))
            scores = arrays.namespace(scores).concat([scores, *[scores[:1, :]] * absent.size])
            labels = np.concatenate([labels, absent])
        all_rows = np.arange(len(labels))
        self.calibrator_ = CalibratedClassifierCV(
            _PassThroughClassifier(self.response),
            method=self.method,
            cv=[(all_rows, all_rows)],
            ensemble=True,
        )
        library = Library.of(scores)
        with config_context(
            enable_metadata_routing=False
        ):  # the caller has routed metadata already
            self.calibrator_.fit(scores, library.array(labels), sample_weight=sample_weight)
        return self

    @property
    def calibrators(self) -> list[object]:
        """scikit-learn's fitted calibrators."""
        return list(self.calibrator_.calibrated_classifiers_[0].calibrators)

    def predict_proba(self, scores: Array) -> Array:
        """Return the calibrated probabilities."""
        (member,) = self.calibrator_.calibrated_classifiers_
        direct = member.predict_proba(self._readable(scores))
        if len(self.columns) == scores.shape[1] or self.method == "temperature":
            return direct
        known = np.zeros(direct.shape)
        known[:, self.columns] = direct[:, self.columns]
        total = known.sum(axis=1, keepdims=True)
        uniform = np.full(direct.shape, 1.0 / direct.shape[1])
        return np.divide(known, total, out=uniform, where=total > 0.0)

    def _readable(self, scores: Array) -> Array:
        return scores if self.method == "temperature" else to_numpy(scores)


def _responds_with(name: str) -> Callable[[_PassThroughClassifier], bool]:
    return lambda estimator: bool(estimator.response == name)


class _PassThroughClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that returns its input: the scores of another classifier."""

    def __init__(self, response: str) -> None:
        self.response = response

    def fit(self, X: Array, y: Array, sample_weight: Array = None) -> Self:
        self.classes_ = Library.of(X).array(np.arange(X.shape[1]))
        return self

    def predict(self, X: Array) -> Array:
        return arrays.namespace(X).argmax(X, axis=1)

    @available_if(_responds_with("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Array) -> Array:
        return X[:, 1] - X[:, 0] if X.shape[1] == 2 else X

    @available_if(_responds_with("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Array) -> Array:
        return X


@dataclass(frozen=True, eq=False)
class Fold:
    """One fold: its estimator, and the outputs on its held-out rows."""

    scorer: Scorer
    rows: Labels
    outputs: Outputs


def fit_fold(
    estimator: Classifier,
    X: object,
    y: Array,
    classes: Names,
    targets: Names,
    split: tuple[Labels, Labels],
    fit_kwargs: Mapping[str, object],
) -> Fold:
    """Fit an estimator on the training rows of a split and apply it to the others."""
    train, test = split
    kwargs = _check_method_params(X, params=fit_kwargs, indices=train)
    estimator.fit(_safe_indexing(X, train), _safe_indexing(y, train), **kwargs)
    scorer = Scorer(estimator, classes, targets)
    return Fold(scorer, np.asarray(test), scorer.outputs(_safe_indexing(X, test)))


# An estimator may round scores in another way when it predicts.
_TIE = 1e-6


def nearly_tied(scores: npt.NDArray[np.generic]) -> Labels:
    """Return the rows whose two largest scores differ by little more than rounding.

    Examples
    --------
    >>> nearly_tied(np.array([[0.5, 0.5, 0.0], [0.2, 0.7, 0.1]]))
    array([0])
    """
    last_two = np.partition(scores.astype(np.float64), -2, axis=1)[:, -2:]
    margin, size = last_two[:, 1] - last_two[:, 0], np.abs(last_two).max(axis=1)
    return np.flatnonzero(margin <= _TIE * np.maximum(size, 1.0))


def normalised(probabilities: npt.NDArray[np.generic]) -> Matrix:
    """Divide rows by their sums, which in many estimators differ from one by rounding."""
    wide = probabilities.astype(np.float64)
    total = wide.sum(axis=1, keepdims=True)
    # A larger difference is not rounding; leave the row for validation to report.
    is_close = np.abs(total - 1.0) <= sum_tolerance(probabilities.dtype)
    return np.asarray(np.divide(wide, total, out=wide, where=is_close))


def positions(labels: npt.NDArray[np.generic], classes: Names, argument: str) -> Labels:
    """Return the labels' positions in the classes, which need not be sorted."""
    order = np.argsort(classes, kind="stable")
    indices = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
    indices = order[indices]
    raise_first(
        row_error(
            classes[indices] != labels,
            argument,
            "is a class the estimator was not fitted on",
            f"it knows {', '.join(map(repr, classes[:10].tolist()))}",
            detail=lambda row: (
                f"is {labels.tolist()[row]!r}, a class the estimator was not fitted on"
            ),
        )
    )
    return np.asarray(indices)


def vote(predictions: Sequence[Predictions], original: Matrix) -> Predictions:
    """Return the class that most members predict; ties go to the likeliest, then the first."""
    rows = np.arange(len(original))
    votes = np.zeros(original.shape, dtype=np.intp)
    for prediction in predictions:
        votes[rows, prediction] += 1
    is_winner = votes == votes.max(axis=1, keepdims=True)
    return np.asarray(np.where(is_winner, original, -1.0).argmax(axis=1))
