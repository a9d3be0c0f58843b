"""`Source`, the protocol of all readers: the rows of an input in pieces.

A format that can be read piece by piece implements `Source`; others are read at once and
sliced (`InMemorySource`).  Reading a whole input concatenates its pieces.
"""

from __future__ import annotations

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.types import NumPyArray, NumPyDType
from cordcal.files.columns import FEATURE_NAMES, Grouping
from cordcal.files.disk import check_size
from cordcal.files.passthrough import PartColumns, Passthrough

Format = Literal["npz", "npy", "hdf5", "torch", "csv", "jsonl", "parquet", "feather"]

Value = TypeVar("Value")

CLASS_NAMES = ("class_names", "classes", "names")


class _LazyMapping(Mapping[str, Value]):
    """A read-only mapping whose keys are known before its values are read."""

    _keys: Sequence[str]

    @abstractmethod
    def _value(self, key: str) -> Value:
        """Return the value of an existing key."""

    def __getitem__(self, key: str) -> Value:
        if key not in self._keys:
            raise KeyError(key)
        return self._value(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Chosen(_LazyMapping[NumPyArray]):
    """Some arrays of a mapping, or some rows of them, read on access."""

    def __init__(
        self, arrays: Mapping[str, NumPyArray], keys: list[str], rows: slice | None = None
    ) -> None:
        self._arrays, self._keys, self._rows = arrays, keys, rows

    def _value(self, key: str) -> NumPyArray:
        values = self._arrays[key]
        return values if self._rows is None else values[self._rows]


class Lazy(_LazyMapping[Value]):
    """Values that a function computes on first access."""

    def __init__(self, keys: Iterable[str], read: Callable[[str], Value]) -> None:
        self._keys, self._read = tuple(keys), read
        self._values: dict[str, Value] = {}

    def _value(self, key: str) -> Value:
        if key not in self._values:
            self._values[key] = self._read(key)
        return self._values[key]


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of a file: matrices and vectors by name, and class names if it has any.

    Attributes
    ----------
    path, format : str
        The file and its format.
    matrices, vectors : mapping of str to ndarray
        The arrays, read on access.
    class_names : tuple of str or None
        The class names stored in the file.
    shapes : mapping of str to tuple of int
        The shapes of all arrays.
    columns : mapping of str to tuple of str
        The table columns of each matrix.
    other_columns : callable or None
        Reads the table columns that are not part of a matrix.
    passthrough : Passthrough or None
        Those columns, if the reader was asked for them.
    header : bool or None
        Whether a CSV file has a header.
    headings, own_headings : mapping of str to tuple of str
        The names of the columns of each matrix, in the order in use and in that of the file.
    parts : tuple of Contents
        The files of a folder that was read as one.
    """

    path: str
    format: Format
    matrices: Mapping[str, NumPyArray]
    vectors: Mapping[str, NumPyArray]
    class_names: tuple[str, ...] | None
    shapes: Mapping[str, tuple[int, ...]]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_columns: Callable[[str], Passthrough] | None = None
    passthrough: Passthrough | None = None
    header: bool | None = None
    headings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own_headings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: tuple[Contents, ...] = ()

    def names_of(self, matrix: str) -> tuple[str, ...] | None:
        """Return the names of a matrix's columns: their headings, or else those in the file."""
        stored = None if matrix in FEATURE_NAMES else self.class_names
        return self.headings.get(matrix, stored)

    def own_names_of(self, matrix: str) -> tuple[str, ...] | None:
        """Return the names of a matrix's columns in the order of the file."""
        return self.own_headings.get(matrix, self.names_of(matrix))

    def __getitem__(self, key: str) -> NumPyArray:
        return self.matrices[key] if key in self.matrices else self.vectors[key]

    def check_header(self, part: Contents) -> None:
        """Refuse another part that has a header where this one has none, or the reverse."""
        if part.header != self.header:
            has, others = ("a", "no") if part.header else ("no", "a")
            raise InputError(
                part.path,
                f"has {has} header, but the parts before it have {others} header",
                "write all parts with a header, or none",
            )

    @classmethod
    def of(
        cls,
        path: str,
        format: Format,
        matrices: Mapping[str, NumPyArray],
        vectors: Mapping[str, NumPyArray] | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> Contents:
        """Return the contents of a file whose arrays are in memory."""
        others = {} if vectors is None else vectors
        shapes = {key: array.shape for key, array in (*matrices.items(), *others.items())}
        return cls(path, format, matrices, others, class_names, shapes)


def array_contents(
    name: str,
    format: Format,
    arrays: Mapping[str, NumPyArray],
    shapes: Mapping[str, tuple[int, ...]],
) -> Contents:
    """Return the contents of a file of named arrays, which are read on access."""
    named = next((key for key in CLASS_NAMES if key in shapes), None)
    names = None if named is None else tuple(map(str, arrays[named].reshape(-1)))
    keys = [key for key in shapes if key != named]
    matrices, vectors = (
        Chosen(arrays, [key for key in keys if len(shapes[key]) == size]) for size in (2, 1)
    )
    own_shapes = {key: shapes[key] for key in (*matrices, *vectors)}
    return Contents(name, format, matrices, vectors, names, own_shapes)


def column_contents(
    name: str,
    format: Format,
    matrices: Mapping[str, NumPyArray],
    vectors: Mapping[str, NumPyArray],
    grouping: Grouping,
    rows: Callable[[], int],
    *,
    names: tuple[str, ...] | None,
    other_columns: Callable[[str], Passthrough] | None = None,
) -> Contents:
    """Return the contents of a table."""

    def shape(key: str) -> tuple[int, ...]:
        columns = grouping.matrices.get(key, ())
        # The length of lists is known only from the column itself.
        return (
            matrices[key].shape
            if columns == (key,)
            else (rows(), len(columns))[: 1 + bool(columns)]
        )

    shapes = Lazy((*grouping.matrices, *grouping.vectors), shape)
    return Contents(
        name,
        format,
        matrices,
        vectors,
        names,
        shapes,
        grouping.matrices,
        other_columns,
        headings=grouping.names,
        own_headings=grouping.own_names,
    )


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

        def read(key: str) -> NumPyArray:
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

    def dtype_of(self, key: str) -> NumPyDType:
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
    max_rows = max(1, BATCH_BYTES // max(1, row_bytes))
    size = -(-rows // max(1, -(-rows // max_rows)))
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
        contents = self._contents
        columns = None
        if passthrough and contents.other_columns is not None:
            columns = contents.other_columns(keys[0])
        for start, stop in self.spans_of(keys[0])[first:]:
            rows = slice(start, stop)
            matrices, vectors = (
                Chosen(arrays, list(arrays), rows)
                for arrays in (contents.matrices, contents.vectors)
            )
            own = None if columns is None else columns.take(rows)
            yield replace(contents, matrices=matrices, vectors=vectors, passthrough=own)


# Below this size the allocator is faster.
_LARGE_BYTES = 2**20


def large_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> NumPyArray:
    """Return an array like `numpy.empty` whose memory returns to the system when it is freed.

    The allocator keeps freed memory in pieces that seldom fit the next request: with several
    threads that adds up to hundreds of megabytes.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)
