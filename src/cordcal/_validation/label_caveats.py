"""Do labels belong to these rows and columns?  Shifted, reordered and shuffled ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cordcal._errors import option_text
from cordcal._numeric.types import Classes, Flags, Floats, Labels, Vector
from cordcal._validation.caveats import Caveat

# Another numbering or order must gain this many standard errors: one in thirty thousand by
# chance, and several are tried.
_GAIN_ERRORS = 4.0
# Accuracy must differ by this many standard errors from a reference: one in 700 by chance.
DIFFERENCE_ERRORS = 3.0
# Shuffled labels are within this many standard errors of chance in 98 of 100 draws.
_CHANCE_ERRORS = 2.0
# Three standard errors must be at most this share of the attainable agreement: with fewer rows
# shuffled labels cannot be distinguished from a poor classifier.
_MAX_ERROR_SHARE = 0.15
# Half of the rows to match columns with labels, the other half to evaluate the match.
_MATCH, _EVALUATE = slice(0, None, 2), slice(1, None, 2)


def label_caveat(
    prediction: Classes,
    labels: Labels,
    classes: int,
    *,
    names: Sequence[str] | None = None,
    weight: Vector | None = None,
    scores: Floats | None = None,
) -> Caveat | None:
    """Return the caveat that labels do not match the rows or the columns, or None.

    A change is proposed only if it makes more rows right than always predicting the most
    frequent class.

    Parameters
    ----------
    prediction, labels : ndarray of int of shape (n,)
        The classifier's predictions and the true classes, as column indices.
    classes : int
        Number of classes.
    names : sequence of str, optional
        Names of the columns.
    weight : ndarray of shape (n,), optional
        Weights of the rows; rows of weight zero do not count.
    scores : ndarray of shape (n, K), optional
        The scores, to look for a column that is not a class.
    """
    if weight is not None:
        counted = np.flatnonzero(weight)
        prediction, labels, weight = prediction[counted], labels[counted], weight[counted]
        weight = weight / weight.max()
        scores = None if scores is None else scores[counted]
    right = prediction == labels
    accuracy = share_of(right, weight)
    label_shares = _class_shares(labels, weight, classes)
    top = int(label_shares.argmax())
    majority = float(label_shares[top])
    # If most rows are right, nothing is wrong; a single class cannot show a mistake.
    if accuracy > max(0.5, majority) or majority == 1.0:
        return None
    figures = {"accuracy": accuracy, "majority": majority}
    shown, shown_majority = f"{100 * accuracy:.1f} %", f"{100 * majority:.1f} %"
    start = f"accuracy is {shown}"
    if shown != shown_majority and accuracy < majority:
        start = f"accuracy {shown} is below the most frequent class's share ({shown_majority})"
    rows = _PredictedRows(prediction, labels, weight, classes, right, labels == top)
    best = rows.best_remedy(names, scores)
    if best is not None:
        return Caveat(
            best.key,
            f"{start}; {best.condition} it would be {100 * best.accuracy:.1f} %: {best.advice}",
            {**figures, **best.figures, f"accuracy_with_{best.change}": best.accuracy},
            blocks_advice=True,
        )
    question = "are the labels those of these rows, and the columns in their order?"
    expected, error, attainable = rows.accuracy_if_shuffled(label_shares)
    enough_rows = 0.0 < DIFFERENCE_ERRORS * error <= _MAX_ERROR_SHARE * attainable
    by_chance = enough_rows and accuracy - expected <= _CHANCE_ERRORS * error
    if by_chance:
        figures |= {"chance": expected}
    if _clearly_more(rows.is_majority, right, weight, DIFFERENCE_ERRORS):
        if accuracy - expected <= _GAIN_ERRORS * error:
            key = "chance" if by_chance else "majority"
            return Caveat(key, f"{start}: {question}", figures, blocks_advice=True)
        cause = "was the classifier trained with class weights or on resampled rows?"
        return Caveat(
            "majority", f"{start}: {cause} Then use {option_text('rule', 'learnt')}", figures
        )
    if not by_chance:
        return None
    return Caveat(
        "chance",
        f"accuracy {shown} is no better than with shuffled labels ({100 * expected:.1f} %): "
        f"{question}",
        figures,
        blocks_advice=True,
    )


@dataclass(frozen=True)
class _Remedy:
    """A change of the labels or columns that makes more rows right."""

    key: str
    change: str
    condition: str
    advice: str
    accuracy: float
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _PredictedRows:
    """Predictions and labels; which rows are right, and which have the most frequent label."""

    prediction: Classes
    labels: Labels
    weight: Vector | None
    classes: int
    right: Flags
    is_majority: Flags

    def best_remedy(self, names: Sequence[str] | None, scores: Floats | None) -> _Remedy | None:
        """Return the change that makes most rows right, if one clearly helps."""
        candidates = [*self._likely_orders(names), *self._shifts(names)]
        if scores is not None:
            candidates += self._without_column(scores, names)
        remedies = [remedy for remedy in candidates if remedy is not None]
        best = max(remedies, key=lambda remedy: remedy.accuracy, default=None)
        matched = self._matched_order(names)
        if best is None or matched is None:
            return best or matched
        return matched if _much_more(matched.accuracy, best.accuracy) else best

    def _shifts(self, names: Sequence[str] | None) -> Iterator[_Remedy | None]:
        named = (
            "" if names is None else ", or are the class names in another order than the columns"
        )
        for shift, sign, question in (
            (-1, "−", f"are they numbered from 1{named}?"),
            (1, "+", f"is a class missing in front{named}?"),
        ):
            yield self._remedy(
                self.prediction == (self.labels + shift) % self.classes,
                ("labels", "shift", f"with labels {sign} 1", question),
                figures={"shift": shift},
            )

    def _likely_orders(self, names: Sequence[str] | None) -> Iterator[_Remedy | None]:
        for order, description in _orders(names, self.classes):
            yield self._remedy(
                order[self.prediction] == self.labels,
                ("columns", "order", f"if labels number the columns {description}", _REORDER),
            )

    def _matched_order(self, names: Sequence[str] | None) -> _Remedy | None:
        """Match columns with labels on every other row, and evaluate the match on the others."""
        order = _match_columns(self.prediction[_MATCH], self.labels[_MATCH], self.classes)
        moved = np.flatnonzero(order != np.arange(self.classes)).tolist()
        pairs = [
            f"column {column if names is None else names[column]} for label {order[column]}"
            for column in moved[:3]
        ]
        condition = f"with {', '.join(pairs)}{' and so on' if len(moved) > 3 else ''}"
        return self._remedy(
            order[self.prediction[_EVALUATE]] == self.labels[_EVALUATE],
            ("columns", "order", condition, _REORDER),
            rows=_EVALUATE,
        )

    def _without_column(
        self, scores: Floats, names: Sequence[str] | None
    ) -> Iterator[_Remedy | None]:
        """Leave out the column predicted in most rows, if it may not be a class."""
        counts = np.bincount(self.prediction, minlength=self.classes)
        column = int(counts.argmax())
        if 2 * counts[column] <= len(self.prediction) or self.classes < 3:
            return
        others = np.delete(scores, column, axis=1).argmax(axis=1)
        name = f"{column}" if names is None else f"{names[column]!r}"
        share = share_of(self.prediction == column, self.weight)
        remedy = (
            "columns",
            "order",
            f"without column {name}, the largest in {100 * share:.1f} % of the rows,",
            "leave it out of the scores if it is not a class",
        )
        figures = {"column": column, "share": share}
        if not (self.labels == column).any():
            renumbered = self.labels - (self.labels > column)
            yield self._remedy(others == renumbered, remedy, much=False, figures=figures)
        if self.labels.max() < self.classes - 1:
            # The labels may already number the classes without this column.
            yield self._remedy(others == self.labels, remedy, much=False, figures=figures)

    def _remedy(
        self,
        right: Flags,
        description: tuple[str, str, str, str],
        *,
        rows: slice = slice(None),
        much: bool = True,
        figures: Mapping[str, float] | None = None,
    ) -> _Remedy | None:
        """Return a remedy if it makes clearly more rows right than now and than the majority.

        With ``much`` it must be many more: a shift also improves an ordinal classifier that is
        often one class off.  ``description`` holds the first four fields of the remedy.
        """
        weight = None if self.weight is None else self.weight[rows]
        old, new = share_of(self.right[rows], weight), share_of(right, weight)
        if much and not _much_more(new, old):
            return None
        helps = _clearly_more(right, self.right[rows], weight, _GAIN_ERRORS) and _clearly_more(
            right, self.is_majority[rows], weight, DIFFERENCE_ERRORS
        )
        return _Remedy(*description, new, figures or {}) if helps else None

    def accuracy_if_shuffled(self, label_shares: Vector) -> tuple[float, float, float]:
        """Return the expected accuracy of shuffled labels, its error, and the attainable gain.

        The standard error is that of Cohen's kappa for independent raters (Fleiss et al. 1969).
        """
        predicted = _class_shares(self.prediction, self.weight, self.classes)
        both = predicted * label_shares
        expected = float(both.sum())
        attainable = float(np.minimum(predicted, label_shares).sum()) - expected
        variance = expected + expected**2 - float((both * (predicted + label_shares)).sum())
        error = math.sqrt(max(variance, 0.0) / effective_rows(len(self.labels), self.weight))
        return expected, error, attainable


_REORDER = "bring the columns into the order of the labels"


def _orders(names: Sequence[str] | None, classes: int) -> Iterator[tuple[Classes, str]]:
    """Yield likely orders of the columns, as the position of each column, with a description."""
    yield np.arange(classes)[::-1], "from the last to the first"
    if names is None:
        return
    by_name = np.argsort(np.array(names), kind="stable")
    yield np.argsort(by_name), "in the order of their sorted names"
    try:
        by_number = np.argsort([float(name) for name in names], kind="stable")
    except ValueError:
        return
    yield np.argsort(by_number), "by the numbers that are their names"


def _match_columns(prediction: Classes, labels: Labels, classes: int) -> Classes:
    """Return one label per column, matching the most frequent pairs first."""
    pairs, counts = np.unique(prediction * classes + labels, return_counts=True)
    order = np.full(classes, -1, dtype=np.intp)
    free = np.ones(classes, dtype=bool)
    for pair in pairs[np.argsort(-counts, kind="stable")].tolist():
        column, label = divmod(pair, classes)
        if order[column] < 0 and free[label]:
            order[column], free[label] = label, False
    order[order < 0] = np.flatnonzero(free)
    return order


def share_of(flags: Flags, weight: Vector | None) -> float:
    """Return the weighted share of rows that are flagged."""
    if weight is None:
        return float(np.count_nonzero(flags) / len(flags))
    return float(weight[flags].sum() / weight.sum())


def _class_shares(indices: Classes, weight: Vector | None, classes: int) -> Vector:
    """Return the weighted share of rows per class."""
    counts = np.bincount(indices, weight, classes)
    return np.asarray(counts / counts.sum())


def effective_rows(rows: int, weight: Vector | None) -> float:
    """Return the effective sample size of weighted rows (Kish)."""
    if weight is None:
        return float(rows)
    relative = weight / weight.max()
    return float(relative.sum() ** 2 / (relative**2).sum())


def _much_more(new: float, old: float) -> bool:
    """Whether at least twice as many rows are right, or at most half as many wrong."""
    return new > old and (new >= 2.0 * old or 1.0 - new <= 0.5 * (1.0 - old))


def _clearly_more(first: Flags, second: Flags, weight: Vector | None, errors: float) -> bool:
    """Whether the first flags more rows than the second, by some standard errors (McNemar)."""
    lead = first.astype(np.float64) - second
    if weight is not None:
        lead *= weight
    return float(lead.sum()) > errors * math.sqrt(float((lead**2).sum()))
