"""Read and open the files of scores, labels and groups that a command is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.cli._answers import open_answer_pair, read_answer_scores
from cordcal.cli._console import echo_info, echo_skipped
from cordcal.cli._options import InputKind, InputOptions

if TYPE_CHECKING:
    from cordcal._numeric.types import Classes, Kind
    from cordcal.files import ScoreFile, Scores
    from cordcal.files._places import Places
    from cordcal.serving._refusals import OnError


def read_scores(
    path: str,
    inputs: InputOptions,
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
    if inputs.answers is not None:
        return read_answer_scores(path, inputs, role=role)
    from cordcal.files._scores import read_placed

    places = _column_spec(inputs, classes, expected, classes_in)
    found = read_placed(path, places, role=role, input=_kind_name(kind))
    _echo_columns(found, inputs)
    if found.columns and found.labels is not None and found.class_names is not None:
        seen = set(found.labels.tolist())
        absent = [name for at, name in enumerate(found.class_names) if at not in seen]
        if absent and inputs.columns is None:
            echo_info(f"{found.path}: no row is labelled {_list_columns(absent)}")
    return found


def read_calibration_rows(
    path: str, inputs: InputOptions, on_error: OnError, **options: Any
) -> tuple[Scores, Classes | None]:
    """Read calibration rows, and which of the file's they are if some may be skipped."""
    if inputs.answers is not None:
        return read_answer_scores(path, inputs, labelled=True, on_error=on_error), None
    if on_error == "stop":
        return read_scores(path, inputs, **options), None
    from cordcal.serving._refusals import read_sound

    found, rows, skipped = read_sound(open_scores(path, inputs, **options))
    echo_skipped(skipped)
    return found, rows


def require_labels(scores: Scores) -> Any:
    """Return the labels of a file, or say how to give them."""
    if scores.labels is None:
        raise InputError(
            scores.path,
            "holds no labels",
            "pass a file with --labels, or the key or column that holds them with --labels-column",
        )
    return scores.labels


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


def open_scores(
    path: str,
    inputs: InputOptions,
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

    places = _column_spec(inputs, classes, expected, classes_in, pattern, rest=rest)
    found = open_placed(path, places, role=role, input=_kind_name(kind))
    if classes is None:
        _echo_columns(found, inputs)
    return found


def _column_spec(
    inputs: InputOptions,
    classes: Sequence[str] | None,
    expected: tuple[str, ...] | None,
    classes_in: str,
    pattern: Sequence[str] | None = None,
    *,
    rest: bool = False,
) -> Places:
    """Return where things are in a file, and which classes it should have."""
    from cordcal.files._places import Places

    options = inputs.column_arguments()
    names, header = options.pop("class_names"), options.pop("header")
    places = Places.of(**options).named(names, classes, rest=rest, header=header)
    if pattern is not None and inputs.columns is None:
        places = replace(places, pattern=tuple(pattern))
    return replace(places, expected=expected, classes_in=classes_in)


def _kind_name(kind: InputKind | None) -> Kind | None:
    if kind is None:
        return None
    return "logits" if kind is InputKind.logits else "probabilities"


def _echo_columns(found: Scores | ScoreFile, inputs: InputOptions) -> None:
    """Name the columns that were taken for scores, where nobody named them."""
    if found.columns and inputs.columns is None:
        names = _list_columns(found.columns)
        echo_info(
            f"{found.path}: the scores are its {len(found.columns)} columns {names} "
            f"(--columns names others)"
        )


def open_pair(
    original: str,
    direct: str,
    inputs: InputOptions,
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
        inputs.answers_only(),
        columns=inputs.columns,
        class_names=inputs.class_names,
        header=inputs.header,
    )
    if inputs.answers is not None:
        first, second = open_answer_pair((original, inputs), (direct, alone), on_error=on_error)
    else:
        first, second = _open_score_pair(
            (original, inputs), (direct, alone), kind, pattern, rest=rest
        )
    _check_extra_columns(first, second)
    check_same_shape(first.path, first.shape, second.path, second.shape)
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


def _open_score_pair(
    original: tuple[str, InputOptions],
    direct: tuple[str, InputOptions],
    kind: InputKind | None,
    pattern: Sequence[str] | None,
    *,
    rest: bool,
) -> tuple[ScoreFile, ScoreFile]:
    """Open two files of the same rows, each with where things are in it."""
    from cordcal._validation.names import fixed_part
    from cordcal.files._places import as_patterns

    named = as_patterns(original[1].columns)
    options: dict[str, Any] = {"pattern": named or pattern, "rest": rest}
    one, other = (
        {"path": path, "inputs": replace(inputs, columns=None), **options}
        for path, inputs in (original, direct)
    )
    one |= {"role": "original", "kind": kind}
    other |= {"role": "direct", "kind": InputKind.probabilities}
    second = open_scores(**other)
    names = _explicit_class_names(second)
    one["classes_in"], other["classes_in"] = direct[0], original[0]
    first = _open_renamed(**one, classes=names)
    if names is None and _explicit_class_names(first) is not None:
        second = _open_renamed(**other, classes=first.class_names)
    own, others = first.class_names, second.class_names
    if own is not None and others is not None and set(own) != set(others):
        if fixed_part(own, others) is not None:
            first = _open_renamed(**one, classes=others)
        elif fixed_part(others, own) is not None:
            second = _open_renamed(**other, classes=own)
    if named is not None:
        _check_patterns_match(named, first, second)
    return first, second


def _open_renamed(path: str, inputs: InputOptions, **options: Any) -> ScoreFile:
    """Open a file whose columns may be called as the classes with something before or after."""
    try:
        return open_scores(path, inputs, **options)
    except InputError as refusal:
        pattern = _proposed_pattern(refusal)
        if pattern is None or path == "-":
            raise
    return open_scores(path, inputs, **{**options, "pattern": (pattern,)})


def read_renamed_scores(path: str, inputs: InputOptions, **options: Any) -> Scores:
    """Read a file whose columns may be called as the classes with something before or after."""
    try:
        return read_scores(path, inputs, **options)
    except InputError as refusal:
        pattern = _proposed_pattern(refusal)
        if pattern is None or path == "-":
            raise
    return read_scores(path, replace(inputs, columns=pattern), **options)


def _proposed_pattern(refusal: InputError) -> str | None:
    """Return the pattern that a refusal of other names proposes."""
    name, value = refusal.setting or ("", "")
    return value if name == "columns" and "*" in value else None


def _explicit_class_names(file: ScoreFile) -> tuple[str, ...] | None:
    """Return the classes of a file, unless they are all of a table's columns of numbers."""
    from cordcal.files._columns import SCORES

    return None if file.columns and file.key == SCORES else file.class_names


def _check_patterns_match(patterns: tuple[str, ...], *files: ScoreFile) -> None:
    """Refuse columns that were named and that neither of two tables has."""
    from cordcal.files._places import have_match

    tables = [file for file in files if file.columns]
    if tables and not any(have_match(patterns, file.columns) for file in tables):
        raise InputError(
            tables[0].path,
            f"has no column {', '.join(patterns)!r}",
            f"its scores are {_list_columns(tables[0].columns)}",
        )


def _check_extra_columns(first: ScoreFile, second: ScoreFile) -> None:
    """Name the columns that one table has and the other has not, before shapes are compared."""
    for one, other in ((first, second), (second, first)):
        if one.columns and other.class_names and one.classes > other.classes:
            own = one.class_names or one.columns
            extra = [name for name in own if name not in other.class_names]
            if len(extra) == one.classes - other.classes:
                raise _extra_columns_error(one.path, extra, f"a class of {other.path}")


def check_same_shape(
    original: str, shape: tuple[int, ...], direct: str, other: tuple[int, ...]
) -> None:
    """Refuse two files that do not hold the same rows and classes."""
    if shape != other:
        raise InputError(
            original,
            f"has shape {shape} but {direct} has shape {other}",
            "both must hold the same rows and classes",
        )


def check_classes(model: Any, model_path: str, scores: ScoreFile) -> None:
    """Refuse scores of another number of classes than the model's, before any work is done."""
    if scores.classes == model.n_classes_:
        return
    listed = f" ({_list_columns(scores.columns)})" if scores.columns else ""
    raise InputError(
        scores.path,
        f"has {scores.classes} columns of scores{listed} but {model_path} was fitted on "
        f"{model.n_classes_} classes",
        "pass the same classes; --columns names the columns of a table"
        if scores.columns
        else "pass the same classes",
    )


def refuse_with_pair(inputs: InputOptions, *names: str) -> None:
    """Refuse options that say nothing about --original and --direct."""
    for option, value in inputs.used().items():
        if option.removeprefix("--").replace("-", "_") in names:
            raise InputError(
                option, f"{value} does not go with --original and --direct", "leave it out"
            )


def _extra_columns_error(path: str, columns: Sequence[str], what: str) -> InputError:
    many = len(columns) > 1
    return InputError(
        path,
        f"has the column{'s' if many else ''} {_list_columns(columns)} of numbers, not {what}",
        "name the columns of the scores with --columns a,b,… or --columns 'score_*'",
    )


def _list_columns(columns: Sequence[str]) -> str:
    from cordcal.files._places import told

    return told(columns)
