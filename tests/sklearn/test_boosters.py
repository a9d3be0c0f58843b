"""Boosters: inside the scikit-learn class, and their raw scores in `PreservingCalibrator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from cordcal import PreservingCalibrator
from cordcal.sklearn import PreservingCalibratedClassifierCV


def lightgbm() -> tuple[Any, dict[str, Any]]:
    library = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    return library.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1), {"raw_score": True}


def xgboost() -> tuple[Any, dict[str, Any]]:
    library = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    return library.XGBClassifier(n_estimators=8, n_jobs=1), {"output_margin": True}


def catboost() -> tuple[Any, dict[str, Any]]:
    library = pytest.importorskip("catboost", reason="CatBoost is not installed")
    settings = {"iterations": 8, "silent": True, "allow_writing_files": False, "thread_count": 1}
    return library.CatBoostClassifier(**settings), {"prediction_type": "RawFormulaVal"}


@pytest.mark.parametrize("make", [lightgbm, xgboost, catboost])
def test_raw_scores_keep_a_boosters_predictions(
    make: Callable[[], tuple[Any, dict[str, Any]]],
) -> None:
    X, y = load_wine(return_X_y=True)
    booster, raw = make()
    booster.fit(X[::2], y[::2])
    scores = np.asarray(booster.predict(X[1::2], **raw))
    model = PreservingCalibrator("svs").fit(scores, y[1::2])
    prediction = model.predict_proba(scores).argmax(axis=1)
    np.testing.assert_array_equal(prediction, np.ravel(booster.predict(X[1::2])))


@pytest.mark.parametrize("make", [lightgbm, xgboost, catboost])
def test_a_booster_inside_keeps_its_predictions(
    make: Callable[[], tuple[Any, dict[str, Any]]],
) -> None:
    X, y = load_wine(return_X_y=True)
    booster, _ = make()
    model = PreservingCalibratedClassifierCV(booster, method="svs", cv=2).fit(X[::2], y[::2])
    own = np.ravel(booster.fit(X[::2], y[::2]).predict(X[1::2]))
    np.testing.assert_array_equal(np.ravel(model.predict(X[1::2])), own)
    np.testing.assert_array_equal(model.predict_proba(X[1::2]).argmax(axis=1), own)
