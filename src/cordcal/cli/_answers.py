"""Answers of language models in commands: JSONL as scores, and as files of scores."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._door.errors import Refusal
from cordcal.cli._console import note, say_skipped
from cordcal.cli._where import Where

if TYPE_CHECKING:
    from cordcal.files import Answers, ScoreFile, Scores
    from cordcal.serving._refusals import OnError

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
            raise Refusal(option, "does not go with --answers", _IN_LINES[option])
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
    note(f"{path}: {found.record}")
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
    say_skipped(Counter(found.skipped.values()))
    return as_scores(found, path, role=role)


def as_scores(found: Answers, path: str, *, role: str = "scores") -> Scores:
    """Return answers as scores: log-probabilities, or probabilities where a report is asked for."""
    from cordcal._door.scores import original_probabilities
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
        raise Refusal(
            paths[0],
            f"has {lines[0]:,} lines but {paths[1]} has {lines[1]:,}",
            "both must hold the same questions",
        )
    say_skipped(Counter({**second.skipped, **first.skipped}.values()))
    both = np.intersect1d(first.rows, second.rows)
    if not both.size:
        raise Refusal(paths[0], f"and {paths[1]} have no sound line in common", "mend the lines")
    kept = (picked(each, np.isin(each.rows, both)) for each in (first, second))
    one, other = (
        as_file(as_scores(each, path, role=role), both)
        for each, path, role in zip(kept, paths, roles, strict=True)
    )
    return one, other
