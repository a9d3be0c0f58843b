"""Large buffers that return to the operating system as soon as they are freed.

The allocator keeps freed memory in pieces that seldom fit the next request: with several
threads that adds up to hundreds of megabytes.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

# Below this size the allocator is faster.
_LARGE = 2**20
# Encoded bytes are kept in pieces of this size.
_PIECE = 2**23


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array like `numpy.empty`."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE or dtype.hasobject:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


class Sink:
    """A writable file object that keeps its data in memory, in pieces."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._free = 0

    def write(self, data: Any) -> int:
        """Append bytes."""
        values = np.frombuffer(data, np.uint8)
        size, done = values.size, 0
        while done < size:
            if not self._free:
                self._pieces.append(empty((_PIECE,), np.uint8))
                self._free = _PIECE
            step = min(self._free, size - done)
            start = _PIECE - self._free
            self._pieces[-1][start : start + step] = values[done : done + step]
            self._free -= step
            done += step
        return size

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    @property
    def parts(self) -> list[memoryview]:
        """What was written, in pieces."""
        *whole, last = self._pieces
        return [piece.data for piece in (*whole, last[: _PIECE - self._free])]
