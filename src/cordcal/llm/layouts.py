"""Layouts of answers: where a line has its options, scores, right answer and identifier.

Supported are replies of chat, completion and classification APIs, also inside the lines of a Batch
API, samples of lm-evaluation-harness and Inspect, and plain mappings or lists of numbers.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Json = Mapping[str, object]
"""A JSON object: one line of a file."""
TokenForm = Callable[[str], str]
"""Maps the spellings of a token (``" A"``, ``"a"``) to one form."""
Numbers = Mapping[str, float] | tuple[float, ...]
"""One number per name, or one per option in the order of the options."""

LETTERS = string.ascii_uppercase
METRICS = {"none": "acc", "characters": "acc_norm", "bytes": "acc_bytes"}
"""The metric of lm-evaluation-harness for each way to normalize log-likelihoods."""

_OPTION_FIELDS = ("options", "choices")
_LABEL_FIELDS = ("label", "answer", "gold", "answer_idx", "gold_index", "target")
_PROBABILITY_FIELDS = ("probabilities", "probs", "stated_probabilities")
_HARNESS_FIELDS = ("filtered_resps", "resps")
_TOKEN_COUNT_FIELDS = ("num_tokens", "n_tokens")
# APIs write this for a token that is too unlikely to have a number.
_UNLISTED = -9999.0
_MAX_INT = int(sys.float_info.max)


def letters_for(options: Sequence[str]) -> tuple[str, ...]:
    """Return the letters that may stand for options; none if they are letters themselves.

    Examples
    --------
    >>> letters_for(["a cat", "a dog"]), letters_for(["Y", "N"])
    (('A', 'B'), ())
    """
    are_letters = all(len(option) == 1 and option.isalpha() for option in options)
    if are_letters and len(set(options)) == len(options):
        return ()
    return option_letters(len(options))


def option_letters(count: int) -> tuple[str, ...]:
    """Return names for options without texts: letters, then numbers."""
    return tuple(LETTERS[index] if index < len(LETTERS) else str(index) for index in range(count))


def loose_form(token: str) -> str:
    """Map ``" A"``, ``"A"``, ``"a"``, ``"(A)"`` and ``"A."`` to one form.

    Examples
    --------
    >>> [loose_form(token) for token in (" A", "a", "(A)", "A.", "Ġa", "▁Yes")]
    ['a', 'a', 'a', 'a', 'a', 'yes']
    """
    return spaceless_form(token).strip(" \t\r\n()[]{}.:,*\"'`").casefold()


def spaceless_form(token: str) -> str:
    """Map ``" A"`` and ``"A"`` to one form, and keep everything else apart.

    Examples
    --------
    >>> [spaceless_form(token) for token in (" A", "a", "(A)", "ĠA")]
    ['A', 'a', '(A)', 'A']
    """
    # Tokenizers write a leading space as Ġ or ▁.
    return token.replace("Ġ", " ").replace("▁", " ").strip()


TOKEN_FORMS: dict[str, TokenForm] = {"loose": loose_form, "spaces": spaceless_form, "exact": str}
"""The named ways to merge spellings of a token."""


@dataclass(frozen=True)
class ListedScores:
    """The numbers of a line, before they are assigned to its options.

    Attributes
    ----------
    values : mapping of str to float, or tuple of float
        Log-probabilities, or probabilities if they are ``"stated"``.
    kind : {"tokens", "stated", "likelihoods"}
        The likeliest tokens, which may lack options and include other tokens; a stated
        probability vector; or one log-likelihood per option, which need not sum to one.
    token_counts : tuple of int, optional
        The number of tokens of each option, for likelihoods in the order of the options.
    emitted : str or None
        The token that the model gave where these are the likeliest ones.
    """

    values: Numbers
    kind: Literal["tokens", "stated", "likelihoods"]
    token_counts: tuple[int, ...] | None = None
    emitted: str | None = None


# Options -----------------------------------------------------------------------------------------


def find_options(line: Json) -> tuple[str, ...] | None:
    """Return the options that a line lists, or None."""
    scored = harness_options(line)
    if scored is not None:
        return scored
    for place in _places(line):
        for field in _OPTION_FIELDS:
            options = _as_texts(place.get(field))
            if options is not None:
                return options
    return None


def is_harness_sample(line: Json) -> bool:
    """Return whether a line is a sample of lm-evaluation-harness."""
    return any(field in line for field in _HARNESS_FIELDS)


def harness_options(line: Json) -> tuple[str, ...] | None:
    """Return the texts whose log-likelihoods the harness computed; None if they do not differ."""
    requests = _harness_requests(line)
    if requests is None:
        return None
    texts = [continuation for _, continuation in requests]
    if len(set(texts)) == 1:
        # The options are in the prompts, so only letters can name them.
        return option_letters(len(texts)) if len(texts) > 1 else None
    delimiter = texts[0][:1]
    if delimiter.isspace() and all(text.startswith(delimiter) for text in texts):
        texts = [text[1:] for text in texts]
    return tuple(texts)


def options_in_prompt(line: Json) -> bool:
    """Return whether a sample scores the same continuation after different prompts."""
    requests = _harness_requests(line)
    return requests is not None and len({continuation for _, continuation in requests}) == 1


def _harness_requests(line: Json) -> list[tuple[str, str]] | None:
    """Return the prompt and continuation of each option, or None if the line has none."""
    arguments = line.get("arguments")
    if not is_harness_sample(line) or not isinstance(arguments, list | dict) or not arguments:
        return None
    requests = []
    for request in arguments.values() if isinstance(arguments, dict) else arguments:
        parts = list(request.values()) if isinstance(request, dict) else request
        if not isinstance(parts, list) or len(parts) < 2:
            return None
        prompt, continuation = parts[:2]
        if not isinstance(prompt, str) or not isinstance(continuation, str):
            return None  # a task that generates text
        requests.append((prompt, continuation))
    half = len(requests) // 2
    first, second = requests[:half], requests[half:]
    # The metric acc_mutual_info scores every option again, without the question.
    if [text for _, text in first] == [text for _, text in second] and all(
        not prompt for prompt, _ in second
    ):
        return first
    return requests


def _places(line: Json) -> Iterator[Json]:
    """Yield the objects of a line that may have its fields: itself, its document or metadata."""
    yield line
    for name in ("doc", "metadata"):  # of the harness, and of Inspect
        document = line.get(name)
        if isinstance(document, dict):
            yield document


def _as_texts(value: object) -> tuple[str, ...] | None:
    if isinstance(value, dict):  # {"text": […], "label": […]}
        value = value.get("text")
    if not isinstance(value, list) or not value:
        return None
    texts = [text for text in value if isinstance(text, str)]
    return tuple(texts) if len(texts) == len(value) else None


def shared_order(names: Sequence[str], form: TokenForm) -> tuple[tuple[str, ...], str | None]:
    """Return the options that a mapping names, in an order that is the same on every line.

    APIs write the likeliest token first, so the order of a mapping cannot be that of its options:
    they are sorted.

    Returns
    -------
    options : tuple of str
        Each once, in one of its spellings.
    absent : str or None
        A letter that is missing before the last one, so that these are not all options.

    Examples
    --------
    >>> shared_order([" B", "A", "b"], loose_form)
    (('A', 'B'), None)
    >>> shared_order(["C", "A"], loose_form)
    (('A', 'C'), 'B')
    >>> shared_order(["Y", "N"], loose_form)
    (('N', 'Y'), None)
    """
    by_form: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (name != name.strip(), name)):
        by_form.setdefault(form(name), name)
    # Y and N are words: options that are called by letters include some of the first ones.
    candidates = LETTERS[: 2 * len(by_form)]
    positions = {form(letter): index for index, letter in enumerate(candidates)}
    if not by_form.keys() <= positions.keys():
        return tuple(by_form[key] for key in sorted(by_form)), None
    options = tuple(candidates[index] for index in sorted(positions[name] for name in by_form))
    absent = (letter for letter in candidates[: len(options)] if letter not in options)
    return options, next(absent, None)


# Right answers and identifiers -------------------------------------------------------------------


def find_label(line: Json, field: str | None) -> object:
    """Return the right answer as written, or None."""
    if field is not None:
        return find_field(line, field)
    if is_harness_sample(line) and line.get("target") is not None:
        return line["target"]
    labels = (place[name] for place in _places(line) for name in _LABEL_FIELDS if _has(place, name))
    label = next(labels, None)
    return label[0] if isinstance(label, list) and len(label) == 1 else label


def find_field(line: Json, field: str) -> object:
    """Return a field of a line or of the harness's document in it, or None."""
    return next((place[field] for place in _places(line) if _has(place, field)), None)


def _has(place: Json, field: str) -> bool:
    return place.get(field) is not None


def find_id(line: Json, field: str) -> str | None:
    """Return an identifier as text, so that 7 and "7" are the same; None if there is none."""
    value = find_field(line, field)
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else None


def option_index(
    answer: object, options: Sequence[str], form: TokenForm, *, number_first: bool
) -> int | None:
    """Return the option that an answer names: by text, letter or index; None if it names none.

    ``number_first`` reads digits as an index even if an option has the same text.
    """
    if isinstance(answer, bool) or not isinstance(answer, int | str):
        return None
    if isinstance(answer, int):
        return answer if 0 <= answer < len(options) else None
    digits = answer.strip()
    # Python refuses to parse numbers with thousands of digits.
    number = int(digits) if digits.isdecimal() and len(digits) < 10 else None
    if number is not None and number >= len(options):
        number = None
    if number_first and number is not None:
        return number
    if answer in options:
        return options.index(answer)
    for names in (options, letters_for(options)):
        forms = [form(name) for name in names]
        if form(answer) in forms:
            return forms.index(form(answer))
    return number


# Scores ------------------------------------------------------------------------------------------


def find_scores(line: Json, is_option: Callable[[str], bool]) -> ListedScores | None:
    """Return the numbers of a line, in a field that APIs and the harness use."""
    body = response_body(line)
    for place in (line, body):
        for field in _PROBABILITY_FIELDS:
            stated = _as_numbers(place.get(field))
            if stated is not None:
                return ListedScores(stated, "stated")
    classified = _as_list(body.get("data"))  # of vLLM's /classify
    if len(classified) == 1 and isinstance(classified[0], dict):
        stated = _as_numbers(classified[0].get("probs"))
        if stated is not None:
            return ListedScores(stated, "stated")
    reply = first_reply(body)
    if reply is not None:
        return _tokens_of_answer(reply.get("logprobs"), is_option)
    return _likelihoods_by_option(line) or _harness_likelihoods(line)


def first_reply(body: Json) -> Json | None:
    """Return the first reply of a chat or completion API; None if there is none."""
    replies = [reply for reply in _as_list(body.get("choices")) if isinstance(reply, dict)]
    if replies:
        return replies[0]
    # The Responses API has its messages in parts.
    for message in _as_list(body.get("output")):
        parts = _as_list(message.get("content")) if isinstance(message, dict) else []
        for part in parts:
            if isinstance(part, dict) and "logprobs" in part:
                return {"message": message, "logprobs": {"content": part["logprobs"]}}
    return None


def response_body(line: Json) -> Json:
    """Return the reply inside a line of a Batch API or a sample of Inspect, or the line itself."""
    response = line.get("response")
    body = response.get("body", response) if isinstance(response, dict) else line.get("output")
    return body if isinstance(body, dict) else line


def request_failed(line: Json) -> bool:
    """Return whether a line of a Batch API reports an error instead of a reply."""
    response = line.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    return bool(line.get("error")) or (isinstance(status, int) and status >= 400)


def _likelihoods_by_option(line: Json) -> ListedScores | None:
    """Return log-probabilities that a plain line has by option, or token by token per option."""
    for field in ("option_logprobs", "logprobs"):
        value = line.get(field)
        counts = _as_token_counts(line)
        if isinstance(value, list) and value and isinstance(value[0], list):
            tokens = [_as_numbers(entry) for entry in value]
            per_option = [entry for entry in tokens if isinstance(entry, tuple)]
            if len(per_option) < len(value):
                return None
            sums = tuple(sum(entry) for entry in per_option)
            return ListedScores(sums, "likelihoods", tuple(map(len, per_option)))
        numbers = _as_numbers(value)
        if isinstance(numbers, tuple) or (numbers is not None and field == "option_logprobs"):
            return ListedScores(numbers, "likelihoods", counts)
        if numbers is not None:
            return ListedScores(_without_unlisted(numbers), "tokens")
    return None


def _harness_likelihoods(line: Json) -> ListedScores | None:
    """Return one log-likelihood per option of a harness sample."""
    requests = _harness_requests(line)
    for field in _HARNESS_FIELDS:
        value = line.get(field)
        if not isinstance(value, list) or not value:
            continue
        numbers = [as_number(_innermost_first(entry)) for entry in value]
        likelihoods = tuple(number for number in numbers if number is not None)
        if len(likelihoods) < len(numbers):
            return None
        if requests is not None and len(likelihoods) == 2 * len(requests):
            likelihoods = likelihoods[: len(requests)]
        return ListedScores(likelihoods, "likelihoods", _as_token_counts(line))
    return None


def has_generated_text(line: Json) -> bool:
    """Return whether a harness sample has texts where others have log-likelihoods."""
    values = [value for field in _HARNESS_FIELDS for value in _as_list(line.get(field))]
    return bool(values) and all(as_number(_innermost_first(value)) is None for value in values)


def _innermost_first(value: object) -> object:
    """Return the number of ``[[number, is_greedy]]``, however nested."""
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _as_token_counts(line: Json) -> tuple[int, ...] | None:
    value = next((line[field] for field in _TOKEN_COUNT_FIELDS if field in line), None)
    if not isinstance(value, list):
        return None
    counts = [count for count in value if isinstance(count, int) and not isinstance(count, bool)]
    return tuple(counts) if len(counts) == len(value) else None


def _as_numbers(value: object) -> Numbers | None:
    """Return a mapping or list of numbers, also if they are written as text."""
    entries = list(value.values() if isinstance(value, dict) else _as_list(value))
    numbers = [number for number in map(as_number, entries) if number is not None]
    if not entries or len(numbers) < len(entries):
        return None
    if isinstance(value, dict):
        return dict(zip(map(str, value), numbers, strict=True))
    return tuple(numbers)


def as_number(value: object) -> float | None:
    """Return a JSON number, or a text that is one, as a float.

    Examples
    --------
    >>> as_number(-1), as_number("-1.5"), as_number("-inf"), as_number("False"), as_number(True)
    (-1.0, -1.5, -inf, None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return float(value) if abs(value) <= _MAX_INT else None
    if isinstance(value, float):
        return value
    if not isinstance(value, str) or not value.isascii() or "_" in value:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _tokens_of_answer(logprobs: object, is_option: Callable[[str], bool]) -> ListedScores | None:
    """Return the likeliest tokens at the answer: the first position that samples an option."""
    positions = list(_positions(logprobs))
    if not positions:
        return None
    answers = (position for position in positions if is_option(position[0]))
    sampled, listed = next(answers, positions[0])
    return ListedScores(listed, "tokens", emitted=sampled or None)


def sampled_tokens(line: Json) -> Iterator[str]:
    """Yield the tokens that a chat or completion API sampled, in their order."""
    reply = first_reply(response_body(line))
    for sampled, _ in _positions(None if reply is None else reply.get("logprobs")):
        yield sampled


def _positions(logprobs: object) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the sampled token and the likeliest tokens of each position of a reply."""
    if not isinstance(logprobs, dict):
        return
    for entry in _as_list(logprobs.get("content")):  # chat
        sampled = _as_token(entry)
        if sampled is not None and isinstance(entry, dict):
            listed = dict(filter(None, map(_as_token, _as_list(entry.get("top_logprobs")))))
            listed.setdefault(*sampled)
            yield sampled[0], _without_unlisted(listed)
    tokens = _as_list(logprobs.get("tokens"))
    for index, alternatives in enumerate(_as_list(logprobs.get("top_logprobs"))):  # completions
        if isinstance(alternatives, dict):
            numbers = {str(name): as_number(value) for name, value in alternatives.items()}
            listed = {name: value for name, value in numbers.items() if value is not None}
            sampled_text = str(tokens[index]) if index < len(tokens) else ""
            yield sampled_text, _without_unlisted(listed)


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _as_token(entry: object) -> tuple[str, float] | None:
    """Return a token and its log-probability, or None if it is neither."""
    logprob = as_number(entry.get("logprob")) if isinstance(entry, dict) else None
    if logprob is None or not isinstance(entry, dict):
        return None
    return str(entry.get("token")), logprob


def _without_unlisted(listed: Mapping[str, float]) -> dict[str, float]:
    # Written as a negation, because NaN must stay and be refused.
    return {token: value for token, value in listed.items() if not value <= _UNLISTED}
