"""Importing cordcal is cheap, and its surface is what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cordcal

HEAVY = (
    "sklearn",
    "matplotlib",
    "torch",
    "dask",
    "onnx",
    "onnxruntime",
    "pyarrow",
    "scipy",
    "pandas",
)
SCORES = str(Path(__file__).parent / "data" / "synth_n2000_k10.npz")
# scikit-learn loads these by itself where they are installed.
SKLEARN = ("sklearn", "scipy", "pandas", "pyarrow")


def run(code: str) -> str:
    source = str(Path(__file__).parents[1] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    loaded = run("import sys, cordcal; dir(cordcal); print(*sys.modules)").split()
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


def test_cord_needs_numpy_only_until_it_runs() -> None:
    loaded = run("import sys, cordcal; cordcal.CORD(); print(*sys.modules)").split()
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import cordcal.repair, cordcal._numeric.arrays", ()),
        ("import cordcal.metrics", ("scipy",)),
        ("import cordcal.files, cordcal.llm", ()),
        ("import cordcal.report", ()),
        ("import cordcal.calibrators, cordcal.preserving", ()),
        ("import cordcal.sklearn", SKLEARN),
        ("from cordcal.cli import main; main(['--version'])", ()),
        (f"from cordcal.cli import main; main(['info', {SCORES!r}])", ()),
        ("import numpy, cordcal; p = numpy.eye(3); cordcal.CORD().fit(p, p).transform(p, p)", ()),
    ],
)
def test_parts_bring_only_what_they_need(code: str, allowed: tuple[str, ...]) -> None:
    loaded = {
        name.split(".")[0] for name in run(f"import sys; {code}; print(*sys.modules)").split()
    }
    assert not (loaded & set(HEAVY)) - set(allowed)


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_version_and_help_do_without_numpy(argument: str) -> None:
    code = f"from cordcal.cli import main; main([{argument!r}])"
    assert "numpy" not in run(f"import sys; {code}; print(*sys.modules)").split()


def test_an_isotonic_fit_imports_no_scipy() -> None:
    fit = "PreservingCalibrator('irova').fit(3 * numpy.eye(3)[[0, 1, 2, 0, 1]], [0, 1, 2, 1, 2])"
    loaded = run(f"import sys, numpy, cordcal; cordcal.{fit}; print(*sys.modules)").split()
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


@pytest.mark.parametrize("key", ["ts", "vs", "sms", "irova", "irm", "ets"])
def test_a_loaded_model_applies_its_map_with_numpy_alone(key: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    logits = 5.0 + 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    path = tmp_path / "model.safetensors"
    cordcal.save(cordcal.PreservingCalibrator(key).fit(logits, labels), path)
    code = f"cordcal.load({str(path)!r}).predict_proba([[5.0, 4.0, 3.0]])"
    loaded = run(f"import sys, cordcal; {code}; print(*sys.modules)").split()
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


def test_every_public_name_resolves() -> None:
    assert dir(cordcal) == sorted(cordcal.__all__)
    for name in cordcal.__all__:
        if name not in ("onnx", "torch"):  # their frameworks are extras
            assert getattr(cordcal, name) is not None


def test_unknown_names_fail_as_usual() -> None:
    assert not hasattr(cordcal, "nonsense")
