"""``cordcal info``: the contents of a file, and its problems."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordcal._errors import printable
from cordcal.cli._console import echo, echo_info, show, show_json
from cordcal.cli._files import check_output, check_suffix
from cordcal.cli._options import (
    DEFAULT_INPUTS,
    TEXT_OPTIONS,
    ForceOption,
    InputOptions,
    JsonOption,
    add_command,
    with_input_options,
)

if TYPE_CHECKING:
    from rich.table import Table


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, info, "info scores.npz", "info model.safetensors --report card.md")


@with_input_options(*TEXT_OPTIONS)
def info(
    file: Annotated[str, typer.Argument(help="Any file that cordcal reads or writes.")],
    inputs: InputOptions = DEFAULT_INPUTS,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write the model card of a model file (Markdown)."
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Show what a file contains (scores, answers, a model, a graph, a report) and its problems."""
    from cordcal.files import inspect
    from cordcal.llm import inspect_answers

    if report is not None:
        _write_card(file, report, force=force)
    contents: dict[str, Any] | None = _describe_state(file) or inspect_answers(file)
    if contents is None:
        text = inputs.text_options()
        contents = inspect(file, header=text.header, decimal=text.decimal, encoding=text.encoding)
    if json:
        show_json(contents)
        return
    show(_table(contents))
    if contents.get("effects"):
        from cordcal.repair import ContextEffect

        for effect in contents["effects"]:
            show(f"  {ContextEffect(**effect)}")
    for problem in contents["problems"]:
        show(f"problem: {problem}")
    if contents.get("next_step") is not None:
        echo(f"next step: {contents['next_step']}")
    if contents.get("then") is not None:
        echo(f"then: {contents['then']}")


def _write_card(file: str, report: Path, *, force: bool) -> None:
    from cordcal.files.disk import write_text
    from cordcal.report.card import model_card

    check_suffix(report, "a model card", ".md")
    check_output(report, force=force)
    write_text(report, model_card(file), overwrite=force)
    echo_info(f"report: {report}")


def _describe_state(path: str) -> dict[str, Any] | None:
    """Describe the state of a monitor or a baseline of `check`; None for other files."""
    from cordcal.files.models import state_kind

    kind = state_kind(path)
    if kind == "monitor":
        from cordcal.evaluate.monitor import Monitor

        monitor = Monitor.load(path)
        return {
            "file": path,
            "format": "state of a monitor",
            "classes": monitor.n_classes,
            "class_names": monitor.class_names,
            "baseline_rows": monitor.baseline_rows,
            "batches": len(monitor.periods),
            "verdict": monitor.status.verdict,
            "problems": [],
            "next_step": shlex.join(["cordcal", "monitor", "show", path]),
        }
    if kind == "baseline":
        from cordcal.evaluate.baseline import Baseline

        baseline = Baseline.load(path)
        return {
            "file": path,
            "format": "baseline of a check",
            "class_names": baseline.class_names,
            "rows": len(baseline.keys),
            "problems": [],
        }
    return None


# What is shown below the table.
_BELOW = ("problems", "entries", "effects", "next_step", "then")


def _table(contents: dict[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in contents.items():
        if name not in _BELOW and value is not None:
            table.add_row(
                Text(name.replace("_", " "), style="bold"), Text(printable(_format_value(value)))
            )
    for entry in contents.get("entries", ()):
        facts = ", ".join(_format_value(value) for name, value in entry.items() if name != "name")
        table.add_row(Text(printable(f"  {entry['name']}")), Text(printable(facts)))
    return table


def _format_value(value: object) -> str:
    if isinstance(value, list | tuple):
        shown = [str(entry) for entry in value[:8]]
        return ", ".join(shown) + (f", … ({len(value):,})" if len(value) > len(shown) else "")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
