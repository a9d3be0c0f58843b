"""A registered calibrator works everywhere, without another change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from cordcal import calibrators
from cordcal.calibrators import Calibrator
from cordcal.report.html import render
from errors import refused
from extensions import Tilt

from .conftest import noisy_logits

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tilt() -> Iterator[None]:
    calibrators.register(Tilt)
    yield
    calibrators.unregister("tilt")


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    logits, labels = noisy_logits(400, 3, scale=1.5)
    keep = (labels == 0) | (np.arange(400) % 3 == 0)
    return logits[keep], labels[keep]


pytestmark = pytest.mark.usefixtures("tilt")


def test_the_registry_and_its_table_know_it() -> None:
    assert "tilt" in calibrators.available()
    assert repr(calibrators.make("tilt", input="probabilities")) == "Tilt(input='probabilities')"
    (facts,) = [row for row in calibrators.describe() if row.key == "tilt"]
    assert (facts.parameters, facts.works_on) == ("K", "logits")


def test_a_comparison_and_its_report_show_it(rows: Any) -> None:
    comparison = cordcal.compare(*rows, ["ts", "tilt"])
    assert comparison["tilt"].changes.n_changed > 0
    assert comparison["tilt"].repaired["accuracy"] == comparison.uncalibrated["accuracy"]
    page = render(comparison, title="mine")
    assert "Tilted logits" in page


def test_a_comparison_of_all_runs_it(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordcal.evaluate.candidates.available", lambda: ("ts", "tilt", "boost"))
    monkeypatch.setattr(calibrators.calibrator_class("boost"), "most_classes", (2, "too slow"))
    comparison = cordcal.compare(*rows, "all")
    assert [entry.key for entry in comparison] == ["ts", "tilt"]
    assert list(comparison.left_out) == ["boost"]


def test_a_model_file_holds_it(rows: Any, tmp_path: Path) -> None:
    model = cordcal.PreservingCalibrator("tilt").fit(*rows)
    cordcal.save(model, tmp_path / "tilt.safetensors")
    loaded = cordcal.load(tmp_path / "tilt.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(rows[0]), model.predict_proba(rows[0]))


def test_torch_and_onnx_run_its_map(rows: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    from cordcal.onnx import export
    from cordcal.torch import PreservingModule

    logits, _ = rows
    model = cordcal.PreservingCalibrator("tilt").fit(*rows)
    expected = model.predict_both(logits)
    assert (expected.direct.argmax(axis=1) != expected.prediction).any()
    module = PreservingModule(model)
    np.testing.assert_allclose(module.direct(torch.tensor(logits)), expected.direct, atol=1e-14)
    export(model, tmp_path / "tilt.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(tmp_path / "tilt.onnx")
    direct, repaired = session.run(["direct", "repaired"], {"logits": logits})
    np.testing.assert_allclose(direct, expected.direct, atol=1e-14)
    np.testing.assert_array_equal(repaired.argmax(axis=1), expected.prediction)


class TestInvalidClasses:
    def test_a_key_that_is_taken(self) -> None:
        with refused("calibrator", naming=["Tilt", "'tilt'"]):
            calibrators.register(Tilt)

    def test_facts_that_are_missing(self) -> None:
        class Silent(Calibrator):
            key = "silent"

        with refused("calibrator", naming=["Silent", "title, short, size"]):
            calibrators.register(Silent)

    def test_a_class_that_is_not_a_calibrator(self) -> None:
        with refused("calibrator", naming=["int", "cordcal.calibrators.Calibrator"]):
            calibrators.register(int)

    def test_a_built_in_key_stays(self) -> None:
        with refused("key", naming="'ts'"):
            calibrators.unregister("ts")


@pytest.mark.parametrize(
    ("alias", "key"),
    [
        ("temperature", "ts"),
        ("vector", "vs"),
        ("matrix", "ms"),
        ("dirichlet", "dir-odir"),
        ("isotonic", "irova"),
        ("sigmoid", "platt"),
    ],
)
def test_aliases_name_the_calibrator_and_results_show_its_key(alias: str, key: str) -> None:
    assert type(cordcal.calibrators.make(alias)) is cordcal.calibrators.calibrator_class(key)
    assert alias not in cordcal.calibrators.available()
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(200, 3))
    assert cordcal.compare(logits, labels, [alias]).keys() == [key]
    with refused("calibrators", naming=f"{key!r} twice"):
        cordcal.compare(logits, labels, [alias, key])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("TemperatureScaling", "temperature"),
        ("temp", "temperature"),
        ("vector_scaling", "vector"),
        ("Isotonic", "isotonic"),
        ("isotonic regression", "isotonic"),
        ("isotonik", "isotonic"),
        ("platt-scaling", "platt"),
        ("irovaa", "irova"),
        ("VennAbers", "venn-abers"),
    ],
)
def test_a_near_miss_is_answered_with_the_name_people_know(text: str, key: str) -> None:
    with refused("calibrator", naming=f"did you mean {key!r}?"):
        cordcal.calibrators.make(text)


@pytest.mark.parametrize("text", ["bbq", "t", "", "logistic"])
def test_what_resembles_nothing_gets_the_list(text: str) -> None:
    with refused("calibrator", naming="choose one of ts,"):
        cordcal.calibrators.make(text)
