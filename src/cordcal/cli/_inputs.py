"""The options that say where a command's scores, labels, features, weights and answers are."""

from __future__ import annotations

import functools
import inspect
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from cordcal._errors import InputError
from cordcal.cli._console import echo_info, echo_skipped

if TYPE_CHECKING:
    from cordcal.files import Answers, ScoreFile, Scores
    from cordcal.serving._refusals import OnError


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
        raise InputError(path, "holds no class names", "write one on each line, as text")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(path, f"has the class {twice!r} twice", "give each its own name")
    return tuple(names)


# In which fields a file may have the report that a command asks for, the likelier first, if not
# where the model's interface left its numbers.
_FIELDS = {"repaired": ("repaired",), "direct": ("direct", "repaired")}
# What says where a table has something, and what to do instead where lines have it all.
_IN_LINES = {
    "--columns": "name a field of probabilities with --key",
    "--class-names": "name the options of all questions with --options",
    "--labels": "store the right answer in each line, and name its field with --labels-column",
    "--features": "leave it out",
    "--features-columns": "leave it out",
    "--weights": "leave it out",
    "--weights-column": "leave it out",
    "--header": "leave it out",
    "--no-header": "leave it out",
}


def read_answers_of(
    path: str,
    where: Where,
    *,
    role: str = "scores",
    labelled: bool = False,
    on_error: OnError = "stop",
) -> Answers:
    """Read answers as the options say, and say what had to be decided."""
    from cordcal.files import read_answers

    for option in where.given():
        if option in _IN_LINES:
            raise InputError(option, "does not go with --answers", _IN_LINES[option])
    missing: Any = where.answers
    variants: Any = where.variants or "loose"
    field = where.key or _field_of(path, role)
    found = read_answers(
        path,
        options=where.options,
        label=where.labels_column,
        field=field,
        missing=missing,
        variants=variants,
        labelled=labelled,
        on_error=on_error,
    )
    echo_info(f"{path}: {found.record}")
    return found


def _field_of(path: str, role: str) -> str | None:
    if path == "-" or role not in _FIELDS:
        return None
    with Path(path).open("rb") as file:
        # One line would do, if it could not be one to skip.
        first = b"".join(islice(file, 16))
    return next((field for field in _FIELDS[role] if f'"{field}":'.encode() in first), None)


def answer_scores(path: str, where: Where, *, role: str = "scores", **options: Any) -> Scores:
    """Read answers as scores; say which lines were left out."""
    found = read_answers_of(path, where, role=role, **options)
    echo_skipped(Counter(found.skipped.values()))
    return as_scores(found, path, role=role)


def as_scores(found: Answers, path: str, *, role: str = "scores") -> Scores:
    """Return answers as scores: log-probabilities, or probabilities where a report is asked for."""
    from cordcal._validation.scores import original_probabilities
    from cordcal.files import Scores

    if role not in _FIELDS:
        return Scores(path, "answers", found.scores, "logits", found.labels, found.names)
    report = original_probabilities(found.scores, "logits")
    return Scores(path, role, report, "probabilities", found.labels, found.names)


def as_file(scores: Scores, numbers: Any) -> ScoreFile:
    """Return scores in memory as a file in batches, whose rows have these numbers."""
    from cordcal.files._contents import Contents
    from cordcal.files._places import Places
    from cordcal.files._sources import Whole
    from cordcal.files._stream import ScoreFile

    vectors = {} if scores.labels is None else {"labels": scores.labels}
    matrices = {scores.key: scores.values}
    contents = Contents.of(scores.path, "jsonl", matrices, vectors, scores.class_names)
    return ScoreFile(Whole(contents), contents, scores.key, scores.kind, Places(), numbers)


def answer_pair(
    original: tuple[str, Where], direct: tuple[str, Where], *, on_error: OnError
) -> tuple[ScoreFile, ScoreFile]:
    """Return two files of answers to the same questions; each comes with where things are in it.

    A line that is skipped in one of them is left out of both.
    """
    import numpy as np

    from cordcal.files._answers import picked

    paths, roles = (original[0], direct[0]), ("original", "direct")
    first, second = (
        read_answers_of(*each, role=role, on_error=on_error)
        for each, role in zip((original, direct), roles, strict=True)
    )
    lines = [len(each) + len(each.skipped) for each in (first, second)]
    if lines[0] != lines[1]:
        raise InputError(
            paths[0],
            f"has {lines[0]:,} lines but {paths[1]} has {lines[1]:,}",
            "both must hold the same questions",
        )
    echo_skipped(Counter({**second.skipped, **first.skipped}.values()))
    both = np.intersect1d(first.rows, second.rows)
    if not both.size:
        raise InputError(paths[0], f"and {paths[1]} have no sound line in common", "mend the lines")
    kept = (picked(each, np.isin(each.rows, both)) for each in (first, second))
    one, other = (
        as_file(as_scores(each, path, role=role), both)
        for each, path, role in zip(kept, paths, roles, strict=True)
    )
    return one, other
