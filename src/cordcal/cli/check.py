"""``cordcal check``: a gate for releases and CI, with an exit code."""

from __future__ import annotations

import json as jsons
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cordcal._errors import InputError
from cordcal._validation.names import class_order
from cordcal.cli._command import add_command
from cordcal.cli._console import echo, echo_info, show_json
from cordcal.cli._files import check_output, check_suffix
from cordcal.cli._inputs import check_same_shape, read_groups, read_renamed_scores, read_scores
from cordcal.cli._options import (
    ANSWER_OPTIONS,
    DEFAULT_INPUTS,
    ForceOption,
    GroupsColumnOption,
    GroupsOption,
    InputOption,
    InputOptions,
    JsonOption,
    with_input_options,
)

if TYPE_CHECKING:
    from cordcal.evaluate.gates import Gate
    from cordcal.files import Scores

_EXIT_CODES = {"passed": 0, "failed": 1, "not evaluated": 2}
_SIGNS = {"passed": "✓", "failed": "✗", "not evaluated": "?"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        check,
        "check scores.npz --original scores.npz --max tpcr=0 --max nll=9",
        exit_codes="Exit codes: 0 every gate passes; 1 one fails; 2 one could not be evaluated.",
    )


@with_input_options(
    "key", "columns", "class_names", "labels", "labels_column", "header", *ANSWER_OPTIONS
)
def check(
    reports: Annotated[str, typer.Argument(help="The reports, or scores, to check: a file.")],
    original: Annotated[
        str | None,
        typer.Option("--original", help="The scores whose decisions must stay, for tpcr."),
    ] = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    input: InputOption = None,
    most: Annotated[
        list[str] | None,
        typer.Option("--max", metavar="NAME=VALUE", help="A measure and its largest value."),
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option("--min", metavar="NAME=VALUE", help="A measure and its smallest value."),
    ] = None,
    gates: Annotated[
        Path | None, typer.Option("--gates", help="A TOML file with the tables max and min.")
    ] = None,
    groups: GroupsOption = None,
    groups_column: GroupsColumnOption = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="What an earlier check wrote.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", help="Write what a later check compares.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write the verdicts as JUnit XML.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Hold a report against limits; the exit code says whether it keeps them.

    A gate is a measure (tpcr, nll, brier, ece, accuracy, …), over all rows or over the worst
    decided class (nll.class), the worst group (nll.group) or as the change against a baseline
    (nll.increase).
    """
    if write_baseline is not None:
        check_suffix(write_baseline, "a baseline in JSON", ".json")
        check_output(write_baseline, force=force)
    if junit is not None:
        check_suffix(junit, "JUnit XML", ".xml")
        check_output(junit, force=force)
    wanted = _gates(gates, most or [], least or [])
    from cordcal.evaluate import gates as library

    scores, before = _read(reports, original, inputs, input)
    if before is not None:
        check_same_shape(before.path, before.values.shape, scores.path, scores.values.shape)
        before = _by_number(before, scores)
    labels = scores.labels
    if labels is None and before is not None and before.labels is not None:
        labels = before.labels
        echo_info(f"{scores.path} does not hold labels: those of {before.path} are used")
    found = library.check(
        _probabilities(scores),
        labels,
        gates=wanted,
        original=None if before is None else before.values,
        groups=read_groups(groups, groups_column, reports, header=inputs.header),
        baseline=None if baseline is None else _baseline(baseline, scores),
    )
    names = None if scores.class_names is None else list(scores.class_names)
    content = {**found.to_dict(), "class_names": names}
    if write_baseline is not None:
        _write(write_baseline, jsons.dumps(content, indent=2) + "\n", force=force)
    if junit is not None:
        _write(junit, found.to_junit(), force=force)
    if json:
        show_json(content)
    else:
        for verdict in found.verdicts:
            echo(f"{_SIGNS[verdict.outcome]} {verdict.reading}")
        echo_info(f"cordcal check: {found.outcome}")
    raise typer.Exit(_EXIT_CODES[found.outcome])


def _read(
    report: str, original: str | None, inputs: InputOptions, kind: Any
) -> tuple[Scores, Scores | None]:
    """Read the report and the original; the columns that are named may be those of one of them."""
    try:
        scores = read_scores(report, inputs, role="repaired", kind=kind)
    except InputError:
        if inputs.columns is None or original is None or report == "-":
            raise
        before = read_scores(
            original, InputOptions(columns=inputs.columns, header=inputs.header), role="original"
        )
        names: dict[str, Any] = {"expected": before.class_names, "classes_in": original}
        scores = read_scores(
            report, replace(inputs, columns=None), role="repaired", kind=kind, **names
        )
        return scores, before
    return scores, None if original is None else _original(original, inputs, scores)


def _by_number(before: Scores, scores: Scores) -> Scores:
    """Return the original in the report's order, where one has numbers for names and one none."""
    positions = tuple(map(str, range(before.values.shape[1])))
    own, expected = before.class_names or positions, scores.class_names or positions
    if before.class_names == scores.class_names or not set(own) == set(expected) == set(positions):
        return before
    order = class_order(own, expected, before.path, scores.path)
    values = before.values if order is None else before.values.take(order, axis=1)
    return replace(before, values=values)


def _original(path: str, inputs: InputOptions, scores: Scores) -> Scores:
    """Read the original, whose columns may be called as those of the report or as its classes."""
    told = replace(inputs.answers_only(), columns=inputs.columns, header=inputs.header)
    names = {"classes": scores.class_names, "classes_in": scores.path}
    options: dict[str, Any] = {"role": "original", **names}
    if inputs.columns is None:
        return read_renamed_scores(path, told, **options)
    try:
        return read_scores(path, told, **options)
    except InputError:
        return read_renamed_scores(path, InputOptions(header=inputs.header), **options)


def _probabilities(scores: Scores) -> Any:
    from cordcal._validation.scores import original_probabilities

    if scores.kind == "logits":
        return original_probabilities(scores.values, "logits")
    return scores.values


def _gates(path: Path | None, most: list[str], least: list[str]) -> list[Gate]:
    """Return the gates of the file and of the options, the options' last."""
    from cordcal.evaluate.gates import Gate

    found = [] if path is None else _from_file(path)
    bounds: tuple[tuple[Literal["max", "min"], list[str]], ...] = (("max", most), ("min", least))
    for bound, given in bounds:
        for text in given:
            name, _, value = text.partition("=")
            found.append(Gate.parse(name.strip(), _number(text, value), bound))
    if not found:
        raise InputError(
            "gates", "are missing", "write --max NAME=VALUE, --min NAME=VALUE or --gates"
        )
    return found


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(
            "gate", f"is {text!r}", "write a measure and a number, such as nll=0.5"
        ) from None


def _from_file(path: Path) -> list[Gate]:
    from cordcal.evaluate.gates import Gate

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not valid TOML: {error}", "fix the syntax there") from None
    unknown = [name for name in content if name not in ("max", "min")]
    if unknown or not all(isinstance(table, dict) for table in content.values()):
        raise InputError(
            str(path),
            f"has {unknown[0]!r}" if unknown else "has a value where a table should be",
            'write tables [max] and [min] with lines such as nll = 0.5 or "ece.class" = 0.1',
        )
    return [
        Gate.parse(name, limit, bound)
        for bound in ("max", "min")
        for name, limit in content.get(bound, {}).items()
    ]


def _baseline(path: Path, scores: Scores) -> Any:
    """Return what an earlier check wrote, which must be about the same classes."""
    try:
        content = jsons.loads(path.read_text(encoding="utf-8"))
        names = [str(name) for name in content.get("class_names") or ()]
        for measured in content["measures"].values():
            float(measured["value"]), float(measured["standard_error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            str(path),
            "is no baseline",
            "pass what an earlier check wrote with --write-baseline or --json",
        ) from None
    if names and scores.class_names is not None:
        class_order(scores.class_names, names, scores.path, str(path))  # refuses other classes
    return content


def _write(path: Path, text: str, *, force: bool) -> None:
    from cordcal.files import replacing

    with replacing(path, overwrite=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
