"""A study runs calibrators and metrics that are not cordcal's: registered, or imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordcal import calibrators, metrics
from cordcal_study import read_study, run_study
from cordcal_study.chapters import Chapter
from cordcal_study.imports import Imported
from extensions import TRUE_MASS, Tilt, write_soft_maps

REGISTERED = """
seeds = [0]
calibrators = ["tilt"]
rivals = ["ts"]
experiments = ["main"]
[[set]]
file = "s.npz"
"""
STUDY = """
seeds = [0]
calibrators = ["vs", "mine", "broken"]
rivals = ["ts"]
experiments = ["main"]
[calibrator.mine]
class = "soft_maps:Soft"
share = 0.2
[calibrator.broken]
class = "soft_maps:Broken"
[[set]]
file = "s.npz"
"""


@pytest.fixture
def registered() -> Iterator[None]:
    calibrators.register(Tilt)
    metrics.register(TRUE_MASS)
    yield
    calibrators.unregister("tilt")
    metrics.unregister("true_mass")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_soft_maps(tmp_path, monkeypatch)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def texts(chapter: Chapter) -> set[str]:
    return {part.text for table in chapter.tables for row in table.rows for c in row for part in c}


@pytest.mark.usefixtures("registered")
def test_tables_have_registered_calibrators_and_metrics(folder: Path) -> None:
    (folder / "registered.toml").write_text(REGISTERED)
    (main,) = run_study(folder / "registered.toml", folder / "cells", workers=1).chapters
    assert {"Tilt", "true mass (%)"} <= texts(main)


def test_nothing_is_imported_unless_it_is_allowed(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"study.toml, line 6: .*soft_maps:Soft"):
        read_study("study.toml")
    assert not (folder / "imported").exists()


def test_a_study_runs_it_and_goes_on_when_it_fails(folder: Path) -> None:
    study = read_study("study.toml", allow_import=True)
    assert study.own["mine"] == Imported("soft_maps:Soft", {"share": 0.2})
    result = run_study(study, folder / "cells", workers=1)
    (left,) = result.left_out
    assert left.calibrator == "broken"
    assert "soft_maps:Broken failed (AttributeError: no such thing)" in left.why
    assert "mine" in {name for row in result.chapters[0].data["data"] for name in row}
    again = run_study(study, folder / "cells", workers=1)
    assert again.chapters[0].data == result.chapters[0].data


@pytest.mark.parametrize(
    ("lines", "fact"),
    [
        ('[calibrator.ts]\nclass = "soft_maps:Soft"', "calibrator 'ts'"),
        (
            "[calibrator.mine]\nshare = 1",
            'has no class; add class = … (the place of a class, "module:Class")',
        ),
        ('[calibrator.mine]\nclass = "os:sep"', "predict_proba"),
        ('[calibrator.mine]\nclass = "soft_maps:Soft(share=1)"', "a line for each parameter"),
    ],
)
def test_tables_of_a_study_are_checked(folder: Path, lines: str, fact: str) -> None:
    (folder / "study.toml").write_text(f'{lines}\n[[set]]\nfile = "s.npz"\n')
    with pytest.raises(ValueError, match=re.escape(fact)):
        read_study("study.toml", allow_import=True)
