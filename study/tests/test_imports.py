"""Calibrators that a study file names as module:Class."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cordcal_study.imports import Imported
from errors import refused
from extensions import write_soft_maps


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_soft_maps(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "params", "fact"),
    [
        ("soft_maps:Soft(0.2)", {}, "a line for each parameter"),
        ("soft_maps:Soft", {"shar": 1}, "unexpected keyword argument 'shar'"),
        ("soft_maps:Sof", {}, "soft_maps has no Sof"),
        ("no_such_module:Soft", {}, "ModuleNotFoundError"),
        ("a b:c", {}, "write module:Class"),
    ],
)
def test_an_import_that_fails_raises(
    folder: Path, path: str, params: dict[str, Any], fact: str
) -> None:
    with refused("class", naming=[path, fact]):
        Imported(path, params).make()


def test_the_folder_is_searched_only_while_importing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in ("", str(folder)):  # of the fixture, and of how the tests were started
        monkeypatch.setattr(sys, "path", [path for path in sys.path if path != entry])
    before = list(sys.path)
    assert type(Imported("soft_maps:Soft").make()).__name__ == "Soft"
    assert sys.path == before
    with refused("class"):
        Imported("no_such_module:Soft").make()
    assert sys.path == before
