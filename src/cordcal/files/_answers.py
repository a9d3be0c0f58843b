"""Answers of language models to questions with options: log-probabilities in, vectors out."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal.files._answer_lines import (
    LETTERS,
    RULES,
    Json,
    Listed,
    Rule,
    aliases,
    index_of,
    label_of,
    listed_of,
    options_of,
)
from cordcal.files._opening import read_whole
from cordcal.files._replacing import replacing

Missing = Literal["even", "other", "refuse"]
OTHER = "other"
# An option that was never listed is unlikely, not impossible; 1e-12 is the floor of the NLL.
_LEAST = 1e-12
# Reports of float32 rows sum to one about as closely.
_SUM = 1e-6
# Stated vectors further from one than this are rescaled, and counted.
_LOOSE = 1e-3


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


@dataclass(frozen=True)
class _Settings:
    """How lines are to be read, and what messages call the file."""

    name: str
    options: tuple[str, ...] | None
    label: str | None
    field: str | None
    missing: Missing
    rule: Rule

    def refusal(self, at: int, reason: str, remedy: str, **more: Any) -> Refusal:
        return Refusal(self.name, reason, remedy, rows=[at], **more)


@dataclass(frozen=True)
class _Row:
    """One question, read: its options' log-probabilities, and what lies elsewhere."""

    options: tuple[str, ...]
    logs: tuple[float, ...]
    label: int | None
    unseen: float = 0.0
    stray: float = 0.0
    incomplete: bool = False
    merged: bool = False
    rescaled: bool = False


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
    settings = _Settings(name, given, label, field, missing, rule)
    rows = [_row(line, at, settings) for at, line in enumerate(lines)]
    names = _names([row.options for row in rows])
    scores = np.full((len(rows), len(names)), -math.inf)
    for at, row in enumerate(rows):
        scores[at, : len(row.logs)] = row.logs
    if missing == "other":
        others = [max(row.unseen + row.stray, _LEAST) for row in rows]
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


def _row(line: Json, at: int, settings: _Settings) -> _Row:
    options = options_of(line) or settings.options
    names = None if options is None else aliases(options, settings.rule)
    listed = listed_of(line, names, settings.rule, settings.field)
    if listed is None and settings.field is not None:
        raise settings.refusal(
            at,
            f"has no probabilities under {settings.field!r}",
            "name the field that holds them",
        )
    if listed is None:
        raise settings.refusal(
            at,
            "has no log-probabilities",
            "ask the interface for them (logprobs, top_logprobs), or store the options' under "
            "'logprobs' or 'probabilities'",
        )
    if any(math.isnan(value) or value == math.inf for value in _values(listed)):
        raise settings.refusal(at, "has a number that is no probability", "fix or drop such lines")
    options = options or _own_options(listed, line, at, settings)
    if len(options) < 2:
        raise settings.refusal(at, "has one option", "drop it: there is nothing to choose")
    names = names or aliases(options, settings.rule)
    label = _label(line, options, names, at, settings)
    if isinstance(listed.logprobs, tuple):
        return _positional(listed, options, label, at, settings)
    return _by_name(listed, options, names, label, at, settings)


def _values(listed: Listed) -> Iterable[float]:
    found = listed.logprobs
    return found if isinstance(found, tuple) else found.values()


def _own_options(listed: Listed, line: Json, at: int, settings: _Settings) -> tuple[str, ...]:
    """Return the options of a line that only has numbers: their names, else letters."""
    if isinstance(listed.logprobs, tuple):
        return _letters(len(listed.logprobs))
    if listed.kind == "stated" or "choices" not in line:
        return tuple(listed.logprobs)
    raise settings.refusal(at, "lists no options", "pass options=['A', 'B', …]")


def _label(
    line: Json, options: tuple[str, ...], names: Mapping[str, int], at: int, settings: _Settings
) -> int | None:
    written = label_of(line, settings.label)
    if written is None:
        return None
    index = index_of(written, options, names, settings.rule)
    if index < 0:
        raise settings.refusal(
            at,
            f"has the answer {written!r}, which is none of its {len(options)} options",
            "write its index from 0, its letter or its text, or name another field as label",
        )
    return index


def _positional(
    listed: Listed, options: tuple[str, ...], label: int | None, at: int, settings: _Settings
) -> _Row:
    logs = tuple(_values(listed))
    if len(logs) != len(options):
        raise settings.refusal(
            at, f"has {len(logs)} numbers for {len(options)} options", "give each option one"
        )
    return _stated(listed, list(logs), options, label)


def _stated(
    listed: Listed,
    logs: list[float],
    options: tuple[str, ...],
    label: int | None,
    stray: float = 0.0,
) -> _Row:
    """Return a row that says all there is; a stated zero is unlikely, not impossible."""
    if listed.kind == "likelihoods":
        return _Row(options, tuple(logs), label)
    total = math.fsum((stray, *(math.exp(each) for each in logs)))
    floored = tuple(max(each, math.log(_LEAST)) for each in logs)
    return _Row(options, floored, label, stray=stray, rescaled=abs(total - 1.0) > _LOOSE)


def _by_name(
    listed: Listed,
    options: tuple[str, ...],
    names: Mapping[str, int],
    label: int | None,
    at: int,
    settings: _Settings,
) -> _Row:
    masses: dict[int, list[float]] = {}
    stray: list[float] = []
    assert not isinstance(listed.logprobs, tuple)
    for token, value in listed.logprobs.items():
        index = names.get(settings.rule(token))
        (stray if index is None else masses.setdefault(index, [])).append(math.exp(value))
    if not masses:
        raise settings.refusal(
            at,
            "lists none of its options among its tokens",
            "check the options' names, or give a rule as variants",
        )
    shares = [math.fsum(masses.get(index, ())) for index in range(len(options))]
    if listed.kind == "stated":
        return _stated(listed, [_log(share) for share in shares], options, label, math.fsum(stray))
    lacking = [index for index in range(len(options)) if index not in masses]
    unseen = max(0.0, 1.0 - math.fsum((*shares, *stray)))
    if lacking and settings.missing == "refuse":
        raise settings.refusal(
            at,
            f"does not list {', '.join(repr(options[index]) for index in lacking)}",
            "ask for more top log-probabilities, or write {setting}",
            setting=("missing", "even"),
        )
    if settings.missing == "even":
        # A token that is not listed is no likelier than the least likely one that is.
        least = min(math.exp(value) for value in listed.logprobs.values())
        for index in lacking:
            shares[index] = min(unseen / len(lacking), least)
    return _Row(
        options,
        tuple(_log(max(share, _LEAST)) for share in shares),
        label,
        unseen,
        math.fsum(stray),
        incomplete=bool(lacking),
        merged=any(len(each) > 1 for each in masses.values()),
    )


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf


def _names(options: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the columns' names: the options where every question has the same, else letters."""
    first = options[0]
    if all(each == first for each in options):
        return first
    return _letters(max(map(len, options)))


def _letters(count: int) -> tuple[str, ...]:
    """Return names for options that have none: letters, then numbers."""
    return tuple(LETTERS[index] if index < len(LETTERS) else str(index) for index in range(count))


def _record(rows: Sequence[_Row], scores: npt.NDArray[np.float64]) -> AnswersRecord:
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


def write_answers(
    path: str | os.PathLike[str],
    answers: Answers,
    reports: Mapping[str, npt.NDArray[Any]],
    *,
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
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    for name, report in reports.items():
        if np.shape(report) != answers.scores.shape:
            raise Refusal(
                name,
                f"has shape {np.shape(report)} but the answers have {answers.scores.shape}",
                "pass reports of these answers",
            )
    if str(path) == "-":
        sys.stdout.writelines(_written(answers, reports))
        return
    with (
        replacing(path, overwrite=overwrite) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.writelines(_written(answers, reports))


def _written(answers: Answers, reports: Mapping[str, npt.NDArray[Any]]) -> Iterator[str]:
    for at, line in enumerate(answers.lines):
        own = {name: _beside(answers, at, report[at]) for name, report in reports.items()}
        yield json.dumps({**line, **own}, ensure_ascii=False) + "\n"


def _beside(answers: Answers, at: int, row: npt.NDArray[Any]) -> dict[str, float]:
    options: Sequence[str] = answers.options[at]
    if len(set(options)) < len(options):  # letters tell options of the same text apart
        options = _letters(len(options))
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
