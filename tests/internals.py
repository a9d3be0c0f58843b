"""Private names that tests of several packages need, imported in one place.

They are arguments of internal functions, the expressions of a calibrator's map, the size of
blocks, and the package's own way to warn.
"""

import pytest

from cordcal import expressions
from cordcal._errors import warn
from cordcal._numeric import arrays
from cordcal._numeric.exact import ExactSum
from cordcal._validation.context import ContextValues
from cordcal._validation.labels import cluster_numbers
from cordcal._validation.scores import CheckedScores

__all__ = [
    "CheckedScores",
    "ContextValues",
    "ExactSum",
    "cluster_numbers",
    "expressions",
    "set_block_entries",
    "warn",
]


def set_block_entries(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    """Set how many entries are worked on as one block of rows."""
    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", entries)
    monkeypatch.setitem(arrays.row_blocks.__kwdefaults__, "entries", entries)
