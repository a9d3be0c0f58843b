"""What benchmarks share: stored outputs of classifiers, and results of runs that go on later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import cordcal

# Files that are the calibration part of another, features, and a thousand classes.
LEFT_OUT = ("_val.", "_cal.", "_trainoof.", "_features.", "imagenet1k")


def output_files(folder: Path) -> list[Path]:
    """Return the files of a folder that do not belong to others, the smallest first."""
    files = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_size)
    return [path for path in files if not any(mark in path.name for mark in LEFT_OUT)]


def read_outputs(path: str | Path) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the scores, the labels and the kind of the scores."""
    content = cordcal.files.read_scores(path)
    assert content.labels is not None
    return content.values, content.labels, content.kind


def read_cells(path: Path | None) -> list[Any]:
    """Return the results that an earlier run wrote, one per line."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def append_cell(path: Path | None, cell: Mapping[str, Any]) -> None:
    """Write a result, if a file was named."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cell) + "\n")
