"""The synthetic set, its exact optima, and small random data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cordcal import calibrators


@dataclass(frozen=True)
class Split:
    """Calibration and evaluation halves of the synthetic set."""

    cal_logits: np.ndarray
    cal_labels: np.ndarray
    cal_features: np.ndarray
    eval_logits: np.ndarray
    eval_labels: np.ndarray
    eval_features: np.ndarray


@pytest.fixture(scope="session")
def synth(fixture_folder: Path) -> Split:
    with np.load(fixture_folder / "synth_n2000_k10.npz") as data:
        return Split(**{name: data[name] for name in data.files})


@pytest.fixture(scope="session")
def optima(fixture_folder: Path) -> dict[str, dict[str, float]]:
    return json.loads((fixture_folder / "exact_optima_synth.json").read_text())


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def noisy_logits(
    rows: int, classes: int, *, seed: int = 0, scale: float = 3.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return overconfident, non-negative logits of a mediocre classifier, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    logits = scale * (np.eye(classes)[labels] + 0.7 * rng.normal(size=(rows, classes)))
    return logits - logits.min(), labels


def features_for(scores: np.ndarray) -> np.ndarray:
    """Return features that depend on the row alone."""
    finite = np.where(np.isfinite(scores), scores, 0.0)
    return np.tanh(finite @ np.random.default_rng(9).normal(size=(scores.shape[1], 6)))


# Little training, to be quick.
BRIEF: dict[str, dict[str, object]] = {
    "adats": {"epochs": 2, "hidden": (16, 8)},
    "pts": {"steps": 20},
    "smart": {"epochs": 20},
    "diag": {"steps": 20},
    "boost": {"rounds": 5},
    "boosted-blend": {"rounds": 5, "members": ("ts", "vs", "irm")},
}


def make_map(key: str, **params: object) -> calibrators.Calibrator:
    """Return a calibrator; networks and trees with little training."""
    if key in BRIEF:
        module = "lightgbm" if "boost" in key else "torch"
        pytest.importorskip(module, reason=f"{key} is trained with {module}")
    return calibrators.make(key, **{**BRIEF.get(key, {}), **params})


def fit_map(
    model: calibrators.Calibrator, scores: np.ndarray, labels: np.ndarray
) -> calibrators.Calibrator:
    extra = {"features": features_for(np.asarray(scores))} if model.key == "adats" else {}
    return model.fit(scores, labels, **extra)


def predict_map(model: calibrators.Calibrator, scores: np.ndarray) -> np.ndarray:
    extra = {"features": features_for(np.asarray(scores))} if model.key == "adats" else {}
    return model.predict_proba(scores, **extra)


def one_of_each_family() -> list[str]:
    """Return the first key of each file of calibrators that scores alone can fit."""
    families: dict[str, str] = {}
    for key in calibrators.available():
        if key not in BRIEF:
            families.setdefault(calibrators.calibrator_class(key).__module__, key)
    return list(families.values())
