"""A network's graph and the repair in one file: the network's predictions stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import cordcal
from cordcal.export import _onnx_graph
from cordcal.export import onnx as export_module
from cordcal.onnx import export
from errors import refused

from .conftest import CLASSES, fitted, lifted

FEATURES = 5
ELEMENTS = {
    "float64": TensorProto.DOUBLE,
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
}


def network(
    path: Path,
    *,
    opset: int = 17,
    dtype: str = "float32",
    batch: int | str = "N",
    classes: int = CLASSES,
    constant: str = "W",
    outputs: tuple[str, ...] = ("scores",),
    feature_size: int | str = FEATURES,
) -> Path:
    """Write a linear network followed by a reduction whose signature depends on the opset."""
    rng = np.random.default_rng(0)
    element, weights = ELEMENTS[dtype], (2.0 * rng.normal(size=(FEATURES, classes))).astype(dtype)
    largest = helper.make_node("ReduceMax", ["z"], ["top"], keepdims=1, axes=[1])
    constants = [numpy_helper.from_array(weights, constant)]
    if opset >= 18:
        largest = helper.make_node("ReduceMax", ["z", "axes"], ["top"], keepdims=1)
        constants.append(numpy_helper.from_array(np.array([1]), "axes"))
    nodes = [helper.make_node("MatMul", ["x", constant], ["z"]), largest]
    nodes += [helper.make_node("Sub", ["z", "top"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", element, [batch, feature_size])],
        [helper.make_tensor_value_info(name, element, [batch, classes]) for name in outputs],
        constants,
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = helper.find_min_ir_version_for(opsets)
    onnx.save(model, path)
    return path


def run(path: Path, rows: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": rows}), strict=True))


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("opset", [11, 17, 18, 21])
def test_predictions_are_the_networks(opset: int, dtype: str, tmp_path: Path) -> None:
    model, path = lifted("likelihood"), tmp_path / "joined.onnx"
    net = network(tmp_path / "net.onnx", opset=opset, dtype=dtype)
    written = export(model, path, behind=net)
    assert written.rows_checked > 64
    assert written.bytes == path.stat().st_size
    rows = np.random.default_rng(1).normal(size=(500, FEATURES)).astype(dtype)
    rows[:50] = np.round(rows[:50])
    alone, joined = run(net, rows)["scores"], run(path, rows)
    np.testing.assert_array_equal(joined["scores"], alone)
    np.testing.assert_array_equal(joined["label"], alone.argmax(axis=1))
    top = np.sort(joined["repaired"], axis=1)
    assert (top[:, -1] > top[:, -2]).all()
    np.testing.assert_array_equal(joined["repaired"].argmax(axis=1), alone.argmax(axis=1))
    expected = model.predict_proba(alone, dtype=dtype)
    tolerance = {"float64": 1e-12, "float32": 1e-6, "float16": 2e-3}[dtype]
    np.testing.assert_allclose(joined["repaired"], expected, rtol=0, atol=tolerance)
    facts = {item.key: item.value for item in onnx.load(path).metadata_props}
    assert facts["calibrator"] == "svs"


def test_a_fixed_batch(tmp_path: Path) -> None:
    net = network(tmp_path / "net.onnx", batch=3)
    export(fitted("vs"), tmp_path / "joined.onnx", behind=net)
    rows = np.random.default_rng(1).normal(size=(3, FEATURES)).astype(np.float32)
    joined = run(tmp_path / "joined.onnx", rows)
    np.testing.assert_array_equal(joined["label"], joined["scores"].argmax(axis=1))


def test_names_that_the_network_uses_already(tmp_path: Path) -> None:
    net = network(tmp_path / "net.onnx", constant="c0", outputs=("label",))
    export(fitted("vs"), tmp_path / "joined.onnx", behind=net)
    rows = np.random.default_rng(1).normal(size=(20, FEATURES)).astype(np.float32)
    joined = run(tmp_path / "joined.onnx", rows)
    assert list(joined) == ["label", "direct", "repaired", "cordcal_label"]
    np.testing.assert_array_equal(joined["cordcal_label"], joined["label"].argmax(axis=1))


def test_one_of_several_outputs(tmp_path: Path) -> None:
    net = network(tmp_path / "net.onnx", outputs=("first", "second"))
    with refused("behind", naming=["first", "second"], option="network_output"):
        export(fitted("vs"), tmp_path / "joined.onnx", behind=net)
    export(fitted("vs"), tmp_path / "joined.onnx", behind=net, network_output="second")
    with refused("network_output", naming="'third'"):
        export(fitted("vs"), tmp_path / "other.onnx", behind=net, network_output="third")
    assert not (tmp_path / "other.onnx").exists()


def test_examples_for_inputs_of_unknown_size(tmp_path: Path) -> None:
    net = network(tmp_path / "net.onnx", feature_size="features")
    with refused("behind", naming="'x'", option="examples"):
        export(fitted("vs"), tmp_path / "joined.onnx", behind=net)
    rows = np.random.default_rng(1).normal(size=(30, FEATURES)).astype(np.float32)
    written = export(fitted("vs"), tmp_path / "joined.onnx", behind=net, examples={"x": rows})
    alone = export(fitted("vs"), tmp_path / "alone.onnx")
    assert written.rows_checked == alone.rows_checked + 30


def test_a_joined_graph_that_differs_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network(tmp_path / "net.onnx", outputs=("scores", "negative"))
    model = onnx.load(net)
    model.graph.node[-1].CopyFrom(helper.make_node("Sub", ["top", "z"], ["negative"]))
    onnx.save(model, net)

    def crossed(network: onnx.ModelProto, calibration: onnx.ModelProto, scores: str) -> object:
        return _onnx_graph.join(network, calibration, "negative")

    monkeypatch.setattr(export_module, "join", crossed)
    with pytest.raises(ValueError, match="predictions differ"):
        export(fitted("vs"), tmp_path / "joined.onnx", behind=net, network_output="scores")
    assert not (tmp_path / "joined.onnx").exists()


class TestMistakes:
    def test_other_classes(self, tmp_path: Path) -> None:
        net = network(tmp_path / "net.onnx", classes=4)
        with refused("behind", naming=["(?, 4)", "6 classes"]):
            export(fitted("vs"), tmp_path / "joined.onnx", behind=net)

    def test_not_a_network(self, tmp_path: Path) -> None:
        (tmp_path / "net.onnx").write_bytes(b"not a graph")
        with refused("behind", naming="net.onnx"):
            export(fitted("vs"), tmp_path / "joined.onnx", behind=tmp_path / "net.onnx")
        with refused("behind", naming="missing.onnx"):
            export(fitted("vs"), tmp_path / "joined.onnx", behind=tmp_path / "missing.onnx")

    def test_dtype_of_the_network(self, tmp_path: Path) -> None:
        net = network(tmp_path / "net.onnx")
        with refused("dtype", naming=["'float64'", "float32"]):
            export(fitted("vs"), tmp_path / "joined.onnx", behind=net, dtype="float64")

    def test_network_options_without_a_network(self, tmp_path: Path) -> None:
        with refused("network_output", naming="behind"):
            export(fitted("vs"), tmp_path / "joined.onnx", network_output="scores")

    def test_integer_scores(self, tmp_path: Path) -> None:
        net = network(tmp_path / "net.onnx")
        model = onnx.load(net)
        model.graph.node.append(
            helper.make_node("Cast", ["scores"], ["whole"], to=TensorProto.INT64)
        )
        model.graph.output.append(
            helper.make_tensor_value_info("whole", TensorProto.INT64, ["N", CLASSES])
        )
        onnx.save(model, net)
        with refused("behind", naming="INT64"):
            export(fitted("vs"), tmp_path / "joined.onnx", behind=net, network_output="whole")

    def test_probabilities_of_a_model_of_logits(self, tmp_path: Path) -> None:
        net = network(tmp_path / "net.onnx")
        with refused("input", naming="'probabilities'"):
            export(fitted("vs"), tmp_path / "joined.onnx", behind=net, input="probabilities")


def test_a_network_that_returns_probabilities(tmp_path: Path) -> None:
    net = network(tmp_path / "net.onnx")
    model = onnx.load(net)
    model.graph.node.append(helper.make_node("Softmax", ["scores"], ["shares"], axis=1))
    model.graph.output[0].name = "shares"
    onnx.save(model, net)
    calibrator: cordcal.PreservingCalibrator = fitted("irova", "probabilities")
    assert export(calibrator, tmp_path / "joined.onnx", behind=net).input == "probabilities"
    rows = np.random.default_rng(1).normal(size=(200, FEATURES)).astype(np.float32)
    joined = run(tmp_path / "joined.onnx", rows)
    np.testing.assert_array_equal(joined["label"], joined["shares"].argmax(axis=1))
    expected = calibrator.predict_proba(joined["shares"])
    np.testing.assert_allclose(joined["repaired"], expected, rtol=0, atol=1e-6)
