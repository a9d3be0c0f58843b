"""Outputs: the rows that `apply` writes, their format by the suffix, and arrays of NumPy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray
from cordcal.files.arrays import npy_header

if TYPE_CHECKING:
    import pyarrow

TABLE_SUFFIXES = (".parquet", ".feather", ".arrow", ".csv", ".jsonl")
SUFFIXES = (".npz", ".npy", *TABLE_SUFFIXES)
"""The suffixes of outputs."""


@dataclass(frozen=True)
class OutputFormat:
    """How outputs are written.

    Attributes
    ----------
    classes : int
        The number of classes.
    class_names : tuple of str or None
        One name per class.
    names : str
        The name of a column of probabilities; ``{class}`` stands for the class.
    spreadsheet : bool
        In CSV, put an apostrophe before text that a spreadsheet would take for a formula.
    """

    classes: int
    class_names: tuple[str, ...] | None = None
    names: str = "p_{class}"
    spreadsheet: bool = False

    def __post_init__(self) -> None:
        if "{class}" not in self.names:
            raise InputError("names", f"is {self.names!r}", "write {class} for the class")

    def headings(self, kind: str) -> list[str]:
        """Return the names of the columns of ``"repaired"`` or ``"direct"`` probabilities."""
        pattern = self.names if kind == "repaired" else f"{kind}_{{class}}"
        classes = self.class_names or map(str, range(self.classes))
        return [pattern.replace("{class}", name) for name in classes]


@dataclass(frozen=True, eq=False)
class OutputRows:
    """Rows of an output.

    Attributes
    ----------
    vectors : mapping of str to ndarray of shape (n,)
        ``"prediction"`` and ``"confidence"``, then more columns, such as an explanation.
    matrices : mapping of str to ndarray of shape (K, n)
        The ``"repaired"`` and, if asked for, ``"direct"`` probabilities; class by class.
    others : Table or None
        The columns of the input that are copied.
    """

    vectors: Mapping[str, NumPyArray]
    matrices: Mapping[str, NumPyArray]
    others: pyarrow.Table | None = None

    def __len__(self) -> int:
        return int(self.vectors["prediction"].shape[0])


class Writer(Protocol):
    """Writes rows to a file; `encode` may run on several threads, `write` may not."""

    def encode(self, rows: OutputRows) -> Any:
        """Return rows as `write` takes them."""

    def write(self, encoded: Any) -> None:
        """Append encoded rows."""

    def close(self) -> None:
        """Complete the file."""


def output_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix that selects the format of an output; ``-`` is CSV."""
    suffix = ".csv" if str(path) == "-" else Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            str(path),
            f"has the suffix {suffix!r}, which is not that of an output format",
            f"use one of {', '.join(SUFFIXES)}",
        )
    return suffix


def open_writer(suffix: str, file: BinaryIO, format: OutputFormat) -> Writer:
    """Return what writes the format of a suffix to an open file."""
    if suffix == ".npy":
        return NpyWriter(file)
    if suffix == ".npz":
        return NpzWriter(file, format)
    from cordcal.files.writers import WRITERS

    return WRITERS[suffix](file, format)


class NpyWriter:
    """The repaired probabilities alone, as a plain array."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._rows = file, 0
        self._matrix: NumPyArray | None = None

    def encode(self, rows: OutputRows) -> NumPyArray:
        """Return the matrix, row by row."""
        return np.ascontiguousarray(rows.matrices["repaired"].T)

    def write(self, encoded: NumPyArray) -> None:
        """Append rows."""
        if self._matrix is None:
            self._matrix = encoded[:0]
            self._file.write(npy_header(encoded.dtype, 0, encoded.shape[1]))
        self._file.write(encoded.data.cast("B") if encoded.size else b"")
        self._rows += len(encoded)

    def close(self) -> None:
        """Write the number of rows into the header."""
        if self._matrix is not None:
            self._file.seek(0)
            self._file.write(npy_header(self._matrix.dtype, self._rows, self._matrix.shape[1]))


class NpzWriter:
    """All arrays under their names, compressed; kept in memory until the end."""

    def __init__(self, file: BinaryIO, format: OutputFormat) -> None:
        self._file, self._format = file, format
        self._blocks: list[dict[str, NumPyArray]] = []

    def encode(self, rows: OutputRows) -> dict[str, NumPyArray]:
        """Return the arrays."""
        matrices = {kind: np.ascontiguousarray(matrix.T) for kind, matrix in rows.matrices.items()}
        return {**matrices, **rows.vectors}

    def write(self, encoded: dict[str, NumPyArray]) -> None:
        """Append rows."""
        self._blocks.append(encoded)

    def close(self) -> None:
        """Write the archive."""
        arrays = {
            name: np.concatenate([block[name] for block in self._blocks])
            for name in (self._blocks[0] if self._blocks else ())
        }
        if self._format.class_names is not None:
            arrays["class_names"] = np.array(self._format.class_names, dtype=np.str_)
        np.savez_compressed(self._file, **arrays)  # type: ignore[arg-type]
