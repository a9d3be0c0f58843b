"""What a release states about itself is the same in every place."""

from __future__ import annotations

import re
import tomllib
from datetime import date

import pytest

import cordcal
from documents import ROOT


def test_versions_and_dates_agree() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    version, day = re.findall(r"^## (\S+) \((.+)\)$", changes, re.M)[0]
    assert version == cordcal.__version__
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == cordcal.__version__
    if day != "unreleased":
        assert citation["date-released"] == date.fromisoformat(day)


def test_both_packages_state_the_same() -> None:
    projects = [
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        for folder in (".", "study")
    ]
    for field in ("license", "license-files", "requires-python", "authors", "urls"):
        assert projects[0][field] == projects[1][field], field
    assert (ROOT / "LICENSE").read_text("utf-8") == (ROOT / "study" / "LICENSE").read_text("utf-8")
