"""Open a file of any format and name what lies in it: matrices, vectors, class names.

The format is read from the file's first bytes, so a wrong suffix does no harm.  Every
format ends in the same `Contents`; which matrix holds the scores is decided in
`cordcal.files._scores`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal.files import _hdf5
from cordcal.files._arrow import (
    class_names_in,
    group_fields,
    import_arrow,
    matrix_of,
    not_readable,
    vector_of,
)
from cordcal.files._columns import LABEL_NAMES, Grouping, grouped
from cordcal.files._csv import TextTable, read_table
from cordcal.files._numpy import Archive, Chosen, Header, Lazy, in_memory, read_array
from cordcal.files._opening import FORMATS, open_regular, read_whole
from cordcal.files._places import Places
from cordcal.files._rest import Rest, TextColumn

Format = Literal["npz", "npy", "hdf5", "csv", "parquet"]

_CLASS_NAMES = ("class_names", "classes", "names")


@dataclass(frozen=True, eq=False)
class Contents:
    """What lies in a file: matrices and vectors by name, and the class names if it has any.

    Arrays are read when they are asked for; ``shapes`` tells how large each is.  Of a table
    ``columns`` has the columns of each matrix, and ``others`` reads those that a matrix leaves;
    ``rest`` holds them where a reader asked for them.
    """

    path: str
    format: Format
    matrices: Mapping[str, npt.NDArray[Any]]
    vectors: Mapping[str, npt.NDArray[Any]]
    class_names: tuple[str, ...] | None
    shapes: Mapping[str, tuple[int, ...]]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    others: Callable[[str], Rest] | None = None
    rest: Rest | None = None

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        return self.matrices[key] if key in self.matrices else self.vectors[key]

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


def open_contents(path: str | os.PathLike[str], places: Places = Places()) -> Contents:  # noqa: B008
    """Read a file of any format; ``-`` reads stdin.

    Parameters
    ----------
    path : path or "-"
        The file.
    places : Places
        Where things are, as far as that is told.
    """
    if os.fspath(path) != "-":
        with open_regular(path) as file:
            head = file.read(8)
        if head.startswith(b"PK"):
            return _open_npz(os.fspath(path), lambda: open_regular(path))
        if head.startswith(_hdf5.MAGIC):
            return _open_hdf5(os.fspath(path), lambda: open_regular(path))
    name, data = read_whole(path)
    if not data:
        raise Refusal(name, "is empty", f"pass a {FORMATS} file of scores")
    if data.startswith(b"PK"):
        return _open_npz(name, in_memory(data))
    if data.startswith(_hdf5.MAGIC):
        return _open_hdf5(name, in_memory(data))
    if data.startswith(b"\x93NUMPY"):
        array = read_array(io.BytesIO(data), name)
        return Contents.of(name, "npy", *_by_dimension({"array": array}))
    if data.startswith(b"PAR1"):
        return _open_parquet(name, data, places)
    return _open_csv(name, data, places)


def _open_npz(name: str, opened: Callable[[], BinaryIO]) -> Contents:
    archive = Archive(name, opened)
    shapes, refused = _sorted_out(archive)
    if not shapes and not refused:
        raise Refusal(
            name,
            "is a zip archive without arrays",
            "pass a npz file that numpy.savez wrote, or a npy, CSV or Parquet file",
        )
    # Python objects under a name we do not need, such as fold names, do no harm.
    plain = any(len(shape) == 2 for shape in shapes.values())
    for key, refusal in refused.items():
        if not plain or key in (*LABEL_NAMES, *_CLASS_NAMES):
            raise refusal
    return _of_shapes(name, "npz", archive, shapes)


def _open_hdf5(name: str, opened: Callable[[], BinaryIO]) -> Contents:
    held = _hdf5.DataSets(name, opened)
    return _of_shapes(name, "hdf5", held, held.shapes)


def _of_shapes(
    name: str,
    format: Format,
    held: Mapping[str, npt.NDArray[Any]],
    shapes: Mapping[str, tuple[int, ...]],
) -> Contents:
    """Name what lies in a file whose arrays are read when they are asked for."""
    named = next((key for key in _CLASS_NAMES if key in shapes), None)
    names = None if named is None else tuple(map(str, held[named].reshape(-1)))
    keys = [key for key in shapes if key != named]
    matrices, vectors = (
        Chosen(held, [key for key in keys if len(shapes[key]) == size]) for size in (2, 1)
    )
    found = {key: shapes[key] for key in (*matrices, *vectors)}
    return Contents(name, format, matrices, vectors, names, found)


def _sorted_out(archive: Archive) -> tuple[dict[str, tuple[int, ...]], dict[str, Refusal]]:
    """Return the shapes of the arrays that can be read, and what is wrong with the others."""
    found = archive.headers.items()
    shapes = {key: each.shape for key, each in found if isinstance(each, Header)}
    return shapes, {key: each for key, each in found if isinstance(each, Refusal)}


def _by_dimension(
    entries: dict[str, npt.NDArray[Any]],
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Return the matrices and the vectors."""
    matrices, vectors = (
        {key: array for key, array in entries.items() if array.ndim == size} for size in (2, 1)
    )
    return matrices, vectors


def _open_parquet(name: str, data: bytes, places: Places) -> Contents:
    arrow, parquet = import_arrow()
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (arrow.ArrowException, OSError) as error:
        raise not_readable(name, error) from error
    return table_contents(name, "parquet", table, group_fields(table.schema, places, name))


def table_contents(name: str, format: Format, table: Any, grouping: Grouping) -> Contents:
    """Name what lies in an Arrow table: a whole file's, or some rows of it."""

    def matrix(key: str) -> npt.NDArray[Any]:
        return matrix_of(name, key, grouping.matrices[key], table)

    return _of_columns(
        name,
        format,
        Lazy(grouping.matrices, matrix),
        Lazy(grouping.vectors, lambda key: vector_of(table, key)),
        grouping,
        len(table),
        names=class_names_in(table.schema) or grouping.names,
        others=lambda key: Rest.of_arrow(
            table, [each for each in table.column_names if each not in grouping.matrices[key]]
        ),
    )


def _open_csv(name: str, data: bytes, places: Places) -> Contents:
    table = read_table(name, data)
    grouping = grouped(table.sorts, places, name, named=table.has_header)
    return _of_columns(
        name,
        "csv",
        Lazy(grouping.matrices, lambda key: table.numbers(grouping.matrices[key])),
        Lazy(grouping.vectors, table.vector),
        grouping,
        table.rows,
        names=grouping.names,
        others=lambda key: _other_cells(table, grouping.matrices[key]),
    )


def _other_cells(table: TextTable, taken: tuple[str, ...]) -> Rest:
    cells = table.cells([heading for heading in table.header if heading not in taken])
    return Rest({heading: TextColumn.of(column) for heading, column in cells.items()})


def _of_columns(
    name: str,
    format: Format,
    matrices: Mapping[str, npt.NDArray[Any]],
    vectors: Mapping[str, npt.NDArray[Any]],
    grouping: Grouping,
    rows: int,
    *,
    names: tuple[str, ...] | None,
    others: Callable[[str], Rest],
) -> Contents:
    def shape(key: str) -> tuple[int, ...]:
        columns = grouping.matrices.get(key, ())
        # How long its lists are only a column itself can tell.
        return (
            matrices[key].shape if columns == (key,) else (rows, len(columns))[: 1 + bool(columns)]
        )

    shapes = Lazy((*grouping.matrices, *grouping.vectors), shape)
    return Contents(name, format, matrices, vectors, names, shapes, grouping.matrices, others)
