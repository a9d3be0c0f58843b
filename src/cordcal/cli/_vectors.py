"""Where the labels, weights or groups of rows are: ``NAME``, ``FILE`` or ``FILE:NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class VectorSource(NamedTuple):
    """Where a value per row is.

    Attributes
    ----------
    file : str or None
        A separate file; None if the values are in the file of the scores.
    column : str or None
        The column or key in that file; None if it is found by its name.
    """

    file: str | None = None
    column: str | None = None


def parse_vector(text: str | None) -> VectorSource:
    """Return the file and the column that an option names.

    Examples
    --------
    >>> parse_vector("truth")
    VectorSource(file=None, column='truth')
    >>> parse_vector("y.npy"), parse_vector("y.csv:truth")
    (VectorSource(file='y.npy', column=None), VectorSource(file='y.csv', column='truth'))
    """
    if text is None:
        return VectorSource()
    words = text.split(":")  # paths and columns may have colons, too
    if _is_file(text):
        return VectorSource(text)
    for count in range(1, len(words)):
        file = ":".join(words[:count])
        if _is_file(file):
            return VectorSource(file, ":".join(words[count:]))
    return VectorSource(column=text)


def _is_file(text: str) -> bool:
    from cordcal.files.sources import is_file

    path = Path(text)
    # A folder next to the data, such as labels, does not hide a column of that name; labels/ does.
    is_bare_folder = path.is_dir() and path.name == text and not path.suffix
    return is_file(text) and not is_bare_folder
