"""Row reductions as LLVM vector code for the compiled kernels, and the layout of a tile.

Long rows are reduced one by one in eight lanes.  The order of a sum is what makes the kernels
and `lane_sum` agree to the bit.

Short rows are reduced four at a time: folding the eight lanes of a short row into one takes
longer than the row itself.  So the rows are the lanes: four entries of four rows are transposed
in registers, and each vector then holds one entry of every row.  Sums keep the order of
`lane_sum`.  Without this a whole ``CORD.transform`` at K = 10 takes 1.42 times as long for 5,000
rows, and for 200,000 rows 1.43 times in float32 and 1.13 times in float64, where memory is the
limit (one core, AVX2; CPU time); ``CORD.fit`` takes 1.2 to 1.4 times as long.

A tile's scratch space is one flat array with a stretch of `TILE` doubles for each quantity: LLVM
vectorises loops over stretches a constant distance apart, and gives up on that many separate
arrays, which might overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cordcal.repair.kernels._simd import (
    ABOVE,
    DOUBLE,
    INDEX,
    LANES,
    VECTOR,
    Row,
    added,
    fold,
    halves,
    larger,
    smaller,
    splat,
    spread,
)

# Rows of a tile: 64 amortise the phases.
TILE = 64

# How many rows one call of a kernel may sum up exactly (see ``_sums.py``).
SUM_ROWS = 2**15

(
    MASS,
    REST,
    TOP,
    LEAST,
    P_SUM,
    P_LEAST,
    P_MASS,
    P_REST,
    B,
    B_REST,
    G,
    G_REST,
    LOWER,
    SCALE,
    FACTOR,
    OFFSET,
    S,
    S_REST,
    SLOPE,
    RIVAL,
    OWN,
) = (np.uintp(i * TILE) for i in range(21))

SIZE = 21 * TILE

# Where ``limits`` holds, with class weights, `rule.rounding_margin` and the largest weight.
MARGIN, SLACK, HEAVIEST = 4, 5, 6


# Rows one by one, in eight lanes.

_INDICES = ir.VectorType(INDEX, LANES)
_HALF = ir.VectorType(ir.DoubleType(), LANES // 2)
_HALF_INDICES = ir.VectorType(INDEX, LANES // 2)
_LANE_NUMBERS = ir.Constant(_INDICES, list(range(LANES)))


def _earlier(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_signed("<", x, y), x, y)


def _doubled(builder: ir.IRBuilder, half: ir.Value) -> ir.Value:
    """Return a vector of which both halves are this one."""
    lanes = 2 * list(range(half.type.count))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(half, ir.Constant(half.type, ir.Undefined), mask)


class _Scan:
    """The reduction of one row: its sum, maximum and minimum in eight lanes.

    The entry ``skip`` counts in the minimum only.  With ``lanes`` the maxima of the lanes are
    kept, with ``place`` the index of the first largest entry, too.  With ``weights`` the maximum
    is that of the products; ``factors`` multiply every entry beforehand.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        row: Row,
        skip: ir.Value | None = None,
        *,
        lanes: bool = False,
        place: bool = False,
        weights: Row | None = None,
        factors: Row | None = None,
    ) -> None:
        self.builder, self.row = builder, row
        self.weights, self.factors = weights, factors
        self.total = cgutils.alloca_once_value(builder, splat(VECTOR, 0.0))
        # What does not depend on an order makes do with half the registers, which are scarce.
        width = VECTOR if lanes or place else _HALF
        self.most = cgutils.alloca_once_value(builder, splat(width, 0.0))
        self.least = cgutils.alloca_once_value(builder, splat(_HALF, ABOVE))
        # The start of the chunk in which each lane met its maximum.
        self.where = cgutils.alloca_once_value(builder, splat(_INDICES, 0)) if place else None
        # A lane meets the skipped entry in the chunk that starts here.
        self.skip_at = None
        if skip is not None:
            self.skip_at = builder.sub(spread(builder, skip), _LANE_NUMBERS)

    def take_whole(self, start: ir.Value, index: ir.Value) -> None:
        """Add the chunk of eight entries from ``index`` on; all lanes of ``start`` are that."""
        value = self.row.chunk(index)
        if self.factors is not None:
            value = self.builder.fmul(value, self.factors.chunk(index))
        weight = None if self.weights is None else self.weights.chunk(index)
        self._take(start, value, value, weight)

    def take_partial(self, start: ir.Value, index: ir.Value) -> None:
        """Add the last entries, fewer than eight, in the first lanes of a chunk."""
        zero = splat(VECTOR, 0.0)
        value, for_least = self.row.partial_chunk(index, zero, splat(VECTOR, ABOVE))
        if self.factors is not None:
            (factor,) = self.factors.partial_chunk(index, splat(VECTOR, 1.0))
            value, for_least = (self.builder.fmul(x, factor) for x in (value, for_least))
        weight = None
        if self.weights is not None:
            (weight,) = self.weights.partial_chunk(index, zero)
        self._take(start, value, for_least, weight)

    def _take(
        self, start: ir.Value, value: ir.Value, for_least: ir.Value, weight: ir.Value | None
    ) -> None:
        builder = self.builder
        self._combine(for_least, self.least, smaller)
        if self.skip_at is not None:
            skipped = builder.icmp_unsigned("==", start, self.skip_at)
            value = builder.select(skipped, splat(VECTOR, 0.0), value)
        builder.store(builder.fadd(builder.load(self.total), value), self.total)
        if self.where is not None:
            rises = builder.fcmp_ordered(">", value, builder.load(self.most))
            builder.store(builder.select(rises, start, builder.load(self.where)), self.where)
        if weight is not None:
            value = builder.fmul(value, weight)
        self._combine(value, self.most, larger)

    def _combine(self, value: ir.Value, place: ir.Value, combine: Any) -> None:
        """Update a maximum or minimum, whole or half as wide as the chunk."""
        before = self.builder.load(place)
        same = before.type == value.type
        for part in [value] if same else halves(self.builder, value):
            before = combine(self.builder, part, before)
        self.builder.store(before, place)

    def results(self) -> list[ir.Value]:
        """Return the sum, the maximum (with ``place`` its index instead) and the minimum."""
        builder, most = self.builder, self.builder.load(self.most)
        top = fold(builder, most, larger)
        if self.where is not None:
            at_top = builder.fcmp_ordered("==", most, spread(builder, top))
            index = builder.add(builder.load(self.where), _LANE_NUMBERS)
            nowhere = splat(_INDICES, 2**63 - 1)
            top = fold(builder, builder.select(at_top, index, nowhere), _earlier)
        total = fold(builder, builder.load(self.total), added)
        return [total, top, fold(builder, builder.load(self.least), smaller)]


def _run(builder: ir.IRBuilder, *scans: _Scan, ahead: bool = True) -> list[ir.Value]:
    """Emit the scans of rows of one length in one loop; return what they found.

    With ``ahead`` the rows' successors are asked for, since they will be scanned soon.
    """
    length = scans[0].row.length
    whole = builder.and_(length, ir.Constant(INDEX, -LANES))
    # Half a vector of equal numbers, and both halves the same register.
    half_start = cgutils.alloca_once_value(builder, splat(_HALF_INDICES, 0))

    def start() -> ir.Value:
        return _doubled(builder, builder.load(half_start))

    with cgutils.for_range_slice(
        builder, ir.Constant(INDEX, 0), whole, ir.Constant(INDEX, LANES), INDEX, inc=True
    ) as (index, _):
        for scan in scans:
            if ahead:
                # Long rows cross pages, where the hardware's own prefetching starts anew.
                scan.row.prefetch(builder.add(index, length))
            scan.take_whole(start(), index)
        following = builder.add(builder.load(half_start), splat(_HALF_INDICES, LANES))
        builder.store(following, half_start)
    with builder.if_then(builder.icmp_unsigned("<", whole, length)):
        for scan in scans:
            scan.take_partial(start(), whole)
    return [value for scan in scans for value in scan.results()]


_SCAN_RESULT = types.UniTuple(types.float64, 3)


@intrinsic
def scan_alone(typingctx: Any, array: Any, row: Any) -> Any:
    """Return the sum, maximum and minimum of a row that no other follows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = Row(context, builder, signature.args[0], *args)
        values = _run(builder, _Scan(builder, place), ahead=False)
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp), codegen


@intrinsic
def scan_both(
    typingctx: Any, array: Any, row: Any, maxima: Any, other_array: Any, other_row: Any
) -> Any:
    """Return the sum, maximum and minimum of two rows; store the first one's maxima of lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = Row(context, builder, signature.args[0], args[0], args[1])
        second = Row(context, builder, signature.args[3], args[3], args[4])
        scans = _Scan(builder, first, lanes=True), _Scan(builder, second)
        values = _run(builder, *scans)
        lanes = context.make_array(signature.args[2])(context, builder, args[2])
        target = builder.bitcast(lanes.data, VECTOR.as_pointer())
        builder.store(builder.load(scans[0].most), target, align=8)
        return context.make_tuple(builder, signature.return_type, values)

    result = types.UniTuple(types.float64, 6)
    return result(array, types.uintp, maxima, other_array, types.uintp), codegen


@intrinsic
def scan_prediction(typingctx: Any, array: Any, row: Any) -> Any:
    """Return a row's sum, the index of its first largest entry, and its minimum.

    The index lies within the row whatever the entries are.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = Row(context, builder, signature.args[0], *args)
        values = _run(builder, _Scan(builder, place, place=True))
        return context.make_tuple(builder, signature.return_type, values)

    result = types.Tuple((types.float64, types.uintp, types.float64))
    return result(array, types.uintp), codegen


# Rows of the class weights that kernels read: w, 1 / w, and w rounded to the output's dtype.
WEIGHTS, INVERSE, NARROW = range(3)


def weight_row(
    context: Any, builder: ir.IRBuilder, kind: Any, weights: Any, row: int = WEIGHTS
) -> Row | None:
    """Return one row of the class weights, or None without them."""
    if isinstance(kind, types.NoneType):
        return None
    return Row(context, builder, kind, weights, ir.Constant(INDEX, row))


@intrinsic
def scan_without(typingctx: Any, array: Any, row: Any, skip: Any, weights: Any) -> Any:
    """Return a row's sum and maximum without entry ``skip``, and the minimum of all entries.

    With class weights the maximum is that of the products.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = Row(context, builder, signature.args[0], args[0], args[1])
        weighted = weight_row(context, builder, signature.args[3], args[3])
        values = _run(builder, _Scan(builder, place, args[2], weights=weighted))
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp, types.uintp, weights), codegen


@intrinsic
def scan_unweighted(typingctx: Any, array: Any, row: Any, skip: Any, weights: Any) -> Any:
    """Return `scan_without` of a row that is divided by the class weights first."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = Row(context, builder, signature.args[0], args[0], args[1])
        factors = weight_row(context, builder, signature.args[3], args[3], INVERSE)
        values = _run(builder, _Scan(builder, place, args[2], factors=factors))
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp, types.uintp, weights), codegen


@intrinsic
def scan_pair(
    typingctx: Any, array: Any, row: Any, skip: Any, weights: Any, other_array: Any, other_row: Any
) -> Any:
    """Return `scan_without` of one row and `scan_prediction` of another, from one loop.

    Two reductions that do not wait for each other keep more of the processor busy.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = Row(context, builder, signature.args[0], args[0], args[1])
        second = Row(context, builder, signature.args[4], args[4], args[5])
        weighted = weight_row(context, builder, signature.args[3], args[3])
        scans = (
            _Scan(builder, first, args[2], weights=weighted),
            _Scan(builder, second, place=True),
        )
        return context.make_tuple(builder, signature.return_type, _run(builder, *scans))

    double = types.float64
    result = types.Tuple((double, double, double, double, types.uintp, double))
    return result(array, types.uintp, types.uintp, weights, other_array, types.uintp), codegen


# Short rows, four at a time.

FOUR = 4
_QUAD = ir.VectorType(DOUBLE, FOUR)
_QUAD_INDICES = ir.VectorType(INDEX, FOUR)


def _shuffled(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, *order: int) -> ir.Value:
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), FOUR), order))


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Turn four entries of four rows into four vectors of one entry of each row."""
    even = [_shuffled(builder, *rows[at : at + 2], 0, 4, 2, 6) for at in (0, 2)]
    odd = [_shuffled(builder, *rows[at : at + 2], 1, 5, 3, 7) for at in (0, 2)]
    return [
        _shuffled(builder, *pair, *order)
        for order in ((0, 1, 4, 5), (2, 3, 6, 7))
        for pair in (even, odd)
    ]


class _FourRows:
    """Sum, maximum and minimum of four rows, entry by entry.

    With ``skip``, a vector of classes, those entries count in the minimum only.  Without,
    the index of the first largest entry is recorded too.  With ``weights`` the maximum is that of
    the products.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        rows: list[Row],
        skip: ir.Value | None,
        weights: Row | None = None,
    ) -> None:
        self.builder, self.rows, self.skip, self.weights = builder, rows, skip, weights
        zero = splat(_QUAD, 0.0)
        self.totals = [cgutils.alloca_once_value(builder, zero) for _ in range(LANES)]
        self.most = cgutils.alloca_once_value(builder, zero)
        self.where = cgutils.alloca_once_value(builder, splat(_QUAD_INDICES, 0))
        self.least = cgutils.alloca_once_value(builder, splat(_QUAD, ABOVE))

    def scan(self) -> None:
        """Go through all entries."""
        builder, length = self.builder, self.rows[0].length
        whole = builder.and_(length, ir.Constant(INDEX, -LANES))
        first, step = ir.Constant(INDEX, 0), ir.Constant(INDEX, LANES)
        with cgutils.for_range_slice(builder, first, whole, step, INDEX, inc=True) as (index, _):
            for lane in range(0, LANES, FOUR):
                start = builder.add(index, ir.Constant(INDEX, lane))
                weights = None if self.weights is None else self.weights.chunk(start, FOUR)
                self._take(lane, start, [row.chunk(start, FOUR) for row in self.rows], weights)
        for lane in range(0, LANES, FOUR):
            start = builder.add(whole, ir.Constant(INDEX, lane))
            with builder.if_then(builder.icmp_unsigned("<", start, length)):
                there = self.rows[0].within(start, FOUR)
                zero = splat(_QUAD, 0.0)
                entries = [row.partial_chunk(start, zero)[0] for row in self.rows]
                weights = None
                if self.weights is not None:
                    (weights,) = self.weights.partial_chunk(start, zero)
                self._take(lane, start, entries, weights, there)

    def _take(
        self,
        lane: int,
        start: ir.Value,
        rows: list[ir.Value],
        weights: ir.Value | None,
        there: ir.Value | None = None,
    ) -> None:
        builder = self.builder
        entries = _transposed(builder, rows)
        least = builder.load(self.least)
        for at, entry in enumerate(entries):
            bound = entry
            if there is not None:
                exists = builder.extract_element(there, ir.Constant(ir.IntType(32), at))
                bound = builder.select(exists, entry, splat(_QUAD, ABOVE))
            least = smaller(builder, bound, least)
        builder.store(least, self.least)
        first = spread(builder, start, FOUR)
        numbers = [splat(_QUAD_INDICES, at) for at in range(FOUR)]
        if self.skip is not None:
            beyond = builder.sub(self.skip, first)
            entries = [
                builder.select(
                    builder.icmp_unsigned("==", beyond, number), splat(_QUAD, 0.0), entry
                )
                for number, entry in zip(numbers, entries, strict=True)
            ]
        for at, entry in enumerate(entries):
            total = self.totals[lane + at]
            builder.store(builder.fadd(builder.load(total), entry), total)
        if weights is not None:
            for at in range(FOUR):
                weight = builder.extract_element(weights, ir.Constant(ir.IntType(32), at))
                entries[at] = builder.fmul(entries[at], spread(builder, weight, FOUR))
        most, where = self._first_largest(entries, numbers)
        before = builder.load(self.most)
        if self.skip is None:
            further = builder.fcmp_ordered(">", most, before)
            where = builder.add(where, first)
            builder.store(builder.select(further, where, builder.load(self.where)), self.where)
        builder.store(larger(builder, most, before), self.most)

    def _first_largest(
        self, entries: list[ir.Value], numbers: list[ir.Value]
    ) -> tuple[ir.Value, ir.Value]:
        """Return the largest of four entries and its number; the first of equals wins."""
        builder = self.builder
        while len(entries) > 1:
            pairs = range(0, len(entries), 2)
            later = [builder.fcmp_ordered(">", entries[at + 1], entries[at]) for at in pairs]
            numbers = [
                builder.select(yes, numbers[at + 1], numbers[at])
                for at, yes in zip(pairs, later, strict=True)
            ]
            entries = [larger(builder, entries[at + 1], entries[at]) for at in pairs]
        return entries[0], numbers[0]

    def total(self) -> ir.Value:
        """Return the four sums, the lanes folded in the order of `lane_sum`."""
        lanes = [self.builder.load(total) for total in self.totals]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [added(self.builder, lanes[at], lanes[at + half]) for at in range(half)]
        return lanes[0]


class _Scratch:
    """A flat array of which stretches of four are read and written."""

    def __init__(self, context: Any, builder: ir.IRBuilder, kind: Any, array: Any, at: Any):
        self.builder, self.at = builder, at
        self.data = context.make_array(kind)(context, builder, array).data

    def _place(self, stretch: int, kind: ir.VectorType) -> ir.Value:
        index = self.builder.add(self.at, ir.Constant(INDEX, stretch))
        return self.builder.bitcast(self.builder.gep(self.data, [index]), kind.as_pointer())

    def load(self, kind: ir.VectorType) -> ir.Value:
        return self.builder.load(self._place(0, kind), align=8)

    def store(self, stretch: int, value: ir.Value) -> None:
        self.builder.store(value, self._place(stretch, value.type), align=8)


def _four_rows(context: Any, builder: Any, signature: Any, array: Any, row: Any) -> list[Row]:
    return [
        Row(context, builder, signature.args[0], array, builder.add(row, ir.Constant(INDEX, at)))
        for at in range(FOUR)
    ]


@intrinsic
def scan_four_predictions(
    typingctx: Any, array: Any, row: Any, tile: Any, at: Any, prediction: Any
) -> Any:
    """Store sum, minimum and prediction of ``row`` and the next three rows from ``at`` on.

    Predictions lie within the row whatever the entries are.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, row, tile, at, prediction = args
        four = _FourRows(builder, _four_rows(context, builder, signature, array, row), None)
        four.scan()
        target = _Scratch(context, builder, signature.args[2], tile, at)
        target.store(int(P_SUM), four.total())
        target.store(int(P_LEAST), builder.load(four.least))
        decided = _Scratch(context, builder, signature.args[4], prediction, at)
        decided.store(0, builder.load(four.where))
        return context.get_dummy_value()

    return types.void(array, types.uintp, tile, types.uintp, prediction), codegen


@intrinsic
def scan_four_without(
    typingctx: Any, array: Any, row: Any, tile: Any, at: Any, prediction: Any, weights: Any
) -> Any:
    """Store the sum and maximum of four rows without their predictions, and their minimum.

    With class weights the maximum is that of the products.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, row, tile, at, prediction, weights = args
        skip = _Scratch(context, builder, signature.args[4], prediction, at).load(_QUAD_INDICES)
        rows = _four_rows(context, builder, signature, array, row)
        weighted = weight_row(context, builder, signature.args[5], weights)
        four = _FourRows(builder, rows, skip, weighted)
        four.scan()
        target = _Scratch(context, builder, signature.args[2], tile, at)
        target.store(int(REST), four.total())
        target.store(int(TOP), builder.load(four.most))
        target.store(int(LEAST), builder.load(four.least))
        return context.get_dummy_value()

    return types.void(array, types.uintp, tile, types.uintp, prediction, weights), codegen
