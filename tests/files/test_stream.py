"""`open_scores`: the same rows as the whole file, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from cordcal.files import inspect, open_scores, read_scores
from cordcal.files import scores as module
from documents import ROOT, blocks
from errors import refused

Write = Callable[..., Path]

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def matrix() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1050, 5)).astype(np.float32)


def rows_of(file: object) -> np.ndarray:
    return np.concatenate([batch.values for batch in file])  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["s.parquet", "s.npy", "fortran.npy"])
def test_large_pieces_are_cut(
    write: Write, matrix: np.ndarray, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 64 * matrix.itemsize * 5)
    passed = np.asfortranarray(matrix) if name.startswith("fortran") else matrix
    scores = open_scores(write(name, passed, group=700))
    assert [len(batch) for batch in scores] == [64] * 16 + [26]
    np.testing.assert_array_equal(rows_of(scores), matrix)
    uneven = list(scores.batches(rows=130))
    assert [batch.first for batch in uneven] == list(range(0, 1050, 130))
    np.testing.assert_array_equal(rows_of(uneven), matrix)


@pytest.mark.parametrize("suffix", ["npz", "csv"])
def test_formats_that_are_read_whole(tmp_path: Path, matrix: np.ndarray, suffix: str) -> None:
    path = tmp_path / f"s.{suffix}"
    labels = np.arange(len(matrix)) % 5
    if suffix == "npz":
        np.savez(path, logits=matrix, labels=labels)
    else:
        lines = ["label,s_a,s_b,s_c,s_d,s_e"]
        lines += [
            ",".join([str(label), *map(str, row.tolist())])
            for label, row in zip(labels, matrix, strict=True)
        ]
        path.write_text("\n".join(lines))
    scores, whole = open_scores(path), read_scores(path)
    np.testing.assert_array_equal(rows_of(scores), whole.values)
    result = np.concatenate([batch.labels for batch in scores])
    np.testing.assert_array_equal(result, labels)


def test_labels_in_a_column_and_in_a_file(tmp_path: Path, matrix: np.ndarray) -> None:
    names = [f"class {index}" for index in range(5)]
    truth = matrix.argmax(axis=1)
    columns = {name: matrix[:, index] for index, name in enumerate(names)}
    table = arrow.table({**columns, "truth": [names[index] for index in truth]})
    parquet.write_table(table, tmp_path / "s.parquet", row_group_size=200)
    np.save(tmp_path / "y.npy", truth)
    for where in ({"labels_column": "truth"}, {"labels": str(tmp_path / "y.npy")}):
        scores = open_scores(tmp_path / "s.parquet", **where)
        assert scores.class_names == (tuple(names) if "labels_column" in where else None)
        result = np.concatenate([batch.labels for batch in scores])
        np.testing.assert_array_equal(result, truth)
    np.save(tmp_path / "short.npy", truth[:-1])
    with refused(naming=["short.npy", "1049", "1050"]):
        open_scores(tmp_path / "s.parquet", labels=str(tmp_path / "short.npy"))


def test_a_bad_label_is_named_by_its_row_in_the_file(tmp_path: Path, matrix: np.ndarray) -> None:
    truth = matrix.argmax(axis=1)
    truth[777] = 9
    flat = arrow.FixedSizeListArray.from_arrays(arrow.array(matrix.reshape(-1)), 5)
    table = arrow.table({"logits": flat, "label": truth})
    parquet.write_table(table, tmp_path / "s.parquet", row_group_size=100)
    with refused(rows=[777], naming=["s.parquet", "9"]):
        list(open_scores(tmp_path / "s.parquet"))


@pytest.mark.parametrize("width", [-1, 5], ids=["lists", "fixed-size lists"])
def test_a_missing_row_is_named(tmp_path: Path, matrix: np.ndarray, width: int) -> None:
    rows = [row.tolist() for row in matrix]
    rows[333] = None  # type: ignore[call-overload]
    table = arrow.table({"logits": arrow.array(rows, arrow.list_(arrow.float32(), width))})
    try:
        parquet.write_table(table, tmp_path / "s.parquet", row_group_size=100)
    except arrow.ArrowNotImplementedError:
        pytest.skip("this pyarrow cannot write a missing fixed-size list")
    with refused(f"{tmp_path / 's.parquet'} (logits)", rows=[333]):
        list(open_scores(tmp_path / "s.parquet"))


@pytest.mark.parametrize("name", ["s.parquet", "s.npy"])
def test_a_file_that_was_cut_short(write: Write, matrix: np.ndarray, name: str) -> None:
    path = write(name, matrix)
    path.write_bytes(path.read_bytes()[:-500])
    with refused(str(path), naming="truncated"):
        open_scores(path)


def test_a_damaged_page_is_refused(write: Write, matrix: np.ndarray) -> None:
    path = write("s.parquet", matrix)
    column = parquet.ParquetFile(path).metadata.row_group(6).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    with refused(naming="s.parquet"):
        list(open_scores(path))


def test_no_rows(write: Write, matrix: np.ndarray) -> None:
    for name in ("s.parquet", "s.npy"):
        with refused(naming=[name, "no rows"]):
            open_scores(write(name, matrix[:0]))


def test_the_recipe_of_the_documentation(
    write: Write, matrix: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "scale.md"
    (recipe,) = [block for block in blocks(page, "python") if "open_scores" in block]
    monkeypatch.setattr(module, "BATCH_BYTES", 100 * 5 * 8)
    direct = softmax(matrix.astype(np.float64), axis=1)
    original = softmax(matrix[:, ::-1], axis=1)
    write("scores.parquet", matrix)
    folder = write("p.npy", original).parent
    write("q.npy", direct)
    monkeypatch.chdir(folder)
    result: dict[str, Any] = {}
    exec(recipe, result)
    assert result["cord"].eta_ == cordcal.CORD().fit(original, direct).eta_


@pytest.mark.parametrize("name", ["s.parquet", "s.npy"])
def test_a_look_in_pieces_finds_what_one_at_the_whole_does(
    write: Write, matrix: np.ndarray, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = matrix.copy()
    result[[3, 700], 1] = np.inf
    result[900] = 0.25
    path = write(name, result, group=100)
    monkeypatch.setattr(module, "BATCH_BYTES", 64 * matrix.itemsize * 5)
    description = inspect(path)
    assert description["entries"][0]["shape"] == "1,050 rows × 5 classes"
    assert description["entries"][0]["kind"] == "looks like logits"
    problems = "\n".join(description["problems"])
    assert "2 rows (the first is row 3) have an infinite value" in problems
    assert "row 900 has a tie for the top" in problems
    np.savez(path.with_name("s.npz"), **{description["entries"][0]["name"]: result})
    assert inspect(path.with_name("s.npz"))["problems"] == description["problems"]
    result[1000, 2] = np.nan
    assert inspect(write(name, result, group=100))["problems"][0].endswith("row 1000 has NaN")


def test_rows_that_are_none_do_not_tell_what_the_scores_are(
    tmp_path: Path, matrix: np.ndarray
) -> None:
    report = np.tile(softmax(matrix, axis=1), (6, 1))
    report[: module._SAMPLE_ROWS + 5] = np.nan
    np.save(tmp_path / "s.npy", report)
    assert open_scores(tmp_path / "s.npy").kind == "probabilities"
