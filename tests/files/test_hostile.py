"""Files that are damaged, foreign, without end or far larger than they look."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cordcal.files import inspect, open_scores, read_scores
from errors import refused

SCORES = np.arange(12.0).reshape(4, 3)
LIMIT = "CORDCAL_READ_LIMIT"


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def words_of(read: Callable[[Path], object], path: Path) -> str:
    """Return what is found, or the sentence; any other error is a traceback."""
    try:
        return f"{path}: {read(path)}"
    except ValueError as error:
        return str(error)


def both(path: Path, fact: str) -> None:
    """Refuse a file in either way of reading, in one sentence that names it."""
    for read in (read_scores, open_scores):
        with refused(naming=[path.name, fact]) as caught:
            read(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_damaged_npz(tmp_path: Path, at: int) -> None:
    data = bytearray(npz(tmp_path / "s.npz", logits=SCORES, labels=np.arange(4) % 3).read_bytes())
    data[at % len(data)] ^= 0xFF
    path = tmp_path / "s.npz"
    path.write_bytes(data)
    for read in (read_scores, open_scores):
        assert "s.npz" in words_of(read, path)


def test_a_npz_cut_short(tmp_path: Path) -> None:
    path = npz(tmp_path / "s.npz", logits=SCORES)
    path.write_bytes(path.read_bytes()[:-30])
    both(path, "truncated")


def test_an_encrypted_zip(tmp_path: Path) -> None:
    path = npz(tmp_path / "s.npz", logits=SCORES)
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag, in the local header and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    both(path, "encrypted")


def test_a_foreign_zip(tmp_path: Path) -> None:
    path = tmp_path / "book.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<xml/>")
    both(path, "Excel workbook")


@pytest.mark.parametrize(
    ("array", "fact"),
    [
        (np.empty((4, 0)), "0 class(es)"),
        (np.empty((0, 3)), "no rows"),
        (np.zeros((4, 3), "V8"), "dtype is |V8"),
        (np.zeros((4, 3), [("a", "f8")]), "dtype"),
        (np.zeros((4, 3), "V0"), "dtype"),
        (np.zeros((4, 3), "M8[s]"), "dtype"),
    ],
)
def test_a_npy_without_numbers(tmp_path: Path, array: np.ndarray, fact: str) -> None:
    path = tmp_path / "s.npy"
    np.save(path, array)
    with refused(naming=["s.npy", fact]):
        open_scores(path)
    with refused(naming="s.npy"):
        read_scores(path)
    assert "s.npy" in words_of(inspect, path)


def bomb(path: Path, key: str, rows: int) -> Path:
    """Make an archive whose array is 24 bytes a row, of which nothing is there."""
    head = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (rows, 3)}
    np.lib.format.write_array_header_1_0(head, shape)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{key}.npy", head.getvalue())
    return path


def test_a_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    both(bomb(tmp_path / "s.npz", "logits", 2**33), "206.2 GB")


def test_what_is_not_needed_is_not_read(tmp_path: Path) -> None:
    path = npz(tmp_path / "s.npz", logits=SCORES)
    for key in ("other", "more"):
        bomb(path, key, 2**33)
    np.testing.assert_array_equal(read_scores(path).values, SCORES)
    np.testing.assert_array_equal(next(iter(open_scores(path))).values, SCORES)
    result = inspect(path)
    assert [entry["name"] for entry in result["entries"]] == ["logits", "other", "more"]
    assert len([problem for problem in result["problems"] if "206.2 GB" in problem]) == 2


def test_the_limit_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [npz(tmp_path / "s.npz", logits=SCORES), tmp_path / "s.csv"]
    paths[1].write_text("p_a,p_b\n" + "0.5,0.5\n" * 20)
    for path in paths:
        monkeypatch.setenv(LIMIT, "95")
        with refused(naming=[path.name, LIMIT]):
            read_scores(path)
        monkeypatch.setenv(LIMIT, "1000")
        assert len(read_scores(path).values)
    monkeypatch.setenv(LIMIT, "a lot")
    with refused(naming="'a lot'"):
        read_scores(paths[1])


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        for read in (read_scores, open_scores, inspect):
            with refused(str(path)):
                read(path)
