"""The records that figures and lists of rows, classes and groups show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Record
from cordcal.evaluate.results.values import Json, Measures
from cordcal.metrics import Reliability
from cordcal.metrics.binned import BINS, ClassBins

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
