"""Audit the probabilities of two files of any size, or fit a CORD on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cordcal._numeric.types import Kind
from cordcal.evaluate.audit import AuditStream, seen_before
from cordcal.evaluate.audit_result import Audit
from cordcal.evaluate.results import Pictures
from cordcal.files.scores import ScoreFile
from cordcal.pipeline.loop import (
    OnError,
    Progress,
    Rows,
    original_and_prediction,
    process_batches,
)
from cordcal.repair import CORD, Lift
from cordcal.repair.construction import ConstructionState, RowSummary


def _describe_rows(state: ConstructionState, kind: Kind, rows: Rows) -> RowSummary:
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
    skipped = append_rows(state, files, on_error, progress)
    cord._constructed(state.construct())
    return skipped


def append_rows(
    state: ConstructionState,
    files: Mapping[str, ScoreFile],
    on_error: OnError,
    progress: Progress | None = None,
) -> Counter[str]:
    """Add the rows of an original and a direct file to a construction; return what was skipped."""
    describe = partial(_describe_rows, state, files["original"].kind)
    skipped: Counter[str] = Counter()
    for block, counts in process_batches(files, describe, on_error=on_error, progress=progress):
        skipped += counts
        if block is not None:
            state.append(block)
    return skipped


@dataclass(frozen=True, eq=False)
class AuditedFiles:
    """The audit of two files.

    Attributes
    ----------
    audit : Audit
        What `audit` returns.
    pictures : Pictures
        What a report draws of the rows.
    fingerprint : str
        Recognises the rows.
    skipped : Counter
        How many rows were skipped, by reason.
    """

    audit: Audit
    pictures: Pictures
    fingerprint: str
    skipped: Counter[str]


def audit_files(
    original: ScoreFile,
    direct: ScoreFile,
    *,
    class_names: Sequence[str] | None = None,
    repair: CORD | Lift | None = None,
    on_error: OnError = "stop",
    resamples: int = 1000,
    progress: Progress | None = None,
) -> AuditedFiles:
    """Audit two files without holding them in memory.

    The numbers are those of `audit` on the same rows.  Without a repair the files are read
    twice: one is fitted first.

    Parameters
    ----------
    original, direct : ScoreFile
        The classifier's scores and the calibrator's probabilities of the same rows; labels
        come from whichever has them, weights from the first.
    class_names, repair, resamples
        As for `audit`.
    on_error : {"stop", "skip"}
        What to do with an invalid row.
    progress : callable, optional
        Called with the number of rows read, and of all rows, each time they are read.

    Returns
    -------
    audited : AuditedFiles
        What `audit` returns, what a report draws, and which rows were skipped.
    """
    fitted = repair
    if fitted is None:
        fitted = CORD()
        construct_from_files(fitted, original, direct, on_error=on_error, progress=progress)
    files = {"original": original, "direct": direct}
    audit_batch = partial(audit_rows, fitted, original.kind)
    total, skipped = merge_audits(
        fitted, process_batches(files, audit_batch, on_error=on_error, progress=progress)
    )
    noticed: list[str] = []
    if isinstance(repair, CORD) and total.rows == repair.construction_.n:
        again = CORD(repair.preserve, rule=repair.rule)
        construct_from_files(again, original, direct, on_error=on_error, progress=progress)
        noticed = seen_before(repair, again)
    return finish_audit(
        total,
        skipped,
        class_names=class_names,
        fitted_here=repair is None,
        noticed=noticed,
        resamples=resamples,
    )


def audit_rows(repair: CORD | Lift, kind: Kind, rows: Rows, *, shift: int = 0) -> AuditStream:
    """Return the audit of some rows, whose numbers count from row ``shift`` of the whole."""
    first, second = rows
    probabilities, prediction = original_and_prediction(first.values, kind)
    labels = second.labels if first.labels is None else first.labels
    return AuditStream(repair, recognise=True).update(
        probabilities,
        second.values,
        labels,
        prediction=prediction,
        sample_weight=first.weights,
        rows=first.numbers + shift,
    )


def merge_audits(
    repair: CORD | Lift, audited: Iterable[tuple[AuditStream | None, Counter[str]]]
) -> tuple[AuditStream, Counter[str]]:
    """Return the audit of several blocks of rows, and what was skipped in all of them."""
    total, skipped = AuditStream(repair, recognise=True), Counter[str]()
    for stream, counts in audited:
        skipped += counts
        if stream is not None:
            total.merge(stream)
    return total, skipped


def finish_audit(
    total: AuditStream,
    skipped: Counter[str],
    *,
    class_names: Sequence[str] | None,
    fitted_here: bool,
    noticed: Sequence[str] = (),
    resamples: int = 1000,
) -> AuditedFiles:
    """Return the audit of all rows that a stream has seen."""
    audit = total.result(
        class_names=class_names,
        fitted_here=fitted_here,
        noticed=noticed,
        resamples=resamples,
    )
    return AuditedFiles(audit, total.pictures(class_names), str(total.fingerprint), skipped)
