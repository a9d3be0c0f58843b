"""Reasons to doubt the rows to fit on, audits and comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Floats, Labels, Matrix, Vector
from cordcal._validation.caveats import MIN_ROWS_WITHOUT_ERRORS, Caveat
from cordcal._validation.label_caveats import (
    DIFFERENCE_ERRORS,
    effective_rows,
    label_caveat,
    share_of,
)
from cordcal._validation.scores import CheckedScores

# With fewer rows, the accuracy itself is known to ±22 points at best (two standard errors).
MIN_ROWS_TO_FIT = 20
# softmax(p) has Σ(ln q − ln min q) = 1 − K·min p: never above 1, and close to 1 in the most
# confident row.  0.05 allows for probabilities rounded to three decimals.
_TWICE_LOW, _TWICE_HIGH = 0.9, 1.05
# Whole percents of ten classes add up to 100 within 5.
_PERCENT_TOLERANCE = 5.0
# With this many rows per class, a sample at random contains nearly every class.
_MANY_ROWS = 10
# Number of rows to look at before all rows: a few rows suffice to rule a mistake out.
_SAMPLE_ROWS = 8
# Logits that differ by a constant per row have the same softmax up to this rounding.
_ROUNDING = 1e-9

# With fewer rows, an interval of the accuracy spans up to twenty points.
MIN_ROWS_FOR_ADVICE = 100
# Continuous scores never coincide; coarse ones do, within each part as across.
_MAX_SHARED, _TIMES_DUPLICATES = 0.01, 3.0


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
    if counted.sum() < MIN_ROWS_WITHOUT_ERRORS or (prediction != labels)[counted].any():
        return None
    return Caveat(
        "errors",
        "every prediction is right: were these rows used for training, or are the labels "
        "predictions?",
        {"rows": len(labels)},
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
    accuracy = share_of(original.prediction == labels, weight)
    mean = float(np.average(confidence, weights=weight))
    error = math.sqrt(mean * (1.0 - mean) / effective_rows(original.rows, weight))
    if spread < _TWICE_LOW or accuracy - mean <= DIFFERENCE_ERRORS * error:
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
