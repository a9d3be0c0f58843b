"""One grammar for where the scores, labels, features and weights of a command are.

Each lies in a file (``--labels FILE``) or in the file of the scores, and is a column or key
there (``--labels-column NAME``).
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from cordcal._door.errors import Refusal


@dataclass(frozen=True)
class Where:
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

    def given(self) -> dict[str, str]:
        """Return the options that were used, as they are written; a switch has no value."""
        used = {
            f"--{each.name.replace('_', '-')}": value
            for each in fields(self)
            if isinstance(value := getattr(self, each.name), str)
        }
        if self.header is not None:
            used["--header" if self.header else "--no-header"] = ""
        return used

    def places(self, *names: str) -> dict[str, Any]:
        """Return what the library calls them; all, or only some."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ANSWERS:
            del found[name]
        if self.class_names is not None:
            found["class_names"] = read_names(self.class_names)
        return {name: found[name] for name in names or found}

    def of_answers(self) -> Where:
        """Return only what says how to read answers, for another file of the same kind."""
        return Where(**{name: getattr(self, name) for name in ANSWERS})


ANSWERS = ("answers", "options", "variants")
"""The options of files with answers of language models."""
LABELLED = (
    "key",
    "columns",
    "class_names",
    "labels",
    "labels_column",
    "features",
    "features_columns",
    "header",
    *ANSWERS,
)
"""The options of files that calibrators are fitted on."""
NOWHERE = Where()


def reading(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command's argument ``where`` the options of these names."""
    hints = get_type_hints(Where, include_extras=True)

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            command(where=Where(**{name: options.pop(name) for name in names}), **options)

        own = get_type_hints(command, include_extras=True)
        parameters = []
        for each in inspect.signature(command).parameters.values():
            if each.name != "where":
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


def read_names(path: str) -> tuple[str, ...]:
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
        raise Refusal(path, "holds no class names", "write one on each line, as text")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal(path, f"has the class {twice!r} twice", "give each its own name")
    return tuple(names)
