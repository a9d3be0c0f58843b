"""An array namespace that records ONNX nodes instead of computing.

cordcal's array expressions take a `Graph` as their namespace and `Value` objects as arrays;
operators and functions append nodes.  Only the operations that those expressions use are
implemented.  Rows are the batch, of unknown size; all other axes have a fixed size.
Operations on constants are evaluated immediately, with NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Shape = tuple[int | None, ...]
Data = npt.NDArray[np.generic]
Operand: TypeAlias = "Value | float | np.generic"

# The first opset in which all reductions take their axes as an input; onnxruntime supports it
# since 1.14.
OPSET = 18

_UFUNCS = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Log": np.log,
}


class Value:
    """A tensor of the graph: its name, dtype and shape, and its data if it is a constant."""

    device = None

    def __init__(
        self,
        graph: Graph,
        name: str,
        dtype: npt.DTypeLike,
        shape: Shape,
        data: Data | None = None,
    ) -> None:
        self.graph, self.name, self.dtype, self.shape = graph, name, np.dtype(dtype), shape
        self.data = data

    def __add__(self, other: Operand) -> Value:
        return self.graph.binary("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.binary("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.binary("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.binary("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.binary("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.binary("Mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.binary("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.binary("Div", other, self)

    def __lt__(self, other: Operand) -> Value:
        return self.graph.binary("Less", self, other, bool)

    def __le__(self, other: Operand) -> Value:
        return self.graph.binary("LessOrEqual", self, other, bool)

    def __gt__(self, other: Operand) -> Value:
        return self.graph.binary("Greater", self, other, bool)

    def __ge__(self, other: Operand) -> Value:
        return self.graph.binary("GreaterOrEqual", self, other, bool)

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self.graph.binary("Equal", self, other, bool)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        equal: Value = self == other
        return ~equal

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Operand) -> Value:
        return self.graph.binary("And", self, other, bool)

    def __or__(self, other: Operand) -> Value:
        return self.graph.binary("Or", self, other, bool)

    def __invert__(self) -> Value:
        return self.graph.node("Not", [self], bool, self.shape)

    def __bool__(self) -> bool:
        raise TypeError("a graph has no branches: this expression depends on the data")

    @property
    def T(self) -> Value:
        """The transpose, of a constant."""
        return self.graph.constant(self._constant().T)

    def __getitem__(self, key: Any) -> Value:
        graph, shape = self.graph, self.shape
        if isinstance(key, Value):
            return graph.node("Gather", [self, key], self.dtype, key.shape, axis=0)
        if self.data is not None:
            return graph.constant(self.data[key])
        match key:
            case (None, slice()):
                return graph.node("Unsqueeze", [self, graph.axis(0)], self.dtype, (1, *shape))
            case (slice(), None):
                return graph.node("Unsqueeze", [self, graph.axis(1)], self.dtype, (*shape, 1))
            case (slice(), int() as column):
                return graph.node(
                    "Gather",
                    [self, graph.constant(np.int64(column))],
                    self.dtype,
                    shape[:1],
                    axis=1,
                )
            case (slice(), slice(start=None, stop=int() as stop)):
                bounds = [graph.axis(0), graph.axis(stop), graph.axis(1)]
                return graph.node("Slice", [self, *bounds], self.dtype, (shape[0], stop))
        raise NotImplementedError(f"index {key!r} of a tensor in a graph")

    def _constant(self) -> Data:
        if self.data is None:
            raise NotImplementedError("only constants of a graph can be transposed")
        return self.data


class Graph:
    """The nodes and constants recorded so far; the array namespace of its values."""

    float32, float64, int64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: dict[tuple[str, Shape, bytes], tuple[str, TensorProto]] = {}
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []

    def node(
        self,
        operator: str,
        inputs: Sequence[Value],
        dtype: npt.DTypeLike,
        shape: Shape,
        **attributes: int,
    ) -> Value:
        """Append a node and return its first output."""
        return self._append(operator, inputs, [(dtype, shape)], **attributes)[0]

    def _append(
        self,
        operator: str,
        inputs: Sequence[Value],
        outputs: Sequence[tuple[npt.DTypeLike, Shape]],
        **attributes: int,
    ) -> list[Value]:
        values = [
            Value(self, f"v{len(self.nodes)}_{index}", dtype, shape)
            for index, (dtype, shape) in enumerate(outputs)
        ]
        names = [value.name for value in inputs]
        node = helper.make_node(operator, names, [value.name for value in values])
        node.attribute.extend(
            helper.make_attribute(name, number) for name, number in attributes.items()
        )
        self.nodes.append(node)
        return values

    def constant(self, array: npt.ArrayLike) -> Value:
        """Return a constant; equal constants are stored once."""
        data = np.array(array, order="C")
        key = data.dtype.str, data.shape, data.tobytes()
        if key not in self.initializers:
            name = f"c{len(self.initializers)}"
            self.initializers[key] = name, numpy_helper.from_array(data, name)
        return Value(self, self.initializers[key][0], data.dtype, data.shape, data)

    def axis(self, number: int) -> Value:
        return self.constant(np.array([number], dtype=np.int64))

    def binary(
        self, operator: str, x: Operand, y: Operand, dtype: npt.DTypeLike | None = None
    ) -> Value:
        """Append an operation of two values, or of a value and a number."""
        like = x if isinstance(x, Value) else y
        assert isinstance(like, Value)
        x, y = (self._value(operand, like) for operand in (x, y))
        if operator in _UFUNCS and x.data is not None and y.data is not None:
            return self.constant(_UFUNCS[operator](x.data, y.data))
        return self.node(operator, [x, y], dtype or like.dtype, _broadcast(x.shape, y.shape))

    def _value(self, operand: Operand, like: Value) -> Value:
        """Return an operand as a value; a number gets the dtype of the other operand."""
        if isinstance(operand, Value):
            return operand
        return self.constant(np.asarray(operand, dtype=like.dtype))

    def input(self, name: str, dtype: npt.DTypeLike, classes: int) -> Value:
        """Declare the graph's input, a batch of rows."""
        self.inputs.append(_value_info(name, dtype, ("batch", classes)))
        return Value(self, name, dtype, (None, classes))

    def output(self, name: str, value: Value) -> None:
        """Declare an output."""
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        shape = tuple("batch" if size is None else size for size in value.shape)
        self.outputs.append(_value_info(name, value.dtype, shape))

    def model(
        self, name: str, producer: str, version: str, facts: dict[str, str], opset: int = OPSET
    ) -> ModelProto:
        """Return the nodes that the outputs depend on, as a model."""
        needed = {output.name for output in self.outputs}
        nodes: list[NodeProto] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.insert(0, node)
        constants = [tensor for name, tensor in self.initializers.values() if name in needed]
        graph = helper.make_graph(nodes, name, self.inputs, self.outputs, constants)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name=producer, producer_version=version
        )
        model.ir_version = helper.find_min_ir_version_for(opsets)
        helper.set_model_props(model, facts)
        return model

    # The part of the array API that the expressions use.

    def exp(self, x: Value) -> Value:
        return self.node("Exp", [x], x.dtype, x.shape)

    def log(self, x: Value) -> Value:
        if x.data is not None:
            return self.constant(np.log(x.data))
        return self.node("Log", [x], x.dtype, x.shape)

    def sqrt(self, x: Value) -> Value:
        return self.node("Sqrt", [x], x.dtype, x.shape)

    def astype(self, x: Value, dtype: npt.DTypeLike) -> Value:
        return self.node("Cast", [x], dtype, x.shape, to=_element_type(dtype))

    def where(self, condition: Value, x: Value, y: Operand) -> Value:
        y = self._value(y, x)
        shape = _broadcast(condition.shape, _broadcast(x.shape, y.shape))
        return self.node("Where", [condition, x, y], x.dtype, shape)

    # torch's name, because the array API has no function for an array and a number.
    def clamp(self, x: Value, *, min: Operand | None = None, max: Operand | None = None) -> Value:
        for operator, bound in (("Max", min), ("Min", max)):
            if bound is not None:
                other = self._value(bound, x)
                x = self.node(operator, [x, other], x.dtype, _broadcast(x.shape, other.shape))
        return x

    # A scalar is enough, because it broadcasts.
    def zeros_like(self, x: Value) -> Value:
        return self.constant(x.dtype.type(0))

    def ones_like(self, x: Value) -> Value:
        return self.constant(x.dtype.type(1))

    def arange(self, *ends: int, dtype: npt.DTypeLike = np.int64, device: None = None) -> Value:
        return self.constant(np.arange(*ends, dtype=dtype))

    def sum(self, x: Value, *, axis: int, keepdims: bool = False) -> Value:
        return self._reduce("ReduceSum", x, axis, keepdims)

    def max(self, x: Value, *, axis: int, keepdims: bool = False) -> Value:
        return self._reduce("ReduceMax", x, axis, keepdims)

    def min(self, x: Value, *, axis: int) -> Value:
        return self._reduce("ReduceMin", x, axis, False)

    def any(self, x: Value, *, axis: int) -> Value:
        return self.astype(self._reduce("ReduceMax", self.astype(x, np.int64), axis, False), bool)

    def all(self, x: Value, *, axis: int) -> Value:
        return self.astype(self._reduce("ReduceMin", self.astype(x, np.int64), axis, False), bool)

    def cumulative_sum(self, x: Value, *, axis: int) -> Value:
        return self.node("CumSum", [x, self.constant(np.int64(axis))], x.dtype, x.shape)

    def flip(self, x: Value, *, axis: int) -> Value:
        count = x.shape[axis]
        assert count is not None
        backwards = self.constant(np.arange(count - 1, -1, -1, dtype=np.int64))
        return self.node("Gather", [x, backwards], x.dtype, x.shape, axis=axis)

    def argmax(self, x: Value, *, axis: int) -> Value:
        return self.node("ArgMax", [x], np.int64, x.shape[:1], axis=axis, keepdims=0)

    def argsort(
        self, x: Value, *, axis: int, descending: bool = False, stable: bool = True
    ) -> Value:
        # TopK puts the smaller index first among equals, as a stable sort does.
        return self._sorted(x, axis, descending)[1]

    def sort(self, x: Value, *, axis: int, descending: bool = False) -> Value:
        return self._sorted(x, axis, descending)[0]

    def _sorted(self, x: Value, axis: int, descending: bool) -> list[Value]:
        """Return the sorted values and their indices."""
        count = x.shape[axis]
        assert count is not None
        outputs = [(x.dtype, x.shape), (np.int64, x.shape)]
        inputs = [x, self.axis(count)]
        return self._append("TopK", inputs, outputs, axis=axis, largest=int(descending))

    def take_along_axis(self, x: Value, indices: Value, *, axis: int) -> Value:
        return self.node("GatherElements", [x, indices], x.dtype, indices.shape, axis=axis)

    def stack(self, values: Sequence[Value], *, axis: int) -> Value:
        columns = [value[:, None] for value in values]
        shape = (columns[0].shape[0], len(columns))
        return self.node("Concat", columns, columns[0].dtype, shape, axis=axis)

    def matmul(self, x: Value, y: Value) -> Value:
        return self.node("MatMul", [x, y], x.dtype, (x.shape[0], y.shape[1]))

    def _reduce(self, operator: str, x: Value, axis: int, keepdims: bool) -> Value:
        shape = tuple(
            1 if index == axis else size
            for index, size in enumerate(x.shape)
            if keepdims or index != axis
        )
        return self.node(operator, [x, self.axis(axis)], x.dtype, shape, keepdims=int(keepdims))


def _broadcast(x: Shape, y: Shape) -> Shape:
    """Return the shape of two broadcast together; None is the batch."""
    size = max(len(x), len(y))
    x, y = ((1,) * (size - len(shape)) + shape for shape in (x, y))
    return tuple(b if a == 1 else a for a, b in zip(x, y, strict=True))


def _element_type(dtype: npt.DTypeLike) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _value_info(name: str, dtype: npt.DTypeLike, shape: Sequence[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, _element_type(dtype), shape)
