"""Scorers: the metrics of held-out probabilities, in scikit-learn's tools."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_validate
from sklearn.naive_bayes import GaussianNB

import cordcal
from cordcal import InputError, metrics
from cordcal.sklearn import PreservingCalibratedClassifierCV, scorers

NAMES = {
    "ece": metrics.ece,
    "classwise_ece": metrics.classwise_ece,
    "smooth_ece": metrics.smooth_ece,
    "brier": metrics.brier,
    "log_loss": metrics.nll,
}
ALL = {name: getattr(scorers, name) for name in NAMES}


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
@pytest.mark.parametrize("as_names", [False, True])
def test_scores_are_the_metrics_of_held_out_rows(load: object, as_names: bool) -> None:
    X, y = load(return_X_y=True)
    labels = np.array([f"class {label}" for label in y]) if as_names else y
    folds = StratifiedKFold(3)
    results = cross_validate(GaussianNB(), X, labels, scoring=ALL, cv=folds, error_score="raise")
    for fold, (train, test) in enumerate(folds.split(X, y)):
        proba = GaussianNB().fit(X[train], y[train]).predict_proba(X[test])
        for name, metric in NAMES.items():
            score = results[f"test_{name}"][fold]
            assert score == pytest.approx(-metric(proba, y[test]), abs=1e-12), name


def test_a_search_chooses_by_them() -> None:
    X, y = load_wine(return_X_y=True)
    search = GridSearchCV(
        PreservingCalibratedClassifierCV(GaussianNB(), cv=3),
        {"method": ["ts", "svs"]},
        scoring=ALL,
        refit="smooth_ece",
        cv=3,
        error_score="raise",
    ).fit(X, y)
    assert search.best_score_ == search.cv_results_["mean_test_smooth_ece"].max()


def test_one_evaluation_serves_all_of_them() -> None:
    calls = []

    class Counting(GaussianNB):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            calls.append(len(X))
            return super().predict_proba(X)

    X, y = load_wine(return_X_y=True)
    cross_validate(Counting(), X, y, scoring=ALL, cv=2, error_score="raise")
    assert len(calls) == 2


def test_a_class_that_a_fold_lacks_has_probability_zero() -> None:
    X, y = load_wine(return_X_y=True)  # sorted by class
    results = cross_validate(GaussianNB(), X, y, scoring=ALL, cv=KFold(3), error_score="raise")
    assert (results["test_log_loss"] < -5.0).any()


def test_weights_are_routed() -> None:
    X, y = load_wine(return_X_y=True)
    weight = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
    model = GaussianNB().fit(X, y)
    expected = metrics.ece(model.predict_proba(X), y, sample_weight=weight)
    assert scorers.ece(model, X, y, sample_weight=weight) == pytest.approx(-expected)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = pickle.loads(pickle.dumps(scorers.ece)).set_score_request(sample_weight=True)
        results = cross_validate(
            GaussianNB().set_fit_request(sample_weight=True),
            X,
            y,
            scoring={"ece": scorer},
            params={"sample_weight": weight},
            cv=StratifiedKFold(3),
            error_score="raise",
        )
    assert np.isfinite(results["test_ece"]).all()


def test_parallel_folds_can_use_them() -> None:
    X, y = load_wine(return_X_y=True)
    results = cross_validate(
        RandomForestClassifier(5), X, y, scoring=scorers.ece, cv=2, n_jobs=2, error_score="raise"
    )
    assert (results["test_score"] < 0.0).all()


@pytest.mark.parametrize("name", [*NAMES.values()])
def test_metrics_in_scikit_learns_order_are_refused_with_the_right_one(name: object) -> None:
    X, y = load_wine(return_X_y=True)
    model = GaussianNB().fit(X, y)
    with pytest.raises(InputError, match=r"the order is \(probabilities, labels\)"):
        make_scorer(name, response_method="predict_proba")(model, X, y)
    names = np.array(["a", "b", "c"])[y]
    with pytest.raises(InputError, match=r"the order is \(probabilities, labels\)"):
        name(names, model.predict_proba(X))
    with pytest.raises(InputError, match=r"the order is \(probabilities, labels\)"):
        name(names.tolist(), model.predict_proba(X))
    two = y < 2
    model.fit(X[two], y[two])
    with pytest.raises(InputError, match=r"the order is \(probabilities, labels\)"):
        make_scorer(name, response_method="predict_proba")(model, X[two], y[two])


def test_the_score_of_a_calibrator_is_accuracy() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(400, 3))
    weight = rng.random(400)
    model = cordcal.PreservingCalibrator("ts", class_names=["a", "b", "c"]).fit(logits, labels)
    right = logits.argmax(axis=1) == labels
    assert model.score(logits, labels) == right.mean()
    assert model.score(logits, np.array(["a", "b", "c"])[labels]) == right.mean()
    assert model.score(logits, labels, sample_weight=weight) == pytest.approx(
        (right * weight).sum() / weight.sum()
    )
