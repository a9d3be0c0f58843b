"""Language-model answers (``--answers``): read them as scores, write repaired ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cordcal._errors import InputError
from cordcal.cli._console import describe_changes, echo_info, echo_skipped, show_json
from cordcal.cli._options import InputOptions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cordcal import PreservingCalibrator
    from cordcal._numeric.types import NumPyArray
    from cordcal.files import ScoreFile, Scores
    from cordcal.llm import Answers
    from cordcal.pipeline.loop import OnError

    Rows = npt.NDArray[np.intp]
    LabelUse = Literal["optional", "required", "ignored"]

# Fields that may contain probabilities written by cordcal, per role, likeliest first. Other roles
# are read from the fields of the language model's API.
_FIELDS = {"repaired": ("repaired",), "direct": ("direct", "repaired")}
# Options for tables, and what to do instead with answers.
_NOT_WITH_ANSWERS = {
    "--columns": "name a field of probabilities with --key",
    "--class-names": "name the options of all questions with --options",
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
    label_use: LabelUse = "optional",
    on_error: OnError = "stop",
) -> Answers:
    """Read answers with the given options, and print a summary of what was read."""
    from cordcal.llm import read_answers

    for option in inputs.used():
        if option in _NOT_WITH_ANSWERS:
            raise InputError(option, "does not go with --answers", _NOT_WITH_ANSWERS[option])
    key = inputs.key or _detect_field(path, role)
    # read_answers refuses other values of these.
    choices: dict[str, Any] = {
        "missing": inputs.missing or "even",
        "variants": inputs.variants or "loose",
        "normalize": inputs.normalize or "none",
    }
    answers = read_answers(
        path,
        options=inputs.options,
        labels=inputs.labels,
        join=None if inputs.labels is None else inputs.join,
        labels_column=inputs.labels_column,
        label_use=label_use,
        key=key,
        on_error=on_error,
        **choices,
    )
    echo_info(f"{answers.path}: {answers.summary}")
    metrics = answers.summary.metrics
    if "acc_norm" in metrics and inputs.normalize is None and key is None:
        echo_info(
            f"{answers.path}: keeps the predictions with the largest log-likelihood (acc); those "
            f"of acc_norm ({100 * metrics['acc_norm']:.2f} %) are kept with --normalize characters"
        )
    return answers


def _detect_field(path: str, role: str) -> str | None:
    if path == "-" or role not in _FIELDS:
        return None
    with Path(path).open("rb") as file:
        # Several lines, because the first may be invalid and skipped.
        first_lines = b"".join(islice(file, 16))
    return next((field for field in _FIELDS[role] if f'"{field}":'.encode() in first_lines), None)


def read_answer_scores(
    path: str,
    inputs: InputOptions,
    *,
    role: str = "scores",
    label_use: LabelUse = "optional",
    on_error: OnError = "stop",
) -> tuple[Scores, Rows | None]:
    """Read answers as scores; return their row numbers too if lines may be skipped."""
    answers = read_answer_file(path, inputs, role=role, label_use=label_use, on_error=on_error)
    echo_skipped(Counter(answers.skipped.values()))
    return answers_to_scores(answers, role=role), answers.rows if on_error == "skip" else None


def read_widened_answers(
    path: str,
    inputs: InputOptions,
    names: tuple[str, ...] | None,
    classes: int,
    *,
    role: str = "scores",
) -> Scores:
    """Read answers to questions that may have fewer options than there are classes."""
    read = read_answer_file(path, inputs, role=role)
    _check_names(names, read)
    answers, _ = _drop_longer_questions(read, classes, "stop")
    widened = replace(answers, scores=_widen(answers, classes))
    return replace(answers_to_scores(widened, role=role), class_names=names)


def read_answer_groups(path: str, field: str) -> npt.NDArray[np.object_]:
    """Return a field of every line, such as the subject of each question."""
    import numpy as np

    from cordcal.llm.answers import read_field

    values = read_field(path, field)
    if all(value is None for value in values):
        raise InputError(path, f"has no field {field!r}", "name a field of its lines")
    return np.array([str(value) for value in values], dtype=object)


def answers_to_scores(answers: Answers, *, role: str = "scores") -> Scores:
    """Return answers as log-probabilities, or as probabilities for the roles in `_FIELDS`."""
    from cordcal._validation.scores import original_probabilities
    from cordcal.files import Scores

    columns = answers.labels, answers.class_names
    if role not in _FIELDS:
        return Scores(answers.path, "answers", answers.scores, "logits", *columns)
    probabilities = original_probabilities(answers.scores, "logits")
    return Scores(answers.path, role, probabilities, "probabilities", *columns)


def in_memory_file(scores: Scores, row_numbers: Rows) -> ScoreFile:
    """Return scores in memory as a `ScoreFile` whose rows have these numbers."""
    from cordcal.files.columns import ColumnSpec
    from cordcal.files.scores import ScoreFile
    from cordcal.files.sources import Contents, InMemorySource

    vectors = {} if scores.labels is None else {"labels": scores.labels}
    matrices = {scores.key: scores.values}
    contents = Contents.of(scores.path, "jsonl", matrices, vectors, scores.class_names)
    return ScoreFile(
        InMemorySource(contents), contents, scores.key, scores.kind, ColumnSpec(), row_numbers
    )


def read_checked_answers(path: str, original: str, inputs: InputOptions) -> tuple[Scores, Scores]:
    """Read answers with probabilities, and the original answers to the same questions.

    The original may have more questions, and invalid ones, because ``apply`` may have skipped
    them; every question of the first file must be there.
    """
    from cordcal.llm.answers import match_questions

    checked = read_answer_file(path, inputs, role="repaired")
    label_uses: list[LabelUse] = (
        ["ignored"] if checked.labels is not None else ["optional", "ignored"]
    )
    for label_use in label_uses:  # a question with an invalid right answer is still a question
        answers = read_answer_file(
            original, inputs.answers_only(), role="original", label_use=label_use, on_error="skip"
        )
        match = match_questions(answers, checked, join=inputs.join)
        if not match.only_second:
            break
    if match.only_second:
        raise match.error(path, original, match.only_second)
    missing = len(answers) + len(answers.skipped) - len(checked)
    if missing:
        echo_info(f"{missing:,} of the lines of {original} are not in {path}")
    return (
        answers_to_scores(checked, role="repaired"),
        answers_to_scores(answers.select(match.first), role="original"),
    )


def open_answer_pair(
    original: tuple[str, InputOptions], direct: tuple[str, InputOptions], *, on_error: OnError
) -> tuple[ScoreFile, ScoreFile]:
    """Open two files of answers to the same questions, each with its own input options.

    Questions that are in one file only, or invalid there, are skipped in both or refused.
    """
    from cordcal.llm.answers import match_questions

    first = read_answer_file(*original, role="original", on_error=on_error)
    second = read_answer_file(*direct, role="direct", on_error=on_error)
    match = match_questions(first, second, join=original[1].join)
    if on_error == "stop":
        for path, other, ids in (
            (direct[0], original[0], match.only_second),
            (original[0], direct[0], match.only_first),
        ):
            if ids:
                raise match.error(path, other, ids)
    skipped = Counter(first.skipped.values())
    if match.only_first:
        skipped[f"is not in {direct[0]}, or invalid there"] = len(match.only_first)
    echo_skipped(skipped)
    rows = first.rows[match.first]
    pair = (first.select(match.first), "original"), (second.select(match.second), "direct")
    original_file, direct_file = (
        in_memory_file(answers_to_scores(answers, role=role), rows) for answers, role in pair
    )
    return original_file, direct_file


_READ_WHOLE = "does not go with --answers, which are read and written as a whole"


def refuse_with_answers(**options: object) -> None:
    """Refuse options of `apply` that do not apply to answers."""
    for name, value in options.items():
        if value:
            reason = (
                _READ_WHOLE if name in ("resume", "scheduler") else "does not go with --answers"
            )
            raise InputError(f"--{name.replace('_', '-')}", reason, "leave it out")


def apply_to_answers(
    model: PreservingCalibrator,
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
    from cordcal.pipeline.applying import CalibratedRows, apply_in_memory

    if output != "-" and Path(output).suffix.lower() not in (".jsonl", ".ndjson"):
        raise InputError(
            "--output", f"is {output}", "answers are written as JSON lines: name a .jsonl file"
        )
    inputs = replace(inputs, normalize=normalize_as_fitted(model, inputs.normalize))
    read = read_answer_file(path, inputs, label_use="ignored", on_error=on_error)
    _check_names(model.class_names, read)
    answers, skipped = _drop_longer_questions(read, model.n_classes_, on_error)
    scores = replace(answers_to_scores(answers), values=_widen(answers, model.n_classes_))
    rows = replace(scores, labels=None, class_names=None)
    repairer = CalibratedRows(model, in_memory_file(rows, answers.rows), **options)
    block, applied = apply_in_memory(repairer, output, on_error=on_error)
    extra = _extra_fields(block.extra)
    if "row" in extra:
        answers = answers.select(np.flatnonzero(np.isin(answers.rows, extra["row"])))
    columns = _columns(answers, model.n_classes_)
    outputs = {name: values[:, columns] for name, values in block.probabilities.items()}
    write_answers(output, answers, outputs, extra=extra, overwrite=force)
    total = Counter(read.skipped.values()) + skipped + Counter(applied.skipped)
    if json:
        content = {**applied.to_dict(), "skipped": dict(total), "summary": read.summary.to_dict()}
        show_json({"output": output, **content})
        return
    sys.stdout.flush()
    echo_skipped(total)
    echo_info(
        f"{'stdout' if output == '-' else output}: {applied.rows:,} questions; "
        + describe_changes(applied.changed, applied.rows, "answers")
    )


def normalize_as_fitted(model: PreservingCalibrator, normalize: str | None) -> str:
    """Return how log-likelihoods were normalized for the fit; refuse another way."""
    fitted: str = getattr(model, "normalize_", "none")
    if normalize is None or normalize == fitted:
        return fitted
    raise InputError(
        "--normalize", f"is {normalize}, but the model was fitted with {fitted}", "leave it out"
    )


def _check_names(class_names: Sequence[Any] | None, answers: Answers) -> None:
    """Refuse answers whose columns would be mistaken for other classes of the model."""
    from cordcal.llm.answers import OTHER
    from cordcal.llm.layouts import option_letters

    if class_names is None:
        return
    names = tuple(map(str, class_names))
    if (names[-1] == OTHER) != answers.has_other:
        choice = "other" if names[-1] == OTHER else "even"
        raise InputError(
            "--missing",
            f"gives {'a' if answers.has_other else 'no'} column to tokens that are not options, "
            f"but the model {'has one' if names[-1] == OTHER else 'has none'}",
            f"read the answers as for fitting, with --missing {choice}",
        )
    own, fitted = (
        tuple(name for name in columns if name != OTHER) for columns in (answers.class_names, names)
    )
    if own == fitted[: len(own)] or len(own) > len(fitted):  # longer ones are refused one by one
        return
    # A model of letters is for questions with any options; those of one file may be the same.
    if fitted == option_letters(len(fitted)) and not set(own) <= set(fitted):
        return
    reordered = sorted(own) == sorted(fitted)
    raise InputError(
        answers.path,
        f"has the options {', '.join(own)} but the model {', '.join(fitted)}",
        "name them in the model's order, with {option}"
        if reordered
        else "apply a model that was fitted on such questions",
        option=("options", ",".join(fitted)) if reordered else None,
    )


def _drop_longer_questions(
    answers: Answers, classes: int, on_error: OnError
) -> tuple[Answers, Counter[str]]:
    """Return the questions with at most the model's number of options; count the others."""
    import numpy as np

    counts = np.array([len(options) for options in answers.options])
    max_options = classes - answers.has_other
    is_longer = counts > max_options
    if not is_longer.any():
        return answers, Counter()
    if on_error == "stop" or is_longer.all():
        first = int(is_longer.argmax())
        raise InputError(
            answers.path,
            "has more options than the model was fitted on",
            "fit it on questions with as many",
            rows=answers.rows[is_longer],
            detail=f"has {counts[first]} options but the model was fitted on {max_options}",
        )
    skipped = Counter({"has more options than the model was fitted on": int(is_longer.sum())})
    return answers.select(np.flatnonzero(~is_longer)), skipped


def _columns(answers: Answers, classes: int) -> Rows:
    """Return the model's columns that the answers have."""
    import numpy as np

    columns = np.arange(answers.scores.shape[1])
    if answers.has_other:
        columns[-1] = classes - 1
    return columns


def _widen(answers: Answers, classes: int) -> npt.NDArray[np.float64]:
    """Return the scores with all columns of the model; absent ones are −∞."""
    import numpy as np

    scores = np.full((len(answers), classes), -np.inf)
    scores[:, _columns(answers, classes)] = answers.scores
    return scores


def _extra_fields(extra: Mapping[str, NumPyArray]) -> dict[str, Any]:
    """Return the additional fields of the lines: row number, and the repair's explanation."""
    explanation = {name: values.tolist() for name, values in extra.items() if name != "row"}
    fields: dict[str, Any] = {name: extra[name] for name in ("row",) if name in extra}
    if explanation:
        rows = zip(*explanation.values(), strict=True)
        fields["explanation"] = [dict(zip(explanation, row, strict=True)) for row in rows]
    return fields
