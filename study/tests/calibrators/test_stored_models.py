"""Model files that an earlier version wrote are read and give the same probabilities."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal_study.calibrators import CLASSES
from cordcal_study.calibrators.adaptive import RowFeatures
from errors import refused

FOLDER = Path(__file__).parents[1] / "data" / "models"


@pytest.mark.parametrize("key", CLASSES)
def test_it_is_read_and_gives_the_same_reports(key: str) -> None:
    with np.load(FOLDER / "inputs.npz") as stored:
        logits, features = stored["new_logits"], stored["new_features"]
    with np.load(FOLDER / "outputs.npz") as stored:
        expected = stored[f"preserving-{key}"]
    model = cordcal.load(FOLDER / f"preserving-{key}.safetensors")
    if key == "adats":
        pytest.importorskip("torch", reason="adats computes in torch")
        model.calibrator_.set_params(features=RowFeatures(logits, features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # mcct-i about logits below zero
        reports = model.predict_proba(logits)
    # Sums of BLAS and NumPy's exp and log differ in the last bits between CPUs and versions.
    np.testing.assert_allclose(reports, expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(reports.argmax(axis=1), logits.argmax(axis=1))


def test_without_the_study_a_file_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = cordcal.calibrators.registry
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    monkeypatch.setattr(registry, "_LOADED", {})
    with refused("calibrator", naming=["'pb'", "pip install cordcal-study"]):
        cordcal.load(FOLDER / "preserving-pb.safetensors")
