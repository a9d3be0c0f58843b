"""The figures of a result as SVG, drawn from its records; nothing is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from cordcal.metrics import METRICS, Reliability
from cordcal.report._svg import Axis, Drawing, Markup, panel
from cordcal.report.columns import metric_as_shown, option_name
from cordcal.report.data import ClassRow, Entry, Move, OutputRow, ReportData, Selective


def number(measure: str, value: float | None, *, signed: bool = False, classes: int = 0) -> str:
    """Return a formatted value with its unit; with many classes, in more digits.

    Examples
    --------
    >>> number("ece", 0.01234), number("nll", 0.5), number("accuracy", -0.001, signed=True)
    ('1.23 %', '0.5000', '−0.10 points')
    """
    if value is None or math.isnan(value):
        return "–"
    spec = metric_as_shown(measure, classes)
    text = spec.write(value, signed=signed)
    # A difference of percentages is in points; 2 % of 50 % would be one point.
    unit = "points" if signed and spec.unit == "%" else spec.unit
    return f"{text} {unit}" if unit else text


# Heights of a reliability diagram and of the other figures, in the drawing's units.
_HEIGHT, _LOW_HEIGHT = 360, 300
# A bin with fewer rows has a smaller mark: its accuracy is mostly noise.
_FEW = 10
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
    shown = {name: filled(entry.pictures.reliability[name]) for name in outputs}
    for output, bins in shown.items():
        low = [(point.confidence, point.accuracy_low) for point in bins]
        high = [(point.confidence, point.accuracy_high) for point in bins]
        drawing.area(low, high, f"interval {output}")
    for output, bins in shown.items():
        line = [(point.confidence, point.accuracy) for point in bins]
        drawing.path(line, f"line {output}")
        for point in bins:
            tip = _bin_tip(output, point) if with_tips else None
            few = " few" if point.count < _FEW else ""
            drawing.point(point.confidence, point.accuracy, output + few, tip)


@dataclass(frozen=True)
class ReliabilityBin:
    """A bin of a reliability diagram that has rows."""

    count: int
    confidence: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float


def _bin_tip(output: str, point: ReliabilityBin) -> str:
    return (
        f"{output}: confidence {point.confidence:.3f}, accuracy {point.accuracy:.3f} "
        f"[{point.accuracy_low:.3f}, {point.accuracy_high:.3f}], {point.count:,} rows"
    )


def reliability_outputs(entry: Entry) -> list[str]:
    """Return the outputs of a diagram, without those whose bins equal an earlier one's."""
    seen: list[list[ReliabilityBin]] = []
    names = []
    for name, bins in entry.pictures.reliability.items():
        if filled(bins) not in seen:
            seen.append(filled(bins))
            names.append(name)
    return names


def filled(reliability: Reliability) -> list[ReliabilityBin]:
    """Return a diagram's bins that have rows."""
    vectors = (getattr(reliability, field.name).tolist() for field in fields(ReliabilityBin))
    bins = (ReliabilityBin(*values) for values in zip(*vectors, strict=True))
    return [record for record in bins if record.count]


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
_CHARACTER_WIDTH = 6.4
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
    margin = 14 + _CHARACTER_WIDTH * max(map(len, short))
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
    rows = data.rows()
    values = [(_percent_changed(row), row.measures[measure]) for row in rows]
    y = Axis.robust(spec.axis, [spec.scale * value for _, value in values])
    shares = [share for share, _ in values if share > 0.0] or [0.0]
    widest = max(map(Axis.robust("", shares).pinned, shares)) or 1.0
    x = Axis("predictions changed (TPCR, %)", -0.04 * widest, 1.06 * widest)
    # Three are side by side, drawn at their displayed width so that text keeps its size.
    drawing = Drawing(x, y, width=330, height=310)
    drawing.band(x.low, -x.low, "zero-band")
    scatter = _Scatter(drawing, measure)
    for entry in data.calibrators:
        scatter.join(entry)
    order = sorted(rows, key=lambda row: row.measures[measure], reverse=not spec.lower_is_better)
    named = {(row.key, row.output) for row in order[:_LABELLED]}
    # The best are drawn last, on top.
    for row in reversed(order):
        scatter.mark(row, named=(row.key, row.output) in named)
    drawing.labels(scatter.labels)
    return drawing.markup(
        f"{spec.name} against the share of predictions changed, {len(data.calibrators)} "
        f"calibrators; the table above has the same numbers"
    )


def _percent_changed(row: OutputRow) -> float:
    return 0.0 if row.changes is None else 100 * row.changes.tpcr


class _Scatter:
    """Marks on a drawing, pinned to its edges if they lie beyond."""

    def __init__(self, drawing: Drawing, measure: str) -> None:
        self.drawing, self.measure = drawing, measure
        self.spec = METRICS[measure]
        self.labels: list[tuple[float, float, str]] = []

    def _at(self, share: float, value: float) -> tuple[float, float]:
        return self.drawing.x.pinned(share), self.drawing.y.pinned(self.spec.scale * value)

    def join(self, entry: Entry) -> None:
        """Draw a line from the direct output to each repair."""
        share = 100 * entry.changes.tpcr
        if share > 0:
            start = self._at(share, entry.direct[self.measure])
            for output in entry.preserving:
                end = self._at(0.0, entry.measures(output)[self.measure])
                self.drawing.line(start, end, f"pair {output}")

    def mark(self, row: OutputRow, *, named: bool) -> None:
        """Draw one output, with its name if it is one of the best."""
        share, value = _percent_changed(row), row.measures[self.measure]
        across, height = self._at(share, value)
        shown = self.spec.scale * value
        side = "up" if shown > height else "down" if shown < height else ""
        text = number(self.measure, value)
        if not side and share > across:
            side, text = "right", f"{share:.2f} %"
        kind, shape = row.output, "circle"
        if row.output == "original":
            shape = "cross"
        elif row.output == "direct" and row.changes is None:
            kind, shape = "rival", "square"
        tip = f"{row.name}, {row.output}: {self.spec.short} {number(self.measure, value)}, "
        tip += f"{share:.2f} % of predictions changed"
        self.drawing.point(across, height, kind, tip, shape=side or shape)
        if named:
            name = option_name(row.key, row.output)
            self.labels.append((across, height, f"{name} {text}" if side else name))
