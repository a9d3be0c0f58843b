"""The data of the report's figures and class tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes
from cordcal.evaluate.audit import ChangedRows
from cordcal.evaluate.audit_result import Audit, ChangedRow
from cordcal.evaluate.groups import GroupReport, Groups, by_group
from cordcal.evaluate.selective import Selection
from cordcal.metrics import Reliability
from cordcal.metrics.binned import BINS, ClassBins
from cordcal.metrics.changes import flows_between
from cordcal.metrics.summary import MeasuredProbabilities
from cordcal.preserving import Outputs
from cordcal.report.charts import MAX_DIAGRAMS, MAX_HEAT_MAP

# How many of many classes a page shows if it does not list all of them.
MAX_CLASSES = 40
# Lines of numbers, one per class and output, that a page of 700 KB can hold; the other figures of
# an output take as much space as this many lines.
_MAX_LINES, _OTHER_FIGURES = 6500, 100
# Of more than MAX_HEAT_MAP classes, this many moves are listed.
MAX_MOVES = 40
# Bins per class diagram: few rows lie beyond the first bin, and more bins would show noise.
_CLASS_BINS = 5


@dataclass(frozen=True, eq=False)
class ClassTable:
    """The classes of one calibrator's outputs; vectors have one entry per class.

    Attributes
    ----------
    names : list of str
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

    @classmethod
    def of(cls, changed: ChangedRows, bins: Mapping[str, ClassBins]) -> ClassTable:
        """Count the rows of each class."""
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
        """Return the classes as plain Python values: a dozen in order, more sorted by changes.

        Of many classes, without ``whole``, only some that change, and no diagrams.
        """
        changes = self.left + self.joined
        few = len(self.names) <= MAX_DIAGRAMS
        # Ties: classes with the most predictions first.
        order = np.arange(len(changes)) if few else np.lexsort((-self.decided, -changes))
        if not (whole or few):
            order = order[changes[order] > 0][:MAX_CLASSES]
        errors = {output: bins.ece for output, bins in self.bins.items()}
        drawn = {output: _merge_bins(bins) for output, bins in self.bins.items()}
        records = []
        for index in order.tolist():
            record = {
                "name": self.names[index],
                "rows": None if self.rows is None else int(self.rows[index]),
                "decided": int(self.decided[index]),
                "left": int(self.left[index]),
                "joined": int(self.joined[index]),
                "ece": {output: float(error[index]) for output, error in errors.items()},
                "bins": {},
            }
            if whole or few:
                record["bins"] = {
                    output: [
                        (round(p, 4), round(share, 4), rows) for p, share, rows in bins.of(index)
                    ]
                    for output, bins in drawn.items()
                }
            records.append(record)
        return records


def lists_that_fit(outputs: Mapping[str, int], classes: int) -> list[str]:
    """Return the calibrators whose every class fits on a page, the first one in any case.

    Parameters
    ----------
    outputs : mapping of str to int
        How many outputs each calibrator has, in order of priority.
    classes : int
        The number of classes.

    Examples
    --------
    >>> lists_that_fit({"svs": 3, "ts": 1}, 100), lists_that_fit({"svs": 3, "ms": 3}, 1000)
    (['svs', 'ts'], ['svs'])
    """
    space = _MAX_LINES - _OTHER_FIGURES * sum(outputs.values())
    keys: list[str] = []
    for key, count in outputs.items():
        space -= classes * count
        if keys and space < 0:
            break
        keys.append(key)
    return keys


def _merge_bins(bins: ClassBins) -> ClassBins:
    """Merge neighbouring bins."""

    def merge(sums: Any) -> Any:
        return sums.reshape(_CLASS_BINS, BINS // _CLASS_BINS, -1).sum(axis=1)

    return ClassBins(merge(bins.weight), merge(bins.mass), merge(bins.hits))


@dataclass(frozen=True)
class Move:
    """Rows whose prediction changes from one class to another; how many become right or wrong."""

    source: str
    target: str
    count: int
    gained: int | None
    lost: int | None


def moves_of(changed: ChangedRows) -> tuple[Move, ...]:
    """Return the moves between classes, the most frequent first; all if there are few classes."""
    names = changed.names
    flows = flows_between(changed.decision, changed.direct_decision, len(names))
    limit = len(flows.count) if len(names) <= MAX_HEAT_MAP else MAX_MOVES
    moves = []
    for source, target, count in zip(
        flows.source[:limit], flows.target[:limit], flows.count[:limit], strict=True
    ):
        gained = lost = None
        if changed.labels is not None:
            true = changed.labels[
                (changed.decision == source) & (changed.direct_decision == target)
            ]
            gained, lost = int(np.sum(true == target)), int(np.sum(true == source))
        moves.append(Move(names[source], names[target], int(count), gained, lost))
    return tuple(moves)


# Changed rows that a page lists; `DecisionChanges` counts all of them.
MAX_ROWS = 100
HISTOGRAM_BINS = 20


@dataclass(frozen=True, eq=False)
class Pictures:
    """The data of all figures of one calibrator.

    Attributes
    ----------
    reliability : dict of str to Reliability
        The reliability diagram of every output, the original first; empty without labels.
    selection : Selection or None
        Risk against coverage of every output; None without labels.
    histogram : dict
        Edges, and the counts of confidences: original, direct and repaired.
    classes : ClassTable
        Counts and errors of each class.
    moves : tuple of Move
        Changes from class to class, the most frequent first.
    groups : tuple of GroupReport
        Groups of rows, the worst first; empty without groups.
    rows : tuple of ChangedRow
        Changed rows: the clearest one of every move between classes, then the second ones.
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
        outputs: Outputs,
        names: list[str],
        measured: Mapping[str, MeasuredProbabilities],
        *,
        labels: Classes | None = None,
        row_numbers: Classes | None = None,
        groups: Groups | None = None,
    ) -> Pictures:
        """Collect the data of the figures; ``row_numbers`` are the positions in the file."""
        arrays = {"original": original, "direct": outputs.direct, "repaired": outputs.repaired}
        index = np.arange(len(outputs.decision))
        return cls.of_rows(
            ChangedRows(
                outputs.decision, outputs.direct.argmax(axis=1), labels, weight=None, names=names
            ),
            {name: array[index, outputs.decision] for name, array in arrays.items()},
            {name: array.max(axis=1) for name, array in arrays.items()},
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
        measured: Mapping[str, MeasuredProbabilities],
        row_numbers: Classes | None = None,
        groups: Groups | None = None,
    ) -> Pictures:
        """Collect them from each output's mass on the decision, and on its own top class."""
        rows = {name: output.rows for name, output in measured.items()}
        bins = {
            name: output.classes for name, output in measured.items() if output.classes is not None
        }
        return cls(
            reliability={name: output.reliability() for name, output in measured.items()},
            selection=Selection.of(rows) if rows else None,
            histogram=_histogram(confidences),
            classes=ClassTable.of(changed, bins),
            moves=moves_of(changed),
            groups=() if groups is None else by_group(groups, rows, changed.decision),
            rows=changed.spread(masses, confidences["direct"], MAX_ROWS, row_numbers),
        )

    def to_dict(self, *, whole: bool = True) -> dict[str, Any]:
        """Return everything as plain Python values; every class if ``whole``, else a selection."""
        return {
            "reliability": {name: bins.to_dict() for name, bins in self.reliability.items()},
            "selection": None if self.selection is None else self.selection.to_dict(),
            "histogram": self.histogram,
            "classes": self.classes.to_list(whole=whole),
            "moves": [asdict(move) for move in self.moves],
            "groups": [group.to_dict() for group in self.groups],
            "rows": [row.to_dict() for row in self.rows],
        }


def _histogram(confidences: dict[str, npt.NDArray[Any]]) -> dict[str, list[float]]:
    edges = np.linspace(0.0, 1.0, HISTOGRAM_BINS + 1)
    counts = {
        # Rounding may make a confidence slightly larger than one; it belongs to the last bin.
        name: np.histogram(np.minimum(values, 1.0), edges)[0].tolist()
        for name, values in confidences.items()
    }
    return {"edges": edges.tolist(), **counts}


def audit_data(
    audit: Audit,
    pictures: Pictures,
    *,
    name: str,
    fingerprint: str,
    class_names: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Return the plain dict that `cordcal.report.render` takes.

    Parameters
    ----------
    audit : Audit
        The result of `cordcal.audit`.
    pictures : Pictures
        The data of the figures of the same rows.
    name : str
        The name of the audited calibrator.
    fingerprint : str
        Identifies the audited rows.
    class_names : tuple of str, optional
        One name per column.
    """
    labelled = bool(audit.measures)

    def values(output: str) -> dict[str, float]:
        return {metric.measure: getattr(metric, output) for metric in audit.measures}

    entry = {
        "key": name,
        "name": "the audited calibrator",
        "keeps_decisions": False,
        "direct": values("direct"),
        "repaired": values("repaired"),
        "changes": audit.changes.to_dict(),
        "gain": {
            # An audit has repaired minus direct, a comparison direct minus repaired.
            metric.measure: {
                "estimate": -metric.difference,
                "low": -metric.high,
                "high": -metric.low,
            }
            for metric in audit.measures
            if metric.low is not None and metric.high is not None
        },
        "lift_gain": {},
        "seconds": None,
        "notes": [],
        "price": None,
        "lift": None,
        "shares": {},
        **pictures.to_dict(),
    }
    sentences = audit._sentences()
    return {
        "n_calibration": None,
        "n_evaluation": audit.n,
        "n_classes": audit.n_classes,
        "class_names": None if class_names is None else list(class_names),
        "settings": {
            "repair fitted on": "the audited rows" if audit.fitted_here else "other rows",
            "bootstrap resamples": audit.resamples,
            "seed": audit.seed,
        },
        "fingerprint": fingerprint,
        "has_labels": labelled,
        "uncalibrated": values("original") if labelled else None,
        "calibrators": [entry],
        "focus": name,
        "needed": [],
        "need": [],
        "left_out": {},
        "best": {},
        "concerns": [caveat.to_dict() for caveat in audit.concerns],
        "recommendation": None,
        "headline": sentences[0],
        "reading": sentences[1:],
        "next_step": None,
    }
