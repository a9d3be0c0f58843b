"""CSV files: find the header and the numeric columns, and report errors by row."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import chain, islice, zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray
from cordcal._validation.names import are_default_names
from cordcal.files.columns import ColumnSpec, ColumnType, grouped, is_other_column
from cordcal.files.disk import InputFile, first_line, no_rows
from cordcal.files.output import Encoder, OutputBlock, Piece
from cordcal.files.passthrough import (
    PartColumns,
    Passthrough,
    TextColumn,
    TextType,
    text_type_of,
)
from cordcal.files.sources import Contents, InMemorySource, Lazy, column_contents

_WHOLE = re.compile(r"-?\d+")
# Rows of probabilities that were rounded sum to one within this.
_ROUNDING = 0.05


def starts_with_header(
    first: Sequence[str],
    rows: Sequence[Sequence[str]],
    below: Sequence[str],
    later_whole_row: Callable[[Sequence[int]], bool] = lambda columns: False,
) -> bool | None:
    """Return whether a first line is a header; None if it could also be a row.

    A line with a word above a column of numbers is a header, and so is one of distinct whole
    numbers above numbers with fractions, unless it could be one of the rows.

    Parameters
    ----------
    first : sequence of str
        The entries of the first line.
    rows : sequence of sequence of str
        The entries of the lines below, or of the first of them.
    below : sequence of str
        The first entry of each column below that is not empty.
    later_whole_row : callable
        Whether a row beyond ``rows`` has integers in all the given columns.

    Examples
    --------
    >>> def decide(text):
    ...     first, *rows = (line.split(",") for line in text.split())
    ...     return starts_with_header(first, rows, rows[0])
    >>> decide("ant,bee 0.5,1.5"), decide("0,1 0.5,1.5"), decide("2.5,1 0.5,1.5")
    (True, True, False)
    >>> decide("0,1 0.5,0.5") is None
    True
    """
    numeric = [at for at, cell in enumerate(below) if is_number(cell)]
    words = [at for at, cell in enumerate(first) if cell and not is_number(cell)]
    if has_word_above_number(first, below):
        # A row in which one number is misspelt looks like a header, too.
        misspelt = any(is_number(first[at].strip('"')) for at in words)
        named = any(is_other_column(first[at]) for at in words)
        odd = misspelt or (not named and any(_is_fraction(first[at]) for at in numeric))
        return None if odd else True
    distinct = len(set(first)) == len(first)
    empty = [at for at in numeric if not first[at]]
    # pandas writes its index below an empty heading.
    is_indexed = empty == [0] and (all(_is_whole(row[0]) for row in rows if row and row[0].strip()))
    cells = [first[at] for at in numeric if first[at]]
    if not all(map(_is_whole, cells)) or (numeric and not cells and not is_indexed):
        # A class may be called nan.
        return None if is_indexed and not any(map(_is_fraction, cells)) else False
    if any(row[at].strip() == first[at] for row in rows for at in words if at < len(row)):
        return False
    if is_indexed:
        return distinct
    fractions = [
        at for at in numeric if any(_is_fraction(row[at]) for row in rows if at < len(row))
    ]
    like_a_row = _is_like_probabilities(first, rows, fractions, numeric) or (
        distinct
        and bool(fractions)
        and (_has_whole_row(rows, fractions) or later_whole_row(fractions))
    )
    if words:
        sure = are_default_names(cells) or any(is_other_column(first[at]) for at in words)
        if distinct and (sure or (fractions and not like_a_row)):
            return True
        return None if distinct else False
    if not fractions:
        return False
    if like_a_row or (empty and distinct):
        return None
    return distinct


def has_word_above_number(first: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a first line has an entry that is not a number above a column of numbers."""
    pairs = zip(first, below, strict=True)
    return any(above and not is_number(above) and is_number(under) for above, under in pairs)


def whole_rows(columns: Sequence[int], delimiter: str) -> re.Pattern[str]:
    """Return a regular expression for lines with integers in the given columns."""
    gap = re.escape(delimiter)
    other = rf'(?:"(?:[^"]|"")*"|[^{gap}"\r\n]*)'
    number = r' *"?-?\d+"? *'
    integer_columns = set(columns)
    cells = [number if at in integer_columns else other for at in range(max(columns) + 1)]
    return re.compile(rf"(?<![^\r\n]){gap.join(cells)}(?:[{gap}\r\n]|\Z)")


def is_number(cell: str) -> bool:
    """Whether a cell is a number; unlike `float`, 1_0 is not.

    Examples
    --------
    >>> is_number("1e-3"), is_number("1_0"), is_number("")
    (True, False, False)
    """
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and cell.isascii()


def _is_whole(cell: str) -> bool:
    return _WHOLE.fullmatch(cell.strip()) is not None


def _is_fraction(cell: str) -> bool:
    """Whether a cell has a decimal point or exponent: 1.0 does, a heading 1 does not."""
    return not _is_whole(cell) and is_number(cell) and abs(float(cell)) < float("inf")


def _has_whole_row(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> bool:
    last = max(columns)
    return any(len(row) > last and all(_is_whole(row[at]) for at in columns) for row in rows)


def _is_like_probabilities(
    first: Sequence[str],
    rows: Sequence[Sequence[str]],
    fractions: Sequence[int],
    numeric: Sequence[int],
) -> bool:
    """Whether a first line of whole numbers is a vector of probabilities as those below are."""
    return any(
        len(columns) > 1
        and _are_probabilities([first], columns, 0.0)
        and _are_probabilities(rows, columns, _ROUNDING)
        for columns in (fractions, numeric)
    )


def _are_probabilities(
    rows: Sequence[Sequence[str]], columns: Sequence[int], tolerance: float
) -> bool:
    sums = []
    for row in rows:
        cells = [row[at] if at < len(row) else "" for at in columns]
        if all(map(is_number, cells)):
            values = [float(cell) for cell in cells]
            sums.append(sum(values) if min(values) >= 0.0 else -1.0)
    return bool(sums) and all(abs(total - 1.0) <= tolerance for total in sums)


# A spreadsheet takes a cell that starts with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Rows that are read to decide whether the first line is a header.
_SAMPLE_ROWS = 1000


def read_table(
    name: str, data: bytes, *, words: bool = False, header: bool | None = None
) -> TextTable:
    r"""Read the header of a CSV table; columns are parsed on access.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    data : bytes
        Contents of the file; cells are separated by commas, semicolons or tabs.
    words : bool
        Whether the table may have no numeric column, as a file of labels does.
    header : bool, optional
        Whether the first line is a header; detected by default.

    Examples
    --------
    >>> table = read_table("s.csv", b"cat,dog\n0.2,0.8\n")
    >>> table.has_header, table.numbers(["dog"])
    (True, array([[0.8]]))
    >>> read_table("labels.csv", b"label\ncat\ndog\ncat\n", words=True).vector("label")
    array(['cat', 'dog', 'cat'], dtype='<U3')
    """
    return TextTable(name, _decode(name, data), words=words, header=header)


def _decode(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or "\0" in text:
        raise InputError(name, f"is not {a_readable_file()}", "pass a file of scores")
    return text


def a_readable_file() -> str:
    """Return the names of the readable formats, for messages."""
    from cordcal.files.formats import readable_formats

    return f"an {readable_formats()} file"


class _Row(NamedTuple):
    """A row of a CSV file: its number, its first line in the file, and its cells."""

    number: int
    line: int
    cells: list[str]


class TextTable:
    """The text of a CSV file, with its header and the types of its columns."""

    def __init__(
        self, name: str, text: str, *, words: bool = False, header: bool | None = None
    ) -> None:
        self.name, self.text, self.words = name, text, words
        top = text.lstrip("\r\n")
        self.delimiter = max(",;\t", key=re.split(r"[\r\n]", top, maxsplit=1)[0].count)
        records = ((line, cells) for line, cells in self._records() if cells)
        _, first = next(records)
        first = [cell.strip() for cell in first]
        later = (cells for _, cells in records)
        sample = list(islice(later, _SAMPLE_ROWS))
        below = _first_filled(chain(sample, later), len(first))
        self.has_header = self._decide_header(first, sample, below, header)
        self.header = first
        if not self.has_header:
            self.header = [str(index) for index in range(len(first))]
            below = [above or under for above, under in zip(first, below, strict=True)]
        self.numeric = [index for index, cell in enumerate(below) if is_number(cell)]
        self.has_equal_rows = all(len(cells) == len(first) for cells in sample)
        self._check_header()

    def _decide_header(
        self, first: list[str], sample: list[list[str]], below: list[str], header: bool | None
    ) -> bool:
        """Return whether the first line is a header: as the caller says, else by its entries."""
        has_word = has_word_above_number(first, below)
        if header is False and has_word and not self.words:
            word = next(cell for cell in first if cell and not is_number(cell))
            raise InputError(
                self.name,
                f"has {word!r} in its first line, above numbers",
                "that line is a header: leave {option} out",
                option=("header", "False"),
            )
        if header is not None:
            # `header` applies to all files read together; one of them may still have a header line.
            return header or has_word
        if not sample:
            is_named = len(first) > 1 and not first[0] and not any(map(_is_non_integer, first))
            is_header = None if len(first) > 1 and are_default_names(first) else is_named
        elif self.words and not any(map(is_number, below)):
            is_header = self._has_unique_first_line()
        else:
            is_header = starts_with_header(first, sample, below, self._has_later_whole_row)
        if is_header is None:
            line = self.delimiter.join(first)
            shown = line if len(line) <= 40 else f"{line[:39]}…"
            raise InputError(
                self.name,
                f"begins with the line {shown!r}, which may be a header or a row",
                "decide with {option}",
                option=("header", "True or False"),
            )
        return is_header

    def _has_later_whole_row(self, columns: Sequence[int]) -> bool:
        """Whether a row below the first line has whole numbers in all of some columns."""
        first = re.compile(r"[\r\n]*[^\r\n]+[\r\n]+").match(self.text)
        start = first.end() if first else len(self.text)
        return whole_rows(columns, self.delimiter).search(self.text, start) is not None

    def _has_unique_first_line(self) -> bool:
        """Whether the first line has an entry that never occurs again in its column."""
        rows = self._rows(skipped=0)
        first = next(rows).cells
        unique, only_line = set(range(len(first))), True
        for row in rows:
            only_line = False
            unique -= {at for at, cell in enumerate(row.cells[: len(first)]) if cell == first[at]}
        return bool(unique) and not only_line

    def _check_header(self) -> None:
        if len(set(self.header)) < len(self.header):
            twice = next(cell for cell in self.header if self.header.count(cell) > 1)
            raise InputError(
                self.name, f"has two columns called {twice!r}", "give each its own name"
            )
        if not self.numeric and len(self.header) > 1 and next(self._rows(skipped=1), None) is None:
            raise no_rows(self.name)
        if not self.numeric and not self.words:
            raise InputError(
                self.name,
                f"has no numbers in its {'second' if self.has_header else 'first'} line",
                f"pass {a_readable_file()} of scores, one column per class",
            )

    @property
    def column_types(self) -> dict[str, ColumnType]:
        """The type of each column, judged by its first cell."""
        numeric = set(self.numeric)
        return {
            heading: "float" if index in numeric else "other"
            for index, heading in enumerate(self.header)
        }

    def numbers(self, headings: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return some columns as a matrix; an empty cell is NaN."""
        indices = [self.header.index(heading) for heading in headings]
        matrix = self._numeric_columns
        if matrix is None:
            return self._read_columns(indices)
        positions = [self.numeric.index(index) for index in indices]
        # All of them in order, as a plain file of scores has them: no copy.
        return matrix if positions == list(range(matrix.shape[1])) else matrix[:, positions]

    def vector(self, heading: str) -> NumPyArray:
        """Return a column of numbers, or of words where not all cells are numbers."""
        if self.header.index(heading) in self.numeric:
            try:
                return self.numbers([heading])[:, 0]
            except InputError:
                pass  # a later cell is not a number
        return np.array(self.cells([heading])[heading], dtype=np.str_)

    def cells(self, headings: Sequence[str]) -> dict[str, list[str]]:
        """Return columns as they are written."""
        indices = [self.header.index(heading) for heading in headings]
        columns: list[list[str]] = [[] for _ in indices]
        self._check_row_lengths  # noqa: B018 - raises on rows of another length
        for row in self._rows(int(self.has_header)):
            for at, index in enumerate(indices):
                columns[at].append(row.cells[index])
        return dict(zip(headings, columns, strict=True))

    @cached_property
    def rows(self) -> int:
        """How many rows there are."""
        if self._numeric_columns is not None:
            return len(self._numeric_columns)
        return sum(1 for _ in self._rows(int(self.has_header)))

    @cached_property
    def _numeric_columns(self) -> npt.NDArray[np.float64] | None:
        """All columns that begin with a number; None if there are none, or a later cell is text."""
        if not self.numeric:
            return None
        every = len(self.numeric) == len(self.header)
        # With `usecols`, NumPy accepts rows with extra cells and unbalanced quotes.
        if not every or not self.has_equal_rows or '"' in self.text:
            self._check_row_lengths  # noqa: B018 - raises
        try:
            return self._load(None if every else self.numeric)
        except ValueError:
            return None

    @cached_property
    def _check_row_lengths(self) -> None:
        self._check_rows([])

    def _read_columns(self, indices: list[int]) -> npt.NDArray[np.float64]:
        """Read numeric columns in which some cells are empty."""
        self._check_rows(indices)
        try:
            return self._load(indices, converters=_parse_number)
        except ValueError as error:
            why = f"cannot be read as CSV ({first_line(error)})"
            raise InputError(self.name, why, "write a number in every cell") from error

    def _load(self, columns: list[int] | None, **options: Any) -> npt.NDArray[np.float64]:
        # NumPy splits lines at line feeds only.
        newline = None if "\r" in self.text else "\n"
        return np.loadtxt(
            io.StringIO(self.text, newline=newline),
            dtype=np.float64,
            delimiter=self.delimiter,
            skiprows=self._header_lines,
            usecols=columns,
            quotechar='"',
            comments=None,
            ndmin=2,
            **options,
        )

    @cached_property
    def _header_lines(self) -> int:
        """Lines before the first row: a quoted heading may span several, others are empty."""
        if not self.has_header:
            return 0
        begins = (line for line, cells in self._records() if cells)
        return next(islice(begins, 1, None), 1) - 1

    def _rows(self, skipped: int) -> Iterator[_Row]:
        """Yield the rows below the header; empty lines do not count, as in NumPy."""
        filled = (record for record in self._records() if record[1])
        for number, (line, cells) in enumerate(islice(filled, skipped, None)):
            yield _Row(number, line, cells)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the cells of each record, and the line on which it begins; quotes are strict."""
        lines: Iterator[str] = io.StringIO(self.text, newline="")
        consumed: list[str] = []
        if '"' in self.text:
            lines = _record_lines(lines, consumed)
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        line = 1
        try:
            for cells in reader:
                if reader.line_num > line and swallows_rows(consumed, cells, self.delimiter):
                    raise self._quote_error(line, "its closing quote is in another row")
                yield line, cells
                line = reader.line_num + 1
                consumed.clear()
        except csv.Error as error:
            raise self._quote_error(line, first_line(error)) from error

    def _quote_error(self, line: int, why: str) -> InputError:
        return InputError(
            self.name,
            f"cannot be read as CSV: a quote in line {line} is not closed in its cell ({why})",
            'close it, or write "" for a quote within a quoted cell',
        )

    def _check_rows(self, numeric: list[int]) -> None:
        """Raise at the first row with a wrong number of cells, or with text in a numeric column."""
        width = len(self.header)
        for row in self._rows(int(self.has_header)):
            if len(row.cells) != width:
                raise self._row_error(
                    row,
                    f"has {len(row.cells)} cells but the first line {width}",
                    "give every row one cell for each column",
                )
            for index in numeric:
                cell = row.cells[index]
                if cell.strip() and not is_number(cell):
                    raise self._row_error(
                        row,
                        f"has {cell!r} in the column {self.header[index]!r}, where the rows "
                        f"before it have numbers",
                        "write a number, or leave the cell empty",
                    )

    def _row_error(self, row: _Row, reason: str, hint: str) -> InputError:
        detail = f"(line {row.line}) {reason}"
        return InputError(self.name, reason, hint, rows=[row.number], detail=detail)


def _first_filled(rows: Iterator[list[str]], width: int) -> list[str]:
    """Return the first cell of each column that is not empty."""
    filled = [""] * width
    for cells in rows:
        filled = [cell or new.strip() for cell, new in zip_longest(filled, cells, fillvalue="")]
        if all(filled):
            break
    return filled[:width]


def _parse_number(cell: str) -> float:
    return float(cell) if cell.strip() else math.nan  # pandas writes NaN as an empty cell


def _is_non_integer(cell: str) -> bool:
    return is_number(cell) and not cell.lstrip("-").isdecimal()


def _record_lines(lines: Iterator[str], consumed: list[str]) -> Iterator[str]:
    """Yield lines, and append each to ``consumed``."""
    for line in lines:
        consumed.append(line)
        yield line


def swallows_rows(lines: Sequence[str], cells: Sequence[str], delimiter: str) -> bool:
    r"""Whether a multi-line record contains complete rows, joined by two unbalanced quotes.

    Parameters
    ----------
    lines : sequence of str
        The lines of the record.
    cells : sequence of str
        Its cells.
    delimiter : str
        The separator of cells.

    Examples
    --------
    >>> swallows_rows(['"two\n', 'lines",0.5\n'], ["two\nlines", "0.5"], ",")
    False
    >>> swallows_rows(['",0.1\n', '",0.5\n'], [",0.1\n", "0.5"], ",")
    True
    """
    numeric = [at for at, cell in enumerate(cells) if is_number(cell)]
    gap = re.escape(delimiter)
    quoted = re.compile(rf'(?<![^{gap}])"(?:[^"]|"")*"(?![^{gap}])')

    def is_row(line: str) -> bool:
        unquoted = quoted.sub(lambda cell: cell[0].replace(delimiter, " "), line.rstrip("\r\n"))
        parts = [part.strip(' "') for part in unquoted.split(delimiter)]
        # A stray quote may leave more parts than cells: count from either end.
        return len(parts) >= len(cells) and any(
            all(is_number(parts[at - offset]) or not parts[at - offset] for at in numeric)
            for offset in (0, len(cells))
        )

    long = [cell for cell in cells if "\n" in cell or "\r" in cell]
    within = (line for cell in long for line in re.split(r"\r\n|\r|\n", cell)[1:-1])
    # One quoted cell that joins two rows leaves a complete row at either end.
    return any(map(is_row, within)) or (len(long) == 1 and is_row(lines[0]) and is_row(lines[-1]))


class CsvSource(InMemorySource):
    """A CSV file, read whole."""

    def __init__(self, file: InputFile, spec: ColumnSpec) -> None:
        self._file, self._spec = file, spec
        self._table = read_table(file.name, file.read(), words=spec.words, header=spec.header)
        super().__init__(_table_contents(self._table, spec))

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the headings; the types of their cells are read on access."""
        file, spec = self._file, self._spec
        used = self._contents.columns[matrix]

        @cache
        def text_types() -> dict[str, TextType]:
            # Read again, because the cells of all parts together may not fit into memory.
            table = CsvSource(file, spec)._table
            names = [name for name in table.header if name not in used]
            return {name: text_type_of(cells) for name, cells in table.cells(names).items()}

        def text_type(name: str) -> TextType:
            return text_types()[name]

        names = [name for name in self._table.header if name not in used]
        columns = {name: TextColumn.from_cells([], partial(text_type, name)) for name in names}
        return [PartColumns(file.name, Passthrough(columns), lambda column: iter(()))]


def _table_contents(table: TextTable, spec: ColumnSpec) -> Contents:
    grouping = grouped(table.column_types, spec, table.name, named=table.has_header)

    def other_columns(matrix: str) -> Passthrough:
        used = grouping.matrices[matrix]
        cells = table.cells([heading for heading in table.header if heading not in used])
        return Passthrough(
            {
                heading: TextColumn.from_cells(column, cache(partial(text_type_of, column)))
                for heading, column in cells.items()
            }
        )

    contents = column_contents(
        table.name,
        "csv",
        Lazy(grouping.matrices, lambda key: table.numbers(grouping.matrices[key])),
        Lazy(grouping.vectors, table.vector),
        grouping,
        lambda: table.rows,
        names=grouping.class_names,
        other_columns=other_columns,
    )
    if spec.classes is None and spec.expected is None:
        contents = _without_positions(contents)
    return replace(contents, header=table.has_header)


def _without_positions(contents: Contents) -> Contents:
    """Drop headings 0, 1, 2, …: pandas writes them above columns that have no names."""
    named, own = (
        {key: names for key, names in headings.items() if not are_default_names(names)}
        for headings in (contents.headings, contents.own_headings)
    )
    names = contents.class_names
    if names is not None and are_default_names(names):
        names = None
    return replace(contents, class_names=names, headings=named, own_headings=own)


class CsvEncoder(Encoder):
    """One line per row: passthrough columns, prediction, probabilities, extra columns.

    With ``spreadsheet``, text that a spreadsheet would run as a formula gets a leading
    apostrophe; numbers stay as they are.
    """

    def _head(self, block: OutputBlock) -> bytes:
        header = [
            heading
            for name, values in block.probabilities.items()
            for heading in self.headings(name, values.shape[1])
        ]
        passed = () if block.passthrough is None else block.passthrough.names
        return _lines([[*passed, "prediction", *header, *block.extra]])

    def _words(self, words: list[str]) -> list[str]:
        return list(map(_escape_formula, words)) if self.spreadsheet else words

    def encode(self, block: OutputBlock) -> Piece:
        """Return the lines, with the shortest digits that read back as the same numbers."""
        predictions = block.prediction.tolist()
        if self.names is not None:
            names = self._words(self.names)
            predictions = [names[index] for index in predictions]
        passed = [] if block.passthrough is None else block.passthrough.columns.values()
        passthrough = [self._words(column.to_text()) for column in passed]
        rows = [matrix.astype(np.str_) for matrix in block.probabilities.values()]
        extra = [np.asarray(column).astype(np.str_) for column in block.extra.values()]
        lines = (
            [
                *(column[at] for column in passthrough),
                name,
                *(cell for row in rows for cell in row[at]),
                *(column[at] for column in extra),
            ]
            for at, name in enumerate(predictions)
        )
        return Piece(_lines(lines), len(block), self._head(block))


def _escape_formula(cell: str) -> str:
    """Return a cell that a spreadsheet does not run as a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not is_number(cell) else cell


def _lines(rows: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    text = buffer.getvalue()
    if "\0" in text:  # CSV readers reject it
        raise InputError(
            "output",
            "would have a NUL character in its text, which a CSV file cannot hold",
            "write a Parquet, Feather or JSONL file, or omit the other columns with {option}",
            option=("passthrough", "False"),
        )
    return text.encode()
