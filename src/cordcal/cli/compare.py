"""``cordcal compare``: which calibrator to use, and what each does to the decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cordcal.cli._console import note, progress, say, show, show_json
from cordcal.cli._options import (
    ForceOption,
    InputOption,
    JsonOption,
    KeyOption,
    LabelsOption,
    PreserveOption,
    ReportOption,
    check_names,
    check_output,
    need_labels,
    parse_preserve,
    read,
)

TITLE = "Which calibrator, and what it does to decisions"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: cordcal compare scores.npz --report report.html")(compare)


def compare(
    scores: Annotated[str, typer.Argument(help="Scores with labels; - reads stdin.")],
    calibrator: Annotated[
        list[str] | None,
        typer.Option("--calibrator", help="A key; repeat it for more. All where left out."),
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option("--evaluation", help="Evaluate on this file instead of a share of the rows."),
    ] = None,
    share: Annotated[
        float, typer.Option("--share", help="The share of the rows to evaluate on.")
    ] = 0.5,
    splits: Annotated[int, typer.Option("--splits", help="Random splits to average.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the splits.")] = 0,
    labels: LabelsOption = None,
    key: KeyOption = None,
    input: InputOption = None,
    preserve: PreserveOption = "1",
    report: ReportOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Fit every calibrator on one part of the rows and compare their reports on the other."""
    depth = parse_preserve(preserve)
    if report is not None:
        check_output(report, force=force)
    (note if json else say)(f"cordcal compare: {scores}")
    found = read(scores, key=key, labels=labels, kind=input)
    truth = need_labels(found)
    held_out: Any = share
    if evaluation is not None:
        other = read(evaluation, key=key, labels=labels, kind=input)
        check_names(found.class_names, scores, other.class_names, evaluation)
        held_out = (other.values, need_labels(other))
    from cordcal import calibrators
    from cordcal.evaluate.compare import compare as run

    keys = calibrator or calibrators.available()
    with progress("comparing", len(keys) + 1) as advance:
        comparison = run(
            found.values,
            truth,
            calibrator or "all",
            input=found.kind,
            evaluation=held_out,
            splits=splits,
            seed=seed,
            preserve=depth,
            class_names=found.class_names,
            features=found.features if evaluation is None else None,
            progress=advance,
        )
    present(comparison, report, source=Path(found.path).name, json=json)


def present(comparison: Any, report: Path | None, *, source: str, json: bool) -> None:
    """Print a comparison, and write its report where one is wanted."""
    data = comparison.to_dict()
    if report is not None:
        from cordcal.report import write_html

        write_html(data, report, title=TITLE, source=source)
    if json:
        show_json(data)
        return
    show(comparison, comparison.interpret())
    for key, reason in comparison.left_out.items():
        say(f"not run: {key}: {reason}")
    if report is not None:
        say(f"report: {report}")
