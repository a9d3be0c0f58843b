"""Reasons to doubt scores and labels, and audits and comparisons of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from cordcal._errors import option_text, stacklevel_outside_package
from cordcal._numeric.types import (
    Classes,
    Floats,
    Labels,
    Matrix,
    NumPyArray,
    Predictions,
    Record,
    Vector,
)
from cordcal._validation.context import ContextValues, context_argument
from cordcal._validation.scores import CheckedScores

Flags = npt.NDArray[np.bool_]

# With fewer rows, the accuracy itself is known to ±22 points at best (two standard errors).
MIN_ROWS_TO_FIT = 20
# A classifier that is right in 95 % makes no error in so many rows with a chance of 8 %.
_MIN_ROWS_WITHOUT_ERRORS = 50
# Another numbering or order must gain this many standard errors: one in thirty thousand by
# chance, and several are tried.
_GAIN_ERRORS = 4.0
# Accuracy must differ by this many standard errors from a reference: one in 700 by chance.
_DIFFERENCE_ERRORS = 3.0
# Shuffled labels are within this many standard errors of chance in 98 of 100 draws.
_CHANCE_ERRORS = 2.0
# Three standard errors must be at most this share of the attainable agreement: with fewer rows
# shuffled labels cannot be distinguished from a poor classifier.
_MAX_ERROR_SHARE = 0.15
# softmax(p) has Σ(ln q − ln min q) = 1 − K·min p: never above 1, and close to 1 in the most
# confident row.  0.05 allows for probabilities rounded to three decimals.
_TWICE_LOW, _TWICE_HIGH = 0.9, 1.05
# Whole percents of ten classes add up to 100 within 5.
_PERCENT_TOLERANCE = 5.0
# Half of the rows to match columns with labels, the other half to evaluate the match.
_MATCH, _EVALUATE = slice(0, None, 2), slice(1, None, 2)
# With this many rows per class, a sample at random contains nearly every class.
_MANY_ROWS = 10
# A column from which the label follows in so many rows is rather a copy of it than context.
_DETERMINED = 0.995
# Values of fewer rows determine anything by chance, or because rows are repeated.
_MIN_ROWS_PER_VALUE = 5
# Number of rows to look at before all rows: a few rows suffice to rule a mistake out.
_SAMPLE_ROWS = 8
# Logits that differ by a constant per row have the same softmax up to this rounding.
_ROUNDING = 1e-9

# With fewer rows, an interval of the accuracy spans up to twenty points.
MIN_ROWS_FOR_ADVICE = 100
# Continuous scores never coincide; coarse ones do, within each part as across.
_MAX_SHARED, _TIMES_DUPLICATES = 0.01, 3.0


class CaveatWarning(UserWarning):
    """Scores or labels look like a mistake."""


@dataclass(frozen=True)
class Caveat(Record):
    """A reason not to trust a fit, an audit or a comparison.

    Attributes
    ----------
    key : str
        Its kind: ``"labels"``, ``"columns"``, ``"chance"``, ``"majority"``, ``"scores"``,
        ``"rows"``, ``"errors"``, ``"evidence"``, ``"overlap"``, ``"classes"``, ``"context"`` or
        ``"indistinct"``.
    sentence : str
        A description with its figures.
    figures : mapping of str to float
        The figures by name.
    blocks_advice : bool
        Whether no calibrator is recommended because of it.
    """

    key: str
    sentence: str
    figures: Mapping[str, float] = field(default_factory=dict)
    blocks_advice: bool = False

    @property
    def with_full_stop(self) -> str:
        """The sentence with a full stop, unless it is a question."""
        return self.sentence if self.sentence.endswith("?") else f"{self.sentence}."


def find_caveats(
    original: CheckedScores,
    labels: Labels | None = None,
    weight: Vector | None = None,
    names: Sequence[str] | None = None,
    *,
    by_argmax: bool = True,
) -> list[Caveat]:
    """Return the caveats about calibration rows, at most one per cause.

    Parameters
    ----------
    original : CheckedScores
        The scores.
    labels : ndarray of int of shape (n,), optional
        The true classes, as column indices.
    weight : ndarray of shape (n,), optional
        Weights of the rows; rows of weight zero do not count.
    names : sequence of str, optional
        Names of the columns.
    by_argmax : bool
        Whether the prediction is meant to be the likeliest class.  If not, an accuracy below the
        most frequent class's share is expected.
    """
    if labels is not None:
        counted = labels if weight is None else labels[weight > 0.0]
        if (counted == counted[0]).all():
            labels = None  # labels of one class only are refused later, by fit
        elif len(counted) < MIN_ROWS_TO_FIT:
            return [_too_few_rows(len(counted), original.classes)]
    constant = _constant_scores(original.probabilities)
    if constant is not None:
        return [constant]
    caveats = [_percentages(original)]
    if labels is not None:
        caveats += [
            _softmax_twice(original, labels, weight),
            label_caveat(
                original.prediction,
                labels,
                original.classes,
                names=names,
                weight=weight,
                scores=original.raw,
            ),
        ]
        if not any(caveats):  # one of those would explain these
            caveats += [
                no_errors(original.prediction, labels, weight),
                *_unseen_classes(counted, original.classes, names),
            ]
    expected = None if by_argmax else "majority"
    return [caveat for caveat in caveats if caveat is not None and caveat.key != expected]


def warn_about(caveats: Iterable[Caveat]) -> None:
    """Issue one warning per caveat, at the caller's line."""
    for caveat in caveats:
        warnings.warn(caveat.sentence, CaveatWarning, stacklevel=stacklevel_outside_package())


# The keys of the caveats that the running fit has already warned about.
_WARNED: ContextVar[frozenset[str]] = ContextVar("warned", default=frozenset())


@contextmanager
def suppress_repeats(caveats: Iterable[Caveat]) -> Iterator[None]:
    """Keep a fit from warning again about what these caveats explain (see `already_warned`)."""
    token = _WARNED.set(frozenset(caveat.key for caveat in caveats))
    try:
        yield
    finally:
        _WARNED.reset(token)


def already_warned(*, by_labels: bool = False) -> bool:
    """Whether an earlier warning explains a warning about an optimum.

    A poor classifier may be less accurate than its most frequent class without any mistake, so
    these caveats only explain warnings that blame the labels (``by_labels``).
    """
    return bool(_WARNED.get() if by_labels else _WARNED.get() - {"chance", "majority", "classes"})


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
    accuracy = _share(right, weight)
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
    enough_rows = 0.0 < _DIFFERENCE_ERRORS * error <= _MAX_ERROR_SHARE * attainable
    by_chance = enough_rows and accuracy - expected <= _CHANCE_ERRORS * error
    if by_chance:
        figures |= {"chance": expected}
    if _clearly_more(rows.is_majority, right, weight, _DIFFERENCE_ERRORS):
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
        share = _share(self.prediction == column, self.weight)
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
        old, new = _share(self.right[rows], weight), _share(right, weight)
        if much and not _much_more(new, old):
            return None
        helps = _clearly_more(right, self.right[rows], weight, _GAIN_ERRORS) and _clearly_more(
            right, self.is_majority[rows], weight, _DIFFERENCE_ERRORS
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
        error = math.sqrt(max(variance, 0.0) / _effective_rows(len(self.labels), self.weight))
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


def _unseen_classes(labels: Labels, classes: int, names: Sequence[str] | None) -> Iterator[Caveat]:
    """Yield a caveat if classes are absent; sorted rows are the likely reason if most are."""
    runs = 1 + int(np.count_nonzero(labels[1:] != labels[:-1]))
    for absent in _absent_classes(labels, "calibration", classes, names):
        if len(labels) < _MANY_ROWS * classes:
            return  # few rows leave classes out by chance
        present = classes - absent.figures["absent"]
        advice = "their probabilities are guesses; pass rows of every class that will occur"
        if runs == present <= classes / 2:
            advice = "is the file sorted by class? Then take rows at random"
        yield replace(absent, sentence=f"{absent.sentence}: {advice}")


def no_errors(prediction: Classes, labels: Labels, weight: Vector | None) -> Caveat | None:
    """Detect labels that agree with every prediction; among few rows that happens by chance."""
    counted = np.ones(len(labels), dtype=bool) if weight is None else weight > 0.0
    if counted.sum() < _MIN_ROWS_WITHOUT_ERRORS or (prediction != labels)[counted].any():
        return None
    return Caveat(
        "errors",
        "every prediction is right: were these rows used for training, or are the labels "
        "predictions?",
        {"rows": len(labels)},
        blocks_advice=True,
    )


def bound_caveats(sentence: str) -> list[Caveat]:
    """Return the caveat that many predictions are kept against the evidence, if there is one."""
    return [Caveat("evidence", sentence)] if sentence else []


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
    present = values == values
    if values.dtype == object:
        present = np.array([value is not None for value in values], dtype=bool)
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
    if len(truth) < _MIN_ROWS_WITHOUT_ERRORS:
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
    present = ~np.isnan(values[:, 0])
    rows = int(present.sum())
    right = values[present].argmax(axis=1) == labels[present]
    if rows < _MIN_ROWS_WITHOUT_ERRORS or not right.all():
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


def _too_few_rows(rows: int, classes: int) -> Caveat:
    return Caveat(
        "rows",
        f"only {rows:,} row{'' if rows == 1 else 's'} of {classes:,} classes to fit on: a "
        f"calibrator learns little but noise from fewer than {MIN_ROWS_TO_FIT}; pass more rows",
        {"calibration": rows, "needed": MIN_ROWS_TO_FIT},
        blocks_advice=True,
    )


def _constant_scores(probabilities: Matrix) -> Caveat | None:
    """Detect scores that are the same in every row."""
    for rows in _sample_then_all(probabilities):
        if len(rows) < 2 or np.abs(rows - rows[0]).max() > _ROUNDING:
            return None
    return Caveat(
        "scores",
        f"the scores are the same in all {len(probabilities):,} rows, so that nothing can be "
        f"learnt from them: are they the classifier's outputs for these rows?",
        {"rows": len(probabilities)},
        blocks_advice=True,
    )


def _percentages(original: CheckedScores) -> Caveat | None:
    """Detect percentages that are passed as logits."""
    if original.kind != "logits":
        return None
    for rows in _sample_then_all(original.raw):
        deviation = np.abs(rows.sum(axis=1, dtype=np.float64) - 100.0)
        if not (deviation.max() <= _PERCENT_TOLERANCE and rows.min() >= 0.0):
            return None
    return Caveat(
        "scores",
        "the scores add up to 100 in every row, as percentages do, but are read as logits: divide "
        "them by 100 and pass them as probabilities",
        {"sum": 100.0},
        blocks_advice=True,
    )


def _softmax_twice(original: CheckedScores, labels: Labels, weight: Vector | None) -> Caveat | None:
    """Detect probabilities that went through a second softmax."""
    if original.kind != "probabilities":
        return None
    spread = 0.0
    for rows in _sample_then_all(original.probabilities):
        low = rows.min(axis=1)
        if low.min() <= 0.0:
            return None
        spread = float((np.log(rows).sum(axis=1) - original.classes * np.log(low)).max())
        if spread > _TWICE_HIGH:
            return None
    confidence = original.probabilities.max(axis=1)
    accuracy = _share(original.prediction == labels, weight)
    mean = float(np.average(confidence, weights=weight))
    error = math.sqrt(mean * (1.0 - mean) / _effective_rows(original.rows, weight))
    if spread < _TWICE_LOW or accuracy - mean <= _DIFFERENCE_ERRORS * error:
        return None
    ratio = float((confidence / original.probabilities.min(axis=1)).max())
    return Caveat(
        "scores",
        f"the scores differ by a factor of at most {ratio:.2f} within a row, as after two "
        f"softmaxes, and their mean confidence is {100 * mean:.1f} % where accuracy is "
        f"{100 * accuracy:.1f} %: pass the probabilities before the second softmax",
        {"ratio": ratio, "confidence": mean, "accuracy": accuracy},
        blocks_advice=True,
    )


def _sample_then_all(rows: Floats) -> Iterator[Floats]:
    """Yield a few evenly spaced rows, then all rows."""
    yield rows[:: max(1, len(rows) // _SAMPLE_ROWS)]
    yield rows


def _share(flags: Flags, weight: Vector | None) -> float:
    """Return the weighted share of rows that are flagged."""
    if weight is None:
        return float(np.count_nonzero(flags) / len(flags))
    return float(weight[flags].sum() / weight.sum())


def _class_shares(indices: Classes, weight: Vector | None, classes: int) -> Vector:
    """Return the weighted share of rows per class."""
    counts = np.bincount(indices, weight, classes)
    return np.asarray(counts / counts.sum())


def _effective_rows(rows: int, weight: Vector | None) -> float:
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


def audit_caveats(
    prediction: Classes,
    labels: Classes,
    *,
    classes: int,
    names: Sequence[str] | None,
    weight: Vector | None = None,
) -> list[Caveat]:
    """Return the reasons to doubt an audit.

    Parameters
    ----------
    prediction, labels : ndarray of int
        The classifier's predictions, and the true classes.
    classes : int
        Number of classes.
    names : sequence of str, optional
        The columns' names.
    weight : ndarray, optional
        Weights of the rows.
    """
    mislabelled = label_caveat(prediction, labels, classes, names=names, weight=weight)
    return [
        *([] if mislabelled is None else [mislabelled]),
        *_few_audited_rows(len(labels)),
        *_absent_classes(labels, "audited", classes, names),
    ]


def split_caveats(
    calibration: Classes, evaluation: Classes, *, classes: int, names: Sequence[str] | None
) -> list[Caveat]:
    """Return the caveats from the numbers of calibration and evaluation rows.

    Parameters
    ----------
    calibration, evaluation : ndarray of int
        The true classes of both.
    classes : int
        Number of classes.
    names : sequence of str, optional
        The columns' names.
    """
    return [
        *_few_rows(len(calibration), len(evaluation)),
        *_absent_classes(calibration, "calibration", classes, names),
        *_absent_classes(evaluation, "evaluation", classes, names),
    ]


def _few_rows(calibration: int, evaluation: int) -> Iterator[Caveat]:
    if min(calibration, evaluation) < MIN_ROWS_FOR_ADVICE:
        yield Caveat(
            "rows",
            f"too few rows for advice: {calibration:,} to calibrate on and {evaluation:,} to "
            f"evaluate on, where at least {MIN_ROWS_FOR_ADVICE} of each are needed",
            {"calibration": calibration, "evaluation": evaluation, "needed": MIN_ROWS_FOR_ADVICE},
            blocks_advice=True,
        )


def _few_audited_rows(rows: int) -> Iterator[Caveat]:
    if rows < MIN_ROWS_FOR_ADVICE:
        yield Caveat(
            "rows",
            f"too few rows to judge by: {rows:,}, where at least {MIN_ROWS_FOR_ADVICE} are needed",
            {"evaluation": rows, "needed": MIN_ROWS_FOR_ADVICE},
            blocks_advice=True,
        )


def _absent_classes(
    labels: Classes, role: str, classes: int, names: Sequence[str] | None
) -> Iterator[Caveat]:
    absent = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if not absent.size:
        return
    shown = [str(index) if names is None else names[index] for index in absent[:3].tolist()]
    more = ", …" if absent.size > len(shown) else ""
    have = "has" if absent.size == 1 else "have"
    yield Caveat(
        "classes",
        f"{absent.size:,} of {classes:,} classes {have} no {role} row ({', '.join(shown)}{more})",
        {"absent": int(absent.size), "classes": classes},
    )


def overlap(calibration: Floats, evaluation: Floats) -> list[Caveat]:
    """Return a caveat if evaluation rows are also calibration rows.

    Scores of a coarse classifier coincide by chance: both parts then contain about as many
    duplicates among themselves.
    """
    fitted, tested = _row_keys(calibration), _row_keys(evaluation)
    shared = float(np.isin(tested, fitted).mean())
    duplicates = float(
        np.mean([1.0 - len(np.unique(part)) / len(part) for part in (fitted, tested)])
    )
    if shared <= _MAX_SHARED + _TIMES_DUPLICATES * duplicates:
        return []
    return [
        Caveat(
            "overlap",
            f"{100 * shared:.1f} % of the evaluation rows are also calibration rows: their metrics "
            f"are too optimistic; pass rows that were not used for fitting",
            {"shared": shared},
            blocks_advice=True,
        )
    ]


def _row_keys(scores: Floats) -> npt.NDArray[np.void]:
    """Return one opaque value per row, equal for equal rows."""
    # Adding zero turns −0.0 into 0.0, which is the same number.
    wide = np.ascontiguousarray(scores, dtype=np.float64) + 0.0
    return wide.view(np.dtype((np.void, wide.dtype.itemsize * wide.shape[1]))).ravel()
