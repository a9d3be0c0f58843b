"""Scores, labels and class names are read from every format; invalid files are refused."""

from __future__ import annotations

import errno
import io
import os
import re
from pathlib import Path

import numpy as np
import pytest

from cordcal.files import open_scores, read_scores, replacing
from cordcal.files.kinds import looks_like
from errors import refused

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("ant", "bee", 'the "C", wasp')


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def logits(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(20, 3))


def as_csv(path: Path, matrix: np.ndarray, header: list[str], labels: list[str]) -> None:
    lines = [",".join(f'"{cell}"' for cell in header)]
    lines += [
        ",".join([label, *map(repr, row.tolist())])
        for row, label in zip(matrix, labels, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


def test_npz_keys_are_found_by_name(tmp_path: Path, logits: np.ndarray) -> None:
    labels = logits.argmax(axis=1)
    np.savez(
        tmp_path / "a.npz", logits=logits, labels=labels, class_names=np.array(["x", "y", "z"])
    )
    scores = read_scores(tmp_path / "a.npz")
    assert scores.key == "logits"
    assert scores.kind == "logits"
    np.testing.assert_array_equal(scores.values, logits)
    np.testing.assert_array_equal(scores.labels, labels)
    assert scores.class_names == ("x", "y", "z")


def test_labels_go_with_the_chosen_key(tmp_path: Path, logits: np.ndarray) -> None:
    np.savez(
        tmp_path / "a.npz",
        cal_logits=logits,
        cal_labels=np.zeros(20, int),
        eval_logits=logits[:5],
        eval_labels=np.ones(5, int),
    )
    with refused(naming=["cal_logits", "eval_logits"], option="columns"):
        read_scores(tmp_path / "a.npz")
    assert read_scores(tmp_path / "a.npz", columns="eval_logits").labels.tolist() == [1] * 5


def test_npy_holds_scores_alone(tmp_path: Path, logits: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", logits.astype(np.float32))
    np.save(tmp_path / "y.npy", logits.argmax(axis=1))
    scores = read_scores(tmp_path / "a.npy")
    assert scores.values.dtype == np.float32
    assert scores.labels is None
    passed = read_scores(tmp_path / "a.npy", labels=str(tmp_path / "y.npy"))
    np.testing.assert_array_equal(passed.labels, logits.argmax(axis=1))


def test_csv_takes_names_from_the_header_and_labels_by_name(
    tmp_path: Path, logits: np.ndarray
) -> None:
    truth = [NAMES[index].replace('"', '""') for index in logits.argmax(axis=1)]
    header = ["truth", *(name.replace('"', '""') for name in NAMES)]
    as_csv(tmp_path / "a.csv", logits, header, [f'"{word}"' for word in truth])
    scores = read_scores(tmp_path / "a.csv", labels_column="truth")
    assert scores.class_names == NAMES
    np.testing.assert_array_equal(scores.values, logits)
    np.testing.assert_array_equal(scores.labels, logits.argmax(axis=1))


def test_csv_without_a_header(tmp_path: Path, logits: np.ndarray) -> None:
    np.savetxt(tmp_path / "a.csv", logits, delimiter=";", fmt="%.17g")
    scores = read_scores(tmp_path / "a.csv", header=False)
    assert scores.class_names is None
    np.testing.assert_array_equal(scores.values, logits)


def test_headings_that_are_other_numbers_name_the_labels(
    tmp_path: Path, logits: np.ndarray
) -> None:
    labels = [str(index + 1) for index in logits.argmax(axis=1)]
    as_csv(tmp_path / "a.csv", logits, ["label", "1", "2", "3"], labels)
    result = read_scores(tmp_path / "a.csv", columns="1,2,3")
    np.testing.assert_array_equal(result.labels, logits.argmax(axis=1))


@pytest.mark.parametrize("fixed", [True, False])
def test_parquet_list_column(tmp_path: Path, logits: np.ndarray, fixed: bool) -> None:
    kind = arrow.list_(arrow.float32(), 3) if fixed else arrow.list_(arrow.float32())
    rows = logits.astype(np.float32)
    table = arrow.table(
        {"logits": arrow.array(rows.tolist(), type=kind), "label": logits.argmax(axis=1)}
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    scores = read_scores(tmp_path / "a.parquet")
    np.testing.assert_array_equal(scores.values, rows)
    np.testing.assert_array_equal(scores.labels, logits.argmax(axis=1))


def test_parquet_columns_are_classes(tmp_path: Path, logits: np.ndarray) -> None:
    columns = {name: logits[:, index] for index, name in enumerate(NAMES)}
    truth = [NAMES[index] for index in logits.argmax(axis=1)]
    parquet.write_table(
        arrow.table({"id": range(20), **columns, "label": truth}), tmp_path / "a.pq"
    )
    scores = read_scores(tmp_path / "a.pq")
    assert scores.class_names == NAMES
    np.testing.assert_array_equal(scores.values, logits)
    np.testing.assert_array_equal(scores.labels, logits.argmax(axis=1))


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, stopped_by: type) -> None:
    path = tmp_path / "out.npz"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise stopped_by

    with pytest.raises(stopped_by):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_called_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "no" / "x.npz"
    words = f"{path} cannot be written: the folder {path.parent} does not exist"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(words)}$"), replacing(path):
        pass
    with pytest.raises(IsADirectoryError, match=r"is a folder; name a file in it$"):
        replacing(tmp_path).__enter__()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), ".x.npz.abc")

    monkeypatch.setattr("cordcal.files.disk.open_private", full)
    with pytest.raises(OSError, match=r"/x\.npz cannot .* takes no new file \(No space left"):
        replacing(tmp_path / "x.npz").__enter__()


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (lambda path: path.write_bytes(b""), "holds no matrix of scores"),
        (lambda path: path.write_text("<html><p>hello</p></html>"), "is an HTML page"),
        (lambda path: path.write_bytes(b"PK\x03\x04 cut"), "cannot be read as a zip archive"),
        (lambda path: path.write_bytes(b"PAR1 cut"), "cannot be read as Parquet"),
        (lambda path: path.write_bytes(b"\x93NUMPY"), "cannot be read as a NumPy file"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00\x01"), "is UTF-16 text"),
        (lambda path: path.write_text("p_a,p_b\n1,2\n3,x\n"), "row 1 has 'x' in a column"),
        (lambda path: path.write_text('a,b\n"' + "1,2\n" * 50_000), "is never closed"),
        (lambda path: path.write_text("a,a\n1,2\n"), "has two columns called 'a'"),
        (lambda path: path.write_text("p_a,p_b\n1,nan\n"), "row 0 contains NaN"),
    ],
)
def test_wrong_files(tmp_path: Path, save, message: str) -> None:
    save(tmp_path / "bad")
    with pytest.raises(ValueError, match=message):
        read_scores(tmp_path / "bad")


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("row", [0, 6])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda line: "99," + line, "has {more} cells but the first line {width}"),
        (lambda line: line.rpartition(",")[0], "has {less} cells but the first line {width}"),
        (lambda line: "," + line.partition(",")[2], "contains NaN"),
    ],
)
def test_a_spoiled_csv_row_has_one_number(
    tmp_path: Path, rng: np.random.Generator, words: bool, row: int, spoil, message: str
) -> None:
    width = 10 + words
    lines = [",".join([f"c{index}" for index in range(10)] + ["note"] * words)]
    lines += [
        ",".join([*map(repr, scores.tolist()), *["fine"] * words])
        for scores in rng.normal(size=(12, 10))
    ]
    lines[row + 1] = spoil(lines[row + 1])
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    where = f"row {row} "
    result = message.format(width=width, more=width + 1, less=width - 1)
    with pytest.raises(ValueError, match=where + result):
        read_scores(tmp_path / "a.csv")


def test_an_empty_csv_cell_is_nan(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("p_ant,p_bee\n,\n0.5,2.5\n3.5,\n")
    file = open_scores(tmp_path / "a.csv")
    assert file.class_names == ("ant", "bee")
    (batch,) = file
    np.testing.assert_array_equal(batch.values, [[np.nan] * 2, [0.5, 2.5], [3.5, np.nan]])


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", scores=np.array([{"cat": -0.1}], dtype=object))
    with refused(f"{tmp_path / 'a.npz'} (scores)"):
        read_scores(tmp_path / "a.npz")


def test_pickled_objects_next_to_the_scores_are_ignored(tmp_path: Path) -> None:
    plain = {"probs": np.full((2, 2), 0.5), "labels": np.array([0, 1])}
    folds = np.array(["Fold1", "Fold2"], dtype=object)
    np.savez(tmp_path / "a.npz", **plain, fold=folds)
    assert read_scores(tmp_path / "a.npz").labels is not None
    np.savez(tmp_path / "b.npz", probs=plain["probs"], labels=folds)
    with refused(f"{tmp_path / 'b.npz'} (labels)"):
        read_scores(tmp_path / "b.npz")


def test_missing_key_lists_what_is_there(tmp_path: Path, logits: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", logits=logits)
    with refused(str(tmp_path / "a.npz"), naming=["'probs'", "logits (20, 3)"]):
        read_scores(tmp_path / "a.npz", columns="probs")
    with refused(str(tmp_path / "a.npz"), naming="'truth'"):
        read_scores(tmp_path / "a.npz", labels_column="truth")
    with refused("truth", option="labels_column"):
        read_scores(tmp_path / "a.npz", labels="truth")


@pytest.mark.parametrize("logarithms", [True, False])
def test_top_k_lists_are_refused(
    tmp_path: Path, rng: np.random.Generator, logarithms: bool
) -> None:
    whole = np.sort(rng.dirichlet(np.full(50, 0.1), size=40), axis=1)[:, ::-1]
    top = np.log(whole[:, :5]) if logarithms else whole[:, :5]
    np.savez(tmp_path / "a.npz", scores=top)
    with refused(f"{tmp_path / 'a.npz'} (scores)", naming="top-5"):
        read_scores(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("labels", "rows", "facts"),
    [
        ([0, 1, 3], [2], ["3", "0..2"]),
        ([0, 1, -1], [2], ["-1"]),
        ([1.0, 2.0, 3.0], [2], ["3", "0..2", "subtract 1"]),
        ([0.0, 0.5, 1.0], [1], ["0.5"]),
        ([0.0, np.nan, 1.0], [1], ["no label"]),
        ([0, 1], [], ["2 entries of labels", "3 rows"]),
        (["a", "b", "c"], [], ["words"]),
    ],
)
def test_labels_that_do_not_fit(
    tmp_path: Path, labels: list, rows: list[int], facts: list[str]
) -> None:
    np.savez(tmp_path / "a.npz", scores=np.eye(3), labels=np.array(labels))
    with refused(rows=rows, naming=facts):
        read_scores(tmp_path / "a.npz")


def test_unknown_label_word(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,p_ant,p_bee\nant,1,2\nfly,3,4\n")
    with refused(rows=[1], naming="'fly'"):
        read_scores(tmp_path / "a.csv")


def test_stdin(monkeypatch: pytest.MonkeyPatch, logits: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, logits)
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": io.BytesIO(buffer.getvalue())}))
    np.testing.assert_array_equal(read_scores("-").values, logits)


def test_the_kind_of_the_real_sets(real_set) -> None:
    assert looks_like(real_set.scores) == real_set.kind
