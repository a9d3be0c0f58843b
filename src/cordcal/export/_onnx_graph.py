"""ONNX graphs: expressions recorded as nodes, and a graph appended to a network's.

`Graph` is an array namespace that records nodes instead of computing.  cordcal's array
expressions take it as their namespace and `Value` objects as arrays; operators and functions
append nodes.  Only the operations that those expressions use are implemented.  Rows are the
batch, of unknown size; all other axes have a fixed size.  Operations on constants are evaluated
immediately, with NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
    version_converter,
)

from cordcal._errors import InputError

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

    def take(self, x: Value, indices: Value, *, axis: int) -> Value:
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return self.node("Gather", [x, indices], x.dtype, shape, axis=axis)

    def take_along_axis(self, x: Value, indices: Value, *, axis: int) -> Value:
        return self.node("GatherElements", [x, indices], x.dtype, indices.shape, axis=axis)

    def stack(self, values: Sequence[Value], *, axis: int) -> Value:
        columns = [value[:, None] for value in values]
        shape = (columns[0].shape[0], len(columns))
        return self.node("Concat", columns, columns[0].dtype, shape, axis=axis)

    def concat(self, values: Sequence[Value], *, axis: int) -> Value:
        return self.node("Concat", values, values[0].dtype, values[0].shape, axis=axis)

    def reshape(self, x: Value, shape: tuple[int, int]) -> Value:
        sizes = tuple(None if size == -1 else size for size in shape)
        return self.node("Reshape", [x, self.constant(np.array(shape))], x.dtype, sizes)

    def softmax(self, x: Value, axis: int) -> Value:
        return self.node("Softmax", [x], x.dtype, x.shape, axis=axis)

    def log_softmax(self, x: Value, axis: int) -> Value:
        return self.node("LogSoftmax", [x], x.dtype, x.shape, axis=axis)

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


# Graphs of networks.

Inputs = Mapping[str, npt.NDArray[np.generic]]
"""Arrays by the name of a network's input."""

# Rows that the joined graph is checked on, if the caller has none.
_ROWS = 64
_DTYPES: dict[int, str] = {
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
}


def load_network(path: str) -> ModelProto:
    """Read a network, with its opset converted to the first that the calibration's graph needs."""
    if not Path(path).is_file():
        raise InputError("behind", f"is {path}, and there is no such file", "name an ONNX file")
    try:
        network = onnx.load(path)
        onnx.checker.check_model(network)
    except Exception as error:  # protobuf and onnx raise errors of many classes
        raise InputError(
            "behind", f"is {path}, which is not a valid ONNX model ({error})", "export it again"
        ) from error
    version = opset_of(network)
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise InputError(
            "behind",
            f"has opset {version}, and the installed onnx {onnx.__version__} knows up to {newest}",
            "upgrade onnx",
        )
    return network if version >= OPSET else version_converter.convert_version(network, OPSET)


def opset_of(model: ModelProto) -> int:
    """Return the version of the standard operators."""
    return max((entry.version for entry in model.opset_import if entry.domain == ""), default=OPSET)


def find_output(network: ModelProto, name: str | None, classes: int) -> ValueInfoProto:
    """Return the network's output with the scores; the only one if none is named."""
    outputs = {output.name: output for output in network.graph.output}
    if name is None and len(outputs) > 1:
        raise InputError(
            "behind",
            f"has {len(outputs)} outputs: {', '.join(outputs)}",
            "name the one with the scores, {option}",
            option=("network_output", next(iter(outputs))),
        )
    if name is not None and name not in outputs:
        raise InputError(
            "network_output",
            f"is {name!r}, but the network's outputs are {', '.join(outputs)}",
            "name one of these",
        )
    output: ValueInfoProto = next(iter(outputs.values())) if name is None else outputs[name]
    tensor = output.type.tensor_type
    if tensor.elem_type not in _DTYPES:
        raise InputError(
            "behind",
            f"has scores of type {helper.tensor_dtype_to_string(tensor.elem_type)}",
            "let the network return float32, float64 or float16",
        )
    sizes = [dim.dim_value or None for dim in tensor.shape.dim]
    if tensor.HasField("shape") and (len(sizes) != 2 or sizes[1] not in (None, classes)):
        shape = ", ".join("?" if size is None else str(size) for size in sizes)
        raise InputError(
            "behind",
            f"has scores {output.name!r} of shape ({shape}), but the model has {classes} classes",
            "name an output of shape (batch, classes)",
        )
    return output


def dtype_of(output: ValueInfoProto) -> str:
    """Return the dtype of an output of scores."""
    return _DTYPES[output.type.tensor_type.elem_type]


def join(network: ModelProto, calibration: ModelProto, scores: str) -> ModelProto:
    """Return the network with the calibration's nodes after its output of scores.

    The outputs of both are kept.  A name that the network uses already gets the prefix
    ``cordcal_``.
    """
    joined = ModelProto()
    joined.CopyFrom(network)
    joined.ir_version = max(network.ir_version, calibration.ir_version)
    used = set(_names(network))
    (source,) = calibration.graph.input
    names = {source.name: scores}
    for name in _names(calibration):
        if name not in names:
            names[name] = f"cordcal_{name}" if name in used else name
    for node in calibration.graph.node:
        copy = joined.graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [names[name] for name in node.input]
        copy.output[:] = [names[name] for name in node.output]
    for tensor in calibration.graph.initializer:
        constant = joined.graph.initializer.add()
        constant.CopyFrom(tensor)
        constant.name = names[tensor.name]
    batch = next(output for output in network.graph.output if output.name == scores)
    for output in calibration.graph.output:
        declared = joined.graph.output.add()
        declared.CopyFrom(output)
        declared.name = names[output.name]
        if batch.type.tensor_type.shape.dim:
            declared.type.tensor_type.shape.dim[0].CopyFrom(batch.type.tensor_type.shape.dim[0])
    joined.metadata_props.extend(calibration.metadata_props)
    onnx.checker.check_model(joined, full_check=True)
    return joined


def output_names(joined: ModelProto) -> list[str]:
    """Return the names of the outputs direct, repaired and label of a joined graph."""
    return [output.name for output in joined.graph.output][-3:]


def _names(model: ModelProto) -> Iterator[str]:
    """Yield the names of all values of a graph."""
    for value in (*model.graph.input, *model.graph.initializer):
        yield value.name
    for node in model.graph.node:
        yield from node.output


def example_inputs(network: ModelProto) -> list[Inputs]:
    """Return random batches for the network's inputs; refuse sizes that cannot be guessed."""
    rng = np.random.default_rng(0)
    constants = {tensor.name for tensor in network.graph.initializer}
    inputs = [value for value in network.graph.input if value.name not in constants]
    batch = {_size(value, 0) for value in inputs} - {None}
    rows = batch.pop() or 1 if batch else _ROWS
    return [
        {value.name: _random(value, rows, rng) for value in inputs}
        for _ in range(-(-_ROWS // rows))
    ]


def _size(value: ValueInfoProto, axis: int) -> int | None:
    dims = value.type.tensor_type.shape.dim
    return int(dims[axis].dim_value) or None if len(dims) > axis else None


def _random(value: ValueInfoProto, rows: int, rng: np.random.Generator) -> npt.NDArray[np.generic]:
    tensor = value.type.tensor_type
    sizes = [_size(value, axis) for axis in range(1, len(tensor.shape.dim))]
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if None in sizes or not tensor.HasField("shape") or dtype.kind not in "fiub":
        raise InputError(
            "behind",
            f"has an input {value.name!r} for which no example can be made up",
            "pass {option}, arrays by the name of the input, to check the joined graph with",
            option=("examples", "..."),
        )
    shape = (rows, *(size for size in sizes if size is not None))
    values = rng.normal(size=shape) if dtype.kind == "f" else rng.integers(2, size=shape)
    return np.asarray(values.astype(dtype))
