"""The synthetic set of cordcal's own tests."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

TESTS = Path(__file__).parents[3] / "tests"


@pytest.fixture(scope="session")
def synth() -> SimpleNamespace:
    """Calibration and evaluation halves of the synthetic set."""
    with np.load(TESTS / "data" / "synth_n2000_k10.npz") as data:
        return SimpleNamespace(**{name: data[name] for name in data.files})


@pytest.fixture
def real_data() -> Path:
    """The folder of real outputs."""
    folder = os.environ.get("CORDCAL_TEST_DATA")
    if not folder:
        pytest.skip("CORDCAL_TEST_DATA is not set; the real outputs are not part of the project")
    return Path(folder)
