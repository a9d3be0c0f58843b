"""ONNX graphs: onnxruntime gives the library's numbers and never another prediction."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import cordcal
from cordcal.calibrators import calibrator_class
from cordcal.export import _recipe
from cordcal.onnx import export
from errors import refused
from internals import expressions
from precision import UNIT_ROUNDOFF
from products import product

from .conftest import (
    CLASSES,
    FAMILIES,
    KEYS,
    KINDS,
    fitted,
    hard_rows,
    library,
    lifted,
    noisy_scores,
    steepness,
)

DTYPES = ("float64", "float32", "float16")


def run(path: Path, rows: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert names == ["direct", "repaired", "label"]
    outputs = session.run(names, {session.get_inputs()[0].name: rows})
    return dict(zip(names, outputs, strict=True))


def assert_on_top(repaired: np.ndarray, prediction: np.ndarray) -> None:
    mass = repaired[np.arange(len(prediction)), prediction]
    assert ((repaired >= mass[:, None]).sum(axis=1) == 1).all()


@pytest.mark.parametrize(("key", "kind", "dtype"), product(KEYS, KINDS, DTYPES, whole=FAMILIES))
def test_graph_is_the_library(key: str, kind: str, dtype: str, tmp_path: Path) -> None:
    model, path = fitted(key, kind), tmp_path / "model.onnx"
    written = export(model, path, dtype=dtype, input=kind)
    assert written.bytes == path.stat().st_size < 70_000
    assert written.input == kind
    rows = noisy_scores(300, kind, seed=1)[0].astype(dtype)
    result, expected = run(path, rows), library(model, rows, dtype)
    tolerance = 1e-14 * steepness(model) + 4.0 * UNIT_ROUNDOFF[dtype]
    for name in ("direct", "repaired"):
        assert result[name].dtype == dtype
        difference = result[name].astype(np.float64) - getattr(expected, name)
        assert np.abs(difference).max() <= tolerance
    assert np.array_equal(result["label"], expected.prediction)

    hard = hard_rows(kind).astype(dtype)
    result = run(path, hard)
    assert np.array_equal(result["label"], hard.argmax(axis=1))
    assert_on_top(result["repaired"], hard.argmax(axis=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
def test_lifted_reports(prefer: str, dtype: str, tmp_path: Path) -> None:
    model, path = lifted(prefer), tmp_path / "model.onnx"
    export(model, path, dtype=dtype)
    rows = np.concatenate([noisy_scores(300, "logits", seed=1)[0], hard_rows("logits")])
    rows = rows.astype(dtype)
    result, expected = run(path, rows), library(model, rows, dtype)
    difference = result["repaired"].astype(np.float64) - expected.repaired
    assert np.abs(difference).max() <= 1e-13 + 4.0 * UNIT_ROUNDOFF[dtype]
    assert_on_top(result["repaired"], rows.argmax(axis=1))


@pytest.mark.parametrize("key", ["ts", "vs", "irova"])
def test_probability_model_behind_logits(key: str, tmp_path: Path) -> None:
    model, path = fitted(key, "probabilities"), tmp_path / "model.onnx"
    assert export(model, path).input == "probabilities"
    export(model, path, input="logits")
    rows = np.concatenate([noisy_scores(100, "logits")[0], hard_rows("logits")]).astype(np.float32)
    result = run(path, rows)
    assert np.array_equal(result["label"], rows.argmax(axis=1))
    assert_on_top(result["repaired"], rows.argmax(axis=1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("preserve", [2, 3, "ranking"])
@pytest.mark.parametrize("key", ["vs", "irova", "ms"])
def test_kept_ranks(key: str, preserve: int | str, dtype: str, tmp_path: Path) -> None:
    scores, labels = noisy_scores(500, "logits")
    model = cordcal.PreservingCalibrator(key, preserve=preserve).fit(scores, labels)
    path = tmp_path / "model.onnx"
    assert export(model, path, dtype=dtype).bytes < 50_000
    rows = noisy_scores(200, "logits", seed=1)[0].astype(dtype)
    result = run(path, rows)["repaired"]
    expected = model.predict_proba(rows, dtype=dtype)
    tolerance = 1e-13 * steepness(model) + 8.0 * UNIT_ROUNDOFF[dtype]
    assert np.abs(result.astype(np.float64) - expected).max() <= tolerance
    order = np.argsort(-rows, axis=1, kind="stable")
    ranked = np.take_along_axis(result, order, axis=1)
    levels = CLASSES - 1 if preserve == "ranking" else preserve
    assert (ranked[:, : levels - 1] > ranked[:, 1:levels]).all()
    assert (ranked[:, levels - 1, None] > ranked[:, levels:]).all()


def test_masked_classes(tmp_path: Path) -> None:
    model, path = fitted("svs"), tmp_path / "model.onnx"
    export(model, path, dtype="float64")
    rows = noisy_scores(20, "logits")[0]
    rows[:, ::2] = -np.inf
    expected = library(model, rows)
    np.testing.assert_allclose(run(path, rows)["repaired"], expected.repaired, atol=1e-13)


def test_class_names_travel(tmp_path: Path) -> None:
    scores, labels = noisy_scores(200, "logits")
    names = [f"name {k}" for k in range(CLASSES)]
    export(
        cordcal.PreservingCalibrator("ts", class_names=names).fit(scores, labels),
        tmp_path / "m.onnx",
    )
    facts = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(facts["class_names"]) == names
    assert facts["calibrator"] == "ts"


def change_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vector scaling be another map in a graph than in NumPy."""
    calibrator = calibrator_class("vs")
    right = calibrator.probabilities

    def wrong(cls, scores, params, *, xp):
        return right(scores, params, xp=xp) if xp is np else expressions.softmax(scores, xp)

    monkeypatch.setattr(calibrator, "probabilities", classmethod(wrong))


class TestRefusal:
    """A graph that does not do what the library does leaves no file behind."""

    def test_another_prediction(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_margin(repaired, prediction, dtype, *, xp):
            return repaired

        monkeypatch.setattr(_recipe, "strictly_top", no_margin)
        with pytest.raises(ValueError, match="predictions differ"):
            export(fitted("irova"), tmp_path / "m.onnx", dtype="float16")
        assert not list(tmp_path.iterdir())

    def test_other_numbers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = fitted("vs")
        change_map(monkeypatch)
        with pytest.raises(ValueError, match="direct probabilities differ"):
            export(model, tmp_path / "m.onnx")
        assert not list(tmp_path.iterdir())

    def test_keeps_an_earlier_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.onnx"
        export(fitted("vs"), path)
        before = path.read_bytes()
        change_map(monkeypatch)
        with pytest.raises(ValueError, match="differ"):
            export(fitted("vs"), path)
        assert path.read_bytes() == before


class TestBadInput:
    def test_probabilities_for_a_model_of_logits(self, tmp_path: Path) -> None:
        with refused("input", naming=["'probabilities'", "logits"], option="input"):
            export(fitted("ts"), tmp_path / "m.onnx", input="probabilities")

    def test_dtype(self, tmp_path: Path) -> None:
        with refused("dtype", naming=["'int8'", "float64"]):
            export(fitted("ts"), tmp_path / "m.onnx", dtype="int8")

    def test_too_many_ranks(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        scores, labels = 3.0 * rng.normal(size=(200, 14)), rng.integers(14, size=200)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cordcal.PreservingCalibrator("ts", preserve=11).fit(scores, labels)
        with refused("model", naming=["11 ranks", "10"]):
            export(model, tmp_path / "m.onnx")

    def test_repair_alone(self, tmp_path: Path) -> None:
        with refused("model", naming=["CORD", "cordcal.PreservingCalibrator"]):
            export(cordcal.CORD(), tmp_path / "m.onnx")

    def test_unexportable_calibrator(self, tmp_path: Path, monkeypatch) -> None:
        model, cls = fitted("ms"), calibrator_class("ms")
        monkeypatch.setattr(cls, "logits", cordcal.calibrators.Calibrator.logits)
        with refused("model", naming="'ms'"):
            export(model, tmp_path / "m.onnx")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("preserve", [2, 3])
@pytest.mark.parametrize("classes", [4, 10])
def test_tied_logits_keep_the_smaller_index_first(
    classes: int, preserve: int, dtype: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=600)
    logits = 2.0 * np.eye(classes)[labels] + 1.5 * rng.normal(size=(600, classes))
    model = cordcal.PreservingCalibrator("ts", preserve=preserve).fit(logits, labels)
    tied = np.round(rng.normal(size=(500, classes))).astype(dtype)
    path = tmp_path / "tied.onnx"
    export(model, path, dtype=dtype)
    expected = model.predict_both(tied, dtype=dtype)
    result = run(path, tied)["repaired"]
    np.testing.assert_allclose(result, expected.repaired, rtol=0.0, atol=1e-6)
    for repaired in (result, expected.repaired):
        order = np.argsort(-tied, axis=1, kind="stable")[:, :preserve]
        ordered = np.take_along_axis(repaired, order, axis=1)
        assert (ordered[:, :-1] > ordered[:, 1:]).all()
