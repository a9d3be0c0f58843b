"""A study runs calibrators and metrics that are not cordcal's: registered, or imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cordcal import calibrators, metrics
from cordcal.calibrators.adapters import Imported
from cordcal.metrics import Metric
from cordcal.metrics.base import LabelledRows, MeanStream, Vector
from cordcal_study import read_study, run_study
from cordcal_study.chapters import Chapter
from tilt import Tilt

ROOT = Path(__file__).parents[2]
REGISTERED = """
seeds = [0]
calibrators = ["tilt"]
rivals = ["ts"]
experiments = ["main"]
[[set]]
file = "s.npz"
"""
MODULE = """
import numpy as np

open("imported", "w").close()

class Soft:
    def __init__(self, share=0.1):
        self.share = share
    def fit(self, scores, labels):
        return self
    def predict_proba(self, scores):
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return (1.0 - self.share) * e / e.sum(axis=1, keepdims=True) + self.share / e.shape[1]

class Broken(Soft):
    def fit(self, scores, labels):
        raise AttributeError("no such thing")
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


class TrueMassStream(MeanStream):
    @staticmethod
    def of_rows(rows: LabelledRows) -> Vector:
        return rows.true_mass


def true_mass(probabilities: Any, labels: Any) -> float:
    return TrueMassStream().update(probabilities, labels).result()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(ROOT)  # workers import this file to know the classes
    calibrators.register(Tilt)
    metrics.register(
        Metric(
            "true_mass",
            "mass on the true class",
            "true mass",
            "The mean probability of the true class.",
            true_mass,
            TrueMassStream,
            unit="%",
            digits=1,
            lower_is_better=False,
            leading=True,
        )
    )
    yield
    calibrators.unregister("tilt")
    metrics.unregister("true_mass")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "soft_maps", raising=False)
    (tmp_path / "soft_maps.py").write_text(MODULE)
    (tmp_path / "study.toml").write_text(STUDY)
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    logits = 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(200, 3))
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
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
    ],
)
def test_tables_of_a_study_are_checked(folder: Path, lines: str, fact: str) -> None:
    (folder / "study.toml").write_text(f'{lines}\n[[set]]\nfile = "s.npz"\n')
    with pytest.raises(ValueError, match=re.escape(fact)):
        read_study("study.toml", allow_import=True)
