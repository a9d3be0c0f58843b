"""Chapters: the text, tables, figures and data of one experiment, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cordcal.metrics import METRICS
from cordcal.report.tables import Entry as Entry
from cordcal.report.tables import Part as Part
from cordcal.report.tables import Table as Table
from cordcal_study.calibrators import short_name
from cordcal_study.tidy import Record

FigureKind = Literal["changes", "tradeoff", "reliability", "curves", "ranks"]


@dataclass(frozen=True)
class Figure:
    """The data of a figure, which `cordcal_study.figures` draws.

    Without data the file of an earlier run is kept.
    """

    name: str
    kind: FigureKind
    caption: str
    data: Mapping[str, Any] | None


@dataclass(frozen=True)
class Chapter:
    """One experiment of a study.

    Attributes
    ----------
    key, title : str
        The name in a study file, and the heading.
    paragraphs : tuple of str
        The text.
    tables, figures : tuple
        What the chapter shows.
    data : mapping of str to sequence of named tuples
        The numbers behind it by file name; ``"data"`` is what the tables are made from.
    files : mapping of str to str
        Other files, by path.
    """

    key: str
    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    data: Mapping[str, Sequence[Record]] = field(default_factory=dict, repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)


def text(value: str, *, strong: bool = False) -> Entry:
    """Return text as one entry of a table."""
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
    if float(shown) == 0.0:  # neither −0.00 nor +0.00
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
    """How a metric is printed in the paper's tables."""

    name: str
    scale: float
    digits: int


# What the paper's tables print in another way, or count among the metrics.
_OWN = {
    "accuracy": Shown("Acc. (%)", 100.0, 2),
    "tpcr": Shown("Predictions changed (%)", 100.0, 2),
    "mean_gap": Shown("|s̄ − b̄| (pp)", 100.0, 2),
}
# Repairs of one calibrator differ by little, so their tables have at least so many digits.
_FINE = 3


def shown_as(key: str) -> Shown:
    """Return how a metric is printed."""
    if key in _OWN:
        return _OWN[key]
    measure = METRICS[key]
    return Shown(measure.axis, measure.scale, measure.digits)


def shown_finely(key: str) -> Shown:
    """Return how a metric is printed where small differences count.

    Examples
    --------
    >>> shown_as("ece").digits, shown_finely("ece").digits, shown_finely("nll").digits
    (2, 3, 4)
    """
    shown = shown_as(key)
    return replace(shown, digits=max(shown.digits, _FINE))


MAIN = ("ece", "nll", "brier")
"""The metrics of the paper's figures and tests."""
COMPARED = (*MAIN, "tpcr", "mean_gap")
"""The metrics in the data of experiments that compare repairs."""


def table_name(key: str) -> str:
    """Return a calibrator's name in tables."""
    return "Uncal." if key == "uncalibrated" else short_name(key)
