"""Reasons to doubt columns next to the scores."""

from __future__ import annotations

import numpy as np

from cordcal._numeric.types import Classes, Labels, NumPyArray, Predictions, Vector
from cordcal._validation.caveats import MIN_ROWS_WITHOUT_ERRORS, Caveat
from cordcal._validation.context import ContextValues, context_argument, is_present

# A column from which the label follows in so many rows is rather a copy of it than context.
_DETERMINED = 0.995
# Values of fewer rows determine anything by chance, or because rows are repeated.
_MIN_ROWS_PER_VALUE = 5


def context_caveats(
    context: ContextValues, prediction: Predictions, labels: Labels, weight: Vector | None
) -> list[Caveat]:
    """Return the caveats about columns next to the scores, at most one per column."""
    counted = np.ones(len(labels), dtype=bool) if weight is None else weight > 0.0
    prediction, labels = prediction[counted], labels[counted]
    caveats = []
    for name, values in context.take(counted).columns.items():
        find = _opinion_caveat if values.ndim == 2 else _column_caveat
        caveat = find(context_argument(name), values, prediction, labels)
        if caveat is not None:
            caveats.append(caveat)
    return caveats


def _column_caveat(
    argument: str, values: NumPyArray, prediction: Predictions, labels: Labels
) -> Caveat | None:
    """Detect a column that is the same in all rows, or that determines the labels."""
    present = is_present(values)
    # A dictionary, because sorting text takes most of the time of a fit with many columns.
    place: dict[object, int] = {}
    codes = np.array(
        [place.setdefault(value, len(place)) for value in values[present].tolist()], dtype=np.intp
    )
    counts = np.bincount(codes, minlength=len(place))
    if len(counts) == 1:
        return Caveat(
            "context", f"{argument} is the same in every row, so that it has no effect", {}
        )
    repeated = counts[codes] >= _MIN_ROWS_PER_VALUE
    truth, guess = labels[present][repeated], prediction[present][repeated]
    if len(truth) < MIN_ROWS_WITHOUT_ERRORS:
        return None
    right = truth == guess
    for target, what in ((truth, "the labels"), (right, "which predictions are right")):
        known = _explained(codes[repeated], target.astype(np.intp))
        if (
            known
            >= _DETERMINED
            > _explained(np.zeros_like(codes[repeated]), target.astype(np.intp))
        ):
            return Caveat(
                "context",
                f"{argument} determines {what} in {100 * known:.1f} % of the rows: will it be "
                f"known before the label is?",
                {"determined": known},
                blocks_advice=True,
            )
    return None


def _explained(codes: Classes, target: Classes) -> float:
    """Return the share of rows in which the target is the most frequent one of its code."""
    width = int(target.max()) + 1
    pairs, counts = np.unique(codes * width + target, return_counts=True)
    most = np.zeros(int(codes.max()) + 1)
    np.maximum.at(most, pairs // width, counts)
    return float(most.sum()) / len(codes)


def _opinion_caveat(
    argument: str, values: NumPyArray, prediction: Predictions, labels: Labels
) -> Caveat | None:
    """Detect a second opinion from a model that was fitted on the rows."""
    present = is_present(values)
    rows = int(present.sum())
    right = values[present].argmax(axis=1) == labels[present]
    if rows < MIN_ROWS_WITHOUT_ERRORS or not right.all():
        return None
    if (prediction[present] == labels[present]).all():
        return None
    return Caveat(
        "context",
        f"{argument} is right in all {rows:,} rows: was its model fitted on them? It must not "
        "have seen them, or its opinion of other rows is worth less than it seems",
        {"rows": rows},
        blocks_advice=True,
    )
