"""What lies in a file of any format: matrices, vectors, class names.

Which matrix holds the scores is decided in `cordcal.files.scores`.
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


class _Named(Mapping[str, Value]):
    """Values under names that are known before any value is."""

    _keys: Sequence[str]

    @abstractmethod
    def _value(self, key: str) -> Value:
        """Return what has one of the names."""

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


class Chosen(_Named[npt.NDArray[Any]]):
    """Some of an archive's arrays, or some rows of them; nothing is read before it is asked for."""

    def __init__(
        self, whole: Mapping[str, npt.NDArray[Any]], keys: list[str], rows: slice | None = None
    ) -> None:
        self._whole, self._keys, self._rows = whole, keys, rows

    def _value(self, key: str) -> npt.NDArray[Any]:
        values = self._whole[key]
        return values if self._rows is None else values[self._rows]


class Lazy(_Named[Value]):
    """Values by name that a function makes when they are first asked for."""

    def __init__(self, keys: Iterable[str], read: Callable[[str], Value]) -> None:
        self._keys, self._read = tuple(keys), read
        self._held: dict[str, Value] = {}

    def _value(self, key: str) -> Value:
        if key not in self._held:
            self._held[key] = self._read(key)
        return self._held[key]


@dataclass(frozen=True, eq=False)
class Contents:
    """What lies in a file: matrices and vectors by name, and the class names if it has any.

    Arrays are read when they are needed; ``shapes`` has their shapes.  Of a table, ``columns`` has
    the columns of each matrix; ``other_columns`` reads those that a matrix leaves, and
    ``passthrough`` has them if they were asked for.  ``header`` tells whether a CSV file has one.
    ``headings`` has the names of the columns that a matrix was gathered from, ``own_headings``
    the same in the order of the file.  ``parts`` are the files of a folder that was read as one.
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
        """Make a record of arrays that are in memory."""
        others = {} if vectors is None else vectors
        shapes = {key: array.shape for key, array in (*matrices.items(), *others.items())}
        return cls(path, format, matrices, others, class_names, shapes)


def array_contents(
    name: str,
    format: Format,
    arrays: Mapping[str, npt.NDArray[Any]],
    shapes: Mapping[str, tuple[int, ...]],
) -> Contents:
    """Name what lies in a file whose arrays are read when they are asked for."""
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
    """Name what lies in a table."""

    def shape(key: str) -> tuple[int, ...]:
        columns = grouping.matrices.get(key, ())
        # How long its lists are only a column itself can tell.
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
