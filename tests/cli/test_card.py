"""`cordcal info --report`: the figures that `fit` measured, as a model card."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml


@pytest.fixture(autouse=True)
def model(call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    assert call("fit", "s.npz", "--calibrator", "ts")[0] == 0


def test_it_has_what_fit_printed(call, tmp_path: Path) -> None:
    info = ("info", "model.safetensors", "--report", "card.md")
    code, printed, _ = call(*info)
    assert code == 0
    assert "model.safetensors" in printed
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    _, block, text = card.split("---\n", maxsplit=2)
    (result,) = yaml.safe_load(block)["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    printed = call("fit", "s.npz", "--calibrator", "ts", "--force")[1]
    assert f"→ {values['nll']:.4f}" in printed
    assert "400 calibration rows held out in 5 folds" in text


def test_it_is_of_model_files_and_replaces_nothing(call, tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("mine")
    for arguments, message in (
        (("s.npz", "--report", "card.md"), "is not a model file"),
        (("model.safetensors", "--report", "card.html"), "name it card.md"),
        (("model.safetensors", "--report", "there.md"), "exists already; pass --force"),
    ):
        code, printed, errors = call("info", *arguments)
        assert (code, printed) == (2, "")
        assert message in errors
        assert len(errors.strip().splitlines()) == 1
    assert (tmp_path / "there.md").read_text() == "mine"
    assert not (tmp_path / "card.md").exists()
    assert call("info", "model.safetensors", "--report", "there.md", "--force")[0] == 0


def test_it_goes_with_json(call, tmp_path: Path) -> None:
    code, printed, _ = call("info", "model.safetensors", "--report", "card.md", "--json")
    assert code == 0
    assert json.loads(printed)["format"]
    assert (tmp_path / "card.md").exists()
