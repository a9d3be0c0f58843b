"""Whether the first line of a CSV file is a header or a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cordcal.files.columns import is_other_column

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
        sure = is_position(cells) or any(is_other_column(first[at]) for at in words)
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


def is_position(names: Sequence[str]) -> bool:
    """Whether names are just the column numbers 0, 1, 2, ….

    Examples
    --------
    >>> is_position(["0", "1", "2"]), is_position(["1", "2", "3"])
    (True, False)
    """
    return list(names) == [str(at) for at in range(len(names))]


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
    return bool(sums) and all(abs(each - 1.0) <= tolerance for each in sums)
