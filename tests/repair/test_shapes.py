"""The kernel works in fours, chunks and tiles: results do not depend on an array's shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cordcal.repair import CORD
from errors import refused

# Around the chunks of four and eight entries, the last width that goes in fours, and tiles.
CLASSES = (*range(2, 19), 31, 32, 33, 47, 48, 49, 50, 51, 100, 255, 257, 9000)
ROWS = (1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 67, 130)


def construct_and_repair(
    p: np.ndarray, q: np.ndarray, prediction: np.ndarray | None
) -> tuple[Any, np.ndarray]:
    cord = CORD(threads=1).fit(p, q, prediction=prediction)
    return cord.construction_, cord.transform(p, q, prediction=prediction)


def pair(rows: int, classes: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return reports of small integers over their sum: ties, zeros, and changed predictions."""
    rng = np.random.default_rng(rows * 10_000 + classes)
    counts = rng.integers(0, 4, size=(2, rows, classes)).astype(np.float64)
    counts[:, np.arange(rows), rng.integers(classes, size=rows)] += 1.0
    original, direct = counts / counts.sum(axis=2, keepdims=True)
    return original.astype(dtype), direct.astype(dtype)


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_both_engines_agree(classes: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in ROWS if classes < 1000 else (1, 5):
        p, q = pair(rows, classes, dtype)
        predictions = np.random.default_rng(rows).integers(classes, size=rows)
        for prediction in (None, predictions):
            construction, repaired = construct_and_repair(p, q, prediction)
            with monkeypatch.context() as patch:
                patch.setenv("CORDCAL_ENGINE", "array")
                expected, by_arrays = construct_and_repair(p, q, prediction)
            assert construction == expected
            np.testing.assert_array_equal(repaired, by_arrays)


@pytest.mark.parametrize("classes", [3, 10, 48, 60])
@pytest.mark.parametrize("name", ["original", "direct"])
def test_a_bad_entry_is_found_anywhere(name: str, classes: int) -> None:
    p, q = pair(6, classes, "float64")
    cord = CORD().fit(p, q)
    for row in range(6):
        for column in range(classes):
            for value in (np.nan, -1.0, np.inf):
                reports = {"original": p.copy(), "direct": q.copy()}
                reports[name][row, column] = value
                with refused(name, rows=[row]):
                    cord.transform(**reports)
