"""The data of the report's figures and tables: changed rows, classes, groups, risk curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, NumPyArray, Vector
from cordcal._validation.labels import Groups, check_weights, rows_by_group
from cordcal.evaluate.results.audit import GroupChanges
from cordcal.evaluate.results.pictures import (
    MAX_HEAT_MAP,
    ChangedRow,
    ClassTable,
    GroupReport,
    Histogram,
    Move,
    Pictures,
    Selection,
    Selective,
)
from cordcal.metrics import METRICS, PredictionChanges, prediction_changes
from cordcal.metrics.base import LabelledRows
from cordcal.metrics.binned import ClassBins
from cordcal.metrics.changes import flows_between
from cordcal.metrics.registry import MeasuredProbabilities, leading_metrics
from cordcal.metrics.risk import RiskCoverage, aurc_influence, risk_curve
from cordcal.preserving import Outputs

# Lines of numbers, one per class and output, that a page of 700 KB can hold; the other figures of
# an output take as much space as this many lines.
_MAX_LINES, _OTHER_FIGURES = 6500, 100
# Of more than MAX_HEAT_MAP classes, this many moves are listed.
MAX_MOVES = 40


def class_table(changed: ChangedRows, bins: Mapping[str, ClassBins]) -> ClassTable:
    """Count the rows of each class."""
    moved = changed.direct_prediction != changed.prediction

    def count(classes: Classes) -> Classes:
        return np.bincount(classes, minlength=len(changed.names))

    return ClassTable(
        changed.names,
        None if changed.labels is None else count(changed.labels),
        count(changed.prediction),
        count(changed.prediction[moved]),
        count(changed.direct_prediction[moved]),
        bins,
    )


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


def moves_of(changed: ChangedRows) -> tuple[Move, ...]:
    """Return the moves between classes, the most frequent first; all if there are few classes."""
    names = changed.names
    flows = flows_between(changed.prediction, changed.direct_prediction, len(names))
    limit = len(flows.count) if len(names) <= MAX_HEAT_MAP else MAX_MOVES
    moves = []
    for source, target, count in zip(
        flows.source[:limit], flows.target[:limit], flows.count[:limit], strict=True
    ):
        gained = lost = None
        if changed.labels is not None:
            true = changed.labels[
                (changed.prediction == source) & (changed.direct_prediction == target)
            ]
            gained, lost = int(np.sum(true == target)), int(np.sum(true == source))
        moves.append(Move(names[source], names[target], int(count), gained, lost))
    return tuple(moves)


# Changed rows that a page lists; `PredictionChanges` counts all of them.
MAX_ROWS = 100
HISTOGRAM_BINS = 20


def pictures_of(
    original: NumPyArray,
    outputs: Outputs,
    names: list[str],
    measured: Mapping[str, MeasuredProbabilities],
    *,
    labels: Classes | None = None,
    row_numbers: Classes | None = None,
    groups: Groups | None = None,
) -> Pictures:
    """Collect the data of the figures.

    Parameters
    ----------
    original : ndarray of shape (n, K)
        The classifier's probabilities.
    outputs : Outputs
        Those of the calibrator.
    names : list of str
        One name per class.
    measured : mapping of str to MeasuredProbabilities
        The outputs to show, measured; empty without labels.
    labels, row_numbers : ndarray of int, optional
        The true classes, and the positions in the file.
    groups : ndarray of str, optional
        The group of each row.
    """
    arrays = {"original": original, "direct": outputs.direct, "repaired": outputs.repaired}
    index = np.arange(len(outputs.prediction))
    shown = {name: array.max(axis=1) for name, array in arrays.items()}
    if measured:  # the outputs that exist: a calibrator may need no repair, or have two
        shown = {name: output.rows.confidence for name, output in measured.items()}
    return pictures_of_rows(
        ChangedRows(
            outputs.prediction, outputs.direct.argmax(axis=1), labels, weight=None, names=names
        ),
        {name: array[index, outputs.prediction] for name, array in arrays.items()},
        shown,
        measured,
        row_numbers,
        groups,
    )


def pictures_of_rows(
    changed: ChangedRows,
    masses: dict[str, Vector],
    confidences: Mapping[str, Vector],
    measured: Mapping[str, MeasuredProbabilities],
    row_numbers: Classes | None = None,
    groups: Groups | None = None,
) -> Pictures:
    """Collect them from each output's mass on the prediction, and on its own top class."""
    rows = {name: output.rows for name, output in measured.items()}
    bins = {name: output.classes for name, output in measured.items() if output.classes is not None}
    return Pictures(
        reliability={name: output.diagram() for name, output in measured.items()},
        ece={name: output.metrics.values["ece"] for name, output in measured.items()},
        selection=selection_of(rows) if rows else None,
        histogram=_histogram(confidences),
        classes=class_table(changed, bins),
        moves=moves_of(changed),
        groups=() if groups is None else by_group(groups, rows, changed.prediction),
        rows=changed.spread(masses, confidences["direct"], MAX_ROWS, row_numbers),
    )


def _histogram(confidences: Mapping[str, Vector]) -> Histogram:
    edges = np.linspace(0.0, 1.0, HISTOGRAM_BINS + 1)
    counts = {
        # Rounding may make a confidence slightly larger than one; it belongs to the last bin.
        name: tuple(np.histogram(np.minimum(values, 1.0), edges)[0].tolist())
        for name, values in confidences.items()
    }
    return Histogram(tuple(edges.tolist()), counts)


# Common thresholds for abstaining.
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
# Points that a figure draws per curve.
_POINTS = 25
# Half the width of a 95 % interval in standard errors.
_NORMAL = 1.959964


def selection_of(rows: Mapping[str, LabelledRows]) -> Selection:
    """Compute the curves of several outputs on the same rows."""
    curves = {name: risk_curve(output) for name, output in rows.items()}
    influence = {name: aurc_influence(output) for name, output in rows.items()}
    share = {name: output.weights / output.weights.sum() for name, output in rows.items()}
    outputs = {
        name: _selective(curve, _NORMAL * _standard_error(influence[name], share[name]))
        for name, curve in curves.items()
    }
    change = {}
    for name in curves.keys() - {"original", "direct"}:
        estimate = curves[name].aurc - curves["direct"].aurc
        margin = _NORMAL * _standard_error(influence[name] - influence["direct"], share[name])
        change[name] = (estimate, estimate - margin, estimate + margin)
    return Selection(outputs, dict(sorted(change.items(), reverse=True)))


def _standard_error(influence: Vector, share: Vector) -> float:
    """Return the standard error of a mean of influences."""
    return math.sqrt(float(np.square(share * influence).sum()))


def _selective(curve: RiskCoverage, margin: float) -> Selective:
    grid = np.arange(1, _POINTS + 1) / _POINTS
    last = len(curve.coverage) - 1
    shown = np.unique(np.minimum(np.searchsorted(curve.coverage, grid - 1e-12), last))
    at = []
    for confidence in THRESHOLDS:
        coverage, accuracy = curve.at(confidence)
        at.append((confidence, coverage, None if math.isnan(accuracy) else accuracy))
    return Selective(
        tuple(curve.coverage[shown].tolist()),
        tuple(curve.risk[shown].tolist()),
        curve.aurc,
        max(curve.aurc - margin, 0.0),
        min(curve.aurc + margin, 1.0),
        tuple(at),
    )


def by_group(
    groups: Groups, outputs: Mapping[str, LabelledRows], prediction: Classes
) -> tuple[GroupReport, ...]:
    """Compute metrics per group: the worst by NLL first, small groups last.

    Parameters
    ----------
    groups : ndarray of str
        The group of each row.
    outputs : mapping of str to LabelledRows
        The outputs of one calibrator, including ``"direct"``.
    prediction : ndarray of int
        The predictions to keep.
    """
    changed = outputs["direct"].prediction != prediction
    keys = ("accuracy", *leading_metrics())
    reports = [
        GroupReport(
            name,
            len(members),
            float(changed[members].mean()),
            {
                output: {key: METRICS[key].value(rows.take(members)) for key in keys}
                for output, rows in outputs.items()
            },
        )
        for name, members in rows_by_group(groups)
    ]
    output = "repaired" if "repaired" in outputs else "direct"
    reports.sort(key=lambda group: (group.small, -group.measures[output]["nll"]))
    return tuple(reports)


# Bands of the original confidence, finer near 1, where changes are rare.
_BANDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
# Changed rows that an audit lists.
_MAX_LISTED = 10


class ChangedRows:
    """Predictions before and after calibration, and their changes within any group of rows."""

    def __init__(
        self,
        prediction: Classes,
        direct_prediction: Classes,
        labels: Classes | None,
        weight: npt.ArrayLike | None,
        names: list[str],
    ) -> None:
        self.prediction = prediction
        self.direct_prediction = direct_prediction
        self.names = names
        self.labels = labels
        self.weight = None if weight is None else check_weights(weight, len(prediction))

    def count(self, group: slice | npt.NDArray[np.intp]) -> PredictionChanges:
        """Count the changes within some rows."""
        return prediction_changes(
            self.prediction[group],
            self.direct_prediction[group],
            None if self.labels is None else self.labels[group],
            sample_weight=None if self.weight is None else self.weight[group],
        )

    def _count_by(self, index: Classes, names: Sequence[str]) -> tuple[GroupChanges, ...]:
        # A group that has only rows of weight zero has no rates.
        counted = np.arange(len(index)) if self.weight is None else np.flatnonzero(self.weight)
        order = counted[np.argsort(index[counted], kind="stable")]
        values, starts = np.unique(index[order], return_index=True)
        parts = np.split(order, starts[1:])
        return tuple(
            GroupChanges(names[value], self.count(part))
            for value, part in zip(values, parts, strict=True)
        )

    def by_class(self) -> tuple[GroupChanges, ...]:
        """Count the changes by original prediction."""
        return self._count_by(self.prediction, self.names)

    def by_confidence(self, confidence: Vector) -> tuple[GroupChanges, ...]:
        """Count the changes by bands of the original confidence."""
        bands = [f"({low:g}, {high:g}]" for low, high in pairwise(_BANDS)]
        index = np.searchsorted(_BANDS, confidence, side="left") - 1
        return self._count_by(np.clip(index, 0, len(bands) - 1), bands)

    def largest(
        self,
        masses: dict[str, Vector],
        direct_confidence: Vector,
        limit: int = _MAX_LISTED,
        row_numbers: Classes | None = None,
    ) -> tuple[ChangedRow, ...]:
        """Return the rows whose direct probabilities favour the new prediction most."""
        changed = self._most_decided(masses, direct_confidence)[:limit]
        return self._records(changed, masses, direct_confidence, row_numbers)

    def spread(
        self,
        masses: dict[str, Vector],
        direct_confidence: Vector,
        limit: int,
        row_numbers: Classes | None = None,
    ) -> tuple[ChangedRow, ...]:
        """Return one such row per move from class to class, then a second one, and so on."""
        changed = self._most_decided(masses, direct_confidence)
        move = self.prediction[changed] * len(self.names) + self.direct_prediction[changed]
        by_move = np.argsort(move, kind="stable")
        _, starts, counts = np.unique(move[by_move], return_index=True, return_counts=True)
        rank = np.empty(len(changed), dtype=np.intp)
        rank[by_move] = np.arange(len(changed)) - np.repeat(starts, counts)
        chosen = changed[np.argsort(rank, kind="stable")[:limit]]
        return self._records(chosen, masses, direct_confidence, row_numbers)

    def _most_decided(self, masses: dict[str, Vector], direct_confidence: Vector) -> Classes:
        """Return the changed rows, the largest preference for the new prediction first."""
        changed = np.flatnonzero(self.prediction != self.direct_prediction)
        lead = masses["direct"][changed] - direct_confidence[changed]
        return changed[np.argsort(lead, kind="stable")]

    def _records(
        self,
        rows: Classes,
        masses: dict[str, Vector],
        direct_confidence: Vector,
        row_numbers: Classes | None,
    ) -> tuple[ChangedRow, ...]:
        return tuple(
            ChangedRow(
                row=int(row if row_numbers is None else row_numbers[row]),
                prediction=self.names[self.prediction[row]],
                direct_prediction=self.names[self.direct_prediction[row]],
                label=None if self.labels is None else self.names[self.labels[row]],
                original_mass=float(masses["original"][row]),
                direct_mass=float(masses["direct"][row]),
                repaired_mass=float(masses["repaired"][row]),
                direct_confidence=float(direct_confidence[row]),
            )
            for row in rows
        )
