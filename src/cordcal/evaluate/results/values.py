"""What every record is made of: metrics, outputs and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cordcal._numeric.types import Record

Measures = Mapping[str, float]
"""Values of metrics by their keys."""

OutputKind = Literal["original", "direct", "repaired", "lift"]

Output = tuple[str, str]
"""A calibrator's key and a kind of output: one set of probabilities."""

ORIGINAL: Output = ("uncalibrated", "original")
"""The classifier's own probabilities."""

Json = dict[str, object]
"""A record as plain Python values."""


@dataclass(frozen=True)
class Interval(Record):
    """A paired difference with its 95 % bootstrap interval."""

    estimate: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0.0 or self.high < 0.0
