"""One question of a language model: what its line lists, as a log-probability an option."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cordcal._errors import InputError
from cordcal.llm._lines import (
    LETTERS,
    Json,
    Listed,
    Orders,
    Rule,
    aliases,
    index_of,
    label_of,
    letters,
    listed_of,
    options_of,
    own_order,
)

Missing = Literal["even", "other", "refuse"]
# An option that was never listed is unlikely, not impossible; 1e-12 is the floor of the NLL.
LEAST = 1e-12
# No log-probability is positive; scores that somebody wrote as such are, and have a power of e.
_MOST = 700.0
# Stated vectors further from one than this are rescaled, and counted.
_LOOSE = 1e-3


@dataclass(frozen=True)
class Settings:
    """How lines are to be read, and what messages call the file."""

    name: str
    options: tuple[str, ...] | None
    label: str | None
    field: str | None
    missing: Missing
    rule: Rule
    labelled: bool
    orders: Orders

    def refusal(self, at: int, reason: str, hint: str, **more: Any) -> InputError:
        """Return what is wrong with a line; ``reason`` is the same for all of its kind."""
        return InputError(self.name, reason, hint, rows=[at], **more)


@dataclass(frozen=True)
class AnswerRow:
    """One question, read: its options' log-probabilities, and what lies elsewhere."""

    options: tuple[str, ...]
    logs: tuple[float, ...]
    label: int | None
    unseen: float = 0.0
    stray: float = 0.0
    incomplete: bool = False
    merged: bool = False
    rescaled: bool = False


def row_of(line: Json, at: int, settings: Settings) -> AnswerRow:
    """Return the question on a line, whose number in the file is ``at``, or refuse it."""
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
    values = tuple(_values(listed))
    if any(math.isnan(value) or value > _MOST for value in values):
        raise settings.refusal(at, "has a number that is no probability", "fix or drop such lines")
    if values and max(values) == -math.inf:
        raise settings.refusal(at, "gives no option a chance", "fix or drop such lines")
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


def _own_options(listed: Listed, line: Json, at: int, settings: Settings) -> tuple[str, ...]:
    """Return the options of a line that only has numbers: their names, else letters."""
    if isinstance(listed.logprobs, tuple):
        return letters(len(listed.logprobs))
    named = tuple(listed.logprobs)
    asked: dict[str, Any] = {
        "hint": "say what all questions have, as in {option}",
        "option": ("options", "A,B,C,D"),
    }
    if listed.kind != "stated" and "choices" in line:
        raise settings.refusal(at, "lists no options", **asked)
    # Interfaces write the likeliest first: the order of a mapping says nothing about its options.
    found, lacking = own_order(named, settings.rule, settings.orders)
    if lacking is not None:
        told = f"names {', '.join(found)} but not {lacking}"
        raise settings.refusal(at, "leaves out a letter between its options", detail=told, **asked)
    answer = label_of(line, settings.label)
    if isinstance(answer, int) and found[0] != LETTERS[0] and found != named:
        raise settings.refusal(
            at,
            "has its answer by number, but its options in another order than a line above",
            "write the answer's text",
        )
    return found


def _label(
    line: Json, options: tuple[str, ...], names: Mapping[str, int], at: int, settings: Settings
) -> int | None:
    written = label_of(line, settings.label)
    if written is None and settings.labelled:
        raise settings.refusal(
            at,
            "does not say which option is right",
            "store it as 'answer', or name the field that holds it, as in {option}",
            option=("label", "target"),
        )
    if written is None:
        return None
    index = index_of(written, options, names, settings.rule)
    if index < 0:
        raise settings.refusal(
            at,
            "has an answer that is none of its options",
            "write its index from 0, its letter or its text, or name another field, as in {option}",
            detail=f"has the answer {written!r}, which is none of its {len(options)} options",
            option=("label", "target"),
        )
    return index


def _positional(
    listed: Listed, options: tuple[str, ...], label: int | None, at: int, settings: Settings
) -> AnswerRow:
    logs = tuple(_values(listed))
    if len(logs) != len(options):
        raise settings.refusal(
            at,
            "has more or fewer numbers than options",
            "give each option one",
            detail=f"has {len(logs)} numbers for {len(options)} options",
        )
    return _stated(listed, list(logs), options, label)


def _stated(
    listed: Listed,
    logs: list[float],
    options: tuple[str, ...],
    label: int | None,
    stray: float = 0.0,
) -> AnswerRow:
    """Return a row that says all there is; a stated zero is unlikely, not impossible."""
    if listed.kind == "likelihoods":
        return AnswerRow(options, tuple(logs), label)
    total = math.fsum((stray, *(math.exp(each) for each in logs)))
    floored = tuple(max(each, math.log(LEAST)) for each in logs)
    return AnswerRow(options, floored, label, stray=stray, rescaled=abs(total - 1.0) > _LOOSE)


def _by_name(
    listed: Listed,
    options: tuple[str, ...],
    names: Mapping[str, int],
    label: int | None,
    at: int,
    settings: Settings,
) -> AnswerRow:
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
            "does not list every option",
            "ask for more top log-probabilities, or write {option}",
            detail=f"does not list {', '.join(repr(options[index]) for index in lacking)}",
            option=("missing", "even"),
        )
    if settings.missing == "even":
        # A token that is not listed is no likelier than the least likely one that is.
        least = min(math.exp(value) for value in listed.logprobs.values())
        for index in lacking:
            shares[index] = min(unseen / len(lacking), least)
    return AnswerRow(
        options,
        tuple(_log(max(share, LEAST)) for share in shares),
        label,
        unseen,
        math.fsum(stray),
        incomplete=bool(lacking),
        merged=any(len(each) > 1 for each in masses.values()),
    )


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf
