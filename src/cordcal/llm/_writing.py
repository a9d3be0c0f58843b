"""Write answers back: the lines as they were read, with probabilities of their options added."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files import replacing
from cordcal.files.formats import write_to_stdout
from cordcal.llm.answers import OTHER, Answers
from cordcal.llm.layouts import option_letters

# The sums of float32 probabilities are about this close to one.
_SUM_TOLERANCE = 1e-6
Columns = Mapping[str, Sequence[object]]


def write_answers(
    path: str | os.PathLike[str],
    answers: Answers,
    probabilities: Mapping[str, npt.NDArray[np.floating]],
    *,
    extra: Mapping[str, npt.ArrayLike | Sequence[object]] | None = None,
    overwrite: bool = True,
) -> None:
    """Write the lines as they were read, with probabilities of their options added.

    Parameters
    ----------
    path : path or "-"
        A JSONL file; ``-`` is stdout.
    answers : Answers
        The result of `read_answers`.
    probabilities : mapping of str to ndarray of shape (n, K)
        The fields to add to each line, such as
        ``{"repaired": model.predict_proba(answers.scores)}``: a mapping of the question's own
        options to probabilities.  The probability of columns that a question does not have is
        shared among its own options in proportion.
    extra : mapping of str to sequence, optional
        More fields to add, one value per line.
    overwrite : bool
        Whether an existing file may be replaced.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cordcal.llm import read_answers
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "answers.jsonl"
    >>> _ = path.write_text('{"id": "q1", "logprobs": {"A": -0.4, "B": -1.2}}')
    >>> answers = read_answers(path)
    >>> write_answers(path, answers, {"repaired": np.array([[0.75, 0.25]])})
    >>> print(path.read_text())
    {"id": "q1", "logprobs": {"A": -0.4, "B": -1.2}, "repaired": {"A": 0.75, "B": 0.25}}
    >>> folder.cleanup()
    """
    for name, matrix in probabilities.items():
        if np.shape(matrix) != answers.scores.shape:
            raise InputError(
                name,
                f"has shape {np.shape(matrix)} but the answers have {answers.scores.shape}",
                "pass probabilities of these answers",
            )
    columns = {name: np.asarray(values).tolist() for name, values in (extra or {}).items()}
    for row, line in zip(answers.rows.tolist(), answers.lines, strict=True):
        for name in columns:
            if name in line:
                raise InputError(
                    answers.path,
                    f"has a field {name!r}, as the output would",
                    "rename it",
                    rows=[row],
                )
    if str(path) == "-":
        write_to_stdout(line.encode() for line in _format_lines(answers, probabilities, columns))
        return
    with (
        replacing(path, overwrite=overwrite) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.writelines(_format_lines(answers, probabilities, columns))


def _format_lines(
    answers: Answers,
    probabilities: Mapping[str, npt.NDArray[np.floating]],
    columns: Columns,
) -> Iterator[str]:
    for index, line in enumerate(answers.lines):
        by_option = {
            name: _by_option(answers, index, matrix[index])
            for name, matrix in probabilities.items()
        }
        values = {name: column[index] for name, column in columns.items()}
        yield json.dumps({**line, **by_option, **values}, ensure_ascii=False) + "\n"


def _by_option(answers: Answers, index: int, vector: npt.NDArray[np.floating]) -> dict[str, float]:
    options: Sequence[str] = answers.options[index]
    if len(set(options)) < len(options):  # letters distinguish options with the same text
        options = option_letters(len(options))
    names = [*options, OTHER] if answers.has_other else options
    columns = [*range(len(options)), -1][: len(names)]
    return dict(zip(names, _rescale(vector[columns]).tolist(), strict=True))


def _rescale(vector: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return a question's part of a vector as probabilities, with the same largest entry.

    Some calibrators give columns that a question does not have a little probability.
    """
    part = vector.astype(np.float64)
    total = math.fsum(part)
    if abs(total - 1.0) <= _SUM_TOLERANCE or total <= 0.0:
        return part
    top = int(part.argmax())
    part /= total
    if np.count_nonzero(part == part[top]) > np.count_nonzero(vector == vector[top]):
        part[top] = np.nextafter(part[top], 1.0)  # the division rounded two entries to one value
    return part
