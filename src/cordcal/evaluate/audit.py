"""Audit one pair of reports: what the calibrator changes, and what the repair makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.types import Classes, Vector
from cordcal._validation import layouts
from cordcal._validation.alignment import align_rows
from cordcal._validation.estimator import as_seed
from cordcal._validation.labels import check_decisions, check_weights, names_to_indices
from cordcal._validation.names import (
    check_class_names,
    column_names,
    in_column_order,
    integer_column_names,
)
from cordcal._validation.probabilities import as_matrix, check_same_shape
from cordcal.evaluate.audit_result import Audit, ChangedRow, GroupChanges, MeasureComparison
from cordcal.evaluate.constraint_cost import lower_end, unlabelled_price
from cordcal.evaluate.fingerprint import Fingerprint
from cordcal.evaluate.statistics import Replicates, percentile_interval, resampled
from cordcal.evaluate.trust import Caveat, audit_concerns
from cordcal.metrics import METRICS, TopkChangesStream, decision_changes
from cordcal.metrics.changes import read_decisions
from cordcal.metrics.proper import NLL_FLOOR
from cordcal.metrics.rows import ProbabilityMatrix
from cordcal.metrics.stream import require_rows
from cordcal.metrics.summary import MeasuredProbabilities, MetricsStream
from cordcal.repair import CORD, Lift
from cordcal.repair.inputs import check_fitted

if TYPE_CHECKING:
    from cordcal.evaluate.pictures import Pictures

# Bands of the original confidence, finer where calibrators seldom dare.
_BANDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
# How many of the changed rows are told one by one.
_ROWS = 10
# How far down the list the order of classes is compared: what a list of suggestions shows.
_TOP = 5

_REPORTS = ("original", "direct", "repaired")


class AuditStream:
    """`audit` of blocks of rows, with one fitted repair.

    About 170 bytes a row are kept, whatever the number of classes: enough for every count,
    measure and resample, which are those of the rows together.

    Parameters
    ----------
    cord : CORD or Lift
        A fitted repair.
    recognise : bool
        Digest the rows, so that they are recognised when they come again: both reports,
        labels, weights and decisions.
    """

    def __init__(self, cord: CORD | Lift, *, recognise: bool = False) -> None:
        self.cord = cord
        self.fingerprint = Fingerprint(0, 0) if recognise else None
        self.identical = True
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}
        self._measured = {name: MetricsStream() for name in _REPORTS}
        self._reports: dict[str, MeasuredProbabilities] = {}
        # The order of the first K - 1 classes is the whole order.
        shown = min(_TOP, cord.n_classes_ - 1)
        self._topk = {name: TopkChangesStream(shown) for name in _REPORTS[1:]}

    @property
    def rows(self) -> int:
        """Rows seen so far."""
        return sum(map(len, self._columns.get("kept", [])))

    def update(
        self,
        original: Any,
        direct: Any,
        labels: Any = None,
        *,
        decision: Any = None,
        sample_weight: Any = None,
        rows: npt.NDArray[np.intp] | None = None,
    ) -> Self:
        """Add a block of rows; the arguments are those of `audit`.

        Parameters
        ----------
        original, direct : array_like of shape (n, K)
            The classifier's and the calibrator's probabilities.
        labels : array_like of int, optional
            The true class of each row.
        decision : array_like of int, optional
            The classifier's decisions.
        sample_weight : array_like, optional
            Weights of the rows.
        rows : ndarray of int, optional
            The numbers of the rows, where some before or between them are missing.

        Returns
        -------
        self : AuditStream
            The stream, so that calls can be chained.
        """
        p, q = (
            ProbabilityMatrix.from_array(original, "original"),
            ProbabilityMatrix.from_array(direct, "direct"),
        )
        check_same_shape(p.values, "original", q.values, "direct")
        repaired = self.cord.transform(p.values, q.values, decision=decision)
        reports = dict(
            zip(_REPORTS, (p, q, ProbabilityMatrix.from_array(repaired, "repaired")), strict=True)
        )
        kept = read_decisions(p.values if decision is None else decision, "decision")[0]
        moved_to = read_decisions(q.values, "direct")[0]
        here = np.arange(q.rows)
        found = {
            "kept": kept,
            "moved_to": moved_to,
            "original_confidence": p.values.max(axis=1).astype(np.float64),
            "direct_confidence": q.values[here, moved_to].astype(np.float64),
            "end": np.concatenate([lower_end(block, kept[at])[2] for at, block in q.blocks()]),
            **{name: report.mass_on(kept) for name, report in reports.items()},
        }
        if sample_weight is not None:
            found["weight"] = check_weights(sample_weight, q.rows, some=False)
        if labels is not None:
            found["labels"] = check_decisions(labels, q.rows, q.classes, "labels")
            for name, report in reports.items():
                self._measured[name].update_checked(report, found["labels"], found.get("weight"))
        if rows is not None:
            found["row"] = rows
        order = p.values
        if decision is not None:
            order = order.copy()
            order[here, kept] = 2.0  # the kept order starts with the decision
        for name, topk in self._topk.items():
            topk.update(order, reports[name].values, sample_weight=found.get("weight"))
        for name, column in found.items():
            self._columns.setdefault(name, []).append(column)
        self.dtypes = {name: report.values.dtype for name, report in reports.items()}
        self.identical = self.identical and bool(np.array_equal(p.values, q.values))
        if self.fingerprint is not None:
            missing = np.full(q.rows, -1)  # neither a label nor a weight
            beside = [found.get(name, missing) for name in ("kept", "labels", "weight")]
            self.fingerprint += Fingerprint.of(p.values, q.values, *beside)
        return self

    def merge(self, other: Self) -> Self:
        """Add what another stream of the same repair has seen; return this stream."""
        for name, columns in other._columns.items():
            self._columns.setdefault(name, []).extend(columns)
        for name, stream in self._measured.items():
            stream.merge(other._measured[name])
        for name, topk in self._topk.items():
            topk.merge(other._topk[name])
        self.dtypes = self.dtypes or other.dtypes
        self.identical = self.identical and other.identical
        if self.fingerprint is not None and other.fingerprint is not None:
            self.fingerprint += other.fingerprint
        return self

    def _together(
        self, class_names: Sequence[str] | None
    ) -> tuple[dict[str, npt.NDArray[Any]], ChangedRows]:
        """Return the columns of all rows seen, and their decisions before and after."""
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        names = names_or_numbers(class_names, self.cord.n_classes_)
        labels, weight = columns.get("labels"), columns.get("weight")
        return columns, ChangedRows(columns["kept"], columns["moved_to"], labels, weight, names)

    def pictures(self, class_names: Sequence[str] | None = None) -> Pictures:
        """Return what a report draws of the rows seen, once `result` has measured them."""
        from cordcal.evaluate.pictures import Pictures

        columns, changed = self._together(class_names)
        confidences = {
            "original": columns["original_confidence"],
            "direct": columns["direct_confidence"],
            "repaired": columns["repaired"],
        }
        masses = {name: columns[name] for name in _REPORTS}
        rows = columns.get("row")
        return Pictures.of_rows(changed, masses, confidences, self._reports, rows)

    def result(
        self,
        *,
        class_names: Sequence[str] | None = None,
        fitted_here: bool,
        level: float,
        resamples: int,
        seed: int,
        noticed: Sequence[str] = (),
    ) -> Audit:
        """Return the audit of all rows seen; ``noticed`` are warnings of the caller's."""
        require_rows(self.rows)
        columns, changed = self._together(class_names)
        masses = {name: columns[name] for name in _REPORTS}
        measured: dict[str, MeasuredProbabilities] = {}
        comparisons: tuple[MeasureComparison, ...] = ()
        if changed.labels is not None:
            measured = {name: stream.result() for name, stream in self._measured.items()}
            comparisons = _compare(measured, level, resamples, seed)
        self._reports = measured
        found = [*_underflow(self.dtypes, measured), *noticed]
        for message in found:
            warnings.warn(message, UserWarning, stacklevel=arrays.stacklevel_outside_package())
        return Audit(
            n=self.rows,
            n_classes=len(changed.names),
            identical=self.identical,
            changes=changed.among(slice(None)),
            topk_changes={name: topk.result() for name, topk in self._topk.items()},
            by_class=changed.by_class(),
            by_confidence=changed.by_confidence(columns["original_confidence"]),
            rows=changed.largest(
                masses, columns["direct_confidence"], row_numbers=columns.get("row")
            ),
            measures=comparisons,
            reliability={name: report.reliability() for name, report in measured.items()},
            price=unlabelled_price(masses["direct"], columns["end"], changed.weight),
            eta=self.cord.eta_ if isinstance(self.cord, CORD) else None,
            fitted_here=fitted_here,
            level=level,
            resamples=resamples,
            seed=seed,
            warnings=tuple(found),
            concerns=_concerns(changed, class_names),
        )


def _concerns(rows: ChangedRows, class_names: Sequence[str] | None) -> tuple[Caveat, ...]:
    """Return what labels and decisions give reason to doubt."""
    if rows.labels is None:
        return ()
    return tuple(
        audit_concerns(
            rows.kept, rows.labels, classes=len(rows.names), names=class_names, weight=rows.weight
        )
    )


class ChangedRows:
    """Decisions before and after, and their changes within any group of rows."""

    def __init__(
        self, kept: Classes, moved_to: Classes, labels: Any, weight: Any, names: list[str]
    ) -> None:
        self.kept = kept
        self.moved_to = moved_to
        self.names = names
        self.labels = labels
        self.weight = None if weight is None else check_weights(weight, len(kept))

    def among(self, group: slice | npt.NDArray[np.intp]) -> Any:
        """Count the changes within some rows."""
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
        """Count the changes by original decision."""
        return self._grouped(self.kept, self.names)

    def by_confidence(self, confidence: Vector) -> tuple[GroupChanges, ...]:
        """Count the changes by bands of the original confidence."""
        bands = [f"({low:g}, {high:g}]" for low, high in pairwise(_BANDS)]
        index = np.searchsorted(_BANDS, confidence, side="left") - 1
        return self._grouped(np.clip(index, 0, len(bands) - 1), bands)

    def largest(
        self,
        masses: dict[str, Vector],
        direct_confidence: Vector,
        most: int = _ROWS,
        row_numbers: Classes | None = None,
    ) -> tuple[ChangedRow, ...]:
        """Tell the rows whose direct report prefers its own decision most."""
        found = self._most_decided(masses, direct_confidence)[:most]
        return self._told(found, masses, direct_confidence, row_numbers)

    def spread(
        self,
        masses: dict[str, Vector],
        direct_confidence: Vector,
        most: int,
        row_numbers: Classes | None = None,
    ) -> tuple[ChangedRow, ...]:
        """Tell such a row of every move from class to class, then a second one, and so on."""
        found = self._most_decided(masses, direct_confidence)
        move = self.kept[found] * len(self.names) + self.moved_to[found]
        by_move = np.argsort(move, kind="stable")
        _, starts, counts = np.unique(move[by_move], return_index=True, return_counts=True)
        turn = np.empty(len(found), dtype=np.intp)
        turn[by_move] = np.arange(len(found)) - np.repeat(starts, counts)
        chosen = found[np.argsort(turn, kind="stable")[:most]]
        return self._told(chosen, masses, direct_confidence, row_numbers)

    def _most_decided(self, masses: dict[str, Vector], direct_confidence: Vector) -> Classes:
        moved = np.flatnonzero(self.kept != self.moved_to)
        lead = masses["direct"][moved] - direct_confidence[moved]
        return moved[np.argsort(lead, kind="stable")]

    def _told(
        self,
        rows: Classes,
        masses: dict[str, Vector],
        direct_confidence: Vector,
        row_numbers: Classes | None,
    ) -> tuple[ChangedRow, ...]:
        return tuple(
            ChangedRow(
                row=int(row if row_numbers is None else row_numbers[row]),
                decision=self.names[self.kept[row]],
                direct_decision=self.names[self.moved_to[row]],
                label=None if self.labels is None else self.names[self.labels[row]],
                original_mass=float(masses["original"][row]),
                direct_mass=float(masses["direct"][row]),
                repaired_mass=float(masses["repaired"][row]),
                direct_confidence=float(direct_confidence[row]),
            )
            for row in rows
        )


def names_or_numbers(class_names: Sequence[Any] | None, classes: int) -> list[str]:
    """Return one name a class: those given, or the columns' numbers."""
    if class_names is None:
        return [str(index) for index in range(classes)]
    return list(check_class_names(class_names, classes))


def _compare(
    measured: dict[str, MeasuredProbabilities], level: float, resamples: int, seed: int
) -> tuple[MeasureComparison, ...]:
    rows = measured["direct"].metrics.n
    replicates = resampled(
        {name: [measured[name].rows] for name in ("direct", "repaired")},
        [np.arange(rows)],
        rows,
        resamples=resamples,
        seed=seed,
    )
    return tuple(_compared(name, measured, replicates, level) for name in METRICS)


def _compared(
    name: str,
    measured: dict[str, MeasuredProbabilities],
    replicates: dict[str, Replicates],
    level: float,
) -> MeasureComparison:
    original, direct, repaired = (measured[report].metrics.values[name] for report in _REPORTS)
    low = high = None
    if name in replicates["direct"]:
        differences = replicates["repaired"][name] - replicates["direct"][name]
        low, high = map(float, percentile_interval(differences, level))
    return MeasureComparison(name, original, direct, repaired, repaired - direct, low, high)


def _underflow(
    dtypes: dict[str, np.dtype[Any]], measured: dict[str, MeasuredProbabilities]
) -> list[str]:
    """Say where zeros may be probabilities that the dtype could not hold."""
    zeros = {}
    for name, report in measured.items():
        smallest = np.finfo(dtypes[name]).smallest_subnormal
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


__all__ = ["Audit", "ChangedRow", "GroupChanges", "MeasureComparison", "audit"]


def audit(
    original: Any,
    direct: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    decision: Any = None,
    sample_weight: Any = None,
    cord: CORD | Lift | None = None,
    axis: int | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Audit:
    """Find out what a calibrator does to a classifier's decisions, and what the repair does.

    The repaired report is that of ``cord``, a repair fitted on calibration rows.  Without
    one, a CORD is fitted on the audited rows themselves: it needs no labels and learns a
    single number, but its retained mean is then exact by construction, and the audit says
    that it was so.

    Parameters
    ----------
    original, direct : array_like of shape (n, K)
        The classifier's and the calibrator's probabilities for the same rows.  Rows of pandas
        objects are matched by index, those of the other arguments as well.
    labels : array_like of int, optional
        The true class of each row, as column indices, or as names where ``class_names`` are
        given; without them only decisions are compared.
    class_names : sequence of str, optional
        Names of the columns, for tables and words.
    decision : array_like of int, optional
        The classifier's decisions as the caller's system reads them, where they are not the
        argmax of ``original``.
    sample_weight : array_like, optional
        Weights of the rows.
    cord : CORD, Lift or PreservingCalibrator, optional
        A fitted repair.
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); every position is
        a row then.
    level : float
        Level of the paired bootstrap intervals.
    resamples : int
        Bootstrap resamples.
    seed : int or numpy.random.Generator
        Seed of the resampling; a generator is asked for one.

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
    The order of the first 2 classes changes in 66.67% of the rows.
    In the repaired report: 33.33%; preserve=2 keeps it.
    Keeping the decisions costs 0.0020 nats a row, if the direct report is believed.
    Without labels, nothing can be said about accuracy or calibration.
    """
    if not 0.0 < level < 1.0:
        raise InputError("level", f"is {level}", "pass a number between 0 and 1, such as 0.95")
    if resamples < 1:
        raise InputError("resamples", f"is {resamples}", "pass at least 1")
    seed = as_seed(seed)
    if cord is not None:
        cord = _repair_of(cord, decision)
    original, direct, labels, decision, sample_weight = align_rows(
        original=original,
        direct=direct,
        labels=labels,
        decision=decision,
        sample_weight=sample_weight,
    )
    (original, direct), (labels, decision, sample_weight) = layouts.flatten_rows(
        axis, (original, direct), (labels, decision, sample_weight)
    )
    names: Sequence[Any] | None = class_names
    given: dict[str, Any] = {"decision": decision, "sample_weight": sample_weight}
    audited: Callable[..., AuditStream] = _audited
    collection = layouts.lazy_handler(original, direct)
    if collection is not None:
        audited = collection.audited
    else:
        if class_names is None:
            names = integer_column_names(original) or integer_column_names(direct)
        direct = in_column_order(direct, "direct", column_names(original), "original")
        original, direct = (
            as_matrix(original, "original"),
            as_matrix(direct, "direct"),
        )
        check_same_shape(original, "original", direct, "direct")
        names_or_numbers(names, direct.shape[1])
        labels = names_to_indices(labels, direct.shape, names)
    repair = CORD().fit(original, direct, **given) if cord is None else cord
    stream = audited(repair, original, direct, labels, **given)
    noticed: list[str] = []
    if isinstance(cord, CORD) and stream.rows == cord.construction_.n:
        # A repair fitted with weights is recognised by the same weights only.
        for weight in [None] if sample_weight is None else [None, sample_weight]:
            again = CORD(cord.preserve)
            again.fit(original, direct, decision=decision, sample_weight=weight)
            noticed = noticed or seen_before(cord, again)
    return stream.result(
        class_names=None if names is None else [str(name) for name in names],
        fitted_here=cord is None,
        level=level,
        resamples=resamples,
        seed=seed,
        noticed=noticed,
    )


def _repair_of(model: Any, decision: Any) -> CORD | Lift:
    """Return a fitted repair, or that of a `PreservingCalibrator`; refuse missing decisions."""
    cord: CORD | Lift = getattr(model, "repair_", model)
    check_fitted(cord)
    if decision is None and cord.construction_.decision_given:
        raise InputError(
            "decision",
            "is missing: cord was fitted with decisions of its own (a Preserved keeps the argmax "
            "of its scores)",
            "pass decision=, e.g. scores.argmax(axis=1)",
        )
    return cord


def _audited(
    cord: CORD | Lift, original: Any, direct: Any, labels: Any, **given: Any
) -> AuditStream:
    return AuditStream(cord).update(original, direct, labels, **given)


def seen_before(cord: CORD, again: CORD) -> list[str]:
    """Say if a given repair was fitted on these very rows, as ``again`` was.

    A construction's means are exact sums, the same for any order of the rows: two
    constructions that agree in every figure saw the same rows.
    """
    if again.construction_ != cord.construction_:
        return []
    return [
        "These are the rows that cord was fitted on: the numbers describe the fit, not new data. "
        "Pass evaluation rows that no model has seen."
    ]
