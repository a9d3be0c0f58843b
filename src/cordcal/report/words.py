"""How the numbers of measures and the kinds of change are written."""

from __future__ import annotations

import math

from cordcal.metrics import MEASURES

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
    text = spec.write(value, signed=signed)
    return f"{text} {spec.unit}" if spec.unit else text
