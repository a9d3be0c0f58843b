"""Append the calibration's graph to the graph of a network that produces the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, ValueInfoProto, helper, version_converter

from cordcal._errors import InputError
from cordcal.export._onnx_graph import OPSET

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
