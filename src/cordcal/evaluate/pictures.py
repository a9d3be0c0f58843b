"""Compute the data of the report's figures and class tables."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cordcal._numeric.types import Classes, NumPyArray, Vector
from cordcal.evaluate.audit import ChangedRows
from cordcal.evaluate.groups import Groups, by_group
from cordcal.metrics.binned import ClassBins
from cordcal.metrics.changes import flows_between
from cordcal.metrics.registry import MeasuredProbabilities
from cordcal.metrics.risk import RiskCoverage, aurc_influence, risk_curve
from cordcal.metrics.rows import LabelledRows
from cordcal.preserving import Outputs
from cordcal.report.data import (
    MAX_HEAT_MAP,
    ClassTable,
    Histogram,
    Move,
    Pictures,
    Selection,
    Selective,
)

# Lines of numbers, one per class and output, that a page of 700 KB can hold; the other figures of
# an output take as much space as this many lines.
_MAX_LINES, _OTHER_FIGURES = 6500, 100
# Of more than MAX_HEAT_MAP classes, this many moves are listed.
MAX_MOVES = 40


def class_table(changed: ChangedRows, bins: Mapping[str, ClassBins]) -> ClassTable:
    """Count the rows of each class."""
    moved = changed.direct_decision != changed.decision

    def count(classes: Classes) -> Classes:
        return np.bincount(classes, minlength=len(changed.names))

    return ClassTable(
        changed.names,
        None if changed.labels is None else count(changed.labels),
        count(changed.decision),
        count(changed.decision[moved]),
        count(changed.direct_decision[moved]),
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
    index = np.arange(len(outputs.decision))
    shown = {name: array.max(axis=1) for name, array in arrays.items()}
    if measured:  # the outputs that exist: a calibrator may need no repair, or have two
        shown = {name: output.rows.confidence for name, output in measured.items()}
    return pictures_of_rows(
        ChangedRows(
            outputs.decision, outputs.direct.argmax(axis=1), labels, weight=None, names=names
        ),
        {name: array[index, outputs.decision] for name, array in arrays.items()},
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
        reliability={name: output.reliability() for name, output in measured.items()},
        selection=selection_of(rows) if rows else None,
        histogram=_histogram(confidences),
        classes=class_table(changed, bins),
        moves=moves_of(changed),
        groups=() if groups is None else by_group(groups, rows, changed.decision),
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
