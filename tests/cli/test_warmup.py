"""``cordcal warmup``: kernels in the cache, or a reason why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cordcal.repair import kernels
from cordcal.repair.kernels import Preparation

Call = Callable[..., tuple[int, str, str]]


def test_kernels_are_in_the_folder_it_names(call: Call) -> None:
    pytest.importorskip("numba")
    code, output, _ = call("warmup", "--json")
    done = json.loads(output)
    assert code == 0
    assert done["compiled"] + done["loaded"] >= 6
    assert list(Path(done["folder"]).glob("_passes.*.nbi"))


def test_it_says_what_it_did_and_where(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "prepare", lambda: Preparation(4, 2, 7.25, "/var/cache/numba"))
    code, output, _ = call("warmup")
    assert code == 0
    assert output.splitlines() == [
        "kernels: 4 compiled, 2 loaded from the cache in 7.2 s",
        "cache: /var/cache/numba",
    ]


@pytest.mark.parametrize(
    ("disabled", "remedy"), [(False, "pip install numba"), (True, "NUMBA_DISABLE_JIT")]
)
def test_without_a_compiler_it_fails(
    disabled: bool, remedy: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_has_numba", lambda: False)
    monkeypatch.setattr(kernels, "disabled", lambda: disabled)
    code, output, errors = call("warmup")
    assert (code, output) == (2, "")
    assert remedy in errors


def test_a_cache_that_cannot_be_written_fails(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "prepare", lambda: Preparation(6, 0, 8.0, None))
    code, output, errors = call("warmup")
    assert (code, output) == (2, "")
    assert "NUMBA_CACHE_DIR" in errors
