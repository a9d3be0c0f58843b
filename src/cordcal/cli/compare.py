"""``cordcal compare``: which calibrator to use, and what each does to the decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordcal.cli._command import add_command
from cordcal.cli._console import headline, progress, say, show, show_json
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

if TYPE_CHECKING:
    from cordcal.files import Scores

TITLE = "Which calibrator, and what it does to decisions"


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, compare, "compare scores.npz --report report.html")


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
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if there is anything to check first.")
    ] = False,
) -> None:
    """Fit every calibrator on one part of the rows and compare their reports on the other."""
    depth = parse_preserve(preserve)
    if report is not None:
        check_output(report, force=force)
    headline(f"cordcal compare: {scores}")
    found, other = _parts(scores, evaluation, key=key, labels=labels, kind=input)
    truth = need_labels(found)
    held_out: Any = share if other is None else (other.values, need_labels(other))
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
            features=found.features if other is None else None,
            progress=advance,
        )
    step = comparison.next_step(scores, options=_reading_options(key, labels))
    present(comparison, report, source=Path(found.path).name, json=json, step=step)
    if strict and comparison.concerns:
        raise typer.Exit(1)


def _parts(
    scores: str, evaluation: str | None, *, key: str | None, labels: str | None, kind: Any
) -> tuple[Scores, Scores | None]:
    """Read the rows to fit on, and those to evaluate on where a file gives them."""
    if evaluation is None and labels is None and scores != "-":
        from cordcal.files._calarena import read_experiment

        pair = read_experiment(scores, key)
        if pair is not None:
            return pair
    found = read(scores, key=key, labels=labels, kind=kind)
    if evaluation is None:
        return found, None
    other = read(evaluation, key=key, labels=labels, kind=kind)
    check_names(found.class_names, scores, other.class_names, evaluation)
    return found, other


def _reading_options(key: str | None, labels: str | None) -> tuple[str, ...]:
    """Return the options with which the scores were read."""
    given = {"--key": key, "--labels": labels}
    return tuple(part for name, value in given.items() if value for part in (name, value))


def present(
    comparison: Any, report: Path | None, *, source: str, json: bool, step: Any = None
) -> None:
    """Print a comparison, and write its report where one is wanted."""
    data = {**comparison.to_dict(), "next_step": None if step is None else step.to_dict()}
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
    if step is not None:
        say("next step, in a terminal or in Python:")
        for line in (*step.shell, *step.python):
            say(f"  {line}")
