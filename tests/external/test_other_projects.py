"""Tests of probmetrics and torchmetrics, read from their sources, run with our numbers.

``make test-external`` downloads the source distributions and names their folder in
``CORDCAL_EXTERNAL_SOURCES``.  That folder may hold checkouts as well, ``probmetrics`` and
``torchmetrics``: a distribution need not contain the tests.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cordcal import calibrators

pytestmark = pytest.mark.filterwarnings("default")


def source_of(name: str, test: str, folder: Path) -> Path:
    """Return the path of a test file in a checkout or a source distribution; skip without it."""
    place = os.environ.get("CORDCAL_EXTERNAL_SOURCES")
    if not place:
        pytest.skip("CORDCAL_EXTERNAL_SOURCES is not set; `make test-external` sets it")
    if (Path(place) / name / test).is_file():
        return Path(place) / name / test
    archives = sorted(Path(place).glob(f"{name}-*.tar.gz"))
    if not archives:
        pytest.skip(f"the package index has no source distribution of {name}")
    with tarfile.open(archives[-1]) as archive:
        archive.extractall(folder, filter="data")
    result = sorted(folder.glob(f"*/{test}"))
    if not result:
        pytest.skip(f"{archives[-1].name} does not contain {test}")
    return result[-1]


def load(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a test file that imports its own package of tests."""
    monkeypatch.setitem(sys.modules, "tests", ModuleType("tests"))
    spec = importlib.util.spec_from_file_location(f"external_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KEYS = calibrators.available()


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_calibrators_in_the_tests_of_probmetrics(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source_of("probmetrics", "tests/test_calibrators.py", tmp_path)
    base = pytest.importorskip("probmetrics.calibrators", reason="probmetrics is not installed")

    class Ours(base.Calibrator):
        def __init__(self, key: str = "ts") -> None:
            super().__init__()
            self.key = key

        def _fit_impl(self, X: np.ndarray, y: np.ndarray) -> None:
            self.model_ = calibrators.make(self.key, input="probabilities").fit(X, y)

        def _predict_proba_impl(self, X: np.ndarray) -> np.ndarray:
            return self.model_.predict_proba(X)

    upstream = load(path, monkeypatch)
    metrics = [upstream.BrierLoss(), upstream.SmoothCalibrationError(), upstream.CalibrationError()]
    upstream.test_calibrator_missing_class(key, Ours(key))
    for rows, classes, power, seed in ((500, 2, 0.3, 0), (2000, 4, 2.0, 1)):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet(rng.exponential(size=classes), size=rows)
        truth = (probs + 1e-30) ** power
        truth /= truth.sum(axis=1, keepdims=True)
        data = probs.astype(np.float32), upstream.sample_labels(truth, random_state=seed)
        upstream.test_calibrator_torch_vs_numpy(key, Ours(key), data)
        for metric in metrics:
            upstream.test_calibrator_performance(metric, key, Ours(key), data)


@pytest.mark.slow
def test_ece_in_the_tests_of_torchmetrics(tmp_path: Path) -> None:
    """Let our ECE be the reference of torchmetrics' own tests of its multiclass ECE."""
    name = "tests/unittests/classification/test_calibration_error.py"
    path = source_of("torchmetrics", name, tmp_path)
    selection = ["-p", "torchmetrics_reference", "-k", "TestMulticlass and functional and l1"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    run = subprocess.run(
        [*command, *selection, str(path)],
        cwd=path.parents[1],
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{path.parents[2]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
