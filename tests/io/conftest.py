"""Score files in the layouts that are streamed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a matrix as one column of fixed-size lists, in row groups, or as npy."""

    def write(name: str, matrix: np.ndarray, *, key: str = "logits", group: int = 100) -> Path:
        path = tmp_path / name
        if path.suffix == ".npy":
            np.save(path, matrix)
            return path
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        flat = arrow.array(np.ascontiguousarray(matrix).reshape(-1))
        column = arrow.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
        parquet.write_table(arrow.table({key: column}), path, row_group_size=group)
        return path

    return write
