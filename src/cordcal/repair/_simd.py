"""Row reductions in eight lanes, as LLVM vector code for the compiled kernel.

LLVM does not vectorise floating-point reductions whose order is fixed, and the order
is what makes the kernel and `arrays.lane_sum` agree to the bit.  So the eight lanes
are spelled out: ``<8 x double>`` is two registers on AVX2, four on NEON or SSE2.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_LANES = 8
_DOUBLE = ir.DoubleType()
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, _LANES)
_INDICES = ir.VectorType(_INDEX, _LANES)


def _splat(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * _LANES)


def _spread(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Copy one value to all eight lanes."""
    blank = ir.Constant(ir.VectorType(value.type, _LANES), ir.Undefined)
    vector = builder.insert_element(blank, value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
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
        raw = ir.VectorType(self.item, _LANES)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        value = builder.load(place, align=self.bytes)
        return value if self.item == _DOUBLE else builder.fpext(value, _VECTOR)

    def store_scalar(self, index: ir.Value, value: ir.Value) -> None:
        """Store a double, rounded to the row's dtype."""
        if self.item != _DOUBLE:
            value = self.builder.fptrunc(value, self.item)
        self.builder.store(value, self.builder.gep(self.pointer, [index]))

    def store_chunk(self, index: ir.Value, value: ir.Value) -> None:
        """Store eight doubles, rounded to the row's dtype."""
        builder = self.builder
        raw = ir.VectorType(self.item, _LANES)
        if self.item != _DOUBLE:
            value = builder.fptrunc(value, raw)
        place = builder.bitcast(builder.gep(self.pointer, [index]), raw.as_pointer())
        builder.store(value, place, align=self.bytes)


def _larger(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _smaller(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


def _fold(builder: ir.IRBuilder, values: list[ir.Value], combine: Any) -> ir.Value:
    """Combine eight lanes by halving, the order of `arrays.lane_sum`."""
    while len(values) > 1:
        half = len(values) // 2
        values = [combine(builder, values[i], values[i + half]) for i in range(half)]
    return values[0]


def _lanes(builder: ir.IRBuilder, vector: ir.Value) -> list[ir.Value]:
    return [
        builder.extract_element(vector, ir.Constant(ir.IntType(32), lane)) for lane in range(_LANES)
    ]


def _scan(builder: ir.IRBuilder, row: _Row, skip: ir.Value | None) -> list[ir.Value]:
    """Emit the reduction: sum and maximum without entry ``skip``, minimum of all."""
    zero, two = _splat(_VECTOR, 0.0), _splat(_VECTOR, 2.0)  # 2 is above any probability
    total = cgutils.alloca_once_value(builder, zero)
    most = cgutils.alloca_once_value(builder, zero)
    least = cgutils.alloca_once_value(builder, two)
    step = ir.Constant(_INDEX, _LANES)
    whole = builder.and_(row.length, ir.Constant(_INDEX, -_LANES))
    skipped = None if skip is None else _spread(builder, skip)
    offsets = ir.Constant(_INDICES, list(range(_LANES)))

    with cgutils.for_range_slice(
        builder, ir.Constant(_INDEX, 0), whole, step, _INDEX, inc=True
    ) as (index, _):
        value = row.chunk(index)
        builder.store(_smaller(builder, value, builder.load(least)), least)
        if skipped is not None:
            here = builder.add(_spread(builder, index), offsets)
            value = builder.select(builder.icmp_unsigned("==", here, skipped), zero, value)
        builder.store(builder.fadd(builder.load(total), value), total)
        builder.store(_larger(builder, value, builder.load(most)), most)

    # The last entries, fewer than eight, go to lanes 0, 1, … one by one.
    slots = builder.bitcast(total, _DOUBLE.as_pointer())
    largest = cgutils.alloca_once_value(
        builder, _fold(builder, _lanes(builder, builder.load(most)), _larger)
    )
    smallest = cgutils.alloca_once_value(
        builder, _fold(builder, _lanes(builder, builder.load(least)), _smaller)
    )
    with cgutils.for_range_slice(
        builder, whole, row.length, ir.Constant(_INDEX, 1), _INDEX, inc=True
    ) as (index, _):
        value = row.scalar(index)
        builder.store(_smaller(builder, value, builder.load(smallest)), smallest)
        if skip is not None:
            value = builder.select(
                builder.icmp_unsigned("==", index, skip), ir.Constant(_DOUBLE, 0.0), value
            )
        slot = builder.gep(slots, [builder.sub(index, whole)])
        builder.store(builder.fadd(builder.load(slot), value), slot)
        builder.store(_larger(builder, value, builder.load(largest)), largest)
    lanes = [
        builder.load(builder.gep(slots, [ir.Constant(_INDEX, lane)])) for lane in range(_LANES)
    ]
    total_value = _fold(builder, lanes, lambda b, x, y: b.fadd(x, y))
    return [total_value, builder.load(largest), builder.load(smallest)]


_SCAN_RESULT = types.UniTuple(types.float64, 3)


@intrinsic
def scan(typingctx: Any, array: Any, row: Any) -> Any:
    """Return a row's sum, maximum and minimum."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = _scan(builder, _Row(context, builder, signature.args[0], *args), None)
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp), codegen


@intrinsic
def scan_without(typingctx: Any, array: Any, row: Any, skip: Any) -> Any:
    """Return a row's sum and maximum without entry ``skip``, and the minimum of all entries."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _Row(context, builder, signature.args[0], args[0], args[1])
        values = _scan(builder, place, args[2])
        return context.make_tuple(builder, signature.return_type, values)

    return _SCAN_RESULT(array, types.uintp, types.uintp), codegen


@intrinsic
def first_equal(typingctx: Any, array: Any, row: Any, value: Any) -> Any:
    """Return the first index whose entry equals ``value``; the last index if none does.

    A row with NaN has a maximum that no entry equals, so the search must end by itself.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _Row(context, builder, signature.args[0], args[0], args[1])
        wanted = args[2]
        last = builder.sub(place.length, ir.Constant(_INDEX, 1))
        index = cgutils.alloca_once_value(builder, ir.Constant(_INDEX, 0))
        found = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(8), 0))
        whole = builder.and_(place.length, ir.Constant(_INDEX, -_LANES))
        target = _spread(builder, wanted)
        chunks = builder.append_basic_block("chunks")
        test = builder.append_basic_block("test")
        tail = builder.append_basic_block("tail")
        compare = builder.append_basic_block("compare")
        advance = builder.append_basic_block("advance")
        hit = builder.append_basic_block("hit")
        done = builder.append_basic_block("done")
        builder.branch(chunks)

        builder.position_at_end(chunks)
        builder.cbranch(builder.icmp_unsigned("<", builder.load(index), whole), test, tail)

        builder.position_at_end(test)
        equal = builder.fcmp_ordered("==", place.chunk(builder.load(index)), target)
        mask = builder.bitcast(equal, ir.IntType(8))
        builder.store(mask, found)
        stepped = builder.add(builder.load(index), ir.Constant(_INDEX, _LANES))
        some = builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(8), 0))
        builder.store(builder.select(some, builder.load(index), stepped), index)
        builder.cbranch(some, hit, chunks)

        builder.position_at_end(hit)
        zeros = builder.cttz(builder.load(found), ir.Constant(ir.IntType(1), 1))
        builder.store(builder.add(builder.load(index), builder.zext(zeros, _INDEX)), index)
        builder.branch(done)

        builder.position_at_end(tail)
        builder.cbranch(builder.icmp_unsigned("<", builder.load(index), last), compare, done)
        builder.position_at_end(compare)
        same = builder.fcmp_ordered("==", place.scalar(builder.load(index)), wanted)
        builder.cbranch(same, done, advance)
        builder.position_at_end(advance)
        builder.store(builder.add(builder.load(index), ir.Constant(_INDEX, 1)), index)
        builder.branch(tail)

        builder.position_at_end(done)
        # No chunk and no tail: the index may have run one past the end.
        final = builder.load(index)
        return builder.select(builder.icmp_unsigned(">", final, last), last, final)

    return types.uintp(array, types.uintp, types.float64), codegen


@intrinsic
def write_scaled(
    typingctx: Any, source: Any, row: Any, scale: Any, factor: Any, offset: Any, target: Any
) -> Any:
    """Store ``(source[row] * scale) * factor + offset`` to ``target[row]``, in its dtype.

    Source and target may be one array: each chunk is loaded before it is stored.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, row, scale, factor, offset, target = args
        read = _Row(context, builder, signature.args[0], source, row)
        write = _Row(context, builder, signature.args[5], target, row)

        def scaled(value: ir.Value, terms: list[ir.Value]) -> ir.Value:
            product = builder.fmul(builder.fmul(value, terms[0]), terms[1])
            return builder.fadd(product, terms[2])

        terms = [scale, factor, offset]
        vectors = [_spread(builder, value) for value in terms]
        whole = builder.and_(read.length, ir.Constant(_INDEX, -_LANES))
        with cgutils.for_range_slice(
            builder, ir.Constant(_INDEX, 0), whole, ir.Constant(_INDEX, _LANES), _INDEX, inc=True
        ) as (index, _):
            write.store_chunk(index, scaled(read.chunk(index), vectors))
        with cgutils.for_range_slice(
            builder, whole, read.length, ir.Constant(_INDEX, 1), _INDEX, inc=True
        ) as (index, _):
            write.store_scalar(index, scaled(read.scalar(index), terms))
        return context.get_dummy_value()

    double = types.float64
    return types.void(source, types.uintp, double, double, double, target), codegen


@intrinsic
def double_bits(typingctx: Any, value: Any) -> Any:
    """Return the bits of a double as a signed integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _INDEX)

    return types.int64(types.float64), codegen
