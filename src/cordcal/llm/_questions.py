"""One question: from the numbers on its line to one log-probability per option."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cordcal._errors import InputError
from cordcal.llm.layouts import (
    LETTERS,
    METRICS,
    Json,
    ListedScores,
    TokenForm,
    as_number,
    find_label,
    find_options,
    find_scores,
    has_generated_text,
    is_harness_sample,
    letters_for,
    option_index,
    option_letters,
    options_in_prompt,
    shared_order,
)

Missing = Literal["even", "other", "refuse"]
Normalize = Literal["none", "characters", "bytes", "tokens"]

# The NLL clips probabilities at this value, so smaller ones make no difference there.
MIN_PROBABILITY = 1e-12
# Log-probabilities are at most 0, and probabilities sum to at most 1, up to the rounding of the
# half-precision numbers that some servers compute with.
_ROUNDING = 1e-3
# Stated probabilities are often rounded to two decimals: each may be wrong by this.
_STATED_ROUNDING = 0.005


@dataclass(frozen=True)
class ReadOptions:
    """How to read a line, and the names of its file and its row in messages."""

    path: str
    row: int
    options: tuple[str, ...] | None
    labels_column: str | None
    missing: Missing
    form: TokenForm
    normalize: Normalize
    labels_path: str | None = None

    def error(
        self,
        reason: str,
        hint: str,
        *,
        detail: str | None = None,
        option: tuple[str, str] | None = None,
    ) -> InputError:
        """Return the error of a line; ``reason`` is the same for all lines of its kind."""
        return InputError(self.path, reason, hint, rows=[self.row], detail=detail, option=option)


@dataclass(frozen=True)
class Question:
    """One question: its options, their log-probabilities and the right one.

    ``unlisted`` is the probability of tokens that the line does not list, ``other_tokens`` that
    of listed tokens that are not options.  ``emitted`` is the token that the model gave, and
    ``emitted_option`` the option that it means.  ``contradicts_metric`` is set if the harness's
    own metric does not agree with the prediction and the right answer as read here.
    """

    options: tuple[str, ...]
    scores: tuple[float, ...]
    label: int | None = None
    unlisted: float = 0.0
    other_tokens: float = 0.0
    is_incomplete: bool = False
    is_merged: bool = False
    is_rescaled: bool = False
    contradicts_metric: bool = False
    emitted: str | None = None
    emitted_option: int | None = None

    @property
    def prediction(self) -> int:
        """The likeliest option; of equally likely ones the first."""
        return self.scores.index(max(self.scores))


def read_question(line: Json, read: ReadOptions, gold: Json | None = None) -> Question:
    """Return the question on a line.

    ``gold`` is the line of a labels file with the same identifier.
    """
    options = find_options(line) or (None if gold is None else find_options(gold)) or read.options
    forms = set() if options is None else {read.form(name) for name in _all_names(options)}
    listed = find_scores(line, lambda token: read.form(token) in forms)
    if listed is None:
        raise _no_scores(line, read)
    values = listed.values if isinstance(listed.values, tuple) else tuple(listed.values.values())
    _check_numbers(values, listed.kind, read)
    impossible = 0.0 if listed.kind == "stated" else -math.inf
    if values and max(values) == impossible:
        raise read.error("gives every option probability zero", "fix the line, or drop it")
    options = options or _own_options(listed, line, read)
    if len(options) < 2:
        raise read.error("has one option", "drop it: there is nothing to choose")
    scored = _assign_scores(listed, options, read)
    label = _find_label(line, gold, scored, read)
    return replace(
        scored, label=label, contradicts_metric=_contradicts_metric(scored, label, line, read)
    )


def _all_names(options: Sequence[str]) -> Iterable[str]:
    return (*options, *letters_for(options))


def _check_numbers(values: Sequence[float], kind: str, read: ReadOptions) -> None:
    """Refuse what is not a probability or log-probability, and masses above one."""
    if kind == "stated":
        if not all(value >= 0.0 and math.isfinite(value) for value in values):
            raise read.error("has a number that is not a probability", "fix the line, or drop it")
        total, limit = math.fsum(values), 1.0 + max(_ROUNDING, _STATED_ROUNDING * len(values))
        hint = "write probabilities of 0 to 1 that sum to one, or drop the line"
    else:
        above = next((value for value in values if not value <= _ROUNDING), None)  # NaN, too
        if above is not None:
            raise read.error(
                "has a number that is not a log-probability",
                "log-probabilities are at most 0; write other scores to a table of scores",
                detail=f"has the log-probability {above:.6g}",
            )
        if kind == "likelihoods":  # one option may be the beginning of another
            return
        total, limit = math.fsum(map(math.exp, values)), 1.0 + _ROUNDING
        hint = "write log-probabilities of one position, or drop the line"
    if total > limit:
        raise read.error(
            "has probabilities that sum to more than one",
            hint,
            detail=f"has probabilities that sum to {total:.4g}",
        )


def _no_scores(line: Json, read: ReadOptions) -> InputError:
    """Return why a line has no scores."""
    if has_generated_text(line):
        return read.error(
            "has generated text, not log-likelihoods",
            "run a task with output_type: multiple_choice, whose samples have them",
        )
    if is_harness_sample(line):
        return read.error("has a log-likelihood that is not a number", "fix the line, or drop it")
    return read.error(
        "has no log-probabilities",
        "request them from the API (logprobs, top_logprobs), or store one per option under "
        "'logprobs' or 'probabilities'",
    )


def _own_options(listed: ListedScores, line: Json, read: ReadOptions) -> tuple[str, ...]:
    """Return the options of a line that has only numbers: their names, or letters."""
    if isinstance(listed.values, tuple):
        return option_letters(len(listed.values))
    hint = "name the options of all questions, as in {option}"
    example = ("options", "ABCD")
    if listed.kind == "tokens" and "logprobs" not in line:  # the likeliest tokens of a reply
        raise read.error("does not list its options", hint, option=example)
    names = tuple(listed.values)
    options, absent = shared_order(names, read.form)
    if absent is not None:
        raise read.error(
            "leaves out a letter between its options",
            hint,
            detail=f"names {', '.join(options)} but not {absent}",
            option=example,
        )
    answer = find_label(line, read.labels_column)
    if isinstance(answer, int) and options[0] != LETTERS[0]:
        raise read.error(
            "gives its answer as a number, but does not list its options in an order",
            "write the answer's text, or the options as a list 'options'",
        )
    return options


# Scores of options -------------------------------------------------------------------------------


def _assign_scores(listed: ListedScores, options: tuple[str, ...], read: ReadOptions) -> Question:
    if listed.kind != "likelihoods" and read.normalize != "none":
        raise InputError(
            "normalize",
            f"is {read.normalize!r}, but {read.path} does not have one log-likelihood per option",
            "leave it out",
        )
    if listed.kind == "likelihoods" and read.missing == "other":
        raise InputError(
            "missing",
            f"is 'other', but {read.path} has one log-likelihood per option and no other tokens",
            "leave it out",
        )
    if isinstance(listed.values, tuple):
        if len(listed.values) != len(options):
            raise read.error(
                "has more or fewer numbers than options",
                "write one number per option",
                detail=f"has {len(listed.values)} numbers for {len(options)} options",
            )
        values = list(listed.values)
        if listed.kind == "stated":
            return _stated(values, options)
        return Question(options, _normalize(values, listed, options, read))
    if listed.kind == "likelihoods":
        return _likelihoods_by_name(listed, options, read)
    return _by_token(listed, options, read)


def _stated(
    probabilities: Sequence[float], options: tuple[str, ...], other_tokens: float = 0.0
) -> Question:
    """Return a question whose probabilities are stated; a stated zero is not impossible."""
    total = math.fsum((other_tokens, *probabilities))
    return Question(
        options,
        tuple(math.log(max(value, MIN_PROBABILITY)) for value in probabilities),
        other_tokens=other_tokens,
        is_rescaled=abs(total - 1.0) > _ROUNDING,
    )


def _likelihoods_by_name(
    listed: ListedScores, options: tuple[str, ...], read: ReadOptions
) -> Question:
    assert isinstance(listed.values, Mapping)
    by_form = {read.form(name): value for name, value in listed.values.items()}
    absent = [option for option in options if read.form(option) not in by_form]
    if absent:
        raise read.error(
            "does not have a log-likelihood for every option",
            "write one per option",
            detail=f"does not have a log-likelihood for {absent[0]!r}",
        )
    values = [by_form[read.form(option)] for option in options]
    return Question(options, _normalize(values, listed, options, read))


def _normalize(
    values: Sequence[float],
    listed: ListedScores,
    options: tuple[str, ...],
    read: ReadOptions,
) -> tuple[float, ...]:
    """Divide log-likelihoods by the lengths of their options, as ``normalize`` says."""
    if read.normalize == "none":
        return tuple(values)
    if read.normalize == "characters":
        lengths = [len(option) for option in options]
    elif read.normalize == "bytes":
        lengths = [len(option.encode()) for option in options]
    else:
        if listed.token_counts is None or len(listed.token_counts) != len(options):
            raise read.error(
                "does not have the number of tokens of each option",
                "store them as a list 'num_tokens', or store each option's log-probabilities "
                "token by token as a list of lists",
            )
        lengths = list(listed.token_counts)
    if min(lengths) <= 0:
        raise read.error("has an empty option", "its length is zero: drop it, or fix it")
    return tuple(value / length for value, length in zip(values, lengths, strict=True))


def _by_token(listed: ListedScores, options: tuple[str, ...], read: ReadOptions) -> Question:
    """Add up the tokens that mean the same option, and share out what is not listed."""
    assert isinstance(listed.values, Mapping)
    values, kind, emitted = listed.values, listed.kind, listed.emitted
    matches = _match_tokens(values, kind, options, read)
    other = math.fsum(
        value if kind == "stated" else math.exp(value)
        for token, value in values.items()
        if token not in matches
    )
    by_option: dict[int, list[float]] = {}
    for token, index in matches.items():
        by_option.setdefault(index, []).append(values[token])
    if not by_option:
        raise read.error(
            "lists none of its options among its likeliest tokens",
            "check the names of the options; options of several tokens need letters in the "
            "prompt, or one log-likelihood each",
        )
    if kind == "stated":
        shares = [math.fsum(by_option.get(index, ())) for index in range(len(options))]
        return _stated(shares, options, other)
    logs = {index: _log_sum_exp(entries) for index, entries in by_option.items()}
    unlisted = max(0.0, 1.0 - math.fsum((other, *map(math.exp, logs.values()))))
    absent = [index for index in range(len(options)) if index not in logs]
    if absent and read.missing == "refuse":
        raise read.error(
            "does not list every option",
            "request more top log-probabilities, or pass {option}",
            detail=f"does not list {', '.join(repr(options[index]) for index in absent)}",
            option=("missing", "even"),
        )
    share = unlisted / len(absent) if absent and read.missing == "even" else 0.0
    # A token that is not listed is less likely than every token that is.
    limit = math.nextafter(min(values.values()), -math.inf)
    floor = min(math.log(max(share, MIN_PROBABILITY)), limit)
    return Question(
        options,
        tuple(logs.get(index, floor) for index in range(len(options))),
        unlisted=unlisted,
        other_tokens=other,
        is_incomplete=bool(absent),
        is_merged=any(len(entries) > 1 for entries in by_option.values()),
        emitted=emitted,
        emitted_option=None if emitted is None else matches.get(emitted),
    )


def _match_tokens(
    values: Mapping[str, float], kind: str, options: tuple[str, ...], read: ReadOptions
) -> dict[str, int]:
    """Return the option of each token: by the options' texts or by letters, never by both.

    A reply gives its answer as one or the other; the reading with more probability is right.
    """
    exact = {option: index for index, option in enumerate(options)}
    if len(exact) == len(options) and exact.keys() == values.keys():
        return exact
    by_text = _match_forms(values, options, read)
    by_letter = _match_forms(values, letters_for(options), read)

    def mass(reading: Mapping[str, int]) -> float:
        return math.fsum(
            values[token] if kind == "stated" else math.exp(values[token]) for token in reading
        )

    if mass(by_letter) > mass(by_text):
        return by_letter
    firsts: dict[str, int] = {}
    for index, option in enumerate(options):
        first = firsts.setdefault(read.form(option), index)
        if first != index:
            raise read.error(
                "has two options that count as one token",
                "pass {option}, or give the options different names",
                detail=f"has the options {options[first]!r} and {option!r}, which count as one "
                "token",
                option=("variants", "exact"),
            )
    return by_text


def _match_forms(
    values: Mapping[str, float], names: Sequence[str], read: ReadOptions
) -> dict[str, int]:
    by_form = {read.form(name): index for index, name in enumerate(names)}
    indices = {token: by_form.get(read.form(token)) for token in values}
    return {token: index for token, index in indices.items() if index is not None}


def _log_sum_exp(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


# Right answers -----------------------------------------------------------------------------------


def _find_label(line: Json, gold: Json | None, question: Question, read: ReadOptions) -> int | None:
    from_harness = gold is None and read.labels_column is None and is_harness_sample(line)
    if from_harness and options_in_prompt(line):
        return _label_from_metric(line, question, read)
    answer = find_label(line if gold is None else gold, read.labels_column)
    column_hint = ("labels_column", "answer" if gold is not None else "target")
    place = "" if read.labels_path is None else f" in {read.labels_path}"
    if answer is None and gold is not None:
        raise read.error(
            f"has no right answer{place}",
            "store it as 'answer', or name the field that has it, as in {option}",
            option=column_hint,
        )
    if answer is None:
        return None
    options = question.options
    index = option_index(answer, options, read.form, number_first=from_harness)
    if index is None and (isinstance(answer, list) or str(answer).startswith("[")):
        raise read.error(
            f"has several right answers{place}",
            "drop it, or pass a file of labels with one each",
            detail=f"has several right answers{place}: {answer}",
        )
    if index is None:
        raise read.error(
            f"has an answer{place} that is not one of its options",
            "write its index from 0, its letter or its text, or name another field, as in {option}",
            detail=f"has the answer {str(answer)[:80]!r}{place}, which is not one of its "
            f"{len(options)} options",
            option=column_hint,
        )
    return index


def _label_from_metric(line: Json, question: Question, read: ReadOptions) -> int | None:
    """Return the right one of two options that are in the prompt, where ``target`` cannot say."""
    metric = line.get(METRICS["none"])
    if read.normalize == "none" and len(question.options) == 2 and metric in (0, 1):
        return question.prediction if metric == 1 else 1 - question.prediction
    return None


def _contradicts_metric(
    question: Question, label: int | None, line: Json, read: ReadOptions
) -> bool:
    """Return whether the harness's own metric does not agree with prediction and label."""
    name = METRICS.get(read.normalize)
    metric = as_number(line.get(name)) if name and is_harness_sample(line) else None
    if label is None or metric is None:
        return False
    return metric != float(question.prediction == label)
