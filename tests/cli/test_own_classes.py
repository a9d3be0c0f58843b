"""The command imports no code of a user's: it knows keys only."""

from __future__ import annotations

from pathlib import Path

import pytest

from extensions import write_soft_maps


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("compare", "compare a class of your own in Python, with cordcal.compare"),
        ("fit", "a model file cannot contain code"),
    ],
)
def test_nothing_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call, command: str, remedy: str
) -> None:
    write_soft_maps(tmp_path, monkeypatch)
    code, _, errors = call(command, "s.npz", "--calibrator", "soft_maps:Soft")
    assert code == 2
    assert "'soft_maps:Soft'" in errors
    assert remedy in " ".join(errors.split())
    assert not (tmp_path / "imported").exists()
