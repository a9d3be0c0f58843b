"""The options that several commands share, and how their values are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cordcal._errors import InputError
from cordcal.cli._console import echo_info, echo_skipped
from cordcal.cli._inputs import Where, answer_pair, answer_scores

if TYPE_CHECKING:
    from cordcal._numeric.types import Classes, Kind
    from cordcal.files import ScoreFile, Scores
    from cordcal.files._places import Places
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


def check_output(path: str | os.PathLike[str], *, force: bool) -> None:
    """Refuse an output file that could not be written, before any work is done."""
    if str(path) == "-":
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(str(target), "is a folder", "name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(str(target), "is no regular file", "name a file")
    if target.exists() and not force:
        raise InputError(str(target), "exists already", "pass --force to replace it")
    folder = target.parent
    if not folder.is_dir():
        why = f"cannot be written: the folder {folder} does not exist"
        raise InputError(str(target), why, "make it first, or name another")
    if not os.access(folder, os.W_OK):
        why = f"cannot be written: the folder {folder} is not writable"
        raise InputError(str(target), why, "name another")


def check_suffix(path: str | os.PathLike[str], what: str, *suffixes: str) -> None:
    """Refuse an output whose suffix names another format than the one that is written.

    Examples
    --------
    >>> check_suffix("report.html", "an HTML page", ".html", ".htm")
    """
    suffix = Path(path).suffix
    # No suffix, or the end of a version such as run-1.2, names no format.
    if suffix and not suffix[1:].isdecimal() and suffix.lower() not in suffixes:
        raise InputError(
            os.fspath(path),
            f"has the suffix {suffix!r}, but {what} is written",
            f"use the suffix {' or '.join(suffixes)}",
        )


def check_report(path: Path, *, force: bool) -> None:
    """Refuse a file that a report could not be written to, before any work is done."""
    check_suffix(path, "an HTML page", ".html", ".htm")
    check_output(path, force=force)


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


def read(
    path: str,
    where: Where,
    *,
    role: str = "scores",
    kind: InputKind | None = None,
    classes: Sequence[str] | None = None,
    expected: tuple[str, ...] | None = None,
    classes_in: str = "the model",
) -> Scores:
    """Read scores for a command.

    ``classes`` are those of another file of the same rows, ``expected`` those of other rows;
    ``classes_in`` is that file.
    """
    if where.answers is not None:
        return answer_scores(path, where, role=role)
    from cordcal.files._scores import read_placed

    places = _places(where, classes, expected, classes_in)
    found = read_placed(path, places, role=role, input=_kind(kind))
    _say_columns(found, where)
    if found.columns and found.labels is not None and found.class_names is not None:
        seen = set(found.labels.tolist())
        absent = [name for at, name in enumerate(found.class_names) if at not in seen]
        if absent and where.columns is None:
            echo_info(f"{found.path}: no row is labelled {_listed(absent)}")
    return found


def _places(
    where: Where,
    classes: Sequence[str] | None,
    expected: tuple[str, ...] | None,
    classes_in: str,
    pattern: Sequence[str] | None = None,
    *,
    rest: bool = False,
) -> Places:
    """Return where things are in a file, and which classes it should have."""
    from cordcal.files._places import Places

    options = where.places()
    names, header = options.pop("class_names"), options.pop("header")
    places = Places.of(**options).named(names, classes, rest=rest, header=header)
    if pattern is not None and where.columns is None:
        places = replace(places, pattern=tuple(pattern))
    return replace(places, expected=expected, classes_in=classes_in)


def read_rows(
    path: str, where: Where, on_error: OnError, **options: Any
) -> tuple[Scores, Classes | None]:
    """Read calibration rows, and which of the file's they are if some may be skipped."""
    if where.answers is not None:
        return answer_scores(path, where, labelled=True, on_error=on_error), None
    if on_error == "stop":
        return read(path, where, **options), None
    from cordcal.serving._refusals import read_sound

    found, rows, skipped = read_sound(open_file(path, where, **options))
    echo_skipped(skipped)
    return found, rows


def _say_columns(found: Scores | ScoreFile, where: Where) -> None:
    """Name the columns that were taken for scores, where nobody named them."""
    if found.columns and where.columns is None:
        names = _listed(found.columns)
        echo_info(
            f"{found.path}: the scores are its {len(found.columns)} columns {names} "
            f"(--columns names others)"
        )


def _kind(kind: InputKind | None) -> Kind | None:
    if kind is None:
        return None
    return "logits" if kind is InputKind.logits else "probabilities"


def need_labels(scores: Scores) -> Any:
    """Return the labels of a file, or say how to give them."""
    if scores.labels is None:
        raise InputError(
            scores.path,
            "holds no labels",
            "pass a file with --labels, or the key or column that holds them with --labels-column",
        )
    return scores.labels


def open_file(
    path: str,
    where: Where,
    *,
    role: str = "scores",
    kind: InputKind | None = None,
    classes: Sequence[str] | None = None,
    pattern: Sequence[str] | None = None,
    expected: tuple[str, ...] | None = None,
    classes_in: str = "the model",
    rest: bool = False,
) -> ScoreFile:
    """Open scores for reading in batches.

    ``classes`` are those of a model or of another file (``classes_in``), if there is one, and
    ``pattern`` the columns that the model was fitted on, which are looked for where the command
    does not name any.
    """
    from cordcal.files._stream import open_placed

    places = _places(where, classes, expected, classes_in, pattern, rest=rest)
    found = open_placed(path, places, role=role, input=_kind(kind))
    if classes is None:
        _say_columns(found, where)
    return found


def read_groups(
    path: str | None,
    column: str | None,
    scores: str,
    rows: Classes | None = None,
    *,
    header: bool | None = None,
) -> Any:
    """Return the group of each row: of a file of their own, or of a column of the scores'.

    ``rows`` are those of the scores that were not skipped.
    """
    if path is None and column is None:
        return None
    from cordcal.files._scores import read_vector

    groups = read_vector(path or scores, column, header=header)
    if rows is None or len(groups) <= rows[-1]:  # too few are refused where they are used
        return groups
    return groups[rows]


def open_pair(
    original: str,
    direct: str,
    where: Where,
    *,
    kind: InputKind | None = None,
    pattern: Sequence[str] | None = None,
    rest: bool = False,
    on_error: OnError = "stop",
) -> tuple[ScoreFile, ScoreFile]:
    """Open the original and the direct scores of the same rows, columns matched by name.

    The columns that are named may be those of one file only: the other's may be called as its
    classes.  The order is that of the original.
    """
    if original == "-" and direct == "-":
        raise InputError(
            "--direct", "is stdin, as --original is", "only one of them can be read so"
        )
    alone = replace(
        where.of_answers(),
        columns=where.columns,
        class_names=where.class_names,
        header=where.header,
    )
    if where.answers is not None:
        first, second = answer_pair((original, where), (direct, alone), on_error=on_error)
    else:
        first, second = _opened_pair((original, where), (direct, alone), kind, pattern, rest=rest)
    check_columns(first, second)
    check_pair(first.path, first.shape, second.path, second.shape)
    if first.own_names is not None and second.class_names is not None:
        first.use_order(first.own_names, second.path)
        second.use_order(first.own_names, first.path)
    else:
        # Columns without names are numbered, and a file headed 2,1,0 has another order.
        positions = tuple(map(str, range(first.classes)))
        for file, other in ((first, second), (second, first)):
            if set(file.class_names or ()) == set(positions):
                file.use_order(positions, other.path)
    return first, second


def _opened_pair(
    original: tuple[str, Where],
    direct: tuple[str, Where],
    kind: InputKind | None,
    pattern: Sequence[str] | None,
    *,
    rest: bool,
) -> tuple[ScoreFile, ScoreFile]:
    """Open two files of the same rows, each with where things are in it."""
    from cordcal._validation.names import common_pattern
    from cordcal.files._places import as_patterns

    named = as_patterns(original[1].columns)
    options: dict[str, Any] = {"pattern": named or pattern, "rest": rest}
    one, other = (
        {"path": path, "where": replace(where, columns=None), **options}
        for path, where in (original, direct)
    )
    one |= {"role": "original", "kind": kind}
    other |= {"role": "direct", "kind": InputKind.probabilities}
    second = open_file(**other)
    names = _sure_names(second)
    one["classes_in"], other["classes_in"] = direct[0], original[0]
    first = _open_renamed(**one, classes=names)
    if names is None and _sure_names(first) is not None:
        second = _open_renamed(**other, classes=first.class_names)
    own, others = first.class_names, second.class_names
    if own is not None and others is not None and set(own) != set(others):
        if common_pattern(own, others) is not None:
            first = _open_renamed(**one, classes=others)
        elif common_pattern(others, own) is not None:
            second = _open_renamed(**other, classes=own)
    if named is not None:
        _check_named(named, first, second)
    return first, second


def _open_renamed(path: str, where: Where, **options: Any) -> ScoreFile:
    """Open a file whose columns may be called as the classes with something before or after."""
    try:
        return open_file(path, where, **options)
    except InputError as refusal:
        pattern = _suggested(refusal)
        if pattern is None or path == "-":
            raise
    return open_file(path, where, **{**options, "pattern": (pattern,)})


def read_renamed(path: str, where: Where, **options: Any) -> Scores:
    """Read a file whose columns may be called as the classes with something before or after."""
    try:
        return read(path, where, **options)
    except InputError as refusal:
        pattern = _suggested(refusal)
        if pattern is None or path == "-":
            raise
    return read(path, replace(where, columns=pattern), **options)


def _suggested(refusal: InputError) -> str | None:
    """Return the pattern that a refusal of other names proposes."""
    name, value = refusal.option or ("", "")
    return value if name == "columns" and "*" in value else None


def _check_named(patterns: tuple[str, ...], *files: ScoreFile) -> None:
    """Refuse columns that were named and that neither of two tables has."""
    from cordcal.files._places import have_match

    tables = [file for file in files if file.columns]
    if tables and not any(have_match(patterns, file.columns) for file in tables):
        raise InputError(
            tables[0].path,
            f"has no column {', '.join(patterns)!r}",
            f"its scores are {_listed(tables[0].columns)}",
        )


def _sure_names(file: ScoreFile) -> tuple[str, ...] | None:
    """Return the classes of a file, unless they are all of a table's columns of numbers."""
    from cordcal.files._columns import SCORES

    return None if file.columns and file.key == SCORES else file.class_names


def check_columns(first: ScoreFile, second: ScoreFile) -> None:
    """Name the columns that one table has and the other has not, before shapes are compared."""
    for one, other in ((first, second), (second, first)):
        if one.columns and other.class_names and one.classes > other.classes:
            own = one.class_names or one.columns
            extra = [name for name in own if name not in other.class_names]
            if len(extra) == one.classes - other.classes:
                raise _extra(one.path, extra, f"a class of {other.path}")


def _listed(columns: Sequence[str]) -> str:
    from cordcal.files._places import told

    return told(columns)


def _extra(path: str, columns: Sequence[str], what: str) -> InputError:
    many = len(columns) > 1
    return InputError(
        path,
        f"has the column{'s' if many else ''} {_listed(columns)} of numbers, not {what}",
        "name the columns of the scores with --columns a,b,… or --columns 'score_*'",
    )


def check_pair(original: str, shape: tuple[int, ...], direct: str, other: tuple[int, ...]) -> None:
    """Refuse two files that do not hold the same rows and classes."""
    if shape != other:
        raise InputError(
            original,
            f"has shape {shape} but {direct} has shape {other}",
            "both must hold the same rows and classes",
        )


def refuse_with_pair(where: Where, *names: str) -> None:
    """Refuse options that say nothing about --original and --direct."""
    for option, value in where.given().items():
        if option.removeprefix("--").replace("-", "_") in names:
            raise InputError(
                option, f"{value} does not go with --original and --direct", "leave it out"
            )


def check_classes(model: Any, where: str, scores: ScoreFile) -> None:
    """Refuse scores of another number of classes than the model's, before any work is done."""
    if scores.classes == model.n_classes_:
        return
    listed = f" ({_listed(scores.columns)})" if scores.columns else ""
    raise InputError(
        scores.path,
        f"has {scores.classes} columns of scores{listed} but {where} was fitted on "
        f"{model.n_classes_} classes",
        "pass the same classes; --columns names the columns of a table"
        if scores.columns
        else "pass the same classes",
    )


def check_on_error(choice: str) -> OnError:
    """Return one of the two ways to treat a bad row."""
    if choice not in ("stop", "skip"):
        raise InputError("--on-error", f"is {choice!r}", "write stop or skip")
    return "skip" if choice == "skip" else "stop"
