"""``cordcal export``: a model file as an ONNX graph."""

from __future__ import annotations

from typing import Annotated

import typer

from cordcal._errors import InputError
from cordcal.cli._console import echo, show_json
from cordcal.cli._files import check_output, check_suffix
from cordcal.cli._options import ForceOption, InputKind, JsonOption, OutputDtype, add_command
from cordcal.cli._vectors import parse_vector


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, export, "export model.safetensors model.onnx")


def export(
    model: Annotated[str, typer.Argument(help="A model file that cordcal fit wrote.")],
    output: Annotated[str, typer.Argument(help="ONNX file to write.")],
    dtype: Annotated[
        OutputDtype | None,
        typer.Option(
            "--dtype",
            help="Dtype of the graph's input and of its probabilities; by default float32, with "
            "--behind that of the network's scores.",
        ),
    ] = None,
    input: Annotated[
        InputKind | None,
        typer.Option("--input", help="Kind of the graph's input; by default that of the model."),
    ] = None,
    behind: Annotated[
        str | None,
        typer.Option(
            "--behind",
            metavar="FILE",
            help="ONNX file of the network; the graph then contains the network and the model. "
            "FILE:NAME names the output with the scores, if there are several.",
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write a model as one ONNX graph with outputs direct, repaired and label.

    onnxruntime checks the graph first; if its predictions differ from the library's, no file is
    written.
    """
    check_suffix(output, "an ONNX graph", ".onnx")
    check_output(output, force=force)
    import cordcal
    from cordcal.onnx import export as write

    network, scores = parse_vector(behind)
    if behind is not None and network is None:
        raise InputError("--behind", f"is {behind}, which is not a file", "name an ONNX file")
    written = write(
        cordcal.load(model),
        output,
        dtype=None if dtype is None else dtype.value,
        input=None if input is None else input.value,
        behind=network,
        network_output=scores,
        overwrite=force,
    )
    if json:
        show_json(written.to_dict())
        return
    source = f"{written.input} in" if network is None else f"{network} and {model} joined"
    echo(
        f"{written.path}: {written.bytes:,} bytes, {written.nodes:,} nodes, {source}, "
        f"direct, repaired and label out; {written.rows_checked:,} rows checked in onnxruntime"
    )
