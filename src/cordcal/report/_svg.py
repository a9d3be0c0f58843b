"""A small drawing board for the report's pictures: axes, marks and their hover texts as SVG.

Colours are CSS classes, so that the same drawing serves light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

# Room for tick labels and axis titles, in the drawing's own units.
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
# About the width of a letter and the height of a line in a label.
_LETTER, _LINE = 6.5, 12


@dataclass(frozen=True)
class Axis:
    """One axis: its title, its range, and how its ticks are written."""

    title: str
    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, title: str, values: Sequence[float], *, log: bool = False) -> Axis:
        """Return an axis that holds the values with a little air."""
        low, high = min(values), max(values)
        if log:
            return cls(title, low / 1.15, high * 1.15, log=True)
        air = 0.08 * (high - low) or 0.05 * abs(high) or 0.5
        return cls(title, low - air, high + air)

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 at the low end to 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Return round values inside the range."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [step * 10.0**power for power in decades for step in (1, 2, 5)]
            return [mark for mark in marks if self.low <= mark <= self.high]
        step = self._step(wanted)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def _step(self, wanted: int) -> float:
        raw = (self.high - self.low) / wanted
        power = 10.0 ** math.floor(math.log10(raw))
        return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)

    def write(self, value: float, wanted: int = 5) -> str:
        """Return a tick's label, with as many digits as tell it from its neighbours."""
        step = value if self.log else self._step(wanted)
        digits = max(0, -math.floor(math.log10(step)))
        return f"{value:,.{digits}f}".replace("-", "−")


class Drawing:
    """Marks on two axes, in the order they were added."""

    def __init__(self, x: Axis, y: Axis, *, width: int = 380, height: int = 320) -> None:
        self.x, self.y = x, y
        self.width, self.height = width, height
        self._parts: list[Markup] = []
        self._grid()

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the drawing's coordinates of a point."""
        across = _LEFT + self.x.place(x) * (self.width - _LEFT - _RIGHT)
        down = self.height - _BOTTOM - self.y.place(y) * (self.height - _TOP - _BOTTOM)
        return round(across, 1), round(down, 1)

    def _grid(self) -> None:
        floor, ceiling = self.height - _BOTTOM, _TOP
        wall = self.width - _RIGHT
        for tick in self.x.ticks():
            across, _ = self.at(tick, self.y.low)
            self._line((across, floor), (across, ceiling), "grid")
            self._text(across, floor + 15, self.x.write(tick), "tick middle")
        for tick in self.y.ticks():
            _, down = self.at(self.x.low, tick)
            self._line((_LEFT, down), (wall, down), "grid")
            self._text(_LEFT - 6, down + 3.5, self.y.write(tick), "tick end")
        self._text((_LEFT + wall) / 2, self.height - 6, self.x.title, "title middle")
        turned = Markup(
            '<text class="title middle" transform="translate(12 {}) rotate(-90)">{}</text>'
        )
        self._parts.append(turned.format((floor + ceiling) / 2, self.y.title))

    def _line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
        shape = Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>')
        self._parts.append(shape.format(kind, *start, *end))

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        shape = Markup('<text class="{}" x="{}" y="{}">{}</text>')
        self._parts.append(shape.format(kind, round(x, 1), round(y, 1), text))

    def line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
        """Draw a line between two points of the data."""
        self._line(self.at(*start), self.at(*end), kind)

    def labels(self, texts: Sequence[tuple[float, float, str]]) -> None:
        """Write beside points of the data, each text at the nearest height that is free."""
        taken: list[tuple[float, float, float]] = []
        for x, y, text in sorted(texts, key=lambda label: -label[1]):
            across, down = self.at(x, y)
            flip = across > self.width * 0.7
            start = across - 8 - _LETTER * len(text) if flip else across + 8
            end = start + _LETTER * len(text)
            for step in range(2 * len(texts) + 1):  # 0, then one up, one down, two up, ...
                height = down + _LINE * (step // 2 + step % 2) * (-1 if step % 2 else 1)
                inside = _TOP <= height <= self.height - _BOTTOM
                clash = any(
                    start < right and left < end and abs(height - other) < _LINE
                    for left, right, other in taken
                )
                if inside and not clash:
                    break
            taken.append((start, end, height))
            kind = "label end" if flip else "label"
            self._text(across + (-8 if flip else 8), height + 3.5, text, kind)

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draw a line through points of the data."""
        if points:
            steps = " L".join("{} {}".format(*self.at(*point)) for point in points)
            self._parts.append(Markup('<path class="{}" d="M{}"/>').format(kind, steps))

    def area(
        self, low: Sequence[tuple[float, float]], high: Sequence[tuple[float, float]], kind: str
    ) -> None:
        """Shade what lies between two lines through points of the data."""
        if low:
            edge = [*low, *reversed(high)]
            steps = " L".join("{} {}".format(*self.at(*point)) for point in edge)
            self._parts.append(Markup('<path class="{}" d="M{}Z"/>').format(kind, steps))

    def band(self, low: float, high: float, kind: str) -> None:
        """Shade a range of x over the whole height."""
        left, _ = self.at(low, self.y.low)
        right, _ = self.at(high, self.y.low)
        shape = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
        self._parts.append(
            shape.format(kind, left, _TOP, round(right - left, 1), self.height - _TOP - _BOTTOM)
        )

    def bar(self, low: float, high: float, top: float, kind: str, tip: str) -> None:
        """Draw a bar from the floor to ``top``."""
        left, ceiling = self.at(low, top)
        right, floor = self.at(high, self.y.low)
        shape = Markup('<rect class="mark {}" x="{}" y="{}" width="{}" height="{}" data-tip="{}"/>')
        self._parts.append(
            shape.format(
                kind, left, ceiling, round(right - left, 1), round(floor - ceiling, 1), tip
            )
        )

    def point(self, x: float, y: float, kind: str, tip: str, *, shape: str = "circle") -> None:
        """Draw a mark that shows ``tip`` on hover and on keyboard focus."""
        across, down = self.at(x, y)
        shapes = {
            "circle": '<circle class="mark {}" cx="{}" cy="{}" r="4.5" data-tip="{}"/>',
            "square": '<path class="mark {}" d="M{} {}m-4 -4h8v8h-8z" data-tip="{}"/>',
            "cross": '<path class="mark {}" d="M{} {}m-4.5 -4.5l9 9m0 -9l-9 9" data-tip="{}"/>',
        }
        self._parts.append(Markup(shapes[shape]).format(kind, across, down, tip))

    def markup(self, description: str) -> Markup:
        """Return the SVG element; ``description`` is what a screen reader says."""
        frame = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" tabindex="0">{}</svg>')
        return frame.format(self.width, self.height, description, Markup("").join(self._parts))


__all__ = ["Axis", "Drawing", "Markup", "escape"]
