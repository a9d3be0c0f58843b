"""Open a file of any format and name what lies in it: matrices, vectors, class names.

The format is read from the file's first bytes, so a wrong suffix does no harm.  Every
format ends in the same `Contents`; which matrix holds the scores is decided in
`cordcal.files._scores`.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal, about_rows, refuse
from cordcal.files import _hdf5
from cordcal.files._csv import read_columns
from cordcal.files._encoding import import_arrow
from cordcal.files._numpy import Archive, Chosen, Header, in_memory, read_array
from cordcal.files._opening import first_line, open_regular, read_whole

Format = Literal["npz", "npy", "hdf5", "csv", "parquet"]

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


def open_contents(path: str | os.PathLike[str], *, beside: str | None = None) -> Contents:
    """Read a npz, npy, HDF5, CSV or Parquet file; ``-`` reads stdin.

    Parameters
    ----------
    path : path or "-"
        The file.
    beside : str, optional
        A column of a table that holds labels, not scores.
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
        raise Refusal(name, "is empty", "pass a npz, npy, CSV or Parquet file of scores")
    if data.startswith(b"PK"):
        return _open_npz(name, in_memory(data))
    if data.startswith(_hdf5.MAGIC):
        return _open_hdf5(name, in_memory(data))
    if data.startswith(b"\x93NUMPY"):
        array = read_array(io.BytesIO(data), name)
        return Contents.of(name, "npy", *_by_dimension({"array": array}))
    if data.startswith(b"PAR1"):
        return _open_parquet(name, data, beside)
    return _open_csv(name, data, beside)


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


def _open_parquet(name: str, data: bytes, beside: str | None) -> Contents:
    arrow, parquet = import_arrow()
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (arrow.ArrowInvalid, OSError) as error:
        raise not_parquet(name, error) from error
    return table_contents(name, table, beside)


def not_parquet(name: str, error: BaseException) -> Refusal:
    """Say that a file is no whole Parquet file."""
    return Refusal(
        name,
        f"cannot be read as Parquet ({first_line(error)})",
        "it may be cut short: write it anew",
    )


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
    columns, has_header = read_columns(name, data)
    groups, vectors, names = _group_columns(columns, beside, all_beside=False)
    return Contents.of(name, "csv", groups, vectors, names if has_header else None)


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
