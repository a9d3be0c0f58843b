"""Samples of lm-evaluation-harness: files that it wrote, in the layouts of its releases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cordcal.llm import Answers, read_answers
from errors import refused

# Written by release 0.4.13 with its model `dummy`; the summary is without the machine's details.
FOLDER = Path(__file__).parents[1] / "data" / "harness"
METRICS = {"none": "acc", "characters": "acc_norm", "bytes": "acc_bytes"}


def samples(task: str, folder: Path = FOLDER) -> Path:
    (path,) = folder.glob(f"samples_{task}_*.jsonl")
    return path


def lines_of(task: str, folder: Path = FOLDER) -> list[dict]:
    return list(map(json.loads, samples(task, folder).read_text().splitlines()))


def summary(folder: Path = FOLDER) -> Path:
    (path,) = folder.glob("results_*.json")
    return path


def check_against_its_own_metrics(folder: Path) -> None:
    results = json.loads(summary(folder).read_text())["results"]
    lines = lines_of("cordcal_choices", folder)
    for normalize, metric in METRICS.items():
        answers = read_answers(samples("cordcal_choices", folder), normalize=normalize)
        right = answers.scores.argmax(axis=1) == answers.labels
        # Question by question, and the mean that the harness printed.
        np.testing.assert_array_equal(right, [line[metric] == 1.0 for line in lines])
        assert right.mean() == pytest.approx(results["cordcal_choices"][f"{metric},none"])
        assert answers.summary.metrics[metric] == pytest.approx(right.mean())
        assert answers.summary.n_contradicting == 0
    answers = read_answers(samples("cordcal_choices", folder))
    documents = [line["doc"] for line in lines]
    assert answers.ids == tuple(f"cordcal_choices/{line['doc_id']}" for line in lines)
    assert answers.groups == tuple(document["subject"] for document in documents)
    assert list(answers.options) == [tuple(document["choices"]) for document in documents]
    assert answers.labels.tolist() == [document["answer"] for document in documents]


def test_predictions_and_labels_are_those_of_its_metrics() -> None:
    check_against_its_own_metrics(FOLDER)


def test_normalizing_decides_the_prediction() -> None:
    by = {name: read_answers(samples("cordcal_choices"), normalize=name) for name in METRICS}
    predictions = {name: answers.scores.argmax(axis=1) for name, answers in by.items()}
    assert (predictions["none"] != predictions["characters"]).any()
    lengths = [[len(option) for option in options] for options in by["none"].options]
    for row, counts in enumerate(lengths):
        np.testing.assert_array_equal(
            by["characters"].scores[row, : len(counts)],
            by["none"].scores[row, : len(counts)] / counts,
        )
    assert (by["characters"].scores != by["bytes"].scores).any()  # Reykjavík


def test_options_in_the_prompt_have_their_label_from_the_metric() -> None:
    answers = read_answers(samples("cordcal_prompts"))
    assert answers.class_names == ("A", "B")
    assert answers.labels.tolist() == [
        line["doc"]["answer"] for line in lines_of("cordcal_prompts")
    ]


def test_generated_text_and_the_summary_are_explained() -> None:
    with refused(rows=[0], naming="multiple_choice"):
        read_answers(samples("cordcal_texts"))
    with refused(rows=[], naming=[samples("cordcal_choices").name, "lm-evaluation-harness"]):
        read_answers(summary())


def older(line: dict, *, arguments: object) -> dict:
    """Return a sample as releases before the strings wrote it."""

    def number(pair: list[str]) -> list[object]:
        return [float(pair[0]), pair[1] == "True"]

    return {
        **line,
        "target": int(line["target"]),
        "arguments": arguments,
        "resps": [[number(pair) for pair in replies] for replies in line["resps"]],
        "filtered_resps": [number(pair) for pair in line["filtered_resps"]],
    }


def rewritten(folder: Path, change) -> Answers:
    lines = map(json.loads, samples("cordcal_choices").read_text().splitlines())
    path = folder / "samples.jsonl"
    path.write_text("".join(json.dumps(change(line)) + "\n" for line in lines))
    return read_answers(path)


def test_older_releases_wrote_numbers(tmp_path: Path) -> None:
    new = read_answers(samples("cordcal_choices"))
    old = rewritten(
        tmp_path,
        lambda line: older(
            line, arguments=[list(request.values()) for request in line["arguments"].values()]
        ),
    )
    np.testing.assert_array_equal(old.scores, new.scores)
    np.testing.assert_array_equal(old.labels, new.labels)
    assert old.options == new.options


def test_samples_without_requests_take_the_documents_options(tmp_path: Path) -> None:
    def without_requests(line: dict) -> dict:
        count = len(line["doc"]["choices"])
        fields = {name: line[name] for name in ("doc", "target", "acc")}
        return {**fields, "filtered_resps": line["filtered_resps"][:count]}

    new = read_answers(samples("cordcal_choices"))
    bare = rewritten(tmp_path, without_requests)
    assert bare.options == new.options
    np.testing.assert_array_equal(bare.scores, new.scores)


def test_a_wrong_label_shows_in_the_metric(tmp_path: Path) -> None:
    answers = rewritten(tmp_path, lambda line: {**line, "target": "0"})
    assert answers.summary.n_contradicting > 0
    assert "disagrees" in str(answers.summary)
    with refused(rows=[0], naming="several"):
        rewritten(tmp_path, lambda line: {**line, "target": "[0, 1]"})


@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed")
def test_what_the_installed_harness_writes(tmp_path: Path) -> None:
    for path in FOLDER.iterdir():
        if path.suffix in (".yaml", ".py") or path.name in ("questions.jsonl", "sentences.jsonl"):
            shutil.copy(path, tmp_path)
    tasks = "cordcal_choices,cordcal_prompts,cordcal_texts"
    subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "--model", "dummy"),
            *("--model_args", "pretrained=dummy", "--tasks", tasks, "--include_path", "."),
            *("--log_samples", "--output_path", "out"),
        ],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")},
        check=True,
        capture_output=True,
        timeout=300,
    )
    check_against_its_own_metrics(tmp_path / "out" / "dummy")
    with refused(rows=[0]):
        read_answers(samples("cordcal_texts", tmp_path / "out" / "dummy"))
