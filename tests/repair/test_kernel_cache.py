"""The kernels' cache: read if possible, rebuilt if damaged, omitted if it cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

numba = pytest.importorskip("numba")

from cordcal.repair import rule  # noqa: E402
from cordcal.repair.kernels import _jit  # noqa: E402
from cordcal.repair.kernels._jit import Kernel  # noqa: E402


def double(value):  # type: ignore[no-untyped-def]
    return 2.0 * value


def new_kernel() -> Kernel:
    return Kernel(double, numba.float64(numba.float64))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def cached_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.nb?"))


def test_what_is_compiled_is_loaded_next_time(folder: Path) -> None:
    for expected in (False, True):
        kernel = new_kernel()
        assert kernel.get()(3.0) == 6.0
        assert kernel.cached == expected


@pytest.mark.parametrize("left", [0, 20, 300])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_truncated_cache_is_rebuilt(folder: Path, suffix: str, left: int) -> None:
    new_kernel().get()
    for path in cached_files(folder):
        if path.suffix == suffix:
            path.write_bytes(path.read_bytes()[:left])
    for expected in (False, True):
        kernel = new_kernel()
        assert kernel.get()(3.0) == 6.0
        assert kernel.cached == expected


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_folder(**options: Any) -> Any:
        if options["cache"]:
            raise RuntimeError("cannot cache function: no locator available")  # numba's words
        return numba.njit(**options)

    monkeypatch.setattr(_jit, "njit", without_folder)
    kernel = new_kernel()
    assert kernel.get()(3.0) == 6.0
    assert not kernel.cached


def test_the_digest_covers_kernel_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = Path.read_bytes

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    _jit._digest.__wrapped__()
    assert "_passes.py" in read
    assert not {"_engine.py", "__init__.py"} & set(read)


@pytest.mark.parametrize("name", ["DELTA", "EPSILON", "RAISED_STEPS", "TIED", "TINY_TAIL"])
def test_the_digest_covers_constants_of_the_rule(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _jit._digest.__wrapped__()
    monkeypatch.setattr(rule, name, 2 * getattr(rule, name))
    assert _jit._digest.__wrapped__() != before
