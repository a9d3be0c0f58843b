"""Audit the probabilities of two files of any size, or fit a CORD on them.

The parts of folders can be audited one by one, here or on other machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cordcal._errors import InputError
from cordcal._numeric.types import ArrayLike, Kind, NumPyArray
from cordcal.evaluate.audit import AuditStream, seen_before
from cordcal.evaluate.audit_result import Audit
from cordcal.evaluate.results.pictures import Pictures
from cordcal.files.loop import (
    OnError,
    Open,
    Progress,
    Rows,
    Run,
    original_and_prediction,
    process_batches,
    run_locally,
)
from cordcal.files.scores import ScoreFile
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
    state = cord.new_state(direct.classes)
    files = {"original": original.without_labels(), "direct": direct.without_labels()}
    skipped = append_rows(state, files, on_error, progress)
    cord.adopt_construction(state.construct())
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
    groups: ArrayLike = None,
    on_error: OnError = "stop",
    resamples: int = 1000,
    clusters: NumPyArray | None = None,
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
    class_names, repair, resamples, clusters
        As for `audit`.
    groups : array_like of shape (n,), optional
        The group of each row of the files, for metrics per group; they need labels.
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
        clusters=clusters,
        groups=groups,
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
    clusters: NumPyArray | None = None,
    groups: ArrayLike = None,
) -> AuditedFiles:
    """Return the audit of all rows that a stream has seen."""
    audit = total.result(
        class_names=class_names,
        fitted_here=fitted_here,
        noticed=noticed,
        resamples=resamples,
        clusters=clusters,
    )
    pictures = total.pictures(class_names, groups)
    return AuditedFiles(audit, pictures, str(total.fingerprint), skipped)


# Parts.


@dataclass(frozen=True, eq=False)
class AuditPart:
    """One part of an audit.

    Attributes
    ----------
    original, direct : str
        The files of its scores and of its direct probabilities.
    vectors : mapping of str to ndarray
        ``labels`` and ``weights`` of its rows, if they are in separate files.
    """

    original: str
    direct: str
    vectors: Mapping[str, NumPyArray] = field(default_factory=dict)


@dataclass(frozen=True)
class _PartState:
    """What an audit needs of a part to fit the repair: its rows and their summary."""

    rows: int
    state: Any
    class_names: tuple[str, ...] | None


@dataclass(frozen=True)
class _DescribePart:
    readers: tuple[Open, Open]
    on_error: OnError
    with_state: bool

    def __call__(self, part: AuditPart) -> _PartState:
        files = _open_pair(self.readers, part)
        if files is None:
            return _PartState(0, None, None)
        original, direct = files["original"], files["direct"]
        names = original.class_names or direct.class_names
        rows = original.rows
        if rows is None:  # text, whose rows are counted when they are read
            rows = sum(len(batch) for batch in original.without_labels())
        if not self.with_state:
            return _PartState(rows, None, names)
        state = CORD().new_state(direct.classes, None)
        unlabelled = {name: file.without_labels() for name, file in files.items()}
        append_rows(state, unlabelled, self.on_error)
        return _PartState(rows, state if state.classes else None, names)


@dataclass(frozen=True)
class _AuditPart:
    readers: tuple[Open, Open]
    repair: CORD | Lift
    on_error: OnError

    def __call__(self, item: tuple[AuditPart, int]) -> tuple[AuditStream | None, Counter[str]]:
        part, first_row = item
        files = _open_pair(self.readers, part)
        if files is None:
            return None, Counter()
        audit_batch = partial(audit_rows, self.repair, files["original"].kind, shift=first_row)
        return merge_audits(
            self.repair, process_batches(files, audit_batch, on_error=self.on_error)
        )


def _open_pair(readers: tuple[Open, Open], part: AuditPart) -> dict[str, ScoreFile] | None:
    paths = part.original, part.direct
    original, direct = (reader(path) for reader, path in zip(readers, paths, strict=True))
    if original.is_empty and direct.is_empty:
        return None
    original.attach(part.vectors)
    return {"original": original, "direct": direct}


def audit_parts(
    readers: tuple[Open, Open],
    inputs: Sequence[AuditPart],
    *,
    repair: CORD | Lift | None = None,
    groups: ArrayLike = None,
    on_error: OnError = "stop",
    clusters: NumPyArray | None = None,
    run: Run = run_locally,
) -> AuditedFiles:
    """Audit parts; the numbers are those of all rows in one file.

    Parameters
    ----------
    readers : tuple of callable
        Open a part of the original and of the direct probabilities.
    inputs : sequence of AuditPart
        What to audit.
    repair : CORD or Lift, optional
        A fitted repair; by default one is fitted on all parts.
    groups, clusters : array_like, optional
        The group and the cluster of each row of all parts, as for `audit_files`.
    on_error : {"stop", "skip"}
        What to do with an invalid row.
    run : callable
        Runs the work; by default in this process.

    Returns
    -------
    audited : AuditedFiles
        As of `audit_files`.
    """
    described = list(run(_DescribePart(readers, on_error, repair is None), inputs))
    if not any(part.rows for part in described):
        raise InputError("the parts", "have no rows", "pass at least one")
    fitted = repair
    if fitted is None:
        states = (part.state for part in described if part.state is not None)
        fitted = CORD().merge_states(states)
    firsts = [sum(part.rows for part in described[:at]) for at in range(len(described))]
    numbered = list(zip(inputs, firsts, strict=True))
    total, skipped = merge_audits(fitted, run(_AuditPart(readers, fitted, on_error), numbered))
    names = next((part.class_names for part in described if part.rows), None)
    return finish_audit(
        total,
        skipped,
        class_names=names,
        fitted_here=repair is None,
        clusters=clusters,
        groups=groups,
    )
