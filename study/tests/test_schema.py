"""The study file: defaults, and mistakes named by line before any work starts."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cordcal_study import read_study, run_study
from cordcal_study.calibrators import of_role
from cordcal_study.cells import Plan
from cordcal_study.data import load_set
from cordcal_study.schema import find_lines, line_of
from cordcal_study.specs import EXPERIMENTS, FRACTIONS

ROOT = Path(__file__).parents[2]
MINIMAL = """\
title = "t"

[[set]]
file = "a.npz"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of three classes, one of four."""
    rng = np.random.default_rng(0)
    for name, classes in (("a", 3), ("b", 3), ("wide", 4)):
        labels = np.arange(40) % classes
        logits = np.eye(classes)[labels] + rng.normal(size=(40, classes))
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "unlabelled.npz", logits=rng.normal(size=(40, 3)))
    np.savez(tmp_path / "short.npz", logits=rng.normal(size=(30, 3)), labels=np.arange(30) % 3)
    probabilities = rng.dirichlet(np.ones(3), 40)
    np.savez(tmp_path / "probs.npz", probs=probabilities, labels=np.arange(40) % 3)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_the_paper_s(folder: Path) -> None:
    study = read_study(written(folder, MINIMAL))
    assert study.seeds == (0, 1, 2, 3, 4)
    assert set(of_role("base")) - set(study.calibrators) == {"boost", "boosted-blend"}
    assert set(of_role("rival")) - set(study.rivals) == {"pts", "smart", "diag"}
    assert study.experiments == EXPERIMENTS
    assert study.fractions == FRACTIONS
    assert (study.sets[0].name, study.sets[0].group, study.sets[0].scale) == ("a", "all", 1.0)


def test_a_set_may_have_seeds_of_its_own(folder: Path) -> None:
    study = read_study(written(folder, MINIMAL + "seeds = [7]\n"))
    plan = Plan(study, {("all", "a"): load_set(study.sets[0]).facts()})
    assert plan.splits(study.sets[0]) == (7,)
    assert plan.splits(replace(study.sets[0], seeds=None)) == (0, 1, 2, 3, 4)
    assert plan.splits(replace(study.sets[0], evaluation=Path("b.npz"))) == (None,)


def test_data_folder_is_relative_to_the_file_or_passed(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    path = written(inner, 'data = ".."\n' + MINIMAL)
    assert read_study(path).sets[0].file.resolve() == (folder / "a.npz").resolve()
    assert read_study(written(inner, MINIMAL), data=folder).sets[0].file == folder / "a.npz"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('titel = "t"\n' + MINIMAL, 1, "did you mean 'title'"),
        (MINIMAL + 'fiel = "b.npz"\n', 5, "did you mean 'file'"),
        (MINIMAL.replace("a.npz", "aa.npz"), 4, "does not exist .*did you mean 'a.npz'"),
        (MINIMAL + '\n[benchmark]\nrows = [0, "all"]\n', 7, "counts such as"),
        (
            MINIMAL + '\n[benchmark]\ncomparisons = ["blend + lft"]\n',
            7,
            "did you mean 'blend . lift'",
        ),
        (MINIMAL + "\n[benchmark.max_classes]\nsmss = 3\n", 7, "did you mean 'sms'"),
        (MINIMAL + '\n[[benchmark.claim]]\ntext = "t"\noutput = "ts"\n', 6, "has no against"),
        (MINIMAL + '\n[answers]\ngroups = ["all"]\n', 6, r"add \[benchmark\]"),
        (MINIMAL + "benchmark = 1\n", 5, "write true or false"),
        ("seeds = [1, 1]\n" + MINIMAL, 1, "distinct whole numbers"),
        ('calibrators = [\n  "vs",\n  "mss",\n]\n' + MINIMAL, 1, "did you mean 'ms'"),
        ('experiments = ["mian"]\n' + MINIMAL, 1, "did you mean 'main'"),
        ('format = "xls"\n' + MINIMAL, 1, "'csv', 'parquet'"),
        ('title = "only"\n', 1, "no data set"),
        ('[[set]]\nname = "x"\n', 1, "has no file"),
        (MINIMAL + "scale = -1\n", 5, "a number above 0"),
        (MINIMAL + "seeds = [-1]\n", 5, "distinct whole numbers"),
        (MINIMAL + 'input = "scores"\n', 5, "'logits', 'probabilities'"),
        (MINIMAL + '\n[[set]]\nfile = "a.npz"\n', 6, "already"),
        (MINIMAL + "\n[size]\nfractions = [0.5, 0.1]\n", 7, "increasing shares"),
        (MINIMAL + '\n[size]\ngroups = ["al"]\n', 7, "did you mean 'all'"),
        (MINIMAL + '[[set.shifted]]\nfile = "b.npz"\nkind = "blur"\n', 5, "has no severity"),
        (
            MINIMAL + '[[set.shifted]]\nfile = "b.npz"\nkind = "blur"\nseverity = "high"\n',
            8,
            "a whole number",
        ),
        ('data = "nowhere"\n' + MINIMAL, 1, "the folder .*nowhere does not exist"),
        (MINIMAL + "scale = =\n", 5, "fix the syntax there"),
        ("data = 3\n" + MINIMAL, 1, "data is 3; write text in quotes"),
        ("seeds = 3\n" + MINIMAL, 1, "seeds is 3; write distinct whole numbers"),
        ("seeds = [true]\n" + MINIMAL, 1, "distinct whole numbers"),
        ("calibrators = []\n" + MINIMAL, 1, "write a list such as"),
        ("set = 3\n", 1, r"set is 3; write a table \[\[set\]\]"),
        ("benchmark = 3\n" + MINIMAL, 1, r"benchmark is 3; write a table \[benchmark\]"),
        (MINIMAL + '\n[benchmark.max_classes]\nsms = "3"\n', 7, r"sms is '3'; write a table"),
        (MINIMAL + "\n[[benchmark.claim]]\nmetric = 'tpcr'\n", 6, "this claim has no text"),
        (MINIMAL + '[[set.shifted]]\nkind = "b"\nseverity = 1\n', 5, "this shifted has no file"),
        (MINIMAL + "\n[calibrator]\nmine = 1\n", 7, r"mine is 1; write a table \[calibrator.mine"),
        (MINIMAL + "\n[families]\nvit = 1\n", 7, r"vit is 1; write a table \[families\]"),
    ],
)
def test_mistakes_are_named_by_line(folder: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s)study.toml.*line {line}\b.*{words}"):
        read_study(written(folder, text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MINIMAL + 'evaluation = "wide.npz"\n', "a.npz has 3 classes but wide.npz has 4"),
        (MINIMAL.replace("a.npz", "unlabelled.npz"), "has no labels"),
        (MINIMAL.replace("a.npz", "probs.npz") + "scale = 2.0\n", "scale multiplies logits"),
        (
            MINIMAL + '[[set.shifted]]\nfile = "short.npz"\nkind = "blur"\nseverity = 1\n',
            "has 30 rows but a.npz has 40",
        ),
        (
            MINIMAL + '[[set.shifted]]\nfile = "wide.npz"\nkind = "blur"\nseverity = 1\n',
            "pair files of the same classifier",
        ),
        (MINIMAL + 'features = "short.npz"\n', "30 rows of features"),
    ],
)
def test_files_that_do_not_fit_stop_a_study_before_it_starts(
    folder: Path, text: str, words: str
) -> None:
    with pytest.raises(ValueError, match=rf"study.toml, line 3: .*{words}"):
        run_study(written(folder, text), folder / "cells", workers=1)
    assert not (folder / "cells").exists()


def test_a_file_may_stack_severities(folder: Path) -> None:
    with np.load(folder / "a.npz") as stored:
        logits, labels = stored["logits"], stored["labels"]
    np.savez(
        folder / "stacked.npz", logits=np.concatenate([logits, -logits]), labels=np.tile(labels, 2)
    )
    text = MINIMAL + '[[set.shifted]]\nfile = "stacked.npz"\nkind = "blur"\nseverity = [1, 4]\n'
    (spec,) = read_study(written(folder, text)).sets
    data = load_set(spec)
    np.testing.assert_array_equal(data.shifted["blur 1"].scores, logits)
    np.testing.assert_array_equal(data.shifted["blur 4"].scores, -logits)
    with pytest.raises(ValueError, match=r"40 rows but a.npz has 40 × 2 severities"):
        load_set(replace(spec, shifted=(replace(spec.shifted[0], file=folder / "a.npz"),)))


def test_lines_of_nested_tables() -> None:
    text = '[[set]]\n[[set.shifted]]\n[[set.shifted]]\nkind = 1\n[[set]]\n"file" = 2\n[a.b]\nc = 1'
    lines = find_lines(text)
    assert lines["set", 0, "shifted", 1, "kind"] == 4
    assert lines["set", 1, "file"] == 6
    assert lines["a", "b", "c"] == 8
    assert line_of(lines, ("set", 1, "missing")) == 5


PAGES = [*(ROOT / "docs").glob("*.md"), ROOT / "study" / "README.md"]
SHOWN = [
    pytest.param(block, id=f"{page.stem} {number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    )
    if "[[set]]" in block
]


@pytest.mark.parametrize("block", SHOWN)
def test_study_files_on_pages_are_valid(block: str, tmp_path: Path) -> None:
    assert len(SHOWN) >= 3
    block = block.replace('"mine"', '"irova"').replace("[calibrator.mine]\n", "")
    block = re.sub(r"^(class|strength) = .*\n", "", block, flags=re.M)  # nothing to import here
    assert read_study(written(tmp_path, block), check_files=False).sets


def test_the_projects_own_study_is_whole() -> None:
    data = os.environ.get("CORDCAL_TEST_DATA")
    if not data:
        pytest.skip("CORDCAL_TEST_DATA names no folder of real outputs")
    study = read_study(ROOT / "docs" / "results" / "study.toml", data=data)
    compared = [spec for spec in study.sets if spec.benchmark]
    # Every classifier is compared once, with its source and family.
    assert len({(spec.file, spec.scale) for spec in compared}) == len(compared) == 32
    assert "not stated" not in {spec.family for spec in study.sets}
    assert len({spec.source for spec in compared}) == 13
    assert study.answers == ("language models",)
    assert study.benchmark is not None
    assert {claim.output for claim in study.benchmark.claims} >= {"blend + lift", "blend"}
