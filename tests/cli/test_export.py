"""``cordcal export``: a model file becomes a graph that onnxruntime runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import cordcal

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture
def model(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    path = tmp_path / "model.safetensors"
    cordcal.save(cordcal.PreservingCalibrator("vs").fit(logits, labels), path)
    return path


def run(path: Path, rows: np.ndarray) -> tuple[str, np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    repaired, label = session.run(["repaired", "label"], {name: rows})
    return name, repaired, label


def test_graph(call, tmp_path: Path, model: Path, logits: np.ndarray) -> None:
    code, output, _ = call("export", "model.safetensors", "model.onnx", "--dtype", "float64")
    assert code == 0
    assert output.startswith("model.onnx: ")
    assert "logits in, direct, repaired and label out" in output
    name, repaired, label = run(tmp_path / "model.onnx", logits.astype(np.float64))
    assert name == "logits"
    assert np.array_equal(label, logits.argmax(axis=1))
    np.testing.assert_allclose(repaired, cordcal.load(model).predict_proba(logits), atol=1e-13)


def test_a_graph_has_info(call, model: Path) -> None:
    assert call("export", model, "model.onnx")[0] == 0
    found = json.loads(call("info", "model.onnx", "--json")[1])
    assert (found["format"], found["made_by"]) == ("ONNX graph", f"cordcal {cordcal.__version__}")


def test_json_and_probabilities(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    scores = softmax(logits, axis=1)
    fitted = cordcal.PreservingCalibrator("ts", input="probabilities").fit(scores, labels)
    cordcal.save(fitted, tmp_path / "model.safetensors")
    code, output, _ = call("export", "model.safetensors", "model.onnx", "--json")
    assert code == 0
    assert json.loads(output)["input"] == "probabilities"
    name, _, label = run(tmp_path / "model.onnx", scores.astype(np.float32))
    assert name == "probabilities"
    assert np.array_equal(label, scores.astype(np.float32).argmax(axis=1))
    arguments = ("export", "model.safetensors", "model.onnx", "--input", "logits", "--force")
    assert call(*arguments)[0] == 0
    assert run(tmp_path / "model.onnx", logits.astype(np.float32))[0] == "logits"


@pytest.mark.usefixtures("model")
class TestMistakes:
    def test_existing_output(self, call, tmp_path: Path) -> None:
        (tmp_path / "model.onnx").write_text("mine")
        code, _, errors = call("export", "model.safetensors", "model.onnx")
        assert code == 2
        assert "exists already; pass --force" in errors
        assert (tmp_path / "model.onnx").read_text() == "mine"

    def test_wrong_kind(self, call, tmp_path: Path) -> None:
        arguments = ("export", "model.safetensors", "model.onnx", "--input", "probabilities")
        code, _, errors = call(*arguments)
        assert code == 2
        assert "the model was fitted on logits" in errors
        assert not (tmp_path / "model.onnx").exists()

    def test_repair_alone(self, call, tmp_path: Path, logits: np.ndarray) -> None:
        original = softmax(logits, axis=1)
        cordcal.save(cordcal.CORD().fit(original, original), tmp_path / "cord.safetensors")
        code, _, errors = call("export", "cord.safetensors", "model.onnx")
        assert code == 2
        assert "model is a CORD; pass a fitted cordcal.PreservingCalibrator" in errors
