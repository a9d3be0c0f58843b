"""Rows that are refused: name them by file and row, or leave them out and count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Classes
from cordcal._validation.scores import DROP
from cordcal.files.scores import Batch, ScoreFile, Scores, joined

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
    ) -> tuple[Parts, Result] | None:
        """Return the rows that a function takes and what it makes of them; None if it takes none.

        All rows that are refused for one reason are left out together, so that the function
        runs once for each kind of badness and once for the rest, however many rows are bad.
        """
        while len(parts[0]):
            try:
                return parts, function(parts)
            except InputError as refusal:
                keep = self._without(refusal, parts[0])
            parts = tuple(batch.where(keep) for batch in parts)
        return None

    def _without(self, refusal: InputError, batch: Batch) -> npt.NDArray[np.bool_]:
        """Flag the rows that are not refused, or raise with the file's and the row's name."""
        file = self.files.get(refusal.argument)
        if file is None or not refusal.rows.size:
            names = " and ".join(each.name for each in self.files.values())
            raise refusal.with_argument(f"{names}: {refusal.argument}") from refusal
        if self.on_error == "stop":
            told = refusal.select_rows(batch.numbers).with_argument(file.name)
            raise (
                told.with_option_hint("on_error", "skip") if told.hint == DROP else told
            ) from refusal
        self.counts[refusal.reason] += refusal.rows.size
        keep = np.ones(len(batch), dtype=bool)
        keep[refusal.rows] = False
        return keep


def read_sound(file: ScoreFile) -> tuple[Scores, Classes, Counter[str]]:
    """Read the rows that are reports, and count the others by what is wrong with them.

    Parameters
    ----------
    file : ScoreFile
        The scores, with labels and features where it has them.

    Returns
    -------
    scores : Scores
        The rows that are left, in their order.
    rows : ndarray of int
        Which rows of the file those are.
    skipped : Counter
        How many rows were left out, by reason.
    """
    from cordcal._validation.scores import original_probabilities

    def check(parts: Parts) -> None:
        original_probabilities(parts[0].values, file.kind)

    refusals = Refusals({"scores": file}, "skip")
    found = (refusals.around((batch,), check) for batch in file)
    sound = [each[0][0] for each in found if each is not None]
    if not sound:
        raise InputError(file.name, "has no row that can be read", "mend the rows, or pass others")
    whole = joined(sound)
    scores = Scores(
        file.path,
        file.key,
        whole.values,
        file.kind,
        whole.labels,
        file.class_names,
        whole.features,
        whole.weights,
        file.columns,
    )
    rows = np.concatenate([batch.numbers for batch in sound])
    return scores, rows, refusals.counts
