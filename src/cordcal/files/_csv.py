"""Tables as text: where the header ends, which columns are numbers, and which row is wrong."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal.files._opening import first_line


def read_columns(name: str, data: bytes) -> tuple[dict[str, npt.NDArray[Any]], bool]:
    r"""Return a table's columns by their headings, and whether it has headings of its own.

    Parameters
    ----------
    name : str
        What messages call the file.
    data : bytes
        Its lines, with commas, semicolons or tabs between the cells.

    Examples
    --------
    >>> columns, has_header = read_columns("s.csv", b"cat,dog\n0.2,0.8\n")
    >>> has_header, columns["dog"]
    (True, array([0.8]))
    """
    try:
        table = _Table(name, _decoded(name, data))
        return table.columns(), table.has_header
    except csv.Error as error:  # such as a quote that is never closed
        raise Refusal(name, f"cannot be read as CSV ({error})", "check its quotes") from error


def _decoded(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    if not text.splitlines() or "\0" in text:
        raise Refusal(name, "is no npz, npy, CSV or Parquet file", "pass a file of scores")
    return text


class _Row(NamedTuple):
    """A row of a CSV file: its number, its line in the file, and its cells."""

    number: int
    line: int
    cells: list[str]


class _Table:
    """A file's text, with what its first lines tell of its columns."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        lines = text.splitlines()[:2]
        self.delimiter = max(",;\t", key=lines[0].count)
        first, *second = csv.reader(lines, delimiter=self.delimiter)
        below = _first_filled(self._rows(skipped=1), len(first))
        # A header is a first line that has words where there are numbers below.
        self.has_header = any(
            _is_number(under) and not _is_number(above)
            for above, under in zip(first, below, strict=True)
        )
        self.header = [cell.strip() for cell in first]
        if not self.has_header:
            self.header = [str(index) for index in range(len(first))]
            below = [above or under for above, under in zip(first, below, strict=True)]
        self.numeric = [index for index, cell in enumerate(below) if _is_number(cell)]
        self.words = [index for index in range(len(first)) if index not in set(self.numeric)]
        self.is_even = all(len(cells) == len(first) for cells in second)
        self._check_header()

    def _check_header(self) -> None:
        if len(set(self.header)) < len(self.header):
            twice = next(cell for cell in self.header if self.header.count(cell) > 1)
            raise Refusal(self.name, f"has two columns called {twice!r}", "give each its own name")
        if not self.numeric:
            raise Refusal(
                self.name,
                f"holds no numbers in its {'second' if self.has_header else 'first'} line",
                "pass a npz, npy, CSV or Parquet file of scores, one column a class",
            )

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns, numbers first."""
        # Told which columns to read, NumPy does not mind a row that has more.
        if self.words or not self.is_even:
            self._check_rows([])
        try:
            numbers = self._load(self.numeric if self.words else None, np.float64)
        except ValueError:
            self._check_rows(self.numeric)
            numbers = self._load_patiently()
        found = {self.header[index]: numbers[:, at] for at, index in enumerate(self.numeric)}
        if self.words:
            strings = self._load(self.words, np.str_)
            found |= {self.header[index]: strings[:, at] for at, index in enumerate(self.words)}
        return found

    def _load_patiently(self) -> npt.NDArray[Any]:
        """Read numbers among which cells are empty."""
        try:
            return self._load(self.numeric, np.float64, converters=_number)
        except ValueError as error:
            why = f"cannot be read as CSV ({first_line(error)})"
            raise Refusal(self.name, why, "write a number in every cell") from error

    def _load(self, columns: list[int] | None, dtype: Any, **options: Any) -> npt.NDArray[Any]:
        return np.loadtxt(
            io.StringIO(self.text),
            dtype=dtype,
            delimiter=self.delimiter,
            skiprows=int(self.has_header),
            usecols=columns,
            quotechar='"',
            comments=None,
            ndmin=2,
            **options,
        )

    def _rows(self, skipped: int) -> Iterator[_Row]:
        """Yield the rows below the header; like NumPy, count no empty lines."""
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter)
        filled = ((reader.line_num, cells) for cells in reader if cells)
        for number, (line, cells) in enumerate(islice(filled, skipped, None)):
            yield _Row(number, line, cells)

    def _check_rows(self, numeric: list[int]) -> None:
        """Refuse the first row that has not one cell a column, or a word among the numbers."""
        width = len(self.header)
        for row in self._rows(int(self.has_header)):
            if len(row.cells) != width:
                raise self._wrong(
                    row,
                    f"has {len(row.cells)} cells but the first line {width}",
                    "give every row one cell for each column",
                )
            for index in numeric:
                cell = row.cells[index]
                if cell.strip() and not _is_number(cell):
                    raise self._wrong(
                        row,
                        f"has {cell!r} in the column {self.header[index]!r}, where the rows "
                        f"before it have numbers",
                        "write a number, or leave the cell empty",
                    )

    def _wrong(self, row: _Row, reason: str, remedy: str) -> Refusal:
        found = f"(line {row.line}) {reason}"
        return Refusal(self.name, reason, remedy, rows=[row.number], found=found)


def _first_filled(rows: Iterator[_Row], width: int) -> list[str]:
    """Return the first cell of each column that is not empty."""
    found = [""] * width
    for row in rows:
        found = [cell or new.strip() for cell, new in zip_longest(found, row.cells, fillvalue="")]
        if all(found):
            break
    return found[:width]


def _number(cell: str) -> float:
    return float(cell) if cell.strip() else math.nan  # pandas writes NaN as an empty cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
