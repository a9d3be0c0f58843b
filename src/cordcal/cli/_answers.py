"""Language-model answers (``--answers``): read them as scores, and write repaired ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.cli._console import echo_info, echo_skipped, show_json
from cordcal.cli._options import InputOptions

if TYPE_CHECKING:
    from cordcal.files import Answers, ScoreFile, Scores
    from cordcal.serving._refusals import OnError

# In which fields a file may have the report that a command asks for, the likelier first, if not
# where the model's interface left its numbers.
_FIELDS = {"repaired": ("repaired",), "direct": ("direct", "repaired")}
# What says where a table has something, and what to do instead where lines have it all.
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
    """Read answers as the options say, and say what had to be decided."""
    from cordcal.files import read_answers

    for option in inputs.used():
        if option in _NOT_WITH_ANSWERS:
            raise InputError(option, "does not go with --answers", _NOT_WITH_ANSWERS[option])
    missing: Any = inputs.answers
    variants: Any = inputs.variants or "loose"
    field = inputs.key or _detect_field(path, role)
    found = read_answers(
        path,
        options=inputs.options,
        label=inputs.labels_column,
        field=field,
        missing=missing,
        variants=variants,
        labelled=labelled,
        on_error=on_error,
    )
    echo_info(f"{path}: {found.record}")
    return found


def _detect_field(path: str, role: str) -> str | None:
    if path == "-" or role not in _FIELDS:
        return None
    with Path(path).open("rb") as file:
        # One line would do, if it could not be one to skip.
        first = b"".join(islice(file, 16))
    return next((field for field in _FIELDS[role] if f'"{field}":'.encode() in first), None)


def read_answer_scores(
    path: str, inputs: InputOptions, *, role: str = "scores", **options: Any
) -> Scores:
    """Read answers as scores; say which lines were left out."""
    found = read_answer_file(path, inputs, role=role, **options)
    echo_skipped(Counter(found.skipped.values()))
    return answers_to_scores(found, path, role=role)


def answers_to_scores(found: Answers, path: str, *, role: str = "scores") -> Scores:
    """Return answers as scores: log-probabilities, or probabilities where a report is asked for."""
    from cordcal._validation.scores import original_probabilities
    from cordcal.files import Scores

    if role not in _FIELDS:
        return Scores(path, "answers", found.scores, "logits", found.labels, found.names)
    report = original_probabilities(found.scores, "logits")
    return Scores(path, role, report, "probabilities", found.labels, found.names)


def in_memory_file(scores: Scores, numbers: Any) -> ScoreFile:
    """Return scores in memory as a file in batches, whose rows have these numbers."""
    from cordcal.files._contents import Contents
    from cordcal.files._places import Places
    from cordcal.files._sources import Whole
    from cordcal.files._stream import ScoreFile

    vectors = {} if scores.labels is None else {"labels": scores.labels}
    matrices = {scores.key: scores.values}
    contents = Contents.of(scores.path, "jsonl", matrices, vectors, scores.class_names)
    return ScoreFile(Whole(contents), contents, scores.key, scores.kind, Places(), numbers)


def open_answer_pair(
    original: tuple[str, InputOptions], direct: tuple[str, InputOptions], *, on_error: OnError
) -> tuple[ScoreFile, ScoreFile]:
    """Return two files of answers to the same questions; each comes with where things are in it.

    A line that is skipped in one of them is left out of both.
    """
    import numpy as np

    from cordcal.files._answers import picked

    paths, roles = (original[0], direct[0]), ("original", "direct")
    first, second = (
        read_answer_file(*each, role=role, on_error=on_error)
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
        in_memory_file(answers_to_scores(each, path, role=role), both)
        for each, path, role in zip(kept, paths, roles, strict=True)
    )
    return one, other


_READ_WHOLE = "does not go with --answers, which are read and written at once"


def refuse_with_answers(**options: Any) -> None:
    """Refuse options of `apply` that say nothing about answers, where they were used."""
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
    """Write the lines of answers with the repaired vector of each beside."""
    import numpy as np

    from cordcal.files import write_answers
    from cordcal.files._answers import picked
    from cordcal.serving.applying import CalibratedRows, report_at_once

    if output != "-" and Path(output).suffix.lower() not in (".jsonl", ".ndjson"):
        raise InputError("--output", f"is {output}", "answers are written as lines: name a .jsonl")
    read = read_answer_file(path, inputs, on_error=on_error)
    _check_names(model, read, path)
    found, skipped = _drop_longer_questions(read, model.n_classes_, path, on_error)
    scores = replace(answers_to_scores(found, path), values=_widen(found, model.n_classes_))
    rows = replace(scores, labels=None, class_names=None)
    repairer = CalibratedRows(model, in_memory_file(rows, found.rows), **options)
    block, done = report_at_once(repairer, output, on_error=on_error)
    extra = _extra_fields(block.extra)
    if "row" in extra:
        found = picked(found, np.isin(found.rows, extra["row"]))
    own = _columns(found, model.n_classes_)
    reports = {name: report[:, own] for name, report in block.reports.items()}
    try:
        write_answers(output, found, reports, extra=extra, overwrite=force)
    except InputError as refusal:
        raise refusal.with_argument(path) if refusal.rows.size else refusal from refusal
    total = Counter(read.skipped.values()) + skipped + Counter(done.skipped)
    if json:
        told = {**done.to_dict(), "skipped": dict(total), "record": read.record.to_dict()}
        show_json({"output": output, **told})
        return
    sys.stdout.flush()
    echo_skipped(total)
    echo_info(
        f"{'stdout' if output == '-' else output}: {done.rows:,} questions; the direct report "
        f"would change {done.changed:,} answers ({done.changed / done.rows:.2%}), the repaired one "
        f"changes none"
    )


def _check_names(model: Any, answers: Answers, path: str) -> None:
    """Refuse columns that would be taken for others of the model's."""
    from cordcal.files._answers import OTHER

    if model.class_names is None:
        return
    names = tuple(map(str, model.class_names))
    if (names[-1] == OTHER) != answers.has_other:
        wanted = "other" if names[-1] == OTHER else "even"
        has = "has one column" if names[-1] == OTHER else "has none"
        raise InputError(
            "--answers",
            f"gives tokens that are no option {'a' if answers.has_other else 'no'} column, but the "
            f"model {has}",
            f"read the answers as those that it was fitted on, with --answers {wanted}",
        )
    if names != answers.names and sorted(names) == sorted(answers.names):
        raise InputError(
            path,
            f"has the options {', '.join(answers.names)} but the model {', '.join(names)}",
            "name them in the model's order, with {setting}",
            setting=("options", ",".join(name for name in names if name != OTHER)),
        )


def _drop_longer_questions(
    answers: Answers, classes: int, path: str, on_error: OnError
) -> tuple[Answers, Counter[str]]:
    """Return the questions that have no more options than the model, and count the others."""
    import numpy as np

    from cordcal.files._answers import picked

    counts = np.array([len(options) for options in answers.options])
    most = classes - answers.has_other
    long = counts > most
    if not long.any():
        return answers, Counter()
    if on_error == "stop" or long.all():
        first = int(long.argmax())
        raise InputError(
            path,
            "has more options than the model was fitted on",
            "fit it on questions with as many",
            rows=answers.rows[long],
            found=f"has {counts[first]} options but the model was fitted on {most}",
        )
    skipped = Counter({"has more options than the model was fitted on": int(long.sum())})
    return picked(answers, ~long), skipped


def _columns(answers: Answers, classes: int) -> Any:
    """Return which of the model's columns the answers have."""
    import numpy as np

    own = np.arange(answers.scores.shape[1])
    if answers.has_other:
        own[-1] = classes - 1
    return own


def _widen(answers: Answers, classes: int) -> Any:
    """Return the scores with as many columns as the model has."""
    import numpy as np

    scores = np.full((len(answers), classes), -np.inf)
    scores[:, _columns(answers, classes)] = answers.scores
    return scores


def _extra_fields(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else a line is given: its number, and the story of its repair in one field."""
    explanation = {name: values.tolist() for name, values in extra.items() if name != "row"}
    found = {name: extra[name] for name in ("row",) if name in extra}
    if explanation:
        rows = zip(*explanation.values(), strict=True)
        found["explanation"] = [dict(zip(explanation, row, strict=True)) for row in rows]
    return found
