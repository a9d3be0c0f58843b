"""Values that a format can hold and an array of scores cannot: an error, or the numbers."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from cordcal.files import inspect, open_scores, read_scores

LOGITS = np.random.default_rng(5).normal(size=(20, 3))
LABELS = np.arange(20) % 3
LIMIT = "CORDCAL_READ_LIMIT"


def batches(path: Path) -> list[Any]:
    return list(open_scores(path))


def refused(path: Path, reason: str, rows: tuple[int, ...] = ()) -> None:
    """Ask every reader for one sentence that names the file."""
    for read in (read_scores, batches):
        with pytest.raises(cordcal.InputError) as error:
            read(path)
        assert path.name in error.value.argument
        assert reason in str(error.value)
        assert "\n" not in str(error.value)
        assert error.value.rows.tolist() == list(rows)


# --- torch ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda torch, logits: torch.zeros(20, 3, device="meta"), "meta tensor"),
        (
            lambda torch, logits: torch.quantize_per_tensor(logits, 0.1, 0, torch.qint8),
            "quantized tensor",
        ),
        (lambda torch, logits: torch.nested.nested_tensor([logits, logits]), "nested tensor"),
        (lambda torch, logits: logits.to(torch.complex64), "complex64"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_numbers(
    tmp_path: Path, make: Callable[[Any, Any], Any], reason: str
) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "s.pt"
    torch.save({"logits": make(torch, torch.tensor(LOGITS, dtype=torch.float32))}, path)
    refused(path, reason)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_short_floats_are_read_exactly(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    short = torch.tensor(LOGITS).to(getattr(torch, name))
    torch.save({"logits": short}, tmp_path / "s.pt")
    result = read_scores(tmp_path / "s.pt").values
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, short.float().numpy())


@pytest.mark.parametrize("layout", ["expanded", "sparse", "two"])
@pytest.mark.filterwarnings("ignore")
def test_the_limit_counts_what_tensors_grow_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    torch = pytest.importorskip("torch")
    expanded = torch.zeros(1, 3).expand(100_000, 3)  # 1.2 MB of a dozen bytes
    content = {
        "expanded": {"logits": expanded},
        "sparse": {"logits": expanded.to_sparse()},
        "two": {"logits": expanded[:60_000], "more": expanded[:60_000]},
    }[layout]
    path = tmp_path / "s.pt"
    torch.save(content, path)
    assert path.stat().st_size < 10_000
    monkeypatch.setenv(LIMIT, str(10**6))
    refused(path, LIMIT)
    monkeypatch.setenv(LIMIT, str(2 * 10**6))
    assert read_scores(path, columns="logits").values.shape[1] == 3


# --- NumPy and HDF5 ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(-20, 3), (20, -3), (-20, -3), (True, 3)])
def test_a_shape_that_is_none(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "s.npy"
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(LOGITS.tobytes())
    refused(path, "its shape is")
    with pytest.raises(cordcal.InputError, match="its shape is"):
        inspect(path)
    with zipfile.ZipFile(tmp_path / "s.npz", "w") as archive:
        archive.write(path, "logits.npy")
    refused(tmp_path / "s.npz", "its shape is")


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="it is a double here")
def test_numbers_longer_than_doubles(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", LOGITS.astype(np.longdouble))
    refused(tmp_path / "s.npy", "its dtype is")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["logits"] = LOGITS.astype(np.longdouble)
    refused(tmp_path / "s.h5", "holds no matrix of scores")


# --- JSONL ---------------------------------------------------------------------------------


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("value", [True, False, "1", "1.5", [1.0], {"a": 1}])
@pytest.mark.parametrize("at", [1, 7, 19])
def test_what_is_not_a_number_in_a_later_row(tmp_path: Path, value: Any, at: int) -> None:
    rows = [{"logits": row.tolist()} for row in LOGITS]
    rows[at]["logits"][2] = value
    path = lines(tmp_path / "lists.jsonl", rows)
    refused(path, "list of numbers", (at,))
    wide = [dict(zip(("p_ant", "p_bee", "p_cat"), row["logits"], strict=True)) for row in rows]
    path = lines(tmp_path / "wide.jsonl", wide)
    refused(path, "(p_cat): row", (at,))


def test_null_is_a_missing_number(tmp_path: Path) -> None:
    rows = [{"logits": row.tolist()} for row in LOGITS]
    rows[4]["logits"][1] = None
    (batch,) = open_scores(lines(tmp_path / "s.jsonl", rows))
    assert np.isnan(batch.values).sum() == 1
    refused_rows = pytest.raises(cordcal.InputError)
    with refused_rows as error:
        read_scores(tmp_path / "s.jsonl")
    assert error.value.rows.tolist() == [4]


@pytest.mark.parametrize("label", [2**70, -(2**70), 10**400, True, [1], None])
def test_a_label_that_is_not_a_class(tmp_path: Path, label: Any) -> None:
    rows = [
        {"logits": row.tolist(), "label": int(truth)}
        for row, truth in zip(LOGITS, LABELS, strict=True)
    ]
    rows[5]["label"] = label
    path = lines(tmp_path / "s.jsonl", rows)
    for read in (read_scores, batches):
        with pytest.raises(cordcal.InputError, match="label"):
            read(path)
    assert inspect(path)["problems"]


def test_labels_that_are_all_truth_values(tmp_path: Path) -> None:
    rows = [{"logits": row[:2].tolist(), "label": bool(row[0] > 0)} for row in LOGITS]
    result = read_scores(lines(tmp_path / "s.jsonl", rows)).labels
    np.testing.assert_array_equal(result, LOGITS[:, 0] > 0)


# --- Arrow ---------------------------------------------------------------------------------


def tables(folder: Path, columns: dict[str, Any]) -> list[Path]:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = arrow.table({**columns, "label": LABELS})
    parquet.write_table(table, folder / "s.parquet")
    feather.write_feather(table, folder / "s.feather")
    return [folder / "s.parquet", folder / "s.feather"]


def test_categories_and_decimals_of_numbers_are_scores(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    exact = np.round(LOGITS, 2)
    columns = dict(zip(("p_ant", "p_bee", "p_cat"), exact.T, strict=True))
    decimals = {
        name: arrow.array([Decimal(f"{value:.2f}") for value in column])
        for name, column in columns.items()
    }
    encoded = {name: arrow.array(column) for name, column in columns.items()}
    encoded["p_bee"] = encoded["p_bee"].dictionary_encode()
    halves = {name: arrow.array(column.astype(np.float16)) for name, column in columns.items()}
    for kind, expected in ((decimals, exact), (encoded, exact), (halves, exact.astype(np.float16))):
        for path in tables(tmp_path, kind):
            result = read_scores(path)
            assert result.class_names == ("ant", "bee", "cat")
            np.testing.assert_array_equal(result.values, expected)
            (batch,) = batches(path)
            np.testing.assert_array_equal(batch.values, expected)


def test_a_decimal_next_to_floats_is_an_amount(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    columns = dict(zip(("p_ant", "p_bee", "p_cat"), LOGITS.T, strict=True))
    price = arrow.array([Decimal("9.99")] * 20)
    for path in tables(tmp_path, {"price": price, **columns}):
        assert read_scores(path).class_names == ("ant", "bee", "cat")


@pytest.mark.parametrize(
    "cell", [[[1.0, 2.0]], {"a": 1.0, "b": 2.0}, [1.0, None, 2.0], "text", b"bytes", True, None]
)
def test_columns_that_hold_no_scores(tmp_path: Path, cell: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    for path in tables(tmp_path, {"logits": arrow.array([cell] * 20)}):
        with pytest.raises(cordcal.InputError):
            read_scores(path)
        inspect(path)


# --- parts ---------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_a_dangling_link_among_parts_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for name in ("a.npy", "b.npy"):
        np.save(folder / name, LOGITS)
    (tmp_path / "elsewhere.bin").write_bytes((folder / "b.npy").read_bytes())
    (folder / "c.npy").symlink_to(tmp_path / "elsewhere.bin")
    assert read_scores(folder).values.shape == (60, 3)
    (folder / "d.npy").symlink_to(folder / "gone.npy")
    (folder / "_mark").symlink_to(folder / "gone.npy")  # not a part
    for path in (folder, folder / "*.npy", tmp_path / "**" / "*.npy"):
        for read in (read_scores, open_scores):
            with pytest.raises(cordcal.InputError, match="does not exist") as error:
                read(path)
            assert error.value.argument.endswith("d.npy")


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_a_link_to_a_folder_among_parts_is_named(tmp_path: Path) -> None:
    for name in ("parts", "more"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / f"{name}.npy", LOGITS)
    (tmp_path / "parts" / "day=2").symlink_to(tmp_path / "more")
    for read in (read_scores, open_scores):
        with pytest.raises(cordcal.InputError, match="is a link to a folder") as error:
            read(tmp_path / "parts")
        assert error.value.argument.endswith("day=2")


def test_damaged_feather_files_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    rng = np.random.default_rng(0)
    path = tmp_path / "s.feather"
    table = pyarrow.table({"logits": pyarrow.array(rng.normal(size=(40, 3)).tolist())})
    feather.write_feather(table, path, compression="uncompressed", chunksize=10)
    data = bytearray(path.read_bytes())
    offsets = np.arange(0, 33, 3, dtype=np.int32).tobytes()
    at = bytes(data).index(offsets)
    data[at + 40 : at + 44] = (10**6).to_bytes(4, "little")  # a list that ends beyond the values
    path.write_bytes(bytes(data))
    with pytest.raises(cordcal.InputError):
        read_scores(path)
    with pytest.raises(cordcal.InputError):
        list(open_scores(path))
