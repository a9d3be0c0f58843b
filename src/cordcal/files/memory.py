"""Large blocks of memory that go back to the system as soon as they are let go.

An allocator keeps what it was given back, in pieces that seldom fit the next need: with
several threads at work that is hundreds of megabytes.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

# Below this the allocator does better.
_LARGE = 2**20
# Encoded bytes are kept in pieces of this size.
_PIECE = 2**23


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array like `numpy.empty`."""
    wanted = np.dtype(dtype)
    size = math.prod(shape) * wanted.itemsize
    if size < _LARGE or wanted.hasobject:
        return np.empty(shape, wanted)
    return np.frombuffer(mmap.mmap(-1, size), wanted).reshape(shape)


class Sink:
    """A file to write to that keeps what is written in memory, in pieces."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._room = 0

    def write(self, data: Any) -> int:
        """Keep some bytes."""
        given = np.frombuffer(data, np.uint8)
        size, done = given.size, 0
        while done < size:
            if not self._room:
                self._pieces.append(empty((_PIECE,), np.uint8))
                self._room = _PIECE
            step = min(self._room, size - done)
            start = _PIECE - self._room
            self._pieces[-1][start : start + step] = given[done : done + step]
            self._room -= step
            done += step
        return size

    def flush(self) -> None:
        """Do nothing: all is kept already."""

    def close(self) -> None:
        """Do nothing: there is nothing to let go."""

    @property
    def parts(self) -> list[memoryview]:
        """What was written, in pieces."""
        *whole, last = self._pieces
        return [piece.data for piece in (*whole, last[: _PIECE - self._room])]
