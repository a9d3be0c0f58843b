"""`inspect_answers`: files of answers are recognised, and the commands for them run."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest

import cordcal
from cordcal.cli import main
from cordcal.llm import inspect_answers

HARNESS = Path(__file__).parents[1] / "data" / "harness"


def reply(*tokens: str, answer: str | None = None, **fields: object) -> dict:
    """Return a chat reply that samples the first of these tokens."""
    listed = [
        {"token": token, "logprob": math.log(0.5 / 2**rank)} for rank, token in enumerate(tokens)
    ]
    content = [{**listed[0], "top_logprobs": listed}]
    line = {"choices": [{"message": {"content": tokens[0]}, "logprobs": {"content": content}}]}
    return {**line, **fields, **({} if answer is None else {"answer": answer})}


def batch(key: str, *tokens: str) -> dict:
    return {"custom_id": key, "response": {"status_code": 200, "body": reply(*tokens)}}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


FILES = {
    "chat": [reply("A", "B", "C", "D", answer="A"), reply(" D", "B", answer="B")],
    "batch": [batch("q1", "A", "B"), batch("q2", "C", "A")],
    "words": [reply("yes", "no", answer="no"), reply("No", "Yes", answer="no")],
    "plain": [{"logprobs": {"A": -0.1, "B": -2.5}, "answer": "B"}],
    "stated": [{"probabilities": {"A": 0.1, "B": 0.9}, "id": 7}],
}


@pytest.mark.parametrize(
    ("name", "layout", "arguments"),
    [
        ("chat", "chat replies", "--options ABCD "),
        ("batch", "replies of a Batch API", "--options ABC --labels L --id-column custom_id "),
        ("words", "chat replies", "--options no,yes "),
        ("plain", "log-probabilities by option", ""),
        ("stated", "probabilities by option", "--labels L --id-column id "),
    ],
)
def test_the_command_names_what_the_file_needs(
    tmp_path: Path, name: str, layout: str, arguments: str
) -> None:
    path = written(tmp_path, *FILES[name])
    contents = inspect_answers(path)
    assert contents["format"] == f"answers: {layout}"
    assert contents["questions"] == len(FILES[name])
    assert contents["problems"] == []
    expected = f"cordcal answers {path} {arguments}--output scores.parquet"
    assert contents["next_step"].replace("LABELS.jsonl", "L") == expected
    assert contents["then"] == "cordcal compare scores.parquet"


def test_the_command_for_the_harness_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    (summary,) = HARNESS.glob("results_*.json")
    contents = inspect_answers(summary)
    assert contents["tasks"] == ["cordcal_choices", "cordcal_prompts", "cordcal_texts"]
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(contents["next_step"])[1:]) == 0
    printed = capsys.readouterr().out
    assert "acc_norm 8.33 %" in printed
    (step,) = (line for line in printed.splitlines() if line.startswith("next step: "))
    assert main(shlex.split(step.removeprefix("next step: "))[1:]) == 0
    assert cordcal.files.read_scores("scores.parquet").values.shape[1] == 5
    assert "then: cordcal compare scores.parquet" in printed
    texts = inspect_answers(next(HARNESS.glob("samples_cordcal_texts_*")))
    assert "next_step" not in texts
    assert "multiple_choice" in texts["problems"][0]


def test_problems_are_counted_by_reason(tmp_path: Path) -> None:
    lines = [*FILES["plain"] * 3, {"text": "none"}, {**FILES["plain"][0], "answer": "Z"}]
    path = written(tmp_path, *lines)
    path.write_text(path.read_text() + '{"logprobs": {"A"')
    problems = inspect_answers(path)["problems"]
    assert len(problems) == 3
    assert all(problem.startswith("1 line ") for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        '{"logits": [0.1, 2.0], "label": 1}\n',
        '{"a": 1, "b": 2}\n',
        '{"prediction": 1, "repaired": [0.1, 0.9]}\n',
        "a,b\n1,2\n",
        "[1, 2]\n",
        "",
    ],
)
def test_other_files_are_left_to_the_readers_of_scores(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    assert inspect_answers(path) is None
    assert inspect_answers(tmp_path) is None
