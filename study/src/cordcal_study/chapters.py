"""What an experiment hands over: words, tables and figures as plain data, and its tidy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cordcal.calibrators.registry import short_name
from cordcal.metrics import METRICS
from cordcal.report.tables import Entry as Entry
from cordcal.report.tables import Part as Part
from cordcal.report.tables import Table as Table
from cordcal_study.tidy import Result, Row

FigureKind = Literal["changes", "tradeoff", "reliability", "curves", "ranks"]


@dataclass(frozen=True)
class Figure:
    """A picture's data; `cordcal_study.figures` draws it."""

    name: str
    kind: FigureKind
    caption: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Chapter:
    """One experiment of a study; ``files`` are other forms of its numbers, by path."""

    key: str
    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    rows: Sequence[Row] | Sequence[Result] = field(default=(), repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)


def text(value: str, *, strong: bool = False) -> Entry:
    """Return words as one entry of a table."""
    return (Part(value, strong),)


def number(value: float | None, digits: int, *, signed: bool = False, **emphasis: Any) -> Part:
    """Return a number as part of a table; None is a dash.

    Examples
    --------
    >>> number(-0.001, 2).text, number(0.5, 2, signed=True).text, number(None, 2).text
    ('0.00', '+0.50', '–')
    """
    if value is None:
        return Part("–")
    shown = f"{value:{'+' if signed else ''}.{digits}f}"
    if float(shown) == 0.0:  # neither −0.00 nor +0.00: at this precision it is nothing
        shown = f"{0.0:.{digits}f}"
    return Part(shown.replace("-", "−"), **emphasis)


def change(value: float | None, digits: int, **emphasis: Any) -> Part:
    """Return a reduction with its triangle: positive is better, unless it prints as zero."""
    part = number(value, digits, **emphasis)
    if value is None or float(part.text.replace("−", "-")) == 0.0:
        return part
    return Part(part.text, part.strong, "better" if value > 0 else "worse", part.stars)


@dataclass(frozen=True)
class Shown:
    """How a measure is printed in the paper's tables."""

    name: str
    scale: float
    digits: int


# What the paper's tables write in their own way, or count among the measures.
_OWN = {
    "accuracy": Shown("Acc. (%)", 100.0, 2),
    "tpcr": Shown("TPCR (%)", 100.0, 2),
    "mean_gap": Shown("|s̄ − b̄| (pp)", 100.0, 2),
}
# Repairs of one map differ by little, so their tables have at least so many digits.
_FINE = 3


def shown_as(key: str) -> Shown:
    """Return how a measure is printed."""
    if key in _OWN:
        return _OWN[key]
    measure = METRICS[key]
    return Shown(measure.axis, measure.scale, measure.digits)


def shown_finely(key: str) -> Shown:
    """Return how a measure is printed where small differences count.

    Examples
    --------
    >>> shown_as("ece").digits, shown_finely("ece").digits, shown_finely("nll").digits
    (2, 3, 4)
    """
    shown = shown_as(key)
    return replace(shown, digits=max(shown.digits, _FINE))


MAIN = ("ece", "nll", "brier")
"""The measures of the paper's figures and tests."""
COMPARED = (*MAIN, "tpcr", "mean_gap")
"""What experiments that compare repairs keep in their data."""


def table_name(key: str) -> str:
    """Return a calibrator's name in tables."""
    return "Uncal." if key == "uncalibrated" else short_name(key)
