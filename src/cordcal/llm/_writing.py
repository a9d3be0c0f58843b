"""Lines of answers as they were read, with reports of their options beside."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files._replacing import replacing
from cordcal.files._writing import write_to_stdout
from cordcal.llm._lines import letters
from cordcal.llm.answers import OTHER, Answers

# Reports of float32 rows sum to one about as closely.
_SUM = 1e-6


def write_answers(
    path: str | os.PathLike[str],
    answers: Answers,
    reports: Mapping[str, npt.NDArray[Any]],
    *,
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
    overwrite: bool = True,
) -> None:
    """Write the lines as they were read, with reports of their options beside.

    Parameters
    ----------
    path : path or "-"
        A JSONL file; ``-`` is stdout.
    answers : Answers
        What `read_answers` returned.
    reports : mapping of str to ndarray of shape (n, K)
        What to add to each line, such as ``{"repaired": model.predict_proba(answers.scores)}``:
        a mapping of the question's own options to probabilities.  What a map puts on options
        that a question lacks is shared among its own in proportion.
    extra : mapping of str to ndarray, optional
        More to add, one value a line.
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    for name, report in reports.items():
        if np.shape(report) != answers.scores.shape:
            raise InputError(
                name,
                f"has shape {np.shape(report)} but the answers have {answers.scores.shape}",
                "pass reports of these answers",
            )
    columns = {name: np.asarray(values).tolist() for name, values in (extra or {}).items()}
    for at, line in zip(answers.rows.tolist(), answers.lines, strict=True):
        for name in columns:
            if name in line:
                raise InputError(
                    "answers", f"has a field {name!r}, as the output would", "rename it", rows=[at]
                )
    if str(path) == "-":
        write_to_stdout(line.encode() for line in _written(answers, reports, columns))
        return
    with (
        replacing(path, overwrite=overwrite) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.writelines(_written(answers, reports, columns))


def _written(
    answers: Answers,
    reports: Mapping[str, npt.NDArray[Any]],
    columns: Mapping[str, list[Any]],
) -> Iterator[str]:
    for at, line in enumerate(answers.lines):
        own = {name: _beside(answers, at, report[at]) for name, report in reports.items()}
        more = {name: values[at] for name, values in columns.items()}
        yield json.dumps({**line, **own, **more}, ensure_ascii=False) + "\n"


def _beside(answers: Answers, at: int, row: npt.NDArray[Any]) -> dict[str, float]:
    options: Sequence[str] = answers.options[at]
    if len(set(options)) < len(options):  # letters tell options of the same text apart
        options = letters(len(options))
    names = [*options, OTHER] if answers.has_other else options
    places = [*range(len(options)), -1][: len(names)]
    return dict(zip(names, _own_part(row[places]).tolist(), strict=True))


def _own_part(row: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return a question's part of a row as a report; some maps put mass on masked options."""
    part = row.astype(np.float64)
    total = math.fsum(part)
    if abs(total - 1.0) <= _SUM or total <= 0.0:
        return part
    top = int(part.argmax())
    part /= total
    if np.count_nonzero(part == part[top]) > np.count_nonzero(row == row[top]):
        part[top] = np.nextafter(part[top], 1.0)  # a division may round two entries to one
    return part
