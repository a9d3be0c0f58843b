"""skops loads every kind of fitted model with `trusted_types`, which name nothing else."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import skops.io
from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

import cordcal
from cordcal.calibrators import available
from cordcal.sklearn import PreservingCalibratedClassifierCV, trusted_types
from cordcal.sklearn._members import SKLEARN_METHODS

METHODS = (None, *SKLEARN_METHODS, *available())
OPTIONS = (
    {},
    {"method": "vs", "preserve": 2},
    {"method": "ts", "repair": "lift", "rule": "learnt"},
    {"method": "ts", "rule": [1, 1, 2]},
    {"method": "sigmoid", "ensemble": True, "cv": 2},
)
X, y = load_wine(return_X_y=True)
NAMES = np.array(["a", "b", "c"])[y]


def reloads(model: object) -> object:
    return skops.io.loads(skops.io.dumps(model), trusted=trusted_types())


@pytest.mark.parametrize(
    "options", [*({"method": method} for method in METHODS), *OPTIONS], ids=str
)
def test_classifiers(options: dict) -> None:
    if options.get("method") in ("boost", "boosted-blend"):
        pytest.importorskip("lightgbm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PreservingCalibratedClassifierCV(GaussianNB(var_smoothing=1e-2), **options)
        model.fit(X, NAMES)
    assert np.array_equal(reloads(model).predict_proba(X), model.predict_proba(X))


def test_models_with_context_and_certificate() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    size, source = rng.normal(size=600), np.where(rng.random(600) < 0.5, "a", "b")
    noise = np.where(size > 0.0, 3.0, 1.0) * np.where(source == "a", 2.0, 0.5)
    scores = 2.0 * np.eye(3)[labels] + noise[:, None] * rng.normal(size=(600, 3))
    context = {"source": source, "size": size}
    model = cordcal.PreservingCalibrator().fit(scores, labels, context=context)
    assert not model.repair_.context_.without_effect
    again = reloads(model)
    assert np.array_equal(
        again.predict_proba(scores, context=context), model.predict_proba(scores, context=context)
    )
    model = cordcal.PreservingCalibrator("ts").fit(scores[:300], labels[:300])
    model.certify(scores[300:], labels[300:], 0.2)
    assert np.array_equal(reloads(model).accepts(scores), model.accepts(scores))


def test_only_what_exists_is_trusted() -> None:
    for name in trusted_types():
        module, _, cls = name.rpartition(".")
        assert module.startswith(("cordcal.", "sklearn.calibration"))
        if module.startswith("cordcal."):
            assert isinstance(getattr(__import__(module, fromlist=[cls]), cls), type)
