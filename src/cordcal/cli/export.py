"""``cordcal export``: a model file as an ONNX graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cordcal._errors import InputError
from cordcal.cli._console import echo, show_json
from cordcal.cli._files import check_output, check_suffix
from cordcal.cli._options import ForceOption, InputKind, JsonOption, OutputDtype, add_command

if TYPE_CHECKING:
    from cordcal._numeric.types import NumPyArray


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
            help="ONNX file of the network; the graph then contains the network and the model.",
        ),
    ] = None,
    network_output: Annotated[
        str | None,
        typer.Option(
            "--network-output", help="The network's output with the scores, if it has several."
        ),
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(
            "--examples",
            metavar="FILE",
            help="npz file with inputs of the network, by name, to check the graph with; by "
            "default random ones.",
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

    written = write(
        cordcal.load(model),
        output,
        dtype=None if dtype is None else dtype.value,
        input=None if input is None else input.value,
        behind=behind,
        network_output=network_output,
        examples=None if examples is None else _read_examples(examples),
        overwrite=force,
    )
    if json:
        show_json(written.to_dict())
        return
    source = f"{written.input} in" if behind is None else f"{behind} and {model} joined"
    echo(
        f"{written.path}: {written.bytes:,} bytes, {written.nodes:,} nodes, {source}, "
        f"direct, repaired and label out; {written.rows_checked:,} rows checked in onnxruntime"
    )


def _read_examples(path: str) -> dict[str, NumPyArray]:
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(
            "--examples",
            f"cannot be read as an npz file ({error})",
            "write it with numpy.savez(path, name_of_input=array)",
        ) from error
