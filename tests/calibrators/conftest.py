"""The synthetic set, its exact optima, and small random data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import contract
from contract import BRIEF, make_map, noisy_logits, softmax
from cordcal import calibrators

__all__ = ["BRIEF", "make_map", "noisy_logits", "one_of_each_family", "softmax"]


@dataclass(frozen=True)
class Split:
    """Calibration and evaluation halves of the synthetic set."""

    cal_logits: np.ndarray
    cal_labels: np.ndarray
    cal_features: np.ndarray
    eval_logits: np.ndarray
    eval_labels: np.ndarray
    eval_features: np.ndarray


@pytest.fixture(scope="session")
def synth(fixture_folder: Path) -> Split:
    with np.load(fixture_folder / "synth_n2000_k10.npz") as data:
        return Split(**{name: data[name] for name in data.files})


@pytest.fixture(scope="session")
def optima(fixture_folder: Path) -> dict[str, dict[str, float]]:
    return json.loads((fixture_folder / "exact_optima_synth.json").read_text())


def one_of_each_family() -> list[str]:
    """Return the first key of each file of calibrators that scores alone can fit."""
    return contract.one_of_each_family(calibrators.available())
