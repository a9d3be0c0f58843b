"""Model files that an earlier version wrote are read and give the same probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal import calibrators

pytest.importorskip("safetensors")

FOLDER = Path(__file__).parents[1] / "data" / "models"
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))


@pytest.fixture(scope="module")
def inputs() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "inputs.npz") as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def outputs() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "outputs.npz") as stored:
        return dict(stored)


def test_there_is_a_file_of_every_kind(outputs: dict[str, np.ndarray]) -> None:
    assert set(NAMES) == set(outputs)
    assert {f"preserving-{key}" for key in calibrators.available()} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_and_gives_the_same_reports(
    name: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]
) -> None:
    model = cordcal.load(FOLDER / f"{name}.safetensors")
    original = inputs["new_original"]
    if name.startswith("preserving"):
        if model.calibrator_.input == "logits":
            original = inputs["new_logits"]
        reports = model.predict_proba(original)
    else:
        reports = model.transform(original, inputs["new_direct"])
    # Sums of BLAS and NumPy's exp and log differ in the last bits between CPUs and versions.
    np.testing.assert_allclose(reports, outputs[name], rtol=1e-12, atol=1e-300)
    predicted = reports.argmax(axis=1) if model.rule_ is None else model.rule_.predict(reports)
    np.testing.assert_array_equal(predicted, original.argmax(axis=1))
    assert (model.rule_ is not None) == name.endswith("-rule")


def test_names_and_settings_are_read() -> None:
    def load(name: str) -> object:
        return cordcal.load(FOLDER / f"{name}.safetensors")

    assert list(load("preserving-names").class_names) == ["ant", "bee", "wasp", 'Ω, "fly"']
    assert load("preserving-preserve-2").preserve == 2
    assert load("cord-preserve-3").preserve == 3
    assert load("cord-ranking").preserve == "ranking"
    assert load("preserving-probabilities").calibrator_.input == "probabilities"
    for prefer in ("confidence", "likelihood"):
        assert load(f"lift-{prefer}").prefer == prefer
