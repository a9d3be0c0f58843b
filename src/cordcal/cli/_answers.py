"""Answers of language models in commands: JSONL in, the same JSONL with repaired vectors out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._door.errors import Refusal
from cordcal.cli._console import note, show_json
from cordcal.cli._where import Where

if TYPE_CHECKING:
    from cordcal.files import Answers, ScoreFile, Scores

# In which field a file has the report that a command asks for, if not where the model's
# interface left its numbers.
_FIELDS = {"repaired": "repaired", "direct": "direct"}


def read_answers_of(path: str, where: Where, *, role: str = "scores") -> Answers:
    """Read answers as the options say, and say what had to be decided."""
    from cordcal.files import read_answers

    missing: Any = where.answers
    variants: Any = where.variants or "loose"
    options = None if where.options is None else where.options.split(",")
    field = where.key
    if field is None and role in _FIELDS and _has_field(path, _FIELDS[role]):
        field = _FIELDS[role]
    found = read_answers(
        path,
        options=options,
        label=where.labels_column,
        field=field,
        missing=missing,
        variants=variants,
    )
    note(f"{path}: {found.record}")
    return found


def _has_field(path: str, field: str) -> bool:
    if path == "-":
        return False
    with Path(path).open("rb") as file:
        return f'"{field}":'.encode() in file.readline()


def answer_scores(path: str, where: Where, *, role: str = "scores") -> Scores:
    """Return answers as scores: log-probabilities, or probabilities where a report is asked for."""
    from cordcal._door.scores import original_probabilities
    from cordcal.files import Scores

    found = read_answers_of(path, where, role=role)
    if role not in _FIELDS:
        return Scores(path, "answers", found.scores, "logits", found.labels, found.names)
    report = original_probabilities(found.scores, "logits")
    return Scores(path, role, report, "probabilities", found.labels, found.names)


def answer_file(path: str, where: Where, *, role: str) -> ScoreFile:
    """Return answers as a score file in batches."""
    from cordcal.files._contents import Contents
    from cordcal.files._places import Places
    from cordcal.files._sources import Whole
    from cordcal.files._stream import ScoreFile

    found = answer_scores(path, where, role=role)
    vectors = {} if found.labels is None else {"labels": found.labels}
    matrices = {found.key: found.values}
    contents = Contents.of(path, "jsonl", matrices, vectors, found.class_names)
    return ScoreFile(Whole(contents), contents, found.key, found.kind, Places())


def apply_to_answers(
    model: Any,
    where: Where,
    path: str,
    output: str,
    *,
    with_direct: bool,
    force: bool,
    json: bool,
) -> None:
    """Write the lines of answers with the repaired vector of each beside."""
    import numpy as np

    from cordcal.files import write_answers

    if output != "-" and Path(output).suffix.lower() not in (".jsonl", ".ndjson"):
        raise Refusal("--output", f"is {output}", "answers are written as lines: name a .jsonl")
    found = read_answers_of(path, where)
    names = None if model.class_names is None else tuple(map(str, model.class_names))
    if names != found.names and names is not None and sorted(names) == sorted(found.names):
        raise Refusal(path, "has its options in another order than the model", "sort them alike")
    scores, kept = _widened(found, model.n_classes_, path)
    reports = model.reports(scores)
    beside = {"repaired": reports.repaired[:, kept]}
    if with_direct:
        beside["direct"] = reports.direct[:, kept]
    write_answers(output, found, beside, overwrite=force)
    changed = int(np.count_nonzero(reports.direct.argmax(axis=1) != reports.decision))
    if json:
        told = {"rows": len(found), "changed": changed, "record": found.record.to_dict()}
        show_json({"output": output, **told})
        return
    sys.stdout.flush()
    note(
        f"{'stdout' if output == '-' else output}: {len(found):,} questions; the direct report "
        f"would change {changed:,} answers ({changed / len(found):.2%}), the repaired one changes "
        f"none"
    )


def _widened(answers: Answers, classes: int, path: str) -> tuple[Any, Any]:
    """Return the scores with as many columns as the model has, and which of them are theirs."""
    import numpy as np

    count = answers.scores.shape[1]
    if count > classes:
        raise Refusal(
            path,
            f"has questions with {count} options but the model was fitted on {classes}",
            "fit it on questions with as many",
        )
    kept = np.arange(count)
    if answers.has_other:
        kept[-1] = classes - 1
    scores = np.full((len(answers), classes), -np.inf)
    scores[:, kept] = answers.scores
    return scores, kept
