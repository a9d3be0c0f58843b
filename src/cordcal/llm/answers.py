"""Answers of language models to questions with options: log-probabilities in, scores out."""

from __future__ import annotations

import json
import math
import os
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files._opening import read_whole
from cordcal.files._places import as_patterns
from cordcal.llm._lines import RULES, Json, Rule, letters
from cordcal.llm._rows import LEAST, AnswerRow, Missing, Settings, row_of

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
    n_unlabelled : int
        Questions that do not say which option is right.
    """

    n: int
    n_incomplete: int
    largest_unseen: float
    mean_unseen: float
    mean_stray: float
    n_merged: int
    n_rescaled: int
    n_tied: int
    n_unlabelled: int

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
        if 0 < self.n_unlabelled < self.n:  # where none says it, nobody wants to know
            told.append(f"{self.n_unlabelled:,} without the right option")
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
    rows : ndarray of int
        The number of each question in the file, from 0; empty lines do not count.
    skipped : mapping of int to str
        The questions that were left out by their numbers, and why.
    """

    scores: npt.NDArray[np.float64]
    labels: npt.NDArray[np.intp] | None
    names: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    has_other: bool
    record: AnswersRecord
    lines: tuple[Json, ...]
    rows: npt.NDArray[np.intp]
    skipped: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.options)


def read_answers(
    path: str | os.PathLike[str],
    *,
    options: str | Sequence[str] | None = None,
    label: str | None = None,
    field: str | None = None,
    missing: Missing = "even",
    variants: Rule | Literal["loose", "spaces", "exact"] = "loose",
    labelled: bool = False,
    on_error: Literal["stop", "skip"] = "stop",
) -> Answers:
    """Read a language model's answers from a JSONL file.

    Every line is one question.  Understood are replies of chat and completion interfaces with
    their top log-probabilities, samples of the evaluation harness with one log-likelihood an
    option, mappings of options to log-probabilities (``"logprobs"``) and stated probability
    vectors (``"probabilities"``), beside the question's options (``"options"`` or
    ``"choices"``) and its right answer.  The order in a mapping is not that of the options:
    letters are taken in the alphabet's, others in that of the first line that has the same.

    Parameters
    ----------
    path : path or "-"
        The file; ``-`` reads stdin.
    options : str or sequence of str, optional
        The options of all questions, where the lines do not list them; a string has commas
        between them.
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
    labelled : bool
        Whether a line must say which option is right.
    on_error : {"stop", "skip"}
        What to do with a line that cannot be used: stop with its number, or leave it out.

    Returns
    -------
    answers : Answers
        Scores, labels, names, and what had to be decided.
    """
    if missing not in ("even", "other", "refuse"):
        raise InputError("missing", f"is {missing!r}", "pass 'even', 'other' or 'refuse'")
    if on_error not in ("stop", "skip"):
        raise InputError("on_error", f"is {on_error!r}", "pass 'stop' or 'skip'")
    name, texts = _texts(path)
    rule = RULES.get(variants) if isinstance(variants, str) else variants
    if rule is None:
        raise InputError(
            "variants", f"is {variants!r}", f"pass one of {', '.join(RULES)}, or a rule"
        )
    settings = Settings(name, as_patterns(options), label, field, missing, rule, labelled, {})
    read: dict[int, tuple[Json, AnswerRow]] = {}
    skipped: dict[int, str] = {}
    for at, text in enumerate(texts):
        try:
            line = _object(name, text, at)
            read[at] = line, row_of(line, at, settings)
        except InputError as refusal:
            if on_error == "stop":
                raise
            skipped[at] = refusal.reason
    if not read:
        raise InputError(name, "has no line that can be read", "mend the lines, or pass others")
    return _answers(read, skipped, has_other=missing == "other")


def _texts(path: str | os.PathLike[str]) -> tuple[str, list[bytes]]:
    """Return what messages call a file, and its lines but for empty ones."""
    name, data = read_whole(path)
    # Only bytes are split at line ends alone; text is at some characters within strings, too.
    texts = [text for text in data.removeprefix(BOM_UTF8).splitlines() if text.strip()]
    if not texts:
        raise InputError(name, "has no lines", "write one question a line as a JSON object")
    return name, texts


def _object(name: str, text: bytes, at: int) -> Json:
    try:
        line = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, Mapping):
        raise InputError(name, "is no JSON object", "write one question a line as {…}", rows=[at])
    return line


def _answers(
    read: Mapping[int, tuple[Json, AnswerRow]], skipped: Mapping[int, str], *, has_other: bool
) -> Answers:
    """Put the questions together, by their numbers in the file."""
    lines, rows = zip(*read.values(), strict=True)
    options = tuple(row.options for row in rows)
    names = _names(options)
    scores = np.full((len(rows), len(names)), -math.inf)
    for at, row in enumerate(rows):
        scores[at, : len(row.logs)] = row.logs
    if has_other:
        others = [max(row.unseen + row.stray, LEAST) for row in rows]
        scores = np.column_stack([scores, np.log(others)])
    found = [row.label for row in rows]
    labels = None if None in found else np.array(found, dtype=np.intp)
    return Answers(
        scores=scores,
        labels=labels,
        names=(*names, OTHER) if has_other else names,
        options=options,
        has_other=has_other,
        record=_record(rows, scores),
        lines=lines,
        rows=np.array(list(read), dtype=np.intp),
        skipped=skipped,
    )


def picked(answers: Answers, keep: npt.NDArray[np.bool_]) -> Answers:
    """Return the questions that are flagged; the record stays that of all that were read."""
    chosen = np.flatnonzero(keep)
    options = tuple(answers.options[at] for at in chosen)
    names = _names(options)
    columns = [*range(len(names)), -1] if answers.has_other else [*range(len(names))]
    return replace(
        answers,
        scores=answers.scores[chosen][:, columns],
        labels=None if answers.labels is None else answers.labels[chosen],
        names=(*names, OTHER) if answers.has_other else names,
        options=options,
        lines=tuple(answers.lines[at] for at in chosen),
        rows=answers.rows[chosen],
    )


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
        n_unlabelled=sum(row.label is None for row in rows),
    )
