"""The classifier's scores, checked once: logits or probabilities, and its predictions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first, renumber_rows, row_error
from cordcal._numeric.arrays import block_buffer, row_blocks, to_numpy
from cordcal._numeric.expressions import in_domain
from cordcal._numeric.types import Classes, Decisions, Domain, Kind, Labels, Matrix, Vector
from cordcal._validation.probabilities import (
    DROP,
    as_matrix,
    sum_tolerance,
    sum_warning_level,
    warn_about_sums,
)

# A probability of zero has no logarithm; 1e-12 is the floor of the paper's NLL too.
LOG_FLOOR = 1e-12


def row_weights(rows: int, weight: Vector | None) -> Vector:
    """Return weights that sum to one."""
    return np.full(rows, 1.0 / rows) if weight is None else weight / weight.sum()


# A weight counts rows, and some maps weigh rows against a prior of a few.  Largest weights
# beyond these leave a millionth of a millionth of the one or the other, whatever their size.
_LEAST_WEIGHT, _MOST_WEIGHT = 2.0**-40, 2.0**40


def rescale_large_weights(weight: Vector) -> Vector:
    """Return weights that can be summed and multiplied: the largest within 2^±40.

    Examples
    --------
    >>> rescale_large_weights(np.array([3.0, 0.5]))
    array([3. , 0.5])
    >>> rescale_large_weights(np.array([3e300, 6e300])) / 2.0**40
    array([0.5, 1. ])
    """
    largest = float(weight.max(initial=0.0))
    bounded = min(max(largest, _LEAST_WEIGHT), _MOST_WEIGHT)
    return weight if bounded == largest else weight / largest * bounded


def check_kind(kind: Any) -> None:
    """Refuse anything but the two kinds of scores."""
    if kind not in ("logits", "probabilities"):
        raise InputError("input", f"is {kind!r}", 'write input="logits" or input="probabilities"')


def as_scores(scores: Any, classes: int | None = None) -> npt.NDArray[Any]:
    """Return the scores as a floating-point (n, K) NumPy array, without changing their dtype.

    ``classes`` is the number of columns seen in fit; another number of columns is refused.
    """
    array = np.asarray(as_matrix(to_numpy(scores, "scores"), "scores"))
    if classes is not None and array.shape[1] != classes:
        raise InputError(
            "scores",
            f"has {array.shape[1]} columns but fit saw {classes}",
            "pass the same classes as in fit",
        )
    return array


def check_labels_unmasked(scores: npt.NDArray[Any], labels: Labels, kind: Kind) -> None:
    """Refuse a label whose class is masked in its row: its loss is infinite under any map."""
    if kind == "logits":
        raise_first(
            row_error(
                np.isneginf(scores[np.arange(labels.size), labels]),
                "labels",
                "is a class whose logit is −inf (masked) in that row",
                "fix the label or unmask the class",
                detail=lambda row: (
                    f"is {labels[row]}, a class whose logit is −inf (masked) in that row"
                ),
            )
        )


def read_scores(
    scores: npt.NDArray[Any],
    kind: Kind,
    domain: Domain,
    *,
    masked: bool,
    owner: str,
    log_floor: float = LOG_FLOOR,
    fitting: bool = False,
) -> Matrix:
    """Check the scores and return them, in float64, as what the map works on.

    Parameters
    ----------
    scores : ndarray of shape (n, K)
        From `as_scores`.
    kind : {"logits", "probabilities"}
        What they are.
    domain : str
        What to return.
    masked : bool
        Whether the map can work with −inf logits.
    owner : str
        The calibrator's key, for messages.
    log_floor : float
        The smallest probability whose logarithm is taken.
    fitting : bool
        Whether these are calibration rows; they are checked harder for being of the
        other kind than the few rows of a prediction, which may look so by chance.
    """
    out = np.empty(scores.shape)
    for wide in _checked_blocks(scores, kind, out, masked=masked, owner=owner, fitting=fitting):
        in_domain(wide, kind, domain, log_floor, np)  # written over the block
    return out


def check_scores(scores: npt.NDArray[Any], kind: Kind) -> None:
    """Refuse what `original_probabilities` refuses, without computing them."""
    for _ in _checked_blocks(scores, kind, masked=True, owner="PreservingCalibrator"):
        pass


def _checked_blocks(
    scores: npt.NDArray[Any],
    kind: Kind,
    out: Matrix | None = None,
    *,
    masked: bool,
    owner: str,
    fitting: bool = False,
) -> Iterator[Matrix]:
    """Yield blocks of checked scores in float64, parts of ``out`` or one buffer."""
    rows, classes = scores.shape
    room = block_buffer(rows if out is None else 0, classes)
    suspicious, worst = kind == "logits", 0.0
    for at in row_blocks(rows, classes):
        block = scores[at]
        wide = room[: block.shape[0]] if out is None else out[at]
        wide[:] = block
        low, high = block.min(axis=1), block.max(axis=1)
        total = _totals(wide) if kind == "probabilities" else None
        if not _are_sound(low, high, total, kind, block.dtype, masked=masked):
            with renumber_rows(at.start):
                raise_first(*score_errors(scores[at.start :], kind, masked=masked, owner=owner))
        if total is None:
            suspicious = suspicious and _like_probabilities(block, loose=fitting)
        else:
            worst = max(worst, float(np.abs(total - 1.0).max()))
            wide /= total
        yield wide
    if suspicious:
        raise InputError(
            "scores",
            "look like probabilities: every row lies in [0, 1] and sums to 1",
            "write {option}, or pass the logits themselves",
            option=("input", "probabilities"),
        )
    if kind == "probabilities":
        warn_about_sums(worst, "scores", scores.dtype, classes)


def original_probabilities(scores: npt.NDArray[Any], kind: Kind) -> Matrix:
    """Return p⁰, the classifier's own probabilities, in float64."""
    return read_scores(scores, kind, "probabilities", masked=True, owner="PreservingCalibrator")


@np.errstate(invalid="ignore")  # infinities of both signs are refused in words
def _totals(wide: Matrix) -> Matrix:
    return np.asarray(wide.sum(axis=1, keepdims=True))


def _are_sound(
    low: npt.NDArray[Any],
    high: npt.NDArray[Any],
    total: Matrix | None,
    kind: Kind,
    dtype: Any,
    *,
    masked: bool,
) -> bool:
    """Whether no row of a block is refused, told by its extremes and its sums."""
    if not np.isfinite(high).all():
        return False
    if total is None:
        return masked or not bool(np.isneginf(low).any())
    return bool(low.min() >= 0.0 and (np.abs(total - 1.0) <= sum_tolerance(dtype)).all())


def score_errors(
    scores: npt.NDArray[Any],
    kind: Kind,
    *,
    masked: bool = True,
    owner: str = "PreservingCalibrator",
) -> list[InputError]:
    """Return a refusal for each way in which rows cannot be used, with all such rows.

    A row is refused once.  Who goes on around bad rows asks for all of them here.

    Examples
    --------
    >>> rows = np.array([[0.0, np.nan], [1.0, 2.0], [np.inf, 0.0], [np.nan, 0.0]])
    >>> [(each.reason, each.rows.tolist()) for each in score_errors(rows, "logits")]
    [('contains NaN', [0, 3]), ('contains +inf', [2])]
    """
    return merge_errors(
        refusal.offset_rows(at.start)
        for at in row_blocks(*scores.shape)
        for refusal in _block_refusals(scores[at], kind, masked, owner)
        if refusal is not None
    )


def _block_refusals(
    block: npt.NDArray[Any], kind: Kind, masked: bool, owner: str
) -> Iterator[InputError | None]:
    low, high = block.min(axis=1), block.max(axis=1)
    usable = np.isfinite(high)
    yield row_error(np.isnan(high), "scores", "contains NaN", DROP)
    yield row_error(np.isposinf(high), "scores", "contains +inf", DROP)
    empty = np.isneginf(high)
    words = "has no class left: every logit is −inf"
    yield row_error(empty, "scores", "has no class left", DROP, detail=lambda _: words)
    if kind == "logits":
        if not masked:
            yield masked_class_error(usable & np.isneginf(low), owner)
        return
    yield row_error(
        usable & (low < 0.0),
        "scores",
        "contains a negative number",
        "write {option} if they are logits",
        detail=lambda row: (
            f"contains a negative number ({float(low[row]):.6g}), so these are not probabilities"
        ),
        option=("input", "logits"),
    )
    total = _totals(block.astype(np.float64))[:, 0]
    yield row_error(
        usable & (low >= 0.0) & ~(np.abs(total - 1.0) <= sum_tolerance(block.dtype)),
        "scores",
        "does not sum to 1",
        "write {option} if they are logits, or divide each row by its sum",
        detail=lambda row: (
            f"sums to {float(total[row]):.6g}, not 1, so these are not probabilities"
        ),
        option=("input", "logits"),
    )


def masked_class_error(flags: npt.NDArray[np.bool_], owner: str) -> InputError | None:
    """Return the refusal of rows with masked classes by a map that cannot take them."""
    words = f"contains −inf (a masked class), which the calibrator {owner!r} cannot take"
    hint = "use one that can, e.g. 'ts', 'svs' or 'irova', or replace −inf by a finite logit"
    return row_error(flags, "scores", "contains −inf", hint, detail=lambda _: words)


def _like_probabilities(block: npt.NDArray[Any], *, loose: bool) -> bool:
    """Tell whether every row is a probability vector, as no row of logits is but by chance."""
    if block[0].min() < 0.0 or block.min() < 0.0 or block.max() > 1.0:
        return False
    if not loose and np.isin(block, (0.0, 1.0)).all():
        return False  # a few one-hot rows may be either kind
    deviation = np.abs(block.sum(axis=1, dtype=np.float64) - 1.0)
    tolerance = (
        sum_tolerance(block.dtype) if loose else sum_warning_level(block.dtype, block.shape[1])
    )
    return bool((deviation <= tolerance).all())


@dataclass(frozen=True, eq=False)
class CheckedScores:
    """Scores that passed the door; whoever is handed one checks nothing again.

    Attributes
    ----------
    given : ndarray of shape (n, K)
        The scores in the dtype they came in.
    kind : {"logits", "probabilities"}
        What they are.
    probabilities : ndarray of shape (n, K)
        p⁰ in float64.
    decision : ndarray of int of shape (n,)
        The argmax of what came in, in its own dtype, the smallest index on ties.
    """

    raw: npt.NDArray[Any]
    kind: Kind
    probabilities: Matrix
    decision: Decisions

    @classmethod
    def from_scores(cls, scores: Any, kind: Kind, *, fitting: bool = False) -> CheckedScores:
        """Check scores of a known kind; see `read_scores` for ``fitting``."""
        given = as_scores(scores)
        probabilities = read_scores(
            given, kind, "probabilities", masked=True, owner="PreservingCalibrator", fitting=fitting
        )
        return cls(given, kind, probabilities, given.argmax(axis=1))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.raw.shape[0])

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.raw.shape[1])

    @functools.cached_property
    def masked(self) -> npt.NDArray[np.bool_]:
        """Which rows have a logit of −inf."""
        return np.asarray(np.isneginf(self.raw.min(axis=1)))

    def take(self, rows: Classes) -> CheckedScores:
        """Return some of the rows."""
        return CheckedScores(
            self.raw[rows], self.kind, self.probabilities[rows], self.decision[rows]
        )

    def in_domain(self, domain: Domain, log_floor: float) -> Matrix:
        """Return the rows as what a map works on, in an array of the caller's own."""
        known = self.probabilities if self.kind == "probabilities" else self.raw
        if domain == "probabilities":
            return self.probabilities.copy()
        out = np.array(known, dtype=np.float64, order="C")
        for at in row_blocks(*out.shape):
            in_domain(out[at], self.kind, domain, log_floor, np)  # written over the block
        return out
