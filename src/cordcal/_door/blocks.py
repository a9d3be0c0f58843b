"""Rows in blocks that stay in the cache, so that a pass costs no (n, K) temporaries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cordcal._door.types import Matrix

# 2 MB of float64: a block and its buffer stay in the cache, and NumPy's calls cost nothing.
BLOCK_ENTRIES = 2**18


def row_blocks(rows: int, classes: int, *, least: int = 1) -> Iterator[slice]:
    """Yield slices of rows that hold about 2 MB of float64 each, and ``least`` rows or more."""
    size = max(least, BLOCK_ENTRIES // classes)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def block_buffer(rows: int, classes: int) -> Matrix:
    """Return room for one block: reusing it spares the system a fresh page for every entry."""
    return np.empty((min(rows, max(1, BLOCK_ENTRIES // classes)), classes))
