"""Reductions of short rows, four at a time, as LLVM vector code for the compiled kernel.

In a short row, folding its eight lanes into one takes longer than the row itself.  So the rows
are the lanes: four entries of four rows are transposed in registers, and each vector then holds
one entry of every row.  Sums keep the order of `lane_sum`.

Without this module a whole ``CORD.transform`` at K = 10 takes 1.42 times as long for 5,000 rows,
and for 200,000 rows 1.43 times in float32 and 1.13 times in float64, where memory is the limit
(one core, AVX2; CPU time); ``CORD.fit`` takes 1.2 to 1.4 times as long.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cordcal.repair.kernels._scan import weight_row
from cordcal.repair.kernels._simd import (
    ABOVE,
    DOUBLE,
    INDEX,
    LANES,
    Row,
    added,
    larger,
    smaller,
    splat,
    spread,
)
from cordcal.repair.kernels._tile import LEAST, P_LEAST, P_SUM, REST, TOP

FOUR = 4
_QUAD = ir.VectorType(DOUBLE, FOUR)
_INDICES = ir.VectorType(INDEX, FOUR)


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
        self.where = cgutils.alloca_once_value(builder, splat(_INDICES, 0))
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
        numbers = [splat(_INDICES, at) for at in range(FOUR)]
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
def scan_four_decisions(
    typingctx: Any, array: Any, row: Any, tile: Any, at: Any, decision: Any
) -> Any:
    """Store sum, minimum and decision of ``row`` and the next three rows from ``at`` on.

    Decisions lie within the row whatever the entries are.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, row, tile, at, decision = args
        four = _FourRows(builder, _four_rows(context, builder, signature, array, row), None)
        four.scan()
        target = _Scratch(context, builder, signature.args[2], tile, at)
        target.store(int(P_SUM), four.total())
        target.store(int(P_LEAST), builder.load(four.least))
        decided = _Scratch(context, builder, signature.args[4], decision, at)
        decided.store(0, builder.load(four.where))
        return context.get_dummy_value()

    return types.void(array, types.uintp, tile, types.uintp, decision), codegen


@intrinsic
def scan_four_without(
    typingctx: Any, array: Any, row: Any, tile: Any, at: Any, decision: Any, weights: Any
) -> Any:
    """Store the sum and maximum of four rows without their decisions, and their minimum.

    With class weights the maximum is that of the products.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, row, tile, at, decision, weights = args
        skip = _Scratch(context, builder, signature.args[4], decision, at).load(_INDICES)
        rows = _four_rows(context, builder, signature, array, row)
        weighted = weight_row(context, builder, signature.args[5], weights)
        four = _FourRows(builder, rows, skip, weighted)
        four.scan()
        target = _Scratch(context, builder, signature.args[2], tile, at)
        target.store(int(REST), four.total())
        target.store(int(TOP), builder.load(four.most))
        target.store(int(LEAST), builder.load(four.least))
        return context.get_dummy_value()

    return types.void(array, types.uintp, tile, types.uintp, decision, weights), codegen
