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
    result = json.loads(call("info", "model.onnx", "--json")[1])
    assert (result["format"], result["made_by"]) == ("ONNX graph", f"cordcal {cordcal.__version__}")


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


def write_network(path: Path, classes: int, width: int | str = 4) -> None:
    """Write a linear network with four features."""
    onnx = pytest.importorskip("onnx")
    weights = np.random.default_rng(0).normal(size=(4, classes)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "weights"], ["scores"])],
        "network",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", width])],
        [onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["N", classes])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    opsets = [onnx.helper.make_opsetid("", 13)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets)
    proto.ir_version = onnx.helper.find_min_ir_version_for(opsets)
    onnx.save(proto, path)


@pytest.mark.usefixtures("model")
class TestBehindANetwork:
    def test_both_in_one_file(self, call, tmp_path: Path, logits: np.ndarray) -> None:
        write_network(tmp_path / "net.onnx", logits.shape[1])
        code, output, _ = call("export", "model.safetensors", "whole.onnx", "--behind", "net.onnx")
        assert code == 0
        assert "net.onnx and model.safetensors joined" in output
        rows = np.random.default_rng(1).normal(size=(100, 4)).astype(np.float32)
        name, repaired, label = run(tmp_path / "whole.onnx", rows)
        assert name == "x"
        session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
        (scores,) = session.run(None, {"x": rows})
        assert np.array_equal(label, scores.argmax(axis=1))
        assert np.array_equal(repaired.argmax(axis=1), label)

    def test_an_output_is_named_with_the_file(
        self, call, tmp_path: Path, logits: np.ndarray
    ) -> None:
        write_network(tmp_path / "net.onnx", logits.shape[1])
        onnx = pytest.importorskip("onnx")
        proto = onnx.load(tmp_path / "net.onnx")
        proto.graph.output.append(
            onnx.helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, ["N", 4])
        )
        proto.graph.node.append(onnx.helper.make_node("Identity", ["x"], ["other"]))
        onnx.save(proto, tmp_path / "net.onnx")
        command = ("export", "model.safetensors", "whole.onnx", "--behind")
        code, _, errors = call(*command, "net.onnx")
        assert code == 2
        assert "name the one with the scores, --behind net.onnx:scores" in errors
        code, output, errors = call(*command, "net.onnx:scores")
        assert code == 0, errors
        assert "net.onnx and model.safetensors joined" in output

    def test_examples_are_for_python(self, call, tmp_path: Path, logits: np.ndarray) -> None:
        write_network(tmp_path / "net.onnx", logits.shape[1], width="width")
        command = ("export", "model.safetensors", "whole.onnx", "--behind", "net.onnx")
        code, _, errors = call(*command)
        assert code == 2
        assert 'pass examples="..." to cordcal.onnx.export in Python' in errors

    def test_mistakes(self, call, tmp_path: Path, logits: np.ndarray) -> None:
        write_network(tmp_path / "net.onnx", logits.shape[1] + 1)
        command = ("export", "model.safetensors", "whole.onnx", "--behind", "net.onnx")
        code, _, errors = call(*command)
        assert code == 2
        assert "classes" in errors
        code, _, errors = call(*command[:-1], "gone.onnx:scores")
        assert code == 2
        assert "--behind is gone.onnx:scores, which is not a file" in errors
        command = ("export", "model.safetensors", "net.onnx", "--behind", "net.onnx", "--force")
        code, _, errors = call(*command)
        assert code == 2
        assert "the same command reads" in errors
        assert not (tmp_path / "whole.onnx").exists()
