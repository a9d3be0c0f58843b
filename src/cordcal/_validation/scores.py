"""The classifier's scores, validated once: logits or probabilities, and the predictions."""

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

# Zero has no logarithm, so probabilities are clipped here, as in the paper's NLL.
LOG_FLOOR = 1e-12


def row_weights(rows: int, weight: Vector | None) -> Vector:
    """Return weights that sum to one."""
    return np.full(rows, 1.0 / rows) if weight is None else weight / weight.sum()


# Some calibrators weigh rows against a prior worth a few rows.  If the largest weight is beyond
# these bounds, the smaller side contributes less than 1e-12, so the exact size does not matter.
_MIN_LARGEST_WEIGHT, _MAX_LARGEST_WEIGHT = 2.0**-40, 2.0**40


def rescale_large_weights(weight: Vector) -> Vector:
    """Rescale weights that would overflow or underflow: the largest ends up within 2^±40.

    Examples
    --------
    >>> rescale_large_weights(np.array([3.0, 0.5]))
    array([3. , 0.5])
    >>> rescale_large_weights(np.array([3e300, 6e300])) / 2.0**40
    array([0.5, 1. ])
    """
    largest = float(weight.max(initial=0.0))
    bounded = min(max(largest, _MIN_LARGEST_WEIGHT), _MAX_LARGEST_WEIGHT)
    return weight if bounded == largest else weight / largest * bounded


def check_kind(kind: Any) -> None:
    """Raise unless the kind is "logits" or "probabilities"."""
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
    """Refuse a label whose class is masked in its row: every calibrator has infinite loss there."""
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
    """Validate the scores and return them in float64, converted to the calibrator's domain.

    Parameters
    ----------
    scores : ndarray of shape (n, K)
        From `as_scores`.
    kind : {"logits", "probabilities"}
        What the scores are.
    domain : str
        What to return; see `Domain`.
    masked : bool
        Whether the calibrator accepts −inf logits.
    owner : str
        The calibrator's key, for messages.
    log_floor : float
        Smaller probabilities are raised to this before the logarithm.
    fitting : bool
        Whether these are calibration rows.  The check that logits are not probabilities is
        stricter for them: a few rows of a prediction can look like probabilities by chance.
    """
    out = np.empty(scores.shape)
    for block in _checked_blocks(scores, kind, out, masked=masked, owner=owner, fitting=fitting):
        in_domain(block, kind, domain, log_floor, np)  # in place
    return out


def original_probabilities(scores: npt.NDArray[Any], kind: Kind) -> Matrix:
    """Return p⁰, the classifier's own probabilities, in float64."""
    return read_scores(scores, kind, "probabilities", masked=True, owner="PreservingCalibrator")


def check_scores(scores: npt.NDArray[Any], kind: Kind) -> None:
    """Validate like `original_probabilities`, without returning anything."""
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
    """Yield validated blocks in float64, as views of ``out`` or of one reused buffer."""
    rows, classes = scores.shape
    buffer = block_buffer(rows if out is None else 0, classes)
    like_probabilities, max_deviation = kind == "logits", 0.0
    for at in row_blocks(rows, classes):
        raw = scores[at]
        block = buffer[: raw.shape[0]] if out is None else out[at]
        block[:] = raw
        low, high = raw.min(axis=1), raw.max(axis=1)
        total = _row_sums(block) if kind == "probabilities" else None
        if not _is_valid(low, high, total, raw.dtype, masked=masked):
            with renumber_rows(at.start):
                raise_first(*score_errors(scores[at.start :], kind, masked=masked, owner=owner))
        if total is None:
            like_probabilities = like_probabilities and _look_like_probabilities(
                raw, strict=fitting
            )
        else:
            max_deviation = max(max_deviation, float(np.abs(total - 1.0).max()))
            block /= total
        yield block
    if like_probabilities:
        raise InputError(
            "scores",
            "look like probabilities: every row lies in [0, 1] and sums to 1",
            "write {option}, or pass the logits themselves",
            option=("input", "probabilities"),
        )
    if kind == "probabilities":
        warn_about_sums(max_deviation, "scores", scores.dtype, classes)


@np.errstate(invalid="ignore")  # infinities of both signs raise an InputError later
def _row_sums(block: Matrix) -> Matrix:
    return np.asarray(block.sum(axis=1, keepdims=True))


def _is_valid(
    low: npt.NDArray[Any],
    high: npt.NDArray[Any],
    total: Matrix | None,
    dtype: np.dtype[Any],
    *,
    masked: bool,
) -> bool:
    """Whether all rows of a block are valid; their extremes and sums (of probabilities) decide."""
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
    """Return one error per reason, each with all its rows, for callers that skip invalid rows.

    Every invalid row is in exactly one error.

    Examples
    --------
    >>> rows = np.array([[0.0, np.nan], [1.0, 2.0], [np.inf, 0.0], [np.nan, 0.0]])
    >>> [(error.reason, error.rows.tolist()) for error in score_errors(rows, "logits")]
    [('contains NaN', [0, 3]), ('contains +inf', [2])]
    """
    return merge_errors(
        error.offset_rows(at.start)
        for at in row_blocks(*scores.shape)
        for error in _block_errors(scores[at], kind, masked, owner)
        if error is not None
    )


def _block_errors(
    block: npt.NDArray[Any], kind: Kind, masked: bool, owner: str
) -> Iterator[InputError | None]:
    low, high = block.min(axis=1), block.max(axis=1)
    usable = np.isfinite(high)
    yield row_error(np.isnan(high), "scores", "contains NaN", DROP)
    yield row_error(np.isposinf(high), "scores", "contains +inf", DROP)
    yield row_error(
        np.isneginf(high),
        "scores",
        "has no class left",
        DROP,
        detail=lambda _: "has no class left: every logit is −inf",
    )
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
    total = _row_sums(block.astype(np.float64))[:, 0]
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
    """Return the error of rows with −inf logits for a calibrator that does not accept them."""
    return row_error(
        flags,
        "scores",
        "contains −inf",
        "use one that can, e.g. 'ts', 'svs' or 'irova', or replace −inf by a finite logit",
        detail=lambda _: (
            f"contains −inf (a masked class), which the calibrator {owner!r} cannot take"
        ),
    )


def _look_like_probabilities(block: npt.NDArray[Any], *, strict: bool) -> bool:
    """Whether every row is a probability vector, which rows of logits are only by chance.

    With ``strict`` one-hot rows and rows with rounded sums count as well.
    """
    if block[0].min() < 0.0 or block.min() < 0.0 or block.max() > 1.0:
        return False
    if not strict and np.isin(block, (0.0, 1.0)).all():
        return False  # a few one-hot rows may be either kind
    deviation = np.abs(block.sum(axis=1, dtype=np.float64) - 1.0)
    tolerance = (
        sum_tolerance(block.dtype) if strict else sum_warning_level(block.dtype, block.shape[1])
    )
    return bool((deviation <= tolerance).all())


@dataclass(frozen=True, eq=False)
class CheckedScores:
    """Validated scores. Functions that take one need not validate again.

    Attributes
    ----------
    raw : ndarray of shape (n, K)
        The scores in their original dtype.
    kind : {"logits", "probabilities"}
        What the scores are.
    probabilities : ndarray of shape (n, K)
        p⁰ in float64.
    decision : ndarray of int of shape (n,)
        The argmax of ``raw``, the smallest index on ties.
    """

    raw: npt.NDArray[Any]
    kind: Kind
    probabilities: Matrix
    decision: Decisions

    @classmethod
    def from_scores(cls, scores: Any, kind: Kind, *, fitting: bool = False) -> CheckedScores:
        """Validate scores of a known kind; see `read_scores` for ``fitting``."""
        raw = as_scores(scores)
        probabilities = read_scores(
            raw, kind, "probabilities", masked=True, owner="PreservingCalibrator", fitting=fitting
        )
        return cls(raw, kind, probabilities, raw.argmax(axis=1))

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
        """Return the selected rows."""
        return CheckedScores(
            self.raw[rows], self.kind, self.probabilities[rows], self.decision[rows]
        )

    def in_domain(self, domain: Domain, log_floor: float) -> Matrix:
        """Return the rows converted to a calibrator's domain, in a new array."""
        if domain == "probabilities":
            return self.probabilities.copy()
        source = self.probabilities if self.kind == "probabilities" else self.raw
        out = np.array(source, dtype=np.float64, order="C")
        for at in row_blocks(*out.shape):
            in_domain(out[at], self.kind, domain, log_floor, np)  # in place
        return out
