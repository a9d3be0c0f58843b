"""Fit a CORD on two files of any size."""

from __future__ import annotations

from collections import Counter
from functools import partial

from cordcal._numeric.types import Kind
from cordcal.files.scores import ScoreFile
from cordcal.pipeline.loop import (
    OnError,
    Progress,
    Rows,
    original_and_prediction,
    process_batches,
)
from cordcal.repair import CORD
from cordcal.repair.construction import ConstructionState, RowSummary


def describe_rows(state: ConstructionState, kind: Kind, rows: Rows) -> RowSummary:
    """Return what a construction keeps of some rows."""
    original, direct = rows
    probabilities, prediction = original_and_prediction(original.values, kind)
    # Logits decide by their own argmax, which a softmax may tie; probabilities by themselves.
    own = prediction if kind == "logits" else None
    return state.describe(probabilities, direct.values, own, original.weights)


def construct_from_files(
    cord: CORD,
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
        What to do with an invalid row.
    progress : callable, optional
        Called with the number of rows read, and of all rows.

    Returns
    -------
    skipped : Counter
        How many rows were skipped, by reason.
    """
    state = cord._new_state(direct.classes)
    files = {"original": original.without_labels(), "direct": direct.without_labels()}
    describe = partial(describe_rows, state, original.kind)
    skipped: Counter[str] = Counter()
    for block, counts in process_batches(files, describe, on_error=on_error, progress=progress):
        skipped += counts
        if block is not None:
            state.append(block)
    cord._constructed(state.construct())
    return skipped
