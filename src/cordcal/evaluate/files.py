"""Audit the reports of two files of any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cordcal.evaluate._audit_result import Audit
from cordcal.evaluate._audit_rows import AuditStream
from cordcal.evaluate.audit import seen_before
from cordcal.io.pairs import batches_of, construct_from_files, read_original
from cordcal.io.pipeline import overlapped, said_once
from cordcal.io.refusals import OnError, Parts, Refusals
from cordcal.io.stream import ScoreFile
from cordcal.repair import CORD


def audit_files(
    original: ScoreFile,
    direct: ScoreFile,
    *,
    class_names: Sequence[str] | None = None,
    cord: CORD | None = None,
    on_error: OnError = "stop",
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[Audit, Counter[str]]:
    """Audit two files without holding their reports in memory.

    The numbers are those of `audit` on the same rows.  Without a repair the files are read
    twice: one is fitted first.

    Parameters
    ----------
    original, direct : ScoreFile
        The classifier's scores and the calibrator's probabilities of the same rows; labels
        come from whichever has them.
    class_names, cord, level, resamples, seed
        As for `audit`.
    on_error : {"stop", "skip"}
        What to do with a row that is no report.

    Returns
    -------
    audit : Audit
        What `audit` returns.
    skipped : Counter
        How many rows were left out, by reason.
    """
    repair = CORD() if cord is None else cord
    if cord is None:
        construct_from_files(repair, original, direct, on_error=on_error)
    files = {"original": original, "direct": direct}

    def look(parts: Parts) -> AuditStream:
        first, second = parts
        report, decision = read_original(first.values, original.kind)
        labels = second.labels if first.labels is None else first.labels
        return AuditStream(repair).update(
            report, second.values, labels, decision=decision, first=first.first
        )

    def work(parts: Parts) -> tuple[list[AuditStream], Counter[str]]:
        refusals = Refusals(files, on_error)
        return [stream for _, stream in refusals.around(parts, look)], refusals.counts

    total, skipped = AuditStream(repair), Counter[str]()
    with said_once():
        for streams, counts in overlapped(batches_of([original, direct]), work):
            skipped += counts
            for stream in streams:
                total.merge(stream)
    noticed: list[str] = []
    if cord is not None and total.rows == cord.construction_.n:
        again = CORD(cord.preserve)
        construct_from_files(again, original, direct, on_error=on_error)
        noticed = seen_before(cord, again)
    told: dict[str, Any] = {"level": level, "resamples": resamples, "seed": seed}
    return (
        total.result(class_names=class_names, fitted_here=cord is None, noticed=noticed, **told),
        skipped,
    )
