"""Damaged answers of language models: a sentence or a result, and no answer changed."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import cordcal
from attacks.promises import Rng, command, hold, untouched
from cordcal.files.writers import write_table
from cordcal.llm import Answers, read_answers, write_answers

OPTIONS = ("A", "B", "C", "D")
TEXTS = ("yes", "no", "Reykjavík", "はい")
LINES = 30
# What a field may hold by mistake.
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2.5, 10**400, 1e308, -1e308, -9999.0),
    *(float("nan"), float("inf"), float("-inf")),
    *("", "A", "yes", "-1.5", "nan", "-inf", "1_0", "9" * 5000, "\x00\x1b[2J", "[0, 1]", "１"),
    *([], [[]], {}, {"A": 1}, ["A", "B"], ["A", "A"], [1, 2], [["-1.0", "False"]]),
)


def trial(rng: Rng, folder: Path) -> int:
    """Damage some lines of a file, read it, and write the answers that could be read."""
    layout = (chat, batch, completion, harness, plain)[int(rng.integers(5))]
    lines = [layout(rng, row) for row in range(LINES)]
    answers = folder / "answers.jsonl"
    write(answers, lines)
    hold(len(read_answers(answers)) == LINES, "sound answers are refused")
    for row in rng.integers(LINES, size=int(rng.integers(1, 5))).tolist():
        lines[row] = damaged(lines[row], rng)
    write(answers, lines)
    output = folder / "out.jsonl"
    with untouched(folder, output.name, "repaired.parquet"):
        command("info", answers)
        try:
            kept = read_answers(
                answers,
                on_error="skip" if rng.random() < 0.7 else "stop",
            )
        except cordcal.InputError as error:
            hold("\n" not in str(error), f"not one sentence: {error}")
            return LINES
        table = folder / "repaired.parquet"
        write_repaired(table, kept)
        try:
            write_answers(output, answers, calibrated=table)
        except cordcal.InputError as error:
            hold("\n" not in str(error), f"not one sentence: {error}")
            return LINES
        check_kept(output, kept)
    return LINES


def write_repaired(path: Path, answers: Answers) -> None:
    """Write a table as ``apply`` does."""
    probabilities = softmax(answers.scores, axis=1)
    columns: dict[str, Any] = {
        "id": answers.ids,
        "prediction": probabilities.argmax(axis=1),
        "confidence": probabilities.max(axis=1),
    }
    for name, column in zip(answers.class_names, probabilities.T, strict=True):
        columns[f"p_{name}"] = np.ascontiguousarray(column)
    write_table(path, columns)


def check_kept(output: Path, answers: Answers) -> None:
    """Ask that the largest of the written probabilities is the answer."""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    written = [line for line in lines if "calibrated" in line]
    hold(len(written) == len(answers), "lines without probabilities")
    for scores, line in zip(answers.scores, written, strict=True):
        values = list(line["calibrated"].values())
        hold(math.isclose(math.fsum(values), 1.0, abs_tol=1e-6), "probabilities sum to one")
        hold(values.index(max(values)) == int(scores.argmax()), "an answer was changed")


def write(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def top_tokens(rng: Rng) -> list[dict[str, object]]:
    logprobs = (-3.0 * rng.random(4)).tolist()
    tokens = sorted(zip(OPTIONS, logprobs, strict=True), key=lambda token: -token[1])
    listed: list[dict[str, object]] = [
        {"token": name, "logprob": value - 2.0} for name, value in tokens
    ]
    return listed[: int(rng.integers(2, 5))]


def chat(rng: Rng, row: int) -> dict[str, Any]:
    listed = top_tokens(rng)
    content = [{**listed[0], "top_logprobs": listed}]
    return {
        "id": f"q{row}",
        "choices": [{"message": {}, "logprobs": {"content": content}}],
        "options": list(OPTIONS),
        "answer": OPTIONS[row % 4],
    }


def batch(rng: Rng, row: int) -> dict[str, Any]:
    reply = chat(rng, row)
    body = {"choices": reply.pop("choices")}
    return {**reply, "custom_id": f"q{row}", "response": {"status_code": 200, "body": body}}


def completion(rng: Rng, row: int) -> dict[str, Any]:
    reply = chat(rng, row)
    listed = {str(token["token"]): token["logprob"] for token in top_tokens(rng)}
    logprobs = {"tokens": list(listed)[:1], "top_logprobs": [listed]}
    return {**reply, "choices": [{"text": "", "logprobs": logprobs}]}


def harness(rng: Rng, row: int) -> dict[str, Any]:
    pairs = [[str(-9.0 * value), "False"] for value in rng.random(4).tolist()]
    return {
        "doc_id": row,
        "doc": {"choices": list(TEXTS)},
        "target": str(row % 4),
        "arguments": {
            f"gen_args_{index}": {"arg_0": "Question", "arg_1": f" {text}"}
            for index, text in enumerate(TEXTS)
        },
        "resps": [[pair] for pair in pairs],
        "filtered_resps": pairs,
        "acc": 1.0,
    }


def plain(rng: Rng, row: int) -> dict[str, Any]:
    logprobs = dict(zip(TEXTS, (-60.0 * rng.random(4)).tolist(), strict=True))
    return {
        "id": row,
        "option_logprobs": logprobs,
        "options": list(TEXTS),
        "answer": TEXTS[row % 4],
    }


def damaged(line: dict[str, Any], rng: Rng) -> Any:
    """Return a line with some values deleted, doubled or replaced."""
    line = copy.deepcopy(line)
    for _ in range(int(rng.integers(1, 4))):
        places = list(containers(line))
        container, key = places[int(rng.integers(len(places)))]
        match int(rng.integers(4)):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case _:
                container[key] = copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])
        if not line:
            break
    return line


def containers(value: Any) -> Any:
    """Yield every list and mapping within a value, with each of its keys."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from containers(value[key])
