"""SVG drawing for the report's figures: axes, marks and their hover texts.

Colours are CSS classes, so that the same drawing serves light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

# Margins for tick labels and axis titles, in the drawing's units.
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
# Above this ratio of largest to smallest, a linear axis hides everything but the largest.
_LOG_RATIO = 8.0
# Values further than this many interquartile ranges from the quartiles would stretch an axis.
_FENCE = 3.0
# Approximate width of a character and height of a line in a label.
_CHARACTER_WIDTH, _LINE_HEIGHT = 6.5, 12
# A label that is more lines away from its point has a line to it.
_MAX_LINES_AWAY = 1.5


@dataclass(frozen=True)
class Axis:
    """One axis: its title, its range, and its ticks."""

    title: str
    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, title: str, values: Sequence[float], *, log: bool = False) -> Axis:
        """Return an axis that contains the values with some padding."""
        low, high = min(values), max(values)
        if log:
            return cls(title, low / 1.15, high * 1.15, log=True)
        padding = 0.08 * (high - low) or 0.05 * abs(high) or 0.5
        return cls(title, low - padding, high + padding)

    @classmethod
    def robust(cls, title: str, values: Sequence[float]) -> Axis:
        """Return an axis for most of the values; outliers are pinned to its edges."""
        inside = _without_outliers(values)
        log = min(inside) > 0 and max(inside) > _LOG_RATIO * min(inside)
        return cls.around(title + (", log scale" if log else ""), inside, log=log)

    def pinned(self, value: float) -> float:
        """Return a value, limited to the range of the axis."""
        return min(max(value, self.low), self.high)

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 at the low end to 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, count: int = 5) -> list[float]:
        """Return round values inside the range."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [step * 10.0**power for power in decades for step in (1, 2, 5)]
            return [mark for mark in marks if self.low <= mark <= self.high]
        step = self._step(count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def _step(self, count: int) -> float:
        raw = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(raw))
        return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)

    def write(self, value: float, count: int = 5) -> str:
        """Return a tick's label, with enough digits to distinguish it from its neighbours."""
        step = value if self.log else self._step(count)
        digits = max(0, -math.floor(math.log10(step)))
        return f"{value:,.{digits}f}".replace("-", "−")


_SHAPES = {
    "circle": '<circle class="mark {}" cx="{}" cy="{}"{}/>',
    "square": '<path class="mark {}" d="M{} {}m-4 -4h8v8h-8z"{}/>',
    "cross": '<path class="mark {}" d="M{} {}m-4.5 -4.5l9 9m0 -9l-9 9"{}/>',
    # Pinned to an edge: the value lies beyond.
    "up": '<path class="mark {}" d="M{} {}m-5 4h10l-5 -9z"{}/>',
    "down": '<path class="mark {}" d="M{} {}m-5 -4h10l-5 9z"{}/>',
    "right": '<path class="mark {}" d="M{} {}m-4 -5v10l9 -5z"{}/>',
}

Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


def _without_outliers(values: Sequence[float]) -> list[float]:
    """Return the values within the fences of their quartiles, and those near them.

    Values that would at most double the range are included.
    """
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    reach = _FENCE * (high - low)
    inside = [value for value in ordered if low - reach <= value <= high + reach]
    span = inside[-1] - inside[0] or abs(inside[0]) or 1.0
    return [value for value in ordered if inside[0] - span <= value <= inside[-1] + span]


def _label_positions(pixel_x: float, pixel_y: float, width: float) -> Iterator[tuple[float, float]]:
    """Yield positions for a text around a point, the nearest first: its left end and its middle."""
    for step in (0, 1, -1, 2, -2, 3, -3):
        yield pixel_x + 9, pixel_y + step * _LINE_HEIGHT
        yield pixel_x - 9 - width, pixel_y + step * _LINE_HEIGHT
    yield pixel_x - width / 2, pixel_y + 1.2 * _LINE_HEIGHT
    yield pixel_x - width / 2, pixel_y - 1.2 * _LINE_HEIGHT
    # Further away, with a line to the point.
    for step in range(4, 15):
        for sign in (1, -1):
            yield pixel_x + 24, pixel_y + sign * step * _LINE_HEIGHT
            yield pixel_x - 24 - width, pixel_y + sign * step * _LINE_HEIGHT


def _path_data(places: Sequence[tuple[float, float]]) -> str:
    """Return a path through places; relative steps after the first point, which are shorter."""
    steps = [f"{x - left:.4g} {y - top:.4g}" for (left, top), (x, y) in pairwise(places)]
    start = "M{:g} {:g}".format(*places[0])
    return (start + ("l" + " ".join(steps) if steps else "")).replace(" -", "-")


def _overlap(first: Box, second: Box) -> bool:
    left, top, right, bottom = first
    return left < second[2] and second[0] < right and top < second[3] and second[1] < bottom


class Drawing:
    """Marks on two axes, in the order they were added."""

    def __init__(
        self, x: Axis, y: Axis, *, width: int = 380, height: int = 320, below: str | None = None
    ) -> None:
        self.x, self.y = x, y
        self.width, self.height = width, height
        self._parts: list[Markup] = []
        self._marks: list[tuple[float, float]] = []
        if below is None:
            self._axis_below()
        else:
            self.reuse(below)
        self._axis_left()

    @classmethod
    def below(cls, x: Axis, name: str, *, height: int) -> Markup:
        """Return an x axis that several drawings reuse by name."""
        drawing = cls(x, Axis("", 0.0, 1.0), height=height)
        drawing._parts.clear()
        drawing._axis_below()
        return drawing.shared(name)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the drawing's coordinates of a point."""
        pixel_x = _LEFT + self.x.place(x) * (self.width - _LEFT - _RIGHT)
        pixel_y = self.height - _BOTTOM - self.y.place(y) * (self.height - _TOP - _BOTTOM)
        return round(pixel_x, 1), round(pixel_y, 1)

    def _axis_below(self) -> None:
        bottom, right = self.height - _BOTTOM, self.width - _RIGHT
        ticks = [(self.at(tick, self.y.low)[0], self.x.write(tick)) for tick in self.x.ticks()]
        self._lines([f"M{at:g} {bottom}V{_TOP}" for at, _ in ticks])
        for at, text in ticks:
            self._text(at, bottom + 15, text, "middle")
        self._text((_LEFT + right) / 2, self.height - 6, self.x.title, "title middle")

    def _axis_left(self) -> None:
        right = self.width - _RIGHT
        ticks = [(self.at(self.x.low, tick)[1], self.y.write(tick)) for tick in self.y.ticks()]
        self._lines([f"M{_LEFT} {at:g}H{right}" for at, _ in ticks])
        for at, text in ticks:
            self._text(_LEFT - 6, at + 3.5, text, "end")
        rotated = Markup(
            '<text class="title middle" transform="translate(12 {}) rotate(-90)">{}</text>'
        )
        self._parts.append(rotated.format((self.height - _BOTTOM + _TOP) / 2, self.y.title))

    def _lines(self, lines: Sequence[str]) -> None:
        self._parts.append(Markup('<path class="grid" d="{}"/>').format("".join(lines)))

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
        """Write labels next to points of the data, without covering other labels or marks.

        A label that does not fit is omitted; the hover text of its mark still has it.
        """
        occupied = [(x - 5, y - 5, x + 5, y + 5) for x, y in self._marks]
        for x, y, text in sorted(texts, key=lambda label: -label[1]):
            pixel_x, pixel_y = self.at(x, y)
            width = _CHARACTER_WIDTH * len(text)
            for left, middle in _label_positions(pixel_x, pixel_y, width):
                box = (left, middle - _LINE_HEIGHT / 2, left + width, middle + _LINE_HEIGHT / 2)
                if self._fits(box) and not any(_overlap(box, other) for other in occupied):
                    occupied.append(box)
                    self._text(left, middle + 3.5, text, "label")
                    if abs(middle - pixel_y) > _MAX_LINES_AWAY * _LINE_HEIGHT:
                        near = left if left > pixel_x else left + width
                        self._line((pixel_x, pixel_y), (round(near, 1), round(middle, 1)), "leader")
                    break

    def _fits(self, box: Box) -> bool:
        left, top, right, bottom = box
        inside = left >= _LEFT and right <= self.width - 2
        return inside and top >= 0 and bottom <= self.height - _BOTTOM

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draw a line through points of the data."""
        if points:
            steps = _path_data([self.at(*point) for point in points])
            self._parts.append(Markup('<path class="{}" d="{}"/>').format(kind, steps))

    def steps(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> None:
        """Draw a line that keeps each height from one edge to the next."""
        start, first = self.at(edges[0], heights[0])
        moves = [f"M{start:g} {first:g}"]
        for edge, height in zip(edges[1:], heights, strict=True):
            pixel_x, pixel_y = self.at(edge, height)
            moves.append(f"V{pixel_y:g}H{pixel_x:g}")
        self._parts.append(Markup('<path class="{}" d="{}"/>').format(kind, "".join(moves)))

    def area(
        self, low: Sequence[tuple[float, float]], high: Sequence[tuple[float, float]], kind: str
    ) -> None:
        """Shade what lies between two lines through points of the data."""
        if low:
            steps = _path_data([self.at(*point) for point in [*low, *reversed(high)]])
            self._parts.append(Markup('<path class="{}" d="{}Z"/>').format(kind, steps))

    def band(self, low: float, high: float, kind: str) -> None:
        """Shade a range of x over the whole height."""
        left, _ = self.at(low, self.y.low)
        right, _ = self.at(high, self.y.low)
        shape = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
        self._parts.append(
            shape.format(kind, left, _TOP, round(right - left, 1), self.height - _TOP - _BOTTOM)
        )

    def point(
        self, x: float, y: float, kind: str, tip: str | None = None, *, shape: str = "circle"
    ) -> None:
        """Draw a mark that shows ``tip`` on hover and to arrow keys.

        Without one, the row of a table in the same figure is shown.
        """
        pixel_x, pixel_y = self.at(x, y)
        self._marks.append((pixel_x, pixel_y))
        attribute = Markup("") if tip is None else Markup(' data-tip="{}"').format(tip)
        self._parts.append(Markup(_SHAPES[shape]).format(kind, pixel_x, pixel_y, attribute))

    def slots(self, words: str, values: Mapping[str, Sequence[str]]) -> None:
        """Add values of several lines at even steps of x; the script creates the hover texts.

        ``words`` describes a step, with {} for its ends.
        """
        box = (_LEFT, _TOP, self.width - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM)
        text = ";".join(f"{name}:{','.join(steps)}" for name, steps in values.items())
        shape = Markup('<g class="slots" data-box="{}" data-words="{}" data-values="{}"></g>')
        self._parts.append(shape.format(" ".join(map(str, box)), words, text))

    def shared(self, name: str) -> Markup:
        """Return the parts so far as a hidden element that other drawings `reuse`."""
        group = Markup(
            '<svg class="shared" aria-hidden="true"><g id="{}" class="reused">{}</g></svg>'
        )
        return group.format(name, Markup("").join(self._parts))

    def reuse(self, name: str) -> None:
        """Replace the parts so far by those that another drawing shared."""
        self._parts = [Markup('<use href="#{}"/>').format(name)]

    def markup(self, description: str) -> Markup:
        """Return the SVG element; ``description`` is for screen readers."""
        frame = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" tabindex="0">{}</svg>')
        return frame.format(self.width, self.height, description, Markup("").join(self._parts))


# Side of a small diagram, in units that the script uses too.
PANEL = 100


def panel(
    lines: Mapping[str, Sequence[tuple[float, float]]], description: str, tip: str | None = None
) -> Markup:
    """Return a small square diagram from 0 to 1 with a diagonal and lines through points."""
    attribute = Markup("") if tip is None else Markup(' data-tip="{}"').format(tip)
    paths = Markup("").join(
        Markup('<path class="line {}" d="{}"/>').format(
            kind, _path_data([(round(PANEL * x, 1), round(PANEL * (1 - y), 1)) for x, y in points])
        )
        for kind, points in lines.items()
        if points
    )
    frame = Markup(
        '<svg class="panel" viewBox="-2 -2 {edge} {edge}" data-size="{size}" role="img" '
        'aria-label="{description}" tabindex="0"{attribute}>'
        '<path class="frame" d="M0 0H{size}V{size}H0Z"/>'
        '<path class="diagonal" d="M0 {size}L{size} 0"/>'
        '<g class="lines">{paths}</g></svg>'
    )
    return frame.format(
        edge=PANEL + 4, size=PANEL, description=description, attribute=attribute, paths=paths
    )


__all__ = ["Axis", "Drawing", "Markup", "escape", "panel"]
