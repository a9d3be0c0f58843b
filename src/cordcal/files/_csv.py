"""Tables as text: where the header ends, which columns are numbers, and which row is wrong."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal.files._columns import Sort
from cordcal.files._opening import FORMATS, first_line, no_rows


def read_table(name: str, data: bytes, *, words: bool = False) -> TextTable:
    r"""Read a table's headings; its columns are read when they are asked for.

    Parameters
    ----------
    name : str
        What messages call the file.
    data : bytes
        Its lines, with commas, semicolons or tabs between the cells.
    words : bool
        Whether no column of numbers is needed, as in a file of labels.

    Examples
    --------
    >>> table = read_table("s.csv", b"cat,dog\n0.2,0.8\n")
    >>> table.has_header, table.numbers(["dog"])
    (True, array([[0.8]]))
    >>> read_table("labels.csv", b"label\ncat\ndog\ncat\n", words=True).vector("label")
    array(['cat', 'dog', 'cat'], dtype='<U3')
    """
    with _named(name):
        return TextTable(name, _decoded(name, data), words=words)


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:  # such as a quote that is never closed
        raise Refusal(name, f"cannot be read as CSV ({error})", "check its quotes") from error


def _decoded(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    if not text.splitlines() or "\0" in text:
        raise Refusal(name, f"is no {FORMATS} file", "pass a file of scores")
    return text


class _Row(NamedTuple):
    """A row of a CSV file: its number, its line in the file, and its cells."""

    number: int
    line: int
    cells: list[str]


class TextTable:
    """A file's text, with what its first lines tell of its columns."""

    def __init__(self, name: str, text: str, *, words: bool = False) -> None:
        self.name, self.text, self.words = name, text, words
        lines = text.splitlines()[:2]
        self.delimiter = max(",;\t", key=lines[0].count)
        first, *second = csv.reader(lines, delimiter=self.delimiter)
        below = _first_filled(self._rows(skipped=1), len(first))
        # A header is a first line that has words where there are numbers below.
        self.has_header = any(
            is_number(under) and not is_number(above)
            for above, under in zip(first, below, strict=True)
        )
        if words and not any(map(is_number, below)):
            self.has_header = self._begins_with_a_heading()
        self.header = [cell.strip() for cell in first]
        if not self.has_header:
            self.header = [str(index) for index in range(len(first))]
            below = [above or under for above, under in zip(first, below, strict=True)]
        self.numeric = [index for index, cell in enumerate(below) if is_number(cell)]
        self.is_even = all(len(cells) == len(first) for cells in second)
        self._check_header()

    def _begins_with_a_heading(self) -> bool:
        """Tell whether a column of the first line says what is never said below."""
        rows = self._rows(skipped=0)
        first = next(rows).cells
        unsaid, alone = set(range(len(first))), True
        for row in rows:
            alone = False
            unsaid -= {at for at, cell in enumerate(row.cells[: len(first)]) if cell == first[at]}
        return bool(unsaid) and not alone

    def _check_header(self) -> None:
        if len(set(self.header)) < len(self.header):
            twice = next(cell for cell in self.header if self.header.count(cell) > 1)
            raise Refusal(self.name, f"has two columns called {twice!r}", "give each its own name")
        if not self.numeric and len(self.header) > 1 and next(self._rows(skipped=1), None) is None:
            raise no_rows(self.name)
        if not self.numeric and not self.words:
            raise Refusal(
                self.name,
                f"holds no numbers in its {'second' if self.has_header else 'first'} line",
                f"pass a {FORMATS} file of scores, one column a class",
            )

    @property
    def sorts(self) -> dict[str, Sort]:
        """What each column holds, going by its first cell."""
        numeric = set(self.numeric)
        return {
            heading: "float" if index in numeric else "other"
            for index, heading in enumerate(self.header)
        }

    def numbers(self, headings: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return some columns as a matrix; an empty cell is NaN."""
        wanted = [self.header.index(heading) for heading in headings]
        together = self._together
        with _named(self.name):
            if together is None:
                return self._alone(wanted)
            places = [self.numeric.index(index) for index in wanted]
            # All of them in order, as a plain file of scores has them: no copy.
            return together if places == list(range(together.shape[1])) else together[:, places]

    def vector(self, heading: str) -> npt.NDArray[Any]:
        """Return a column of numbers, or of words where not all cells are numbers."""
        if self.header.index(heading) in self.numeric:
            try:
                return self.numbers([heading])[:, 0]
            except Refusal:
                pass  # its words begin further down
        return np.array(self.cells([heading])[heading], dtype=np.str_)

    def cells(self, headings: Sequence[str]) -> dict[str, list[str]]:
        """Return columns as they are written."""
        wanted = [self.header.index(heading) for heading in headings]
        found: list[list[str]] = [[] for _ in wanted]
        with _named(self.name):
            self._even_rows  # noqa: B018 - refuses rows that lack a cell
            for row in self._rows(int(self.has_header)):
                for at, index in enumerate(wanted):
                    found[at].append(row.cells[index])
        return dict(zip(headings, found, strict=True))

    @cached_property
    def rows(self) -> int:
        """How many rows there are."""
        if self._together is not None:
            return len(self._together)
        return sum(1 for _ in self._rows(int(self.has_header)))

    @cached_property
    def _together(self) -> npt.NDArray[np.float64] | None:
        """All columns that begin with a number; None if none does, or a later cell is none."""
        if not self.numeric:
            return None
        every = len(self.numeric) == len(self.header)
        with _named(self.name):
            # Told which columns to read, NumPy does not mind a row that has more.
            if not every or not self.is_even:
                self._even_rows  # noqa: B018 - refuses
            try:
                return self._load(None if every else self.numeric)
            except ValueError:
                return None

    @cached_property
    def _even_rows(self) -> None:
        self._check_rows([])

    def _alone(self, wanted: list[int]) -> npt.NDArray[np.float64]:
        """Read some columns of numbers among which cells are empty."""
        self._check_rows(wanted)
        try:
            return self._load(wanted, converters=_number)
        except ValueError as error:
            why = f"cannot be read as CSV ({first_line(error)})"
            raise Refusal(self.name, why, "write a number in every cell") from error

    def _load(self, columns: list[int] | None, **options: Any) -> npt.NDArray[np.float64]:
        return np.loadtxt(
            io.StringIO(self.text),
            dtype=np.float64,
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
                if cell.strip() and not is_number(cell):
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


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
