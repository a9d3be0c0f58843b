"""Rows that are refused: name them by file and row, or leave them out and count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar

from cordcal._door.errors import Refusal
from cordcal.files._scores import Scores
from cordcal.files._stream import Batch, ScoreFile, joined

OnError = Literal["stop", "skip"]
Parts = tuple[Batch, ...]
"""The same rows of one or more files."""

Result = TypeVar("Result")


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
        waiting = [parts]
        while waiting:
            part = waiting.pop()
            if not len(part[0]):
                continue
            try:
                result = function(part)
            except Refusal as error:
                row = self._refused(error, part[0].first)
                spans = (row + 1, len(part[0])), (0, row)
                waiting += [tuple(each.rows(*span) for each in part) for span in spans]
            else:
                yield part, result

    def _refused(self, error: Refusal, first: int) -> int:
        """Return the row an error is about, or raise it with the file's name and row."""
        file = self.files.get(error.argument)
        if file is None or not error.rows.size:
            names = " and ".join(each.name for each in self.files.values())
            raise error.called(f"{names}: {error.argument}") from error
        if self.on_error == "stop":
            raise error.shifted(first).called(file.name) from error
        self.counts[error.reason] += 1
        return int(error.rows[0])


def read_sound(file: ScoreFile) -> tuple[Scores, Counter[str]]:
    """Read the rows that are reports, and count the others by what is wrong with them.

    Parameters
    ----------
    file : ScoreFile
        The scores, with labels and features where it has them.

    Returns
    -------
    scores : Scores
        The rows that are left, in their order.
    skipped : Counter
        How many rows were left out, by reason.
    """
    from cordcal._door.scores import original_probabilities

    def check(parts: Parts) -> None:
        original_probabilities(parts[0].values, file.kind)

    refusals = Refusals({"scores": file}, "skip")
    sound = [parts[0] for batch in file for parts, _ in refusals.around((batch,), check)]
    if not sound:
        raise ValueError(f"{file.name}: every row was refused; there is nothing left to fit on")
    whole = joined(sound)
    scores = Scores(
        file.path, file.key, whole.values, file.kind, whole.labels, file.class_names, whole.features
    )
    return scores, refusals.counts
