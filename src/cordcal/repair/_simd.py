"""Row reductions in eight lanes, as LLVM vector code for the compiled kernel.

LLVM does not vectorise floating-point reductions whose order is fixed, and the order
is what makes the kernel and `arrays.lane_sum` agree to the bit.  So the eight lanes
are spelled out: ``<8 x double>`` is two registers on AVX2, four on NEON or SSE2.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
_DOUBLE = ir.DoubleType()
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, LANES)
_INDICES = ir.VectorType(_INDEX, LANES)


def _splat(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * LANES)


def _spread(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Copy one value to all eight lanes."""
    blank = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    vector = builder.insert_element(blank, value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(vector, blank, mask)


class _Row:
    """One row of a C-contiguous 2-D array: its pointer and its length."""

    def __init__(self, context: Any, builder: ir.IRBuilder, kind: Any, array: Any, row: Any):
        parts = context.make_array(kind)(context, builder, array)
        self.builder = builder
        self.length = builder.extract_value(parts.shape, 1)
        self.pointer = builder.gep(parts.data, [builder.mul(row, self.length)])
        self.item = context.get_value_type(kind.dtype)
        self.bytes = kind.dtype.bitwidth // 8

    def scalar(self, index: ir.Value) -> ir.Value:
        """Load one entry as a double."""
        value = self.builder.load(self.builder.gep(self.pointer, [index]))
        return value if self.item == _DOUBLE else self.builder.fpext(value, _DOUBLE)

    def chunk(self, index: ir.Value) -> ir.Value:
        """Load eight entries as doubles."""
        builder = self.builder
        raw = ir.VectorType(self.item, LANES)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        value = builder.load(place, align=self.bytes)
        return value if self.item == _DOUBLE else builder.fpext(value, _VECTOR)

    def prefetch(self, index: ir.Value) -> None:
        """Ask for the entry at ``index`` ahead of its use; it need not exist."""
        builder, hint = self.builder, ir.IntType(32)
        place = builder.bitcast(builder.gep(self.pointer, [index]), ir.IntType(8).as_pointer())
        prefetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [place.type, hint, hint, hint]),
            "llvm.prefetch.p0",
        )
        # To read, into all levels of the cache, as data.
        builder.call(prefetch, [place, *(ir.Constant(hint, value) for value in (0, 3, 1))])

    def partial_chunk(self, index: ir.Value, *fill: ir.Value) -> list[ir.Value]:
        """Load the entries from ``index`` to the row's end, once into each filling vector."""
        builder = self.builder
        raw = ir.VectorType(self.item, LANES)
        lanes = ir.Constant(_INDICES, list(range(LANES)))
        left = _spread(builder, builder.sub(self.length, index))
        there = builder.icmp_unsigned("<", lanes, left)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        # Lanes beyond the end are not read at all.
        kind = "f64" if self.item == _DOUBLE else "f32"
        load = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(raw, [raw.as_pointer(), ir.IntType(32), there.type, raw]),
            f"llvm.masked.load.v{LANES}{kind}.p0",
        )
        align = ir.Constant(ir.IntType(32), self.bytes)
        blank = ir.Constant(raw, [0.0] * LANES)
        value = builder.call(load, [place, align, there, blank])
        if self.item != _DOUBLE:
            value = builder.fpext(value, _VECTOR)
        return [builder.select(there, value, each) for each in fill]

    def store_scalar(self, index: ir.Value, value: ir.Value) -> None:
        """Store a double, rounded to the row's dtype."""
        if self.item != _DOUBLE:
            value = self.builder.fptrunc(value, self.item)
        self.builder.store(value, self.builder.gep(self.pointer, [index]))

    def store_chunk(self, index: ir.Value, value: ir.Value) -> None:
        """Store eight doubles, rounded to the row's dtype."""
        builder = self.builder
        raw = ir.VectorType(self.item, LANES)
        if self.item != _DOUBLE:
            value = builder.fptrunc(value, raw)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        builder.store(value, place, align=self.bytes)


def _larger(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _smaller(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


def _added(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.fadd(x, y)


def _fold(builder: ir.IRBuilder, vector: ir.Value, combine: Any) -> ir.Value:
    """Combine eight lanes by halving, the order of `arrays.lane_sum`."""
    half = LANES
    while half > 1:
        half //= 2
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(start, start + half)))
            for start in (0, half)
        )
        blank = ir.Constant(vector.type, ir.Undefined)
        vector = combine(
            builder,
            builder.shuffle_vector(vector, blank, low),
            builder.shuffle_vector(vector, blank, high),
        )
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _scan(
    builder: ir.IRBuilder,
    row: _Row,
    skip: ir.Value | None = None,
    *,
    place: bool = False,
    ahead: bool = True,
    maxima: ir.Value | None = None,
) -> list[ir.Value]:
    """Emit the reduction: sum and maximum without entry ``skip``, minimum of all.

    With ``place`` the maximum is followed by the index of its first entry, as a double.
    With ``ahead`` the next row is asked for, since it will be scanned soon.  The eight
    lanes' own maxima are stored at ``maxima``.
    """
    zero, two = _splat(_VECTOR, 0.0), _splat(_VECTOR, 2.0)  # 2 is above any probability
    lane_numbers = ir.Constant(_VECTOR, [float(lane) for lane in range(LANES)])
    total = cgutils.alloca_once_value(builder, zero)
    most = cgutils.alloca_once_value(builder, zero)
    least = cgutils.alloca_once_value(builder, two)
    # Where each lane's maximum was met, and where each lane is: exact as doubles.
    where = cgutils.alloca_once_value(builder, lane_numbers)
    here = cgutils.alloca_once_value(builder, lane_numbers)
    whole = builder.and_(row.length, ir.Constant(_INDEX, -LANES))
    skipped = None if skip is None else _spread(builder, skip)
    offsets = ir.Constant(_INDICES, list(range(LANES)))

    def take(index: ir.Value, value: ir.Value, for_least: ir.Value) -> None:
        builder.store(_smaller(builder, for_least, builder.load(least)), least)
        if skipped is not None:
            lanes = builder.add(_spread(builder, index), offsets)
            value = builder.select(builder.icmp_unsigned("==", lanes, skipped), zero, value)
        builder.store(builder.fadd(builder.load(total), value), total)
        if place:
            larger = builder.fcmp_ordered(">", value, builder.load(most))
            builder.store(builder.select(larger, builder.load(here), builder.load(where)), where)
            builder.store(builder.fadd(builder.load(here), _splat(_VECTOR, float(LANES))), here)
        builder.store(_larger(builder, value, builder.load(most)), most)

    with cgutils.for_range_slice(
        builder, ir.Constant(_INDEX, 0), whole, ir.Constant(_INDEX, LANES), _INDEX, inc=True
    ) as (index, _):
        value = row.chunk(index)
        if ahead:
            # Long rows cross pages, where the hardware's own prefetching starts anew.
            row.prefetch(builder.add(index, row.length))
        take(index, value, value)
    # The last entries, fewer than eight, fill the first lanes of one more chunk.
    with builder.if_then(builder.icmp_unsigned("<", whole, row.length)):
        take(whole, *row.partial_chunk(whole, zero, two))
    if maxima is not None:
        builder.store(builder.load(most), builder.bitcast(maxima, _VECTOR.as_pointer()), align=8)
    top = _fold(builder, builder.load(most), _larger)
    found = [_fold(builder, builder.load(total), _added), top]
    if place:
        at_top = builder.fcmp_ordered("==", builder.load(most), _spread(builder, top))
        nowhere = _splat(_VECTOR, math.inf)
        found.append(_fold(builder, builder.select(at_top, builder.load(where), nowhere), _smaller))
    return [*found, _fold(builder, builder.load(least), _smaller)]


_SCAN_RESULT = types.UniTuple(types.float64, 3)


@intrinsic
def scan(typingctx: Any, array: Any, row: Any) -> Any:
    """Return the sum, maximum and minimum of one of many rows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = _scan(builder, _Row(context, builder, signature.args[0], *args))
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp), codegen


@intrinsic
def scan_alone(typingctx: Any, array: Any, row: Any) -> Any:
    """Return the sum, maximum and minimum of a row that no other follows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = _scan(builder, _Row(context, builder, signature.args[0], *args), ahead=False)
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp), codegen


@intrinsic
def scan_lanes(typingctx: Any, array: Any, row: Any, maxima: Any) -> Any:
    """Return a row's sum, maximum and minimum; store the maxima of its eight lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _Row(context, builder, signature.args[0], args[0], args[1])
        lanes = context.make_array(signature.args[2])(context, builder, args[2])
        values = _scan(builder, place, maxima=lanes.data)
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp, maxima), codegen


@intrinsic
def scan_decision(typingctx: Any, array: Any, row: Any) -> Any:
    """Return a row's sum, the index of its first largest entry, and its minimum.

    The index lies within the row whatever the entries are.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _Row(context, builder, signature.args[0], *args)
        total, _, where, least = _scan(builder, place, place=True)
        index = builder.fptosi(where, _INDEX)  # one instruction, unlike the unsigned one
        return context.make_tuple(builder, signature.return_type, [total, index, least])

    result = types.Tuple((types.float64, types.uintp, types.float64))
    return result(array, types.uintp), codegen


@intrinsic
def scan_without(typingctx: Any, array: Any, row: Any, skip: Any) -> Any:
    """Return a row's sum and maximum without entry ``skip``, and the minimum of all entries."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _Row(context, builder, signature.args[0], args[0], args[1])
        values = _scan(builder, place, args[2])
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp, types.uintp), codegen


def _search(comparison: str) -> Any:
    """Make a search for the first entry, from ``start`` on, that compares so with a value."""

    def search(typingctx: Any, array: Any, row: Any, start: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _Row(context, builder, signature.args[0], args[0], args[1])
            wanted = args[3]
            index = cgutils.alloca_once_value(builder, args[2])
            target = _spread(builder, wanted)
            names = ("chunks", "test", "hit", "tail", "compare", "advance", "done")
            block = {name: builder.append_basic_block(name) for name in names}

            def here() -> ir.Value:
                return builder.load(index)

            def step(size: int) -> None:
                builder.store(builder.add(here(), ir.Constant(_INDEX, size)), index)

            def goto_if(condition: ir.Value, yes: str, no: str) -> None:
                builder.cbranch(condition, block[yes], block[no])

            builder.branch(block["chunks"])
            builder.position_at_end(block["chunks"])
            end = builder.add(here(), ir.Constant(_INDEX, LANES))
            goto_if(builder.icmp_unsigned("<=", end, place.length), "test", "tail")

            builder.position_at_end(block["test"])
            found = builder.fcmp_ordered(comparison, place.chunk(here()), target)
            mask = builder.bitcast(found, ir.IntType(LANES))
            some = builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(LANES), 0))
            skip = builder.append_basic_block("skip")
            builder.cbranch(some, block["hit"], skip)
            builder.position_at_end(skip)
            step(LANES)
            builder.branch(block["chunks"])

            builder.position_at_end(block["hit"])
            zeros = builder.cttz(mask, ir.Constant(ir.IntType(1), 1))
            builder.store(builder.add(here(), builder.zext(zeros, _INDEX)), index)
            builder.branch(block["done"])

            builder.position_at_end(block["tail"])
            goto_if(builder.icmp_unsigned("<", here(), place.length), "compare", "done")
            builder.position_at_end(block["compare"])
            same = builder.fcmp_ordered(comparison, place.scalar(here()), wanted)
            goto_if(same, "done", "advance")
            builder.position_at_end(block["advance"])
            step(1)
            builder.branch(block["tail"])

            builder.position_at_end(block["done"])
            return here()

        return types.uintp(array, types.uintp, types.uintp, types.float64), codegen

    return search


# Both return the row's length where no entry fits, as in a row with NaN, whose maximum no
# entry equals: callers must not read there.
first_equal = intrinsic(_search("=="))
first_above = intrinsic(_search(">"))


@intrinsic
def write_scaled(
    typingctx: Any,
    source: Any,
    row: Any,
    scale: Any,
    factor: Any,
    offset: Any,
    target: Any,
    target_row: Any,
) -> Any:
    """Store ``(source[row] * scale) * factor + offset`` to ``target[target_row]``.

    Only as many entries as the target's row has are written, rounded to its dtype.

    Source and target may be one array: each chunk is loaded before it is stored.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, row, scale, factor, offset, target, target_row = args
        read = _Row(context, builder, signature.args[0], source, row)
        write = _Row(context, builder, signature.args[5], target, target_row)

        def scaled(value: ir.Value, terms: list[ir.Value]) -> ir.Value:
            product = builder.fmul(builder.fmul(value, terms[0]), terms[1])
            return builder.fadd(product, terms[2])

        terms = [scale, factor, offset]
        vectors = [_spread(builder, value) for value in terms]
        zero, one, lanes = (ir.Constant(_INDEX, value) for value in (0, 1, LANES))
        wide = builder.icmp_unsigned(">=", write.length, lanes)
        with builder.if_else(wide) as (chunked, single):
            with chunked:
                # The last chunk overlaps the one before; it is loaded first, since source
                # and target may be one array.
                start = builder.sub(write.length, lanes)
                last = scaled(read.chunk(start), vectors)
                with cgutils.for_range_slice(builder, zero, start, lanes, _INDEX, inc=True) as (
                    index,
                    _,
                ):
                    write.store_chunk(index, scaled(read.chunk(index), vectors))
                write.store_chunk(start, last)
            with (
                single,
                cgutils.for_range_slice(builder, zero, write.length, one, _INDEX, inc=True) as (
                    index,
                    _,
                ),
            ):
                write.store_scalar(index, scaled(read.scalar(index), terms))
        return context.get_dummy_value()

    double = types.float64
    arguments = (source, types.uintp, double, double, double, target, types.uintp)
    return types.void(*arguments), codegen


@intrinsic
def double_bits(typingctx: Any, value: Any) -> Any:
    """Return the bits of a double as a signed integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _INDEX)

    return types.int64(types.float64), codegen
