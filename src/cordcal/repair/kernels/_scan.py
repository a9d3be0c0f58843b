"""Row reductions in eight lanes, as LLVM vector code for the compiled kernels.

The order of a sum is what makes the kernels and `lane_sum` agree to the bit.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cordcal.repair.kernels._simd import (
    ABOVE,
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
def scan_decision(typingctx: Any, array: Any, row: Any) -> Any:
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
    """Return `scan_without` of one row and `scan_decision` of another, from one loop.

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
