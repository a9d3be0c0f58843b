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
    # A slow machine is told how far it is, a line every few seconds.
    assert all(line.startswith("comparing: ") for line in result.stderr.splitlines())
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    cells = {(row[0].strip(), row[1].strip()): [cell.strip() for cell in row[2:]] for row in rows}
    accuracy = cells["uncalibrated", "original"][0]
    assert cells["irova", "repaired"][:2] == [accuracy, "0.00"]
    assert float(cells["irova", "direct"][1]) > 0
    assert "report: cordcal-demo.html\nnext step, in a terminal or in Python:\n" in result.stdout
    assert "Recommended: blend + lift (the default)." in result.stdout
    assert (tmp_path / "cordcal-demo.html").stat().st_size < 700e3
    # The README shows the real output, but for the seconds.
    shown, _ = blocks(ROOT / "README.md", "console")[0].split("$ make test")
    printed = [_without_time(line) for line in result.stdout.splitlines()]
    for line in shown.splitlines():
        if line and line not in ("$ make demo", "[...]"):
            assert _without_time(line) in printed

    _compare_with_the_picture(cells)


def _compare_with_the_picture(cells: dict[tuple[str, str], list[str]]) -> None:
    """The README's picture, and the numbers beside it, are those of the demo's table."""
    direct = {
        key: (float(row[1]), float(row[0]) - float(cells["uncalibrated", "original"][0]))
        for (key, report), row in cells.items()
        if report == "direct" and float(row[1]) > 0
    }
    drawn = (ROOT / "docs" / "_static" / "decision-changes.svg").read_text("utf-8")
    labels = [
        float(each.replace("−", "-")) for each in re.findall(r"<!-- +(\S+) points -->", drawn)
    ]
    # Both are rounded to a hundredth of a point, the table's difference from two such numbers.
    assert labels == pytest.approx([net for _, net in direct.values()], abs=0.0101)
    changed = [tpcr for tpcr, _ in direct.values()]
    text = (ROOT / "README.md").read_text("utf-8")
    assert f"between {min(changed):.2f} and {max(changed):.2f} percent" in text
    said = f"between {min(labels):.2f} and {max(labels):+.2f} points".replace("-", "−")
    assert said in text


def _without_time(line: str) -> str:
    """Drop the last cell of a table's row: seconds differ from run to run."""
    return "│".join(line.split("│")[:-2]) if line.startswith("│") else line
