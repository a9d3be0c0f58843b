"""Look into a file of answers: its layout, its contents, and the commands to run."""

from __future__ import annotations

import json
import os
import shlex
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from cordcal._errors import InputError
from cordcal.llm.answers import Answers, read_answers
from cordcal.llm.layouts import (
    LETTERS,
    METRICS,
    Json,
    find_field,
    find_id,
    find_label,
    find_options,
    first_reply,
    is_harness_sample,
    loose_form,
    response_body,
    sampled_tokens,
)
from cordcal.llm.sources import (
    ID_FIELDS,
    harness_samples,
    is_harness_summary,
    read_json_lines,
    read_log,
)

_HARNESS = "samples of lm-evaluation-harness"
_BATCH = "replies of a Batch API"
_CHAT, _COMPLETIONS = "chat replies", "completions"
# How many lines decide about the layout; the first may be invalid.
_MAX_LINES_TRIED = 16
_MAX_SUMMARY_BYTES = 2**26


def inspect_answers(path: str | os.PathLike[str]) -> dict[str, object] | None:
    """Return the contents of a file of answers as plain values; None if it is another file.

    Parameters
    ----------
    path : path
        A file of answers in one of the layouts of `read_answers`, or a summary
        (``results_*.json``) of lm-evaluation-harness; of other files only the beginning is read.

    Returns
    -------
    contents : dict or None
        ``file``, ``format``, then the facts about it; ``problems``, a list of sentences; and
        ``next_step`` and ``then``, the two commands to run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "answers.jsonl"
    >>> _ = path.write_text('{"id": "q1", "logprobs": {"A": -0.4, "B": -1.2}, "answer": "B"}')
    >>> contents = inspect_answers(path)
    >>> contents["format"], contents["questions"], contents["options"]
    ('answers: log-probabilities by option', 1, ['A', 'B'])
    >>> folder.cleanup()
    """
    if not Path(path).is_file():
        return None
    log = read_log(os.fspath(path))
    if log is not None:
        return _describe(path, "samples of Inspect", list(log[0].lines.values()))
    summary = _read_summary(path)
    if summary is not None:
        return _describe_summary(path, summary)
    layout = next(filter(None, map(_layout, _first_lines(path))), None)
    if layout is None:
        return None
    return _describe(path, layout, list(read_json_lines(path).lines.values()))


def _first_lines(path: str | os.PathLike[str]) -> Iterator[Json]:
    """Yield the JSON objects among the first lines of a file."""
    with Path(path).open("rb") as file:
        if not file.read(64).removeprefix(BOM_UTF8).lstrip().startswith(b"{"):
            return
        file.seek(0)
        for text in islice(file, _MAX_LINES_TRIED):
            try:
                line = json.loads(text.removeprefix(BOM_UTF8))
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                yield line


def _layout(line: Json) -> str | None:
    """Return the layout of a line; None for a line that may as well be a row of scores."""
    if is_harness_sample(line):
        return _HARNESS
    body = response_body(line)
    reply = first_reply(body)
    if reply is not None:
        if body is not line:
            return _BATCH
        logprobs = reply.get("logprobs")
        is_chat = isinstance(logprobs, Mapping) and "content" in logprobs
        return _CHAT if is_chat or "message" in reply else _COMPLETIONS
    if isinstance(line.get("logprobs"), Mapping) or "option_logprobs" in line:
        return "log-probabilities by option"
    if isinstance(line.get("probabilities"), Mapping):
        return "probabilities by option"
    return None


def _describe(
    path: str | os.PathLike[str], layout: str, lines: Sequence[Json]
) -> dict[str, object]:
    guess = None if any(map(find_options, lines)) else _guess_options(lines)
    try:
        answers: Answers | None = read_answers(path, options=guess, on_error="skip")
        problems: list[str] = []
    except InputError as error:
        answers, problems = None, [str(error)]
    if answers is not None:
        reasons = Counter(answers.skipped)
        if answers.summary.n_failed:
            reasons["has no reply: its request failed"] = answers.summary.n_failed
        if answers.summary.n_contradicting:
            reasons["has a metric that does not agree with its scores and right answer"] = (
                answers.summary.n_contradicting
            )
        problems = [
            f"{count:,} line{'' if count == 1 else 's, number of which'} {reason}"
            for reason, count in reasons.items()
        ]
    labelled = sum(find_label(line, None) is not None for line in lines)
    identifier = next(
        (name for name in ID_FIELDS if any(find_id(line, name) is not None for line in lines)), None
    )
    return {
        "file": os.fspath(path),
        "format": f"answers: {layout}",
        "questions": len(lines),
        "options": _describe_options(answers, guess),
        "right_answers": f"{labelled:,} of {len(lines):,}",
        "identifier": identifier,
        "metrics": None if answers is None else _describe_metrics(answers),
        "problems": problems,
        **({} if answers is None else _commands(path, guess, identifier, labelled > 0)),
    }


def _guess_options(lines: Sequence[Json]) -> tuple[str, ...] | None:
    """Return the options that replies seem to have, from their most frequent first tokens."""
    forms = Counter(
        form for line in lines for form in islice(map(loose_form, sampled_tokens(line)), 1) if form
    )
    total = forms.total()
    letters = {form.upper(): count for form, count in forms.items() if form.upper() in LETTERS}
    if total and sum(letters.values()) > 0.9 * total:
        last = max(LETTERS.index(letter) for letter in letters)
        return tuple(LETTERS[: max(last + 1, 2)])
    frequent = [form for form, count in forms.items() if count >= 0.05 * total]
    return tuple(sorted(frequent)) if len(frequent) > 1 else None


def _describe_options(answers: Answers | None, guess: tuple[str, ...] | None) -> object:
    if answers is None:
        return None
    if guess is not None:
        return f"not listed; the replies suggest {', '.join(guess)}"
    counts = sorted({len(options) for options in answers.options})
    if len(set(answers.options)) == 1:
        return list(answers.options[0])
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} per question"


def _describe_metrics(answers: Answers) -> list[str] | None:
    metrics = answers.summary.metrics
    names = {metric: normalize for normalize, metric in METRICS.items()}
    return [
        f"{name} {100 * value:.2f} % (--normalize {names[name]})" for name, value in metrics.items()
    ] or None


def _commands(
    path: str | os.PathLike[str],
    options: tuple[str, ...] | None,
    identifier: str | None,
    labelled: bool,
) -> dict[str, object]:
    """Return the commands that make a table of scores and compare calibrators on it."""
    words = ["cordcal", "answers", os.fspath(path)]
    if options is not None:
        are_letters = all(len(option) == 1 for option in options)
        words += ["--options", ("" if are_letters else ",").join(options)]
    if not labelled:
        words += ["--labels", "LABELS.jsonl", "--id-column", identifier or "ID"]
    words += ["--output", "scores.parquet"]
    return {"next_step": shlex.join(words), "then": "cordcal compare scores.parquet"}


def _read_summary(path: str | os.PathLike[str]) -> Json | None:
    """Return a summary of lm-evaluation-harness, or None for another file."""
    file = Path(path)
    if file.suffix.lower() != ".json" or file.stat().st_size > _MAX_SUMMARY_BYTES:
        return None
    try:
        document = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
    return document if is_harness_summary(document) else None


def _describe_summary(path: str | os.PathLike[str], summary: Json) -> dict[str, object]:
    results = find_field(summary, "results")
    samples = [str(sample) for sample in harness_samples(path)]
    tasks = list(results) if isinstance(results, Mapping) else []
    step = f"cordcal info {shlex.quote(samples[0])}" if samples else "lm_eval … --log_samples"
    return {
        "file": os.fspath(path),
        "format": "summary of lm-evaluation-harness: metrics of tasks, but no questions",
        "tasks": tasks,
        "samples": samples or None,
        "problems": []
        if samples
        else ["its samples, which have the questions, are not next to it; see --log_samples"],
        "next_step": step,
    }
