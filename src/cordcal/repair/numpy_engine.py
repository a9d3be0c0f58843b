"""The array engine: the row rule and the nested rule over NumPy arrays in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first, renumber_rows
from cordcal._numeric.arrays import lane_sum, lane_sum_of_row, row_blocks, scratch
from cordcal._numeric.exact import ExactSum, weighted
from cordcal._numeric.types import Flags, Floats, Matrix, NumPyDType, Predictions, Vector
from cordcal._validation.scores import (
    are_distributions,
    probability_errors,
    sum_warning_level,
    warn_about_pair,
)
from cordcal.repair import ranking, rule
from cordcal.repair.ranking import Level, RankedRows
from cordcal.repair.rule import EPSILON, RowState, Split
from cordcal.repair.solve import ConstraintValue

# Halley's error is the third power of the last step: below this it is finer than the grid.
_CLOSE = 2.0**-17
# Two or three steps suffice on most data; more than this is not worth the time.
_STEPS = 8
# A block and the vectors over its rows stay in the processor's cache while they are worked on.
_BLOCK_ENTRIES = 2**17
_BLOCK_ROWS = 2**12
# Classes that are multiplied by their weights at a time.
_CLASS_BLOCK = 16
# Rows of a pass over vectors.
_VECTOR_BLOCK = 2**16


@dataclass(frozen=True, slots=True)
class Block:
    """One block of rows with their intervals and references.

    The tails are stored class by class (`part.tail` is a view of that), because NumPy works on
    vectors over all rows several times faster than on short rows.  The next block reuses their
    memory.  Direct rows whose sums deviate by more than ``level`` from one are normalised.
    """

    rows: slice
    supplied: Floats
    state: RowState
    part: Split
    level: float

    @property
    def direct(self) -> Matrix:
        """The direct rows in float64."""
        return np.asarray(self.supplied, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """One block of rows that are distributions: as supplied, and widened to float64.

    The deviations are the largest distances of row sums from one; direct rows that deviate by
    more than ``level`` are normalised.
    """

    rows: slice
    original: Floats
    direct: Floats
    prediction: Predictions | None
    wide_original: Vector
    wide_direct: Vector
    original_deviation: float
    direct_deviation: float

    @property
    def level(self) -> float:
        return sum_warning_level(self.direct.dtype, self.direct.shape[1])


def checked_blocks(
    original: Floats, direct: Floats, prediction: Predictions | None, *, first: int = 0
) -> Iterator[CheckedBlock]:
    """Check the rows block by block; warn once about inexact sums at the end.

    ``first`` is the number of the first row in the caller's arrays, for error messages.
    """
    worst = [0.0, 0.0]
    for at in row_blocks(*direct.shape):
        p, q = original[at], direct[at]
        wide_p, wide_q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        deviations = [deviation(_row_sums(wide)) for wide in (wide_p, wide_q)]
        for probabilities, most in zip((p, q), deviations, strict=True):
            if not are_distributions(probabilities.min(), most, probabilities.dtype):
                _raise_for(original, direct, at.start, first)
        worst = list(map(max, worst, deviations))
        keep = None if prediction is None else prediction[at]
        yield CheckedBlock(at, p, q, keep, wide_p, wide_q, *deviations)
    warn_about_pair(worst, original, direct)


def _raise_for(original: Floats, direct: Floats, start: int, first: int) -> None:
    """Raise the error of the first invalid row from ``start`` on, if there is one."""
    with renumber_rows(first + start):
        raise_first(*pair_errors(original[start:], direct[start:]))


def deviation(totals: Vector) -> float:
    """Return the largest distance of the sums from one."""
    return float(np.abs(totals - 1.0).max())


def pair_errors(original: Floats, direct: Floats) -> list[InputError]:
    """Return one error per kind of bad row, with all such rows, for callers that skip them."""
    return merge_errors(
        error.offset_rows(at.start)
        for at in row_blocks(*direct.shape)
        for name, block in (("original", original[at]), ("direct", direct[at]))
        for error in probability_errors(
            block, _row_sums(block.astype(np.float64)), name, block.dtype
        )
    )


@np.errstate(invalid="ignore")  # rows with infinities of both signs get an error of their own
def _row_sums(wide: Vector) -> Vector:
    return np.asarray(lane_sum(wide))


def described_blocks(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    *,
    class_weights: Vector | None = None,
    reference_weight: float = 0.5,
    first: int = 0,
) -> Iterator[Block]:
    """Check and describe the rows block by block; see `checked_blocks`.

    The sum of a direct row is that of its two parts, as in the kernels.
    """
    worst = [0.0, 0.0]
    rows, classes = direct.shape
    blocks = row_blocks(rows, classes, most=_BLOCK_ROWS, entries=_BLOCK_ENTRIES)
    with scratch(_column_entries(blocks[0].stop, classes)) as memory:
        for at in blocks:
            p, q = original[at], direct[at]
            wide = np.asarray(p, dtype=np.float64)
            keep = np.argmax(p, axis=1) if prediction is None else prediction[at]
            with np.errstate(invalid="ignore"):  # infinities of both signs get an error later
                sums, columns = np.einsum("ij->i", wide), _split_columns(q, keep, memory)
            deviations = deviation(sums), deviation(columns.entry + columns.rest)
            if not (
                are_distributions(p.min(), deviations[0], p.dtype)
                and are_distributions(columns.smallest.min(), deviations[1], q.dtype)
            ):
                _raise_for(original, direct, at.start, first)
            worst = list(map(max, worst, deviations))
            top, own = columns.top, columns.entry
            if class_weights is not None:
                top, own = columns.weighted_top(class_weights), own * class_weights[keep]
            moved = top > own
            tied = np.flatnonzero(top == own)
            if tied.size:
                moved[tied] = np.argmax(_weighted(q[tied], class_weights), axis=1) != keep[tied]
            part = columns.stabilised()
            if class_weights is not None:
                rival = _rival(part, top, class_weights)
                part = replace(part, rival=rival, own=class_weights[keep])
            masses = _original_masses(wide, keep, moved, class_weights)
            state = rule.split_state(part, masses, keep, moved, reference_weight, xp=np)
            yield Block(at, q, state, part, sum_warning_level(q.dtype, classes))
    warn_about_pair(worst, original, direct)


def _weighted(rows: Floats, class_weights: Vector | None) -> Floats:
    """Return w · p, or the rows themselves without weights."""
    return rows if class_weights is None else rows.astype(np.float64) * class_weights


def _rival(part: Split, top: Vector, class_weights: Vector) -> Vector:
    """Return `rule.Split.rival`; ``top`` is the largest of w · q among the other classes."""
    tiny = np.flatnonzero((part.scale != 1.0) & ~part.boundary)
    if tiny.size:
        rows = (part.tail[tiny] * part.scale[tiny, None]) * class_weights
        top = top.copy()
        top[tiny] = rows.max(axis=1)
    return np.asarray(rule.largest_rival(part, top, class_weights.max(), xp=np))


def _original_masses(
    original: Matrix, prediction: Predictions, moved: Flags, class_weights: Vector | None
) -> tuple[Vector, Vector]:
    """Return the original masses on the predictions of changed rows, and their complements.

    The other rows, which are most of them, do not need these masses.
    """
    mass, rest = np.zeros(len(moved)), np.zeros(len(moved))
    changed = np.flatnonzero(moved)
    if changed.size:
        rows = original[changed]
        if class_weights is not None:
            rows = rule.unweighted(rows, class_weights)
        mass[changed], rest[changed] = prediction_masses(rows, prediction[changed])
    return mass, rest


def prediction_masses(rows: Floats, prediction: Predictions) -> tuple[Vector, Vector]:
    """Return the stabilised masses on the predictions, and their complements."""
    columns = _split_columns(rows, prediction, np.empty(_column_entries(*rows.shape)))
    mass, rest = rule.normalised(columns.stabilised())
    return mass, rest


class _Columns(NamedTuple):
    """Rows split at their predictions, with the tails class by class; see `rule.Split`."""

    entry: Vector
    tail: Matrix
    rest: Vector
    top: Vector
    smallest: Vector

    def weighted_top(self, class_weights: Vector) -> Vector:
        """Return the largest of w · q among the other classes, without a copy of the block."""
        tail = self.tail.T
        top, product = np.zeros(len(self.entry)), np.empty((_CLASS_BLOCK, len(self.entry)))
        for start in range(0, len(tail), _CLASS_BLOCK):
            at = slice(start, start + _CLASS_BLOCK)
            part = np.multiply(tail[at], class_weights[at, None], out=product[: len(tail[at])])
            np.maximum(top, part.max(axis=0), out=top)
        return top

    def stabilised(self) -> Split:
        """Return what `rule.split` returns for these rows."""
        boundary = self.smallest == 0.0
        if boundary.any() or self.rest.min(initial=1.0) < rule.TINY_TAIL:
            return rule.stabilised(self.entry, self.tail, self.rest, self.top, boundary, xp=np)
        # No row needs it: the stabilised copy is the row itself.
        ones, zeros = np.ones(len(boundary)), np.zeros(len(boundary))
        total = self.entry + self.rest
        return Split(
            self.entry, self.tail, self.top, total, self.entry, self.rest, ones, zeros, boundary
        )


def _column_entries(rows: int, classes: int) -> int:
    """Return the size of the memory that `_split_columns` needs."""
    return rows * (classes + 8)


def _split_columns(rows: Floats, prediction: Predictions, memory: Vector) -> _Columns:
    """Split each row between its prediction and the other classes; the tails lie in ``memory``."""
    entries = memory[: rows.size]
    lanes = memory[rows.size : _column_entries(*rows.shape)]
    columns = entries.reshape(rows.shape[::-1])
    columns[...] = rows.T
    smallest = columns.min(axis=0)
    chosen = prediction * len(rows) + np.arange(len(rows))
    entry = entries[chosen]
    entries[chosen] = 0.0
    tail = columns.T
    return _Columns(entry, tail, lane_sum(tail, lanes), columns.max(axis=0), smallest)


@dataclass(frozen=True, slots=True)
class Description:
    """Calibration rows reduced to three numbers per row and some exact sums.

    ``target_sum`` is Σ w τ for the masses τ whose mean is retained: the direct ones (b) for
    CORD.  ``reference_shift`` is Σ w (g − τ): with it the constraint Σ w (s − τ) needs the
    references only.
    """

    reference: Vector
    reference_rest: Vector
    lower: Vector
    direct_sum: ExactSum
    lower_sum: ExactSum
    target_sum: ExactSum
    reference_shift: ExactSum
    n_changed: int

    @classmethod
    def from_state(
        cls, state: RowState | Level, weight: Vector | None, n_changed: int
    ) -> Description:
        """Return the description of CORD's rows from float64 vectors."""
        b, b_rest = state.direct_mass, state.direct_rest
        g, g_rest = state.reference, state.reference_rest
        direct_sum = weighted(b, weight)
        shift = weighted(rule.gap(g, g_rest, b, b_rest), weight)
        lower_sum = weighted(state.lower, weight)
        return cls(g, g_rest, state.lower, direct_sum, lower_sum, direct_sum, shift, n_changed)


# Which masses' mean is retained: the direct masses, the local references, or the direct masses
# clipped to their intervals.
MeanTarget = Literal["direct", "reference", "projected"]


def describe(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    weight: Vector | None,
    threads: int = 1,
    class_weights: Vector | None = None,
    *,
    reference_weight: float = 0.5,
    target: MeanTarget = "direct",
) -> Description:
    """Check and describe every calibration row, on one core whatever ``threads`` is."""
    rows = direct.shape[0]
    reference, reference_rest, lower = (np.empty(rows) for _ in range(3))
    direct_sum = lower_sum = target_sum = shift = ExactSum()
    changed = 0
    for block in described_blocks(
        original,
        direct,
        prediction,
        class_weights=class_weights,
        reference_weight=reference_weight,
    ):
        state, at = block.state, block.rows
        reference[at], reference_rest[at] = state.reference, state.reference_rest
        lower[at] = state.lower
        w = None if weight is None else weight[at]
        direct_sum += weighted(state.direct_mass, w)
        lower_sum += weighted(state.lower, w)
        mass, rest = _target(state, target)
        if target != "direct":
            target_sum += weighted(mass, w)
        shift += weighted(rule.gap(state.reference, state.reference_rest, mass, rest), w)
        changed += int(np.count_nonzero(state.changed))
    if target == "direct":
        target_sum = direct_sum
    return Description(
        reference, reference_rest, lower, direct_sum, lower_sum, target_sum, shift, changed
    )


def _target(state: RowState, target: MeanTarget) -> tuple[Vector, Vector]:
    """Return the masses whose mean is retained, and their complements."""
    if target == "direct":
        return state.direct_mass, state.direct_rest
    if target == "reference":
        return state.reference, state.reference_rest
    mass, rest, _ = rule.response(0.0, state.direct_mass, state.direct_rest, state.lower)
    return mass, rest


def probes(
    etas: Sequence[float],
    reference: Vector,
    reference_rest: Vector,
    lower: Vector,
    weight: Vector | None,
    threads: int = 1,
) -> list[ConstraintValue]:
    """Evaluate the constraint at some candidates, on one core whatever ``threads`` is."""
    return [_probe(eta, reference, reference_rest, lower, weight) for eta in etas]


def search(
    shift: float, reference: Vector, reference_rest: Vector, lower: Vector, weight: Vector | None
) -> float:
    """Return an approximate root of Σ w (s(η) − g) + shift, or zero if there is none nearby.

    The sums are rounded, so the result is a starting point only.
    """
    eta = 0.0
    for _ in range(_STEPS):
        excess, slope, bend = _estimate(eta, reference, reference_rest, lower, weight)
        if not slope > 0.0:
            return 0.0
        newton = (excess + shift) / slope
        # Halley's step, unless it is more than twice Newton's.
        step = newton / max(0.5, 1.0 - 0.5 * newton * bend / slope)
        eta -= step
        if not abs(eta) < np.inf:
            return 0.0
        if abs(step) <= _CLOSE * max(1.0, abs(eta)):
            return eta
    return 0.0


def _estimate(
    eta: float, g: Vector, g_rest: Vector, lower: Vector, weight: Vector | None
) -> tuple[float, float, float]:
    """Return Σ w (s(η) − g) and its first two derivatives."""
    shift, radius = rule.shift_and_radius(eta, g, g_rest)
    inverse = 1.0 / radius
    mass, rest, rise = rule.response(eta, g, g_rest, lower)
    bend = rise * inverse * ((rest - mass) - shift * inverse)
    gap = mass - g
    if weight is None:
        return float(gap.sum()), float(rise.sum()), float(bend.sum())
    return float(gap @ weight), float(rise @ weight), float(bend @ weight)


def _probe(
    eta: float, reference: Vector, reference_rest: Vector, lower: Vector, weight: Vector | None
) -> ConstraintValue:
    """Evaluate Σ w (s(η) − g), its derivative, and the number of rows at each bound."""
    excess, slope, low, high = ExactSum(), 0.0, 0, 0
    for start in range(0, reference.shape[0], _VECTOR_BLOCK):
        at = slice(start, start + _VECTOR_BLOCK)
        g, g_rest = reference[at], reference_rest[at]
        mass, rest, rise = rule.response(eta, g, g_rest, lower[at])
        w = None if weight is None else weight[at]
        excess += weighted(rule.gap(mass, rest, g, g_rest), w)
        slope += float(rise.sum() if w is None else rise @ w)
        bound = at_bound(rest, rise)
        low += int(np.count_nonzero(bound < 0))
        high += int(np.count_nonzero(bound > 0))
    return ConstraintValue(excess, slope, low, high)


def at_bound(rest: Vector, slope: Vector) -> npt.NDArray[np.int8]:
    """Return -1 for masses at their lower bound, 1 at the upper one, 0 otherwise."""
    clipped = np.where(rest == EPSILON, 1, -1)
    return np.where(slope == 0.0, clipped, 0).astype(np.int8)


def repair(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    eta: float,
    out: Floats,
    threads: int = 1,
    class_weights: Vector | None = None,
    *,
    reference_weight: float = 0.5,
    first: int = 0,
) -> None:
    """Write the repaired rows to ``out``, in its dtype, the prediction strictly the largest."""

    def mass_of_row(state: RowState, xp: Any) -> tuple[float, float]:
        return rule.repaired_mass(eta, state, xp=xp)

    # A row may stay as it is at η = 0, and class weights need another last step.
    is_plain = eta != 0.0 and class_weights is None and reference_weight == 0.5
    if is_plain and len(direct) == 1 and repair_row(original, direct, prediction, mass_of_row, out):
        return
    for block in described_blocks(
        original,
        direct,
        prediction,
        class_weights=class_weights,
        reference_weight=reference_weight,
        first=first,
    ):
        _write(eta, block, out[block.rows], class_weights)


def _write(eta: float, block: Block, out: Floats, class_weights: Vector | None) -> None:
    """Write the rows of `rule.repair_rows`, rounded, with the prediction strictly first."""
    state, part = block.state, block.part
    mass, rest = rule.repaired_mass(eta, state, xp=np)
    same = rule.unchanged(part, state, block.level) if eta == 0.0 else None
    write_rows(block, mass, rest, out, same, class_weights)


def write_rows(
    block: Block,
    mass: Vector,
    rest: Vector,
    out: Floats,
    same: Flags | None = None,
    class_weights: Vector | None = None,
) -> None:
    """Write `rule.rebuild` of these masses, rounded, with the prediction strictly first.

    That is `rule.raise_prediction`, or `rule.enforce_rule` with class weights.  The same bits,
    but without temporaries: it overwrites the tail, which is not read again.
    Rows in ``same`` are written as supplied.
    """
    part, prediction = block.part, block.state.prediction
    scale, factor = part.scale, rest / part.rest
    if same is not None:
        mass = np.where(same, part.entry, mass)
        scale, factor = np.where(same, 1.0, scale), np.where(same, 1.0, factor)
    shift = part.offset * factor
    columns = part.tail.T
    if (scale != 1.0).any():
        columns *= scale
    columns *= factor
    if shift.any():
        columns += shift
    top = mass.astype(out.dtype, copy=False)
    if part.rival is None:
        # Rounding preserves order, so the largest rival is the rounded largest entry.
        rival = ((part.top * scale) * factor + shift).astype(out.dtype, copy=False)
        tied = np.flatnonzero(top <= rival)
        if tied.size:
            top[tied] = rule.next_above(rival[tied])
    columns[prediction, np.arange(len(top))] = top
    out[...] = columns.T
    if class_weights is not None and part.rival is not None and part.own is not None:
        margin, slack = rule.rounding_margin(float(class_weights.max()), out.dtype)
        close = np.flatnonzero(~(part.own * mass > (part.rival * factor) * margin + slack))
        if close.size:
            out[close] = rule.enforce_rule(out[close], prediction[close], class_weights)


class _Numbers:
    """The namespace in which the rule works on one row: Python's numbers instead of vectors."""

    sqrt = staticmethod(math.sqrt)

    @staticmethod
    def ones_like(number: float) -> float:
        return 1.0

    @staticmethod
    def where(condition: bool, x: float, y: float) -> float:
        return x if condition else y

    # Only NumPy's own functions give the bits of its vectors.
    @staticmethod
    def log(number: float) -> float:
        return float(np.log(number))

    @staticmethod
    def exp(number: float) -> float:
        return float(np.exp(number))


# The clipped mass and its complement of a row, in a namespace.
MassOfRow = Callable[[RowState, Any], tuple[float, float]]


def repair_row(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    mass_of_row: MassOfRow,
    out: Floats,
) -> bool:
    """Repair a single row with few calls; return False for a row that is left to `write_rows`.

    That is a row that is invalid, has an exact zero or a tie, or does not sum to one.
    """
    p, q = original[0], np.array(direct[0], dtype=np.float64)
    keep = int(p.argmax() if prediction is None else prediction[0])
    part, masses = _split_row(q, keep, direct.dtype), (0.0, 0.0)
    if part is None or part.top == part.entry:
        return False
    level = sum_warning_level(p.dtype, p.size)
    if not (p.min() >= 0.0 and abs(p.sum(dtype=np.float64) - 1.0) <= level):
        return False
    moved = part.top > part.entry
    if moved:
        original_part = _split_row(np.array(p, dtype=np.float64), keep, p.dtype)
        if original_part is None:
            return False
        masses = rule.normalised(original_part)
    state = rule.split_state(part, masses, keep, moved, xp=_Numbers)
    mass, rest = mass_of_row(state, _Numbers)
    factor = rest / part.rest
    top, rival = out.dtype.type(mass), out.dtype.type(part.top * factor)
    q *= factor
    out[0] = q
    out[0, keep] = top if top > rival else rule.next_above(np.asarray(rival))
    return True


def _split_row(row: Vector, keep: int, dtype: NumPyDType) -> Split | None:
    """Split one row at its prediction, whose entry becomes zero; None if it needs `stabilised`."""
    entry, smallest = float(row[keep]), float(np.minimum.reduce(row))
    row[keep] = 0.0
    rest, top = lane_sum_of_row(row), float(np.maximum.reduce(row))
    total = entry + rest
    level = sum_warning_level(dtype, row.size)
    if not (smallest > 0.0 and rest >= rule.TINY_TAIL and abs(total - 1.0) <= level):
        return None
    return Split(entry, row, top, total, entry, rest, 1.0, 0.0, False)


def rank_block(block: CheckedBlock, levels: int) -> RankedRows:
    """Arrange the rows of a checked block in the original order."""
    order = ranking.kept_order(block.original, block.prediction)
    return ranking.rank_rows(block.wide_original, block.wide_direct, order, levels)


def repair_ranked(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    etas: Vector,
    out: Floats,
    threads: int = 1,
    *,
    first: int = 0,
) -> None:
    """Write the repaired rows to ``out``, in its dtype, the first ranks in order."""
    scalars = etas.tolist()
    for block in checked_blocks(original, direct, prediction, first=first):
        rows = rank_block(block, len(scalars))
        wide = ranking.repair_rows(block.wide_direct, rows, scalars, block.level)
        out[block.rows] = ranking.raise_order(wide.astype(out.dtype), rows, len(scalars))


__all__ = ["describe", "probes", "repair", "repair_ranked", "search"]
