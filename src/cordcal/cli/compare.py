"""``cordcal compare``: which calibrator to use, and how many predictions each changes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordcal._errors import InputError
from cordcal.cli._console import VERBOSITY, echo, echo_heading, progress, show, show_json
from cordcal.cli._files import check_report, file_digest
from cordcal.cli._inputs import (
    read_calibration_rows,
    read_column,
    read_context,
    read_groups,
    require_labels,
)
from cordcal.cli._options import (
    CONTEXT_OPTIONS,
    DEFAULT_INPUTS,
    LABELLED_OPTIONS,
    ForceOption,
    InputOptions,
    JsonOption,
    OnErrorOption,
    PreserveOption,
    ReportOption,
    StrictOption,
    add_command,
    check_on_error,
    parse_preserve,
    with_input_options,
)

if TYPE_CHECKING:
    from cordcal._numeric.types import Classes
    from cordcal.evaluate.comparison import Comparison
    from cordcal.evaluate.results.report import SuggestedCommand
    from cordcal.files import Scores
    from cordcal.files.loop import OnError

TITLE = "Which calibrator to use, and how it changes predictions"


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, compare, "compare scores.npz --report report.html")


@with_input_options(*LABELLED_OPTIONS, "groups", "cluster_column", *CONTEXT_OPTIONS, "input")
def compare(
    scores: Annotated[
        list[str], typer.Argument(help="Files of scores with labels; - reads stdin.")
    ],
    calibrator: Annotated[
        list[str] | None,
        typer.Option(
            "--calibrator",
            metavar="KEY",
            help="Keys, such as ts,svs; or all.",
        ),
    ] = None,
    hold_out: Annotated[
        str,
        typer.Option(
            "--hold-out",
            metavar="SHARE|FILE",
            help="Share of the rows to evaluate on, such as 50%, or a file of other rows.",
        ),
    ] = "50%",
    inputs: InputOptions = DEFAULT_INPUTS,
    preserve: PreserveOption = "1",
    on_error: OnErrorOption = "stop",
    report: ReportOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """Fit calibrators on one part of the rows and compare them on the other part."""
    depth = parse_preserve(preserve)
    if report is not None:
        check_report(report, force=force)
    from cordcal.files.disk import Parts

    echo_heading(f"cordcal compare: {Parts.of(scores).name}")
    treatment = check_on_error(on_error)
    share, other = _share_or_file(hold_out)
    calibration, evaluation_scores, numbers = _parts(scores, other, inputs, treatment)
    rows = numbers[-1]
    context: Any = read_context(calibration, inputs)
    if evaluation_scores is not None and context is not None:
        context = context, read_context(evaluation_scores, inputs, like=context)
    labels = require_labels(calibration)
    evaluation_rows: float | tuple[object, object] = (
        share
        if evaluation_scores is None
        else (evaluation_scores.values, require_labels(evaluation_scores))
    )
    from cordcal._validation.caveats import CaveatWarning
    from cordcal.calibrators.registry import available, default_keys
    from cordcal.evaluate.compare import compare as run

    keys = [key for text in calibrator or ["default"] for key in text.split(",") if key]
    for key in (key for key in keys if ":" in key):
        raise InputError(
            "calibrators",
            f"is {key!r}, which is not a key",
            "compare a class of your own in Python, with cordcal.compare",
        )
    lists = {"default": default_keys, "all": available}
    chosen: str | list[str]
    if len(keys) == 1 and keys[0] in lists:
        chosen, steps = keys[0], len(lists[keys[0]]()) + 1
    else:
        chosen, steps = keys, len(keys) + 1
    with progress("comparing", steps) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)  # shown with the result instead
        comparison = run(
            calibration.values,
            labels,
            chosen,
            input=calibration.kind,
            evaluation=evaluation_rows,
            preserve=depth,
            class_names=calibration.class_names,
            groups=read_groups(other or scores, inputs, rows),
            clusters=_clusters(scores, other, numbers, inputs),
            context=context,
            progress=advance,
        )
    used_options = inputs.used(*LABELLED_OPTIONS, "cluster_column")
    arguments = inputs.arguments()
    if evaluation_scores is not None and other is None:
        # The calibration rows of an experiment.
        used_options["--columns"] = arguments["columns"] = calibration.key
    advice = comparison.recommendation
    if advice.is_default and advice.context is not None and advice.context.is_clear:
        used_options |= inputs.used(*CONTEXT_OPTIONS)
    step = comparison.next_step(*scores, options=used_options, arguments=arguments)
    source = Path(calibration.path).name
    if other is not None:
        source = f"{source}, evaluated on {Path(other).name}"
    present(
        comparison,
        report,
        source=source,
        files=(*scores, other),
        step=step,
        json=json,
        force=force,
    )
    if strict and comparison.caveats:
        raise typer.Exit(1)


def _clusters(
    scores: list[str],
    evaluation: str | None,
    rows: Sequence[Classes | None],
    inputs: InputOptions,
) -> object:
    """Return the cluster of each row; of both files if the second has the rows to evaluate on."""
    column = inputs.cluster_column
    first = read_column(column, scores, rows[0], inputs=inputs)
    if evaluation is None or column is None:
        return first
    return first, read_column(column, evaluation, rows[-1], inputs=inputs)


def _share_or_file(text: str) -> tuple[float, str | None]:
    """Return the share of the rows to evaluate on, and the file instead of it."""
    from cordcal.evaluate.gates import parse_share

    try:
        return parse_share(text, "--hold-out"), None
    except InputError:
        return 0.0, text


def _parts(
    scores: list[str],
    evaluation: str | None,
    inputs: InputOptions,
    on_error: OnError,
) -> tuple[Scores, Scores | None, list[Classes | None]]:
    """Read the rows to fit on and, from a second file if given, those to evaluate on.

    The third value is the row numbers of each file, None unless rows may be skipped.
    """
    calibration, rows = read_calibration_rows(scores, inputs, on_error)
    if evaluation is None:
        return calibration, None, [rows]
    evaluation_scores, later_rows = read_calibration_rows(
        evaluation,
        inputs,
        on_error,
        classes=calibration.class_names,
        classes_in=calibration.path,
    )
    return calibration, evaluation_scores, [rows, later_rows]


def present(
    comparison: Comparison,
    report: Path | None,
    *,
    source: str,
    files: Sequence[str | None] = (),
    step: SuggestedCommand | None,
    json: bool,
    force: bool,
) -> None:
    """Print a comparison, the answer first, and write its HTML report if requested.

    Parameters
    ----------
    comparison : Comparison
        The result.
    report : Path or None
        The HTML file to write.
    source : str
        Where the scores came from.
    files : sequence of str or None
        The files that were read, for the digests in the report.
    step : SuggestedCommand or None
        What to run next.
    json, force : bool
        The options of the command.
    """
    all_rows = VERBOSITY.verbose
    data = replace(comparison.report_data(), next_step=step)
    if report is not None:
        from cordcal.report import write_html

        digests = tuple(file_digest(name) for name in files if name and Path(name).is_file())
        page = replace(data, files=digests)
        write_html(page, report, title=TITLE, source=source, overwrite=force)
    if json:
        show_json({**comparison.to_dict(), "next_step": None if step is None else step.to_dict()})
        return
    from cordcal.report import terminal

    caveats = terminal.caveats_text(caveat.sentence for caveat in data.caveats)
    answer = terminal.comparison_answer(data, "" if report is None else str(report))
    show(*caveats, answer, wide=all_rows)
    if step is not None:
        echo("Next")
        for line in step.shell:  # unbroken, to be copied
            echo(f"  {line}")
    if all_rows:
        show("", terminal.Bullets(data.reading), wide=all_rows)
    table = terminal.comparison_table(data, all_rows=all_rows, hint="--verbose shows")
    show(table, wide=all_rows)
    if all_rows and data.act:
        show("", terminal.act_table(data), wide=all_rows)
    for below in (terminal.groups_table(data), terminal.gaps_table(data)):
        if below is not None:
            show(below, wide=all_rows)
    for key, reason in data.left_out.items():
        echo(f"not run: {key}: {reason}")
