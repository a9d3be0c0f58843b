"""What scores and labels give reason to doubt before anything is fitted on them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import stacklevel_outside_package
from cordcal._numeric.types import Classes, Labels, Matrix, Vector
from cordcal._validation.scores import CheckedScores

Flags = npt.NDArray[np.bool_]

# Below this the accuracy itself is known to ±22 points at best (two standard errors).
MIN_ROWS_TO_FIT = 20
# Another numbering or order must gain this many standard errors: one in thirty thousand by
# chance, and several are tried.
_CLEAR = 4.0
# Accuracy must be this many standard errors off what it is compared with: one in 700 by chance.
_OFF = 3.0
# Shuffled labels stay this many standard errors within chance in 98 of 100 draws.
_WITHIN = 2.0
# Three standard errors must be this part of the agreement that is possible: with fewer rows
# shuffled labels cannot be told from a poor classifier.
_SHOWS = 0.15
# softmax(p) has Σ(ln q − ln min q) = 1 − K·min p: never above 1, and close to 1 in the surest
# row.  0.05 leaves room for probabilities rounded to three decimals.
_TWICE_LOW, _TWICE_HIGH = 0.9, 1.05
# Whole percents of ten classes add up to 100 within 5.
_PERCENT_TOLERANCE = 5.0
# Rows to match columns with labels on, and rows to judge that by.
_MATCH, _JUDGE = slice(0, None, 2), slice(1, None, 2)
# Rows to look at before all are: a few tell that scores are free of a mistake.
_GLANCE = 8
# Rows of logits that differ by a constant have the same softmax but for rounding.
_ROUNDING = 1e-9


class SuspectDataWarning(UserWarning):
    """Scores or labels look like a mistake."""


@dataclass(frozen=True)
class Caveat:
    """A reason to doubt what a fit or a comparison says.

    Attributes
    ----------
    key : str
        Its kind: ``"labels"``, ``"columns"``, ``"chance"``, ``"scores"``, ``"rows"``,
        ``"overlap"``, ``"classes"`` or ``"indistinct"``.
    sentence : str
        What was found, with its figures.
    figures : mapping of str to float
        The figures.
    withholds : bool
        Whether no advice is given because of it.
    """

    key: str
    sentence: str
    figures: Mapping[str, float] = field(default_factory=dict)
    blocks_advice: bool = False

    @property
    def with_full_stop(self) -> str:
        """The sentence with its full stop, unless it asks."""
        return self.sentence if self.sentence.endswith("?") else f"{self.sentence}."

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain Python values."""
        return asdict(self)


def find_caveats(
    original: CheckedScores,
    labels: Labels | None = None,
    weight: Vector | None = None,
    names: Sequence[str] | None = None,
) -> list[Caveat]:
    """Return what calibration rows give reason to doubt, one concern for each cause.

    Parameters
    ----------
    original : Original
        The scores.
    labels : ndarray of int of shape (n,), optional
        The true classes, as column indices.
    weight : ndarray of shape (n,), optional
        Weights of the rows; those of weight zero do not count.
    names : sequence of str, optional
        The columns' names.
    """
    if labels is not None:
        counted = labels if weight is None else labels[weight > 0.0]
        if (counted == counted[0]).all():
            labels = None  # one class alone is refused, in words of its own
        elif len(counted) < MIN_ROWS_TO_FIT:
            return [_few(len(counted), original.classes)]
    concern = _constant(original.probabilities)
    if concern is not None:
        return [concern]
    concerns = [_percentages(original)]
    if labels is not None:
        concerns += [
            _softmax_twice(original, labels, weight),
            label_caveat(
                original.decision,
                labels,
                original.classes,
                names=names,
                weight=weight,
                scores=original.raw,
            ),
        ]
    return [concern for concern in concerns if concern is not None]


def warn_about(concerns: Iterable[Caveat]) -> None:
    """Warn of each concern, at the caller's own line."""
    for concern in concerns:
        warnings.warn(concern.sentence, SuspectDataWarning, stacklevel=stacklevel_outside_package())


# What the fit that runs now was warned of.
_SAID: ContextVar[frozenset[str]] = ContextVar("said", default=frozenset())


@contextmanager
def suppress_repeats(concerns: Iterable[Caveat]) -> Iterator[None]:
    """Keep a fit from warning again of what these concerns explain (see `already_warned`)."""
    token = _SAID.set(frozenset(concern.key for concern in concerns))
    try:
        yield
    finally:
        _SAID.reset(token)


def already_warned(*, by_labels: bool = False) -> bool:
    """Tell whether a warning about an optimum has the cause that was warned of already.

    A poor classifier may be below its most frequent class without a mistake; that explains
    only warnings that blame the labels.
    """
    return bool(_SAID.get() if by_labels else _SAID.get() - {"chance"})


def label_caveat(
    decision: Classes,
    labels: Labels,
    classes: int,
    *,
    names: Sequence[str] | None = None,
    weight: Vector | None = None,
    scores: npt.NDArray[Any] | None = None,
) -> Caveat | None:
    """Return why the labels seem not to belong to the rows or the columns, or None.

    What would mend it is proposed only where more rows are then right than by predicting the
    most frequent class.

    Parameters
    ----------
    decision, labels : ndarray of int of shape (n,)
        The classifier's decisions and the true classes, as column indices.
    classes : int
        Number of classes.
    names : sequence of str, optional
        The columns' names.
    weight : ndarray of shape (n,), optional
        Weights of the rows; those of weight zero do not count.
    scores : ndarray of shape (n, K), optional
        The scores, to look for a column among them that is not a class.
    """
    if weight is not None:
        counted = np.flatnonzero(weight)
        decision, labels, weight = decision[counted], labels[counted], weight[counted]
        weight = weight / weight.max()
        scores = None if scores is None else scores[counted]
    right = decision == labels
    accuracy = _share(right, weight)
    shares = _shares(labels, weight, classes)
    top = int(shares.argmax())
    most = float(shares[top])
    # Where most rows are right nothing needs mending; one class alone says nothing.
    if accuracy > max(0.5, most) or most == 1.0:
        return None
    figures = {"accuracy": accuracy, "majority": most}
    start = f"accuracy is {accuracy:.1%}"
    if f"{accuracy:.1%}" != f"{most:.1%}" and accuracy < most:
        start = f"accuracy {accuracy:.1%} is below the most frequent class's share ({most:.1%})"
    rows = _Rows(decision, labels, weight, classes, right, labels == top)
    best = rows.best_remedy(names, scores)
    if best is not None:
        return Caveat(
            best.key,
            f"{start}; {best.condition} it would be {best.accuracy:.1%}: {best.advice}",
            {**figures, **best.figures, f"accuracy_with_{best.change}": best.accuracy},
            blocks_advice=True,
        )
    ask = "are the labels those of these rows, and the columns in their order?"
    if _clearly_more(rows.frequent, right, weight, _OFF):
        return Caveat("chance", f"{start}: {ask}", figures, blocks_advice=True)
    expected = rows.accuracy_if_shuffled(accuracy, shares)
    if expected is None:
        return None
    return Caveat(
        "chance",
        f"accuracy {accuracy:.1%} is no better than with shuffled labels ({expected:.1%}): {ask}",
        {**figures, "chance": expected},
        blocks_advice=True,
    )


@dataclass(frozen=True)
class _Remedy:
    """A change after which more rows are right: what it is, and how many."""

    key: str
    change: str
    condition: str
    advice: str
    accuracy: float
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Decisions and labels; which rows are right, and which are of the most frequent class."""

    decision: Classes
    labels: Labels
    weight: Vector | None
    classes: int
    right: Flags
    frequent: Flags

    def best_remedy(
        self, names: Sequence[str] | None, scores: npt.NDArray[Any] | None
    ) -> _Remedy | None:
        """Return the change that mends the labels or the columns most, if one does."""
        tried = [*self._likely_orders(names), *self._shifts()]
        if scores is not None:
            tried += self._without_column(scores, names)
        mending = [hint for hint in tried if hint is not None]
        best = max(mending, key=lambda hint: hint.accuracy, default=None)
        matched = self._matched_order(names)
        if best is None or matched is None:
            return best or matched
        return matched if _much_more(matched.accuracy, best.accuracy) else best

    def _shifts(self) -> Iterator[_Remedy | None]:
        for shift, sign, ask in (
            (-1, "−", "are they numbered from 1?"),
            (1, "+", "is a class missing in front?"),
        ):
            yield self._tried(
                self.decision == (self.labels + shift) % self.classes,
                ("labels", "shift", f"with labels {sign} 1", ask),
                figures={"shift": shift},
            )

    def _likely_orders(self, names: Sequence[str] | None) -> Iterator[_Remedy | None]:
        for order, words in _orders(names, self.classes):
            yield self._tried(
                order[self.decision] == self.labels,
                ("columns", "order", f"if labels number the columns {words}", _REORDER),
            )

    def _matched_order(self, names: Sequence[str] | None) -> _Remedy | None:
        """Match columns with labels on every other row, and judge that on the rest."""
        order = _matched(self.decision[_MATCH], self.labels[_MATCH], self.classes)
        moved = np.flatnonzero(order != np.arange(self.classes)).tolist()
        pairs = [
            f"column {column if names is None else names[column]} for label {order[column]}"
            for column in moved[:3]
        ]
        words = f"with {', '.join(pairs)}{' and so on' if len(moved) > 3 else ''}"
        return self._tried(
            order[self.decision[_JUDGE]] == self.labels[_JUDGE],
            ("columns", "order", words, _REORDER),
            rows=_JUDGE,
        )

    def _without_column(
        self, scores: npt.NDArray[Any], names: Sequence[str] | None
    ) -> Iterator[_Remedy | None]:
        """Leave out the column that is decided for in most rows, if no label can mean it."""
        decided = np.bincount(self.decision, minlength=self.classes)
        column = int(decided.argmax())
        if 2 * decided[column] <= len(self.decision) or self.classes < 3:
            return
        others = np.delete(scores, column, axis=1).argmax(axis=1)
        name = f"{column}" if names is None else f"{names[column]!r}"
        share = _share(self.decision == column, self.weight)
        words = (
            "columns",
            "order",
            f"without column {name}, the largest in {share:.1%} of the rows,",
            "leave it out of the scores if it is not a class",
        )
        figures = {"column": column, "share": share}
        if not (self.labels == column).any():
            means = self.labels - (self.labels > column)
            yield self._tried(others == means, words, much=False, figures=figures)
        if self.labels.max() < self.classes - 1:
            # The labels may number the classes alone, without this column.
            yield self._tried(others == self.labels, words, much=False, figures=figures)

    def _tried(
        self,
        right: Flags,
        words: tuple[str, str, str, str],
        *,
        rows: slice = slice(None),
        much: bool = True,
        figures: Mapping[str, float] | None = None,
    ) -> _Remedy | None:
        """Return a remedy if clearly more rows are right, also than of the most frequent class.

        With ``much`` it must be many more: an ordinal classifier that is often one class off
        gains by a shift as well.
        """
        weight = None if self.weight is None else self.weight[rows]
        old, new = _share(self.right[rows], weight), _share(right, weight)
        if much and not _much_more(new, old):
            return None
        mends = _clearly_more(right, self.right[rows], weight, _CLEAR) and _clearly_more(
            right, self.frequent[rows], weight, _OFF
        )
        return _Remedy(*words, new, figures or {}) if mends else None

    def accuracy_if_shuffled(self, accuracy: float, shares: Vector) -> float | None:
        """Return the accuracy of shuffled labels if these are no better, else None.

        Its standard error is that of Cohen's kappa for independent raters (Fleiss et al. 1969).
        """
        decided = _shares(self.decision, self.weight, self.classes)
        both = decided * shares
        expected = float(both.sum())
        attainable = float(np.minimum(decided, shares).sum()) - expected
        variance = expected + expected**2 - float((both * (decided + shares)).sum())
        error = math.sqrt(max(variance, 0.0) / _effective_rows(len(self.labels), self.weight))
        enough = 0.0 < _OFF * error <= _SHOWS * attainable
        return expected if enough and accuracy - expected <= _WITHIN * error else None


_REORDER = "bring the columns into the order of the labels"


def _orders(names: Sequence[str] | None, classes: int) -> Iterator[tuple[Classes, str]]:
    """Yield likely orders of the columns: the number of each column in that order."""
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


def _matched(decision: Classes, labels: Labels, classes: int) -> Classes:
    """Return a label for each column: the pairs that occur most often first."""
    pairs, counts = np.unique(decision * classes + labels, return_counts=True)
    order = np.full(classes, -1, dtype=np.intp)
    free = np.ones(classes, dtype=bool)
    for pair in pairs[np.argsort(-counts, kind="stable")].tolist():
        column, label = divmod(pair, classes)
        if order[column] < 0 and free[label]:
            order[column], free[label] = label, False
    order[order < 0] = np.flatnonzero(free)
    return order


def _few(rows: int, classes: int) -> Caveat:
    return Caveat(
        "rows",
        f"only {rows:,} row{'' if rows == 1 else 's'} of {classes:,} classes to fit on: a "
        f"calibrator learns little but noise from fewer than {MIN_ROWS_TO_FIT}; pass more rows",
        {"calibration": rows, "needed": MIN_ROWS_TO_FIT},
        blocks_advice=True,
    )


def _constant(probabilities: Matrix) -> Caveat | None:
    """Find scores that are the same in every row."""
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
    """Find logits that are percentages."""
    if original.kind != "logits":
        return None
    for rows in _sample_then_all(original.raw):
        off = np.abs(rows.sum(axis=1, dtype=np.float64) - 100.0)
        if not (off.max() <= _PERCENT_TOLERANCE and rows.min() >= 0.0):
            return None
    return Caveat(
        "scores",
        "the scores add up to 100 in every row, as percentages do, but are read as logits: divide "
        "them by 100 and pass them as probabilities",
        {"sum": 100.0},
        blocks_advice=True,
    )


def _softmax_twice(original: CheckedScores, labels: Labels, weight: Vector | None) -> Caveat | None:
    """Find probabilities that were put through a second softmax."""
    if original.kind != "probabilities":
        return None
    highest = 0.0
    for rows in _sample_then_all(original.probabilities):
        low = rows.min(axis=1)
        if low.min() <= 0.0:
            return None
        highest = float((np.log(rows).sum(axis=1) - original.classes * np.log(low)).max())
        if highest > _TWICE_HIGH:
            return None
    confidence = original.probabilities.max(axis=1)
    accuracy = _share(original.decision == labels, weight)
    mean = float(np.average(confidence, weights=weight))
    error = math.sqrt(mean * (1.0 - mean) / _effective_rows(original.rows, weight))
    if highest < _TWICE_LOW or accuracy - mean <= _OFF * error:
        return None
    ratio = float((confidence / original.probabilities.min(axis=1)).max())
    return Caveat(
        "scores",
        f"the scores differ by a factor of at most {ratio:.2f} within a row, as after two "
        f"softmaxes, and their mean confidence is {mean:.1%} where accuracy is {accuracy:.1%}: "
        f"pass the probabilities before the second softmax",
        {"ratio": ratio, "confidence": mean, "accuracy": accuracy},
        blocks_advice=True,
    )


def _sample_then_all(rows: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield a few rows from all over, then all."""
    yield rows[:: max(1, len(rows) // _GLANCE)]
    yield rows


def _share(flags: Flags, weight: Vector | None) -> float:
    if weight is None:
        return float(np.count_nonzero(flags) / len(flags))
    return float(weight[flags].sum() / weight.sum())


def _shares(classes_of_rows: Classes, weight: Vector | None, classes: int) -> Vector:
    counts = np.bincount(classes_of_rows, weight, classes)
    return np.asarray(counts / counts.sum())


def _effective_rows(rows: int, weight: Vector | None) -> float:
    """Return how many rows of equal weight vary as much (Kish)."""
    if weight is None:
        return float(rows)
    relative = weight / weight.max()
    return float(relative.sum() ** 2 / (relative**2).sum())


def _much_more(new: float, old: float) -> bool:
    """Tell whether twice as many rows are right, or half as many wrong."""
    return new > old and (new >= 2.0 * old or 1.0 - new <= 0.5 * (1.0 - old))


def _clearly_more(first: Flags, second: Flags, weight: Vector | None, errors: float) -> bool:
    """Tell whether more rows are right in the first way than in the second (McNemar)."""
    lead = first.astype(np.float64) - second
    if weight is not None:
        lead *= weight
    return float(lead.sum()) > errors * math.sqrt(float((lead**2).sum()))
