"""What the pictures and the row table of a report show of one calibrator, ready as numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal.metrics import Reliability, reliability
from cordcal.preserved import Reports

Matrix = npt.NDArray[Any]
Classes = npt.NDArray[np.intp]

# What a page can show; the counts of everything are in the decision changes.
MOST_ROWS = 100
MOST_CLASSES = 40
HISTOGRAM_BINS = 20


@dataclass(frozen=True)
class ChangedRow:
    """One row whose direct report decides otherwise.

    ``kind`` is C⁺, C⁻ or C⁰, None without labels.  ``kept_mass`` and ``new_mass`` are the
    direct report's masses on the original and on its own decision.
    """

    row: int
    label: int | None
    original: int
    direct: int
    kind: str | None
    original_confidence: float
    kept_mass: float
    new_mass: float
    repaired_mass: float


@dataclass(frozen=True)
class ClassChanges:
    """How one class fares: rows decided for it, rows that leave it and rows that join it."""

    index: int
    decided: int
    left: int
    joined: int


@dataclass(frozen=True, eq=False)
class Pictures:
    """Everything a report draws of one calibrator.

    Attributes
    ----------
    direct, repaired : Reliability or None
        The bins of the reliability diagram; None without labels.
    histogram : dict
        Edges, and the counts of confidences: original, direct and repaired.
    classes : tuple of ClassChanges
        The classes with most changes, most first.
    rows : tuple of ChangedRow
        The changed rows, the most decided change first.
    """

    direct: Reliability | None
    repaired: Reliability | None
    histogram: dict[str, list[float]]
    classes: tuple[ClassChanges, ...]
    rows: tuple[ChangedRow, ...]

    @classmethod
    def of(
        cls,
        original: Matrix,
        reports: Reports,
        labels: Classes | None = None,
        row_numbers: Classes | None = None,
    ) -> Pictures:
        """Gather the pictures' numbers; ``row_numbers`` are the rows' places in the file."""
        direct, repaired = reports.direct, reports.repaired
        return cls(
            direct=None if labels is None else reliability(direct, labels),
            repaired=None if labels is None else reliability(repaired, labels),
            histogram=_histogram(original=original, direct=direct, repaired=repaired),
            classes=_class_changes(reports.decision, direct),
            rows=_changed_rows(original, reports, labels, row_numbers),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values."""
        diagrams = {"direct": self.direct, "repaired": self.repaired}
        return {
            "reliability": None
            if self.direct is None
            else {name: bins.to_dict() for name, bins in diagrams.items() if bins is not None},
            "histogram": self.histogram,
            "classes": [asdict(each) for each in self.classes],
            "rows": [asdict(each) for each in self.rows],
        }


def _histogram(**reports: Matrix) -> dict[str, list[float]]:
    edges = np.linspace(0.0, 1.0, HISTOGRAM_BINS + 1)
    counts = {
        # Rounding may lift a confidence a hair above one; it belongs to the last bin.
        name: np.histogram(np.minimum(report.max(axis=1), 1.0), edges)[0].tolist()
        for name, report in reports.items()
    }
    return {"edges": edges.tolist(), **counts}


def _class_changes(decision: Classes, direct: Matrix) -> tuple[ClassChanges, ...]:
    classes = direct.shape[1]
    after = direct.argmax(axis=1)
    moved = after != decision
    decided = np.bincount(decision, minlength=classes)
    left = np.bincount(decision[moved], minlength=classes)
    joined = np.bincount(after[moved], minlength=classes)
    busiest = np.argsort(-(left + joined), kind="stable")[:MOST_CLASSES]
    return tuple(
        ClassChanges(int(index), int(decided[index]), int(left[index]), int(joined[index]))
        for index in busiest
        if left[index] + joined[index] > 0
    )


def _changed_rows(
    original: Matrix,
    reports: Reports,
    labels: Classes | None,
    row_numbers: Classes | None,
) -> tuple[ChangedRow, ...]:
    direct, decision = reports.direct, reports.decision
    after = direct.argmax(axis=1)
    moved = np.flatnonzero(after != decision)
    margin = direct[moved, after[moved]] - direct[moved, decision[moved]]
    chosen = moved[np.argsort(-margin, kind="stable")[:MOST_ROWS]]
    return tuple(
        ChangedRow(
            row=int(row if row_numbers is None else row_numbers[row]),
            label=None if labels is None else int(labels[row]),
            original=int(decision[row]),
            direct=int(after[row]),
            kind=None if labels is None else _kind(labels[row], decision[row], after[row]),
            original_confidence=float(original[row, decision[row]]),
            kept_mass=float(direct[row, decision[row]]),
            new_mass=float(direct[row, after[row]]),
            repaired_mass=float(reports.repaired[row, decision[row]]),
        )
        for row in chosen
    )


def _kind(label: int, before: int, after: int) -> str:
    if after == label:
        return "C+"
    return "C-" if before == label else "C0"
