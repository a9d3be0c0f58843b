"""``cordcal demo`` shows the whole job on data that comes with scikit-learn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents import ROOT, blocks

from .conftest import Run


def test_demo_compares_and_ends_with_the_report(
    run: Run, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(environment, "COLUMNS", "160")
    result = run("demo")
    assert result.returncode == 0, result.stderr
    # On a slow machine progress is printed, a line every few seconds.
    assert all(line.startswith("comparing: ") for line in result.stderr.splitlines())
    before, table = result.stdout.split("┏", 1)
    assert len(before.splitlines()) <= 24
    assert before.splitlines()[2].startswith("Recommended  ")
    assert "\nPredictions changed        0 of 1,097\n" in before
    assert "\nReport                     cordcal-demo.html\nNext\n  cordcal fit " in before
    assert table.count("\n│") <= 8
    assert re.search(r"--verbose shows \d+ more rows", table)
    assert (tmp_path / "cordcal-demo.html").stat().st_size < 700e3
    # The README shows the real output.
    shown, _ = blocks(ROOT / "README.md", "console")[0].split("$ make test")
    for line in shown.splitlines():
        if line and line not in ("$ make demo", "[...]"):
            assert line in result.stdout.splitlines()


def test_all_rows_are_the_numbers_of_the_picture(run: Run, environment, monkeypatch) -> None:
    monkeypatch.setitem(environment, "COLUMNS", "160")
    result = run("demo", "--verbose")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith(("┃", "│"))]
    heads = [head.strip() for head in lines[1].split("┃")[1:-1]]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line[0] == "│"]
    named = [dict(zip(heads, row, strict=True)) for row in rows]
    cells = {
        (row["calibrator"], row["output"]): [row["accuracy, %"], row["changed, %"]] for row in named
    }
    assert [float(row["NLL"]) for row in named] == sorted(float(row["NLL"]) for row in named)
    accuracy = cells["uncalibrated", "original"][0]
    assert cells["irova", "CORD"] == [accuracy, "0.00"]
    assert float(cells["irova", "direct"][1]) > 0
    _compare_with_the_picture(cells)


def _compare_with_the_picture(cells: dict[tuple[str, str], list[str]]) -> None:
    """The picture of the first page, and the numbers next to it, are those of the demo's table."""
    direct = {
        key: (float(row[1]), float(row[0]) - float(cells["uncalibrated", "original"][0]))
        for (key, report), row in cells.items()
        if report == "direct" and float(row[1]) > 0
    }
    drawn = (ROOT / "docs" / "_static" / "prediction-changes.svg").read_text("utf-8")
    labels = [
        float(points.replace("−", "-")) for points in re.findall(r"<!-- +(\S+) points -->", drawn)
    ]
    # Both are rounded to a hundredth of a point, the table's difference from two such numbers.
    nets = sorted(net for _, net in direct.values())
    assert sorted(labels) == pytest.approx(nets, abs=0.0101)
    changed = [tpcr for tpcr, _ in direct.values()]
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert f"between {min(changed):.2f} and {max(changed):.2f} percent" in text
    interval = f"between {min(labels):.2f} and {max(labels):+.2f} points".replace("-", "−")
    assert interval in text
