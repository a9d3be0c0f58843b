"""``cordcal answers``: answers of language models as a table of scores, and back."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from cordcal._errors import InputError
from cordcal.cli._console import echo, echo_error, echo_skipped, show_json
from cordcal.cli._files import check_output, check_suffix
from cordcal.cli._options import (
    ForceOption,
    JsonOption,
    OnErrorOption,
    add_command,
    check_on_error,
)
from cordcal.cli._vectors import parse_vector


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        answers,
        "answers out/samples_mmlu_*.jsonl --output scores.parquet",
        "answers replies.jsonl --options ABCD --labels gold.jsonl --id-column custom_id --output "
        "scores.parquet",
        "answers replies.jsonl --with repaired.parquet --output answers.jsonl",
    )


def answers(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files, folders or patterns: replies of APIs, samples of lm-evaluation-harness, "
            "logs of Inspect, plain lines.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Table to write (.parquet, .feather, .csv, .jsonl); with --with, JSONL lines.",
        ),
    ],
    calibrated: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="Table that cordcal apply wrote: add its probabilities, and act if it has it, to "
            "the lines, by id.",
        ),
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(
            "--options", metavar="LIST", help="Options of all questions, as in ABCD or yes,no."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="NAME|FILE",
            help="Field of the right answer, or a JSONL or CSV file with right answers by id; "
            "FILE:NAME for a field of it.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups",
            metavar="NAME|FILE",
            help="Field of the group (by default subject or task), or a file with groups by id; "
            "FILE:NAME for a field of it.",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id-column", metavar="NAME", help="Field of the identifier, in all files."),
    ] = None,
    normalize: Annotated[
        str,
        typer.Option(
            "--normalize",
            metavar="none|characters|bytes|tokens",
            help="Divide log-likelihoods by the lengths of options; characters is acc_norm.",
        ),
    ] = "none",
    on_error: OnErrorOption = "stop",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write answers of language models as a table of scores, which every command reads.

    A row is a question: its id, a log-probability per option, and where known the label, the group
    and what the model gave. The prediction is the likeliest option after spellings are added up.
    """
    check_output(output, force=force)
    if calibrated is not None:
        for option, value in (
            ("--options", options),
            ("--labels", labels),
            ("--groups", groups),
            ("--normalize", None if normalize == "none" else normalize),
        ):
            if value is not None:
                raise InputError(option, "has no effect with --with", "leave it out")
        _write_back(
            sources, calibrated, output, id_column, on_error=on_error, force=force, json=json
        )
        return
    from cordcal.llm import read_answers

    label_file, label_field = parse_vector(labels)
    group_file, group_field = parse_vector(groups)
    table = read_answers(
        *sources,
        options=options,
        labels=label_file,
        labels_column=label_field,
        groups=group_file,
        groups_column=group_field,
        join=id_column,
        normalize=normalize,  # type: ignore[arg-type]  # checked there
        on_error=check_on_error(on_error),
    )
    table.write(output, overwrite=force)
    again = [] if id_column is None else ["--id-column", id_column]
    if on_error == "skip":
        again += ["--on-error", "skip"]
    grouped = [] if table.groups is None else ["--groups", "group"]
    back = ["--with", "repaired.parquet", "--output", "calibrated.jsonl"]
    commands = [
        ["compare", output, *grouped],
        ["fit", output, "--output", "model.safetensors"],
        ["apply", "model.safetensors", output, "--output", "repaired.parquet"],
        ["answers", *sources, *back, *again],
    ]
    steps = [
        shlex.join(["cordcal", *command])
        for command in commands
        # Rows without a label cannot be fitted on, and stdin cannot be read again.
        if not table.summary.n_unlabelled and "-" not in command
    ]
    echo_skipped(table.skipped)
    if json:
        summary = table.summary.to_dict()
        show_json({**summary, "output": output, "class_names": table.class_names, "then": steps})
        return
    for text in table.summary.lines():
        echo(text)
    echo(f"{output}: {len(table):,} rows, options {', '.join(table.class_names)}")
    if not steps:
        echo_error(
            "to fit a calibrator on it, pass the right answers with --labels FILE --id-column ID"
        )
    for step in steps:
        echo(f"next step: {step}")


def _write_back(
    sources: list[str],
    calibrated: str,
    output: str,
    id_column: str | None,
    *,
    on_error: str,
    force: bool,
    json: bool,
) -> None:
    """Add the probabilities of a table to the lines that it came from."""
    from cordcal.llm import write_answers

    check_suffix(output, "JSON lines", ".jsonl")
    written = write_answers(
        output,
        *sources,
        calibrated=calibrated,
        join=id_column,
        on_error=check_on_error(on_error),
        overwrite=force,
    )
    if json:
        show_json({**written.to_dict(), "output": output})
        return
    *fields, last = written.added
    echo(f"{output}: {written.n:,} lines, with {', '.join(fields)} and {last} added")
    for count, what in (
        (written.n_unmatched, f"without a row in {calibrated}, written as they were"),
        (written.n_omitted, "omitted, because they are not JSON"),
    ):
        if count:
            echo(f"{count:,} {what}")
