"""Read and open the input files of a command: scores, pairs of scores, labels and groups.

The parts of a folder are applied or audited one by one, locally or on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cordcal._errors import InputError
from cordcal.cli._answers import open_answer_pair, read_answer_groups, read_answer_scores
from cordcal.cli._console import counted_progress, echo_info, echo_skipped
from cordcal.cli._options import InputKind, InputOptions

if TYPE_CHECKING:
    from cordcal._numeric.types import Classes, Kind
    from cordcal.files import ScoreFile, Scores
    from cordcal.files.columns import ColumnSpec
    from cordcal.pipeline.applying import Applied, ModelApplication
    from cordcal.pipeline.auditing import AuditedFiles
    from cordcal.pipeline.loop import OnError
    from cordcal.pipeline.parts import Run

ReadScores = TypeVar("ReadScores", "Scores", "ScoreFile")


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

    ``classes`` are the class names of another file of the same rows, ``expected`` those of a
    file of other rows; ``classes_in`` is the path of that file.
    """
    if inputs.answers is not None:
        return read_answer_scores(path, inputs, role=role)[0]
    from cordcal.files.scores import read_with_spec

    _refuse_answers(path, inputs)
    spec = _column_spec(inputs, classes, expected, classes_in)
    scores = read_with_spec(path, spec, role=role, input=_kind_name(kind))
    _echo_columns(scores, inputs)
    if scores.columns and scores.labels is not None and scores.class_names is not None:
        labelled = set(scores.labels.tolist())
        absent = [name for index, name in enumerate(scores.class_names) if index not in labelled]
        if absent and inputs.columns is None:
            echo_info(f"{scores.path}: no row is labelled {_list_columns(absent)}")
    return scores


def read_calibration_rows(
    path: str, inputs: InputOptions, on_error: OnError, **options: Any
) -> tuple[Scores, Classes | None]:
    """Read calibration rows; return their row numbers too if rows may be skipped."""
    if inputs.answers is not None:
        return read_answer_scores(path, inputs, label_use="required", on_error=on_error)
    if on_error == "stop":
        return read_scores(path, inputs, **options), None
    from cordcal.pipeline.loop import read_valid_rows

    scores, rows, skipped = read_valid_rows(open_scores(path, inputs, **options))
    echo_skipped(skipped)
    return scores, rows


def require_labels(scores: Scores) -> Classes:
    """Return the labels of a file, or refuse a file without labels."""
    if scores.labels is None:
        raise InputError(
            scores.path,
            "does not contain labels",
            "pass a file with --labels, or their key or column with --labels-column",
        )
    return scores.labels


def read_groups(
    path: str | None,
    column: str | None,
    scores: str,
    rows: Classes | None = None,
    *,
    inputs: InputOptions,
) -> Any:
    """Return the group of each row, from a separate file or from a column of the scores.

    ``rows`` are the rows of the scores that were not skipped.
    """
    if path is None and column is None:
        return None
    if inputs.answers is not None and path is None and column is not None:
        groups = read_answer_groups(scores, column)
    else:
        from cordcal.files.selection import read_vector

        groups = read_vector(path or scores, column, header=inputs.header)
    if rows is None or len(groups) <= rows[-1]:  # refused later, by the function that uses them
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
    passthrough: bool = False,
) -> ScoreFile:
    """Open scores for reading in batches.

    ``classes`` are the class names of a model or of another file (``classes_in``).  ``pattern``
    names the columns that the model was fitted on, used if the command does not name any.
    """
    from cordcal.files.scores import open_with_spec

    _refuse_answers(path, inputs)
    spec = _column_spec(inputs, classes, expected, classes_in, pattern, passthrough=passthrough)
    file = open_with_spec(path, spec, role=role, input=_kind_name(kind))
    if classes is None:
        _echo_columns(file, inputs)
    return file


def open_model_scores(
    fitted: Any,
    model: str,
    path: str,
    inputs: InputOptions,
    *,
    kind: InputKind | None = None,
    passthrough: bool = False,
) -> tuple[ScoreFile, tuple[str, ...] | None]:
    """Open the scores that a model is applied to, columns matched by name; return the names."""
    names = None if fitted.class_names is None else tuple(map(str, fitted.class_names))
    # A model without class names numbers its classes.
    classes = names or tuple(map(str, range(fitted.n_classes_)))
    pattern = getattr(fitted, "score_columns_", None)
    expected: dict[str, Any] = {"classes": classes, "classes_in": model, "pattern": pattern}
    file = open_scores(path, inputs, kind=kind, passthrough=passthrough, **expected)
    fitted_kind = fitted.calibrator_.input
    if file.kind != fitted_kind:
        raise InputError(
            file.path,
            f"looks like {file.kind} but {model} was fitted on {fitted_kind}",
            f"pass {fitted_kind}, or add --input {fitted_kind} if they are",
        )
    check_classes(fitted, model, file)
    return file, names or file.class_names


def _refuse_answers(path: str, inputs: InputOptions) -> None:
    """Refuse a language model's answers if the command names neither them nor columns."""
    if inputs.key is None and inputs.columns is None and path != "-":
        from cordcal.llm.inspection import refuse_answers

        refuse_answers(path)


def _column_spec(
    inputs: InputOptions,
    classes: Sequence[str] | None,
    expected: tuple[str, ...] | None,
    classes_in: str,
    pattern: Sequence[str] | None = None,
    *,
    passthrough: bool = False,
) -> ColumnSpec:
    """Return which columns of a file to read, and the classes it should have."""
    from cordcal.files.columns import ColumnSpec

    options = inputs.column_arguments()
    names, header = options.pop("class_names"), options.pop("header")
    spec = ColumnSpec.of(**options).named(names, classes, passthrough=passthrough, header=header)
    if pattern is not None and inputs.columns is None:
        spec = replace(spec, pattern=tuple(pattern))
    return replace(spec, expected=expected, classes_in=classes_in)


def _kind_name(kind: InputKind | None) -> Kind | None:
    if kind is None:
        return None
    return "logits" if kind is InputKind.logits else "probabilities"


def _echo_columns(scores: Scores | ScoreFile, inputs: InputOptions) -> None:
    """Print which columns were read as scores if the command does not name any."""
    if scores.columns and inputs.columns is None:
        prefix, separator, _ = scores.columns[0].partition(":")  # as `apply` names columns
        shared = f"{prefix}:*" if separator and scores.key == prefix else None
        names = shared or _list_columns(scores.columns)
        echo_info(
            f"{scores.path}: the scores are its {len(scores.columns)} columns {names} "
            "(choose others with --columns)"
        )


def open_pair(
    original: str,
    direct: str,
    inputs: InputOptions,
    *,
    kind: InputKind | None = None,
    pattern: Sequence[str] | None = None,
    passthrough: bool = False,
    on_error: OnError = "stop",
) -> tuple[ScoreFile, ScoreFile]:
    """Open the original and the direct scores of the same rows, columns matched by name.

    ``--columns`` may match one file only; the other may name its columns as its classes.  Both
    are read in the order of the original.
    """
    if original == "-" and direct == "-":
        raise InputError(
            "--direct", "is stdin, as --original is", "only one of them can be read from stdin"
        )
    direct_inputs = replace(
        inputs.answers_only(),
        columns=inputs.columns,
        class_names=inputs.class_names,
        header=inputs.header,
    )
    if inputs.answers is not None:
        first, second = open_answer_pair(
            (original, inputs), (direct, direct_inputs), on_error=on_error
        )
    else:
        first, second = _open_score_pair(
            (original, inputs), (direct, direct_inputs), kind, pattern, passthrough=passthrough
        )
    _check_extra_columns(first, second)
    check_same_shape(first.path, first.shape, second.path, second.shape)
    if first.own_names is not None and second.class_names is not None:
        first.use_order(first.own_names, second.path)
        second.use_order(first.own_names, first.path)
    else:
        # Unnamed columns are numbered from 0, so a file with the header 2,1,0 must be reordered.
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
    passthrough: bool,
) -> tuple[ScoreFile, ScoreFile]:
    """Open two score files of the same rows, each with its own input options."""
    from cordcal._validation.names import common_pattern
    from cordcal.files.columns import as_patterns

    patterns = as_patterns(original[1].columns)
    options: dict[str, Any] = {"pattern": patterns or pattern, "passthrough": passthrough}
    original_options, direct_options = (
        {"path": path, "inputs": replace(inputs, columns=None), **options}
        for path, inputs in (original, direct)
    )
    original_options |= {"role": "original", "kind": kind}
    direct_options |= {"role": "direct", "kind": InputKind.probabilities}
    second = open_scores(**direct_options)
    names = _explicit_class_names(second)
    original_options["classes_in"], direct_options["classes_in"] = direct[0], original[0]
    first = read_renamed(open_scores, **original_options, classes=names)
    if names is None and _explicit_class_names(first) is not None:
        second = read_renamed(open_scores, **direct_options, classes=first.class_names)
    first_names, second_names = first.class_names, second.class_names
    if (
        first_names is not None
        and second_names is not None
        and set(first_names) != set(second_names)
    ):
        if common_pattern(first_names, second_names) is not None:
            first = read_renamed(open_scores, **original_options, classes=second_names)
        elif common_pattern(second_names, first_names) is not None:
            second = read_renamed(open_scores, **direct_options, classes=first_names)
    if patterns is not None:
        _check_patterns_match(patterns, first, second)
    return first, second


def read_renamed(
    read: Callable[..., ReadScores], path: str, inputs: InputOptions, **options: Any
) -> ReadScores:
    """Read or open a file whose column names may be the class names with a prefix or suffix."""
    try:
        return read(path, inputs, **options)
    except InputError as error:
        pattern = _proposed_pattern(error)
        if pattern is None or path == "-":
            raise
    return read(path, replace(inputs, columns=pattern), **options)


def _proposed_pattern(error: InputError) -> str | None:
    """Return the column pattern that an error about class names proposes."""
    name, value = error.option or ("", "")
    return value if name == "columns" and "*" in value else None


def _explicit_class_names(file: ScoreFile) -> tuple[str, ...] | None:
    """Return a file's class names, unless they are just a table's numeric columns."""
    from cordcal.files.columns import SCORES

    return None if file.columns and file.key == SCORES else file.class_names


def _check_patterns_match(patterns: tuple[str, ...], *files: ScoreFile) -> None:
    """Refuse ``--columns`` that match neither of two tables."""
    from cordcal.files.columns import have_match

    tables = [file for file in files if file.columns]
    if tables and not any(have_match(patterns, file.columns) for file in tables):
        raise InputError(
            tables[0].path,
            f"has no column {', '.join(patterns)!r}",
            f"its scores are {_list_columns(tables[0].columns)}",
        )


def _check_extra_columns(first: ScoreFile, second: ScoreFile) -> None:
    """Name the columns that only one table has, before shapes are compared."""
    for file, other in ((first, second), (second, first)):
        if file.columns and other.class_names and file.classes > other.classes:
            names = file.class_names or file.columns
            extra = [name for name in names if name not in other.class_names]
            if len(extra) == file.classes - other.classes:
                plural = "s" if len(extra) > 1 else ""
                raise InputError(
                    file.path,
                    f"has the numeric column{plural} {_list_columns(extra)}, not a class of "
                    f"{other.path}",
                    "name the columns of the scores with --columns a,b,… or --columns 'score_*'",
                )


def check_same_shape(
    original: str, shape: tuple[int, ...], direct: str, direct_shape: tuple[int, ...]
) -> None:
    """Refuse two files with different numbers of rows or classes."""
    if shape != direct_shape:
        raise InputError(
            original,
            f"has shape {shape} but {direct} has shape {direct_shape}",
            "both must hold the same rows and classes",
        )


def check_classes(model: Any, model_path: str, scores: ScoreFile) -> None:
    """Refuse scores whose number of classes is not the model's, before any work is done."""
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
    """Refuse options that do not apply to --original and --direct."""
    for option, value in inputs.used().items():
        if option.removeprefix("--").replace("-", "_") in names:
            raise InputError(
                option, f"{value} does not go with --original and --direct", "leave it out"
            )


def _list_columns(columns: Sequence[str]) -> str:
    from cordcal.files.columns import list_names

    return list_names(columns)


# Inputs in several parts.


def is_parts_output(output: str, scores: str | None) -> bool:
    """Return whether the output is a folder of parts: the input is, and no suffix is given."""
    if output == "-" or scores is None:
        return False
    from cordcal.files.parts import parts_of

    is_folder = output.endswith(os.sep) or Path(output).is_dir() or not Path(output).suffix
    return is_folder and parts_of(scores) is not None


def apply_in_parts(
    rows: ModelApplication,
    output: str,
    options: dict[str, Any],
    writing: dict[str, Any],
    *,
    scheduler: str | None,
    resume: bool,
    overwrite: bool,
) -> Applied:
    """Write one output file per part of the input to a folder."""
    from cordcal.pipeline.parts import PartWork, apply_parts, finished_parts, part_names

    if output == "-":
        raise InputError("--output", "is stdout", "name a folder for the parts")
    finished = finished_parts(output)
    if finished and not (resume or overwrite):
        raise InputError(
            output,
            f"already has {finished:,} parts of an interrupted run",
            "pass --resume to continue that run, or --force to start again",
        )
    files = list(rows.files.values())
    inputs = _part_inputs(files)
    names = part_names(files[0].path, [paths[0] for paths in inputs])
    readers = tuple(file.opener for file in files)
    work = PartWork(rows.model, readers, options, writing, resume)
    with _runner("applying", scheduler) as run:
        return apply_parts(
            work, inputs, names, os.path.abspath(output), overwrite=overwrite, run=run
        )


def audit_in_parts(
    original: ScoreFile, direct: ScoreFile, scheduler: str, **options: Any
) -> AuditedFiles:
    """Audit the parts of two folders on a cluster; labels and weights are read locally."""
    from cordcal.pipeline.parts import AuditPart, audit_parts

    paths = _part_inputs([original, direct])
    inputs = [
        AuditPart(first, second, vectors)
        for (first, second), vectors in zip(paths, original.separate_vectors(), strict=True)
    ]
    readers = original.opener, direct.opener
    with _runner("auditing", scheduler) as run:
        return audit_parts(readers, inputs, run=run, **options)


def _part_inputs(files: Sequence[ScoreFile]) -> list[tuple[str, ...]]:
    """Return the files of each part as absolute paths, which workers can open."""
    from cordcal.files.parts import parts_of
    from cordcal.pipeline.parts import part_names

    parts = [parts_of(file.path) or [file.path] for file in files]
    names = [part_names(file.path, paths) for file, paths in zip(files, parts, strict=True)]
    if any(other != names[0] for other in names[1:]) and max(map(len, names)) > 1:
        raise InputError(
            files[0].path,
            f"and {files[1].path} have parts with different names",
            "give the parts of the same rows the same names",
        )
    return [tuple(map(os.path.abspath, paths)) for paths in zip(*parts, strict=True)]


@contextmanager
def _runner(title: str, scheduler: str | None) -> Iterator[Run]:
    """Yield a function that runs the work, locally or on a cluster, and shows progress."""
    from cordcal.pipeline.parts import run_locally

    with counted_progress(title) as advance:

        def with_progress(run: Run) -> Run:
            def run_and_count(
                function: Callable[[Any], Any], items: Sequence[Any]
            ) -> Iterator[Any]:
                for count, result in enumerate(run(function, items), 1):
                    advance(count, len(items), "parts")
                    yield result

            return run_and_count

        if scheduler is None:
            yield with_progress(run_locally)
            return
        with _cluster(scheduler) as run:
            yield with_progress(run)


def _cluster(address: str) -> AbstractContextManager[Run]:
    try:
        from cordcal.dask.cluster import on_cluster
    except ImportError as error:
        raise ImportError(
            "a cluster needs Dask; install it with: pip install 'cordcal[dask]'"
        ) from error
    return on_cluster(address)
