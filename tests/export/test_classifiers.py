"""Fitted scikit-learn classifiers: their calibration alone, and whole pipelines."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import skl2onnx
import torch
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import cordcal
from cordcal.onnx import export, register_converter
from cordcal.sklearn import PreservingCalibratedClassifierCV
from cordcal.torch import PreservingModule
from errors import refused

DATA = {"wine": load_wine, "breast cancer": load_breast_cancer}
ESTIMATORS = {
    "logistic regression": LogisticRegression(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression(C=0.1)),
    "naive Bayes": GaussianNB(),
    "forest": RandomForestClassifier(10, max_depth=3, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=3, random_state=0),
    "linear SVC": LinearSVC(C=0.01),
    "SGD": SGDClassifier(random_state=0),
    "network": MLPClassifier((8,), max_iter=30, random_state=0),
}


def fit(estimator: BaseEstimator, name: str, method: str | None = "ts", **settings: object):
    """Return a fitted pipeline that ends in the class, and its rows as float32."""
    X, y = DATA[name](return_X_y=True)
    names = np.array(["ant", "bee", "cow"])[y]
    model = PreservingCalibratedClassifierCV(estimator, method=method, cv=3, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # easy data: some folds have no error
        pipeline = make_pipeline(StandardScaler(), model).fit(X, names)
    return pipeline, X.astype(np.float32)


def run(proto: object, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    label, proba = session.run(None, {session.get_inputs()[0].name: rows})
    return label, proba


@pytest.fixture
def converter() -> None:
    register_converter()


@pytest.mark.usefixtures("converter")
class TestWholePipelines:
    @pytest.mark.parametrize("name", DATA)
    @pytest.mark.parametrize("key", ESTIMATORS)
    def test_label_and_probabilities(self, key: str, name: str) -> None:
        model, X = fit(ESTIMATORS[key], name)
        proto = skl2onnx.to_onnx(model, X[:1], options={"zipmap": False})
        label, proba = run(proto, X)
        assert proba.dtype == np.float32
        np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], label)
        np.testing.assert_array_equal(label, model.predict(X))
        differs = (np.abs(proba - model.predict_proba(X)) > 1e-5).any(axis=1)
        assert differs.mean() < 0.02  # trees may take another branch in float32

    def test_the_default_and_integer_labels(self) -> None:
        X, y = load_wine(return_X_y=True)
        rows = StandardScaler().fit_transform(X).astype(np.float32)
        model = PreservingCalibratedClassifierCV(LogisticRegression(C=0.01)).fit(rows, y + 3)
        label, proba = run(skl2onnx.to_onnx(model, rows[:1], options={"zipmap": False}), rows)
        np.testing.assert_array_equal(label, model.predict(rows))
        np.testing.assert_allclose(proba, model.predict_proba(rows), rtol=0, atol=1e-5)

    def test_a_prefit_estimator(self) -> None:
        X, y = load_wine(return_X_y=True)
        rows = StandardScaler().fit_transform(X).astype(np.float32)
        estimator = FrozenEstimator(LogisticRegression(C=0.01).fit(rows[::2], y[::2]))
        model = PreservingCalibratedClassifierCV(estimator, method="vs").fit(rows, y)
        label, _ = run(skl2onnx.to_onnx(model, rows[:1], options={"zipmap": False}), rows)
        np.testing.assert_array_equal(label, model.predict(rows))

    def test_it_stands_next_to_scikit_learns_class(self) -> None:
        X, y = load_wine(return_X_y=True)
        theirs = CalibratedClassifierCV(GaussianNB(), cv=3).fit(X, y)
        assert skl2onnx.to_onnx(theirs, X[:1].astype(np.float32)).graph.node

    def test_old_opset(self) -> None:
        model, X = fit(LogisticRegression(), "wine")
        with refused("target_opset", naming=["15", "18"]):
            skl2onnx.to_onnx(model, X[:1], target_opset=15)

    def test_estimators_that_cannot_be_converted(self) -> None:
        class Own(LogisticRegression):
            """A class that skl2onnx does not know."""

        model, X = fit(Own(), "wine")
        with refused("estimator Own", naming="skl2onnx"):
            skl2onnx.to_onnx(model, X[:1])

    def test_another_graph_than_the_estimator(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, X = fit(LogisticRegression(), "wine")
        member = model[-1].calibrated_classifiers_[0]
        monkeypatch.setattr(member, "scores", lambda rows: np.zeros((len(rows), 3)))
        with refused("estimator LogisticRegression", naming="other scores"):
            skl2onnx.to_onnx(model, X[:1])

    def test_calibrators_of_scikit_learn(self) -> None:
        model, X = fit(GaussianNB(), "wine", "isotonic")
        with refused("model", naming="SklearnCalibrator"):
            skl2onnx.to_onnx(model, X[:1])

    def test_ensembles(self) -> None:
        model, X = fit(GaussianNB(), "wine", ensemble=True)
        with refused("model", naming="ensemble of 3", option="ensemble"):
            skl2onnx.to_onnx(model, X[:1])


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("key", ["logistic regression", "forest"])
def test_the_calibration_alone(key: str, name: str, tmp_path: Path) -> None:
    pipeline, _ = fit(ESTIMATORS[key], name, None)
    model = pipeline[-1]
    X = pipeline[:-1].transform(DATA[name](return_X_y=True)[0])
    written = export(model, tmp_path / "calibration.onnx", dtype="float64")
    assert written.input == ("probabilities" if key == "forest" else "logits")
    (member,) = model.calibrated_classifiers_
    scores = np.asarray(member.scores(X))
    session = onnxruntime.InferenceSession(
        tmp_path / "calibration.onnx", providers=["CPUExecutionProvider"]
    )
    (repaired,) = session.run(["repaired"], {written.input: scores})
    np.testing.assert_allclose(repaired, model.predict_proba(X), rtol=0, atol=1e-12)
    module = PreservingModule(model)
    np.testing.assert_allclose(
        module(torch.tensor(scores)).numpy(), model.predict_proba(X), rtol=0, atol=1e-12
    )
    cordcal.save(model, tmp_path / "calibration.safetensors")
    loaded = cordcal.load(tmp_path / "calibration.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(scores), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(scores), model.predict(X))


def test_neighbours_tie_and_the_first_class_wins(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    model = PreservingCalibratedClassifierCV(KNeighborsClassifier(4), method="ts", cv=3).fit(X, y)
    scores = model.calibrated_classifiers_[0].scores(X)
    alone = model.to_calibrator()
    np.testing.assert_array_equal(alone.predict(scores), model.predict(X))
