"""Calibrators named as module:Class."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cordcal.calibrators.adapters import Imported
from cordcal.cli import main
from errors import refused
from extensions import write_soft_maps


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_soft_maps(tmp_path, monkeypatch)
    return tmp_path


def test_compare_imports_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "s.npz", "--calibrator", "soft_maps:Soft"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "'soft_maps:Soft'" in message
    assert "cordcal.compare" in message
    assert not (folder / "imported").exists()


def test_a_model_file_cannot_hold_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "s.npz", "--calibrator", "soft_maps:Soft"]) == 2
    assert "a model file cannot contain code" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("soft_maps:Soft(0.2)", "module:Class(C=10, tol=1e-4)"),
        ("soft_maps:Soft(share=__import__('os'))", "module:Class(C=10, tol=1e-4)"),
        ("soft_maps:Soft(shar=1)", "unexpected keyword argument 'shar'"),
        ("soft_maps:Sof", "soft_maps has no Sof"),
        ("no_such_module:Soft", "ModuleNotFoundError"),
        ("a b:c", "module:Class(C=10)"),
    ],
)
def test_an_import_that_fails_raises(folder: Path, text: str, fact: str) -> None:
    with refused("calibrators", naming=[text.partition("(")[0], fact]):
        Imported.of(text).make()


def test_the_folder_is_searched_only_while_importing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in ("", str(folder)):  # of the fixture, and of how the tests were started
        monkeypatch.setattr(sys, "path", [path for path in sys.path if path != entry])
    before = list(sys.path)
    assert type(Imported.of("soft_maps:Soft").make()).__name__ == "Soft"
    assert sys.path == before
    with refused("calibrators"):
        Imported.of("no_such_module:Soft").make()
    assert sys.path == before
