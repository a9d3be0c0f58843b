"""AdaTS: features, draws, and a temperature that helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cordcal
from contract import features_for, noisy_logits
from cordcal import PreservingCalibrator, calibrators
from cordcal_study.calibrators.adaptive import RowFeatures
from errors import refused

pytest.importorskip("torch")

LOGITS, LABELS = noisy_logits(200, 4)
FEATURES = features_for(LOGITS)
ROWS = RowFeatures(LOGITS, FEATURES)


def small(**params: object) -> calibrators.Calibrator:
    return calibrators.make("adats", **{"epochs": 2, "hidden": (16,), "features": ROWS, **params})


def test_features_are_asked_for() -> None:
    with refused("features", rows=[], naming=["adats", "RowFeatures"]):
        small(features=None).fit(LOGITS, LABELS)
    fitted = small().fit(LOGITS, LABELS).set_params(features=None)
    with refused("features", rows=[], naming="RowFeatures"):
        fitted.predict_proba(LOGITS)


@pytest.mark.parametrize(
    ("features", "rows", "facts"),
    [
        (FEATURES[:-1], [], ["(199, 6)", "200"]),
        (np.where(np.arange(200)[:, None] == 5, np.nan, FEATURES), [5], ["NaN"]),
    ],
)
def test_features_are_checked(features: np.ndarray, rows: list[int], facts: list[str]) -> None:
    with refused("features", rows=rows, naming=facts):
        RowFeatures(LOGITS, features)


def test_rows_are_found_by_their_scores_in_any_order_and_part() -> None:
    model = small().fit(LOGITS, LABELS)
    q = model.predict_proba(LOGITS)
    np.testing.assert_allclose(model.predict_proba(LOGITS[::-1])[::-1], q, rtol=1e-12)
    with refused("scores", rows=[1], naming="no features"):
        model.predict_proba(np.stack([LOGITS[0], LOGITS[1] * 1.5]))


def test_equal_rows_with_other_features_are_refused() -> None:
    rows = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    assert RowFeatures(rows, [[1.0], [2.0], [1.0]])(np.array([[0.0, -1.0]])).item() == 2.0
    with refused("scores", rows=[2], naming="other features"):
        RowFeatures(rows, [[1.0], [2.0], [3.0]])


def test_other_columns_are_refused() -> None:
    fitted = small().fit(LOGITS, LABELS)
    fitted.set_params(features=RowFeatures(LOGITS, FEATURES[:, :5]))
    with refused("features", rows=[], naming=["5 columns", "6"]):
        fitted.predict_proba(LOGITS)


def test_draws_are_seeded_by_the_row() -> None:
    mean = small().fit(LOGITS, LABELS)
    drawn = small(sample=True).fit(LOGITS, LABELS)
    np.testing.assert_array_equal(mean.weights_, drawn.weights_)
    t = drawn.temperatures(FEATURES)
    assert not np.allclose(t, mean.temperatures(FEATURES))
    np.testing.assert_allclose(drawn.temperatures(FEATURES[::-1])[::-1], t, rtol=1e-12)
    other = small(sample=True, seed=1).fit(LOGITS, LABELS)
    other.weights_ = drawn.weights_
    assert not np.allclose(other.temperatures(FEATURES), t)


@pytest.mark.parametrize("repair", ["cord", "lift"])
def test_repairs_keep_predictions_and_files_hold_the_model(repair: str, tmp_path: Path) -> None:
    model = PreservingCalibrator(small(), repair=repair).fit(LOGITS, LABELS)
    repaired = model.predict_proba(LOGITS)
    np.testing.assert_array_equal(repaired.argmax(axis=1), LOGITS.argmax(axis=1))
    cordcal.save(model, tmp_path / "m.safetensors")
    loaded = cordcal.load(tmp_path / "m.safetensors")
    with refused("features", naming="RowFeatures"):
        loaded.predict_proba(LOGITS)
    loaded.calibrator_.set_params(features=ROWS)
    np.testing.assert_array_equal(loaded.predict_proba(LOGITS), repaired)


def test_a_comparison_runs_it() -> None:
    comparison = cordcal.compare(LOGITS, LABELS, {"adats": small(), "ts": "ts"})
    assert comparison.keys() == ["adats", "ts"]
    assert comparison["adats"].keeps_predictions


def test_training_lowers_the_loss(synth) -> None:
    def nll(q: np.ndarray) -> float:
        return float(-np.log(q[np.arange(2000), synth.eval_labels]).mean())

    model = calibrators.make("adats", epochs=15, hidden=(64, 32))
    model.set_params(features=RowFeatures(synth.cal_logits, synth.cal_features))
    model.fit(synth.cal_logits, synth.cal_labels)
    model.set_params(features=RowFeatures(synth.eval_logits, synth.eval_features))
    # Uncalibrated the synthetic set has 0.550; the published networks reach 0.40.
    assert nll(model.predict_proba(synth.eval_logits)) < 0.45


@pytest.mark.slow
def test_published_size_on_real_features(real_data: Path) -> None:
    with np.load(real_data / "c10_akamaster_resnet56_test.npz") as data:
        logits, labels = data["logits"], data["labels"]
    with np.load(real_data / "c10_akamaster_resnet56_test_features.npz") as data:
        features = data[data.files[0]]
    half = slice(0, 5000), slice(5000, None)
    model = calibrators.make("adats", epochs=10, features=RowFeatures(logits, features))
    q = model.fit(logits[half[0]], labels[half[0]]).predict_proba(logits[half[1]])
    own = -np.log(q[np.arange(5000), labels[half[1]]]).mean()
    assert own < 0.3  # 0.346 uncalibrated
