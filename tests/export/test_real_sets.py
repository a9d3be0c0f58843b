"""Torch and ONNX on real classifier outputs: the library's probabilities and predictions."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import cordcal
from cordcal.onnx import export
from cordcal.torch import PreservingModule
from precision import UNIT_ROUNDOFF

ROWS = 1000
# One affine map, one that ties exactly, one that keeps ranks.
MODELS = {"svs": 1, "irova": 1, "irova top 3": 3}


def assert_agree(result: np.ndarray, expected: np.ndarray, prediction: np.ndarray) -> None:
    """The prediction is alone on top; reports differ by rounding but where a map is steep."""
    mass = result[np.arange(len(prediction)), prediction]
    assert ((result >= mass[:, None]).sum(axis=1) == 1).all()
    tolerance = 4.0 * UNIT_ROUNDOFF["float32"]
    apart = (np.abs(result - expected) > tolerance).any(axis=1)
    # Isotonic steps as narrow as a rounding, and exact ties, go by the last bit of a softmax.
    assert apart.mean() <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_adapters_agree_with_the_library(real_set, name: str, tmp_path: Path) -> None:
    some = np.random.default_rng(0).permutation(len(real_set.labels))
    fitting, trying = some[:ROWS], some[ROWS : 2 * ROWS]
    scores = real_set.scores[trying]
    if scores.shape[1] <= MODELS[name]:
        pytest.skip("too few classes")
    model = cordcal.PreservingCalibrator(
        name.split()[0], input=real_set.kind, preserve=MODELS[name]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(real_set.scores[fitting], real_set.labels[fitting])
        expected = model.predict_both(scores, dtype="float32")

    repaired = PreservingModule(model)(torch.tensor(scores))
    assert repaired.dtype == torch.float32
    assert_agree(repaired.numpy(), expected.repaired, expected.prediction)

    path = tmp_path / "model.onnx"
    export(model, path, input=real_set.kind)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    repaired, label = session.run(["repaired", "label"], {real_set.kind: scores})
    assert np.array_equal(label, expected.prediction)
    assert_agree(repaired, expected.repaired, expected.prediction)
