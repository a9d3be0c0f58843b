"""Columns of real tables: an identifier, a label, an age next to the scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

NAMES = ("ant", "bee", "wasp")
TS = ("--calibrator", "ts")


def write(path: Path, matrix: np.ndarray, labels: np.ndarray, *, head: str = "{}") -> None:
    """Write a table as a person would keep it."""
    rows = [
        [f"r{at:03}", *map(repr, row), NAMES[label], f"{20 + at % 50}", f"{1 + at % 3}"]
        for at, (row, label) in enumerate(zip(matrix.tolist(), labels, strict=True))
    ]
    names = [head.format(name) for name in NAMES]
    lines = [["key", *names, "truth", "age", "importance"], *rows]
    path.write_text("\n".join(",".join(line) for line in lines) + "\n")


@pytest.fixture
def tables(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    write(tmp_path / "s.csv", logits, labels)
    write(tmp_path / "scored.csv", logits, labels, head="score_{}")
    write(tmp_path / "q.csv", softmax(logits * [0.2, 1.0, 1.0], axis=1), labels)
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels, class_names=np.array(NAMES))
    np.save(tmp_path / "y.npy", labels)
    np.save(tmp_path / "bare.npy", logits)
    return tmp_path


def test_an_age_is_named_and_not_counted(call, tables: Path) -> None:
    assert call("fit", "bare.npy", "--labels", "y.npy", *TS, "--output", "m.safetensors")[0] == 0
    code, _, errors = call("apply", "m.safetensors", "s.csv", "--output", "o.csv")
    assert code == 2
    assert "--columns ant,bee,wasp,age,importance" in errors
    assert call("fit", "s.npz", *TS, "--output", "n.safetensors")[0] == 0
    assert call("apply", "n.safetensors", "s.csv", "--output", "o.csv")[0] == 0
    head = (tables / "o.csv").read_text().splitlines()[0]
    names = ",".join(f"p_{name}" for name in NAMES)
    assert head == f"key,truth,age,importance,prediction,prediction_name,confidence,{names}"


def test_the_columns_that_were_taken_are_named(call, tables: Path) -> None:
    code, _, errors = call("audit", "--original", "s.csv", "--direct", "q.csv")
    assert code == 2
    assert "s.csv has columns of numbers that may be scores or not" in errors


@pytest.mark.parametrize("columns", ["score_*", "score_ant,score_bee,score_wasp"])
def test_columns_are_the_same_for_every_command(call, tables: Path, columns: str) -> None:
    options = ("--columns", columns)
    labels = ("--labels", "y.npy") if "," in columns else ("--labels", "truth")
    code, _, errors = call("fit", "scored.csv", *options, *labels, *TS, "--output", "m.safetensors")
    assert code == 0, errors
    code, _, errors = call("apply", "m.safetensors", "scored.csv", *options, "--output", "o.npy")
    assert code == 0, errors
    assert np.load(tables / "o.npy").shape == (400, 3)
    code, printed, errors = call("compare", "scored.csv", *options, *labels, *TS, "--json")
    assert code == 0, errors
    assert json.loads(printed)["n_classes"] == 3
    gate = ("--max", "ece=1")
    assert call("check", "scored.csv", *options, *labels, "--input", "logits", *gate)[0] == 0
    bare, truth = (np.load(tables / name) for name in ("bare.npy", "y.npy"))
    write(tables / "p.csv", softmax(bare, axis=1), truth, head="score_{}")
    pair = ("--original", "scored.csv", "--direct", "p.csv")
    code, printed, errors = call("audit", *pair, *options, *labels, "--json")
    assert code == 0, errors
    assert json.loads(printed)["changes"]["n_changed"] == 0


def test_a_column_that_only_one_of_two_files_has(call, tables: Path) -> None:
    result = [
        call("audit", "--original", "s.npz", "--direct", "q.csv", "--json", *args)
        for args in ((), ("--columns", "ant,bee,wasp"))
    ]
    assert result[0][0] == 0, result[0][2]
    assert result[0][1] == result[1][1]
    np.savez(tables / "p.npz", probs=np.full((400, 4), 0.25), class_names=[*NAMES, "fly"])
    _, _, errors = call("audit", "--original", "p.npz", "--direct", "q.csv")
    assert "q.csv" in errors
    assert "--columns" in errors


def test_weights(call, tables: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    import cordcal

    options = ("--columns", "ant,bee,wasp", "--labels", "truth")
    weight = ("--weights", "importance")
    code, _, errors = call("fit", "s.csv", *options, *weight, *TS, "--output", "w.safetensors")
    assert code == 0, errors
    passed = 1.0 + np.arange(400) % 3
    expected = cordcal.PreservingCalibrator("ts").fit(logits, labels, sample_weight=passed)
    result = cordcal.load(tables / "w.safetensors")
    np.testing.assert_array_equal(result.predict_proba(logits), expected.predict_proba(logits))
    np.save(tables / "w.npy", passed)
    pair = ("--original", "s.csv", "--direct", "q.csv", *options)
    both = [call("audit", *pair, *where, "--json") for where in (weight, ("--weights", "w.npy"))]
    assert both[0] == both[1]
    direct = softmax(logits * [0.2, 1.0, 1.0], axis=1)
    audit = cordcal.audit(softmax(logits, axis=1), direct, labels, sample_weight=passed)
    assert json.loads(both[0][1])["changes"]["tpcr"] == audit.changes.tpcr


def test_class_names_from_a_file(call, tables: Path) -> None:
    (tables / "names.txt").write_text("ant\nbee\n\nwasp\n")
    (tables / "twice.txt").write_text("ant\nbee\nbee\n")
    (tables / "names.json").write_text('["ant", "bee", "wasp"]')
    for names in ("names.txt", "names.json"):
        options = ("--class-names", names, "--labels", "s.csv:truth")
        code, _, errors = call(
            "fit", "bare.npy", *options, *TS, "--output", "m.safetensors", "--force"
        )
        assert code == 0, errors
        assert json.loads(call("info", "m.safetensors", "--json")[1])["class_names"] == list(NAMES)
    for names, words in (("twice.txt", "has the class 'bee' twice"), ("y.npy", "class names")):
        code, _, errors = call("fit", "bare.npy", "--class-names", names, "--labels", "y.npy", *TS)
        assert code == 2
        assert words in errors
    (tables / "names.txt").write_text("ant\nbee\n")
    code, _, errors = call("fit", "bare.npy", "--class-names", "names.txt", "--labels", "y.npy")
    assert "--class-names has 2 names but there are 3 columns" in errors


def test_a_repaired_table_against_its_original(call, tables: Path) -> None:
    assert call("fit", "s.npz", *TS, "--output", "m.safetensors")[0] == 0
    assert call("apply", "m.safetensors", "s.csv", "--output", "o.csv")[0] == 0
    gate = ("--max", "tpcr=0")
    code, _, errors = call("check", "o.csv", "--original", "s.csv", *gate)
    assert code == 0, errors
    options = ("--columns", "p_*")
    assert call("check", "o.csv", "--original", "s.csv", *options, *gate)[0] == 0


def test_groups_in_a_column(call, tables: Path) -> None:
    options = ("--columns", "ant,bee,wasp", "--labels", "truth", "--input", "logits")
    code, printed, errors = call(
        "check", "s.csv", *options, "--groups", "importance", "--max", "nll.group=9"
    )
    assert code == 0, errors
    assert "✓" in printed


def test_a_column_groups_the_rows_and_the_evaluation_file_is_named(call, tables: Path) -> None:
    read = ("--columns", "score_*", "--labels", "truth", *TS)
    code, printed, _ = call("compare", "scored.csv", *read, "--groups", "importance", "--json")
    assert code == 0
    groups = json.loads(printed)["calibrators"][0]["groups"]
    assert sorted(group["name"] for group in groups) == ["1", "2", "3"]
    for name in ("s.npz", "t.npz"):
        truth = np.load(tables / "y.npy")
        np.savez(tables / name, logits=np.load(tables / "bare.npy"), truth=truth)
    files = ("t.npz", "--hold-out", "s.npz", "--groups", "y.npy", "--report", "r.html")
    assert call("compare", *files, "--labels", "truth", *TS)[0] == 0
    page = (tables / "r.html").read_text()
    assert "t.npz, evaluated on s.npz" in page
    assert "Per group" in page


@pytest.mark.parametrize("head", ["truth", None])
def test_labels_are_words_in_a_file_of_their_own(
    call, tables: Path, labels: np.ndarray, head: str | None
) -> None:
    words = [NAMES[label] for label in labels]
    (tables / "words.csv").write_text("\n".join([head, *words] if head else words) + "\n")
    options = ("--columns", ",".join(NAMES), *TS, "--output")
    # One column of words may have a header or not.
    assert (
        "--header or --no-header"
        in call("fit", "s.csv", "--labels", "words.csv", *options, "x.safetensors")[2]
    )
    options = ("--header" if head else "--no-header", *options)
    assert call("fit", "s.csv", "--labels", "words.csv", *options, "a.safetensors")[0] == 0
    assert call("fit", "s.csv", "--labels", "truth", *options, "b.safetensors")[0] == 0
    assert (tables / "a.safetensors").read_bytes() == (tables / "b.safetensors").read_bytes()
    # A word too few is counted.
    (tables / "few.csv").write_text("\n".join(words[1:]) + "\n")
    assert call("fit", "s.csv", "--labels", "few.csv", *options, "c.safetensors")[0] == 2


def test_columns_that_apply_wrote_are_named_by_their_pattern(call, tables: Path) -> None:
    labels = ("--labels", "truth", "--columns", "score_*")
    assert call("fit", "scored.csv", *labels, *TS, "--output", "m.safetensors")[0] == 0
    assert call("apply", "m.safetensors", "scored.csv", "--output", "o.csv")[0] == 0
    code, _, errors = call("check", "o.csv", "--original", "scored.csv", "--max", "tpcr=0")
    assert code == 0, errors
    assert "the scores are its 3 columns p_ant, p_bee, p_wasp (choose others" in errors


@pytest.mark.parametrize(
    "command",
    [
        ("check", "p.csv", "--max", "nll=9", "--id-column", "p_user"),
        ("check", "p.csv", "--max", "nll=9", "--groups", "p_user"),
        ("check", "p.csv", "--max", "nll=9", "--cluster-column", "p_user"),
        ("check", "p.csv", "--original", "q.csv", "--max", "nll=9", "--cluster-column", "p_user"),
        ("monitor", "init", "t", "--baseline", "p.csv", "--cluster-column", "p_user"),
        ("monitor", "add", "s", "p.csv", "--id-column", "p_user"),
        ("monitor", "add", "s", "p.csv", "--groups", "p_user"),
        ("monitor", "add", "s", "p.csv", "--cluster-column", "p_user"),
        ("certify", "p.csv", "--model", "m", "--error", "50%", "--id-column", "p_user"),
        ("certify", "p.csv", "--model", "m", "--error", "50%", "--cluster-column", "p_user"),
        ("audit", "--original", "p.csv", "--direct", "q.csv", "--cluster-column", "p_user"),
        ("audit", "--original", "p.csv", "--direct", "q.csv", "--groups", "p_user"),
    ],
    ids=" ".join,
)
def test_a_column_that_an_option_names_is_no_score(
    call, tables: Path, logits: np.ndarray, labels: np.ndarray, command: tuple[str, ...]
) -> None:
    users = (
        np.arange(len(labels)) + 0.5 if "--id-column" in command else np.arange(len(labels)) % 50
    )
    probabilities = softmax(logits, axis=1)
    for name in ("p", "q"):
        rows = zip(users.tolist(), probabilities.tolist(), labels.tolist(), strict=True)
        lines = [f"{user:.1f},{','.join(map(repr, row))},{label}" for user, row, label in rows]
        Path(f"{name}.csv").write_text("\n".join(["p_user,p_0,p_1,p_2,label", *lines]))
    np.savez("p.npz", probs=probabilities, labels=labels)
    fit = ("fit", "p.npz", "--calibrator", "ts", "--output", "m")
    assert call("monitor", "init", "s", "--baseline", "p.npz")[0] == call(*fit)[0] == 0
    code, out, errors = call(*command, *(("--json",) if "init" not in command else ()))
    assert code in (0, 1), errors
    assert "user" not in errors.replace("p_user", "").split()
    assert "4 columns" not in errors
    assert "4 classes" not in out + errors
