"""One line of a language model's answers: options, their log-probabilities, the right one.

What is understood: replies of chat and completion interfaces (also as lines of a batch), the
samples that the common evaluation harness writes, and plain mappings or lists of numbers.
"""

from __future__ import annotations

import math
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Json = Mapping[str, Any]
Rule = Callable[[str], str]
"""Brings the variants of a token to one form."""

Orders = dict[frozenset[str], tuple[str, ...]]
"""The order in which options that some line names without a list were first seen."""

LETTERS = string.ascii_uppercase
_OPTION_FIELDS = ("options", "choices")
_LABEL_FIELDS = ("label", "answer", "gold", "answer_idx", "gold_index", "target")
_LOG_FIELDS = ("option_logprobs", "logprobs")
_STATED_FIELDS = ("probabilities", "probs", "stated_probabilities")
_HARNESS_FIELDS = ("filtered_resps", "resps")
# Interfaces write this for a token that is too unlikely to have a number.
_UNLISTED = -9999.0
# A larger integer is no float.
_LARGEST = int(sys.float_info.max)


def letters(count: int) -> tuple[str, ...]:
    """Return names for options that have none: letters, then numbers."""
    return tuple(LETTERS[index] if index < len(LETTERS) else str(index) for index in range(count))


def plain_token(token: str) -> str:
    """Bring ``" A"``, ``"A"``, ``"a"``, ``"(A)"`` and ``"A."`` to one form.

    Examples
    --------
    >>> [plain_token(token) for token in (" A", "a", "(A)", "A.", "Ġa", "▁Yes")]
    ['a', 'a', 'a', 'a', 'a', 'yes']
    """
    # Tokenisers write a leading space as Ġ or ▁.
    return token.replace("Ġ", " ").replace("▁", " ").strip(" \t\r\n()[]{}.:,*\"'`").casefold()


def spaceless_token(token: str) -> str:
    """Bring ``" A"`` and ``"A"`` to one form, and nothing else.

    Examples
    --------
    >>> [spaceless_token(token) for token in (" A", "a", "(A)", "ĠA")]
    ['A', 'a', '(A)', 'A']
    """
    return token.replace("Ġ", " ").replace("▁", " ").strip()


RULES: dict[str, Rule] = {"loose": plain_token, "spaces": spaceless_token, "exact": str}
"""Rules for token variants by name."""


@dataclass(frozen=True)
class Listed:
    """What a line says about its options.

    Attributes
    ----------
    logprobs : mapping of str to float, or tuple of float
        Log-probabilities by name, or one an option in their order.
    kind : {"tokens", "stated", "likelihoods"}
        The likeliest tokens, of which some may be no option and some options missing; a
        stated probability vector; or one log-likelihood an option, which sum to nothing.
    """

    logprobs: Mapping[str, float] | tuple[float, ...]
    kind: Literal["tokens", "stated", "likelihoods"]


def options_of(line: Json) -> tuple[str, ...] | None:
    """Return the options that a line lists, or None."""
    for place in (line, line.get("doc")):
        if isinstance(place, Mapping):
            for field in _OPTION_FIELDS:
                found = _texts(place.get(field))
                if found:
                    return found
    return None


def _texts(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, Mapping):  # a harness's {"text": […], "label": […]}
        value = value.get("text")
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return None
    return tuple(value)


def label_of(line: Json, field: str | None) -> Any:
    """Return the right answer as written, or None."""
    fields = _LABEL_FIELDS if field is None else (field,)
    for place in (line, line.get("doc")):
        if isinstance(place, Mapping):
            for name in fields:
                if place.get(name) is not None:
                    return place[name]
    return None


def aliases(options: Sequence[str], rule: Rule) -> dict[str, int]:
    """Return what each option may be called: its text, and its letter where that is free."""
    names: dict[str, int] = {}
    for index, letter in enumerate(LETTERS[: len(options)]):
        names[rule(letter)] = index
    for index, option in enumerate(options):
        names[rule(option)] = index  # a text that is itself a letter wins
    return names


def own_order(
    names: Sequence[str], rule: Rule, orders: Orders
) -> tuple[tuple[str, ...], str | None]:
    """Return the options that a mapping names, in an order that its own does not decide.

    Letters stand in the alphabet's order, other options in that of the first line that has them.

    Returns
    -------
    options : tuple of str
        Each once, whatever its variants.
    lacking : str or None
        A letter that is left out before the last one, so that these are not all options.

    Examples
    --------
    >>> own_order([" B", "A", "b"], plain_token, {})
    (('A', 'B'), None)
    >>> own_order(["C", "A"], plain_token, {})
    (('A', 'C'), 'B')
    >>> own_order(["Y", "N"], plain_token, {})
    (('Y', 'N'), None)
    """
    by_form: dict[str, str] = {}
    for name in names:
        by_form.setdefault(rule(name), name)
    # Y and N are words; of options called by letters the first ones are not all missing.
    first = LETTERS[: 2 * len(by_form)]
    places = {rule(letter): index for index, letter in enumerate(first)}
    if not by_form.keys() <= places.keys():
        return orders.setdefault(frozenset(by_form), tuple(by_form.values())), None
    found = tuple(first[index] for index in sorted(places[form] for form in by_form))
    return found, next((letter for letter in first[: len(found)] if letter not in found), None)


def index_of(answer: Any, options: Sequence[str], names: Mapping[str, int], rule: Rule) -> int:
    """Return the option that an answer names: by index, letter or text; −1 for none of them."""
    if isinstance(answer, bool) or not isinstance(answer, int | str):
        return -1
    if isinstance(answer, int):
        return answer if 0 <= answer < len(options) else -1
    found = names.get(rule(answer), -1)
    digits = answer.strip()
    # Python reads no number of thousands of digits.
    if found < 0 and digits.isdecimal() and len(digits) < 10 and int(digits) < len(options):
        return int(digits)
    return found


def listed_of(
    line: Json, names: Mapping[str, int] | None, rule: Rule, field: str | None = None
) -> Listed | None:
    """Return the numbers of a line, in the field that is named or wherever it keeps them."""
    if field is not None:
        own = _numbers(line.get(field))
        return None if own is None else Listed(_logs(own), "stated")
    body = line.get("response", line)
    body = body.get("body", body) if isinstance(body, Mapping) else line
    body = body if isinstance(body, Mapping) else line
    for place in (line, body):
        for field in _STATED_FIELDS:
            stated = _numbers(place.get(field))
            if stated is not None:
                return Listed(_logs(stated), "stated")
    replies = body.get("choices")
    if isinstance(replies, list) and replies and isinstance(replies[0], Mapping):
        tokens = _answer_token(replies[0].get("logprobs"), names, rule)
        return None if tokens is None else Listed(tokens, "tokens")
    for field in _LOG_FIELDS:
        given = _numbers(line.get(field))
        if given is not None:
            return Listed(given, "likelihoods" if isinstance(given, tuple) else "tokens")
    for field in _HARNESS_FIELDS:
        likelihoods = _likelihoods(line.get(field))
        if likelihoods is not None:
            return Listed(likelihoods, "likelihoods")
    return None


def _numbers(value: Any) -> Mapping[str, float] | tuple[float, ...] | None:
    if isinstance(value, Mapping) and value and all(map(_is_number, value.values())):
        return {str(name): float(number) for name, number in value.items()}
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return tuple(float(number) for number in value)
    return None


def _is_number(value: Any) -> bool:
    if isinstance(value, int) and abs(value) > _LARGEST:
        return False
    return isinstance(value, int | float) and not isinstance(value, bool)


def _logs(stated: Mapping[str, float] | tuple[float, ...]) -> Any:
    def log(value: float) -> float:
        return math.log(value) if value > 0.0 else (-math.inf if value == 0.0 else math.nan)

    if isinstance(stated, tuple):
        return tuple(map(log, stated))
    return {name: log(value) for name, value in stated.items()}


def _answer_token(
    logprobs: Any, names: Mapping[str, int] | None, rule: Rule
) -> dict[str, float] | None:
    """Return the listed tokens where the answer stands: the first token that is an option."""
    positions = list(_positions(logprobs))
    if not positions:
        return None
    for sampled, listed in positions:
        if names is not None and rule(sampled) in names:
            return listed
    return positions[0][1]


def _positions(logprobs: Any) -> Iterator[tuple[str, dict[str, float]]]:
    if not isinstance(logprobs, Mapping):
        return
    for token in _list(logprobs.get("content")):  # chat
        sampled = _token(token)
        if sampled is not None:
            listed = dict(filter(None, map(_token, _list(token.get("top_logprobs")))))
            listed.setdefault(*sampled)
            yield sampled[0], _without_sentinels(listed)
    tokens = _list(logprobs.get("tokens"))
    for index, listed in enumerate(_list(logprobs.get("top_logprobs"))):  # completions
        if isinstance(listed, Mapping):
            found = {str(name): float(value) for name, value in listed.items() if _is_number(value)}
            yield str(tokens[index]) if index < len(tokens) else "", _without_sentinels(found)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _token(entry: Any) -> tuple[str, float] | None:
    """Return a token and its log-probability, or None for what is neither."""
    if not isinstance(entry, Mapping) or not _is_number(entry.get("logprob")):
        return None
    return str(entry.get("token")), float(entry["logprob"])


def _without_sentinels(listed: dict[str, float]) -> dict[str, float]:
    return {token: value for token, value in listed.items() if value > _UNLISTED}


def _likelihoods(value: Any) -> tuple[float, ...] | None:
    """Return one log-likelihood an option: numbers, or [number, is greedy], however nested."""
    if not isinstance(value, list) or not value:
        return None
    found = []
    for each in value:
        while isinstance(each, list) and each:
            each = each[0]
        if not _is_number(each):
            return None
        found.append(float(each))
    return tuple(found)
