"""What the pictures and tables of a report show of one calibrator, ready as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Classes
from cordcal.evaluate._audit_result import ChangedRow
from cordcal.evaluate._audit_rows import ChangedRows
from cordcal.evaluate._class_table import ClassTable, Move, moves_of
from cordcal.evaluate.groups import GroupReport, Groups, by_group
from cordcal.evaluate.selective import Selection
from cordcal.metrics import Reliability
from cordcal.metrics._all import MeasuredReport
from cordcal.preserved import Reports

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
        reports: Reports,
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
            groups=() if groups is None else by_group(groups, rows, changed.kept),
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
