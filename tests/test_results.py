"""The published figures: tables are those of their numbers, and pages quote the tables."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
BENCHMARKS = ROOT / "benchmarks"
# Sets of which the default is measured again; each takes a second or two.
AGAIN = ("noisycal_c10", "nannyml_cards3_reference", "llm6_Qwen-14B_task_icl0", "dna3_mlp_oof")


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    """What ``benchmarks/evidence.py`` defines."""
    return runpy.run_path(str(BENCHMARKS / "evidence.py"), run_name="evidence")


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    """What ``benchmarks/evidence_tables.py`` defines."""
    name = "evidence_tables"
    sys.modules[name] = type(sys)(name)  # dataclasses look up their module
    yield runpy.run_path(str(BENCHMARKS / "evidence_tables.py"), run_name=name)
    del sys.modules[name]


@pytest.fixture(scope="module")
def run(program: dict[str, Any], tables: dict[str, Any]) -> Any:
    """The measurements of the present commit."""
    study = program["STUDY"]
    return tables["Run"](RESULTS / "evidence", study["present"], study)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of(path: Path) -> Iterator[list[str]]:
    """Yield the rows of every Markdown table of a page, without the headings."""
    lines = path.read_text("utf-8").splitlines()
    for line, below in pairwise([*lines, ""]):
        if line.startswith("| ") and not line.startswith("| ---") and not below.startswith("| ---"):
            yield cells(line)


def test_tables_are_those_of_the_numbers(program, tables) -> None:
    study = program["STUDY"]
    for name, page in {
        "tables.md": tables["tables_page"](study, RESULTS / "evidence"),
        "files.md": tables["files_page"](study),
    }.items():
        written = (RESULTS / "evidence" / name).read_text("utf-8")
        assert page == written, f"run benchmarks/evidence.py render: {name} is another page"


def test_the_account_quotes_the_tables() -> None:
    """Each row of numbers is a row of the tables, or a part of one in its order."""
    rows = list(rows_of(RESULTS / "evidence" / "tables.md"))
    account = list(rows_of(RESULTS / "README.md"))
    quoted = [row for row in account if len(row) > 2]
    assert len(quoted) > 100
    for row in quoted:
        assert any(is_part(row, whole) for whole in rows), row


def is_part(row: list[str], whole: list[str]) -> bool:
    """Whether the cells of a row occur in another one, in their order."""
    rest = iter(whole)
    return all(any(cell == other for other in rest) for cell in row)


def test_the_front_page_quotes_the_tables(run, tables) -> None:
    def below(output: str) -> str:
        return f"{100 * (1 - run.compare(output, 'ts', 'nll').interval[0]):.0f} %"

    def ece(output: str) -> str:
        return f"{100 * run.mean(output, 'ece', 'fresh'):.1f} %"

    def acted(output: str) -> str:
        shares = tables["Act"](RESULTS / "evidence", run).shares(output, 0.05, "all")
        return f"{100 * run.over_sources(shares).mean():.0f} %"

    text = (ROOT / "README.md").read_text("utf-8")
    assert f"on {len(run.names())} sets of outputs that nothing in cordcal was tuned with" in text
    assert (
        f"mean ECE {ece('default')} (temperature scaling {ece('ts')}), "
        f"NLL {below('default')} below temperature scaling; "
        f'with `prefer="likelihood"` ECE {ece("likelihood")}, NLL {below("likelihood")} below'
    ) in text
    own = acted("original")
    assert f"{acted('default')} (by the classifier's own confidences {own})" in text


# The outputs in the tables of docs/how-it-works/blend-and-lift.md.
GAINS = {
    "`ts`": "ts",
    "`mono`": "mono",
    "sms direct": "sms",
    "sms + CORD": "sms + cord",
    "blend direct": "blend",
    "blend + CORD": "blend + cord",
    'blend + lift, `prefer="likelihood"`': "likelihood",
    "blend + lift, the default": "default",
}
FEW = ("mono", "sms + cord", "blend + cord", "default", "likelihood")


def test_what_blend_and_lift_gain(run) -> None:
    page = ROOT / "docs" / "how-it-works" / "blend-and-lift.md"
    rows = {row[0].strip("*"): [cell.strip("*") for cell in row] for row in rows_of(page)}
    for name, output in GAINS.items():
        changed = run.mean(output, "tpcr", "fresh") > 0
        ratios = [
            "1" if output == "ts" else f"{run.compare(output, 'ts', metric).interval[0]:.3f}"
            for metric in ("nll", "brier")
        ]
        ece = f"{100 * run.mean(output, 'ece', 'fresh'):.2f}"
        assert rows[name] == [name, "change" if changed else "kept", *ratios, ece]
    nll = {
        (line["set"], line["seed"], line["rows"], line["output"]): np.log(float(line["nll"]))
        for line in run.small
    }
    for count in ("30", "100", "200", "500"):
        pairs = [key[:3] for key in nll if key[2:] == (count, "ts")]
        ratios = [
            np.exp(np.mean([nll[*pair, output] - nll[*pair, "ts"] for pair in pairs]))
            for output in FEW
        ]
        assert rows[count] == [count, *(f"{ratio:.3f}" for ratio in ratios)]
    cost = np.array(list(run.compare("default", "likelihood", "nll", "all").values.values()))
    little, much = ((cost <= np.log(1.01)).sum(), (cost > np.log(1.2)).sum())
    assert (
        f"On {little} of {len(cost)} sets honest confidence costs at most 1 %" in page.read_text()
    )
    assert (much, "on ten more than 20 %" in page.read_text()) == (10, True)


@pytest.mark.parametrize("name", AGAIN)
def test_the_numbers_are_those_of_this_code(name, real_data, program, run) -> None:
    """The default and its rival, measured again, round to what is published."""
    (entry,) = (entry for entry in program["STUDY"]["set"] if entry["name"] == name)
    rows, kind = program["split"](entry, real_data, 0)
    fit, labels, test, truth, _ = rows
    for output, keywords in {"ts": {"calibrator": "ts"}, "default": {}}.items():
        model = program["Model"](**keywords, input=kind).fit(fit, labels)
        p = model.predict_proba(test, dtype=np.float64)
        again = program["measures_of"](p, truth, test.argmax(axis=1))
        published = run.by_seed[name, output][0]
        for metric in ("nll", "brier", "ece", "risk"):
            # Five digits are published; bins and fits go by the last bits of an exponential.
            assert again[metric] == pytest.approx(published[metric], rel=1e-3), (output, metric)
