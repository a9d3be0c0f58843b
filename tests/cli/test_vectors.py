"""Labels, weights and groups: a column, a file, or a column of a file, by one option each."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from cordcal.cli._vectors import VectorSource, parse_vector

TS = ("--calibrator", "ts")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch, logits: np.ndarray, labels: np.ndarray) -> Path:
    """Scores next to a table of their labels, weights and groups."""
    monkeypatch.chdir(tmp_path)
    np.savez("s.npz", logits=logits, truth=labels, region=labels % 2)
    lines = [f"{label},{label},{1 + label},{label % 2}\n" for label in labels.tolist()]
    Path("y.csv").write_text("first,truth,importance,region\n" + "".join(lines))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("truth", VectorSource(None, "truth")),
        ("y.npy", VectorSource("y.npy")),
        ("gone.csv:truth", VectorSource("gone.csv", "truth")),
        ("y.csv:score:billing", VectorSource("y.csv", "score:billing")),
        ("score:billing", VectorSource(None, "score:billing")),
        (r"C:\data\y.csv", VectorSource(r"C:\data\y.csv")),
        (r"C:\data\y.csv:truth", VectorSource(r"C:\data\y.csv", "truth")),
        ("-", VectorSource("-")),
        ("-:truth", VectorSource("-", "truth")),
        ("data/y", VectorSource(None, "data/y")),  # a key of HDF5
        ("", VectorSource(None, "")),
    ],
)
def test_what_an_option_names(text: str, source: VectorSource) -> None:
    assert parse_vector(text) == source
    assert parse_vector(None) == VectorSource()


def test_a_folder_does_not_hide_a_column_of_its_name(folder, call) -> None:
    (folder / "truth").mkdir()
    assert parse_vector("truth") == VectorSource(None, "truth")
    assert parse_vector("truth/") == VectorSource("truth/")
    code, _, errors = call("fit", "s.npz", "--labels", "truth", *TS)
    assert code == 0, errors


def test_a_column_of_a_file_is_that_of_the_scores(folder, call) -> None:
    models = []
    for at, labels in enumerate(("truth", "y.csv:truth")):
        fit = ("fit", "s.npz", "--labels", labels, "--weights", "y.csv:importance", *TS)
        code, _, errors = call(*fit, "--output", f"{at}.safetensors")
        assert code == 0, errors
        models.append(Path(f"{at}.safetensors").read_bytes())
    assert models[0] == models[1]


def test_groups_of_a_file_are_those_of_the_scores(folder, call) -> None:
    compare = ("compare", "s.npz", "--labels", "truth", *TS, "--json", "--groups")
    own, separate = (
        json.loads(call(*compare, name)[1])["calibrators"][0]["groups"]
        for name in ("region", "y.csv:region")
    )
    assert [group["name"] for group in own] == ["0", "1"]
    assert [group["n"] for group in own] == [group["n"] for group in separate]


def test_the_next_step_reads_the_same_labels(folder, call) -> None:
    np.savez("new.npz", logits=np.load("s.npz")["logits"])
    compare = ("compare", "s.npz", "--labels", "y.csv:truth", *TS, "--json")
    step = json.loads(call(*compare)[1])["next_step"]
    assert "--labels y.csv:truth" in step["shell"][0]
    assert "labels='y.csv', labels_column='truth'" in step["python"][1]
    for line in step["shell"]:
        code, _, errors = call(*shlex.split(line)[1:])
        assert code == 0, errors


def test_a_missing_column_of_a_file(folder, call) -> None:
    code, _, errors = call("fit", "s.npz", "--labels", "y.csv:label", *TS)
    assert code == 2
    assert "y.csv" in errors
    assert "'label'" in errors
    assert "first, truth, importance, region" in errors


def test_the_file_of_a_column_is_never_replaced(folder, call) -> None:
    before = Path("y.csv").read_bytes()
    fit = ("fit", "s.npz", *TS, "--labels", "y.csv:truth", "--force", "--output", "y.csv")
    code, _, errors = call(*fit)
    assert code == 2
    assert "would replace y.csv" in errors
    assert Path("y.csv").read_bytes() == before


def test_a_proposed_field_is_that_of_the_file(folder, call) -> None:
    """Answers name their labels' file, so the field is proposed as one of it."""
    line = {"id": 1, "logprobs": {"A": -0.1, "B": -2.5}}
    Path("replies.jsonl").write_text(json.dumps(line) + "\n")
    Path("gold.jsonl").write_text(json.dumps({"id": 1, "solution": "A"}) + "\n")
    answers = ("answers", "replies.jsonl", "--output", "t.csv", "--labels")
    code, _, errors = call(*answers, "gold.jsonl")
    assert code == 2
    assert "--labels gold.jsonl:answer" in errors
    code, _, errors = call(*answers, "gold.jsonl:solution")
    assert code == 0, errors
