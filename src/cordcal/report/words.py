"""The measures' names, units and directions, and how their numbers are written."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """How a measure is shown."""

    name: str
    short: str
    scale: float
    unit: str
    digits: int
    lower_is_better: bool = True

    @property
    def axis(self) -> str:
        """The title of an axis that shows it."""
        return f"{self.short} ({self.unit})" if self.unit else self.short


MEASURES = {
    "accuracy": Measure("accuracy", "accuracy", 100, "%", 2, lower_is_better=False),
    "nll": Measure("negative log-likelihood", "NLL", 1, "", 4),
    "brier": Measure("Brier score", "Brier", 1, "", 4),
    "ece": Measure("expected calibration error", "ECE", 100, "%", 2),
    "ece_equal_mass": Measure("equal-mass ECE", "ECE-EM", 100, "%", 2),
    "smooth_ece": Measure("smooth ECE", "smECE", 100, "%", 2),
    "classwise_ece": Measure("classwise ECE", "cwECE", 100, "%", 2),
}
"""What is measured, in the order it is shown; scores are fractions, shown in percent."""


CHANGE_KINDS = (
    ("gained", "C⁺", "wrong to right"),
    ("lost", "C⁻", "right to wrong"),
    ("neutral", "C⁰", "wrong to wrong"),
)
"""The kinds of change: the field of the decision changes, the paper's sign, and the words."""


def number(measure: str, value: float | None, *, signed: bool = False) -> str:
    """Return a measure's value as people read it.

    Examples
    --------
    >>> number("ece", 0.01234), number("nll", 0.5), number("accuracy", -0.001, signed=True)
    ('1.23 %', '0.5000', '−0.10 %')
    """
    if value is None or math.isnan(value):
        return "–"
    spec = MEASURES[measure]
    text = f"{spec.scale * value:{'+' if signed else ''}.{spec.digits}f}".replace("-", "−")
    return f"{text} {spec.unit}" if spec.unit else text
