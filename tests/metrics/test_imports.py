"""Measuring imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, cordcal
cordcal.audit
cordcal.metrics.measure_all([[0.75, 0.25], [0.5, 0.5]], [0, 1])
heavy = {"scipy", "sklearn", "pandas", "matplotlib", "torch", "rich", "dask"}
print(sorted(heavy & set(sys.modules)))
"""


def test_measures_need_only_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
