"""Logs of Inspect, which it wrote itself, and replies of vLLM's classifiers."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cordcal.llm import inspect_answers, read_answers
from cordcal.llm.sources import read_zip
from errors import refused

# Written by release 0.3.285 with its mock provider, by write_logs.py there.
FOLDER = Path(__file__).parents[1] / "data" / "inspect"
LOG = FOLDER / "cordcal_choices.eval"


@pytest.mark.parametrize("suffix", ["eval", "json"])
def test_a_log_has_options_labels_and_subjects(suffix: str) -> None:
    answers = read_answers(LOG.with_suffix(f".{suffix}"))
    rows = dict(zip(answers.ids, range(3), strict=True))
    order = [rows[f"cordcal_choices/{key}"] for key in ("capital", "sum", "sky")]
    masses = [[0.2, 0.7, 0.05], [0.5, 0.1, 0.3], [0.6, 0.2, 0.1]]
    np.testing.assert_allclose(np.exp(answers.scores[order]), masses)
    assert answers.labels[order].tolist() == [1, 2, 0]
    assert [answers.groups[at] for at in order] == ["geography", "arithmetic", "nature"]
    assert [answers.emitted[at] for at in order] == [" B", " A", " A"]
    assert answers.options[order[0]] == ("Oslo", "Reykjavík", "Paris")


def test_the_scores_are_those_that_inspect_gave() -> None:
    log = json.loads(LOG.with_suffix(".json").read_text())
    answers = read_answers(LOG.with_suffix(".json"))
    right = {key: row for row, key in enumerate(answers.ids)}
    for sample in log["samples"]:
        row = right[f"cordcal_choices/{sample['id']}"]
        is_right = answers.scores[row].argmax() == answers.labels[row]
        assert (sample["scores"]["choice"]["value"] == "C") == is_right  # C for correct


def rewritten(folder: Path, change) -> Path:
    log = json.loads(LOG.with_suffix(".json").read_text())
    change(log["samples"])
    path = folder / "log.json"
    path.write_text(json.dumps(log))
    return path


def test_samples_that_failed_and_epochs(tmp_path: Path) -> None:
    def change(samples: list[dict]) -> None:
        samples.append({**samples[0], "epoch": 2})
        samples.append({**samples[1], "epoch": 2, "error": {"message": "timeout"}})

    answers = read_answers(rewritten(tmp_path, change))
    assert sorted(answers.ids)[:2] == ["cordcal_choices/capital", "cordcal_choices/capital/2"]
    assert (len(answers), answers.summary.n_failed) == (4, 1)
    with refused(naming="capital"):
        read_answers(rewritten(tmp_path, lambda samples: samples.append(samples[0])))


def test_several_targets_are_refused(tmp_path: Path) -> None:
    def target(value: object):
        return lambda samples: [sample.update(target=value) for sample in samples]

    assert read_answers(rewritten(tmp_path, target(["B"]))).labels.tolist() == [1, 1, 1]
    with refused(rows=[0], naming="several right answers"):
        read_answers(rewritten(tmp_path, target(["A", "B"])))


def test_archives_without_zstandard_and_cut_ones(tmp_path: Path) -> None:
    path = tmp_path / "older.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in read_zip(LOG).items():
            archive.writestr(name, data)
    np.testing.assert_array_equal(read_answers(path).scores, read_answers(LOG).scores)
    np.testing.assert_array_equal(read_answers(tmp_path).scores, read_answers(LOG).scores)
    data = bytearray(LOG.read_bytes())
    for damaged in (data[: len(data) // 2], b"no archive", b""):
        path.write_bytes(damaged)
        with refused(str(path), rows=[]):
            read_answers(path)
    middle = len(data) // 2
    data[middle : middle + 8] = bytes(8)
    path.write_bytes(data)
    with refused():
        read_answers(path)


def test_info_recognises_a_log() -> None:
    contents = inspect_answers(LOG)
    assert contents["format"] == "answers: samples of Inspect"
    assert contents["next_step"] == f"cordcal answers {LOG} --output scores.parquet"


def classified(*probs: list[float]) -> dict:
    """Return a reply of vLLM's /classify, from its documentation, not from a server."""
    data = [
        {"index": at, "label": "Default", "probs": vector, "num_classes": len(vector)}
        for at, vector in enumerate(probs)
    ]
    return {"id": "classify-9bf1", "object": "list", "created": 1745383213, "data": data}


def test_replies_of_classifiers(tmp_path: Path) -> None:
    path = tmp_path / "classified.jsonl"
    path.write_text(json.dumps({**classified([0.566, 0.434]), "answer": "Spoiled"}) + "\n")
    answers = read_answers(path, options="Default,Spoiled")
    assert answers.scores[0].tolist() == [math.log(0.566), math.log(0.434)]
    assert answers.labels.tolist() == [1]  # its own label is the prediction
    path.write_text(json.dumps(classified([0.5, 0.5], [0.1, 0.9])) + "\n")
    with refused(rows=[0]):
        read_answers(path, options="Default,Spoiled")
