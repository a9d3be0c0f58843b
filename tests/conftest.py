"""Shared fixtures: fixture files, real outputs if there are any, settings, and the command."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# They import inspect-ai and fastparquet, which only writing these files again needs.
collect_ignore = ["data/inspect/write_logs.py", "data/tables/make_fastparquet.py"]

HERE = Path(__file__).parent


def pytest_configure() -> None:
    """Hear Ctrl-C, as the processes that tests interrupt must: a job in the background does not."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class RealSet:
    """One real classifier output: scores as stored, their kind, and labels."""

    name: str
    scores: np.ndarray
    kind: str  # "logits" or "probabilities"
    labels: np.ndarray
    place: int = 0  # among the real outputs

    def probabilities(self) -> np.ndarray:
        scores = self.scores.astype(np.float64)
        if self.kind == "logits":
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)


def real_set_names() -> list[str]:
    """Return the names of the real outputs, none where CORDCAL_TEST_DATA is not set."""
    folder = os.environ.get("CORDCAL_TEST_DATA")
    if not folder:
        return []
    names = sorted(path.stem for path in Path(folder).glob("*.npz"))
    return [name for name in names if not name.endswith("_features")]


def load_real_set(name: str) -> RealSet:
    with np.load(Path(os.environ["CORDCAL_TEST_DATA"]) / f"{name}.npz") as data:
        kind = "logits" if "logits" in data else "probabilities"
        scores = data["logits" if kind == "logits" else "probs"]
        labels = data["labels"].astype(np.int64)
    return RealSet(name, scores, kind, labels, place=real_set_names().index(name))


def real_set_params() -> list[Any]:
    """Return a parameter per real output; by default one per data set and source is tested."""
    params, groups = [], set()
    for name in real_set_names():
        group = tuple(name.split("_")[:2])
        marks = (pytest.mark.exhaustive,) if group in groups else ()
        params.append(pytest.param(name, marks=marks, id=name))
        groups.add(group)
    return params or ["none"]


@pytest.fixture(params=real_set_params())
def real_set(request: pytest.FixtureRequest) -> RealSet:
    """Each real output in turn."""
    if request.param == "none":
        pytest.skip("CORDCAL_TEST_DATA is not set; the real outputs are not part of the project")
    return load_real_set(request.param)


@pytest.fixture
def real_data() -> Path:
    """The folder of real outputs."""
    folder = os.environ.get("CORDCAL_TEST_DATA")
    if not folder:
        pytest.skip("CORDCAL_TEST_DATA is not set; the real outputs are not part of the project")
    return Path(folder)


@pytest.fixture
def batch_bytes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how many bytes of scores are read as one batch."""
    return partial(monkeypatch.setattr, "cordcal.files.scores.BATCH_BYTES")


@pytest.fixture
def block_entries(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how many entries are worked on as one block of rows."""
    from internals import set_block_entries

    return partial(set_block_entries, monkeypatch)


@pytest.fixture
def thread_entries(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how many entries are worth a thread of their own."""
    return partial(monkeypatch.setattr, "cordcal._numeric.parallel.THREAD_ENTRIES")


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Call the command in this process; return its exit code, stdout and stderr."""
    from cordcal.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", lambda *_, **__: None)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture(scope="session")
def fixture_folder() -> Path:
    """The small fixture files that belong to the project."""
    return HERE / "data"


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a matrix as one column of fixed-size lists, in row groups, or as npy."""

    def write(name: str, matrix: np.ndarray, *, key: str = "logits", group: int = 100) -> Path:
        path = tmp_path / name
        if path.suffix == ".npy":
            np.save(path, matrix)
            return path
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        flat = arrow.array(np.ascontiguousarray(matrix).reshape(-1))
        column = arrow.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
        parquet.write_table(arrow.table({key: column}), path, row_group_size=group)
        return path

    return write
