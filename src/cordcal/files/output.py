"""Outputs: the rows that `apply` writes, their format by the suffix, and arrays of NumPy."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

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
    class_names : tuple of str or None
        One name per class.
    names : str
        The name of a column of probabilities; ``{class}`` stands for the class.
    spreadsheet : bool
        In CSV, put an apostrophe before text that a spreadsheet would take for a formula.
    """

    class_names: tuple[str, ...] | None = None
    names: str = "p_{class}"
    spreadsheet: bool = False

    def __post_init__(self) -> None:
        if "{class}" not in self.names:
            raise InputError("names", f"is {self.names!r}", "write {class} for the class")


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


class Writer(ABC):
    """Writes rows to an open file; `encode` may run on several threads, `write` may not."""

    def __init__(self, file: BinaryIO, format: OutputFormat) -> None:
        self.file, self.format = file, format

    @abstractmethod
    def encode(self, rows: OutputRows) -> Any:
        """Return rows as `write` takes them."""

    @abstractmethod
    def write(self, encoded: Any) -> None:
        """Append encoded rows."""

    def close(self) -> None:  # noqa: B027 - text needs nothing
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
    if suffix in TABLE_SUFFIXES:
        from cordcal.files.writers import WRITERS

        return WRITERS[suffix](file, format)
    return (NpyWriter if suffix == ".npy" else NpzWriter)(file, format)


class NpyWriter(Writer):
    """The repaired probabilities alone, as a plain array."""

    _matrix: NumPyArray | None = None
    _rows = 0

    def encode(self, rows: OutputRows) -> NumPyArray:
        """Return the matrix, row by row."""
        return np.ascontiguousarray(rows.matrices["repaired"].T)

    def write(self, encoded: NumPyArray) -> None:
        """Append rows."""
        if self._matrix is None:
            self._matrix = encoded[:0]
            self.file.write(npy_header(encoded.dtype, 0, encoded.shape[1]))
        self.file.write(encoded.data.cast("B") if encoded.size else b"")
        self._rows += len(encoded)

    def close(self) -> None:
        """Write the number of rows into the header."""
        if self._matrix is not None:
            self.file.seek(0)
            self.file.write(npy_header(self._matrix.dtype, self._rows, self._matrix.shape[1]))


class NpzWriter(Writer):
    """All arrays under their names, compressed; kept in memory until the end."""

    def __init__(self, file: BinaryIO, format: OutputFormat) -> None:
        super().__init__(file, format)
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
        if self.format.class_names is not None:
            arrays["class_names"] = np.array(self.format.class_names, dtype=np.str_)
        np.savez_compressed(self.file, **arrays)  # type: ignore[arg-type]
