"""The first trials of every kind of attack; `make attack` runs many more."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from attacks.kinds import KINDS, generator

pytest.importorskip("pyarrow")

# How many trials fit into some seconds.
FIRST = {
    "rows": 12, "files": 40, "models": 25, "names": 5, "kills": 2, "races": 2,
    "rankings": 8, "lifts": 12, "libraries": 6, "workers": 1, "encodings": 3, "streams": 4,
    "indices": 12, "headings": 30, "parts": 12, "answers": 8,
}  # fmt: skip
TRIALS = [(kind, number) for kind in KINDS for number in range(FIRST[kind])]


@pytest.mark.parametrize(("kind", "number"), TRIALS)
def test_trial(kind: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "win32" and kind in ("kills", "races", "workers", "streams"):
        pytest.skip("needs locks, processes that are forked, or a POSIX shell")
    if kind == "libraries":
        pytest.importorskip("torch")
        pytest.importorskip("dask.array")
    if kind == "workers":
        pytest.importorskip("distributed")
    from cordcal.files import scores

    monkeypatch.setattr(scores, "BATCH_BYTES", scores.BATCH_BYTES)  # a trial makes it small
    assert import_module(f"attacks.{kind}").trial(generator(kind, number), tmp_path) >= 0


def test_a_trial_is_made_again_from_its_number() -> None:
    first, again = (generator("files", 3).random(4) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, generator("models", 3).random(4))
