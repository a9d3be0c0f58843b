"""The export script on a tiny model and data: what it writes is what a study reads."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from cordcal.files import read_scores

torch = pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[2] / "examples" / "export_logits.py"


def test_export_writes_logits_labels_and_features(tmp_path: Path) -> None:
    export = runpy.run_path(str(SCRIPT))["export"]
    torch.manual_seed(0)
    images, labels = torch.randn(50, 3, 4, 4), torch.randint(0, 5, (50,))
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(48, 7), torch.nn.ReLU(), torch.nn.Linear(7, 5)
    )
    data = torch.utils.data.TensorDataset(images, labels)
    names = [f"class {index}" for index in range(5)]
    path = tmp_path / "model.npz"
    export(model, torch.utils.data.DataLoader(data, batch_size=16), path, class_names=names)

    scores = read_scores(path)
    assert scores.kind == "logits"
    assert scores.values.dtype == np.float32
    assert scores.class_names == tuple(names)
    np.testing.assert_array_equal(scores.labels, labels.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(scores.values, model(images).numpy(), rtol=0, atol=1e-5)
        hidden = model[2](model[1](images.flatten(1))).numpy()
    with np.load(path) as written:
        np.testing.assert_allclose(written["features"], hidden, rtol=0, atol=1e-5)
    assert not model[3]._forward_pre_hooks


def test_a_model_without_a_linear_layer_has_no_features(tmp_path: Path) -> None:
    export = runpy.run_path(str(SCRIPT))["export"]
    batches = [(torch.eye(3), torch.arange(3))]
    export(torch.nn.Identity(), batches, tmp_path / "identity.npz")
    with np.load(tmp_path / "identity.npz") as written:
        assert sorted(written) == ["labels", "logits"]
