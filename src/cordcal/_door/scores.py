"""Scores and labels at the door of a calibrator: checked, and turned into what a map works on.

Everything runs over blocks of rows, so that a check costs no (n, K) temporaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door import arrays
from cordcal._door.expressions import Domain as Domain
from cordcal._door.expressions import Kind as Kind
from cordcal._door.expressions import in_domain

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]

# A probability of zero has no logarithm; 1e-12 is the floor of the paper's NLL too.
LOG_FLOOR = 1e-12

# 2 MB of float64: a block and its buffer stay in the cache.
_BLOCK_ENTRIES = 2**18


def row_blocks(rows: int, classes: int, *, least: int = 1) -> Iterator[slice]:
    """Yield slices of rows that hold about 2 MB of float64 each, and ``least`` rows or more."""
    size = max(least, _BLOCK_ENTRIES // classes)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def block_buffer(rows: int, classes: int) -> Matrix:
    """Return room for one block: reusing it spares the system a fresh page for every entry."""
    return np.empty((min(rows, max(1, _BLOCK_ENTRIES // classes)), classes))


def row_weights(rows: int, weight: Vector | None) -> Vector:
    """Return weights that sum to one."""
    return np.full(rows, 1.0 / rows) if weight is None else weight / weight.sum()


def check_kind(kind: Any) -> None:
    """Refuse anything but the two kinds of scores."""
    if kind not in ("logits", "probabilities"):
        raise ValueError(f'input is {kind!r}; write input="logits" or input="probabilities"')


def as_scores(scores: Any) -> npt.NDArray[Any]:
    """Return the scores as a floating (n, K) NumPy array, in their own dtype."""
    array = arrays.as_matrix(arrays.to_numpy(scores), "scores")
    return np.asarray(array)


def check_labels(labels: Any, rows: int, classes: int) -> Labels:
    """Return the labels as an integer vector of length ``rows``.

    Examples
    --------
    >>> check_labels([0, 2, 1], rows=3, classes=3)
    array([0, 2, 1])
    """
    array = arrays.to_numpy(labels)
    if array.ndim != 1 or array.shape[0] != rows:
        raise ValueError(
            f"labels has shape {array.shape} but scores has {rows} rows; "
            f"pass one class index for each row"
        )
    if array.dtype.kind == "f":
        bad = ~(np.isfinite(array) & (array == np.round(array)))
        if bad.any():
            row = arrays.first_row(bad)
            raise ValueError(
                f"labels: row {row} is {array[row]}, not a class index; "
                f"pass integers 0..{classes - 1}"
            )
    elif array.dtype.kind not in "iub":
        raise ValueError(
            f"labels has dtype {array.dtype}; pass class indices 0..{classes - 1} "
            f"(the columns of scores), e.g. [class_names.index(label) for label in labels]"
        )
    outside = (array < 0) | (array >= classes)
    if outside.any():
        row = arrays.first_row(outside)
        raise ValueError(
            f"labels: row {row} is {array[row]}, outside 0..{classes - 1}; scores has "
            f"{classes} columns, so pass the column index of the true class"
        )
    return array.astype(np.intp, copy=False)


def check_variety(labels: Labels, weight: Vector | None) -> None:
    """Refuse calibration rows that all carry one label."""
    counted = labels if weight is None else labels[weight > 0.0]
    if (counted == counted[0]).all():
        raise ValueError(
            f"labels are all {int(counted[0])}; a calibrator needs rows of at least two "
            f"classes, so pass a calibration set drawn like the evaluation data"
        )


def check_own_scores(scores: npt.NDArray[Any], labels: Labels, kind: Kind) -> None:
    """Refuse a label whose class is masked in its row: its loss is infinite under any map."""
    if kind == "logits":
        masked = np.isneginf(scores[np.arange(labels.size), labels])
        if masked.any():
            row = arrays.first_row(masked)
            raise ValueError(
                f"labels: row {row} is {labels[row]}, a class whose logit is −inf (masked) in "
                f"that row; fix the label or unmask the class"
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
    for _ in _checked_blocks(scores, kind, masked=True, owner="Preserved"):
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
        low = _check_entries(block, at.start)
        wide = room[: block.shape[0]] if out is None else out[at]
        wide[:] = block
        if kind == "logits":
            if not masked and np.isneginf(low).any():
                _raise_masked(low, at.start, owner)
            suspicious = suspicious and _like_probabilities(block, loose=fitting)
        else:
            worst = max(worst, _normalise(wide, low, at.start, block.dtype))
        yield wide
    if suspicious:
        raise ValueError(
            "scores look like probabilities: every row lies in [0, 1] and sums to 1; "
            'write input="probabilities", or pass the logits themselves'
        )
    if kind == "probabilities":
        arrays.warn_about_sums(worst, "scores", scores.dtype, classes)


def original_probabilities(scores: npt.NDArray[Any], kind: Kind) -> Matrix:
    """Return p⁰, the classifier's own probabilities, in float64."""
    return read_scores(scores, kind, "probabilities", masked=True, owner="Preserved")


def _check_entries(block: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
    """Refuse NaN, +inf and rows without a class; return each row's smallest entry."""
    low, high = block.min(axis=1), block.max(axis=1)
    bad = ~np.isfinite(high)
    if bad.any():
        row = arrays.first_row(bad)
        what = {True: "contains NaN", False: "contains +inf"}[bool(np.isnan(high[row]))]
        if np.isneginf(high[row]):
            what = "has no class left: every logit is −inf"
        raise ValueError(f"scores: row {first + row} {what}; drop or fix such rows before calling")
    return np.asarray(low)


def _raise_masked(low: npt.NDArray[Any], first: int, owner: str) -> None:
    row = first + arrays.first_row(np.isneginf(low))
    raise ValueError(
        f"scores: row {row} contains −inf (a masked class), which the calibrator {owner!r} "
        f"cannot take; use one that can, e.g. 'ts', 'svs' or 'irova', or replace −inf by a "
        f"finite logit"
    )


def _like_probabilities(block: npt.NDArray[Any], *, loose: bool) -> bool:
    """Tell whether every row is a probability vector, as no row of logits is but by chance."""
    if block[0].min() < 0.0 or block.min() < 0.0 or block.max() > 1.0:
        return False
    if not loose and np.isin(block, (0.0, 1.0)).all():
        return False  # a few one-hot rows may be either kind
    deviation = np.abs(block.sum(axis=1, dtype=np.float64) - 1.0)
    tolerance = (
        arrays.sum_tolerance(block.dtype)
        if loose
        else arrays.sum_warning_level(block.dtype, block.shape[1])
    )
    return bool((deviation <= tolerance).all())


def _normalise(wide: Matrix, low: npt.NDArray[Any], first: int, dtype: Any) -> float:
    """Divide the rows by their sums; return the largest deviation of a sum from one."""
    negative = low < 0.0
    if negative.any():
        row = arrays.first_row(negative)
        raise ValueError(
            f"scores: row {first + row} contains a negative number ({float(low[row]):.6g}), so "
            f'these are not probabilities; write input="logits" if they are logits'
        )
    total = wide.sum(axis=1, keepdims=True)
    deviation = np.abs(total[:, 0] - 1.0)
    bad = deviation > arrays.sum_tolerance(dtype)
    if bad.any():
        row = arrays.first_row(bad)
        raise ValueError(
            f"scores: row {first + row} sums to {float(total[row, 0]):.6g}, not 1, so these are "
            f'not probabilities; write input="logits" if they are logits, or divide each row '
            f"by its sum"
        )
    wide /= total
    return float(deviation.max())
