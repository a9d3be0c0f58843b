"""The numbers behind the report's pictures and class tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes
from cordcal.evaluate.audit import ChangedRows
from cordcal.evaluate.audit_result import ChangedRow
from cordcal.evaluate.groups import GroupReport, Groups, by_group
from cordcal.evaluate.selective import Selection
from cordcal.metrics import Reliability
from cordcal.metrics.binned import BINS, ClassBins
from cordcal.metrics.changes import flows_between
from cordcal.metrics.summary import MeasuredReport
from cordcal.preserving import Outputs

# Up to so many classes every one has its own diagram in every comparison.
MOST_DIAGRAMS = 12
# What a page can show of many classes, where it shows a few of them.
MOST_CLASSES = 40
# Lines of numbers, one a class and report, that a page of 700 KB can hold; the other pictures of
# a report take the room of so many of them.
_MOST_LINES, _OTHER_PICTURES = 6500, 100
# Up to so many classes all moves make a picture; beyond, the largest make a list.
MOST_SQUARES = 30
MOST_MOVES = 40
# Bins of the diagrams: a class has few rows beyond the first, and more bins show chance.
_COARSE = 5


@dataclass(frozen=True, eq=False)
class ClassTable:
    """The classes of one calibrator's reports; vectors have one entry a class.

    Attributes
    ----------
    names : list of str
        Their names.
    rows : ndarray of int or None
        Rows of the class; None without labels.
    decided, left, joined : ndarray of int
        Rows decided for it by the classifier, and those that the direct report moves.
    bins : mapping of str to ClassBins
        Each report's probabilities of the classes; empty without labels.
    """

    names: Sequence[str]
    rows: Classes | None
    decided: Classes
    left: Classes
    joined: Classes
    bins: Mapping[str, ClassBins]

    @classmethod
    def of(cls, changed: ChangedRows, bins: Mapping[str, ClassBins]) -> ClassTable:
        """Count the classes of rows."""
        moved = changed.direct_decision != changed.decision

        def count(classes: Classes) -> Classes:
            return np.bincount(classes, minlength=len(changed.names))

        return cls(
            changed.names,
            None if changed.labels is None else count(changed.labels),
            count(changed.decision),
            count(changed.decision[moved]),
            count(changed.direct_decision[moved]),
            bins,
        )

    def to_list(self, *, whole: bool) -> list[dict[str, Any]]:
        """Return the classes as plain Python values: a dozen in their order, more by their changes.

        Where there are many and not the ``whole`` is wanted, a few that change, and no diagrams.
        """
        busy = self.left + self.joined
        few = len(self.names) <= MOST_DIAGRAMS
        # Of classes that change as much, those with most decisions first.
        order = np.arange(len(busy)) if few else np.lexsort((-self.decided, -busy))
        if not (whole or few):
            order = order[busy[order] > 0][:MOST_CLASSES]
        gaps = {report: bins.ece for report, bins in self.bins.items()}
        drawn = {report: _coarse(bins) for report, bins in self.bins.items()}
        found = []
        for index in order.tolist():
            each = {
                "name": self.names[index],
                "rows": None if self.rows is None else int(self.rows[index]),
                "decided": int(self.decided[index]),
                "left": int(self.left[index]),
                "joined": int(self.joined[index]),
                "ece": {report: float(gap[index]) for report, gap in gaps.items()},
                "bins": {},
            }
            if whole or few:
                each["bins"] = {
                    report: [
                        (round(p, 4), round(share, 4), rows) for p, share, rows in bins.of(index)
                    ]
                    for report, bins in drawn.items()
                }
            found.append(each)
        return found


def lists_that_fit(reports: Mapping[str, int], classes: int) -> list[str]:
    """Return for which calibrators a page has room to list every class, the first at least.

    Parameters
    ----------
    reports : mapping of str to int
        How many reports each calibrator has, those to be listed first at the front.
    classes : int
        The number of classes.

    Examples
    --------
    >>> lists_that_fit({"svs": 3, "ts": 1}, 100), lists_that_fit({"svs": 3, "ms": 3}, 1000)
    (['svs', 'ts'], ['svs'])
    """
    room = _MOST_LINES - _OTHER_PICTURES * sum(reports.values())
    found: list[str] = []
    for key, each in reports.items():
        room -= classes * each
        if found and room < 0:
            break
        found.append(key)
    return found


def _coarse(bins: ClassBins) -> ClassBins:
    """Join neighbouring bins."""

    def joined(sums: Any) -> Any:
        return sums.reshape(_COARSE, BINS // _COARSE, -1).sum(axis=1)

    return ClassBins(joined(bins.weight), joined(bins.mass), joined(bins.hits))


@dataclass(frozen=True)
class Move:
    """Rows whose decision goes from one class to another, and what that makes of them."""

    source: str
    target: str
    count: int
    gained: int | None
    lost: int | None


def moves_of(changed: ChangedRows) -> tuple[Move, ...]:
    """Return the moves between classes, the most frequent first; all if the classes are few."""
    names = changed.names
    flows = flows_between(changed.decision, changed.direct_decision, len(names))
    most = len(flows.count) if len(names) <= MOST_SQUARES else MOST_MOVES
    found = []
    for source, target, count in zip(
        flows.source[:most], flows.target[:most], flows.count[:most], strict=True
    ):
        gained = lost = None
        if changed.labels is not None:
            true = changed.labels[
                (changed.decision == source) & (changed.direct_decision == target)
            ]
            gained, lost = int(np.sum(true == target)), int(np.sum(true == source))
        found.append(Move(names[source], names[target], int(count), gained, lost))
    return tuple(found)


# What a page can show; the counts of everything are in the decision changes.
MOST_ROWS = 100
HISTOGRAM_BINS = 20


@dataclass(frozen=True, eq=False)
class Pictures:
    """Everything a report draws of one calibrator.

    Attributes
    ----------
    reliability : dict of str to Reliability
        The bins of the diagrams of every report, the original's first; empty without labels.
    selection : Selection or None
        Risk against coverage of every report; None without labels.
    histogram : dict
        Edges, and the counts of confidences: original, direct and repaired.
    classes : ClassTable
        How each class fares.
    moves : tuple of Move
        Where changed decisions go, the most frequent first.
    groups : tuple of GroupReport
        Groups of rows, the worst first; empty where none are given.
    rows : tuple of ChangedRow
        Changed rows: the most decided one of every move between classes, then the second ones.
    """

    reliability: dict[str, Reliability]
    selection: Selection | None
    histogram: dict[str, list[float]]
    classes: ClassTable
    moves: tuple[Move, ...]
    groups: tuple[GroupReport, ...]
    rows: tuple[ChangedRow, ...]

    @classmethod
    def of(
        cls,
        original: npt.NDArray[Any],
        reports: Outputs,
        names: list[str],
        measured: Mapping[str, MeasuredReport],
        *,
        labels: Classes | None = None,
        row_numbers: Classes | None = None,
        groups: Groups | None = None,
    ) -> Pictures:
        """Gather the pictures' numbers; ``row_numbers`` are the rows' places in the file."""
        all_reports = {"original": original, "direct": reports.direct, "repaired": reports.repaired}
        here = np.arange(len(reports.decision))
        return cls.of_rows(
            ChangedRows(
                reports.decision, reports.direct.argmax(axis=1), labels, weight=None, names=names
            ),
            {name: report[here, reports.decision] for name, report in all_reports.items()},
            {name: report.max(axis=1) for name, report in all_reports.items()},
            measured,
            row_numbers,
            groups,
        )

    @classmethod
    def of_rows(
        cls,
        changed: ChangedRows,
        masses: dict[str, npt.NDArray[Any]],
        confidences: dict[str, npt.NDArray[Any]],
        measured: Mapping[str, MeasuredReport],
        row_numbers: Classes | None = None,
        groups: Groups | None = None,
    ) -> Pictures:
        """Gather them from what each report puts on the decision, and on its own first class."""
        rows = {name: each.rows for name, each in measured.items()}
        bins = {name: each.classes for name, each in measured.items() if each.classes is not None}
        return cls(
            reliability={name: each.reliability() for name, each in measured.items()},
            selection=Selection.of(rows) if rows else None,
            histogram=_histogram(confidences),
            classes=ClassTable.of(changed, bins),
            moves=moves_of(changed),
            groups=() if groups is None else by_group(groups, rows, changed.decision),
            rows=changed.spread(masses, confidences["direct"], MOST_ROWS, row_numbers),
        )

    def to_dict(self, *, whole: bool = True) -> dict[str, Any]:
        """Return everything as plain Python values; of many classes all if ``whole``."""
        return {
            "reliability": {name: bins.to_dict() for name, bins in self.reliability.items()},
            "selection": None if self.selection is None else self.selection.to_dict(),
            "histogram": self.histogram,
            "classes": self.classes.to_list(whole=whole),
            "moves": [asdict(each) for each in self.moves],
            "groups": [each.to_dict() for each in self.groups],
            "rows": [each.to_dict() for each in self.rows],
        }


def _histogram(confidences: dict[str, npt.NDArray[Any]]) -> dict[str, list[float]]:
    edges = np.linspace(0.0, 1.0, HISTOGRAM_BINS + 1)
    counts = {
        # Rounding may lift a confidence a hair above one; it belongs to the last bin.
        name: np.histogram(np.minimum(each, 1.0), edges)[0].tolist()
        for name, each in confidences.items()
    }
    return {"edges": edges.tolist(), **counts}
