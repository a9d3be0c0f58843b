"""The engine: the row rule and the nested rule over NumPy arrays, in blocks that fit the cache.

``rule.py`` says what is computed; here are the passes over the entries, fused with the checks:
copy the direct rows, take the prediction out, one sum, one maximum, one minimum, then vectors
with one number per row, and at the end one product that puts the row back together.

A row has the same bits alone, in any block, on any thread and in any memory order: its sum is
that of a copy whose layout depends only on the number of classes, and whatever is done for some
rows of a block (exact zeros, tiny tails, ties) does not touch the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, merge_errors, raise_first, renumber_rows
from cordcal._numeric.arrays import row_blocks, scratch
from cordcal._numeric.exact import ExactSum, weighted
from cordcal._numeric.parallel import run_blocks
from cordcal._numeric.types import Flags, Floats, Matrix, Predictions, Vector
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

# A block and the vectors over its rows stay in the processor's cache while they are worked on.
# Not a power of two rows, whose columns would all fall on the same cache lines.
_BLOCK_ENTRIES = 2**17
_BLOCK_ROWS = 2**12 - 8
# Rows of fewer classes are stored class by class: NumPy reduces long vectors faster than short
# rows.  From here on the two copies in another order cost more than they save.
LONG_ROW = 48
# Rows of a pass over vectors.
_VECTOR_BLOCK = 2**16

# Halley's error is the third power of the last step: below this it is finer than the grid.
_CLOSE = 2.0**-17
# Two or three steps suffice on most data; more than this is not worth the time.
_STEPS = 8


@dataclass(frozen=True, slots=True)
class Block:
    """One block of checked rows with their intervals and references.

    The tails (`part.tail`) lie in memory that the next block reuses.  Direct rows whose sums
    deviate by more than ``level`` from one are normalised.  The deviations are the largest
    distances of row sums from one.
    """

    rows: slice
    supplied: Floats
    state: RowState
    part: Split
    level: float
    class_weights: Vector | None
    original_deviation: float
    direct_deviation: float

    @property
    def direct(self) -> Matrix:
        """The direct rows in float64."""
        return np.asarray(self.supplied, dtype=np.float64)

    def take(self, some: Predictions) -> Block:
        """Return some rows of the block, in memory of their own."""
        return replace(
            self,
            supplied=self.supplied[some],
            state=_rows_of(self.state, some),
            part=_rows_of(self.part, some),
        )

    def write(self, mass: Vector, rest: Vector, out: Floats, same: Flags | None = None) -> None:
        """Write `rule.rebuild` of these masses, rounded, with the prediction strictly first.

        It overwrites the tails, which are not read again.  Rows in ``same`` are written as
        supplied.
        """
        part, prediction = self.part, self.state.prediction
        tail, top, scale = part.tail, part.top, part.scale
        share = rest / part.rest
        if same is not None:
            mass, share = np.where(same, part.entry, mass), np.where(same, 1.0, share)
            scale = np.where(same, 1.0, scale)
        factor, shift = share, part.offset * share
        if (scale != 1.0).any():
            # A tiny tail is scaled first: scale times share alone would overflow.
            tiny = np.where(part.boundary, 1.0, scale)
            factor = share * np.where(part.boundary, scale, 1.0)
            if (tiny != 1.0).any():
                tail *= tiny[:, None]
                top = top * tiny
        tail *= factor[:, None]
        if shift.any():
            tail += shift[:, None]
        out[...] = tail
        rounded = mass.astype(out.dtype)
        if self.class_weights is None:
            # Rounding preserves order, so the largest rival is the rounded largest entry.
            rival = (top * factor + shift).astype(out.dtype, copy=False)
            tied = np.flatnonzero(rounded <= rival)
            if tied.size:
                rounded[tied] = rule.next_above(rival[tied])
        out[np.arange(len(out)), prediction] = rounded
        if self.class_weights is not None and part.rival is not None and part.own is not None:
            margin, slack = rule.rounding_margin(float(self.class_weights.max()), out.dtype)
            close = np.flatnonzero(~(part.own * mass > (part.rival * share) * margin + slack))
            if close.size:
                out[close] = rule.enforce_rule(out[close], prediction[close], self.class_weights)


Vectors = TypeVar("Vectors", RowState, Split, RankedRows)


def _rows_of(record: Vectors, some: Predictions) -> Vectors:
    """Return the record of some rows."""
    vectors = (getattr(record, field.name) for field in fields(record))
    return type(record)(*(None if vector is None else vector[some] for vector in vectors))


def described_blocks(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    class_weights: Vector | None = None,
) -> Iterator[Block]:
    """Check and describe the rows block by block; warn once about inexact sums at the end."""
    worst = (0.0, 0.0)
    for block in _blocks(original, direct, prediction, class_weights, slice(0, len(direct))):
        worst = _worse(worst, block)
        yield block
    warn_about_pair(worst, original, direct)


def visit_blocks(
    visit: Callable[[Block], None],
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    class_weights: Vector | None = None,
    threads: int = 1,
) -> None:
    """Call a function with each block of `described_blocks`, in any order, on some threads."""

    def work(rows: slice) -> tuple[float, float]:
        worst = (0.0, 0.0)
        for block in _blocks(original, direct, prediction, class_weights, rows):
            visit(block)
            worst = _worse(worst, block)
        return worst

    rows, classes = direct.shape
    # Short rows gain nothing: NumPy's calls on their vectors wait for each other.
    deviations = run_blocks(work, rows, classes, threads if classes >= LONG_ROW else 1, rows)
    warn_about_pair([max(each) for each in zip(*deviations, strict=True)], original, direct)


def cord_rows(eta: float, block: Block, out: Floats) -> None:
    """Write the rows of `rule.repair_rows`, rounded, with the prediction strictly first."""
    mass, rest = rule.repaired_mass(eta, block.state, xp=np)
    same = rule.unchanged(block.part, block.state, block.level) if eta == 0.0 else None
    block.write(mass, rest, out, same)


def _worse(worst: tuple[float, float], block: Block | CheckedBlock) -> tuple[float, float]:
    """Return the largest deviations from one, of the original and of the direct sums."""
    original, direct = worst
    return max(original, block.original_deviation), max(direct, block.direct_deviation)


def _blocks(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    class_weights: Vector | None,
    rows: slice,
) -> Iterator[Block]:
    """Check and describe some of the rows block by block."""
    classes = direct.shape[1]
    level = sum_warning_level(direct.dtype, classes)
    blocks = row_blocks(rows.stop - rows.start, classes, most=_BLOCK_ROWS, entries=_BLOCK_ENTRIES)
    with scratch(blocks[0].stop * classes) as memory:
        for block in blocks:
            at = slice(rows.start + block.start, rows.start + block.stop)
            p, q = original[at], direct[at]
            wide = np.asarray(p, dtype=np.float64)
            keep = np.argmax(p, axis=1) if prediction is None else prediction[at]
            with np.errstate(invalid="ignore"):  # infinities of both signs get an error later
                sums, taken = np.einsum("ij->i", wide), _take_out(q, keep, memory)
            deviations = deviation(sums), deviation(taken.entry + taken.rest)
            if not (
                are_distributions(wide.min(), deviations[0], p.dtype)
                and are_distributions(taken.smallest.min(), deviations[1], q.dtype)
            ):
                _raise_for(original, direct, at.start)
            top = _largest(taken.tail)
            part = taken.stabilised(top)
            own = taken.entry
            if class_weights is not None:
                top, own = _largest(taken.tail * class_weights), own * class_weights[keep]
                rival = _rival(part, top, class_weights)
                part = replace(part, rival=rival, own=class_weights[keep])
            moved = top > own
            tied = np.flatnonzero(top == own)
            if tied.size:  # the first of the tied classes is the prediction
                moved[tied] = np.argmax(_weighted(q[tied], class_weights), axis=1) != keep[tied]
            state = _state(wide, keep, part, moved, class_weights)
            yield Block(at, q, state, part, level, class_weights, *deviations)


def _weighted(rows: Floats, class_weights: Vector | None) -> Floats:
    """Return w · p, or the rows themselves without weights."""
    return rows if class_weights is None else rows.astype(np.float64) * class_weights


def _rival(part: Split, top: Vector, class_weights: Vector) -> Vector:
    """Return `rule.Split.rival`; ``top`` is the largest of w · q among the other classes."""
    tiny = np.flatnonzero((part.scale != 1.0) & ~part.boundary)
    if tiny.size:  # scaled first, so that no product is subnormal
        rows = (part.tail[tiny] * part.scale[tiny, None]) * class_weights
        top = top.copy()
        top[tiny] = rows.max(axis=1)
    return np.asarray(rule.largest_rival(part, top, class_weights.max(), xp=np))


def _state(
    original: Matrix,
    prediction: Predictions,
    part: Split,
    moved: Flags,
    class_weights: Vector | None,
) -> RowState:
    """Return interval and reference; the original masses are computed for changed rows only."""
    b, b_rest = rule.normalised(part)
    g, g_rest = b, b_rest
    changed = np.flatnonzero(moved)
    if changed.size:
        rows = original[changed]
        if class_weights is not None:
            rows = rule.unweighted(rows, class_weights)
        p, p_rest = prediction_masses(rows, prediction[changed])
        g, g_rest = b.copy(), b_rest.copy()
        g[changed], g_rest[changed] = rule.mix(b[changed], p), rule.mix(b_rest[changed], p_rest)
    return RowState(prediction, b, b_rest, g, g_rest, rule.lower_of(part), moved)


def prediction_masses(rows: Floats, prediction: Predictions) -> tuple[Vector, Vector]:
    """Return the stabilised masses on the predictions, and their complements."""
    with scratch(rows.size) as memory:
        taken = _take_out(rows, prediction, memory)
        mass, rest = rule.normalised(taken.stabilised(taken.rest))  # of any largest entry
    return mass, rest


class _TakenOut(NamedTuple):
    """Rows without their predictions: those entries, the tails, their sums, the smallest entries.

    The tails are stored row by row, or class by class if the rows are short.
    """

    entry: Vector
    tail: Matrix
    rest: Vector
    smallest: Vector

    def stabilised(self, top: Vector) -> Split:
        """Return what `rule.split` returns for these rows; ``top`` is the tails' largest entry."""
        boundary = self.smallest == 0.0
        if boundary.any() or self.rest.min() < rule.TINY_TAIL:
            return rule.stabilised(self.entry, self.tail, self.rest, top, boundary, xp=np)
        # No row needs it: the stabilised copy is the row itself.
        ones, zeros = np.ones(len(top)), np.zeros(len(top))
        total = self.entry + self.rest
        return Split(
            self.entry, self.tail, top, total, self.entry, self.rest, ones, zeros, boundary
        )


def _take_out(rows: Floats, prediction: Predictions, memory: Vector) -> _TakenOut:
    """Copy the rows to ``memory``, and take the entries at the predictions out of them."""
    count, classes = rows.shape
    entries = memory[: rows.size]
    if classes >= LONG_ROW:
        tail = entries.reshape(count, classes)
        chosen = np.arange(count) * classes + prediction
    else:
        tail = entries.reshape(classes, count).T
        chosen = prediction * count + np.arange(count)
    tail[...] = rows
    smallest = _smallest(tail)
    entry = entries[chosen]
    entries[chosen] = 0.0
    return _TakenOut(entry, tail, _sums(tail), smallest)


def _sums(rows: Matrix) -> Vector:
    """Sum each row as it is stored: in pairs, or class by class from the first to the last."""
    if len(rows) == 1 and rows.shape[1] < LONG_ROW:
        # NumPy would sum a single row in pairs; next to a copy of itself it does not.
        return np.asarray(np.repeat(rows.T, 2, axis=1).sum(axis=0)[:1])
    return np.asarray(rows.sum(axis=1))


def _largest(rows: Matrix) -> Vector:
    """Return the largest entry of each row."""
    # NumPy finds the place of the largest entry of a long row faster than the entry.
    is_long = rows.shape[1] >= LONG_ROW
    return _at(rows, rows.argmax(axis=1)) if is_long else np.asarray(rows.max(axis=1))


def _smallest(rows: Matrix) -> Vector:
    """Return the smallest entry of each row."""
    is_long = rows.shape[1] >= LONG_ROW
    return _at(rows, rows.argmin(axis=1)) if is_long else np.asarray(rows.min(axis=1))


def _at(rows: Matrix, classes: Predictions) -> Vector:
    """Return one entry of each row."""
    return np.asarray(rows[np.arange(len(rows)), classes])


def deviation(totals: Vector) -> float:
    """Return the largest distance of the sums from one."""
    return float(np.abs(totals - 1.0).max())


def _raise_for(original: Floats, direct: Floats, start: int) -> None:
    """Raise the error of the first invalid row from ``start`` on, if there is one."""
    with renumber_rows(start):
        raise_first(*pair_errors(original[start:], direct[start:]))


def pair_errors(original: Floats, direct: Floats) -> list[InputError]:
    """Return one error per kind of bad row, with all such rows, for callers that skip them."""
    return merge_errors(
        error.offset_rows(at.start)
        for at in row_blocks(*direct.shape)
        for name, block in (("original", original[at]), ("direct", direct[at]))
        for error in probability_errors(block, _row_sums(block), name, block.dtype)
    )


@np.errstate(invalid="ignore")  # rows with infinities of both signs get an error of their own
def _row_sums(rows: Floats) -> Vector:
    return np.asarray(rows.sum(axis=1, dtype=np.float64))


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
    def from_state(cls, state: RowState | Level, weight: Vector | None) -> Description:
        """Return the description of CORD's rows from float64 vectors."""
        b, b_rest = state.direct_mass, state.direct_rest
        g, g_rest = state.reference, state.reference_rest
        direct_sum = weighted(b, weight)
        lower_sum = weighted(state.lower, weight)
        changed = np.flatnonzero(state.changed)  # elsewhere the reference is the direct mass
        gap = rule.gap(g[changed], g_rest[changed], b[changed], b_rest[changed])
        shift = weighted(gap, None if weight is None else weight[changed])
        return cls(g, g_rest, state.lower, direct_sum, lower_sum, direct_sum, shift, changed.size)


def describe(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    weight: Vector | None,
    class_weights: Vector | None = None,
    threads: int = 1,
) -> Description:
    """Check and describe every calibration row."""
    reference, reference_rest, lower = (np.empty(len(direct)) for _ in range(3))
    parts: list[Description] = []

    def visit(block: Block) -> None:
        at = block.rows
        part = Description.from_state(block.state, None if weight is None else weight[at])
        reference[at], reference_rest[at] = part.reference, part.reference_rest
        lower[at] = part.lower
        parts.append(part)

    visit_blocks(visit, original, direct, prediction, class_weights, threads)
    direct_sum = sum((part.direct_sum for part in parts), ExactSum())
    return Description(
        reference,
        reference_rest,
        lower,
        direct_sum,
        sum((part.lower_sum for part in parts), ExactSum()),
        direct_sum,
        sum((part.reference_shift for part in parts), ExactSum()),
        sum(part.n_changed for part in parts),
    )


def probes(
    etas: Sequence[float],
    reference: Vector,
    reference_rest: Vector,
    lower: Vector,
    weight: Vector | None,
) -> list[ConstraintValue]:
    """Evaluate Σ w (s(η) − g), its derivative, and the rows at each bound, at candidates."""
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


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """One block of rows that are distributions: as supplied, and widened to float64, C-ordered.

    The deviations are the largest distances of row sums from one; direct rows that deviate by
    more than ``level`` are normalised.
    """

    rows: slice
    original: Floats
    direct: Floats
    prediction: Predictions | None
    wide_original: Matrix
    wide_direct: Matrix
    original_deviation: float
    direct_deviation: float

    @property
    def level(self) -> float:
        """How far from one a sum may be by rounding."""
        return sum_warning_level(self.direct.dtype, self.direct.shape[1])

    def ranked(self, levels: int) -> RankedRows:
        """Return the rows in the original order of their classes."""
        order = ranking.kept_order(self.original, self.prediction)
        return ranking.rank_rows(self.wide_original, self.wide_direct, order, levels)


def checked_blocks(
    original: Floats, direct: Floats, prediction: Predictions | None
) -> Iterator[CheckedBlock]:
    """Check the rows block by block; warn once about inexact sums at the end."""
    worst = (0.0, 0.0)
    for at in row_blocks(*direct.shape):
        p, q = original[at], direct[at]
        wide_p, wide_q = (np.ascontiguousarray(rows, dtype=np.float64) for rows in (p, q))
        deviations = [deviation(_row_sums(wide)) for wide in (wide_p, wide_q)]
        for probabilities, most in zip((p, q), deviations, strict=True):
            if not are_distributions(probabilities.min(), most, probabilities.dtype):
                _raise_for(original, direct, at.start)
        keep = None if prediction is None else prediction[at]
        block = CheckedBlock(at, p, q, keep, wide_p, wide_q, *deviations)
        worst = _worse(worst, block)
        yield block
    warn_about_pair(worst, original, direct)


def repair_ranked(
    original: Floats,
    direct: Floats,
    prediction: Predictions | None,
    etas: Vector,
    out: Floats,
) -> None:
    """Write the rows repaired by the nested rule to ``out``, the first ranks in order."""
    scalars = etas.tolist()
    for block in checked_blocks(original, direct, prediction):
        rows = block.ranked(len(scalars))
        wide = ranking.repair_rows(block.wide_direct, rows, scalars, block.level)
        rounded = wide.astype(out.dtype)
        wrong = np.flatnonzero(~ranking.in_order(rounded, rows, len(scalars)))
        if wrong.size:
            some = _rows_of(rows, wrong)
            rounded[wrong] = ranking.raise_order(rounded[wrong], some, len(scalars))
        out[block.rows] = rounded
