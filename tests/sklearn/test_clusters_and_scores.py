"""The class: clusters in one fold, one evaluation of the estimator, and what its scores are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_wine, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import cordcal
from cordcal import InputError
from cordcal.sklearn import PreservingCalibratedClassifierCV

COPIES = 3


X_ALL, Y_ALL = make_classification(
    3000, 8, n_informative=5, n_classes=3, flip_y=0.3, random_state=0, class_sep=0.7
)


def repeated(rows: int = 150) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every row three times, not quite equal and mixed, and which row each was."""
    rng = np.random.default_rng(0)
    row = rng.permutation(np.repeat(np.arange(rows), COPIES))
    noise = 1e-3 * rng.normal(size=(len(row), 8))
    return X_ALL[row] + noise, Y_ALL[row], np.array([f"p{number}" for number in row])


def calibrated(*args: object, **kwargs: object) -> PreservingCalibratedClassifierCV:
    return PreservingCalibratedClassifierCV(*args, **kwargs)


# Clusters.


def test_clusters_equal_folds_that_were_grouped_by_hand() -> None:
    X, y, patients = repeated()
    folds = list(StratifiedGroupKFold(5).split(X, y, patients))
    tree = DecisionTreeClassifier(min_samples_leaf=2, random_state=0)
    for method in ("isotonic", "svs"):
        by_hand = calibrated(tree, method=method, cv=folds).fit(X, y)
        model = calibrated(tree, method=method).fit(X, y, clusters=patients)
        np.testing.assert_array_equal(model.predict_proba(X), by_hand.predict_proba(X))
    lifted = calibrated(tree, cv=folds).fit(X, y, clusters=patients)
    model = calibrated(tree).fit(X, y, clusters=patients)
    np.testing.assert_array_equal(model.predict_proba(X), lifted.predict_proba(X))


def test_without_clusters_a_classifier_knows_its_rows() -> None:
    X, y, patients = repeated(400)
    new, later = X_ALL[400:], Y_ALL[400:]
    nearest = KNeighborsClassifier(3)
    leaking = calibrated(nearest, method="isotonic").fit(X, y)
    grouped = calibrated(nearest, method="isotonic").fit(X, y, clusters=patients)
    gaps = [
        model.predict_proba(new).max(axis=1).mean() - model.score(new, later)
        for model in (leaking, grouped)
    ]
    assert gaps[0] > 0.2
    assert abs(gaps[1]) < 0.05


def test_a_splitter_receives_clusters_and_may_not_divide_them() -> None:
    X, y, patients = repeated()
    calibrated(GaussianNB(), cv=GroupKFold(3)).fit(X, y, clusters=patients)
    with pytest.raises(InputError, match="divides a cluster in fold 0") as refused:
        calibrated(GaussianNB(), cv=KFold(4)).fit(X, y, clusters=patients)
    assert refused.value.argument == "cv"


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_prefit_estimator_is_calibrated_with_clusters(ensemble: bool) -> None:
    X, y, patients = repeated()
    prefit = FrozenEstimator(GaussianNB().fit(X, y))
    model = calibrated(prefit, ensemble=ensemble).fit(X, y, clusters=patients)
    assert (model.predict(X) == prefit.predict(X)).all()


def test_clusters_are_routed_as_metadata() -> None:
    X, y, patients = repeated()
    with sklearn.config_context(enable_metadata_routing=True):
        model = calibrated(GaussianNB()).set_fit_request(clusters=True)
        search = GridSearchCV(model, {"method": ["ts", "irova"]}, cv=GroupKFold(3))
        search.fit(X, y, clusters=patients, groups=patients)
    expected = calibrated(GaussianNB(), **search.best_params_).fit(X, y, clusters=patients)
    np.testing.assert_array_equal(search.predict_proba(X), expected.predict_proba(X))


# One evaluation.


class Counting(RandomForestClassifier):
    calls: ClassVar[list[str]] = []

    def predict(self, X: np.ndarray) -> np.ndarray:
        self.calls.append(f"predict {len(X)}")
        # The forest's own predict would evaluate its trees by predict_proba, too.
        return self.classes_[super().predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        self.calls.append(f"predict_proba {len(X)}")
        return super().predict_proba(X)


def test_predict_proba_evaluates_the_estimator_once() -> None:
    X, y = load_wine(return_X_y=True)
    model = calibrated(Counting(50, random_state=0)).fit(X, y)
    Counting.calls.clear()
    model.predict_proba(X)
    assert Counting.calls[0] == f"predict_proba {len(X)}"
    assert sum(int(call.split()[1]) for call in Counting.calls[1:]) < 0.05 * len(X)


@pytest.mark.parametrize(
    "estimator",
    [
        SVC(C=0.1),
        KNeighborsClassifier(4),
        FixedThresholdClassifier(LogisticRegression(), threshold=0.3),
        FixedThresholdClassifier(LogisticRegression(), threshold=0.4999),
        DecisionTreeClassifier(max_depth=3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("prefit", [False, True])
def test_predictions_are_the_estimators_own(estimator: object, prefit: bool) -> None:
    classes = 2 if isinstance(estimator, FixedThresholdClassifier) else 4
    X, y = make_classification(
        2400, 8, n_informative=4, n_classes=classes, flip_y=0.2, random_state=0
    )
    if prefit:
        estimator = FrozenEstimator(estimator.fit(X[:200], y[:200]))
    model = calibrated(estimator).fit(X[:400], y[:400])
    own = model.calibrated_classifiers_[0].estimator.predict(X[400:])
    np.testing.assert_array_equal(model.predict(X[400:]), own)
    proba = model.predict_proba(X[400:])
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], own)


# What the scores are.


def test_what_was_calibrated_is_remembered(tmp_path: Path, call) -> None:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = calibrated(LogisticRegression()).fit(X, y)
    assert model.response_ == "decision_function"
    assert "fitted on decision_function" in repr(model)
    assert calibrated(GaussianNB()).fit(X, y).response_ == "predict_proba"
    cordcal.save(model.to_calibrator(), tmp_path / "m.safetensors")
    loaded = cordcal.load(tmp_path / "m.safetensors")
    assert "LogisticRegression.decision_function" in repr(loaded)
    scores = model.calibrated_classifiers_[0].estimator.decision_function(X)
    np.testing.assert_array_equal(loaded.predict_proba(scores), model.predict_proba(X))
    status, output, _ = call("info", "m.safetensors")
    assert status == 0
    assert "LogisticRegression.decision_function" in output
    with pytest.raises(InputError, match=r"the model takes LogisticRegression\.decision_function"):
        loaded.predict_proba(np.full((2, 3), np.nan))
    np.save(tmp_path / "p.npy", np.full((20, 3), 1 / 3))
    status, _, problems = call("apply", "m.safetensors", "p.npy", "--output", "q.npy")
    assert status == 2
    assert "LogisticRegression.decision_function" in problems


def test_names_for_an_estimator_of_numbers_are_refused_in_one_sentence() -> None:
    X, y = load_wine(return_X_y=True)
    prefit = FrozenEstimator(GaussianNB().fit(X, y))
    pd = pytest.importorskip("pandas")
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    for labels in (names, names.tolist(), pd.Series(names), pd.Series(names, dtype="category")):
        with pytest.raises(InputError, match="the estimator was fitted on numbers") as refused:
            calibrated(prefit).fit(X, labels)
        assert refused.value.argument == "y"


def test_probabilities_of_whole_numbers_are_refused() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    scores = 2.0 * np.eye(3)[labels] + rng.normal(size=(200, 3))
    model = cordcal.PreservingCalibrator("ts").fit(scores, labels)
    for dtype in (int, "int32", bool, np.int8):
        with pytest.raises(InputError, match="dtype"):
            model.predict_proba(scores, dtype=dtype)
        with pytest.raises(InputError, match="dtype"):
            model.predict_both(scores, dtype=dtype)
