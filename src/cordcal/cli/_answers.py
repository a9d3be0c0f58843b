"""Language-model answers (``--answers``): read them as scores, write repaired ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.cli._console import describe_changes, echo_info, echo_skipped, show_json
from cordcal.cli._options import InputOptions

if TYPE_CHECKING:
    from cordcal.files import ScoreFile, Scores
    from cordcal.llm import Answers
    from cordcal.pipeline._refusals import OnError

# Fields that may contain probabilities written by cordcal, per role, likeliest first. Other roles
# are read from the fields of the language model's API.
_FIELDS = {"repaired": ("repaired",), "direct": ("direct", "repaired")}
# Options for tables, and what to do instead with answers.
_NOT_WITH_ANSWERS = {
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


def read_answer_file(
    path: str,
    inputs: InputOptions,
    *,
    role: str = "scores",
    labelled: bool = False,
    on_error: OnError = "stop",
) -> Answers:
    """Read answers with the given options, and print a summary of what was read."""
    from cordcal.llm import read_answers

    for option in inputs.used():
        if option in _NOT_WITH_ANSWERS:
            raise InputError(option, "does not go with --answers", _NOT_WITH_ANSWERS[option])
    missing: Any = inputs.answers
    variants: Any = inputs.variants or "loose"
    field = inputs.key or _detect_field(path, role)
    answers = read_answers(
        path,
        options=inputs.options,
        label=inputs.labels_column,
        field=field,
        missing=missing,
        variants=variants,
        labelled=labelled,
        on_error=on_error,
    )
    echo_info(f"{path}: {answers.record}")
    return answers


def _detect_field(path: str, role: str) -> str | None:
    if path == "-" or role not in _FIELDS:
        return None
    with Path(path).open("rb") as file:
        # Several lines, because the first may be invalid and skipped.
        first_lines = b"".join(islice(file, 16))
    return next((field for field in _FIELDS[role] if f'"{field}":'.encode() in first_lines), None)


def read_answer_scores(
    path: str, inputs: InputOptions, *, role: str = "scores", **options: Any
) -> Scores:
    """Read answers as scores; print which lines were skipped."""
    answers = read_answer_file(path, inputs, role=role, **options)
    echo_skipped(Counter(answers.skipped.values()))
    return answers_to_scores(answers, path, role=role)


def answers_to_scores(answers: Answers, path: str, *, role: str = "scores") -> Scores:
    """Return answers as log-probabilities, or as probabilities for the roles in `_FIELDS`."""
    from cordcal._validation.scores import original_probabilities
    from cordcal.files import Scores

    if role not in _FIELDS:
        return Scores(path, "answers", answers.scores, "logits", answers.labels, answers.names)
    probabilities = original_probabilities(answers.scores, "logits")
    return Scores(path, role, probabilities, "probabilities", answers.labels, answers.names)


def in_memory_file(scores: Scores, row_numbers: Any) -> ScoreFile:
    """Return scores in memory as a `ScoreFile` whose rows have these numbers."""
    from cordcal.files._contents import Contents
    from cordcal.files._places import Places
    from cordcal.files._sources import Whole
    from cordcal.files._stream import ScoreFile

    vectors = {} if scores.labels is None else {"labels": scores.labels}
    matrices = {scores.key: scores.values}
    contents = Contents.of(scores.path, "jsonl", matrices, vectors, scores.class_names)
    return ScoreFile(Whole(contents), contents, scores.key, scores.kind, Places(), row_numbers)


def open_answer_pair(
    original: tuple[str, InputOptions], direct: tuple[str, InputOptions], *, on_error: OnError
) -> tuple[ScoreFile, ScoreFile]:
    """Open two files of answers to the same questions, each with its own input options.

    A line that is skipped in one file is omitted from both.
    """
    import numpy as np

    from cordcal.llm.answers import picked

    paths, roles = (original[0], direct[0]), ("original", "direct")
    first, second = (
        read_answer_file(*answers, role=role, on_error=on_error)
        for answers, role in zip((original, direct), roles, strict=True)
    )
    lines = [len(answers) + len(answers.skipped) for answers in (first, second)]
    if lines[0] != lines[1]:
        raise InputError(
            paths[0],
            f"has {lines[0]:,} lines but {paths[1]} has {lines[1]:,}",
            "both must hold the same questions",
        )
    echo_skipped(Counter({**second.skipped, **first.skipped}.values()))
    rows = np.intersect1d(first.rows, second.rows)
    if not rows.size:
        raise InputError(paths[0], f"and {paths[1]} have no valid line in common", "fix the lines")
    common = (picked(answers, np.isin(answers.rows, rows)) for answers in (first, second))
    original_file, direct_file = (
        in_memory_file(answers_to_scores(answers, path, role=role), rows)
        for answers, path, role in zip(common, paths, roles, strict=True)
    )
    return original_file, direct_file


_READ_WHOLE = "does not go with --answers, which are read and written as a whole"


def refuse_with_answers(**options: Any) -> None:
    """Refuse options of `apply` that do not apply to answers."""
    for name, value in options.items():
        if value:
            reason = (
                _READ_WHOLE if name in ("resume", "scheduler") else "does not go with --answers"
            )
            raise InputError(f"--{name.replace('_', '-')}", reason, "leave it out")


def apply_to_answers(
    model: Any,
    inputs: InputOptions,
    path: str,
    output: str,
    options: Mapping[str, Any],
    *,
    on_error: OnError,
    force: bool,
    json: bool,
) -> None:
    """Write the lines of answers, each with its repaired probabilities added."""
    import numpy as np

    from cordcal.llm import write_answers
    from cordcal.llm.answers import picked
    from cordcal.pipeline.applying import CalibratedRows, report_at_once

    if output != "-" and Path(output).suffix.lower() not in (".jsonl", ".ndjson"):
        raise InputError(
            "--output", f"is {output}", "answers are written as JSON lines: name a .jsonl file"
        )
    read = read_answer_file(path, inputs, on_error=on_error)
    _check_names(model, read, path)
    answers, skipped = _drop_longer_questions(read, model.n_classes_, path, on_error)
    scores = replace(answers_to_scores(answers, path), values=_widen(answers, model.n_classes_))
    rows = replace(scores, labels=None, class_names=None)
    repairer = CalibratedRows(model, in_memory_file(rows, answers.rows), **options)
    block, applied = report_at_once(repairer, output, on_error=on_error)
    extra = _extra_fields(block.extra)
    if "row" in extra:
        answers = picked(answers, np.isin(answers.rows, extra["row"]))
    columns = _columns(answers, model.n_classes_)
    outputs = {name: values[:, columns] for name, values in block.reports.items()}
    try:
        write_answers(output, answers, outputs, extra=extra, overwrite=force)
    except InputError as error:
        raise error.with_argument(path) if error.rows.size else error from error
    total = Counter(read.skipped.values()) + skipped + Counter(applied.skipped)
    if json:
        content = {**applied.to_dict(), "skipped": dict(total), "record": read.record.to_dict()}
        show_json({"output": output, **content})
        return
    sys.stdout.flush()
    echo_skipped(total)
    echo_info(
        f"{'stdout' if output == '-' else output}: {applied.rows:,} questions; "
        + describe_changes(applied.changed, applied.rows, "answers")
    )


def _check_names(model: Any, answers: Answers, path: str) -> None:
    """Refuse answers whose columns would be mistaken for other classes of the model."""
    from cordcal.llm.answers import OTHER

    if model.class_names is None:
        return
    names = tuple(map(str, model.class_names))
    if (names[-1] == OTHER) != answers.has_other:
        choice = "other" if names[-1] == OTHER else "even"
        has = "has one column" if names[-1] == OTHER else "has none"
        raise InputError(
            "--answers",
            f"gives tokens that are not an option {'a' if answers.has_other else 'no'} column, but "
            f"the model {has}",
            f"read the answers as for fitting, with --answers {choice}",
        )
    if names != answers.names and sorted(names) == sorted(answers.names):
        raise InputError(
            path,
            f"has the options {', '.join(answers.names)} but the model {', '.join(names)}",
            "name them in the model's order, with {option}",
            option=("options", ",".join(name for name in names if name != OTHER)),
        )


def _drop_longer_questions(
    answers: Answers, classes: int, path: str, on_error: OnError
) -> tuple[Answers, Counter[str]]:
    """Return the questions with at most the model's number of options; count the others."""
    import numpy as np

    from cordcal.llm.answers import picked

    counts = np.array([len(options) for options in answers.options])
    max_options = classes - answers.has_other
    is_longer = counts > max_options
    if not is_longer.any():
        return answers, Counter()
    if on_error == "stop" or is_longer.all():
        first = int(is_longer.argmax())
        raise InputError(
            path,
            "has more options than the model was fitted on",
            "fit it on questions with as many",
            rows=answers.rows[is_longer],
            detail=f"has {counts[first]} options but the model was fitted on {max_options}",
        )
    skipped = Counter({"has more options than the model was fitted on": int(is_longer.sum())})
    return picked(answers, ~is_longer), skipped


def _columns(answers: Answers, classes: int) -> Any:
    """Return the model's columns that the answers have."""
    import numpy as np

    columns = np.arange(answers.scores.shape[1])
    if answers.has_other:
        columns[-1] = classes - 1
    return columns


def _widen(answers: Answers, classes: int) -> Any:
    """Return the scores with all columns of the model; absent ones are −∞."""
    import numpy as np

    scores = np.full((len(answers), classes), -np.inf)
    scores[:, _columns(answers, classes)] = answers.scores
    return scores


def _extra_fields(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the additional fields of the lines: row number, and the repair's explanation."""
    explanation = {name: values.tolist() for name, values in extra.items() if name != "row"}
    fields = {name: extra[name] for name in ("row",) if name in extra}
    if explanation:
        rows = zip(*explanation.values(), strict=True)
        fields["explanation"] = [dict(zip(explanation, row, strict=True)) for row in rows]
    return fields
