"""Run the command as a person does: as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a command that runs this worktree's code."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "120", "PYTHONUTF8": "1"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run ``cordcal`` in the test's own folder."""

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        options.setdefault("text", True)
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [sys.executable, "-m", "cordcal", *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
            **options,
        )

    return run
