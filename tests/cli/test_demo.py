"""``cordcal demo`` shows the whole job on data that comes with scikit-learn."""

from __future__ import annotations

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
    assert result.stderr == ""
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    cells = {(row[0].strip(), row[1].strip()): [cell.strip() for cell in row[2:]] for row in rows}
    accuracy = cells["uncalibrated", "original"][0]
    assert cells["irova", "repaired"][:2] == [accuracy, "0.00"]
    assert float(cells["irova", "direct"][1]) > 0
    assert "report: cordcal-demo.html\nnext step, in a terminal or in Python:\n" in result.stdout
    assert "Use ts" not in result.stdout  # others clearly beat it here
    assert (tmp_path / "cordcal-demo.html").stat().st_size < 700e3
    # The README shows the real output, but for the seconds.
    shown, _ = blocks(ROOT / "README.md", "console")[0].split("$ make test")
    printed = [_without_time(line) for line in result.stdout.splitlines()]
    for line in shown.splitlines():
        if line and line not in ("$ make demo", "[...]"):
            assert _without_time(line) in printed


def _without_time(line: str) -> str:
    """Drop the last cell of a table's row: seconds differ from run to run."""
    return "│".join(line.split("│")[:-2]) if line.startswith("│") else line
