"""``cordcal demo`` shows the whole job on data that comes with scikit-learn."""

from __future__ import annotations

from .conftest import Run


def test_demo_prints_direct_against_repaired(run: Run) -> None:
    result = run("demo")
    assert result.returncode == 0, result.stderr
    lines = {
        line.split("│")[1].strip(): line.split("│")[2:-1]
        for line in result.stdout.splitlines()
        if "│" in line
    }
    accuracy = lines["uncalibrated"][0]
    assert lines["irova, repaired"][0] == accuracy
    assert lines["irova, repaired"][1].strip() == "0.00"
    assert float(lines["irova, direct"][1]) > 0
