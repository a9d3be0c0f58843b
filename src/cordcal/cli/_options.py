"""The options that several commands share, and how their values are read."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from cordcal._errors import InputError

if TYPE_CHECKING:
    from cordcal.serving._refusals import OnError


class InputKind(StrEnum):
    """What scores are."""

    logits = "logits"
    probabilities = "probabilities"


class OutputDtype(StrEnum):
    """What reports are written in."""

    float64 = "float64"
    float32 = "float32"
    float16 = "float16"


class OutputLayout(StrEnum):
    """How a table holds reports."""

    wide = "wide"
    list = "list"


InputOption = Annotated[
    InputKind | None,
    typer.Option("--input", help="What the scores are; read from the file where left out."),
]
PreserveOption = Annotated[
    str,
    typer.Option("--preserve", help="How many top classes keep their places: 1, k or ranking."),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write the report to this HTML file.")
]
GroupsOption = Annotated[
    str | None,
    typer.Option("--groups", metavar="FILE", help="A file with the group of each row."),
]
GroupsColumnOption = Annotated[
    str | None,
    typer.Option("--groups-column", metavar="NAME", help="Column or key of the groups."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace outputs that exist.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
AllowImportOption = Annotated[
    bool,
    typer.Option(
        "--allow-import", help="Import calibrators named module:Class, which runs their code."
    ),
]
WideOption = Annotated[
    bool, typer.Option("--wide", help="Print all columns, however narrow the terminal.")
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with 1 if there is anything to check first.")
]
OnErrorOption = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="stop|skip",
        help="A row that is no report: stop and name it, or leave it out and count it.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Do it on a Dask cluster, part by part; see Scale."
    ),
]
OriginalOption = Annotated[
    str | None,
    typer.Option("--original", help="The classifier's own scores: a file, or - for stdin."),
]


def parse_preserve(text: str) -> int | Literal["ranking"]:
    """Return a number of classes, or ``"ranking"``.

    Examples
    --------
    >>> parse_preserve("5"), parse_preserve("ranking")
    (5, 'ranking')
    """
    if text == "ranking":
        return "ranking"
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise InputError("--preserve", f"is {text!r}", "write 1, another number of classes, or ranking")


def check_on_error(choice: str) -> OnError:
    """Return one of the two ways to treat a bad row."""
    if choice not in ("stop", "skip"):
        raise InputError("--on-error", f"is {choice!r}", "write stop or skip")
    return "skip" if choice == "skip" else "stop"


@dataclass(frozen=True)
class InputOptions:
    """What the options say; None where one was left out."""

    key: Annotated[
        str | None,
        typer.Option("--key", "--scores-column", help="Key or list column of the scores."),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", help="The columns of the scores, one a class: a,b,… or 'score_*'."
        ),
    ] = None
    class_names: Annotated[
        str | None,
        typer.Option(
            "--class-names", metavar="FILE", help="A file with a class name on each line."
        ),
    ] = None
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="FILE", help="A file of labels.")
    ] = None
    labels_column: Annotated[
        str | None,
        typer.Option("--labels-column", metavar="NAME", help="Column or key of the labels."),
    ] = None
    features: Annotated[
        str | None,
        typer.Option("--features", metavar="FILE", help="A file of penultimate features."),
    ] = None
    features_columns: Annotated[
        str | None,
        typer.Option("--features-columns", help="Columns, or the key, of the features."),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FILE", help="A file with a weight of each row."),
    ] = None
    weights_column: Annotated[
        str | None,
        typer.Option("--weights-column", metavar="NAME", help="Column or key of the weights."),
    ] = None
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line of CSV files is a header; by default its entries decide.",
        ),
    ] = None
    answers: Annotated[
        str | None,
        typer.Option(
            "--answers",
            metavar="even|other|refuse",
            help="The files are JSONL with a language model's answers; says where the probability "
            "of tokens goes that are not listed.",
        ),
    ] = None
    options: Annotated[
        str | None,
        typer.Option("--options", help="Of --answers whose lines list none: A,B,…"),
    ] = None
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants",
            metavar="loose|spaces|exact",
            help="Which variants of a token in --answers are one; loose where left out.",
        ),
    ] = None

    def used(self) -> dict[str, str]:
        """Return the options that were used, as they are written; a switch has no value."""
        used = {
            f"--{each.name.replace('_', '-')}": value
            for each in fields(self)
            if isinstance(value := getattr(self, each.name), str)
        }
        if self.header is not None:
            used["--header" if self.header else "--no-header"] = ""
        return used

    def column_arguments(self, *names: str) -> dict[str, Any]:
        """Return what the library calls them; all, or only some."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ANSWER_OPTIONS:
            del found[name]
        if self.class_names is not None:
            found["class_names"] = read_class_names(self.class_names)
        return {name: found[name] for name in names or found}

    def answers_only(self) -> InputOptions:
        """Return only what says how to read answers, for another file of the same kind."""
        return InputOptions(**{name: getattr(self, name) for name in ANSWER_OPTIONS})


ANSWER_OPTIONS = ("answers", "options", "variants")
"""The options of files with answers of language models."""
LABELLED_OPTIONS = (
    "key",
    "columns",
    "class_names",
    "labels",
    "labels_column",
    "features",
    "features_columns",
    "header",
    *ANSWER_OPTIONS,
)
"""The options of files that calibrators are fitted on."""
DEFAULT_INPUTS = InputOptions()


def with_input_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command's argument ``inputs`` the options of these names."""
    hints = get_type_hints(InputOptions, include_extras=True)

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            command(inputs=InputOptions(**{name: options.pop(name) for name in names}), **options)

        own = get_type_hints(command, include_extras=True)
        parameters = []
        for each in inspect.signature(command).parameters.values():
            if each.name != "inputs":
                parameters.append(each.replace(annotation=own[each.name]))
                continue
            parameters += [
                inspect.Parameter(name, each.kind, default=None, annotation=hints[name])
                for name in names
            ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return wrap


def read_class_names(path: str) -> tuple[str, ...]:
    """Return the class names of a text file, a line each, or of a JSON list."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    names: Any = [line.strip() for line in text.splitlines() if line.strip()]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except (ValueError, RecursionError):
            names = None
    if not names or "\0" in text or not all(isinstance(name, str) for name in names):
        raise InputError(path, "holds no class names", "write one on each line, as text")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(path, f"has the class {twice!r} twice", "give each its own name")
    return tuple(names)
