"""The original and the direct reports of the same rows, from two files of any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import raise_first, row_error
from cordcal._numeric.arrays import softmax
from cordcal.files.scores import ScoreFile
from cordcal.pipeline._overlap import overlapped
from cordcal.pipeline._refusals import OnError, Parts, Refusals

Progress = Callable[[int, int], None]
"""Told how many rows are done, of how many."""


def read_original(
    values: npt.NDArray[Any], kind: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Return the classifier's probabilities, and its decisions as the scores tell them."""
    decision = values.argmax(axis=1)
    if kind == "probabilities":
        return values, decision
    top = values.max(axis=1)  # NaN is the largest of any row it is in
    hint = "drop or fix such rows"
    raise_first(
        row_error(np.isnan(top), "original", "contains NaN", hint),
        row_error(np.isinf(top), "original", "contains an infinite value", hint),
    )
    return softmax(values), decision


def batches_of(
    files: Sequence[ScoreFile], start: int = 0, progress: Progress | None = None
) -> Iterator[Parts]:
    """Yield the same rows of every file from a row on, along the first one's batches.

    ``progress`` is called with the number of rows done and of all rows.
    """
    one, *others = files
    spans = [(max(begin, start), stop) for begin, stop in one.spans if stop > start]
    batches = [one.batches(start), *(other.along(spans) for other in others)]
    for begin, _ in spans:
        if progress is not None:
            progress(begin, one.shape[0])
        yield tuple(map(next, batches))


def described(state: Any, kind: str, parts: Parts) -> Any:
    """Return what a construction keeps of some rows."""
    first, second = parts
    report, decision = read_original(first.values, kind)
    # Logits decide by their own argmax, which a softmax may tie; probabilities by themselves.
    own = decision if kind == "logits" else None
    return state.describe(report, second.values, own, first.weights)


def construct_from_files(
    cord: Any,
    original: ScoreFile,
    direct: ScoreFile,
    *,
    on_error: OnError = "stop",
    progress: Progress | None = None,
) -> Counter[str]:
    """Fit a CORD on two files without holding them in memory; return what was skipped.

    Parameters
    ----------
    cord : CORD
        The repair to fit.
    original, direct : ScoreFile
        The classifier's scores and the calibrator's probabilities of the same rows; weights
        come with the first.
    on_error : {"stop", "skip"}
        What to do with a row that is no report.
    progress : callable, optional
        Told how many rows were read, of how many.

    Returns
    -------
    skipped : Counter
        How many rows were left out, by reason.
    """
    state = cord._new_state(direct.classes)
    original, direct = original.without_labels(), direct.without_labels()
    files = {"original": original, "direct": direct}

    def work(parts: Parts) -> tuple[Any, Counter[str]]:
        refusals = Refusals(files, on_error)
        found = refusals.around(parts, partial(described, state, original.kind))
        return None if found is None else found[1], refusals.counts

    skipped: Counter[str] = Counter()
    for block, counts in overlapped(batches_of([original, direct], 0, progress), work):
        skipped += counts
        if block is not None:
            state.append(block)
    cord._constructed(state.construct())
    return skipped
