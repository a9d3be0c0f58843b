"""Everything the README shows is true: its examples run, and its output is the real one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.special import softmax

from documents import ROOT, blocks, run_examples

README = ROOT / "README.md"


def your_data() -> dict[str, np.ndarray]:
    """Return what the examples call yours: scores, and the reports of some calibrator."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=2000)
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(2000, 4))
    original = softmax(logits, axis=1)
    direct = softmax(0.6 * logits + [0.0, 0.3, -0.3, 0.0], axis=1)
    return {
        "logits": logits[:1000],
        "labels": labels[:1000],
        "new_logits": logits[1000:],
        "original": original[:1000],
        "direct": direct[:1000],
        "new_original": original[1000:],
        "new_direct": direct[1000:],
    }


def test_examples_run() -> None:
    assert run_examples(README, your_data()) > 10


def test_output_of_the_demo_is_real(tmp_path: Path) -> None:
    shown, _ = blocks(README, "console")[0].split("$ make test")
    done = subprocess.run(
        [sys.executable, "-m", "cordcal", "demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    printed = [_without_time(line) for line in done.stdout.splitlines()]
    for line in shown.splitlines():
        if line and line not in ("$ make demo", "[...]"):
            assert _without_time(line) in printed


def test_pictures_and_files_it_names_exist() -> None:
    text = README.read_text("utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / target).exists(), target
    for script in re.findall(r"`python (\S+\.py)", text):
        assert (ROOT / script).exists(), script


def _without_time(line: str) -> str:
    """Drop the last cell of a table's row: seconds differ from run to run."""
    return "│".join(line.split("│")[:-2]) if line.startswith("│") else line
