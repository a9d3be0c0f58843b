"""Audit one pair of reports: what the calibrator changes, and what the repair makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal import arrays
from cordcal.evaluate._audit_result import (
    MEASURE_NAMES,
    Audit,
    ChangedRow,
    GroupChanges,
    MeasureComparison,
)
from cordcal.evaluate.bootstrap import RESAMPLED, percentile_interval, resampled_measures
from cordcal.metrics import decision_changes
from cordcal.metrics._all import MeasuredReport, measure_report
from cordcal.metrics._changes import read_decisions
from cordcal.metrics._rows import Classes, Report, Vector
from cordcal.metrics._scores import NLL_FLOOR
from cordcal.repair import CORD

# Bands of the original confidence, finer where calibrators seldom dare.
_BANDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
# How many of the changed rows are told one by one.
_ROWS = 10


def audit(
    original: Any,
    direct: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    decision: Any = None,
    sample_weight: Any = None,
    cord: CORD | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Audit:
    """Find out what a calibrator does to a classifier's decisions, and what the repair does.

    The repaired report is that of ``cord``, a repair fitted on calibration rows.  Without
    one, a CORD is fitted on the audited rows themselves: it needs no labels and learns a
    single number, but its retained mean is then exact by construction, and the audit says
    that it was so.

    Parameters
    ----------
    original, direct : array_like of shape (n, K)
        The classifier's and the calibrator's probabilities for the same rows.
    labels : array_like of int, optional
        The true class of each row; without them only decisions are compared.
    class_names : sequence of str, optional
        Names of the columns, for tables and words.
    decision : array_like of int, optional
        The classifier's decisions as the caller's system reads them, where they are not the
        argmax of ``original``.
    sample_weight : array_like, optional
        Weights of the rows.
    cord : CORD, optional
        A fitted repair.
    level : float
        Level of the paired bootstrap intervals.
    resamples : int
        Bootstrap resamples.
    seed : int
        Seed of the resampling.

    Returns
    -------
    audit : Audit
        Counts, tables, intervals and a reading in plain words.

    Warns
    -----
    UserWarning
        If a report's dtype cannot hold probabilities that the log loss tells from zero, or
        if ``cord`` was fitted on these very rows.

    Examples
    --------
    >>> import numpy as np
    >>> original = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1]])
    >>> direct = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.4, 0.5, 0.1]])
    >>> audit(original, direct)
    Audit(3 rows × 3 classes: 1 decision changed, 33.33%)
    >>> print(audit(original, direct, class_names=["cat", "dog", "owl"]).interpret())
    The calibrator changes 1 of 3 decisions (33.33%); the repaired report changes none.
    Most changes are among decisions for class cat: 1 of 2 (50.00%).
    Most changes are among rows with original confidence (0, 0.5]: 1 of 2 (50.00%).
    Without labels, nothing can be said about accuracy or calibration.
    """
    reports = {"original": Report.of(original, "original"), "direct": Report.of(direct, "direct")}
    p, q = reports["original"].values, reports["direct"].values
    arrays.check_same_shape(p, "original", q, "direct")
    rows, classes = q.shape
    names = _names(class_names, classes)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; pass a number between 0 and 1, such as 0.95")
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; pass at least 1")

    repair = (
        CORD().fit(p, q, decision=decision, sample_weight=sample_weight) if cord is None else cord
    )
    repaired = repair.transform(p, q, decision=decision)
    reports["repaired"] = Report.of(repaired, "repaired")

    kept = read_decisions(p if decision is None else decision, "decision")[0]
    moved_to = read_decisions(q, "direct")[0]
    masses = {name: report.mass_on(kept) for name, report in reports.items()}
    changed = _ChangedRows(kept, moved_to, labels, sample_weight, names)

    measured: dict[str, MeasuredReport] = {}
    comparisons: tuple[MeasureComparison, ...] = ()
    if labels is not None:
        measured = {
            name: measure_report(report, labels, sample_weight) for name, report in reports.items()
        }
        comparisons = _compare(measured, level, resamples, seed)
    found = [*_underflow(reports, measured), *_seen_before(cord, p, q, decision)]
    for message in found:
        warnings.warn(message, UserWarning, stacklevel=2)

    return Audit(
        n=rows,
        n_classes=classes,
        identical=bool(np.array_equal(p, q)),
        changes=changed.among(slice(None)),
        by_class=changed.by_class(),
        by_confidence=changed.by_confidence(masses["original"]),
        rows=changed.largest(masses, reports["direct"]),
        measures=comparisons,
        reliability={name: report.reliability() for name, report in measured.items()},
        eta=repair.eta_,
        fitted_here=cord is None,
        level=level,
        resamples=resamples,
        seed=seed,
        warnings=tuple(found),
    )


class _ChangedRows:
    """Decisions before and after, and their changes within any group of rows."""

    def __init__(
        self, kept: Classes, moved_to: Classes, labels: Any, weight: Any, names: list[str]
    ) -> None:
        self.kept = kept
        self.moved_to = moved_to
        self.names = names
        self.labels = labels
        if labels is not None:
            self.labels = arrays.check_decisions(labels, len(kept), len(names), "labels")
        self.weight = None if weight is None else arrays.check_weights(weight, len(kept))

    def among(self, group: slice | npt.NDArray[np.intp]) -> Any:
        return decision_changes(
            self.kept[group],
            self.moved_to[group],
            None if self.labels is None else self.labels[group],
            sample_weight=None if self.weight is None else self.weight[group],
        )

    def _grouped(self, index: Classes, names: Sequence[str]) -> tuple[GroupChanges, ...]:
        # Rows of weight zero are no rows: a group of them has no rates.
        counted = np.arange(len(index)) if self.weight is None else np.flatnonzero(self.weight)
        order = counted[np.argsort(index[counted], kind="stable")]
        values, starts = np.unique(index[order], return_index=True)
        parts = np.split(order, starts[1:])
        return tuple(
            GroupChanges(names[value], self.among(part))
            for value, part in zip(values, parts, strict=True)
        )

    def by_class(self) -> tuple[GroupChanges, ...]:
        return self._grouped(self.kept, self.names)

    def by_confidence(self, confidence: Vector) -> tuple[GroupChanges, ...]:
        bands = [f"({low:g}, {high:g}]" for low, high in pairwise(_BANDS)]
        index = np.searchsorted(_BANDS, confidence, side="left") - 1
        return self._grouped(np.clip(index, 0, len(bands) - 1), bands)

    def largest(
        self, masses: dict[str, Vector], direct: Report, most: int = _ROWS
    ) -> tuple[ChangedRow, ...]:
        moved = np.flatnonzero(self.kept != self.moved_to)
        confidence = direct.values[moved, self.moved_to[moved]].astype(np.float64)
        order = np.argsort(masses["direct"][moved] - confidence, kind="stable")[:most]
        return tuple(
            ChangedRow(
                row=int(row),
                decision=self.names[self.kept[row]],
                direct_decision=self.names[self.moved_to[row]],
                label=None if self.labels is None else self.names[self.labels[row]],
                original_mass=float(masses["original"][row]),
                direct_mass=float(masses["direct"][row]),
                repaired_mass=float(masses["repaired"][row]),
                direct_confidence=float(top),
            )
            for row, top in zip(moved[order], confidence[order], strict=True)
        )


def _names(class_names: Sequence[str] | None, classes: int) -> list[str]:
    if class_names is None:
        return [str(index) for index in range(classes)]
    if len(class_names) != classes:
        raise ValueError(
            f"class_names has {len(class_names)} entries but there are {classes} classes; "
            f"pass one name for each column"
        )
    return [str(name) for name in class_names]


def _compare(
    measured: dict[str, MeasuredReport], level: float, resamples: int, seed: int
) -> tuple[MeasureComparison, ...]:
    direct, repaired = measured["direct"], measured["repaired"]
    values = resampled_measures([direct.rows, repaired.rows], resamples=resamples, seed=seed)
    low, high = percentile_interval(values[1] - values[0], level)
    intervals = dict(zip(RESAMPLED, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    comparisons = []
    for name in MEASURE_NAMES:
        before, after = getattr(direct.measures, name), getattr(repaired.measures, name)
        ends = intervals.get(name, (None, None))
        comparisons.append(
            MeasureComparison(
                measure=name,
                original=getattr(measured["original"].measures, name),
                direct=before,
                repaired=after,
                difference=after - before,
                low=ends[0],
                high=ends[1],
            )
        )
    return tuple(comparisons)


def _underflow(reports: dict[str, Report], measured: dict[str, MeasuredReport]) -> list[str]:
    """Say where zeros may be probabilities that the dtype could not hold."""
    zeros = {}
    for name, report in measured.items():
        smallest = np.finfo(reports[name].values.dtype).smallest_subnormal
        count = int(np.count_nonzero(report.rows.true_mass == 0.0))
        if count and smallest > NLL_FLOOR:
            zeros[name] = count
    if not zeros:
        return []
    counts = " and ".join(f"{count:,} rows of {name}" for name, count in zeros.items())
    return [
        f"float16 holds no positive number below 6e-8: the true class has probability 0 in "
        f"{counts}, each of which adds {-np.log(NLL_FLOOR):.1f} to the sum behind the NLL. "
        f"Pass float32 or float64 probabilities for a log loss that can be trusted."
    ]


def _seen_before(
    cord: CORD | None, original: npt.NDArray[Any], direct: npt.NDArray[Any], decision: Any
) -> list[str]:
    """Say if a given repair was fitted on these very rows.

    A construction's means are exact sums, the same for any order of the rows: two
    constructions that agree in every figure saw the same rows.
    """
    if cord is None or cord.construction_.n != len(direct):
        return []
    again = CORD(cord.preserve).fit(original, direct, decision=decision)
    if again.construction_ != cord.construction_:
        return []
    return [
        "These are the rows that cord was fitted on: the numbers describe the fit, not new data. "
        "Pass evaluation rows that no model has seen."
    ]
