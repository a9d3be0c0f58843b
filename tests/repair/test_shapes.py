"""A row's bits depend neither on the rows around it nor on the layout of the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cordcal.repair import CORD
from cordcal.repair.engine import LONG_ROW
from errors import refused

# Around the pairs and eights of NumPy's sums, and the width from which rows are stored as rows.
CLASSES = (*range(2, 19), 31, 32, 33, *range(LONG_ROW - 2, LONG_ROW + 3), 100, 255, 257, 9000)
ROWS = (1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 67, 130)


def pair(rows: int, classes: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return reports of small integers over their sum: ties, zeros, and changed predictions."""
    rng = np.random.default_rng(rows * 10_000 + classes)
    counts = rng.integers(0, 4, size=(2, rows, classes)).astype(np.float64)
    counts[:, np.arange(rows), rng.integers(classes, size=rows)] += 1.0
    original, direct = counts / counts.sum(axis=2, keepdims=True)
    return original.astype(dtype), direct.astype(dtype)


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rule", ["argmax", "weights"])
def test_a_row_alone_has_the_bits_it_has_among_others(classes: int, dtype: str, rule: str) -> None:
    weights: Any = "argmax" if rule == "argmax" else 1.0 + np.arange(classes) % 3
    for rows in ROWS if classes < 1000 else (1, 5):
        p, q = pair(rows, classes, dtype)
        predictions = np.random.default_rng(rows).integers(classes, size=rows)
        for prediction in (None, predictions):
            cord = CORD(threads=1, rule=weights).fit(p, q, prediction=prediction)
            repaired = cord.transform(p, q, prediction=prediction)
            columns = np.asfortranarray(p), np.asfortranarray(q)
            again = CORD(threads=1, rule=weights).fit(*columns, prediction=prediction)
            assert again.construction_ == cord.construction_
            np.testing.assert_array_equal(cord.transform(*columns, prediction=prediction), repaired)
            for at in [slice(row, row + 1) for row in range(min(rows, 5))] + [slice(1, None)]:
                if at.start < rows:
                    keep = None if prediction is None else prediction[at]
                    alone = cord.transform(p[at], q[at], prediction=keep)
                    np.testing.assert_array_equal(alone, repaired[at])


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
