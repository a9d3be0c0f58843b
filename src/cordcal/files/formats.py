"""Which reader a file needs: its format is told by its first bytes.

So a wrong suffix does no harm.  Every format ends in the same `Contents`, whole or piece by piece.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files import _hdf5, _ipc
from cordcal.files._arrow import group_fields, import_arrow, not_readable
from cordcal.files._csv import TextTable, read_table
from cordcal.files._header import is_position
from cordcal.files._jsonl import group_keys, parse_lines, starts_json
from cordcal.files._lines import Lines, line_contents
from cordcal.files._numpy import Archive, Header, Lazy, in_memory, read_array
from cordcal.files._torch import is_torch, read_tensors
from cordcal.files.columns import LABEL_NAMES, ColumnSpec, grouped
from cordcal.files.contents import (
    CLASS_NAMES,
    Contents,
    array_contents,
    column_contents,
    table_contents,
)
from cordcal.files.opening import FORMATS, NoRows, open_regular, read_whole
from cordcal.files.parts import Parts, part_order, parts_of
from cordcal.files.passthrough import (
    PartColumns,
    Passthrough,
    TextColumn,
    TextType,
    text_type_of,
)
from cordcal.files.sources import Hdf5, Npy, Parquet, Source, Whole

_NPY, _PARQUET, _STREAM = b"\x93NUMPY", b"PAR1", b"\xff\xff\xff\xff"
# What the first bytes of a file say of it lies within these.
_HEAD = 64

NOTHING_TOLD = ColumnSpec()


def open_source(path: str, spec: ColumnSpec) -> Source:
    """Open a file, or the files of a folder or a pattern, to be read piece by piece."""
    parts = parts_of(path)
    if parts is not None:
        return Parts(path, parts, spec, open_source)
    if path == "-":
        name, data = read_whole(path)
        if starts_json(data[:_HEAD]):
            return Lines(name, in_memory(data), spec)
        return Whole(_read(name, data, spec))

    def opened() -> BinaryIO:
        return open_regular(path)

    with opened() as file:
        head = file.read(_HEAD)
    if head.startswith(_PARQUET):
        return Parquet(path, spec)
    if head.startswith(_NPY):
        return Npy(path)
    if head.startswith(_hdf5.MAGIC):
        return Hdf5(path, _hdf5.DataSets(path, opened))
    if head.startswith(_ipc.MAGIC):
        return _ipc.Ipc(path, spec)
    if starts_json(head):
        return Lines(path, opened, spec)
    if head.startswith(b"PK"):
        return Whole(open_contents(path, spec))
    return _CsvFile(path, spec)


def open_contents(path: str | os.PathLike[str], spec: ColumnSpec = NOTHING_TOLD) -> Contents:
    """Read a file of any format; ``-`` reads stdin.

    Parameters
    ----------
    path : path or "-"
        The file, a folder of parts, or a pattern that names them.
    spec : ColumnSpec
        Where things are, as far as that is told.
    """
    where = os.fspath(path)
    parts = parts_of(where)
    if parts is not None:
        return _together(where, parts, spec)
    if where != "-":
        with open_regular(where) as file:
            head = file.read(_HEAD)
        found = _read_by_need(where, head, lambda: open_regular(where))
        if found is not None:
            return found
    name, data = read_whole(where)
    return _read(name, data, spec)


def _read(name: str, data: bytes, spec: ColumnSpec) -> Contents:
    """Read bytes that are all there."""
    if not data:
        raise NoRows(name, "is empty", f"pass a {FORMATS} file of scores")
    found = _read_by_need(name, data[:_HEAD], in_memory(data))
    if found is not None:
        return found
    if data.startswith(_NPY):
        array = read_array(io.BytesIO(data), name)
        return Contents.of(name, "npy", *_by_dimension({"array": array}))
    if data.startswith(_PARQUET):
        return _open_parquet(name, data, spec)
    if data.startswith(_ipc.MAGIC):
        return _ipc.read_ipc(name, data, spec)
    if starts_json(data[:_HEAD]):
        rows = parse_lines(name, io.BytesIO(data))
        return line_contents(name, rows, group_keys(rows, spec, name))
    return _open_csv(name, data, spec)


def _read_by_need(name: str, head: bytes, opened: Callable[[], BinaryIO]) -> Contents | None:
    """Open a format whose arrays are read when they are asked for; None for the others."""
    if head.startswith(b"PK"):
        return _open_torch(name, opened) if is_torch(opened) else _open_npz(name, opened)
    if head.startswith(_hdf5.MAGIC):
        held = _hdf5.DataSets(name, opened)
        return array_contents(name, "hdf5", held, held.shapes)
    return None


def _together(path: str, parts: Sequence[str], spec: ColumnSpec) -> Contents:
    """Read several files as one; those without rows are passed over."""
    found: list[Contents] = []
    for part in parts:
        try:
            found.append(open_contents(part, spec))
        except NoRows:
            continue
        # Columns of later parts are brought into the order of the first one's.
        spec = replace(spec, order=spec.order or found[0].headings)
    if not found:
        raise NoRows(path, "has no rows", "pass at least one")
    first = found[0]
    for other in found[1:]:
        first.check_header(other)
        missing = [key for key in (*first.matrices, *first.vectors) if key not in other.shapes]
        if missing:
            raise InputError(
                other.path,
                f"has no {missing[0]!r}, as the parts before it have",
                "pass parts of one kind",
            )

    def read(key: str) -> npt.NDArray[Any]:
        arrays = [first[key]]
        for part in found[1:]:
            order = part_order(first, part, key, spec) if key in first.matrices else None
            arrays.append(part[key] if order is None else part[key].take(order, axis=1))
        return np.concatenate(arrays)

    matrices, vectors = Lazy(first.matrices, read), Lazy(first.vectors, read)
    shapes = Lazy(first.shapes, lambda key: read(key).shape)
    return replace(
        first,
        path=path,
        matrices=matrices,
        vectors=vectors,
        shapes=shapes,
        others=None,
        parts=tuple(found),
    )


def _open_torch(name: str, opened: Callable[[], BinaryIO]) -> Contents:
    arrays, words = read_tensors(name, opened)
    if not arrays:
        raise InputError(name, "holds no tensors", "save tensors, or a dictionary of them")
    matrices, vectors = _by_dimension(arrays)
    vectors |= {key: np.array(each) for key, each in words.items() if key not in CLASS_NAMES}
    names = next((words[key] for key in CLASS_NAMES if key in words), None)
    return Contents.of(name, "torch", matrices, vectors, names)


def _open_npz(name: str, opened: Callable[[], BinaryIO]) -> Contents:
    archive = Archive(name, opened)
    shapes, refused = _sorted_out(archive)
    if not shapes and not refused:
        raise InputError(
            name,
            "is a zip archive without arrays",
            f"pass a npz file that numpy.savez wrote, or another {FORMATS} file",
        )
    # Python objects under a name we do not need, such as fold names, do no harm.
    plain = any(len(shape) == 2 for shape in shapes.values())
    for key, refusal in refused.items():
        if not plain or key in (*LABEL_NAMES, *CLASS_NAMES):
            raise refusal
    return array_contents(name, "npz", archive, shapes)


def _sorted_out(archive: Archive) -> tuple[dict[str, tuple[int, ...]], dict[str, InputError]]:
    """Return the shapes of the arrays that can be read, and what is wrong with the others."""
    found = archive.headers.items()
    shapes = {key: each.shape for key, each in found if isinstance(each, Header)}
    return shapes, {key: each for key, each in found if isinstance(each, InputError)}


def _by_dimension(
    entries: dict[str, npt.NDArray[Any]],
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Return the matrices and the vectors."""
    matrices, vectors = (
        {key: array for key, array in entries.items() if array.ndim == size} for size in (2, 1)
    )
    return matrices, vectors


def _open_parquet(name: str, data: bytes, spec: ColumnSpec) -> Contents:
    arrow, parquet = import_arrow()
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (arrow.ArrowException, OSError) as error:
        raise not_readable(name, error) from error
    return table_contents(name, "parquet", table, group_fields(table.schema, spec, name))


def _open_csv(name: str, data: bytes, spec: ColumnSpec) -> Contents:
    table = read_table(name, data, words=spec.words, header=spec.header)
    grouping = grouped(table.sorts, spec, name, named=table.has_header)
    contents = column_contents(
        name,
        "csv",
        Lazy(grouping.matrices, lambda key: table.numbers(grouping.matrices[key])),
        Lazy(grouping.vectors, table.vector),
        grouping,
        lambda: table.rows,
        names=grouping.class_names,
        others=lambda key: _other_cells(table, grouping.matrices[key]),
    )
    if spec.classes is None and spec.expected is None:
        contents = _without_positions(contents)
    return replace(contents, header=table.has_header, header_names=tuple(table.header))


def _without_positions(contents: Contents) -> Contents:
    """Drop headings 0, 1, 2, …: pandas writes them above columns that have no names."""
    named, own = (
        {key: names for key, names in headings.items() if not is_position(names)}
        for headings in (contents.headings, contents.own_headings)
    )
    names = contents.class_names
    if names is not None and is_position(names):
        names = None
    return replace(contents, class_names=names, headings=named, own_headings=own)


def _other_cells(table: TextTable, taken: tuple[str, ...]) -> Passthrough:
    cells = table.cells([heading for heading in table.header if heading not in taken])
    return Passthrough(
        {
            heading: TextColumn.from_cells(column, cache(partial(text_type_of, column)))
            for heading, column in cells.items()
        }
    )


class _CsvFile(Whole):
    """A CSV file on the disk, read whole."""

    def __init__(self, path: str, spec: ColumnSpec) -> None:
        super().__init__(open_contents(path, spec))
        self.path, self.spec = path, spec

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the headings; whether their cells are numbers is read when it is asked for."""
        scores = self.contents.columns[matrix]
        path, spec = self.path, self.spec

        @cache
        def text_types() -> dict[str, TextType]:
            # Read again, because the cells of all parts together may not fit into memory.
            others = open_contents(path, spec).others
            assert others is not None
            columns: Mapping[str, Any] = others(matrix).columns
            return {name: column.text_type() for name, column in columns.items()}

        def text_type(name: str) -> TextType:
            return text_types()[name]

        names = [name for name in self.contents.header_names if name not in scores]
        columns = {name: TextColumn.from_cells([], partial(text_type, name)) for name in names}
        return [PartColumns(path, Passthrough(columns), lambda column: iter(()))]
