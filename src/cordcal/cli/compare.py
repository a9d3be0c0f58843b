"""``cordcal compare``: which calibrator to use, and what each does to the decisions."""

from __future__ import annotations

import warnings
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordcal.cli._command import add_command
from cordcal.cli._console import echo, echo_heading, progress, show, show_json
from cordcal.cli._files import check_report
from cordcal.cli._inputs import read_calibration_rows, read_groups, require_labels
from cordcal.cli._options import (
    DEFAULT_INPUTS,
    LABELLED_OPTIONS,
    AllowImportOption,
    ForceOption,
    GroupsColumnOption,
    GroupsOption,
    InputOption,
    InputOptions,
    JsonOption,
    OnErrorOption,
    PreserveOption,
    ReportOption,
    StrictOption,
    WideOption,
    check_on_error,
    parse_preserve,
    with_input_options,
)

if TYPE_CHECKING:
    from cordcal._numeric.types import Classes
    from cordcal.files import Scores
    from cordcal.serving._refusals import OnError

TITLE = "Which calibrator, and what it does to decisions"


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, compare, "compare scores.npz --report report.html")


@with_input_options(*LABELLED_OPTIONS)
def compare(
    scores: Annotated[str, typer.Argument(help="Scores with labels; - reads stdin.")],
    calibrator: Annotated[
        list[str] | None,
        typer.Option(
            "--calibrator",
            help="Keys, as in ts,svs, or module:Class with --allow-import; all where left out.",
        ),
    ] = None,
    allow_import: AllowImportOption = False,
    evaluation: Annotated[
        str | None,
        typer.Option("--evaluation", help="Evaluate on this file instead of a share of the rows."),
    ] = None,
    share: Annotated[
        float, typer.Option("--share", help="The share of the rows to evaluate on.")
    ] = 0.5,
    splits: Annotated[int, typer.Option("--splits", help="Random splits to average.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the splits.")] = 0,
    groups: GroupsOption = None,
    groups_column: GroupsColumnOption = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    input: InputOption = None,
    preserve: PreserveOption = "1",
    on_error: OnErrorOption = "stop",
    report: ReportOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    wide: WideOption = False,
    strict: StrictOption = False,
) -> None:
    """Fit every calibrator on one part of the rows and compare their reports on the other."""
    depth = parse_preserve(preserve)
    if report is not None:
        check_report(report, force=force)
    echo_heading(f"cordcal compare: {scores}")
    treatment = check_on_error(on_error)
    found, other, rows = _parts(scores, evaluation, inputs, treatment, kind=input)
    truth = require_labels(found)
    held_out: Any = share if other is None else (other.values, require_labels(other))
    from cordcal import calibrators

    named = [key for given in calibrator or () for key in given.split(",") if key]
    chosen = [_calibrator(each, allow_import) for each in named]
    from cordcal._validation.sanity import DoubtWarning
    from cordcal.evaluate.compare import compare as run

    keys = chosen or calibrators.available()
    with progress("comparing", len(keys) + 1) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtWarning)  # the concerns are shown with the result
        comparison = run(
            found.values,
            truth,
            chosen or "all",
            input=found.kind,
            evaluation=held_out,
            splits=splits,
            seed=seed,
            preserve=depth,
            class_names=found.class_names,
            features=found.features if other is None else None,
            groups=read_groups(
                groups, groups_column, evaluation or scores, rows, header=inputs.header
            ),
            progress=advance,
        )
    given = inputs.used()
    if other is not None and evaluation is None:
        given["--key"] = found.key  # of an experiment, the rows to fit on
    step = None  # its lines of Python read score files, not answers
    if inputs.answers is None:
        options = tuple(word for word in chain(*given.items()) if word)
        step = comparison.next_step(scores, options=options)
    source = Path(found.path).name
    if evaluation is not None:
        source = f"{source}, evaluated on {Path(evaluation).name}"
    present(comparison, report, source=source, json=json, force=force, wide=wide, step=step)
    if strict and comparison.concerns:
        raise typer.Exit(1)


def _parts(
    scores: str, evaluation: str | None, inputs: InputOptions, on_error: OnError, *, kind: Any
) -> tuple[Scores, Scores | None, Classes | None]:
    """Read the rows to fit on, those to evaluate on where a file gives them, and which they are."""
    if evaluation is None and set(inputs.used()) <= {"--key"} and scores != "-":
        from cordcal.files._calarena import read_experiment

        pair = read_experiment(scores, inputs.key)
        if pair is not None:
            return *pair, None
    found, rows = read_calibration_rows(scores, inputs, on_error, kind=kind)
    if evaluation is None:
        return found, None, rows
    same: dict[str, Any] = {"expected": found.class_names, "classes_in": scores}
    other, rows = read_calibration_rows(evaluation, inputs, on_error, kind=kind, **same)
    return found, other, rows


def _calibrator(text: str, allow_import: bool) -> Any:
    """Return a key as it is, and what is to be imported as an object with its name."""
    from cordcal.calibrators.adapters import Imported, is_path, not_allowed

    if not is_path(text):
        return text
    if not allow_import:
        raise not_allowed(text, "calibrators", "--allow-import")
    return text.partition(":")[2], Imported.of(text).make()


def present(
    comparison: Any,
    report: Path | None,
    *,
    source: str,
    json: bool,
    force: bool,
    wide: bool,
    step: Any = None,
) -> None:
    """Print a comparison, and write its report where one is wanted."""
    data = {**comparison.to_dict(), "next_step": None if step is None else step.to_dict()}
    if report is not None:
        from cordcal.report import write_html

        write_html(data, report, title=TITLE, source=source, overwrite=force)
    if json:
        show_json(data)
        return
    show(comparison, wide=wide)
    show(comparison.interpret())
    for key, reason in comparison.left_out.items():
        echo(f"not run: {key}: {reason}")
    if report is not None:
        echo(f"report: {report}")
    if step is not None:
        echo("next step, in a terminal or in Python:")
        for line in (*step.shell, *step.python):
            echo(f"  {line}")
