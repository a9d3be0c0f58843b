"""What a calibrator's class says about itself: its size, its role, and the table of all facts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Role = Literal["base", "rival"]
"""A base may change decisions and is repaired; a rival keeps them by design."""

# What an isotonic curve of a few thousand rows comes to: some twenty knots of two numbers.
_CURVE = 40


@dataclass(frozen=True, slots=True)
class Size:
    """How many numbers a map is fitted with, as a function of the number of classes K.

    Attributes
    ----------
    fixed, per_class, squared : int
        Their number is fixed + per_class·K + squared·K².
    curves, curves_per_class : int
        Curves with as many knots as the rows ask for; each counts as forty numbers.
    uncounted : str
        What no formula counts, in a word: ``"networks"``.  Larger than all that is counted.

    Examples
    --------
    >>> size = Size(fixed=1, per_class=2)
    >>> str(size), size.at(10)
    ('2K + 1', 21)
    """

    fixed: int = 0
    per_class: int = 0
    squared: int = 0
    curves: int = 0
    curves_per_class: int = 0
    uncounted: str = ""

    def at(self, classes: int) -> float:
        """Return the number of fitted numbers with so many classes; simpler maps have fewer."""
        if self.uncounted:
            return math.inf
        curves = self.curves + self.curves_per_class * classes
        return self.fixed + self.per_class * classes + self.squared * classes**2 + _CURVE * curves

    def __str__(self) -> str:
        terms = (
            (self.uncounted, bool(self.uncounted)),
            ("K²", self.squared),
            ("K", self.per_class),
            ("K curves", self.curves_per_class),
            ("curve", self.curves),
            ("", self.fixed),
        )
        return " + ".join(_term(word, count) for word, count in terms if count)


def _term(word: str, count: int) -> str:
    """Write a count before a word; a one is not written where there is a word."""
    return word if word and count == 1 else f"{count}{word}"


@dataclass(frozen=True)
class Facts:
    """What there is to know about a calibrator before using it."""

    key: str
    title: str
    parameters: str
    works_on: str
    keeps_argmax: bool
    keeps_order: bool
    takes_masked: bool
    cost: str
    reference: str

    def to_dict(self) -> dict[str, Any]:
        """Return the facts by name."""
        return asdict(self)


class FactTable(tuple[Facts, ...]):
    """The facts of several calibrators; prints as a table."""

    __slots__ = ()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, ready for a data frame."""
        rows = [facts.to_dict() for facts in self]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def __repr__(self) -> str:
        columns = {
            name.replace("_", " "): [_cell(value) for value in values]
            for name, values in self.to_dict().items()
        }
        widths = {name: max(map(len, [name, *values])) for name, values in columns.items()}
        lines = ["  ".join(name.ljust(width) for name, width in widths.items())]
        lines.append("  ".join("-" * width for width in widths.values()))
        for row in zip(*columns.values(), strict=True):
            cells = zip(row, widths.values(), strict=True)
            lines.append("  ".join(cell.ljust(width) for cell, width in cells))
        return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
