"""torch and ONNX compute the maps of the study's calibrators like NumPy."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import numpy as np
import pytest

import cordcal
from contract import make_map, noisy_logits, softmax
from cordcal import calibrators
from cordcal_study.calibrators import CLASSES
from products import product

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

KEYS = [key for key in CLASSES if calibrators.calibrator_class(key).has_expression()]
KINDS = ("logits", "probabilities")
ROUNDING = {"float64": 0.0, "float32": 4.0 * 2.0**-24}


def scores_of(rows: int, kind: str, seed: int) -> np.ndarray:
    logits, _ = noisy_logits(rows, 6, seed=seed)
    return logits if kind == "logits" else softmax(logits)


@functools.cache
def fitted(key: str, kind: str) -> cordcal.PreservingCalibrator:
    _, labels = noisy_logits(500, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cordcal.PreservingCalibrator(make_map(key, input=kind), input=kind)
        return model.fit(scores_of(500, kind, 0), labels)


def steepness(model: cordcal.PreservingCalibrator) -> float:
    """Return how much a map magnifies the last bit of a softmax: its largest slope."""
    if not hasattr(model.calibrator_, "knot_x_"):
        return 10.0
    run, rise = np.diff(model.calibrator_.knot_x_), np.diff(model.calibrator_.knot_y_)
    inner = run > 0.0
    return max(10.0, float(np.max(np.abs(rise[inner]) / run[inner])))


def library(model: cordcal.PreservingCalibrator, rows: np.ndarray, dtype: str):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="mcct-i")
        return model.predict_both(rows, dtype=dtype)


def test_all_but_one_are_expressions() -> None:
    assert {*CLASSES} - {*KEYS} == {"adats"}  # its network reads features, not scores


@pytest.mark.parametrize(("key", "kind"), product(KEYS, KINDS, whole=KEYS))
def test_torch(key: str, kind: str) -> None:
    from cordcal.torch import PreservingModule

    model, rows = fitted(key, kind), scores_of(400, kind, 1)
    expected, module = library(model, rows, "float64"), PreservingModule(model)
    tolerance = 1e-14 * steepness(model)
    np.testing.assert_allclose(
        module.direct(torch.tensor(rows)).numpy(), expected.direct, atol=tolerance
    )
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        tensor = torch.tensor(rows, dtype=dtype)
        np.testing.assert_array_equal(module(tensor).argmax(dim=1), tensor.argmax(dim=1))


@pytest.mark.parametrize(("key", "kind", "dtype"), product(KEYS, KINDS, [*ROUNDING], whole=KEYS))
def test_onnx(key: str, kind: str, dtype: str, tmp_path: Path) -> None:
    from cordcal.onnx import export

    model, path = fitted(key, kind), tmp_path / "model.onnx"
    written = export(model, path, dtype=dtype, input=kind)
    assert written.bytes < 70_000  # venn-abers has 2,500 half-lines
    rows = scores_of(300, kind, 1).astype(dtype)
    session = onnxruntime.InferenceSession(path)
    (name,) = (entry.name for entry in session.get_inputs())
    direct, repaired = session.run(["direct", "repaired"], {name: rows})
    expected = library(model, rows, dtype)
    tolerance = 1e-14 * steepness(model) + ROUNDING[dtype]
    assert np.abs(direct.astype(np.float64) - expected.direct).max() <= tolerance
    assert np.abs(repaired.astype(np.float64) - expected.repaired).max() <= tolerance
    np.testing.assert_array_equal(repaired.argmax(axis=1), rows.argmax(axis=1))
