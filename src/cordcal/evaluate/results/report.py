"""The record of a comparison or an audit that every renderer reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cordcal._numeric.types import Record
from cordcal._validation.caveats import Caveat
from cordcal.evaluate.results.audit import CertifiedErrorRate
from cordcal.evaluate.results.calibrators import Entry
from cordcal.evaluate.results.recommendation import Recommendation
from cordcal.evaluate.results.values import ORIGINAL, Measures, Output
from cordcal.metrics import METRICS, PredictionChanges


@dataclass(frozen=True)
class Best(Record):
    """The best output by one metric."""

    key: str
    output: str
    value: float


@dataclass(frozen=True)
class SuggestedCommand(Record):
    """What to run after a comparison.

    Attributes
    ----------
    shell : tuple of str
        Commands for a terminal: fit, then apply.
    python : tuple of str
        The same as lines of Python.
    """

    shell: tuple[str, ...]
    python: tuple[str, ...]


@dataclass(frozen=True)
class FileDigest:
    """An input file: its name, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class OutputRow:
    """One row of the table: one set of probabilities with its metrics.

    Attributes
    ----------
    key, name, output : str
        The calibrator's key and title, and the kind of output.
    measures : mapping of str to float
        Its metrics.
    intervals : mapping of str to (low, high)
        Their 95 % bootstrap intervals, of those that are resampled.
    changes : PredictionChanges or None
        Which predictions it changes; None if it keeps every prediction.
    fit_seconds : float or None
        Time to fit; None for repaired outputs, which share the calibrator's.
    best : frozenset of str
        The metrics by which it is the best of those that keep every prediction.
    recommended, default : bool
        Whether it is the recommended output, and the one that cordcal uses by default.
    """

    key: str
    name: str
    output: str
    measures: Measures
    intervals: Mapping[str, tuple[float, float]]
    changes: PredictionChanges | None
    fit_seconds: float | None
    best: frozenset[str]
    recommended: bool
    default: bool


@dataclass(frozen=True)
class TradeOffMark:
    """One output in a scatter plot: the share of predictions it changes, and a metric.

    ``kind`` is the output, or ``"rival"`` for a calibrator that needs no repair.
    """

    key: str
    name: str
    output: str
    kind: str
    changed: float
    value: float

    @property
    def where(self) -> tuple[float, float]:
        """Its place: percent of predictions changed, and the metric."""
        return self.changed, self.value


@dataclass(frozen=True)
class TradeOff:
    """What a scatter plot of a metric against changed predictions shows.

    Attributes
    ----------
    marks : tuple of TradeOffMark
        The outputs, the best last, so that it is drawn on top.
    pairs : tuple of (TradeOffMark, TradeOffMark)
        The direct output of a calibrator, and each repair of it.
    """

    marks: tuple[TradeOffMark, ...]
    pairs: tuple[tuple[TradeOffMark, TradeOffMark], ...]


@dataclass(frozen=True, eq=False)
class ReportData:
    """What a comparison or an audit shows.

    Attributes
    ----------
    n_calibration : int or None
        Rows to calibrate on; None for an audit.
    n_evaluation, n_classes : int
        Rows evaluated, and classes.
    class_names : tuple of str or None
        One name per column.
    settings : mapping of str to str
        The options that produced the result.
    fingerprint : str
        Identifies the rows.
    uncalibrated : mapping of str to float
        The metrics of the classifier's own probabilities; empty without labels.
    calibrators : tuple of Entry
        The calibrators, in the order of the arguments; an audit has one.
    intervals : mapping of output to mapping of str to (low, high)
        95 % intervals of the metrics of each output.
    best : mapping of str to Best
        The best output that keeps every prediction, by metric.
    listed : frozenset of str
        The calibrators of which a page lists every class.
    focus : str or None
        The calibrator to show first.
    headline : str
        The result in one sentence.
    reading : tuple of str
        Further sentences.
    advice : Recommendation or None
        The recommendation of a comparison.
    default : (key, kind) or None
        The output that cordcal uses by default, if it was compared.
    need : str
        Whether calibration is needed, in one sentence; empty if it was not tested.
    need_tests : tuple of str
        The tests behind it.
    caveats : tuple of Caveat
        Reasons to doubt the result.
    left_out : mapping of str to str
        Calibrators that were not run, and why.
    next_step : SuggestedCommand or None
        What to run next.
    files : tuple of FileDigest
        The files that were read.
    certified : tuple of CertifiedErrorRate
        Bounds of error rates that hold together, in an audit of labelled rows.
    certified_level : str
        Their common confidence.
    act : mapping of output to tuple of float
        The share of predictions that may act at a certified error of 1, 2, 5 and 10 %.
    """

    n_calibration: int | None
    n_evaluation: int
    n_classes: int
    class_names: tuple[str, ...] | None
    settings: Mapping[str, str]
    fingerprint: str
    uncalibrated: Measures
    calibrators: tuple[Entry, ...]
    headline: str
    reading: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    focus: str | None
    listed: frozenset[str]
    intervals: Mapping[Output, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    best: Mapping[str, Best] = field(default_factory=dict)
    advice: Recommendation | None = None
    default: Output | None = None
    need: str = ""
    need_tests: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    next_step: SuggestedCommand | None = None
    files: tuple[FileDigest, ...] = ()
    certified: tuple[CertifiedErrorRate, ...] = ()
    certified_level: str = ""
    act: Mapping[Output, tuple[float, ...]] = field(default_factory=dict)

    @property
    def has_labels(self) -> bool:
        """Whether the metrics are known."""
        return bool(self.uncalibrated)

    @property
    def recommended(self) -> Output | None:
        """The recommended output, if there is one."""
        return None if self.advice is None else self.advice.choice

    def entry(self, key: str) -> Entry:
        """Return a calibrator by its key."""
        return next(entry for entry in self.calibrators if entry.key == key)

    def rows(self) -> list[OutputRow]:
        """Return the table: the original, then every output of every calibrator."""
        key, kind = ORIGINAL
        rows = [self._row(key, "the classifier itself", kind, self.uncalibrated)]
        for entry in self.calibrators:
            rows += self.rows_of(entry)
        return rows

    def trade_off(self, measure: str) -> TradeOff:
        """Return what a scatter plot of a metric shows, the metric in its unit."""
        metric = METRICS[measure]
        marks = []
        for row in self.rows():
            changed = 0.0 if row.changes is None else 100.0 * row.changes.tpcr
            is_rival = row.output == "direct" and row.changes is None
            kind = "rival" if is_rival else row.output
            value = metric.scale * row.measures[measure]
            marks.append(TradeOffMark(row.key, row.name, row.output, kind, changed, value))
        by_output = {(mark.key, mark.output): mark for mark in marks}
        pairs = [
            (by_output[entry.key, "direct"], by_output[entry.key, output])
            for entry in self.calibrators
            for output in entry.preserving
            if entry.changes.tpcr > 0.0 and (entry.key, output) in by_output
        ]
        marks.sort(key=lambda mark: mark.value, reverse=metric.lower_is_better)
        return TradeOff(tuple(marks), tuple(pairs))

    def rows_of(self, entry: Entry) -> list[OutputRow]:
        """Return the rows of one calibrator, the direct output first."""
        return [
            self._row(
                entry.key,
                entry.name,
                output,
                entry.measures(output),
                None if output in entry.preserving else entry.changes,
                entry.fit_seconds if output == "direct" else None,
            )
            for output in entry.outputs
        ]

    def _row(
        self,
        key: str,
        name: str,
        output: str,
        measures: Measures,
        changes: PredictionChanges | None = None,
        fit_seconds: float | None = None,
    ) -> OutputRow:
        best = (
            metric for metric, best in self.best.items() if (best.key, best.output) == (key, output)
        )
        return OutputRow(
            key,
            name,
            output,
            measures,
            self.intervals.get((key, output), {}),
            changes,
            fit_seconds,
            frozenset(best),
            recommended=(key, output) == self.recommended,
            default=(key, output) == self.default,
        )
