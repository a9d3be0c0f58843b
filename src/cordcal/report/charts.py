"""The figures of a result as SVG, drawn from its records; nothing is computed.

The first half draws axes, marks and their hover texts, the second the figures.  Colours are CSS
classes, so that the same drawing serves light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from cordcal.evaluate.results.calibrators import Entry
from cordcal.evaluate.results.pictures import ClassRow, Move, Selective
from cordcal.evaluate.results.report import ReportData, TradeOffMark
from cordcal.metrics import METRICS
from cordcal.metrics.binned import DiagramMark
from cordcal.report.labels import place_labels
from cordcal.report.tables import number, option_name

# Margins for tick labels and axis titles, in the drawing's units.
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
# Above this ratio of largest to smallest, a linear axis hides everything but the largest.
_LOG_RATIO = 8.0
# Values further than this many interquartile ranges from the quartiles would stretch an axis.
_FENCE = 3.0
# Named ticks on an axis of 560 units, and the characters of each.
_NAMED_TICKS, _NAME_LENGTH = 6, 12


@dataclass(frozen=True)
class Axis:
    """One axis: its title, its range, and its ticks."""

    title: str
    low: float
    high: float
    log: bool = False
    # Labels of the whole numbers from 1; the axis then has ticks at whole numbers only.
    names: tuple[str, ...] = ()

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

    def ticks(self) -> list[float]:
        """Return round values inside the range."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [step * 10.0**power for power in decades for step in (1, 2, 5)]
            return [mark for mark in marks if self.low <= mark <= self.high]
        step = self._step()
        if self.names:
            # As many as fit side by side.
            step = max(1, math.ceil(len(self.names) / _NAMED_TICKS))
            return [float(number) for number in range(1, len(self.names) + 1, step)]
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def _step(self) -> float:
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)

    def write(self, value: float) -> str:
        """Return a tick's label, with enough digits to distinguish it from its neighbours."""
        if self.names:
            name = self.names[round(value) - 1]
            return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"
        step = value if self.log else self._step()
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


def _path_data(places: Sequence[tuple[float, float]]) -> str:
    """Return a path through places; relative steps after the first point, which are shorter."""
    steps = [f"{x - left:.4g} {y - top:.4g}" for (left, top), (x, y) in pairwise(places)]
    start = "M{:g} {:g}".format(*places[0])
    return (start + ("l" + " ".join(steps) if steps else "")).replace(" -", "-")


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
        marks = [(*self.at(x, y), text) for x, y, text in texts]
        inside = _LEFT, 0.0, self.width - 2.0, float(self.height - _BOTTOM)
        for label in place_labels(marks, self._marks, inside):
            self._text(label.left, label.middle + 3.5, label.text, "label")
            if label.leader is not None:
                self._line(label.point, label.leader, "leader")

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

    def band(self, low: float, high: float) -> None:
        """Shade a range of x around zero over the whole height."""
        left, _ = self.at(low, self.y.low)
        right, _ = self.at(high, self.y.low)
        shape = Markup('<rect class="zero-band" x="{}" y="{}" width="{}" height="{}"/>')
        self._parts.append(
            shape.format(left, _TOP, round(right - left, 1), self.height - _TOP - _BOTTOM)
        )

    def point(
        self,
        x: float,
        y: float,
        kind: str,
        tip: str | None = None,
        *,
        shape: str = "circle",
        radius: float | None = None,
    ) -> None:
        """Draw a mark that shows ``tip`` on hover and to arrow keys.

        Without one, the row of a table in the same figure is shown.
        """
        pixel_x, pixel_y = self.at(x, y)
        self._marks.append((pixel_x, pixel_y))
        attribute = Markup("") if tip is None else Markup(' data-tip="{}"').format(tip)
        if radius is not None:
            attribute += Markup(' style="r:{:.3g}px"').format(radius)
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


# The figures.

# Heights of a reliability diagram and of the other figures, in the drawing's units.
_HEIGHT, _LOW_HEIGHT = 360, 300
# Radii of the marks of bins, whose areas are proportional to rows.
_LARGEST_RADIUS, _SMALLEST_RADIUS = 4.5, 1.6
# Axes that the histograms and curves of all calibrators share.
_BELOW = {
    "x-confidence": Axis("confidence", 0.0, 1.0),
    "x-kept": Axis("rows kept (%)", 0.0, 100.0),
}


def grounds(data: ReportData) -> Markup:
    """Return the parts that the figures of all calibrators share."""
    confidence, rows_kept = (
        Drawing.below(x, name, height=_LOW_HEIGHT) for name, x in _BELOW.items()
    )
    return _reliability_ground(data) + confidence + rows_kept


def _reliability_ground(data: ReportData) -> Markup:
    """Return the diagram's axes, diagonal, and the original curve."""
    for entry in data.calibrators:
        if "original" in entry.pictures.reliability:
            return _ground(entry, _HEIGHT).shared("ground")
    return Markup("")


def reliability(entry: Entry) -> Markup:
    """Draw accuracy against confidence of each output, with bands of 95 % intervals.

    The marks take their hover texts from the table below the figure, row by row.
    """
    drawing = _diagram(_HEIGHT)
    drawing.reuse("ground")
    shown = [name for name in reliability_outputs(entry) if name != "original"]
    _add(drawing, entry, shown)
    names = ", ".join(["original", *shown])
    return drawing.markup(f"Reliability diagram of {entry.name}: {names}")


def reliability_of(entry: Entry, output: str) -> Markup:
    """Draw a smaller diagram of one output."""
    drawing = _diagram(_HEIGHT - 60)
    drawing.line((0, 0), (1, 1), "diagonal")
    _add(drawing, entry, [output], with_tips=True)
    return drawing.markup(f"Reliability diagram of {entry.name}: {output}")


def _diagram(height: int) -> Drawing:
    return Drawing(Axis("confidence", 0.0, 1.0), Axis("accuracy", 0.0, 1.0), height=height)


def _ground(entry: Entry, height: int) -> Drawing:
    drawing = _diagram(height)
    drawing.line((0, 0), (1, 1), "diagonal")
    _add(drawing, entry, ["original"])
    return drawing


def _add(
    drawing: Drawing, entry: Entry, outputs: Sequence[str], *, with_tips: bool = False
) -> None:
    """Draw outputs: all bands, then the lines with their marks."""
    shown = {name: entry.pictures.reliability[name].marks() for name in outputs}
    for output, marks in shown.items():
        line = [mark for mark in marks if not mark.is_few]
        low = [(mark.confidence, mark.accuracy_low) for mark in line]
        high = [(mark.confidence, mark.accuracy_high) for mark in line]
        drawing.area(low, high, f"interval {output}")
    for output, marks in shown.items():
        line = [mark for mark in marks if not mark.is_few]
        drawing.path([(mark.confidence, mark.accuracy) for mark in line], f"line {output}")
        for mark in marks:
            tip = _bin_tip(output, mark) if with_tips else None
            radius = max(_LARGEST_RADIUS * math.sqrt(mark.area), _SMALLEST_RADIUS)
            drawing.point(mark.confidence, mark.accuracy, output, tip, radius=radius)


def _bin_tip(output: str, point: DiagramMark) -> str:
    return (
        f"{output}: confidence {point.confidence:.3f}, accuracy {point.accuracy:.3f} "
        f"[{point.accuracy_low:.3f}, {point.accuracy_high:.3f}], {point.count:,} rows"
    )


def reliability_outputs(entry: Entry) -> list[str]:
    """Return the outputs of a diagram, without those whose bins equal an earlier one's."""
    seen: list[list[DiagramMark]] = []
    names = []
    for name, bins in entry.pictures.reliability.items():
        marks = bins.marks()
        if marks not in seen:
            seen.append(marks)
            names.append(name)
    return names


def histogram(entry: Entry) -> Markup:
    """Draw how many rows of every output have which confidence."""
    edges, counts = entry.pictures.histogram.edges, entry.pictures.histogram.counts
    largest_count = max(map(max, counts.values()))
    drawing = _low_drawing("x-confidence", Axis("rows", 0.0, 1.06 * largest_count))
    for output, rows in counts.items():
        drawing.steps(edges, rows, f"line {output}")
    drawing.slots("confidence {} to {}", {name: list(map(str, counts[name])) for name in counts})
    return drawing.markup(f"Histogram of confidence for {entry.name}: {', '.join(counts)}")


def _low_drawing(below: str, y: Axis) -> Drawing:
    return Drawing(_BELOW[below], y, height=_LOW_HEIGHT, below=below)


def risk_coverage(entry: Entry, curves: Mapping[str, Selective]) -> Markup:
    """Draw the share of wrong predictions among the most confident rows, for every share kept."""
    highest = max(max(curve.risk) for curve in curves.values())
    y = Axis("wrong among them (%)", 0.0, 106.0 * highest or 1.0)
    drawing = _low_drawing("x-kept", y)
    for output, curve in curves.items():
        points = [(100 * x, 100 * y) for x, y in zip(curve.coverage, curve.risk, strict=True)]
        drawing.path(points, f"line {output}")
    texts = {
        name: [f"{100 * _risk_at(curve, tenth / 10):.2f} %" for tenth in range(1, 11)]
        for name, curve in curves.items()
    }
    drawing.slots("wrong among the share {1} that is most confident", texts)
    return drawing.markup(f"Risk against coverage of {entry.name}: {', '.join(curves)}")


def _risk_at(curve: Selective, coverage: float) -> float:
    """Return the risk of the first point that keeps so many rows."""
    return next(
        risk
        for share, risk in zip(curve.coverage, curve.risk, strict=True)
        if share >= coverage - 1e-9
    )


# Characters of a class name that fit next to the squares, and the width of one.
_MAX_CHARACTERS = 12
_NAME_CHARACTER_WIDTH = 6.4
# The side of a square, its maximum for few classes, and the width that these fill.
_SQUARE, _LARGEST, _FIELD = 26, 48, 200


def class_panel(row: ClassRow) -> Markup:
    """Draw the reliability of one class in every output."""
    gaps = ", ".join(f"{output} {number('classwise_ece', gap)}" for output, gap in row.ece.items())
    lines = {output: [(bin[0], bin[1]) for bin in bins] for output, bins in row.bins.items()}
    description = f"Reliability of the class {row.name}"
    return panel(lines, description, f"{row.name}, {row.rows:,} rows; ECE of the class: {gaps}")


def empty_panel() -> Markup:
    """Return a diagram for the script to draw in."""
    return panel({}, "Reliability of the class chosen")


def bins_text(row: ClassRow) -> str:
    """Return the bins of a class as the script reads them, probabilities in thousandths."""
    return " ".join(f"{output};{_bins(bins)}" for output, bins in row.bins.items())


def _bins(bins: Sequence[tuple[float, float, float]]) -> str:
    return ";".join(f"{1e3 * p:.0f},{1e3 * share:.0f},{rows:.0f}" for p, share, rows in bins)


def classes_text(classes: Sequence[ClassRow], order: Sequence[ClassRow]) -> str:
    """Return all classes of a calibrator as compact text, in the order of the first list.

    The script creates rows from it; names, counts and the original output are in the first list.
    """
    by_name = {row.name: row for row in classes}
    return "|".join(_class_text(by_name[other.name]) for other in order)


def _class_text(row: ClassRow) -> str:
    outputs = [output for output in row.bins if output != "original"]
    gaps = [f"{1e5 * row.ece[output]:.0f}" for output in outputs]
    numbers = ",".join([str(row.left), str(row.joined), *gaps])
    return " ".join([numbers, *(_bins(row.bins[output]) for output in outputs)])


def heat_map(moves: Sequence[Move], class_names: Sequence[str] | None) -> Markup:
    """Draw the moves between classes: a row for the class left, a column for the one joined."""
    involved = {name for move in moves for name in (move.source, move.target)}
    names = sorted(involved, key=int if class_names is None else class_names.index)
    short = [
        name if len(name) <= _MAX_CHARACTERS else f"{name[: _MAX_CHARACTERS - 1]}…"
        for name in names
    ]
    margin = 14 + _NAME_CHARACTER_WIDTH * max(map(len, short))
    square = max(_SQUARE, min(_LARGEST, _FIELD // len(names)))
    side = len(names) * square
    parts = [
        Markup(
            '<rect class="field" x="{margin}" y="{margin}" width="{side}" height="{side}"/>'
        ).format(margin=margin, side=side)
    ]
    row = Markup('<text class="tick end" x="{}" y="{}">{}</text>')
    column = Markup('<text class="tick" transform="translate({} {}) rotate(-60)">{}</text>')
    for index, name in enumerate(short):
        middle = margin + (index + 0.5) * square
        parts.append(row.format(margin - 5, middle + 4, name))
        parts.append(column.format(middle + 3, margin - 5, name))
    largest_count = moves[0].count
    parts += [_cell(move, names, margin, square, largest_count) for move in moves]
    frame = Markup(
        '<svg class="heat" viewBox="0 0 {wide} {high}" style="max-width:{wide}px" role="img" '
        'aria-label="{description}" tabindex="0">{parts}</svg>'
    )
    description = (
        f"Changed predictions: {len(moves)} moves between {len(names)} classes. Arrow keys go "
        f"through them, Enter shows the rows."
    )
    return frame.format(
        wide=1.5 * margin + side,
        high=margin + side + 4,
        description=description,
        parts=Markup("").join(parts),
    )


def _cell(
    move: Move, names: Sequence[str], margin: float, square: int, largest_count: int
) -> Markup:
    across, down = (margin + names.index(name) * square for name in (move.target, move.source))
    cell = Markup(
        '<rect class="move" x="{}" y="{}" width="{side}" height="{side}" style="--heat:{:.2f}" '
        'data-from="{}" data-to="{}" data-n="{}"{}/>'
        '<text class="tick middle" x="{}" y="{}">{}</text>'
    )
    return cell.format(
        across + 0.5,
        down + 0.5,
        0.15 + 0.65 * move.count / largest_count,
        move.source,
        move.target,
        move.count,
        move_attributes(move),
        across + square / 2,
        down + square / 2 + 4,
        move.count,
        side=square - 1,
    )


def move_attributes(move: Move) -> Markup:
    """Return how many rows of a move become right or wrong, as attributes for the script."""
    if move.gained is None:
        return Markup("")
    return Markup(' data-gained="{}" data-lost="{}"').format(move.gained, move.lost)


# The names of this many outputs are written next to their marks; the others are on hover.
_LABELLED = 8


def metric_versus_tpcr(data: ReportData, measure: str) -> Markup:
    """Draw a metric of every output against TPCR; outliers are pinned to the edges."""
    spec = METRICS[measure]
    shown = data.trade_off(measure)
    marks = shown.marks
    y = Axis.robust(spec.axis, [mark.value for mark in marks])
    shares = [mark.changed for mark in marks if mark.changed > 0.0] or [0.0]
    widest = max(map(Axis.robust("", shares).pinned, shares)) or 1.0
    x = Axis("predictions changed (TPCR, %)", -0.04 * widest, 1.06 * widest)
    # Three are side by side, drawn at their displayed width so that text keeps its size.
    drawing = Drawing(x, y, width=330, height=310)
    drawing.band(x.low, -x.low)
    for direct, repaired in shown.pairs:
        start, end = ((x.pinned(mark.changed), y.pinned(mark.value)) for mark in (direct, repaired))
        drawing.line(start, end, f"pair {repaired.output}")
    labels = [_mark(drawing, mark, measure) for mark in marks]
    drawing.labels(labels[-_LABELLED:])
    return drawing.markup(
        f"{spec.name} against the share of predictions changed, {len(data.calibrators)} "
        f"calibrators; the table above has the same numbers"
    )


def _mark(drawing: Drawing, mark: TradeOffMark, measure: str) -> tuple[float, float, str]:
    """Draw one output, and return its label; one beyond the axes is pinned to their edge."""
    metric = METRICS[measure]
    across, height = drawing.x.pinned(mark.changed), drawing.y.pinned(mark.value)
    side = "up" if mark.value > height else "down" if mark.value < height else ""
    text = number(measure, mark.value / metric.scale)
    shape = {"original": "cross", "rival": "square"}.get(mark.kind, "circle")
    if not side and mark.changed > across:
        side, text = "right", f"{mark.changed:.2f} %"
    tip = f"{mark.name}, {mark.output}: {metric.short} {number(measure, mark.value / metric.scale)}"
    tip += f", {mark.changed:.2f} % of predictions changed"
    drawing.point(across, height, mark.kind, tip, shape=side or shape)
    name = option_name(mark.key, mark.output)
    return across, height, f"{name} {text}" if side else name
