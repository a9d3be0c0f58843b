"""Scores and probabilities, validated once: rows of logits, rows that are distributions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first, renumber_rows, row_error, warn
from cordcal._numeric.arrays import (
    UNIT_ROUNDOFF,
    block_buffer,
    dtype_name,
    namespace,
    row_blocks,
    to_numpy,
)
from cordcal._numeric.types import (
    Array,
    ArrayLike,
    Classes,
    Domain,
    DType,
    Floats,
    Kind,
    Labels,
    Matrix,
    NumPyDType,
    Predictions,
    Vector,
)
from cordcal.expressions import extreme_of_rows, in_domain

DROP = "drop or fix such rows before calling"

# Fast path: arrays of these dtypes need no conversion.
_FLOAT_DTYPES = frozenset(map(np.dtype, ("float64", "float32", "float16")))

# Accepts probabilities rounded to three decimals that sum to 0.999 or 1.001; 2^-20 is more than
# the rounding of float32 sums in any order.
_SUM_TOLERANCE = 1e-3 + 2.0**-20

# What a model was fitted on decides, except about rows that are plainly probabilities: logits in
# [0, 1] would sum to one as exactly by chance less often than this.  A row (0.2, 0.3, 0.5) may be
# logits, since among numbers with one decimal every tenth sum is that of such a row; a softmax in
# float64 or float32 may not, nor may two different rows in float16 or with three decimals.
_MAX_CHANCE = 1e-6


def as_matrix(values: ArrayLike, name: str, *, allow_row: bool = False) -> Array:
    """Return ``values`` as a floating-point (n, K) array; arrays are not copied.

    Parameters
    ----------
    values : array_like
        A float array, a list of rows, or a data frame whose columns are classes.
    name : str
        The argument's name, for messages.
    allow_row : bool
        Also accept a single 1-D row, which is returned 1-D.
    """
    array = (
        values
        if type(values) is np.ndarray and values.dtype in _FLOAT_DTYPES
        else _to_floats(values, name)
    )
    shape = array.shape
    if len(shape) == 2:
        if shape[0] == 0:
            raise InputError(name, "has no rows", "pass at least one")
    elif len(shape) != 1 or not allow_row:
        raise InputError(name, f"has {len(shape)} dimension(s)", _shape_hint(values, name, shape))
    if shape[-1] < 2:
        raise InputError(
            name,
            f"has {shape[-1]} class(es)",
            f"at least 2 columns are needed: if it is the probability of the second of two "
            f"classes, pass np.column_stack([1 - {name}, {name}])",
        )
    return array


def _shape_hint(values: ArrayLike, name: str, shape: tuple[int, ...]) -> str:
    """Return how to pass an array of another number of dimensions than two."""
    if len(shape) != 1:
        return "pass a 2-D array of shape (rows, classes)"
    if to_numpy(values).dtype.kind in "iub":
        return _order_hint(name)
    return (
        f"pass a 2-D array of shape (rows, classes): {name}[None] for a single row, or "
        f"np.column_stack([1 - {name}, {name}]) for the probability of the second of two classes"
    )


def _order_hint(name: str) -> str:
    return f"the order is ({name}, labels), and {name} has one column per class"


def _to_floats(values: ArrayLike, name: str) -> Array:
    """Return an array of a supported dtype, in the library of the values."""
    array = _numpy_matrix(values, name) if namespace(values) is np else values
    if dtype_name(array.dtype) not in UNIT_ROUNDOFF:
        is_text = str(getattr(array.dtype, "kind", "")) in "OSUT"
        if is_text and len(array.shape) == 1:
            raise InputError(name, f"has dtype {array.dtype}", _order_hint(name))
        raise InputError(
            name, f"has dtype {array.dtype}", "pass an array of floats, one column per class"
        )
    return array


def _numpy_matrix(values: ArrayLike, name: str) -> Array:
    array = to_numpy(values, name)
    if array.dtype.kind == "b":
        raise InputError(
            name, "holds truth values", "pass numbers, e.g. scores; .astype(float) for one-hot rows"
        )
    # Integers may be counts or votes; longdouble exceeds the precision of everything else.
    if array.dtype.kind in "iu" or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
        return _round_to_float64(array)
    return array


def _round_to_float64(array: Floats) -> npt.NDArray[np.float64]:
    """Round to float64 with the same argmax, also where rounding ties the largest entries."""
    rounded = array.astype(np.float64)
    if array.ndim == 2 and array.size:
        top = array.argmax(axis=1)
        tied = np.flatnonzero(rounded.argmax(axis=1) != top)
        rounded[tied, top[tied]] = np.nextafter(rounded[tied].max(axis=1), np.inf)
    return rounded


def check_same_shape(first: Array, first_name: str, second: Array, second_name: str) -> None:
    """Refuse two matrices of different shapes."""
    if tuple(first.shape) != tuple(second.shape):
        raise InputError(
            first_name,
            f"has shape {tuple(first.shape)} but {second_name} has shape {tuple(second.shape)}",
            "both must hold the same rows and classes",
        )


# Typed, because some libraries' dtypes warn when they are compared with NumPy's.
@functools.lru_cache(maxsize=None, typed=True)
def sum_tolerance(dtype: DType) -> float:
    """Return the deviation from one up to which a row sum is accepted (and normalised)."""
    # 8u is the error of a half-precision softmax.
    return max(_SUM_TOLERANCE, 8.0 * UNIT_ROUNDOFF[dtype_name(dtype)])


@functools.lru_cache(maxsize=None, typed=True)
def sum_warning_level(dtype: DType, classes: int) -> float:
    """Return the deviation of a row sum from one that rounding cannot explain."""
    # K roundings of random sign add up to about u·√K; 32 allows for the softmax's own error.
    # float64 probabilities are often widened from float32, or come from exp of large
    # log-probabilities (naive Bayes), which loses more than one unit: so u is float32's at least.
    unit = max(UNIT_ROUNDOFF[dtype_name(dtype)], UNIT_ROUNDOFF["float32"])
    return 32.0 * unit * float(np.sqrt(classes))


def check_probabilities(probabilities: Array, sums: Array, name: str, dtype: DType) -> float:
    """Refuse rows that are not distributions; return the largest deviation of a row sum from one.

    Parameters
    ----------
    probabilities : array of shape (n, K)
        The rows.
    sums : array of shape (n,)
        The row sums as the caller computes them; not finite if an entry is not.
    name : str
        The argument's name.
    dtype : dtype
        The dtype of the argument as the caller passed it.
    """
    xp = namespace(sums)
    deviation = float(to_numpy(xp.max(xp.abs(sums - 1.0))))
    if not are_distributions(xp.min(probabilities), deviation, dtype):
        raise_first(*probability_errors(probabilities, sums, name, dtype))
    return deviation


def are_distributions(smallest: Array, deviation: float, dtype: DType) -> bool:
    """Whether all rows are distributions.

    ``smallest`` is their smallest entry, ``deviation`` the largest distance of a row sum from
    one, which is not finite if an entry is not.
    """
    return bool(deviation <= sum_tolerance(dtype) and smallest >= 0.0)


def probability_errors(
    probabilities: Array, sums: Array, name: str, dtype: DType
) -> list[InputError]:
    """Return one error per reason why rows are not distributions, each with all its rows.

    Every invalid row is in exactly one error: that of NaN, infinities, negative numbers or the
    sum, whichever applies first.
    """
    xp, row_sums = namespace(probabilities), to_numpy(sums)
    flags = (xp.isnan(probabilities), xp.isinf(probabilities), probabilities < 0.0)
    nan, infinite, negative = (to_numpy(xp.any(entries, axis=1)) for entries in flags)
    bad_sum = ~(np.abs(row_sums - 1.0) <= sum_tolerance(dtype))
    not_finite = nan | infinite
    errors = (
        row_error(nan, name, "contains NaN", DROP),
        row_error(infinite & ~nan, name, "contains an infinite value", DROP),
        row_error(
            negative & ~not_finite,
            name,
            "contains a negative number",
            f"pass probabilities. If these are logits, apply a softmax first, e.g. "
            f"scipy.special.softmax({name}, axis=1)",
            detail=lambda row: (
                f"contains a negative number ({float(xp.min(probabilities[row, :])):.6g})"
            ),
        ),
        row_error(
            bad_sum & ~not_finite & ~negative,
            name,
            "does not sum to 1",
            "pass whole probability vectors (divide each row by its sum if they are "
            "unnormalised, or apply a softmax to logits)",
            detail=lambda row: f"sums to {float(row_sums[row]):.6g}, not 1",
        ),
    )
    return [error for error in errors if error is not None]


def nan_error(matrix: Array, name: str) -> InputError | None:
    """Return the error of all rows with a NaN, for callers that only need the order of entries."""
    xp = namespace(matrix)
    return row_error(to_numpy(xp.any(xp.isnan(matrix), axis=1)), name, "contains NaN", DROP)


def warn_about_sums(deviation: float, name: str, dtype: DType, classes: int) -> None:
    """Warn if row sums deviate from one by more than rounding explains."""
    if deviation > sum_warning_level(dtype, classes):
        warn(
            f"{name}: some rows sum to one only within {deviation:.2g}; they are normalised. "
            f"Divide each row by its sum to silence this warning"
        )


def warn_about_pair(deviations: Sequence[float], original: Array, direct: Array) -> None:
    """Warn about both inputs of a repair, by the largest deviation of each."""
    for deviation, name, matrix in zip(
        deviations, ("original", "direct"), (original, direct), strict=True
    ):
        warn_about_sums(deviation, name, matrix.dtype, matrix.shape[1])


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


def check_kind(kind: object) -> None:
    """Raise unless the kind is "logits" or "probabilities"."""
    if kind not in ("logits", "probabilities"):
        raise InputError("input", f"is {kind!r}", 'write input="logits" or input="probabilities"')


def as_scores(scores: ArrayLike, classes: int | None = None) -> Floats:
    """Return the scores as a floating-point (n, K) NumPy array, without changing their dtype.

    ``classes`` is the number of columns seen in fit; another number of columns is refused.
    """
    if type(scores) is not np.ndarray:
        scores = to_numpy(scores, "scores")
    array: Floats = as_matrix(scores, "scores")
    if classes is not None and array.shape[1] != classes:
        raise InputError(
            "scores",
            f"has {array.shape[1]} columns but fit saw {classes}",
            "pass the same classes as in fit",
        )
    return array


def check_labels_unmasked(scores: Floats, labels: Labels, kind: Kind) -> None:
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
    scores: Floats,
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


def original_probabilities(scores: Floats, kind: Kind) -> Matrix:
    """Return p⁰, the classifier's own probabilities, in float64."""
    return read_scores(scores, kind, "probabilities", masked=True, owner="PreservingCalibrator")


def check_scores(scores: Floats, kind: Kind) -> None:
    """Validate like `original_probabilities`, without returning anything."""
    for _ in _checked_blocks(scores, kind, masked=True, owner="PreservingCalibrator"):
        pass


def _checked_blocks(
    scores: Floats,
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
    like_probabilities, max_deviation, chance = kind == "logits", 0.0, 1.0
    for at in row_blocks(rows, classes):
        raw = scores[at]
        block = buffer[: raw.shape[0]] if out is None else out[at]
        block[:] = raw
        low, high = (extreme_of_rows(ufunc, raw)[:, 0] for ufunc in (np.minimum, np.maximum))
        total = _row_sums(block) if kind == "probabilities" else None
        if not _is_valid(low, high, total, raw.dtype, masked=masked):
            with renumber_rows(at.start):
                raise_first(*score_errors(scores[at.start :], kind, masked=masked, owner=owner))
        if total is None:
            like_probabilities = (
                like_probabilities
                and not low[0] < 0.0
                and _look_like_probabilities(raw, strict=fitting)
            )
            if like_probabilities and not fitting and chance > _MAX_CHANCE:
                chance *= _chance_of_sums(raw)
        else:
            max_deviation = max(max_deviation, float(np.abs(total - 1.0).max()))
            block /= total
        yield block
    if like_probabilities and (fitting or chance <= _MAX_CHANCE):
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
    low: Floats,
    high: Floats,
    total: Matrix | None,
    dtype: NumPyDType,
    *,
    masked: bool,
) -> bool:
    """Whether all rows of a block are valid; their extremes and sums (of probabilities) decide."""
    if np.count_nonzero(np.isfinite(high)) < high.size:
        return False
    if total is None:
        return masked or not bool(np.isneginf(low).any())
    return bool(low.min() >= 0.0 and (np.abs(total - 1.0) <= sum_tolerance(dtype)).all())


def score_errors(
    scores: Floats,
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
    block: Floats, kind: Kind, masked: bool, owner: str
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


def _look_like_probabilities(block: Floats, *, strict: bool) -> bool:
    """Whether every row lies in [0, 1] and sums to one; with ``strict`` also if it was rounded."""
    if block.min() < 0.0 or block.max() > 1.0:
        return False
    deviation = np.abs(block.sum(axis=1, dtype=np.float64) - 1.0)
    tolerance = (
        sum_tolerance(block.dtype) if strict else sum_warning_level(block.dtype, block.shape[1])
    )
    return bool((deviation <= tolerance).all())


def _chance_of_sums(block: Floats) -> float:
    """Bound the probability that logits in [0, 1] sum to one as exactly as these rows.

    Copies of a row are one coincidence.  A sum is within d of one with probability 2d at most,
    and among multiples of a step it is one with the probability of that step.

    Examples
    --------
    >>> _chance_of_sums(np.array([[0.25, 0.75], [0.25, 0.75]])), _chance_of_sums(np.eye(3))
    (0.25, 1.0)
    """
    rows = np.unique(block, axis=0)
    deviation = float(np.abs(rows.sum(axis=1, dtype=np.float64) - 1.0).max())
    chance = min(1.0, max(_step(rows), 2.0 * deviation, 2.0**-53))
    return float(chance ** len(rows))


def are_plainly_probabilities(rows: Floats) -> bool:
    """Whether logits in [0, 1] would hardly sum to one as these rows do.

    Examples
    --------
    >>> few_decimals, softmax = np.array([[0.2, 0.3, 0.5]]), np.exp([[-0.75, -0.639, 0.0]])
    >>> are_plainly_probabilities(few_decimals)
    False
    >>> are_plainly_probabilities(softmax / softmax.sum())
    True
    """
    return _chance_of_sums(rows) <= _MAX_CHANCE


def _step(values: Floats) -> float:
    """Return the largest power of 1/10 or 1/2 of which all numbers are multiples; else zero."""
    wide = values.astype(np.float64)
    decimals = (d for d in range(10) if (wide.round(d).astype(values.dtype) == values).all())
    bits = (b for b in range(32) if (np.ldexp(wide, b) % 1.0 == 0.0).all())
    return max(10.0 ** -next(decimals, np.inf), 2.0 ** -next(bits, np.inf))


@dataclass(frozen=True, eq=False)
class CheckedScores:
    """Validated scores. Functions that take one need not validate again.

    Attributes
    ----------
    raw : ndarray of shape (n, K)
        The scores in their original dtype.
    kind : {"logits", "probabilities"}
        What the scores are.
    prediction : ndarray of int of shape (n,)
        The argmax of ``raw``, the smallest index on ties.
    original : ndarray of shape (n, K), optional
        p⁰ in float64, if it is not what the scores are converted to.
    clusters : ndarray of int of shape (n,), optional
        Rows with the same number belong together, and a fit holds them out together.
    """

    raw: Floats
    kind: Kind
    prediction: Predictions
    original: Matrix | None = None
    clusters: Classes | None = None

    @classmethod
    def from_scores(
        cls,
        scores: ArrayLike,
        kind: Kind,
        *,
        classes: int | None = None,
        fitting: bool = False,
    ) -> CheckedScores:
        """Validate scores of a known kind; see `as_scores` and `read_scores`."""
        raw = as_scores(scores, classes)
        probabilities = read_scores(
            raw, kind, "probabilities", masked=True, owner="PreservingCalibrator", fitting=fitting
        )
        checked = cls(raw, kind, raw.argmax(axis=1))
        checked.__dict__["probabilities"] = probabilities
        return checked

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of classes."""
        return self.rows, self.classes

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.raw.shape[0])

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.raw.shape[1])

    @functools.cached_property
    def probabilities(self) -> Matrix:
        """p⁰ in float64."""
        return (
            self.in_domain("probabilities", LOG_FLOOR) if self.original is None else self.original
        )

    @functools.cached_property
    def masked(self) -> npt.NDArray[np.bool_]:
        """Which rows have a logit of −inf."""
        return np.asarray(np.isneginf(self.raw.min(axis=1)))

    @functools.cached_property
    def has_masked(self) -> bool:
        """Whether any logit is −inf."""
        return self.kind == "logits" and bool(np.minimum.reduce(self.raw, axis=None) == -np.inf)

    def comparable(self) -> Floats:
        """Return scores that are equal for rows that mean the same.

        A constant added to a row of logits leaves its log-probabilities, up to rounding: they
        are rounded to six decimals, which no difference in rounding is likely to cross.
        """
        if self.kind == "probabilities":
            return self.raw
        logs = self.in_domain("log-probabilities", LOG_FLOOR)
        return np.round(logs, 6, out=logs)

    def release(self) -> None:
        """Free p⁰, which is computed again when it is needed."""
        self.__dict__.pop("probabilities", None)

    def take(self, rows: Classes | slice) -> CheckedScores:
        """Return the selected rows."""
        original = None if self.original is None else self.original[rows]
        clusters = None if self.clusters is None else self.clusters[rows]
        part = CheckedScores(self.raw[rows], self.kind, self.prediction[rows], original, clusters)
        if "probabilities" in self.__dict__:
            part.__dict__["probabilities"] = self.probabilities[rows]
        return part

    def in_domain(
        self,
        domain: Domain,
        log_floor: float,
        *,
        rows: Classes | None = None,
        memory: Matrix | None = None,
    ) -> Matrix:
        """Return the rows converted to a calibrator's domain, in a new array or in ``memory``.

        Parameters
        ----------
        domain : str
            The domain; see `Domain`.
        log_floor : float
            Smaller probabilities are raised to this before the logarithm.
        rows : ndarray of int, optional
            Which rows, by default all.
        memory : ndarray, optional
            At least as many rows of float64.
        """
        probabilities: Matrix | None = self.__dict__.get("probabilities", self.original)
        known = probabilities is not None and "probabilities" in (domain, self.kind)
        source: Floats = self.raw if probabilities is None or not known else probabilities
        shape = self.rows if rows is None else len(rows), self.classes
        out = np.empty(shape) if memory is None else memory[: shape[0]]
        for at in row_blocks(*shape):
            block = out[at]
            block[:] = source[at if rows is None else rows[at]]
            if self.kind == "probabilities" and not known:
                block /= _row_sums(block)
            if domain != self.kind and not (known and domain == "probabilities"):
                in_domain(block, self.kind, domain, log_floor, np)  # in place
        return out
