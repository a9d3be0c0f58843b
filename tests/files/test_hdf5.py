"""HDF5: data sets by their paths, with the labels of their folder; nothing of other files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from cordcal.files import inspect, open_scores, read_scores
from errors import refused

h5py = pytest.importorskip("h5py", reason="HDF5 files need h5py")


@pytest.fixture
def probas() -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(4), 30)


@pytest.fixture
def arena(tmp_path: Path, probas: np.ndarray) -> Path:
    """Outputs of two classifiers, each with calibration and test rows."""
    path = tmp_path / "arena.h5"
    with h5py.File(path, "w") as file:
        for at, model in enumerate(("forest", "net")):
            group = file.create_group(f"letters/{model}")
            for part, rows in (("cal", slice(0, 20)), ("test", slice(20, 30))):
                group[f"probas_{part}"] = np.roll(probas, at, axis=1)[rows]
                labels = np.roll(probas, at, axis=1)[rows].argmax(axis=1)
                group.create_dataset(f"labels_{part}", data=labels, compression="gzip")
    return path


def test_a_classifier_by_its_path(arena: Path, probas: np.ndarray) -> None:
    result = read_scores(arena, columns="letters/net/probas_test")
    np.testing.assert_array_equal(result.values, np.roll(probas, 1, axis=1)[20:])
    np.testing.assert_array_equal(result.labels, result.values.argmax(axis=1))
    (batch,) = open_scores(arena, columns="letters/forest/probas_cal")
    np.testing.assert_array_equal(batch.values, probas[:20])
    np.testing.assert_array_equal(batch.labels, probas[:20].argmax(axis=1))


def test_several_must_be_chosen_from(arena: Path) -> None:
    with refused(naming="letters/forest/probas_cal", option="columns"):
        read_scores(arena)
    shapes = {entry["name"]: entry["shape"] for entry in inspect(arena)["entries"]}
    assert shapes["letters/net/probas_test"] == "10 rows × 4 classes"


def test_from_stdin_with_class_names(
    tmp_path: Path, probas: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["probs"] = probas
        file["class_names"] = ["a", "b", "ç", "d"]
        file["label"] = np.array(["b"] * 30, dtype="S1")
    data = (tmp_path / "s.h5").read_bytes()
    stdin = type("Stdin", (), {"buffer": io.BytesIO(data)})
    monkeypatch.setattr("sys.stdin", stdin)
    result = read_scores("-")
    assert result.class_names == ("a", "b", "ç", "d")
    assert set(result.labels.tolist()) == {1}


def test_what_lies_in_other_files_is_not_there(tmp_path: Path, probas: np.ndarray) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = probas
    (tmp_path / "raw").write_bytes(probas.tobytes())
    virtual = h5py.VirtualLayout(shape=probas.shape, dtype=probas.dtype)
    virtual[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "data", shape=probas.shape)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["probs"] = probas
        file["linked"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "data")
        file.create_virtual_dataset("virtual", virtual)
        place = [(str(tmp_path / "raw"), 0, probas.nbytes)]
        file.create_dataset("outside", probas.shape, probas.dtype, external=place)
        file["loop"] = h5py.SoftLink("/")
        file.create_dataset("rows", data=np.zeros(30, [("a", "f8")]))
    assert [entry["name"] for entry in inspect(tmp_path / "s.h5")["entries"]] == ["probs"]


def test_a_data_set_that_says_it_is_large(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("probs", (2**33, 4), "f8", chunks=(1024, 4))
    with refused(f"{tmp_path / 's.h5'} (probs)", naming="274.9 GB"):
        read_scores(tmp_path / "s.h5")


@pytest.mark.parametrize("size", [9, 100, 2000])
def test_a_file_that_was_cut_short(arena: Path, size: int) -> None:
    arena.write_bytes(arena.read_bytes()[:size])
    for read in (read_scores, open_scores, inspect):
        with refused(str(arena), naming="HDF5"):
            read(arena)


def test_text_storage_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as file:
        file["logits"], file["class_names"] = np.eye(3), ["a", "b", "c"]
    data = path.read_bytes()
    collection = data.index(b"GCOL")
    # Three entries of 24 bytes, then the free space: its size of 0 makes libhdf5 loop.
    free = collection + 16 + 3 * 24
    assert data[free : free + 2] == bytes(2)
    path.write_bytes(data[: free + 8] + bytes(8) + data[free + 16 :])
    for read in (read_scores, open_scores):
        with refused(f"{path} (class_names)", rows=[]):
            read(path)
