"""Run the command as a process of its own, on scores of three classes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SOURCE = Path(__file__).parents[2] / "src"
Run = Callable[..., "subprocess.CompletedProcess[Any]"]
NAMES = ("ant", "bee", '<i>wasp</i>, "W"')


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a command that runs this worktree's code."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "120", "PYTHONUTF8": "1"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run ``cordcal`` in the test's own folder, or code that ends with running it."""

    def run(*arguments: object, code: str | None = None, text: bool = True, **options: Any) -> Any:
        program = ("-m", "cordcal") if code is None else ("-c", code)
        return subprocess.run(
            [sys.executable, *program, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
            text=text,
            **options,
        )

    return run


@pytest.fixture
def logits() -> np.ndarray:
    """Scores of a classifier that is right more often than not, and too sure of it."""
    rng = np.random.default_rng(3)
    return 3.0 * (np.eye(3)[labels_of(400)] + 0.7 * rng.normal(size=(400, 3)))


def labels_of(rows: int) -> np.ndarray:
    return np.random.default_rng(2).integers(3, size=rows)


@pytest.fixture
def labels() -> np.ndarray:
    return labels_of(400)
