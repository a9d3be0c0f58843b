"""Open a file of any format and name what lies in it: matrices, vectors, class names.

The format is read from the file's first bytes, so a wrong suffix does no harm.  Every
format ends in the same `Contents`; which matrix holds the scores is decided in
`cordcal.files._scores`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal, about_rows, refuse
from cordcal.files._encoding import import_arrow
from cordcal.files._numpy import Archive, Chosen, Header, in_memory, read_array
from cordcal.files._opening import first_line, open_regular, read_whole

Format = Literal["npz", "npy", "csv", "parquet"]

LABEL_NAMES = ("labels", "label", "y", "y_true", "targets", "target", "true_label")
FEATURE_NAMES = ("features", "embeddings")
_CLASS_NAMES = ("class_names", "classes", "names")
# Columns of a table that stand beside the scores rather than among them.
_BESIDE = {*LABEL_NAMES, "", "id", "index", "row", "decision", "decision_name", "prediction"}
_GROUP = re.compile(r"(original|direct|repaired|logits|probs|probabilities):(.*)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Contents:
    """What lies in a file: matrices and vectors by name, and the class names if it has any.

    ``shapes`` tells how large each is; a npz file's arrays are read when they are asked for.
    """

    path: str
    format: Format
    matrices: Mapping[str, npt.NDArray[Any]]
    vectors: Mapping[str, npt.NDArray[Any]]
    class_names: tuple[str, ...] | None
    shapes: Mapping[str, tuple[int, ...]]

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


class _Row(NamedTuple):
    """A row of a CSV file: its number, its line in the file, and its cells."""

    number: int
    line: int
    cells: list[str]

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"row {self.number} (line {self.line})"


def open_contents(path: str | os.PathLike[str], *, beside: str | None = None) -> Contents:
    """Read a npz, npy, CSV or Parquet file; ``-`` reads stdin.

    Parameters
    ----------
    path : path or "-"
        The file.
    beside : str, optional
        A column of a table that holds labels, not scores.
    """
    if os.fspath(path) != "-":
        with open_regular(path) as file:
            if file.read(2) == b"PK":
                return _open_npz(os.fspath(path), lambda: open_regular(path))
    name, data = read_whole(path)
    if not data:
        raise Refusal(name, "is empty", "pass a npz, npy, CSV or Parquet file of scores")
    if data.startswith(b"PK"):
        return _open_npz(name, in_memory(data))
    if data.startswith(b"\x93NUMPY"):
        array = read_array(io.BytesIO(data), name)
        return Contents.of(name, "npy", *_by_dimension({"array": array}))
    if data.startswith(b"PAR1"):
        return _open_parquet(name, data, beside)
    try:
        return _open_csv(name, data, beside)
    except csv.Error as error:  # such as a quote that is never closed
        raise Refusal(name, f"cannot be read as CSV ({error})", "check its quotes") from error


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
    named = next((key for key in _CLASS_NAMES if key in shapes), None)
    names = None if named is None else tuple(map(str, archive[named].reshape(-1)))
    keys = [key for key in shapes if key != named]
    matrices, vectors = (
        Chosen(archive, [key for key in keys if len(shapes[key]) == size]) for size in (2, 1)
    )
    return Contents(
        name, "npz", matrices, vectors, names, {key: shapes[key] for key in (*matrices, *vectors)}
    )


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


def _open_parquet(name: str, data: bytes, beside: str | None) -> Contents:
    arrow, parquet = import_arrow()
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (arrow.ArrowInvalid, OSError) as error:
        raise ValueError(parquet_message(name, error)) from error
    return table_contents(name, table, beside)


def parquet_message(name: str, error: BaseException) -> str:
    """Say that a file is no whole Parquet file."""
    return f"{name} cannot be read as Parquet ({first_line(error)}); it may be cut short"


def table_contents(name: str, table: Any, beside: str | None = None) -> Contents:
    """Name what lies in an Arrow table: a whole file's, or a batch of its rows."""
    arrow, _ = import_arrow()
    matrices: dict[str, npt.NDArray[Any]] = {}
    columns: dict[str, npt.NDArray[Any]] = {}
    for key in table.column_names:
        column = table.column(key).combine_chunks()
        if arrow.types.is_fixed_size_list(column.type) or arrow.types.is_list(column.type):
            matrices[key] = _list_column(name, key, column)
        else:
            columns[key] = column.to_numpy(zero_copy_only=False)
    metadata = (table.schema.metadata or {}).get(b"class_names")
    names = None if metadata is None else tuple(json.loads(metadata))
    groups, vectors, header = _group_columns(columns, beside, all_beside=bool(matrices))
    return Contents.of(name, "parquet", matrices | groups, vectors, names or header)


def _list_column(name: str, key: str, column: Any) -> npt.NDArray[Any]:
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        refuse(
            about_rows(missing, f"{name} ({key})", "is missing", "pass a whole vector in every row")
        )
    if hasattr(column.type, "list_size"):
        width = column.type.list_size
    else:
        lengths = np.diff(np.asarray(column.offsets))
        width = int(lengths[0]) if lengths.size else 0
        refuse(
            about_rows(
                lengths != width,
                f"{name} ({key})",
                "has another length",
                "pass whole vectors, one entry for each class in every row",
                found=lambda row: (
                    f"has {lengths[row]} entries, the rows before it {width}: these are rows of "
                    f"different lengths"
                ),
            )
        )
    return np.asarray(column.flatten()).reshape(len(column), width)


def _open_csv(name: str, data: bytes, beside: str | None) -> Contents:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    lines = text.splitlines()[:2]
    if not lines or "\0" in text:
        raise ValueError(f"{name} is no npz, npy, CSV or Parquet file; pass a file of scores")
    delimiter = max(",;\t", key=lines[0].count)
    first, *rest = csv.reader(lines, delimiter=delimiter)
    below = _first_filled(_csv_rows(text, delimiter, has_header=True), len(first))
    # A header is a first line that has words where there are numbers below.
    has_header = any(
        _is_number(under) and not _is_number(above)
        for above, under in zip(first, below, strict=True)
    )
    header = [cell.strip() for cell in first]
    if not has_header:
        header = [str(index) for index in range(len(first))]
    if len(set(header)) < len(header):
        twice = next(cell for cell in header if header.count(cell) > 1)
        raise ValueError(f"{name}: two columns are called {twice!r}; give each its own name")

    def rows() -> Iterator[_Row]:
        return _csv_rows(text, delimiter, has_header)

    cells = below if has_header else [a or b for a, b in zip(first, below, strict=True)]
    numeric = [index for index, cell in enumerate(cells) if _is_number(cell)]
    if not numeric:
        raise ValueError(
            f"{name} holds no numbers in its {'second' if has_header else 'first'} line; pass a "
            f"npz, npy, CSV or Parquet file of scores, one column a class"
        )
    words = [index for index in range(len(header)) if index not in set(numeric)]

    def load(columns: list[int] | None, dtype: Any, **options: Any) -> npt.NDArray[Any]:
        return np.loadtxt(
            io.StringIO(text),
            dtype=dtype,
            delimiter=delimiter,
            skiprows=int(has_header),
            usecols=columns,
            quotechar='"',
            comments=None,
            ndmin=2,
            **options,
        )

    try:
        # Told which columns to read, NumPy does not mind a row that has more.
        if words or any(len(second) != len(first) for second in rest):
            _check_rows(rows(), header, [])
        try:
            numbers = load(numeric if words else None, np.float64)
        except ValueError:
            _check_rows(rows(), header, numeric)
            numbers = load(numeric, np.float64, converters=_number)
        strings = load(words, np.str_) if words else None
    except ValueError as error:
        raise ValueError(f"{name} cannot be read as CSV: {first_line(error)}") from error
    columns = {header[index]: numbers[:, place] for place, index in enumerate(numeric)}
    if strings is not None:
        columns |= {header[index]: strings[:, place] for place, index in enumerate(words)}
    groups, vectors, names = _group_columns(columns, beside, all_beside=False)
    return Contents.of(name, "csv", groups, vectors, names if has_header else None)


def _csv_rows(text: str, delimiter: str, has_header: bool) -> Iterator[_Row]:
    """Yield the rows below the header; like NumPy, count no empty lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    filled = ((reader.line_num, cells) for cells in reader if cells)
    for number, (line, cells) in enumerate(islice(filled, int(has_header), None)):
        yield _Row(number, line, cells)


def _first_filled(rows: Iterator[_Row], width: int) -> list[str]:
    """Return the first cell of each column that is not empty."""
    found = [""] * width
    for row in rows:
        found = [cell or new.strip() for cell, new in zip_longest(found, row.cells, fillvalue="")]
        if all(found):
            break
    return found[:width]


def _check_rows(rows: Iterator[_Row], header: list[str], numeric: list[int]) -> None:
    """Refuse the first row that has not one cell a column, or a word among the numbers."""
    for row in rows:
        if len(row.cells) != len(header):
            raise ValueError(
                f"{row.name} has {len(row.cells)} cells but the first line {len(header)}; give "
                f"every row one cell for each column"
            )
        for index in numeric:
            if row.cells[index].strip() and not _is_number(row.cells[index]):
                raise ValueError(
                    f"{row.name} has {row.cells[index]!r} in the column {header[index]!r}, where "
                    f"the rows before it have numbers; write a number, or leave the cell empty"
                )


def _number(cell: str) -> float:
    return float(cell) if cell.strip() else math.nan  # pandas writes NaN as an empty cell


def _group_columns(
    columns: dict[str, npt.NDArray[Any]], beside: str | None, *, all_beside: bool
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]], tuple[str, ...] | None]:
    """Gather a table's columns into matrices, and name the classes by their headings.

    ``direct:cat`` belongs to a matrix called direct; where no heading is written like
    that, the numeric columns together are the scores.
    """
    vectors: dict[str, npt.NDArray[Any]] = {}
    groups: dict[str, dict[str, npt.NDArray[Any]]] = {}
    loose: dict[str, npt.NDArray[Any]] = {}
    for heading, column in columns.items():
        grouped = _GROUP.fullmatch(heading)
        if grouped is not None:
            groups.setdefault(grouped[1], {})[grouped[2]] = column
        elif heading == beside or heading.lower() in _BESIDE or column.dtype.kind not in "fiu":
            vectors[heading] = column
        else:
            loose[heading] = column
    if groups or all_beside or len(loose) == 1:  # one column of numbers is labels, not scores
        vectors |= loose
    elif loose:
        groups["scores"] = loose
    matrices = {key: np.column_stack(list(group.values())) for key, group in groups.items()}
    names = next((tuple(group) for group in groups.values()), None)
    return matrices, vectors, names


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
