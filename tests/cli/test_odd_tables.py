"""Tables as people have them: a missing first cell, odd quotes, other encodings, wrong weights."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow import feather

from cordcal.files.columns import ColumnSpec
from cordcal.files.loop import read_batches
from cordcal.files.scores import open_pair
from cordcal.files.writers import write_table

TS = ("--calibrator", "ts")


def table(path: Path, names: str = "p_ant,p_bee,p_cat,label", first: str | None = None) -> None:
    """Write 60 rows of scores of three classes, of which the last never is right."""
    scores = np.random.default_rng(0).normal(size=(60, 3)).round(3).tolist()
    lines = [f"{a},{b},{c},{'ant' if a > b else 'bee'}" for a, b, c in scores]
    if first is not None:
        lines[0] = ",".join([*lines[0].split(",")[:2], first, "ant"])
    path.write_text("\n".join([names, *lines]) + "\n")


@pytest.fixture
def model(call, tmp_path: Path) -> Path:
    """A model of the classes ant, bee and cat, fitted on columns with a prefix."""
    table(tmp_path / "fit.csv")
    assert call("fit", "fit.csv", *TS, "--output", "m.safetensors")[0] == 0
    return tmp_path


@pytest.mark.parametrize("cell", ["NA", "x", "", "null", "#N/A"])
def test_a_first_cell_without_a_number_drops_no_column(call, tmp_path: Path, cell: str) -> None:
    table(tmp_path / "drop.csv", first=cell)
    code, _, errors = call("fit", "drop.csv", *TS, "--output", "m.safetensors")
    assert code == 2
    assert "row 0" in errors
    code, printed, _ = call("fit", "drop.csv", *TS, "-o", "m.safetensors", "--on-error", "skip")
    assert (code, "59 rows × 3 classes" in printed) == ((2, False) if cell == "x" else (0, True))


def test_a_first_value_without_a_number_is_a_missing_value_in_jsonl(call, model: Path) -> None:
    (model / "g.jsonl").write_text(
        '{"ant": "NA", "bee": 0.1, "cat": 0.9}\n{"ant": 0.2, "bee": 0.2, "cat": 0.6}\n'
    )
    code, _, errors = call("apply", "m.safetensors", "g.jsonl", "-o", "o.csv")
    assert code == 2
    assert "row 0" in errors


def test_a_class_that_the_model_does_not_have(call, model: Path) -> None:
    (model / "new.csv").write_text("p_ant,p_bee,p_cat,p_dog\n0.1,0.2,0.3,0.4\n")
    code, _, errors = call("apply", "m.safetensors", "new.csv", "-o", "o.csv")
    assert code == 2
    assert "'dog'" in errors


def test_classes_with_a_prefix_and_without(call, model: Path) -> None:
    (model / "new.csv").write_text("p_ant,p_bee,p_cat,ant,bee,cat\n0.1,0.2,0.7,0.3,0.3,0.4\n")
    code, _, errors = call("apply", "m.safetensors", "new.csv", "-o", "o.csv")
    assert code == 2
    assert "choose with --columns ant,bee,cat, or 'p_*' instead" in errors
    for at, columns in enumerate(["p_*", "ant,bee,cat"]):
        chosen = ("--columns", columns, "--keep", "none", "-o", f"o{at}.csv")
        assert call("apply", "m.safetensors", "new.csv", *chosen)[0] == 0


@pytest.mark.parametrize("lines", ["{}\n", "{}\n{}\n"])
def test_objects_without_keys(call, model: Path, lines: str) -> None:
    (model / "k.jsonl").write_text(lines)
    code, _, errors = call("apply", "m.safetensors", "k.jsonl", "-o", "o.csv")
    assert code == 2
    assert "k.jsonl" in errors


def test_compressed_text_on_stdin(call, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b"ant,bee,cat\n0.1,0.2,0.7\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert call("apply", "m.safetensors", "-", "-o", "o.csv")[0] == 0
    assert len((model / "o.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_with_every_cell_quoted(call, model: Path, delimiter: str) -> None:
    with (model / "q.txt").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerows([["id", "ant", "bee", "cat"], [1, 0.1, 0.2, 0.7], [2, 0.5, 0.2, 0.3]])
    assert call("apply", "m.safetensors", "q.txt", "-o", "o.csv")[0] == 0
    assert len((model / "o.csv").read_text().splitlines()) == 3


def test_an_output_that_the_pattern_of_the_input_would_match(call, model: Path) -> None:
    (model / "p").mkdir()
    (model / "p" / "a.csv").write_text("ant,bee,cat\n0.1,0.2,0.7\n")
    code, _, errors = call("apply", "m.safetensors", "p/*.csv", "-o", "p/out.csv")
    assert code == 2
    assert "p/out.csv" in errors
    assert call("apply", "m.safetensors", "p/*.csv", "-o", "p/out.parquet")[0] == 0


@pytest.mark.parametrize("weight", ["-1", "nan", "inf"])
def test_wrong_weights_are_named(call, tmp_path: Path, weight: str) -> None:
    table(tmp_path / "fit.csv")
    (tmp_path / "w.csv").write_text("\n".join(["w", weight, *["1"] * 59]) + "\n")
    code, _, errors = call("fit", "fit.csv", *TS, "--weights", "w.csv", "-o", "m.safetensors")
    assert code == 2
    assert "sample_weight" not in errors
    assert "--weights" in errors


@pytest.mark.parametrize("encoding", ["rot13", "zlib", "hex", "base64", "undefined", "klingon"])
def test_an_encoding_that_is_not_one_of_text(call, model: Path, encoding: str) -> None:
    (model / "x.csv").write_text("ant,bee,cat\n0.1,0.2,0.7\n")
    code, _, errors = call("apply", "m.safetensors", "x.csv", "--encoding", encoding, "-o", "o.csv")
    assert code == 2
    assert encoding in errors
    assert "utf-16" in errors


def test_columns_named_like_the_labels_of_another_file(call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 3))
    labels = (scores + rng.normal(size=(60, 3))).argmax(axis=1)
    lines = ["ant,bee,cat", *(",".join(map(repr, row)) for row in scores.tolist())]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    words = np.array(["ant", "bee", "cat"])[labels]
    (tmp_path / "y.csv").write_text("\n".join(["label", *words]) + "\n")
    code, printed, _ = call("fit", "x.csv", *TS, "--labels", "y.csv", "-o", "m.safetensors")
    assert code == 0
    assert "60 rows × 3 classes" in printed


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_two_files_whose_rows_have_other_identifiers(call, tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    for name, order in {"p": range(8), "q": range(8), "other": [1, 0, *range(2, 8)]}.items():
        p = rng.dirichlet(np.ones(3), 8)
        columns = {f"p_{at}": p[:, at] for at in range(3)} | {"row_id": np.array(order)}
        write_table(tmp_path / f"{name}.{suffix}", columns)
    pair = ("--original", f"p.{suffix}", "--direct")
    assert call("audit", *pair, f"q.{suffix}")[0] == 0
    for command in (("audit",), ("fit", "-o", "m.safetensors")):
        code, _, errors = call(*command, *pair, f"other.{suffix}")
        assert code == 2
        assert f"other.{suffix}: row 0 has '1' in the column 'row_id', unlike '0'" in errors


def applied(call, model: Path, column: pa.Array, output: str) -> tuple[int, str]:
    """Apply the model to a Feather file with one more column; return exit code and messages."""
    columns = {"x": column, "ant": [0.1], "bee": [0.2], "cat": [0.7]}
    feather.write_feather(pa.table(columns), model / "in.feather")
    code, _, errors = call("apply", "m.safetensors", "in.feather", "-o", output, "--force")
    return code, errors


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.struct([]), pa.decimal128(5, -2)], ids=str
)
def test_types_that_parquet_cannot_store(call, model: Path, kind: pa.DataType) -> None:
    code, errors = applied(call, model, pa.array([None], kind), "o.parquet")
    assert code == 2
    assert errors.startswith("cordcal: the column 'x' contains values of type")
    assert applied(call, model, pa.array([None], kind), "o.feather")[0] == 0


@pytest.mark.parametrize("values", [[np.inf], [[1.0, -np.inf]]])
def test_json_has_no_word_for_infinite_values(call, model: Path, values: list) -> None:
    code, errors = applied(call, model, pa.array(values), "o.jsonl")
    assert code == 2
    assert "the column 'x' contains infinite values" in errors
    assert applied(call, model, pa.array([np.nan]), "o.jsonl")[0] == 0


def test_half_a_character(call, model: Path) -> None:
    line = '{"v": "\\ud800", "ant": 0.1, "bee": 0.2, "cat": 0.7}\n'
    (model / "h.jsonl").write_text(line)
    for output in ("o.csv", "o.parquet"):
        code, _, errors = call("apply", "m.safetensors", "h.jsonl", "-o", output)
        assert code == 2
        assert "the column 'v' contains half a character" in errors
    assert call("apply", "m.safetensors", "h.jsonl", "-o", "o.jsonl")[0] == 0
    assert (model / "o.jsonl").read_text().startswith('{"v": "\\ud800", ')


def test_a_link_to_another_part_is_refused(call, model: Path) -> None:
    (model / "p").mkdir()
    (model / "p" / "a.csv").write_text("ant,bee,cat\n0.1,0.2,0.7\n")
    (model / "p" / "b.csv").symlink_to("a.csv")
    code, _, errors = call("apply", "m.safetensors", "p", "-o", "o.csv")
    assert code == 2
    assert "p/b.csv is a link to another file" in errors.replace(":", "")


@pytest.mark.parametrize("suffix", ["parquet", "feather", "npz", "csv"])
def test_a_file_of_no_bytes(call, model: Path, suffix: str) -> None:
    (model / f"x.{suffix}").touch()
    code, _, errors = call("apply", "m.safetensors", f"x.{suffix}", "-o", "o.csv")
    assert (code, f"x.{suffix} is empty" in errors) == (
        (0, False) if suffix == "csv" else (2, True)
    )


def pair(folder: Path, first: dict, second: dict) -> tuple[str, ...]:
    """Write two files of the same six rows, with more columns; return the options of a pair."""
    rng = np.random.default_rng(0)
    for name, more in {"o.parquet": first, "d.parquet": second}.items():
        p = rng.dirichlet(np.ones(3), 6)
        table = pa.table({**more, **{f"p_{at}": p[:, at] for at in range(3)}})
        pyarrow.parquet.write_table(table, folder / name)
    return ("--original", "o.parquet", "--direct", "d.parquet")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"input_ids": [[1, 2]] * 6}, {"input_ids": [[1, 2]] * 6}),
        ({"model_id": ["a"] * 6}, {"model_id": ["b"] * 6}),
        ({"id": [0.0, 1, 2, 3, 4, None]}, {"id": [0, 1, 2, 3, 4, None]}),
        ({"id": list("012345")}, {"id": [f"{at}.0" for at in range(6)]}),
        ({"id": list(range(6))}, {"row_id": list(range(6, 12))}),
    ],
    ids=["lists", "one word for all", "floats", "decimals", "other names"],
)
def test_pairs_whose_identifiers_do_not_differ(call, tmp_path, first, second) -> None:
    code, _, errors = call("audit", *pair(tmp_path, first, second))
    assert code == 0, errors


def test_confidence_before_the_prediction(call, model: Path) -> None:
    head = "id,ant,bee,cat,confidence,prediction"
    (model / "s.csv").write_text(f"{head}\n7,0.1,0.2,0.7,0.7,2\n")
    applied = ("apply", "m.safetensors", "s.csv", "--keep", "none", "-o", "o.csv")
    assert call(*applied)[0] == 0


def test_classes_are_named_among_others_with_their_prefix(call, model: Path) -> None:
    (model / "s.csv").write_text("p_ant,p_bee,p_cat,p_max\n0.1,0.2,0.7,0.7\n")
    applied = ("apply", "m.safetensors", "s.csv", "--keep", "none", "-o", "o.csv")
    code, _, errors = call(*applied)
    assert (code, "'max'" in errors) == (2, True)
    assert call(*applied, "--columns", "p_ant,p_bee,p_cat")[0] == 0


def test_a_line_end_too_many(call, model: Path) -> None:
    (model / "s.csv").write_bytes(b"ant,bee,cat\r\n0.1,0.2,0.7\r\n0.1,0.2,0.7\r\r\n")
    assert call("apply", "m.safetensors", "s.csv", "-o", "o.csv")[0] == 0
    assert len((model / "o.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize("row", [0, 1])
def test_a_list_that_is_not_json(call, model: Path, row: int) -> None:
    lines = ['{"logits": [0.1, 0.2, 0.7]}', '{"logits": [0.1, 0.2, 0.7]}', '{"logits": [1,,2]}']
    (model / "s.jsonl").write_text("\n".join(lines[row + 1 :] + lines[: row + 1]) + "\n")
    code, _, errors = call("apply", "m.safetensors", "s.jsonl", "-o", "o.csv")
    assert code == 2
    assert f"row {1 - row}" in errors


def test_bytes_that_are_not_of_the_encoding(call, model: Path) -> None:
    (model / "s.csv").write_text("ant,bee,cat\n0.1,0.2,0.7\n")
    code, _, errors = call("apply", "m.safetensors", "s.csv", "--encoding", "utf-16", "-o", "o.csv")
    assert code == 2
    assert "s.csv" in errors


def test_labels_that_are_numbers_and_words(call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 3)).round(4)
    words = np.array(["1", "2", "cat"])[(scores + rng.normal(size=(60, 3))).argmax(axis=1)]
    rows = [f"{a},{b},{c},{word}" for (a, b, c), word in zip(scores, words, strict=True)]
    (tmp_path / "s.csv").write_text("\n".join(["1,2,cat,label", *rows]) + "\n")
    code, printed, errors = call("fit", "s.csv", *TS, "-o", "m.safetensors")
    assert code == 0, errors
    assert "60 rows × 3 classes" in printed


def test_outputs_that_the_next_run_would_not_read(call, model: Path) -> None:
    (model / "p").mkdir()
    (model / "p" / "a.csv").write_text("ant,bee,cat\n0.1,0.2,0.7\n")
    (model / "link").symlink_to("p")
    applied = ("apply", "m.safetensors", "p/*.csv", "-o")
    assert call(*applied, "p/_x.csv")[0] == 0
    assert call("apply", "m.safetensors", "link/*.csv", "-o", "p/x.csv")[0] == 2
    assert call("apply", "m.safetensors", "p/*", "-o", "p/out")[0] == 0


def test_a_last_batch_of_one_row_whose_word_identifies_nothing(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pair(tmp_path, {"model_id": ["a"] * 6}, {"model_id": ["b"] * 6})
    files = open_pair(("o.parquet", ColumnSpec()), ("d.parquet", ColumnSpec()))
    monkeypatch.setattr("cordcal.files.scores.BATCH_BYTES", 5 * 3 * 8)
    assert [len(rows[0]) for rows in read_batches(files)] == [5, 1]
