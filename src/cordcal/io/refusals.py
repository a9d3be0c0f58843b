"""Rows that are refused: name them by file and row, or leave them out and count them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar

from cordcal import arrays
from cordcal.io.stream import Batch, ScoreFile

OnError = Literal["stop", "skip"]
Parts = tuple[Batch, ...]
"""The same rows of one or more files."""

Result = TypeVar("Result")

# What a refused row is called in a count: its own numbers are left out.
_REASON = re.compile(r"^\w+: row \d+ (.*?)(?: \(|;|, |:|$)")


class Refusals:
    """What to do with rows that a function refuses, and how many there were of each kind.

    Parameters
    ----------
    files : mapping of str to ScoreFile
        The files by the names that the function's errors call them: ``"scores"``, or
        ``"original"`` and ``"direct"``.
    on_error : {"stop", "skip"}
        Raise an error that names file and row, or go on around the row.
    """

    def __init__(self, files: Mapping[str, ScoreFile], on_error: OnError) -> None:
        self.files, self.on_error = files, on_error
        self.counts: Counter[str] = Counter()

    def around(
        self, parts: Parts, function: Callable[[Parts], Result]
    ) -> Iterator[tuple[Parts, Result]]:
        """Yield ``function(parts)``, in pieces around the rows it refuses."""
        if not len(parts[0]):
            return
        try:
            result = function(parts)
        except ValueError as error:
            row = self._refused(error, parts[0].first)
            for start, stop in ((0, row), (row + 1, len(parts[0]))):
                yield from self.around(tuple(part.rows(start, stop) for part in parts), function)
        else:
            yield parts, result

    def _refused(self, error: ValueError, first: int) -> int:
        """Return the row an error is about, or raise it with the file's name and row."""
        message = str(error)
        name, _, said = message.partition(":")
        file = self.files.get(name)
        found = arrays.ROW.match(said.lstrip())
        if file is None or found is None:
            names = " and ".join(each.name for each in self.files.values())
            raise ValueError(f"{names}: {message}") from error
        if self.on_error == "stop":
            raise ValueError(arrays.renumbered(message, first, file.name)) from error
        reason = _REASON.match(message)
        words = reason[1] if reason else said.strip()
        self.counts["does not sum to 1" if words.startswith("sums to") else words] += 1
        return int(found[1])
