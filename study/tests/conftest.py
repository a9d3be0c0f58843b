"""Make the helpers of cordcal's own tests importable: references, cases, checks of errors."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
for folder in (TESTS, TESTS / "repair"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
