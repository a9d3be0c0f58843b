"""``cordcal apply --answers``: the same JSONL, with repaired vectors beside."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.cli._console import echo_info, echo_skipped, show_json
from cordcal.cli._inputs import Where, as_file, as_scores, read_answers_of

if TYPE_CHECKING:
    from cordcal.files import Answers
    from cordcal.serving._refusals import OnError

_AT_ONCE = "does not go with --answers, which are read and written at once"


def refuse_with_answers(**options: Any) -> None:
    """Refuse options of `apply` that say nothing about answers, where they were used."""
    for name, value in options.items():
        if value:
            reason = _AT_ONCE if name in ("resume", "scheduler") else "does not go with --answers"
            raise InputError(f"--{name.replace('_', '-')}", reason, "leave it out")


def apply_to_answers(
    model: Any,
    where: Where,
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
    read = read_answers_of(path, where, on_error=on_error)
    _check_names(model, read, path)
    found, skipped = _fitting(read, model.n_classes_, path, on_error)
    scores = replace(as_scores(found, path), values=_widened(found, model.n_classes_))
    rows = replace(scores, labels=None, class_names=None)
    repairer = CalibratedRows(model, as_file(rows, found.rows), **options)
    block, done = report_at_once(repairer, output, on_error=on_error)
    extra = _beside(block.extra)
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
            "name them in the model's order, with {option}",
            option=("options", ",".join(name for name in names if name != OTHER)),
        )


def _fitting(
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
            detail=f"has {counts[first]} options but the model was fitted on {most}",
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


def _widened(answers: Answers, classes: int) -> Any:
    """Return the scores with as many columns as the model has."""
    import numpy as np

    scores = np.full((len(answers), classes), -np.inf)
    scores[:, _columns(answers, classes)] = answers.scores
    return scores


def _beside(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else a line is given: its number, and the story of its repair in one field."""
    explanation = {name: values.tolist() for name, values in extra.items() if name != "row"}
    found = {name: extra[name] for name in ("row",) if name in extra}
    if explanation:
        rows = zip(*explanation.values(), strict=True)
        found["explanation"] = [dict(zip(explanation, row, strict=True)) for row in rows]
    return found
