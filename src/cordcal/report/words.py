"""How the numbers of measures and the kinds of change are written."""

from __future__ import annotations

import math
from dataclasses import replace

from cordcal.metrics import MEASURES

CHANGE_KINDS = (
    ("gained", "C⁺", "wrong to right"),
    ("lost", "C⁻", "right to wrong"),
    ("neutral", "C⁰", "wrong to wrong"),
)
"""The kinds of change: the field of the decision changes, the paper's sign, and the words."""


# Of K classes no one's gap is above 2 / K on average: more classes need more digits.
_MANY_CLASSES = 100


def number(measure: str, value: float | None, *, signed: bool = False, classes: int = 0) -> str:
    """Return a measure's value as people read it; with many classes, in more digits.

    Examples
    --------
    >>> number("ece", 0.01234), number("nll", 0.5), number("accuracy", -0.001, signed=True)
    ('1.23 %', '0.5000', '−0.10 points')
    """
    if value is None or math.isnan(value):
        return "–"
    spec = MEASURES[measure]
    if measure == "classwise_ece" and classes >= _MANY_CLASSES:
        spec = replace(spec, digits=spec.digits + len(str(classes)) - 2)
    text = spec.write(value, signed=signed)
    # A difference of percentages is in points: 2 % of 50 % would be something else.
    unit = "points" if signed and spec.unit == "%" else spec.unit
    return f"{text} {unit}" if unit else text
