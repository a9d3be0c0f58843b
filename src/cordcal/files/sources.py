"""`Source`, the protocol of all readers: the rows of an input in pieces.

A format that can be read piece by piece implements `Source`; others are read at once and
sliced (`InMemorySource`).  Reading a whole input concatenates its pieces.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import renumber_rows
from cordcal.files.contents import Chosen, Contents, Lazy
from cordcal.files.opening import check_size
from cordcal.files.passthrough import PartColumns

# A batch is at most 16 MiB of scores: far more than a cache, and small enough that a dozen
# batches in flight take less memory than the imports.
BATCH_BYTES = 2**24
# Rows that are read to detect the contents of a file.
SAMPLE_ROWS = 4096

Span = tuple[int, int]
"""First and last-plus-one row."""


class Source(ABC):
    """The arrays of an input by name, some rows at a time."""

    @abstractmethod
    def sample(self) -> Contents:
        """Return the first rows."""

    @abstractmethod
    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the rows of each piece of an array."""

    @abstractmethod
    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield the pieces from number ``first`` on.

        Parameters
        ----------
        first : int
            The first piece.
        keys : sequence of str
            The arrays that are needed; the first one, the scores, decides about the spans.
        passthrough : bool
            Whether the other columns of a table are needed too.
        """

    def contents(self) -> Contents:
        """Return the whole input; an array is read, and its pieces concatenated, when needed."""
        sample = self.sample()

        def shape(key: str) -> tuple[int, ...]:
            return (self.spans_of(key)[-1][1], *sample.shapes[key][1:])

        def read(key: str) -> npt.NDArray[Any]:
            size = math.prod(shape(key)) * sample[key].dtype.itemsize
            check_size(f"{sample.path} ({key})", size)
            arrays = []
            for (start, _), piece in zip(self.spans_of(key), self.pieces(0, [key]), strict=True):
                with renumber_rows(start):
                    arrays.append(piece[key])
            return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

        return replace(
            sample,
            matrices=Lazy(sample.matrices, read),
            vectors=Lazy(sample.vectors, read),
            shapes=Lazy(sample.shapes, shape),
        )

    def dtype_of(self, key: str) -> np.dtype[Any]:
        """Return the dtype of an array."""
        return self.sample()[key].dtype

    def part_rows(self, matrix: str) -> list[int]:
        """Return the number of rows of each file; most sources are one."""
        return [self.spans_of(matrix)[-1][1]]

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the passthrough columns of each file of a table, without rows."""
        return []


def split_rows(rows: int, row_bytes: int, first: int = 0) -> list[Span]:
    """Split rows into spans of nearly equal length, of at most `BATCH_BYTES`."""
    most = max(1, BATCH_BYTES // max(1, row_bytes))
    size = -(-rows // max(1, -(-rows // most)))
    return [(first + at, first + min(at + size, rows)) for at in range(0, rows, max(1, size))]


class InMemorySource(Source):
    """An input in memory, or one whose arrays are read in full on access."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def contents(self) -> Contents:
        """Return everything."""
        return self._contents

    def sample(self) -> Contents:
        """Return everything."""
        return self._contents

    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the spans of an array."""
        values = self._contents[key]
        return tuple(split_rows(len(values), values.itemsize * math.prod(values.shape[1:])))

    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield slices."""
        whole = self._contents
        columns = None
        if passthrough and whole.other_columns is not None:
            columns = whole.other_columns(keys[0])
        for start, stop in self.spans_of(keys[0])[first:]:
            rows = slice(start, stop)
            matrices, vectors = (
                Chosen(arrays, list(arrays), rows) for arrays in (whole.matrices, whole.vectors)
            )
            own = None if columns is None else columns.take(rows)
            yield replace(whole, matrices=matrices, vectors=vectors, passthrough=own)
