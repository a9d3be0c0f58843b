"""What the pictures and tables of a report show of one calibrator, ready as numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Classes
from cordcal.evaluate._audit_result import ChangedRow
from cordcal.evaluate._audit_rows import ChangedRows
from cordcal.metrics import Reliability
from cordcal.preserved import Reports

# What a page can show; the counts of everything are in the decision changes.
MOST_ROWS = 100
MOST_CLASSES = 40
HISTOGRAM_BINS = 20


@dataclass(frozen=True)
class ClassChanges:
    """How one class fares: rows decided for it, rows that leave it and rows that join it."""

    name: str
    decided: int
    left: int
    joined: int


@dataclass(frozen=True, eq=False)
class Pictures:
    """Everything a report draws of one calibrator.

    Attributes
    ----------
    reliability : dict of str to Reliability
        The bins of the diagrams of every report, the original's first; empty without labels.
    histogram : dict
        Edges, and the counts of confidences: original, direct and repaired.
    classes : tuple of ClassChanges
        The classes with most changes, most first.
    rows : tuple of ChangedRow
        The changed rows, the most decided change first.
    """

    reliability: dict[str, Reliability]
    histogram: dict[str, list[float]]
    classes: tuple[ClassChanges, ...]
    rows: tuple[ChangedRow, ...]

    @classmethod
    def of(
        cls,
        original: npt.NDArray[Any],
        reports: Reports,
        names: list[str],
        reliability: dict[str, Reliability],
        *,
        labels: Classes | None = None,
        row_numbers: Classes | None = None,
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
            reliability,
            row_numbers,
        )

    @classmethod
    def of_rows(
        cls,
        changed: ChangedRows,
        masses: dict[str, npt.NDArray[Any]],
        confidences: dict[str, npt.NDArray[Any]],
        reliability: dict[str, Reliability],
        row_numbers: Classes | None = None,
    ) -> Pictures:
        """Gather them from what each report puts on the decision, and on its own first class."""
        return cls(
            reliability=reliability,
            histogram=_histogram(confidences),
            classes=_class_changes(changed),
            rows=changed.largest(masses, confidences["direct"], MOST_ROWS, row_numbers),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values."""
        return {
            "reliability": {name: bins.to_dict() for name, bins in self.reliability.items()},
            "histogram": self.histogram,
            "classes": [asdict(each) for each in self.classes],
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


def _class_changes(changed: ChangedRows) -> tuple[ClassChanges, ...]:
    before, after, names = changed.kept, changed.moved_to, changed.names
    moved = after != before
    decided, left, joined = (
        np.bincount(classes, minlength=len(names))
        for classes in (before, before[moved], after[moved])
    )
    busiest = np.argsort(-(left + joined), kind="stable")[:MOST_CLASSES]
    return tuple(
        ClassChanges(names[index], int(decided[index]), int(left[index]), int(joined[index]))
        for index in busiest
        if left[index] + joined[index] > 0
    )
