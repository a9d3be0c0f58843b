"""Read and open the input files of a command: scores, pairs of scores, labels and groups.

The parts of a folder are applied or audited one by one, locally or on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cordcal._errors import InputError
from cordcal.cli._console import counted_progress, echo_error, echo_info, echo_skipped
from cordcal.cli._options import CONTEXT_OPTIONS, ROW_GROUPS, InputOptions
from cordcal.cli._vectors import parse_vector

if TYPE_CHECKING:
    from cordcal._numeric.types import Classes, Kind, NumPyArray
    from cordcal.evaluate.audit_files import AuditedFiles
    from cordcal.files import ScoreFile, Scores
    from cordcal.files.apply import Applied, ModelApplication
    from cordcal.files.context import FileContext, SecondOpinion
    from cordcal.files.loop import OnError, Run


def open_scores(
    path: str | Sequence[str],
    inputs: InputOptions,
    *,
    role: str = "scores",
    classes: Sequence[str] | None = None,
    classes_in: str = "the model",
    fitted_kind: Kind | None = None,
    pattern: Sequence[str] | None = None,
    context: Sequence[str] = (),
    groups: str | None = None,
    allow_empty: bool = False,
) -> ScoreFile:
    """Open scores for reading in batches.

    ``classes`` are the class names of a model or of another file (``classes_in``).  ``fitted_kind``
    is what the model was fitted on, and ``pattern`` names the columns that it was fitted on, used
    if the command does not name any.
    ``context`` and ``groups`` are other columns to read with each row.
    """
    from cordcal.files.scores import open_with_spec

    spec = replace(
        inputs.column_spec(),
        classes=None if classes is None else tuple(classes),
        classes_in=classes_in,
        kind=fitted_kind,
        pattern=None if pattern is None or inputs.columns is not None else tuple(pattern),
        context=tuple(context),
        groups=groups,
    )
    file = open_with_spec(path, spec, role=role, input=inputs.kind, allow_empty=allow_empty)
    if classes is None and file.columns and inputs.columns is None:
        echo_info(
            f"{file.path}: the scores are its {len(file.columns)} columns "
            f"{_list_columns(file.columns)} (choose others with --columns)"
        )
    return file


def read_scores(path: str | Sequence[str], inputs: InputOptions, **options: Any) -> Scores:
    """Read all rows of a file of scores; the options are those of `open_scores`."""
    scores = open_scores(path, inputs, **options).read()
    if scores.columns and scores.labels is not None and scores.class_names is not None:
        labelled = set(scores.labels.tolist())
        absent = [name for index, name in enumerate(scores.class_names) if index not in labelled]
        if absent and inputs.columns is None:
            echo_info(f"{scores.path}: no row is labelled {_list_columns(absent)}")
    return scores


def read_calibration_rows(
    path: str | Sequence[str], inputs: InputOptions, on_error: OnError, **options: Any
) -> tuple[Scores, Classes | None]:
    """Read calibration rows; return their row numbers too if rows may be skipped."""
    options["context"] = inputs.beside
    if on_error == "stop":
        try:
            return read_scores(path, inputs, **options), None
        except InputError as error:
            from cordcal._validation.labels import NO_LABEL

            if error.reason == NO_LABEL:
                raise error.with_option_hint("on_error", "skip") from None
            raise
    from cordcal.files.loop import read_valid_rows

    scores, skipped = read_valid_rows(open_scores(path, inputs, **options))
    echo_skipped(skipped)
    return scores, scores.numbers


def require_labels(scores: Scores) -> Classes:
    """Return the labels of a file, or refuse a file without labels."""
    if scores.labels is None:
        raise InputError(
            scores.path,
            "does not contain labels",
            "name their column, key or file with --labels",
        )
    return scores.labels


def read_groups(
    scores: str | Sequence[str], inputs: InputOptions, rows: Classes | None = None
) -> Any:
    """Return the group of each row, from a column of the scores or a separate file."""
    file, column = parse_vector(inputs.groups)
    return read_column(column, scores, rows, inputs=inputs, file=file)


def read_parts(
    scores: str | Sequence[str], inputs: InputOptions, rows: Classes | None = None
) -> Any:
    """Return the parts of rows that get a threshold each, as `cordcal.certify` takes them."""
    if inputs.groups in ROW_GROUPS:
        return "class" if inputs.groups == "prediction" else None
    return read_groups(scores, inputs, rows)


def read_column(
    name: str | None,
    scores: str | Sequence[str],
    rows: Classes | None = None,
    *,
    inputs: InputOptions,
    file: str | None = None,
) -> Any:
    """Return a column or key of the scores, or a vector of a separate file; None without either.

    ``rows`` are the rows of the scores that were not skipped.
    """
    if name is None and file is None:
        return None
    from cordcal.files.sources import read_vector

    values = read_vector(file or scores, name, text=inputs.text_options())
    if rows is None or len(values) <= rows[-1]:  # refused later, by the function that uses them
        return values
    return values[rows]


def read_context(
    scores: Scores, inputs: InputOptions, like: Mapping[str, NumPyArray] | None = None
) -> dict[str, NumPyArray] | None:
    """Return the context of rows to fit on, and print where it is unknown; None without options.

    ``like`` is the context of other rows, which decides which columns are numbers.
    """
    if not inputs.uses_context:
        return None
    from cordcal.files.context import FileContext, as_texts

    def are_categories(name: str) -> bool | None:
        if like is not None:
            return like[name].dtype == object
        is_text = scores.context[name].dtype.kind not in "iuf"
        return True if is_text and name in scores.typed else None

    categories = {name: are_categories(name) for name in inputs.context or ()}
    opinion = _second_opinion(scores.class_names, inputs)
    if opinion is not None:
        opinion.check_ids(as_texts(scores.context[opinion.id_column]), scores.path)
    context = FileContext(categories, opinion, decimal=inputs.decimal or ".").of(
        scores.context, scores.values.shape, scores.kind
    )
    echo_unknown(context, len(scores.values))
    return context


def _second_opinion(classes: Sequence[Any] | None, inputs: InputOptions) -> SecondOpinion | None:
    from cordcal.files.context import SecondOpinion

    if inputs.second_opinion is None:
        return None
    names = None if classes is None else tuple(map(str, classes))
    return SecondOpinion(inputs.second_opinion, inputs.joined_by, names, inputs.text_options())


def echo_unknown(context: Mapping[str, NumPyArray], rows: int) -> None:
    """Print in how many rows each column of a context is unknown."""
    from cordcal.files.context import count_unknown

    echo_unknown_counts(count_unknown(context), rows)


def echo_unknown_counts(unknown: Mapping[str, int], rows: int) -> None:
    """Print in how many rows columns are unknown, and what these get."""
    for name, count in unknown.items():
        echo_error(
            f"{name} is unknown in {count:,} of {rows:,} rows, whose confidence is that of a fit "
            "without it"
        )


def echo_uncertified(column: str | None, count: int, rows: int) -> None:
    """Print in how many rows the group is unknown to the certificate."""
    if count:
        echo_error(
            f"{column} is empty or not certified in {count:,} of {rows:,} rows, which never act"
        )


class ModelScores(NamedTuple):
    """The scores that a model is applied to, their class names, and the context to read."""

    file: ScoreFile
    class_names: tuple[str, ...] | None
    context: FileContext | None


def open_model_scores(
    fitted: Any,
    model: str,
    path: str | Sequence[str],
    inputs: InputOptions,
    *,
    groups: str | None = None,
    allow_empty: bool = False,
) -> ModelScores:
    """Open the scores that a model is applied to, columns matched by name."""
    context = _model_context(fitted, model, inputs)
    names = None if fitted.class_names is None else tuple(map(str, fitted.class_names))
    fitted_kind = fitted.calibrator_.input
    file = open_scores(
        path,
        inputs,
        # A model without class names numbers its classes.
        classes=names or tuple(map(str, range(fitted.n_classes_))),
        classes_in=model,
        fitted_kind=fitted_kind,
        pattern=getattr(fitted, "score_columns_", None),
        context=() if context is None else context.to_read,
        groups=groups,
        allow_empty=allow_empty,
    )
    if file.key == "repaired" and inputs.columns is None:
        raise InputError(
            file.path,
            "is what `apply` wrote",
            f"pass the classifier's {fitted_kind}; --columns names them in a file that has both",
        )
    if file.kind != fitted_kind and not file.is_empty:
        scores_from = getattr(fitted, "scores_from_", None)
        source = "" if scores_from is None else f" of {scores_from}"
        raise InputError(
            file.path,
            f"looks like {file.kind} but {model} was fitted on {fitted_kind}{source}",
            f"pass {fitted_kind}, or add --input {fitted_kind} if they are",
        )
    check_classes(fitted, model, file)
    return ModelScores(file, names or file.class_names, context)


def _model_context(fitted: Any, model: str, inputs: InputOptions) -> FileContext | None:
    """Return the context that a model needs; None if it was fitted without."""
    from cordcal.files.context import context_of_model

    state = getattr(fitted.repair_, "context_", None)
    if state is None:
        if inputs.uses_context:
            option = next(iter(inputs.used(*CONTEXT_OPTIONS)))
            raise InputError(option, f"is not used: {model} has no context", "leave it out")
        return None
    opinion = _second_opinion(fitted.class_names, inputs)
    context = context_of_model(state, inputs.context, opinion, inputs.decimal or ".")
    if context.opinion is not None:
        context.opinion.load()  # its errors come before any work
    elif opinion is not None:
        echo_info(f"the second opinion has no effect in {model}, so it is not read")
    return context


class ModelRows(NamedTuple):
    """All rows that a model is applied to, with what `predict_proba` needs next to the scores."""

    scores: Scores
    class_names: tuple[str, ...] | None
    context: dict[str, NumPyArray] | None


def read_model_rows(
    fitted: Any, model: str, path: str | Sequence[str], inputs: InputOptions
) -> ModelRows:
    """Read the scores that a model is applied to, and print where context is unknown."""
    file, names, reader = open_model_scores(fitted, model, path, inputs)
    scores = file.read()
    context = None
    if reader is not None:
        try:
            context = reader.of(scores.context, scores.values.shape, scores.kind)
        except InputError as error:
            raise error.with_argument(scores.path) from None
        echo_unknown(context, len(scores.values))
    return ModelRows(scores, names, context)


def open_pair(
    original: str, direct: str, inputs: InputOptions, *, pattern: Sequence[str] | None = None
) -> tuple[ScoreFile, ScoreFile]:
    """Open the original and the direct scores of the same rows, columns matched by name.

    ``--columns`` may match one file only; labels and weights come with the original.
    """
    if original == "-" and direct == "-":
        raise InputError(
            "--direct", "is stdin, as --original is", "only one of them can be read from stdin"
        )
    from cordcal.files import scores as library
    from cordcal.files.columns import as_patterns

    spec = inputs.column_spec()
    patterns = as_patterns(inputs.columns) or (None if pattern is None else tuple(pattern))
    spec = replace(spec, columns=None, pattern=patterns)
    other = replace(spec, labels=None, labels_column=None, weights=None, weights_column=None)
    first, second = library.open_pair((original, spec), (direct, other), input=inputs.kind)
    if inputs.columns is not None:
        _check_patterns_match(patterns or (), first, second)
    check_same_shape(
        first.path, (first.rows, first.classes), second.path, (second.rows, second.classes)
    )
    return first, second


def _check_patterns_match(patterns: tuple[str, ...], *files: ScoreFile) -> None:
    """Refuse ``--columns`` that match neither of two files."""
    from cordcal.files.columns import matching

    if not any(matching(patterns, file.columns or (file.key,)) for file in files):
        raise InputError(
            files[0].path,
            f"has no column {', '.join(patterns)!r}",
            f"its scores are {_list_columns(files[0].columns or (files[0].key,))}",
        )


def check_same_shape(
    original: str,
    shape: tuple[int | None, ...],
    direct: str,
    direct_shape: tuple[int | None, ...],
) -> None:
    """Refuse two files with different numbers of rows or classes, as far as these are known."""
    pairs = zip(shape, direct_shape, strict=True)
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
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


def _list_columns(columns: Sequence[str]) -> str:
    from cordcal.files.columns import list_names

    return list_names(columns)


# Inputs in several parts.


def is_parts_output(output: str, scores: str | Sequence[str] | None) -> bool:
    """Return whether the output is a folder of parts: the input is, and no suffix is given."""
    if output == "-" or not scores:
        return False
    from cordcal.files.disk import Parts

    is_folder = output.endswith(os.sep) or Path(output).is_dir() or not Path(output).suffix
    return is_folder and Parts.of(scores).root is not None


def apply_in_parts(
    work: ModelApplication,
    output: str,
    *,
    scheduler: str | None,
    resume: bool,
    overwrite: bool,
) -> Applied:
    """Write one output file per part of the input to a folder."""
    from cordcal.files.apply import apply_parts

    if output == "-":
        raise InputError("--output", "is stdout", "name a folder for the parts")
    with _runner("applying", scheduler) as run:
        return apply_parts(work, output, resume=resume, overwrite=overwrite, run=run)


def audit_in_parts(
    original: ScoreFile, direct: ScoreFile, scheduler: str, **options: Any
) -> AuditedFiles:
    """Audit the parts of two folders on a cluster; labels and weights are read locally."""
    from cordcal.evaluate.audit_files import AuditPart, audit_parts
    from cordcal.files.loop import pair_parts

    _, paths = pair_parts([original, direct])
    inputs = [
        AuditPart(first, second, vectors)
        for (first, second), vectors in zip(paths, original.separate_vectors(), strict=True)
    ]
    readers = original.opener, direct.opener
    with _runner("auditing", scheduler) as run:
        return audit_parts(readers, inputs, run=run, **options)


@contextmanager
def _runner(title: str, scheduler: str | None) -> Iterator[Run]:
    """Yield a function that runs the work, locally or on a cluster, and shows progress."""
    from cordcal.files.loop import run_locally

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
            "a cluster needs Dask; install it with: pip install 'dask[array,dataframe,distributed]'"
        ) from error
    return on_cluster(address)
