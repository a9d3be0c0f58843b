"""torch, Feather and JSONL files, folders and patterns of parts: the same rows as from npz."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cordcal.files import inspect, open_scores, read_scores
from errors import refused

arrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("ant", "bee", "cat")
ROWS = 300


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, 3))


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(1).integers(3, size=ROWS)


def as_lists(matrix: np.ndarray) -> object:
    return arrow.FixedSizeListArray.from_arrays(arrow.array(matrix.reshape(-1)), matrix.shape[1])


def write(path: Path, logits: np.ndarray, labels: np.ndarray, layout: str = "list") -> Path:
    truth = [NAMES[label] for label in labels]
    wide = {name: logits[:, at] for at, name in enumerate(NAMES)}
    if path.suffix in (".feather", ".parquet"):
        scores = wide if layout == "wide" else {"logits": as_lists(logits)}
        table = arrow.table({"id": range(len(labels)), **scores, "label": truth})
        table = table.replace_schema_metadata({"class_names": json.dumps(NAMES)})
        if path.suffix == ".feather":
            feather.write_feather(table, path, chunksize=70)
        else:
            parquet.write_table(table, path, row_group_size=70)
    elif path.suffix == ".jsonl":
        rows = [
            {
                "id": at,
                **({"logits": row} if layout == "list" else dict(zip(NAMES, row, strict=True))),
                "label": word,
            }
            for at, (row, word) in enumerate(zip(logits.tolist(), truth, strict=True))
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".pt":
        torch = pytest.importorskip("torch", reason="torch files need torch")
        tensors = {"logits": torch.tensor(logits), "labels": torch.tensor(labels)}
        torch.save({**tensors, "class_names": list(NAMES), "epoch": 7}, path)
    else:
        header = "id,ant,bee,cat,label"
        lines = [
            ",".join([str(at), *map(repr, row), word])
            for at, (row, word) in enumerate(zip(logits.tolist(), truth, strict=True))
        ]
        path.write_text("\n".join([header, *lines]) + "\n")
    return path


def rows_of(file: object) -> np.ndarray:
    return np.concatenate([batch.values for batch in file])  # type: ignore[attr-defined]


@pytest.mark.parametrize("layout", ["list", "wide"])
@pytest.mark.parametrize("suffix", ["feather", "jsonl", "pt"])
def test_whole_and_in_pieces(
    tmp_path: Path,
    logits: np.ndarray,
    labels: np.ndarray,
    suffix: str,
    layout: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cordcal.files.scores.BATCH_BYTES", 1024)
    path = write(tmp_path / f"s.{suffix}", logits, labels, layout)
    # Lists have no names for their entries.
    where = {"class_names": NAMES} if layout == "list" and suffix != "pt" else {}
    whole, opened = read_scores(path, **where), open_scores(path, **where)
    np.testing.assert_array_equal(whole.values, logits)
    np.testing.assert_array_equal(whole.labels, labels)
    assert whole.class_names == opened.class_names == NAMES
    assert len(list(opened)) > 5
    np.testing.assert_array_equal(rows_of(opened), logits)
    np.testing.assert_array_equal(np.concatenate([block.labels for block in opened]), labels)
    description = inspect(path)
    assert description["format"] == {"pt": "torch"}.get(suffix, suffix)
    assert f"{ROWS} rows × 3 classes" in [entry.get("shape") for entry in description["entries"]]


@pytest.mark.parametrize("suffix", ["feather", "jsonl"])
def test_from_stdin(
    tmp_path: Path,
    logits: np.ndarray,
    labels: np.ndarray,
    suffix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = write(tmp_path / f"s.{suffix}", logits, labels, "wide").read_bytes()
    for read in (read_scores, open_scores):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        assert read("-").class_names == NAMES


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "jsonl"])
@pytest.mark.parametrize("pattern", ["", "/part-*"])
def test_parts_are_one_input(
    tmp_path: Path, logits: np.ndarray, labels: np.ndarray, suffix: str, pattern: str
) -> None:
    folder = tmp_path / "parts"
    (folder / "day=1").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    edges = [0, 90, 90, 300]  # the second has no rows
    for at in range(3):
        rows = slice(edges[at], edges[at + 1])
        write(folder / f"part-{at}.{suffix}", logits[rows], labels[rows], "wide")
    where = f"{folder}{pattern}"
    whole, opened = read_scores(where), open_scores(where)
    np.testing.assert_array_equal(whole.values, logits)
    np.testing.assert_array_equal(whole.labels, labels)
    np.testing.assert_array_equal(rows_of(opened), logits)
    assert f"{ROWS} rows × 3 classes" in [entry.get("shape") for entry in inspect(where)["entries"]]
    for rows in (1, 89, 91):
        np.testing.assert_array_equal(rows_of(opened.batches(rows)), logits)


def test_parts_of_several_kinds(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    write(tmp_path / "a.csv", logits, labels)
    write(tmp_path / "b.parquet", logits, labels)
    with refused(str(tmp_path), naming=[".csv", ".parquet"]):
        read_scores(tmp_path)
    assert len(read_scores(tmp_path / "*.csv").values) == ROWS
    with pytest.raises(FileNotFoundError):
        read_scores(tmp_path / "no" / "a.csv")
    with refused(str(tmp_path / "*.npz")):
        read_scores(tmp_path / "*.npz")


def test_a_part_that_lacks_a_column(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    write(tmp_path / "a.parquet", logits, labels)
    parquet.write_table(arrow.table({"probs": as_lists(logits)}), tmp_path / "b.parquet")
    for read in (read_scores, open_scores):
        with refused(naming=["b.parquet", "'logits'"]):
            read(tmp_path)


@pytest.mark.parametrize(
    ("text", "row", "fact"),
    [
        ('{"a": 1, "b": 2}\n[1, 2]\n', 1, "JSON object"),
        ('{"a": 1, "b": 2}\n{"a": 1,\n', 1, "JSON object"),
        ('[{"a": 1}, {"a": 2}]', 0, "JSON object"),
        ('{"s": [1, 2]}\n\n{"s": [1]}\n', 1, "(s)"),
        ('{"s": [1, 2]}\n{"t": 3}\n', 1, "missing"),
        ('{"p_a": 0.1, "p_b": 2}\n{"p_a": "x", "p_b": 1}\n', 1, "number"),
        ('{"s": [1, 2]}\n{"s": [1, {}]}\n', 1, "number"),
    ],
)
def test_lines_that_are_no_scores(tmp_path: Path, text: str, row: int, fact: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    for read in (read_scores, lambda path: rows_of(open_scores(path))):
        with refused(rows=[row], naming=["s.jsonl", fact]):
            read(path)


def test_numbers_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch files need torch")
    path = tmp_path / "s.pt"
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        torch.save(torch.tensor([[0.25, 0.75]], dtype=dtype, requires_grad=True), path)
        assert read_scores(path).values.tolist() == [[0.25, 0.75]]
    torch.save((torch.zeros(4, 3), torch.arange(4) % 3), path)
    assert [entry["name"] for entry in inspect(path)["entries"]] == ["0", "1"]
    assert read_scores(path, labels_column="1").labels.tolist() == [0, 1, 2, 0]
    torch.save({"cal": {"logits": torch.zeros(4, 3), "labels": torch.zeros(4)}}, path)
    assert read_scores(path).labels.tolist() == [0] * 4


class Evil:
    """What runs code where it is unpickled."""

    def __reduce__(self) -> tuple:
        return (Path("pwned").touch, ())


def test_code_in_a_torch_file_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch files need torch")
    monkeypatch.chdir(tmp_path)
    for legacy in (False, True):
        torch.save({"logits": Evil()}, "s.pt", _use_new_zipfile_serialization=not legacy)
        for read in (read_scores, open_scores, inspect):
            with refused("s.pt"):
                read("s.pt")
    torch.save(torch.nn.Linear(2, 2), "s.pt")
    with refused("s.pt"):
        read_scores("s.pt")
    assert not Path("pwned").exists()


@pytest.mark.parametrize("suffix", ["feather", "pt"])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_cut_short(
    tmp_path: Path, logits: np.ndarray, labels: np.ndarray, suffix: str, share: float
) -> None:
    path = write(tmp_path / f"s.{suffix}", logits, labels)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    for read in (read_scores, open_scores, inspect):
        with refused(naming=path.name):
            read(path)
