"""``cordcal answers``: a table that the other commands read, and lines with its results."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import cordcal

ROWS = 120


def reply(key: str, masses: np.ndarray, emitted: str) -> dict:
    """Return a line of a Batch API with the three likeliest of four options."""
    top = sorted(zip("ABCD", 0.95 * masses, strict=True), key=lambda item: -item[1])[:3]
    listed = [{"token": f" {name}", "logprob": math.log(mass)} for name, mass in top]
    given = next((token for token in listed if token["token"].strip() == emitted), listed[0])
    content = [{**given, "top_logprobs": listed}]
    body = {"choices": [{"logprobs": {"content": content}}]}
    return {"custom_id": key, "response": {"status_code": 200, "body": body}}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Replies in another order than their labels, one of them failed."""
    rng = np.random.default_rng(5)
    replies, gold = [], []
    for row in range(ROWS):
        right = int(rng.integers(4))
        masses = rng.dirichlet(0.5 + 3.0 * np.eye(4)[right])
        second = "ABCD"[int(np.argsort(masses)[-2])]
        replies.append(reply(f"q{row}", masses, second if row < 7 else ""))
        gold.append({"custom_id": f"q{row}", "answer": "ABCD"[right], "subject": f"s{row % 3}"})
    failed = {"custom_id": "q3000", "response": {"status_code": 500, "body": None}}
    replies.append(failed)
    rng.shuffle(replies)
    for name, lines in (("replies.jsonl", replies), ("gold.jsonl", gold)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


CONVERT = (
    *("answers", "replies.jsonl", "--options", "ABCD", "--labels", "gold.jsonl"),
    *("--groups", "gold.jsonl:subject", "--id-column", "custom_id"),
)


def test_the_commands_that_it_prints_run(call, files: Path) -> None:
    code, output, _ = call(*CONVERT, "--output", "scores.parquet")
    assert code == 0
    lines = output.splitlines()
    assert lines[0] == f"{ROWS} questions"
    assert "1 omitted, because their request failed" in lines
    assert any(line.startswith("7 where the model gave another option") for line in lines)
    table = pq.read_table(files / "scores.parquet")
    options = [f"logprob_{name}" for name in "ABCD"]
    assert table.column_names == ["id", *options, "label", "group", "emitted"]
    gold = {line["custom_id"]: line for line in read(files / "gold.jsonl")}
    for row in table.to_pylist():
        assert row["label"] == gold[row["id"]]["answer"]
        assert row["group"] == gold[row["id"]]["subject"]
    steps = [line.removeprefix("next step: ") for line in lines if line.startswith("next step: ")]
    assert [step.split()[1] for step in steps] == ["compare", "fit", "apply", "answers"]
    for step in steps:
        arguments = shlex.split(step)[1:]
        quick = ["--calibrator", "ts,vs"] if arguments[0] == "compare" else []
        assert call(*arguments, *quick)[0] == 0, step
    originals = read(files / "replies.jsonl")
    written = {line["custom_id"]: line for line in read(files / "calibrated.jsonl")}
    scores = dict(
        zip(
            table["id"].to_pylist(),
            np.column_stack([table[name].to_numpy() for name in options]),
            strict=True,
        )
    )
    assert written.keys() == {line["custom_id"] for line in originals}
    for line in originals:
        result = written[line["custom_id"]]
        assert {name: result[name] for name in line} == line
        if line["custom_id"] == "q3000":
            assert result == line
            continue
        calibrated = result["calibrated"]
        assert result["prediction"] == "ABCD"[scores[line["custom_id"]].argmax()]
        assert max(calibrated, key=calibrated.get) == result["prediction"]
        assert result["confidence"] == calibrated[result["prediction"]]
        assert math.fsum(calibrated.values()) == pytest.approx(1.0)


def test_compare_prints_groups_the_worst_first(call, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lines = []
    for row in range(3 * ROWS):
        right, skill = int(rng.integers(2)), (0.0, 1.0, 4.0)[row % 3]
        masses = rng.dirichlet(1.0 + skill * np.eye(2)[right])
        line = {"id": row, "logprobs": np.log(masses).tolist(), "answer": right}
        lines.append({**line, "subject": ("law", "physics", "history")[row % 3]})
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert call("answers", "plain.jsonl", "--output", "scores.parquet")[0] == 0
    compare = ("compare", "scores.parquet", "--calibrator", "ts,vs")
    code, output, _ = call(*compare, "--groups", "group")
    assert code == 0
    assert "guessing is right in 50.0 %" in " ".join(output.split())
    places = [output.index(subject) for subject in ("law", "physics", "history")]
    assert places == sorted(places)
    assert "guessing" not in call(*compare)[1]


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_questions_with_fewer_options_are_compared_and_applied(call, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = []
    for row in range(ROWS):
        count = 3 + row % 2
        right = int(rng.integers(count))
        masses = rng.dirichlet(0.5 + 3.0 * np.eye(count)[right])
        options = [f"option {row} {at}" for at in range(count)]
        lines.append({"options": options, "logprobs": np.log(masses).tolist(), "answer": right})
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, output, _ = call("answers", "plain.jsonl", "--output", "scores.csv")
    assert code == 0
    for line in output.splitlines():
        if line.startswith("next step: "):
            assert call(*shlex.split(line.removeprefix("next step: "))[1:])[0] == 0, line
    first = read(tmp_path / "calibrated.jsonl")[0]
    assert set(first["calibrated"]) == set("ABCD")


@pytest.mark.parametrize("suffix", ["feather", "csv", "jsonl"])
def test_every_format_has_the_same_table(call, files: Path, suffix: str) -> None:
    import cordcal

    for name in ("scores.parquet", f"scores.{suffix}"):
        assert call(*CONVERT, "--output", name)[0] == 0
    first, second = (
        cordcal.files.read_scores(files / name) for name in ("scores.parquet", f"scores.{suffix}")
    )
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.labels, second.labels)


@pytest.mark.parametrize("suffix", ["parquet", "feather", "csv", "jsonl"])
def test_what_the_scores_are_is_known_to_every_reader(
    call, files: Path, tmp_path: Path, suffix: str
) -> None:
    import cordcal

    assert call(*CONVERT, "--output", f"scores.{suffix}")[0] == 0
    assert cordcal.files.read_scores(files / f"scores.{suffix}").kind == "logits"


def test_stored_kinds_are_honoured_where_values_could_be_either(call, tmp_path: Path) -> None:
    import pyarrow as pa

    import cordcal

    values = {f"p_{name}": np.full(40, 0.5) for name in ("A", "B")}
    table = pa.table({**values, "label": ["A", "B"] * 20})
    pq.write_table(table, tmp_path / "plain.parquet")
    stored = table.replace_schema_metadata({"cordcal.input": "logits"})
    pq.write_table(stored, tmp_path / "stored.parquet")
    kinds = [
        cordcal.files.read_scores(tmp_path / f"{name}.parquet").kind for name in ("plain", "stored")
    ]
    assert kinds == ["probabilities", "logits"]
    explicit = cordcal.files.read_scores(tmp_path / "stored.parquet", input="probabilities")
    assert explicit.kind == "probabilities"


def test_the_order_of_rows_and_lines_does_not_matter_on_the_way_back(call, files: Path) -> None:
    assert call(*CONVERT, "--output", "scores.parquet")[0] == 0
    assert call("fit", "scores.parquet", "--calibrator", "ts", "--output", "m.safetensors")[0] == 0
    repaired = ("apply", "m.safetensors", "scores.parquet", "--output", "repaired.parquet")
    assert call(*repaired)[0] == 0
    back = ("answers", "replies.jsonl", "--with", "repaired.parquet", "--force", "--output")
    assert call(*back, "first.jsonl")[0] == 0
    rng = np.random.default_rng(1)
    table = pq.read_table(files / "repaired.parquet")
    pq.write_table(table.take(rng.permutation(len(table))), files / "repaired.parquet")
    lines = (files / "replies.jsonl").read_text().splitlines(keepends=True)
    (files / "replies.jsonl").write_text("".join(rng.permutation(lines)))
    assert call(*back, "second.jsonl")[0] == 0
    first, second = (
        {line["custom_id"]: line for line in read(files / f"{name}.jsonl")}
        for name in ("first", "second")
    )
    assert first == second


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_lines_say_whether_to_act(call, files: Path, suffix: str) -> None:
    assert call(*CONVERT, "--output", "scores.parquet")[0] == 0
    assert call("fit", "scores.parquet", "--calibrator", "ts", "--output", "m.safetensors")[0] == 0
    rng = np.random.default_rng(6)
    table = pq.read_table(files / "scores.parquet").to_pandas()
    held = table.iloc[rng.integers(len(table), size=1500)]
    held.to_parquet(files / "held.parquet")
    certify = ("certify", "held.parquet", "--model", "m.safetensors", "--error", "10%")
    assert call(*certify, "--groups", "group")[0] == 0
    apply = ("apply", "m.safetensors", "scores.parquet", "--groups", "group")
    repaired = f"repaired.{suffix}"
    assert call(*apply, "--add", "audit=20%", "--output", repaired)[0] == 0
    back = ("answers", "replies.jsonl", "--with", repaired, "--output", "lines.jsonl")
    code, output, err = call(*back)
    assert code == 0, err
    assert "with calibrated, prediction, confidence, act and audit added" in output
    model = cordcal.load(files / "m.safetensors")
    options = [f"logprob_{name}" for name in "ABCD"]
    act = model.accepts(table[options].to_numpy(), groups=table["group"].to_numpy())
    assert 0.0 < act.mean() < 1.0
    expected = dict(zip(table["id"], act.tolist(), strict=True))
    lines = {line["custom_id"]: line for line in read(files / "lines.jsonl")}
    assert "act" not in lines.pop("q3000")
    assert {key: line["act"] for key, line in lines.items()} == expected
    assert any(line["audit"] for line in lines.values())
    assert all(line["act"] for line in lines.values() if line["audit"])


def test_json_has_the_counts_and_the_steps(call, files: Path) -> None:
    code, output, _ = call(*CONVERT, "--output", "scores.parquet", "--json")
    result = json.loads(output)
    assert (code, result["n"], result["n_failed"], result["n_emitted_other"]) == (0, ROWS, 1, 7)
    assert result["class_names"] == list("ABCD")
    assert result["then"][0] == "cordcal compare scores.parquet --groups group"


def test_answers_without_labels_are_written_with_a_hint(call, files: Path) -> None:
    code, output, errors = call(
        "answers", "replies.jsonl", "--options", "ABCD", "--output", "s.csv"
    )
    assert code == 0
    assert "next step" not in output
    assert "--labels FILE --id-column ID" in errors
    assert (files / "s.csv").read_text().startswith("id,logprob_A,logprob_B,logprob_C,logprob_D,em")


def test_a_cut_file_is_refused_or_read_without_its_end(call, files: Path) -> None:
    path = files / "replies.jsonl"
    path.write_text(path.read_text() + '{"custom_id": "q1", "resp')
    code, _, errors = call(*CONVERT, "--output", "scores.parquet")
    assert code == 2
    assert f"row {ROWS + 1} is not valid JSON" in errors
    code, output, errors = call(*CONVERT, "--on-error", "skip", "--output", "scores.parquet")
    assert code == 0
    assert "skipped 1 row: is not valid JSON" in errors
    for line in output.splitlines():
        if line.startswith(("next step: cordcal fit", "next step: cordcal a")):
            code, output, _ = call(*shlex.split(line.removeprefix("next step: "))[1:])
            assert code == 0, line
    assert "1 omitted, because they are not JSON" in output


def test_mistakes_write_nothing(call, files: Path) -> None:
    assert call(*CONVERT, "--output", "scores.parquet")[0] == 0
    for arguments, words in (
        ((*CONVERT, "--output", "scores.parquet"), "--force"),
        ((*CONVERT, "--output", "gold.jsonl", "--force"), "never replaces an input"),
        ((*CONVERT, "--output", "scores.npz"), ".parquet"),
        (("answers", "replies.jsonl", "--output", "x.csv"), "--options ABCD"),
        (("answers", "none.jsonl", "--output", "x.csv"), "does not exist"),
        (
            (*CONVERT, "--with", "scores.parquet", "--output", "x.jsonl"),
            "--options has no effect with --with",
        ),
        (("answers", "gold.jsonl", "--with", "scores.parquet", "--output", "x.csv"), ".jsonl"),
    ):
        code, _, errors = call(*arguments)
        assert code == 2, arguments
        assert words in errors
        assert not (files / "x.csv").exists()
        assert not (files / "x.jsonl").exists()


def test_lines_of_other_questions_are_refused(call, files: Path) -> None:
    table = files / "repaired.csv"
    header = "id,prediction,prediction_name,confidence,p_A,p_B\n"
    back = ("answers", "replies.jsonl", "--with", table.name, "--output", "out.jsonl")
    act = header.replace("p_A", "act,p_A") + "q0,0,A,0.75,maybe,0.75,0.25\n"
    table.write_text(act)
    code, _, errors = call(*back)
    assert code == 2
    assert "repaired.csv has a column 'act' that is not true or false" in errors
    for rows, words in (
        ("q0,0,A,0.75,0.75,0.25\nother,0,A,0.75,0.75,0.25\n", "has the id 'other'"),
        ("other,0,A,0.75,0.75,0.25\n", "has no row for a line"),
        ("q0,0,A,0.75,0.75,0.25\nq0,0,A,0.75,0.75,0.25\n", "has the id 'q0' twice"),
        ("q0,5,A,0.75,0.75,0.25\n", "prediction that is not a class"),
    ):
        table.write_text(header + rows)
        code, _, errors = call(*back)
        assert code == 2
        assert words in errors
    table.write_text(header + "q0,1,B,0.25,0.75,0.25\n")  # a rule may predict so
    assert call(*back)[0] == 0
    (line,) = (line for line in read(files / "out.jsonl") if line["custom_id"] == "q0")
    assert (line["prediction"], line["confidence"]) == ("B", 0.25)
    assert call("answers", "out.jsonl", *back[2:-1], "again.jsonl")[0] == 2
