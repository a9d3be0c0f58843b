"""``cordcal export``: a model file as an ONNX graph."""

from __future__ import annotations

from typing import Annotated

import typer

from cordcal.cli._command import add_command
from cordcal.cli._console import echo, show_json
from cordcal.cli._files import check_output, check_suffix
from cordcal.cli._options import ForceOption, InputKind, JsonOption, OutputDtype


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, export, "export model.safetensors model.onnx")


def export(
    model: Annotated[str, typer.Argument(help="A model file that cordcal fit wrote.")],
    output: Annotated[str, typer.Argument(help="ONNX file to write.")],
    dtype: Annotated[
        OutputDtype,
        typer.Option("--dtype", help="Dtype of the graph's input and of its probabilities."),
    ] = OutputDtype.float32,
    input: Annotated[
        InputKind | None,
        typer.Option("--input", help="Kind of the graph's input; by default that of the model."),
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

    fitted = cordcal.load(model)
    kind = input or InputKind(getattr(fitted, "input", None) or InputKind.logits)
    written = write(fitted, output, dtype=dtype.value, input=kind.value, overwrite=force)
    if json:
        show_json(written.to_dict())
        return
    echo(
        f"{written.path}: {written.bytes:,} bytes, {written.nodes:,} nodes, {written.input} in, "
        f"direct, repaired and label out; {written.rows_checked:,} rows checked in onnxruntime"
    )
