"""The contents of a file of any format: matrices, vectors, class names.

`cordcal.files.scores` decides which matrix holds the scores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files.columns import FEATURE_NAMES, Grouping
from cordcal.files.passthrough import Passthrough

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


class Chosen(_LazyMapping[npt.NDArray[Any]]):
    """Some arrays of a mapping, or some rows of them, read on access."""

    def __init__(
        self, arrays: Mapping[str, npt.NDArray[Any]], keys: list[str], rows: slice | None = None
    ) -> None:
        self._arrays, self._keys, self._rows = arrays, keys, rows

    def _value(self, key: str) -> npt.NDArray[Any]:
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
    matrices: Mapping[str, npt.NDArray[Any]]
    vectors: Mapping[str, npt.NDArray[Any]]
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

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
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
        matrices: Mapping[str, npt.NDArray[Any]],
        vectors: Mapping[str, npt.NDArray[Any]] | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> Contents:
        """Return the contents of a file whose arrays are in memory."""
        others = {} if vectors is None else vectors
        shapes = {key: array.shape for key, array in (*matrices.items(), *others.items())}
        return cls(path, format, matrices, others, class_names, shapes)


def array_contents(
    name: str,
    format: Format,
    arrays: Mapping[str, npt.NDArray[Any]],
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
    matrices: Mapping[str, npt.NDArray[Any]],
    vectors: Mapping[str, npt.NDArray[Any]],
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
