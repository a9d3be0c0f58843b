"""The scikit-learn class with estimators whose prediction is not the likeliest class, by intent."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from cordcal import PredictionRule
from cordcal.sklearn import PreservingCalibratedClassifierCV
from errors import refused


class Oversampled(ClassifierMixin, BaseEstimator):
    """What a resampling pipeline does: it repeats rare classes before fitting."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Oversampled:
        names, counts = np.unique(y, return_counts=True)
        some = np.random.default_rng(0)
        rows = [some.choice(np.flatnonzero(y == name), counts.max()) for name in names]
        self.model_ = LogisticRegression().fit(X[np.concatenate(rows)], y[np.concatenate(rows)])
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict(X)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict_proba(X)


def threshold(**arguments: object) -> FixedThresholdClassifier:
    return FixedThresholdClassifier(
        LogisticRegression(), threshold=0.1, response_method="predict_proba", **arguments
    )


ESTIMATORS = {
    "class weights": LogisticRegression(class_weight="balanced"),
    "threshold": threshold(),
    "tuned threshold": TunedThresholdClassifierCV(LogisticRegression(), cv=2),
    "oversampled": Oversampled(),
}


def imbalanced(classes: int = 2) -> tuple[np.ndarray, ...]:
    """Return training and test rows with 90 % of one class, names as labels."""
    shares = [0.9, *[0.1 / (classes - 1)] * (classes - 1)]
    X, y = make_classification(
        1200, n_informative=4, n_classes=classes, weights=shares, class_sep=0.7, random_state=0
    )
    names = (
        np.array(["no", "some", "yes"])[-classes:][y]
        if classes == 3
        else np.array(["no", "yes"])[y]
    )
    return X[:800], names[:800], X[800:], names[800:]


@pytest.mark.parametrize(
    ("name", "repair"), [*((name, "cord") for name in ESTIMATORS), ("class weights", "lift")]
)
def test_predictions_stay_and_probabilities_stay_near_the_calibrator(
    name: str, repair: str
) -> None:
    X, y, X_test, y_test = imbalanced()
    arguments = {"method": "sigmoid", "repair": repair, "cv": 3}
    model = PreservingCalibratedClassifierCV(ESTIMATORS[name], rule="learnt", **arguments).fit(X, y)
    expected = clone(ESTIMATORS[name]).fit(X, y).predict(X_test)
    probabilities = model.predict_proba(X_test)
    np.testing.assert_array_equal(model.predict(X_test), expected)
    np.testing.assert_array_equal(model.classes_[model.rule_.predict(probabilities)], expected)
    assert (model.classes_[probabilities.argmax(axis=1)] != expected).any()
    usual = PreservingCalibratedClassifierCV(ESTIMATORS[name], **arguments).fit(X, y)
    assert usual.rule_ is None
    assert usual.learnt_rule_ is None
    direct, ruled, forced = (
        log_loss(y_test, output)
        for output in (model.direct_proba(X_test), probabilities, usual.predict_proba(X_test))
    )
    assert ruled < 1.02 * direct < forced


@pytest.mark.parametrize("ensemble", [False, True])
def test_three_classes_and_an_ensemble(ensemble: bool) -> None:
    X, y, X_test, _ = imbalanced(3)
    estimator = LogisticRegression(class_weight="balanced")
    model = PreservingCalibratedClassifierCV(
        estimator, method="vs", rule="learnt", ensemble=ensemble, cv=3
    ).fit(X, y)
    prediction = model.predict(X_test)
    probabilities = model.predict_proba(X_test)
    np.testing.assert_array_equal(model.classes_[model.rule_.predict(probabilities)], prediction)
    assert model.learnt_rule_.n_explained > model.learnt_rule_.n_argmax
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X_test), probabilities)


def test_passed_weights_and_a_frozen_estimator() -> None:
    X, y, X_test, _ = imbalanced()
    frozen = FrozenEstimator(threshold().fit(X[:400], y[:400]))
    rule = PredictionRule.from_threshold(0.1)
    for weights in (rule, rule.weights, rule.weights.tolist()):
        model = PreservingCalibratedClassifierCV(frozen, method="sigmoid", rule=weights)
        probabilities = model.fit(X[400:], y[400:]).predict_proba(X_test)
        np.testing.assert_array_equal(model.rule_.weights, rule.weights)
        np.testing.assert_array_equal(
            model.classes_[rule.predict(probabilities)], frozen.predict(X_test)
        )


def test_an_estimator_that_predicts_the_likeliest_class_gets_equal_weights() -> None:
    X, y, X_test, _ = imbalanced()
    arguments = {"estimator": LogisticRegression(), "method": "ts", "cv": 3}
    model = PreservingCalibratedClassifierCV(**arguments, rule="learnt").fit(X, y)
    usual = PreservingCalibratedClassifierCV(**arguments).fit(X, y)
    assert model.rule_.is_argmax
    np.testing.assert_array_equal(model.predict_proba(X_test), usual.predict_proba(X_test))


def test_rules_that_do_not_fit_are_refused() -> None:
    X, y, _, _ = imbalanced()
    for rule in ([1, 2, 3], [1, -1], "learned", None):
        with refused("rule"):
            PreservingCalibratedClassifierCV(LogisticRegression(), rule=rule).fit(X, y)
    with refused("preserve"):
        PreservingCalibratedClassifierCV(
            LogisticRegression(class_weight="balanced"),
            method="vs",
            rule="learnt",
            preserve="ranking",
            cv=3,
        ).fit(X, y)


def test_the_calibration_alone_asks_for_predictions_that_the_scores_do_not_give() -> None:
    X, y, X_test, _ = imbalanced()
    for name in ("class weights", "threshold"):
        model = PreservingCalibratedClassifierCV(
            ESTIMATORS[name], method="vs", rule="learnt", cv=3
        ).fit(X, y)
        alone = model.to_calibrator()
        (member,) = model.calibrated_classifiers_
        scores, prediction = member.scores(X_test), model.predict(X_test)
        np.testing.assert_array_equal(
            alone.predict_proba(scores, prediction=prediction), model.predict_proba(X_test)
        )
        if name == "class weights":
            np.testing.assert_array_equal(alone.predict(scores), prediction)
        else:
            with refused("prediction"):
                alone.predict_proba(scores)
