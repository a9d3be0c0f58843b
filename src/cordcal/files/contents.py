"""What lies in a file of any format: matrices, vectors, class names.

Which matrix holds the scores is decided in `cordcal.files.scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files._arrow import class_names_in, matrix_of, readable, vector_of
from cordcal.files._numpy import Chosen, Lazy
from cordcal.files.columns import FEATURE_NAMES, Grouping
from cordcal.files.passthrough import Passthrough

Format = Literal["npz", "npy", "hdf5", "torch", "csv", "jsonl", "parquet", "feather"]

CLASS_NAMES = ("class_names", "classes", "names")


@dataclass(frozen=True, eq=False)
class Contents:
    """What lies in a file: matrices and vectors by name, and the class names if it has any.

    Arrays are read when they are asked for; ``shapes`` tells how large each is.  Of a table
    ``columns`` has the columns of each matrix, and ``others`` reads those that a matrix leaves;
    ``rest`` holds them where a reader asked for them; ``header`` tells whether a CSV file has one.
    ``headings`` has the names of the columns that a matrix was gathered from, and ``own_headings``
    the same in the order of the file.  ``parts`` are the files of a folder that was read as one.
    """

    path: str
    format: Format
    matrices: Mapping[str, npt.NDArray[Any]]
    vectors: Mapping[str, npt.NDArray[Any]]
    class_names: tuple[str, ...] | None
    shapes: Mapping[str, tuple[int, ...]]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    others: Callable[[str], Passthrough] | None = None
    rest: Passthrough | None = None
    header: bool | None = None
    header_names: tuple[str, ...] = ()
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
        beside = {} if vectors is None else vectors
        shapes = {key: array.shape for key, array in (*matrices.items(), *beside.items())}
        return cls(path, format, matrices, beside, class_names, shapes)


def array_contents(
    name: str,
    format: Format,
    held: Mapping[str, npt.NDArray[Any]],
    shapes: Mapping[str, tuple[int, ...]],
) -> Contents:
    """Name what lies in a file whose arrays are read when they are asked for."""
    named = next((key for key in CLASS_NAMES if key in shapes), None)
    names = None if named is None else tuple(map(str, held[named].reshape(-1)))
    keys = [key for key in shapes if key != named]
    matrices, vectors = (
        Chosen(held, [key for key in keys if len(shapes[key]) == size]) for size in (2, 1)
    )
    found = {key: shapes[key] for key in (*matrices, *vectors)}
    return Contents(name, format, matrices, vectors, names, found)


def table_contents(name: str, format: Format, table: Any, grouping: Grouping) -> Contents:
    """Name what lies in an Arrow table: a whole file's, or some rows of it."""

    def matrix(key: str) -> npt.NDArray[Any]:
        with readable(name, format):
            return matrix_of(name, key, grouping.matrices[key], table)

    def vector(key: str) -> npt.NDArray[Any]:
        with readable(name, format):
            return vector_of(table, key)

    stored = class_names_in(table.schema)
    contents = column_contents(
        name,
        format,
        Lazy(grouping.matrices, matrix),
        Lazy(grouping.vectors, vector),
        grouping,
        lambda: len(table),
        names=stored or grouping.class_names,
        others=lambda key: Passthrough.from_arrow(
            table, [each for each in table.column_names if each not in grouping.matrices[key]]
        ),
    )
    if stored is None or not contents.headings:
        return contents
    # Metadata name the columns by position only where no heading is a class itself.
    positional = {
        key: stored
        for key, names in grouping.names.items()
        if key not in FEATURE_NAMES and len(names) == len(stored) and set(names).isdisjoint(stored)
    }
    headings, own = ({**each, **positional} for each in (grouping.names, grouping.own_names))
    return replace(contents, headings=headings, own_headings=own)


def column_contents(
    name: str,
    format: Format,
    matrices: Mapping[str, npt.NDArray[Any]],
    vectors: Mapping[str, npt.NDArray[Any]],
    grouping: Grouping,
    rows: Callable[[], int],
    *,
    names: tuple[str, ...] | None,
    others: Callable[[str], Passthrough] | None = None,
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
        others,
        headings=grouping.names,
        own_headings=grouping.own_names,
    )
