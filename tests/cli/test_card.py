"""`cordcal info --card`: the figures that `fit` measured, on stdout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml


@pytest.fixture(autouse=True)
def model(call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    assert call("fit", "s.npz", "--calibrator", "ts")[0] == 0


def test_it_has_what_fit_printed(call) -> None:
    code, card, _ = call("info", "model.safetensors", "--card")
    assert code == 0
    _, block, text = card.split("---\n", maxsplit=2)
    (result,) = yaml.safe_load(block)["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    printed = call("fit", "s.npz", "--calibrator", "ts", "--force")[1]
    assert f"→ {values['nll']:.4f}" in printed
    assert "400 calibration rows held out in 5 folds" in text


def test_it_is_of_model_files_and_not_json(call) -> None:
    for arguments, message in (
        (("s.npz",), "is not a model file"),
        (("model.safetensors", "--json"), "leave out --json"),
    ):
        code, _, errors = call("info", *arguments, "--card")
        assert code == 2
        assert message in errors
        assert len(errors.strip().splitlines()) == 1
