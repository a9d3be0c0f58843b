"""Which engine is used when: results do not depend on it, and small work never waits for one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import random_pair, with_zeros

from cordcal.repair import CORD, dispatch, kernels
from cordcal.repair.dispatch import engine_for
from errors import refused

CASE = with_zeros(random_pair(3000, 12, noise=2.0))
BATCHES = list(zip(np.split(CASE.original, 10), np.split(CASE.direct, 10), strict=True))


class FreshProcess:
    """A process that has no kernels yet."""

    def __init__(self) -> None:
        self.prepared = set[str]()
        self.engines: list[str] = []
        self._engine = kernels.engine

    def engine(self, job: Any, *arguments: Any, prepare: bool) -> Any:
        if prepare:
            self.prepared.add(job)
        return self._engine(job, *arguments, prepare=True) if job in self.prepared else None

    def engine_for(self, *arguments: Any, **options: Any) -> Any:
        engine = engine_for(*arguments, **options)
        self.engines.append(engine.__name__.rsplit(".", 1)[-1])
        return engine


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FreshProcess]:
    """Return a function that makes this process a fresh one, with a threshold of its own."""

    def make(threshold: int) -> FreshProcess:
        process = FreshProcess()
        monkeypatch.setenv("CORDCAL_ENGINE", "auto")
        monkeypatch.setattr(dispatch, "_work_done", dispatch._WorkDone())
        monkeypatch.setattr(dispatch, "KERNEL_WORK", threshold)
        monkeypatch.setattr(kernels, "engine", process.engine)
        for module in ("construction", "cord", "dispatch"):
            monkeypatch.setattr(f"cordcal.repair.{module}.engine_for", process.engine_for)
        return process

    return make


def construct_and_stream(preserve: Any) -> tuple[Any, np.ndarray]:
    cord = CORD(preserve, threads=1).construct(BATCHES)
    return cord.construction_, np.concatenate([cord.transform(*batch) for batch in BATCHES])


@pytest.mark.parametrize("preserve", [1, 3, "ranking"])
def test_crossing_the_threshold_changes_no_bit(
    preserve: Any, fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("CORDCAL_ENGINE", "array")
        construction, repaired = construct_and_stream(preserve)
    # In the middle of the description or the levels, and in the stream.
    work = 3000 * (12 + dispatch.ROW_WORK)
    for share in (0.55, 1.0, 2.5, 12.0):
        process = fresh(int(share * work))
        record, rows = construct_and_stream(preserve)
        assert record == construction
        np.testing.assert_array_equal(rows, repaired)
        if preserve == 1 and share < 2.0:
            assert set(process.engines) == {"numpy_engine", "_engine"}


def test_small_work_stays_on_arrays(fresh: Any) -> None:
    process = fresh(2**24)
    construct_and_stream(1)
    assert set(process.engines) == {"numpy_engine"}


def test_requests_never_wait_for_kernels(fresh: Any) -> None:
    cord = CORD().fit(CASE.original, CASE.direct)
    row = 12 + dispatch.ROW_WORK
    process = fresh(256 * (row + 1))
    for _ in range(300):
        cord.transform(CASE.original[:1], CASE.direct[:1])
    assert not process.prepared
    process = fresh(256 * row)
    for _ in range(256):
        cord.transform(CASE.original[:1], CASE.direct[:1])
    assert process.prepared == {"repair"}


def test_a_setting_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORDCAL_ENGINE", "fast")
    with refused("CORDCAL_ENGINE", naming="'fast'"):
        CORD().fit(CASE.original, CASE.direct)


def test_without_numba_large_work_hints_once(
    fresh: Any, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    fresh(1000)
    monkeypatch.setattr(kernels, "_has_numba", lambda: False)
    dispatch._suggest_numba.cache_clear()
    with pytest.warns(UserWarning, match="pip install numba") as seen:
        CORD().fit(CASE.original, CASE.direct)
    assert [warning.filename for warning in seen] == [__file__]
    CORD().fit(CASE.original, CASE.direct)
    assert not recwarn.list
    monkeypatch.setenv("CORDCAL_ENGINE", "compiled")
    with refused("CORDCAL_ENGINE", naming="numba"):
        CORD().fit(CASE.original, CASE.direct)


SCRIPT = """
import sys
{before}
import numpy as np
import cordcal
rng = np.random.default_rng(0)
p, q = rng.dirichlet(np.ones(7), 300), rng.dirichlet(np.ones(7), 300)
cord = cordcal.CORD().fit(p, q)
assert (cord.transform(p, q).argmax(1) == p.argmax(1)).all()
cordcal.{warmup}
print(repr(cord.eta_), any(name.startswith("numba.") for name in sys.modules))
"""


SOURCE = Path(__file__).parents[2] / "src"
# Root may write anywhere, unless it gives that up.
OBEYING = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-all")


def run(
    before: str = "", warmup: str = "CORD()", prefix: Sequence[str] = (), **environment: str
) -> list[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("CORDCAL_ENGINE", "HOME")}
    script = SCRIPT.format(before=before, warmup=warmup)
    done = subprocess.run(
        [*prefix, sys.executable, "-W", "error", "-c", script],
        env={**inherited, "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """The package in a folder that nobody may write to, without anything compiled."""
    root = tmp_path / "installed"
    shutil.copytree(SOURCE, root, ignore=shutil.ignore_patterns("__pycache__"))
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield root
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_first_answer_from_a_read_only_installation(read_only: Path, tmp_path: Path) -> None:
    """No home, and no cache that could be made: the first answer comes at once and quietly."""
    as_root = os.geteuid() == 0
    if as_root and shutil.which("setpriv") is None:
        pytest.skip("root needs setpriv to give up its rights")
    obstacle = tmp_path / "file"
    obstacle.write_text("not a folder")
    no_cache = {"XDG_CACHE_HOME": str(obstacle / "c"), "NUMBA_CACHE_DIR": str(obstacle / "n")}
    refused = f"import os; assert not os.access({str(read_only / 'cordcal')!r}, os.W_OK)"
    prefix = OBEYING if as_root else ()
    result = run(refused, prefix=prefix, PYTHONPATH=str(read_only), **no_cache)
    assert result == [repr(CORD().fit(*_small()).eta_), "False"]
    assert not list(read_only.rglob("__pycache__"))


def test_a_first_answer_needs_no_numba(tmp_path: Path) -> None:
    """Whatever the cache: none, one that cannot be written, no home, no numba, no compiler."""
    obstacle = tmp_path / "file"
    obstacle.write_text("not a folder")
    eta = repr(CORD().fit(*_small()).eta_)
    assert run() == [eta, "False"]
    assert run(NUMBA_CACHE_DIR=str(obstacle / "cache")) == [eta, "False"]
    assert run("sys.modules['numba'] = None", "warmup()") == [eta, "False"]
    assert run(warmup="warmup()", NUMBA_DISABLE_JIT="1") == [eta, "False"]
    assert run(NUMBA_DISABLE_JIT="1", CORDCAL_ENGINE="compiled") == [eta, "False"]


def _small() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(7), 300), rng.dirichlet(np.ones(7), 300)
