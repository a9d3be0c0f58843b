"""Answers of language models to questions with options: log-probabilities in, scores out."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal.files._answer_lines import RULES, Json, Rule, letters
from cordcal.files._answer_rows import LEAST, AnswerRow, Missing, Settings, row_of
from cordcal.files._opening import read_whole

OTHER = "other"


@dataclass(frozen=True)
class AnswersRecord:
    """What reading answers had to decide, in numbers.

    Attributes
    ----------
    n : int
        Questions.
    n_incomplete : int
        Questions whose list of tokens lacks an option.
    largest_unseen, mean_unseen : float
        The probability that lies on tokens that are not listed: the most, and on average.
    mean_stray : float
        The probability on listed tokens that are no option, on average.
    n_merged : int
        Questions where several tokens meant one option.
    n_rescaled : int
        Questions whose stated probabilities did not sum to one.
    n_tied : int
        Questions whose first two options are equally likely; the earlier one is the answer.
    """

    n: int
    n_incomplete: int
    largest_unseen: float
    mean_unseen: float
    mean_stray: float
    n_merged: int
    n_rescaled: int
    n_tied: int

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)

    def __str__(self) -> str:
        told = [f"{self.n:,} questions"]
        if self.n_incomplete:
            told.append(
                f"{self.n_incomplete:,} do not list every option (unseen: {self.mean_unseen:.2%} "
                f"on average, at most {self.largest_unseen:.2%})"
            )
        if self.mean_stray:
            told.append(f"{self.mean_stray:.2%} lies on tokens that are no option")
        for count, what in (
            (self.n_merged, "with variants of a token added up"),
            (self.n_rescaled, "with probabilities that did not sum to one, rescaled"),
            (self.n_tied, "with a tie, for the earlier option"),
        ):
            if count:
                told.append(f"{count:,} {what}")
        return "; ".join(told)


@dataclass(frozen=True, eq=False)
class Answers:
    """Questions with their options' log-probabilities, ready for a calibrator.

    Attributes
    ----------
    scores : ndarray of shape (n, K)
        Log-probabilities (``input="logits"``); −inf where a question has fewer options.
    labels : ndarray of int or None
        The right options, where every line says which.
    names : tuple of str
        The columns: the options where all questions share them, else letters; then ``other``
        if that was asked for.
    options : tuple of tuple of str
        The options of each question.
    has_other : bool
        Whether the last column is everything that is no option.
    record : AnswersRecord
        What reading them had to decide.
    lines : tuple of mapping
        The lines as they were read.
    """

    scores: npt.NDArray[np.float64]
    labels: npt.NDArray[np.intp] | None
    names: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    has_other: bool
    record: AnswersRecord
    lines: tuple[Json, ...]

    def __len__(self) -> int:
        return len(self.options)


def read_answers(
    path: str | os.PathLike[str],
    *,
    options: Sequence[str] | None = None,
    label: str | None = None,
    field: str | None = None,
    missing: Missing = "even",
    variants: Rule | Literal["loose", "spaces", "exact"] = "loose",
) -> Answers:
    """Read a language model's answers from a JSONL file.

    Every line is one question.  Understood are replies of chat and completion interfaces with
    their top log-probabilities, samples of the evaluation harness with one log-likelihood an
    option, mappings of options to log-probabilities (``"logprobs"``) and stated probability
    vectors (``"probabilities"``), beside the question's options (``"options"`` or
    ``"choices"``) and its right answer.

    Parameters
    ----------
    path : path or "-"
        The file; ``-`` reads stdin.
    options : sequence of str, optional
        The options of all questions, where the lines do not list them.
    label : str, optional
        The field of the right answer: an index, a letter, or an option's text.  Found by name
        where left out.
    field : str, optional
        The field of a probability vector to read, such as ``"repaired"`` in what `write_answers`
        wrote.  Where left out, what the model's interface said.
    missing : {"even", "other", "refuse"}
        Where the probability of unlisted tokens goes: to the missing options in equal parts,
        none above the least likely listed token; to a column ``other`` of its own, together
        with tokens that are no option; or nowhere, and the line is refused.
    variants : {"loose", "spaces", "exact"} or callable
        Brings the variants of a token to one form; tokens of one form are added up.  ``"loose"``
        overlooks spaces, brackets, punctuation and case, ``"spaces"`` only spaces, ``"exact"``
        nothing.

    Returns
    -------
    answers : Answers
        Scores, labels, names, and what had to be decided.
    """
    if missing not in ("even", "other", "refuse"):
        raise Refusal("missing", f"is {missing!r}", "pass 'even', 'other' or 'refuse'")
    name, lines = _lines(path)
    given = None if options is None else tuple(options)
    rule = RULES.get(variants) if isinstance(variants, str) else variants
    if rule is None:
        raise Refusal("variants", f"is {variants!r}", f"pass one of {', '.join(RULES)}, or a rule")
    settings = Settings(name, given, label, field, missing, rule)
    rows = [row_of(line, at, settings) for at, line in enumerate(lines)]
    names = _names([row.options for row in rows])
    scores = np.full((len(rows), len(names)), -math.inf)
    for at, row in enumerate(rows):
        scores[at, : len(row.logs)] = row.logs
    if missing == "other":
        others = [max(row.unseen + row.stray, LEAST) for row in rows]
        scores = np.column_stack([scores, np.log(others)])
        names = (*names, OTHER)
    found = [row.label for row in rows]
    labels = None if None in found else np.array(found, dtype=np.intp)
    return Answers(
        scores=scores,
        labels=labels,
        names=names,
        options=tuple(row.options for row in rows),
        has_other=missing == "other",
        record=_record(rows, scores),
        lines=tuple(lines),
    )


def _lines(path: str | os.PathLike[str]) -> tuple[str, list[Json]]:
    name, data = read_whole(path)
    lines: list[Json] = []
    for number, text in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            line = None
        if not isinstance(line, Mapping):
            raise Refusal(
                f"{name}, line {number}", "is no JSON object", "write one question a line as {…}"
            )
        lines.append(line)
    if not lines:
        raise Refusal(name, "has no lines", "write one question a line as a JSON object")
    return name, lines


def _names(options: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the columns' names: the options where every question has the same, else letters."""
    first = options[0]
    if all(each == first for each in options):
        return first
    return letters(max(map(len, options)))


def _record(rows: Sequence[AnswerRow], scores: npt.NDArray[np.float64]) -> AnswersRecord:
    top = np.sort(scores, axis=1)[:, -2:]
    count = len(rows)
    return AnswersRecord(
        n=count,
        n_incomplete=sum(row.incomplete for row in rows),
        largest_unseen=max(row.unseen for row in rows),
        mean_unseen=math.fsum(row.unseen for row in rows) / count,
        mean_stray=math.fsum(row.stray for row in rows) / count,
        n_merged=sum(row.merged for row in rows),
        n_rescaled=sum(row.rescaled for row in rows),
        n_tied=int(np.count_nonzero(top[:, 0] == top[:, 1])),
    )
