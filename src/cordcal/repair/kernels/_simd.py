"""Vectors and rows as LLVM code for the compiled kernels: loads, searches, the rebuilt row.

Vectors are spelled out, because LLVM does not vectorise floating-point reductions whose
order is fixed: ``<8 x double>`` is two registers on AVX2, four on NEON or SSE2.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
DOUBLE = ir.DoubleType()
INDEX = ir.IntType(64)
VECTOR = ir.VectorType(DOUBLE, LANES)
ABOVE = 2.0  # above any probability


def splat(kind: ir.VectorType, value: float) -> ir.Constant:
    """Return a constant vector of equal numbers."""
    return ir.Constant(kind, [value] * kind.count)


def spread(builder: ir.IRBuilder, value: ir.Value, lanes: int = LANES) -> ir.Value:
    """Copy one value to all lanes."""
    blank = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    vector = builder.insert_element(blank, value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(vector, blank, mask)


class Row:
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
        return value if self.item == DOUBLE else self.builder.fpext(value, DOUBLE)

    def chunk(self, index: ir.Value, lanes: int = LANES) -> ir.Value:
        """Load entries, one for each lane, as doubles."""
        builder = self.builder
        raw = ir.VectorType(self.item, lanes)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        return self._widened(builder.load(place, align=self.bytes))

    def _widened(self, value: ir.Value) -> ir.Value:
        if self.item == DOUBLE:
            return value
        return self.builder.fpext(value, ir.VectorType(DOUBLE, value.type.count))

    def within(self, index: ir.Value, lanes: int = LANES) -> ir.Value:
        """Tell which of the entries from ``index`` on the row has."""
        left = spread(self.builder, self.builder.sub(self.length, index), lanes)
        numbers = ir.Constant(ir.VectorType(INDEX, lanes), list(range(lanes)))
        return self.builder.icmp_unsigned("<", numbers, left)

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
        builder, lanes = self.builder, fill[0].type.count
        raw = ir.VectorType(self.item, lanes)
        there = self.within(index, lanes)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        # Lanes beyond the end are not read at all.
        kind = "f64" if self.item == DOUBLE else "f32"
        load = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(raw, [raw.as_pointer(), ir.IntType(32), there.type, raw]),
            f"llvm.masked.load.v{lanes}{kind}.p0",
        )
        align = ir.Constant(ir.IntType(32), self.bytes)
        value = self._widened(builder.call(load, [place, align, there, splat(raw, 0.0)]))
        return [builder.select(there, value, fallback) for fallback in fill]

    def store_scalar(self, index: ir.Value, value: ir.Value) -> None:
        """Store a double, rounded to the row's dtype."""
        if self.item != DOUBLE:
            value = self.builder.fptrunc(value, self.item)
        self.builder.store(value, self.builder.gep(self.pointer, [index]))

    def store_chunk(self, index: ir.Value, value: ir.Value) -> None:
        """Store eight doubles, rounded to the row's dtype."""
        builder = self.builder
        raw = ir.VectorType(self.item, LANES)
        if self.item != DOUBLE:
            value = builder.fptrunc(value, raw)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        builder.store(value, place, align=self.bytes)


def larger(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def smaller(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


def added(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.fadd(x, y)


def halves(builder: ir.IRBuilder, vector: ir.Value) -> list[ir.Value]:
    """Return the first and the second half of the lanes."""
    blank, half = ir.Constant(vector.type, ir.Undefined), vector.type.count // 2
    lanes = ir.VectorType(ir.IntType(32), half)
    return [
        builder.shuffle_vector(vector, blank, ir.Constant(lanes, list(range(at, at + half))))
        for at in (0, half)
    ]


def fold(builder: ir.IRBuilder, vector: ir.Value, combine: Any) -> ir.Value:
    """Combine the lanes by halving, the order of `lane_sum`."""
    while vector.type.count > 1:
        vector = combine(builder, *halves(builder, vector))
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _search(comparison: str) -> Any:
    """Make a search for the first entry, from ``start`` on, that compares so with a value."""

    def search(typingctx: Any, array: Any, row: Any, start: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = Row(context, builder, signature.args[0], args[0], args[1])
            value_arg = args[3]
            index = cgutils.alloca_once_value(builder, args[2])
            target = spread(builder, value_arg)
            names = ("chunks", "test", "hit", "tail", "compare", "advance", "done")
            block = {name: builder.append_basic_block(name) for name in names}

            def position() -> ir.Value:
                return builder.load(index)

            def step(size: int) -> None:
                builder.store(builder.add(position(), ir.Constant(INDEX, size)), index)

            def goto_if(condition: ir.Value, yes: str, no: str) -> None:
                builder.cbranch(condition, block[yes], block[no])

            builder.branch(block["chunks"])
            builder.position_at_end(block["chunks"])
            end = builder.add(position(), ir.Constant(INDEX, LANES))
            goto_if(builder.icmp_unsigned("<=", end, place.length), "test", "tail")

            builder.position_at_end(block["test"])
            matches = builder.fcmp_ordered(comparison, place.chunk(position()), target)
            mask = builder.bitcast(matches, ir.IntType(LANES))
            some = builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(LANES), 0))
            skip = builder.append_basic_block("skip")
            builder.cbranch(some, block["hit"], skip)
            builder.position_at_end(skip)
            step(LANES)
            builder.branch(block["chunks"])

            builder.position_at_end(block["hit"])
            zeros = builder.cttz(mask, ir.Constant(ir.IntType(1), 1))
            builder.store(builder.add(position(), builder.zext(zeros, INDEX)), index)
            builder.branch(block["done"])

            builder.position_at_end(block["tail"])
            goto_if(builder.icmp_unsigned("<", position(), place.length), "compare", "done")
            builder.position_at_end(block["compare"])
            same = builder.fcmp_ordered(comparison, place.scalar(position()), value_arg)
            goto_if(same, "done", "advance")
            builder.position_at_end(block["advance"])
            step(1)
            builder.branch(block["tail"])

            builder.position_at_end(block["done"])
            return position()

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
        read = Row(context, builder, signature.args[0], source, row)
        write = Row(context, builder, signature.args[5], target, target_row)

        def scaled(value: ir.Value, terms: list[ir.Value]) -> ir.Value:
            product = builder.fmul(builder.fmul(value, terms[0]), terms[1])
            return builder.fadd(product, terms[2])

        terms = [scale, factor, offset]
        vectors = [spread(builder, value) for value in terms]
        zero, one, lanes = (ir.Constant(INDEX, value) for value in (0, 1, LANES))
        wide = builder.icmp_unsigned(">=", write.length, lanes)
        with builder.if_else(wide) as (chunked, single):
            with chunked:
                # The last chunk overlaps the one before; it is loaded first, since source
                # and target may be one array.
                start = builder.sub(write.length, lanes)
                last = scaled(read.chunk(start), vectors)
                with cgutils.for_range_slice(builder, zero, start, lanes, INDEX, inc=True) as (
                    index,
                    _,
                ):
                    write.store_chunk(index, scaled(read.chunk(index), vectors))
                write.store_chunk(start, last)
            with (
                single,
                cgutils.for_range_slice(builder, zero, write.length, one, INDEX, inc=True) as (
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
        return builder.bitcast(args[0], INDEX)

    return types.int64(types.float64), codegen
