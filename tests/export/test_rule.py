"""Torch modules and ONNX graphs of models with a prediction rule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal import CORD, Lift, PredictionRule, PreservingCalibrator
from cordcal.calibrators import make
from cordcal.repair.prediction_rule import strictly_first
from errors import refused

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

REPAIRS = ["cord", "lift", Lift("likelihood")]


def model_of(repair: object, steepness: float, classes: int = 5) -> PreservingCalibrator:
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=400)
    logits = 2.0 * np.eye(classes)[labels] + rng.normal(size=(400, classes))
    weights = steepness ** np.linspace(0.0, 1.0, classes)
    # Labels that contradict the predictions make Lift meet its bounds.
    labels = np.where(rng.random(400) < 0.5, rng.integers(classes, size=400), labels)
    return PreservingCalibrator("irova", repair=repair, rule=weights).fit(logits, labels)


def probe_logits(model: PreservingCalibrator, dtype: str) -> np.ndarray:
    from cordcal.export.onnx import probe_rows

    return probe_rows(model, dtype, "logits")


@pytest.mark.parametrize("steepness", [4.0, 1e3, 1e8])
@pytest.mark.parametrize("repair", REPAIRS, ids=str)
def test_graphs(repair: object, steepness: float, tmp_path: Path) -> None:
    model = model_of(repair, steepness)
    for dtype in ["float64", "float32"] + ["float16"] * (steepness < 1e4):
        path = tmp_path / f"{dtype}.onnx"
        cordcal.onnx.export(model, path, dtype=dtype)  # compares with the library
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        logits = probe_logits(model, dtype)
        repaired, label = session.run(["repaired", "label"], {"logits": logits})
        np.testing.assert_array_equal(label, logits.argmax(axis=1))
        assert strictly_first(repaired, label, model.rule_).all()
        facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
        assert json.loads(facts["rule"]) == model.rule_.weights.tolist()


@pytest.mark.parametrize("steepness", [4.0, 1e3, 1e8])
@pytest.mark.parametrize("repair", REPAIRS, ids=str)
def test_modules(repair: object, steepness: float) -> None:
    model = model_of(repair, steepness)
    module = cordcal.torch.PreservingModule(model)
    weights = torch.tensor(model.rule_.weights)
    torch.testing.assert_close(module.rule_weights, weights)
    for name in ["float64", "float32", "bfloat16"] + ["float16"] * (steepness < 1e4):
        dtype = getattr(torch, name)
        rows = probe_logits(model, "float64" if name == "float64" else "float32")
        logits = torch.as_tensor(rows).to(dtype)
        repaired, prediction = module(logits), module.predict(logits)
        assert repaired.dtype == dtype
        assert torch.equal(prediction, logits.argmax(dim=1))
        for products in (repaired.double() * weights, repaired * weights.to(dtype)):
            own = products.gather(1, prediction[:, None])
            assert ((products >= own).sum(dim=1) == 1).all()
        if name == "float64":
            expected = model.predict_proba(rows)
            same = np.abs(repaired.numpy() - expected).max(axis=1) <= 1e-9
            assert same[:64].all()  # ordinary rows; near ties the last bit decides


def test_state_dict_carries_the_weights() -> None:
    module = cordcal.torch.PreservingModule(model_of("cord", 4.0))
    other = cordcal.torch.PreservingModule(model_of("cord", 64.0))
    other.load_state_dict(module.state_dict())
    logits = torch.randn(50, 5)
    torch.testing.assert_close(other(logits), module(logits))
    assert other._recipe == module._recipe
    assert "rule" in repr(module)


def test_compiled_module_traces() -> None:
    module = cordcal.torch.PreservingModule(model_of("lift", 4.0))
    logits = torch.randn(20, 5)
    program = torch.export.export(module, (logits,))
    torch.testing.assert_close(program.module()(logits), module(logits))


def test_refused_exports(tmp_path: Path) -> None:
    steep = model_of("cord", 1e8)
    with refused("dtype", naming="float32"):
        cordcal.onnx.export(steep, tmp_path / "steep.onnx", dtype="float16")
    with refused("dtype", naming="float32"):
        cordcal.torch.PreservingModule(steep)(torch.zeros(1, 5, dtype=torch.float16))
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 3)), rng.integers(3, size=200)
    passed = PreservingCalibrator("vs", rule="learnt")
    passed.fit(logits, labels, prediction=(logits * [1, 2, 3]).argmax(axis=1))
    with refused("model"):
        cordcal.onnx.export(passed, tmp_path / "passed.onnx")


def test_equal_weights_change_nothing() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(200, 3)), rng.integers(3, size=200)
    calibrator = make("vs").fit(scores, labels)
    direct = calibrator.predict_proba(scores)
    original = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    models = [
        PreservingCalibrator.from_fitted(
            calibrator, CORD(rule=rule).fit(original, direct), "logits", None
        )
        for rule in ("argmax", PredictionRule([3, 3, 3]))
    ]
    plain, equal = (cordcal.torch.PreservingModule(model) for model in models)
    assert plain._recipe == equal._recipe
