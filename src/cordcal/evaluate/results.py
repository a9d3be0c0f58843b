"""The records of audit, compare, check and monitor: frozen, filled here, read by every renderer.

The console, pages, Markdown, LaTeX and data frames are made from them and compute nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Record
from cordcal._validation.caveats import Caveat
from cordcal.metrics import METRICS, PredictionChanges, Reliability
from cordcal.metrics.binned import BINS, ClassBins
from cordcal.repair.results import ConfidenceGap

Measures = Mapping[str, float]
"""Values of metrics by their keys."""
OutputKind = Literal["original", "direct", "repaired", "lift"]
Output = tuple[str, str]
"""A calibrator's key and a kind of output: one set of probabilities."""
ORIGINAL: Output = ("uncalibrated", "original")
"""The classifier's own probabilities."""

Json = dict[str, object]
"""A record as plain Python values."""

# Smaller differences between metrics of the same rows are rounding.
_SAME = 1e-12
# With fewer rows, a metric is mostly noise.
MIN_ROWS_PER_GROUP = 30
# Up to this many classes, each has its own diagram for every calibrator.
MAX_DIAGRAMS = 12
# How many of many classes a page shows if it does not list all of them.
MAX_CLASSES = 40
# Up to this many classes, all moves are a heat map; beyond, the largest are a list.
MAX_HEAT_MAP = 30
# Bins per class diagram: few rows lie beyond the first bin, and more bins would show noise.
_CLASS_BINS = 5


@dataclass(frozen=True)
class Interval(Record):
    """A paired difference with its 95 % bootstrap interval."""

    estimate: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class Best(Record):
    """The best output by one metric."""

    key: str
    output: str
    value: float


@dataclass(frozen=True)
class RuleOffer(Record):
    """What a learnt prediction rule saves one calibrator on the evaluated rows.

    Attributes
    ----------
    nll : float
        The NLL of Lift under the rule, which keeps every prediction too.
    saving : Interval
        The NLL of Lift that keeps the argmax, minus that.
    share : float
        The share of rows in which the likeliest class is not the predicted one.
    """

    nll: float
    saving: Interval
    share: float


@dataclass(frozen=True)
class GroupGap(Record):
    """Confidence minus accuracy in one category of a column, without and with context.

    Attributes
    ----------
    column, value : str
        The column, or ``"group"``, and its category.
    n : int
        The number of evaluated rows.
    before, after : float
        The difference without and with context.
    chance : float
        How far from zero it would be on average if the confidence with context were right.
    """

    column: str
    value: str
    n: int
    before: float
    after: float
    chance: float


@dataclass(frozen=True)
class ContextOffer(Record):
    """What columns next to the scores bring the default on the evaluated rows.

    Attributes
    ----------
    columns : tuple of str
        The columns that have an effect; empty if none explains which predictions are right.
    loss : float
        The log loss of "the prediction is right" with context.
    saving : Interval
        That loss without context, minus that.
    ece, aurc : tuple of float
        The ECE, and the area under the risk-coverage curve, without and with context.
    gaps : tuple of GroupGap
        Confidence minus accuracy per category of each column, and per group.
    """

    columns: tuple[str, ...]
    loss: float
    saving: Interval
    ece: tuple[float, float]
    aurc: tuple[float, float]
    gaps: tuple[GroupGap, ...] = ()

    @property
    def mean_gaps(self) -> dict[str, tuple[float, float, float]]:
        """The mean distance of confidence and accuracy over the rows of each column.

        Without context, with it, and what would be chance if the confidence were right.
        """
        means = {}
        for column in dict.fromkeys(gap.column for gap in self.gaps):
            own = [gap for gap in self.gaps if gap.column == column]
            values = np.abs([(gap.before, gap.after, gap.chance) for gap in own])
            before, after, chance = np.average(values, axis=0, weights=[gap.n for gap in own])
            means[column] = float(before), float(after), float(chance)
        return means

    @property
    def is_clear(self) -> bool:
        """Whether the saving is more than chance."""
        return bool(self.columns) and self.saving.low > 0.0


@dataclass(frozen=True)
class KeptPredictions(Record):
    """How honest Lift's confidence is on the evaluated rows, and what keeping predictions costs.

    Attributes
    ----------
    gap : ConfidenceGap
        Confidence minus accuracy before and after, rows at the bound, and the log losses.
    likelihood : mapping of str to float
        NLL and ECE with ``prefer="likelihood"``.
    """

    gap: ConfidenceGap
    likelihood: Measures


@dataclass(frozen=True)
class ConstraintCost(Record):
    """What keeping the predictions costs one calibrator, in NLL on the evaluated rows.

    Attributes
    ----------
    kept : float
        The smallest NLL of any repair that keeps every prediction: CORD, Lift, or the best
        monotone one, fitted on these rows.
    free : float
        The same if predictions may change.
    cord, lift : float or None
        The NLL of the two repairs on the same rows; the excess over ``kept`` could be gained.
    """

    _computed = ("cost",)

    kept: float
    free: float
    cord: float | None = None
    lift: float | None = None

    @property
    def cost(self) -> float:
        """What the constraint itself costs."""
        return self.kept - self.free


@dataclass(frozen=True)
class GroupChanges(Record):
    """Changed predictions within one group of rows: a class, or a band of confidence.

    Attributes
    ----------
    group : str
        The predicted class, or the band of its confidence.
    changes : PredictionChanges
        What the direct probabilities change in these rows.
    """

    group: str
    changes: PredictionChanges

    def to_dict(self) -> Json:
        """Return the record as plain Python values."""
        return {"group": self.group, **self.changes.to_dict()}


@dataclass(frozen=True)
class MeasureComparison(Record):
    """One metric of original, direct and repaired probabilities.

    Attributes
    ----------
    measure : str
        Its name in `cordcal.metrics`.
    original, direct, repaired : float
        Its values.
    difference : float
        Repaired minus direct.
    low, high : float or None
        Paired bootstrap interval of the difference; None for classwise ECE, which is not
        resampled.
    """

    _computed = ("verdict",)

    measure: str
    original: float
    direct: float
    repaired: float
    difference: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``same`` or ``unclear``: repaired compared with direct."""
        ends = (self.difference, self.low or 0.0, self.high or 0.0)
        if max(map(abs, ends)) <= _SAME:
            return "same"
        if self.low is None or self.high is None or self.low <= 0.0 <= self.high:
            return "unclear"
        rises = self.low > 0.0
        return "worse" if rises == METRICS[self.measure].lower_is_better else "better"


@dataclass(frozen=True)
class ChangedRow(Record):
    """A row whose prediction the direct probabilities change.

    Attributes
    ----------
    row : int
        Its index.
    prediction, direct_prediction, label : str
        The original prediction, the direct one, and the true class (None without labels).
    original_mass, direct_mass, repaired_mass : float
        The probabilities of the original prediction.
    direct_confidence : float
        The direct probability of the direct prediction.
    """

    row: int
    prediction: str
    direct_prediction: str
    label: str | None
    original_mass: float
    direct_mass: float
    repaired_mass: float
    direct_confidence: float

    @property
    def kind(self) -> str | None:
        """``gained``, ``lost`` or ``neutral``, as in `PredictionChanges`; None without a label."""
        if self.label is None:
            return None
        if self.label == self.direct_prediction:
            return "gained"
        return "lost" if self.label == self.prediction else "neutral"


@dataclass(frozen=True)
class Move(Record):
    """Rows whose prediction changes from one class to another; how many become right or wrong."""

    source: str
    target: str
    count: int
    gained: int | None
    lost: int | None


@dataclass(frozen=True)
class GroupReport(Record):
    """The metrics of one group of evaluated rows, for every output of a calibrator.

    Attributes
    ----------
    name : str
        The group's name.
    n : int
        Number of rows.
    tpcr : float
        The share of predictions that the direct probabilities change.
    measures : mapping of str to mapping of str to float
        By output, accuracy and the leading metrics on these rows.
    """

    _computed = ("small",)

    name: str
    n: int
    tpcr: float
    measures: Mapping[str, Measures]

    @property
    def small(self) -> bool:
        """Whether the group has too few rows for reliable metrics."""
        return self.n < MIN_ROWS_PER_GROUP


@dataclass(frozen=True)
class Selective(Record):
    """The risk-coverage curve of one output, for a figure and a table.

    Attributes
    ----------
    coverage, risk : tuple of float
        The curve, thinned to what a figure shows.
    aurc, low, high : float
        The area under the full curve with its 95 % interval, from the rows' influence on it.
    at : tuple of (confidence, coverage, accuracy)
        Coverage and accuracy at or above chosen confidences; the accuracy is None if no row is.
    """

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    aurc: float
    low: float
    high: float
    at: tuple[tuple[float, float, float | None], ...]


@dataclass(frozen=True)
class Selection(Record):
    """The curves of all outputs of a calibrator.

    Attributes
    ----------
    outputs : mapping of str to Selective
        One per output.
    change : mapping of str to (estimate, low, high)
        How much each repair changes the area of the direct probabilities, paired by rows.
    """

    outputs: Mapping[str, Selective]
    change: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Histogram(Record):
    """How many rows have which confidence in their top class.

    Attributes
    ----------
    edges : tuple of float
        The edges of the bins.
    counts : mapping of str to tuple of int
        Rows per bin, by output.
    """

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ClassRow(Record):
    """One class of a calibrator.

    Attributes
    ----------
    name : str
        The class's name.
    rows : int or None
        Its rows; None without labels.
    decided, left, joined : int
        Rows that the classifier predicts as the class, and those that the direct probabilities
        move away from it and to it.
    ece : mapping of str to float
        The class's calibration error, by output.
    bins : mapping of str to list of (probability, share, rows)
        Its diagram, by output; empty if it is not drawn.
    """

    name: str
    rows: int | None
    decided: int
    left: int
    joined: int
    ece: Measures
    bins: Mapping[str, Sequence[tuple[float, float, float]]]


@dataclass(frozen=True, eq=False)
class ClassTable:
    """The classes of one calibrator's outputs; vectors have one entry per class.

    Attributes
    ----------
    names : sequence of str
        Class names.
    rows : ndarray of int or None
        Rows of the class; None without labels.
    decided, left, joined : ndarray of int
        Rows that the classifier predicts as the class, and those that the direct probabilities
        move away from it and to it.
    bins : mapping of str to ClassBins
        Binned class probabilities of each output; empty without labels.
    """

    names: Sequence[str]
    rows: Classes | None
    decided: Classes
    left: Classes
    joined: Classes
    bins: Mapping[str, ClassBins]

    def to_list(self, *, every_class: bool) -> list[ClassRow]:
        """Return the classes one by one: a dozen in order, more sorted by changes.

        Of many classes, without ``every_class``, only some that change, and no diagrams.
        """
        changes = self.left + self.joined
        few = len(self.names) <= MAX_DIAGRAMS
        # Ties: classes with the most predictions first.
        order = np.arange(len(changes)) if few else np.lexsort((-self.decided, -changes))
        if not (every_class or few):
            order = order[changes[order] > 0][:MAX_CLASSES]
        errors = {output: bins.ece for output, bins in self.bins.items()}
        drawn = {output: _merge_bins(bins) for output, bins in self.bins.items()}
        return [
            ClassRow(
                name=self.names[index],
                rows=None if self.rows is None else int(self.rows[index]),
                decided=int(self.decided[index]),
                left=int(self.left[index]),
                joined=int(self.joined[index]),
                ece={output: float(error[index]) for output, error in errors.items()},
                bins={
                    output: [
                        (round(p, 4), round(share, 4), rows) for p, share, rows in bins.of(index)
                    ]
                    for output, bins in drawn.items()
                    if every_class or few
                },
            )
            for index in order.tolist()
        ]


def _merge_bins(bins: ClassBins) -> ClassBins:
    """Merge neighbouring bins."""

    def merge(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(sums.reshape(_CLASS_BINS, BINS // _CLASS_BINS, -1).sum(axis=1))

    return ClassBins(merge(bins.weight), merge(bins.mass), merge(bins.hits))


@dataclass(frozen=True, eq=False)
class Pictures(Record):
    """The data of all figures of one calibrator.

    Attributes
    ----------
    reliability : mapping of str to Reliability
        The reliability diagram of every output, the original first, in bins that hold equally
        many rows; empty without labels.
    ece : mapping of str to float
        The ECE of every output, in bins of equal width.
    selection : Selection or None
        Risk against coverage of every output; None without labels.
    histogram : Histogram
        The confidences of every output.
    classes : ClassTable
        Counts and errors of each class.
    moves : tuple of Move
        Changes from class to class, the most frequent first.
    groups : tuple of GroupReport
        Groups of rows, the worst first; empty without groups.
    rows : tuple of ChangedRow
        Changed rows: the clearest one of every move between classes, then the second ones.
    """

    reliability: Mapping[str, Reliability]
    ece: Mapping[str, float]
    selection: Selection | None
    histogram: Histogram
    classes: ClassTable
    moves: tuple[Move, ...]
    groups: tuple[GroupReport, ...]
    rows: tuple[ChangedRow, ...]

    def to_dict(self, *, every_class: bool = True) -> Json:
        """Return plain Python values; every class if ``every_class``, else a selection."""
        rows = self.classes.to_list(every_class=every_class)
        return {**super().to_dict(), "classes": [row.to_dict() for row in rows]}


@dataclass(frozen=True, eq=False)
class Entry:
    """One calibrator of a comparison, or the one that is audited.

    Attributes
    ----------
    key, name : str
        Its short key and its title.
    keeps_predictions : bool
        Whether the calibrator keeps every prediction without a repair; a prediction that it
        ties with a class of a lower score is not kept.
    direct, repaired : mapping of str to float
        The metrics of the direct probabilities and of those repaired by CORD; empty without
        labels.
    lift : mapping of str to float, or None
        The metrics of the probabilities repaired by Lift; None if the calibrator needs no
        repair or rows could not be held out.
    changes : PredictionChanges
        Which predictions the direct probabilities change.
    gain : mapping of str to Interval
        Direct minus repaired, paired: above zero the repair is better, except for accuracy.
    lift_gain : mapping of str to Interval
        The same for Lift; empty without one.
    pictures : Pictures
        The data of the report's figures, from the first split.
    parameters : float
        How many parameters it has; infinite if unknown.
    fit_seconds, apply_seconds : float or None
        Time to fit calibrator and repair, and to apply both to the evaluation rows; None if it
        was fitted elsewhere.
    notes : tuple of str
        Warnings during fitting.
    constraint_cost : ConstraintCost or None
        What the constraint itself costs; None if the calibrator needs no repair.
    at_bound : float
        The share of rows whose prediction Lift keeps against the evidence.
    kept : KeptPredictions or None
        Lift's confidence against the accuracy, and what that costs; None without Lift.
    shares : mapping of str to float
        The weights of a blend's members; empty for other calibrators.
    rule : RuleOffer or None
        What a learnt rule saves the blend; None for others, or if its weights are equal.
    context : ContextOffer or None
        What context brings the blend with Lift; None for others, or without context.
    """

    key: str
    name: str
    keeps_predictions: bool
    direct: Measures
    repaired: Measures
    lift: Measures | None
    changes: PredictionChanges
    gain: Mapping[str, Interval]
    lift_gain: Mapping[str, Interval]
    pictures: Pictures = field(repr=False)
    parameters: float = math.inf
    fit_seconds: float | None = None
    apply_seconds: float | None = None
    notes: tuple[str, ...] = ()
    constraint_cost: ConstraintCost | None = None
    at_bound: float = 0.0
    kept: KeptPredictions | None = None
    shares: Measures = field(default_factory=dict)
    rule: RuleOffer | None = None
    context: ContextOffer | None = None

    @property
    def preserving(self) -> tuple[str, ...]:
        """The outputs that keep every prediction."""
        if self.keeps_predictions:
            return ("direct",)
        return ("repaired",) if self.lift is None else ("repaired", "lift")

    @property
    def outputs(self) -> tuple[str, ...]:
        """All outputs: direct, then the repaired ones if there are any."""
        return self.preserving if self.keeps_predictions else ("direct", *self.preserving)

    def measures(self, output: str) -> Measures:
        """Return the metrics of one output."""
        if output == "lift":
            return self.lift or {}
        return self.repaired if output == "repaired" else self.direct

    def gains(self, output: str) -> Mapping[str, Interval]:
        """Return direct minus one of the repaired outputs; empty for the direct one."""
        if output == "direct":
            return {}
        return self.lift_gain if output == "lift" else self.gain

    def to_dict(self, *, every_class: bool = True) -> Json:
        """Return plain Python values; every class if ``every_class``, else a selection."""
        return {
            "key": self.key,
            "name": self.name,
            "keeps_predictions": self.keeps_predictions,
            "parameters": self.parameters if math.isfinite(self.parameters) else None,
            "direct": dict(self.direct),
            "repaired": dict(self.repaired),
            "lift": None if self.lift is None else dict(self.lift),
            "changes": self.changes.to_dict(),
            "gain": {name: interval.to_dict() for name, interval in self.gain.items()},
            "lift_gain": {name: interval.to_dict() for name, interval in self.lift_gain.items()},
            "seconds": {"fit": self.fit_seconds, "apply": self.apply_seconds},
            "notes": list(self.notes),
            "constraint_cost": None
            if self.constraint_cost is None
            else self.constraint_cost.to_dict(),
            "rule": None if self.rule is None else self.rule.to_dict(),
            "context": None if self.context is None else self.context.to_dict(),
            "at_bound": self.at_bound,
            "kept": None if self.kept is None else self.kept.to_dict(),
            "shares": dict(self.shares),
            **self.pictures.to_dict(every_class=every_class),
        }


@dataclass(frozen=True)
class Advice:
    """The recommendation, as it is shown.

    Attributes
    ----------
    output : (key, kind) or None
        The recommended output; None if the data allow no recommendation.
    headline, reason : str
        The recommendation, and the reason for it.
    figures : str
        What it brings on the evaluation rows, in one line.
    simpler, if_changing, with_rule, with_context : str
        The simpler options, and what changing predictions or a learnt rule would bring, each as
        a short text behind its label and a colon; empty if there is nothing to say.
    confidence : str
        Confidence minus accuracy before and after, likewise.
    """

    output: Output | None
    headline: str
    reason: str
    figures: str = ""
    simpler: str = ""
    if_changing: str = ""
    with_rule: str = ""
    with_context: str = ""
    confidence: str = ""


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
class CertifiedErrorRate(Record):
    """An upper bound for the error rate of the predictions above a confidence.

    Attributes
    ----------
    threshold : float
        The lowest confidence that counts.
    n, errors : int
        How many rows have at least this confidence, and how many of them are wrong.
    bound : float
        The largest error rate that is compatible with that.
    """

    threshold: float
    n: int
    errors: int
    bound: float

    @property
    def threshold_text(self) -> str:
        """The threshold in percent."""
        return f"{100.0 * self.threshold:.10g} %"

    @property
    def bound_text(self) -> str:
        """The bound in percent, rounded up."""
        return f"{math.ceil(1e4 * self.bound - 1e-9) / 100.0:.4g} %"

    def __str__(self) -> str:
        return (
            f"of the predictions reported at {self.threshold_text} or more, at most "
            f"{self.bound_text} are wrong ({self.errors:,} of {self.n:,} here)"
        )


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
    advice : Advice or None
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
    advice: Advice | None = None
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
        return None if self.advice is None else self.advice.output

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


# What a monitor knows.

VerdictName = Literal["holds", "alarm", "cannot tell"]


@dataclass(frozen=True)
class Alarm(Record):
    """When a test's evidence crossed its limit.

    Attributes
    ----------
    test : {"calibration", "inputs", "act"}
        Which promise is broken: that confidence is honest, that inputs are as in the baseline, or
        that few of the acted predictions are wrong.
    batch : str
        The batch in which it happened.
    rows : int
        How many rows the test had seen then.
    evidence : float
        The evidence, as a factor: 40 means that the bets have multiplied their capital by 40.
    """

    test: Literal["calibration", "inputs", "act"]
    batch: str
    rows: int
    evidence: float


@dataclass(frozen=True)
class Source(Record):
    """A part of the rows from which evidence comes.

    Attributes
    ----------
    name : str
        All predictions, a band of confidence, a predicted class or a group.
    share : float
        Its share of the evidence.
    direction : {"too high", "too low"}
        Whether the confidence is too high or too low there.
    since : int
        The labelled row from which the evidence grew, in steps of 250.
    """

    name: str
    share: float
    direction: Literal["too high", "too low"]
    since: int


@dataclass(frozen=True)
class Period:
    """One batch: what was added, and where the tests stood afterwards.

    Attributes
    ----------
    name : str
        The batch's name.
    rows, labelled, repeated, unknown : int
        New rows; rows whose label was counted; rows left out because they, or a row of their
        cluster, were counted before; and labels of rows that were never added.
    confidence : float
        Mean confidence of the new rows: the accuracy they imply.
    changed : int or None
        Predictions that the direct probabilities would have changed, if they were passed.
    band_rows, band_confidence, band_correct : tuple
        By band of confidence: labelled rows, their summed confidence and how many were right.
    predicted : tuple of int
        New rows by predicted class.
    calibration_evidence, input_evidence, act_evidence : float
        The evidence of each test after the batch, as natural logarithms; of the last one None
        without a certificate.
    gap : tuple of float
        The interval for mean confidence minus accuracy after the batch.
    """

    name: str
    rows: int
    labelled: int
    repeated: int
    unknown: int
    confidence: float
    changed: int | None
    band_rows: tuple[int, ...]
    band_confidence: tuple[float, ...]
    band_correct: tuple[int, ...]
    predicted: tuple[int, ...]
    calibration_evidence: float
    input_evidence: float
    act_evidence: float | None
    gap: tuple[float, float]


@dataclass(frozen=True)
class LabelledBatch(Record):
    """Accuracy and confidence of a batch with labels, side by side.

    Attributes
    ----------
    name : str
        The batch's name.
    rows : int
        Rows whose label was counted.
    accuracy, confidence : float
        The share of them that are right, and their mean confidence.
    """

    name: str
    rows: int
    accuracy: float
    confidence: float

    @classmethod
    def of(cls, period: Period) -> LabelledBatch:
        """Summarise a batch that has labels."""
        sums = (sum(period.band_correct), sum(period.band_confidence))
        return cls(period.name, period.labelled, *(total / period.labelled for total in sums))


@dataclass(frozen=True)
class MonitorStatus(Record):
    """What a monitor knows now.

    Attributes
    ----------
    verdict : {"holds", "alarm", "cannot tell"}
        ``"alarm"`` from the first alarm until it is acknowledged; ``"cannot tell"`` before the
        first row, and before the first after an acknowledgement.
    rows, labelled, waiting, dropped : int
        Rows seen and rows whose label was counted since the tests began; rows that wait for a
        label; and rows that no longer do, because newer ones took their place.
    calibration_evidence, input_evidence : float
        The evidence of both tests as a factor.
    limit : float
        The evidence at which a test raises an alarm: the number of tests over α.
    gap : float or None
        Mean confidence minus accuracy of the labelled rows.
    gap_interval : tuple of float
        An interval for it that holds at every look together, with probability 1 − α.
    confidence : float or None
        Mean confidence of the latest batch with new rows.
    latest : LabelledBatch or None
        The latest batch with labels.
    changed : int or None
        Predictions of that batch that the direct probabilities would have changed.
    sources : tuple of Source
        Where evidence against calibration comes from, if there is an alarm.
    alarms : tuple of Alarm
        Alarms that were not acknowledged.
    act_evidence : float or None
        The evidence that more acted predictions are wrong than promised; None without a
        certificate.
    acted : int
        Acted rows whose label was counted.
    """

    verdict: VerdictName
    rows: int
    labelled: int
    waiting: int
    dropped: int
    calibration_evidence: float
    input_evidence: float
    limit: float
    gap: float | None
    gap_interval: tuple[float, float]
    confidence: float | None
    latest: LabelledBatch | None
    changed: int | None
    sources: tuple[Source, ...]
    alarms: tuple[Alarm, ...]
    act_evidence: float | None = None
    acted: int = 0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _act_line(self, alarm: Alarm | None) -> str:
        if alarm is not None:
            return (
                f"ALARM: more acted predictions are wrong than certified, since {alarm.batch} "
                f"(evidence {factor(alarm.evidence)}, limit {self.limit:g}): ask instead of acting."
            )
        if not self.acted:
            return "No labels of acted rows yet: have some labelled (apply --add audit=2%)."
        return (
            f"The certificate holds: evidence against it {self.act_evidence:.2g} "
            f"({self.acted:,} labelled acted rows)."
        )

    def lines(self) -> list[str]:
        """Return the status in sentences, the verdict first."""
        if self.verdict == "cannot tell":
            return ["Cannot tell: no rows were added since the tests started."]
        lines = []
        raised = {alarm.test: alarm for alarm in self.alarms}
        if "calibration" in raised:
            alarm = raised["calibration"]
            lines.append(
                f"ALARM: the confidence no longer holds, since {alarm.batch} (evidence "
                f"{factor(alarm.evidence)} then, {factor(self.calibration_evidence)} now, "
                f"limit {self.limit:g})."
            )
            lines += [
                f"  {100 * source.share:.0f} % of this evidence comes from {source.name}: "
                f"confidence {source.direction} since about labelled row {source.since:,}."
                for source in self.sources
            ]
        elif self.labelled:
            lines.append(
                f"The confidence holds: evidence against it {self.calibration_evidence:.2g}, "
                f"an alarm needs {self.limit:g}."
            )
        else:
            lines.append("No labels yet, so nothing is known about the confidence.")
        if "inputs" in raised:
            alarm = raised["inputs"]
            lines.append(
                f"ALARM: the inputs have changed, since {alarm.batch} (evidence "
                f"{factor(alarm.evidence)} then, {factor(self.input_evidence)} now, limit "
                f"{self.limit:g}). That does not mean that the confidence is wrong: get labels "
                f"for some of the new rows."
            )
        else:
            lines.append(
                f"The inputs look as before: evidence of a change {self.input_evidence:.2g}."
            )
        if self.act_evidence is not None:
            lines.append(self._act_line(raised.get("act")))
        if self.gap is not None:
            low, high = map(points, self.gap_interval)
            lines.append(
                f"Confidence minus accuracy: {points(self.gap)} points, between {low} "
                f"and {high} however often you look ({self.labelled:,} labelled rows)."
            )
        if self.latest is not None:
            lines.append(
                f"The latest labelled batch, {self.latest.name}: accuracy "
                f"{100 * self.latest.accuracy:.1f} %, mean confidence "
                f"{100 * self.latest.confidence:.1f} %."
            )
        elif self.confidence is not None:
            lines.append(
                f"If the confidence holds, the accuracy of the latest batch is "
                f"{100 * self.confidence:.1f} %; labels would show it."
            )
        if self.changed is not None:
            lines.append(
                f"Without the repair {self.changed:,} of its predictions would have changed."
            )
        if self.waiting:
            lines.append(f"{self.waiting:,} rows wait for their labels.")
        if self.dropped:
            lines.append(
                f"{self.dropped:,} older rows no longer wait: newer ones took their place."
            )
        return lines


# Bounds between bands of confidence: finer towards one, where most classifiers report.
BAND_EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def factor(evidence: float) -> str:
    """Return evidence as a factor, large ones as a power of ten.

    Examples
    --------
    >>> factor(42.7), factor(3.1e17)
    ('42.7', '10^17.5')
    """
    return f"{evidence:.3g}" if evidence < 1e6 else f"10^{math.log10(evidence):.3g}"


def points(share: float) -> str:
    """Return a difference of shares in points with its sign; zero is never negative.

    Examples
    --------
    >>> points(0.0123), points(-0.0004)
    ('+1.2', '+0.0')
    """
    return f"{round(100.0 * share, 1) + 0.0:+.1f}"


def band_names() -> list[str]:
    """Return the bands of confidence in percent.

    Examples
    --------
    >>> band_names()[0], band_names()[-1]
    ('below 50 %', '99 % or more')
    """
    edges = [f"{100 * edge:.0f} %" for edge in BAND_EDGES]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
    return [f"below {edges[0]}", *between, f"{edges[-1]} or more"]


@dataclass(frozen=True)
class MonitorHistory:
    """Everything that the page of a monitor shows.

    Attributes
    ----------
    status : MonitorStatus
        What is known now.
    periods : tuple of Period
        The batches in their order.
    class_names : tuple of str
        Names of the classes.
    baseline_shares : tuple of float
        The share of each predicted class in the baseline.
    baseline_rows : int
        Rows of the baseline.
    alpha, tolerance : float
        Settings of the monitor.
    """

    status: MonitorStatus
    periods: tuple[Period, ...]
    class_names: tuple[str, ...]
    baseline_shares: tuple[float, ...]
    baseline_rows: int
    alpha: float
    tolerance: float
