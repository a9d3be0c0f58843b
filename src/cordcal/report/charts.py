"""The figures of a result as SVG, drawn from its plain dict; nothing is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cordcal.metrics import METRICS
from cordcal.report._svg import Axis, Drawing, Markup, panel

CHANGE_KINDS = (
    ("gained", "C⁺", "wrong to right"),
    ("lost", "C⁻", "right to wrong"),
    ("neutral", "C⁰", "wrong to wrong"),
)
"""The kinds of change: the field of `DecisionChanges`, the paper's symbol, and a description."""

# Up to this many classes, each has its own diagram for every calibrator.
MAX_DIAGRAMS = 12
# Up to this many classes, all moves are a heat map; beyond, the largest are a list.
MAX_HEAT_MAP = 30
# With K classes the mean gap is at most 2 / K: more classes need more digits.
_MANY_CLASSES = 100


def number(measure: str, value: float | None, *, signed: bool = False, classes: int = 0) -> str:
    """Return a formatted value with its unit; with many classes, in more digits.

    Examples
    --------
    >>> number("ece", 0.01234), number("nll", 0.5), number("accuracy", -0.001, signed=True)
    ('1.23 %', '0.5000', '−0.10 points')
    """
    if value is None or math.isnan(value):
        return "–"
    spec = METRICS[measure]
    if measure == "classwise_ece" and classes >= _MANY_CLASSES:
        spec = replace(spec, digits=spec.digits + len(str(classes)) - 2)
    text = spec.write(value, signed=signed)
    # A difference of percentages is in points; 2 % of 50 % would be one point.
    unit = "points" if signed and spec.unit == "%" else spec.unit
    return f"{text} {unit}" if unit else text


# Heights of a reliability diagram and of the other figures, in the drawing's units.
_HEIGHT, _LOW_HEIGHT = 360, 300
# A bin with fewer rows has a smaller mark: its accuracy is mostly noise.
_FEW = 10
_REPORTS = ("original", "direct", "repaired")
# Axes that the histograms and curves of all calibrators share.
_BELOW = {
    "x-confidence": Axis("confidence", 0.0, 1.0),
    "x-kept": Axis("rows kept (%)", 0.0, 100.0),
}


def grounds(data: Mapping[str, Any]) -> Markup:
    """Return the parts that the figures of all calibrators share."""
    confidence, kept = (Drawing.below(x, name, height=_LOW_HEIGHT) for name, x in _BELOW.items())
    return _reliability_ground(data) + confidence + kept


def _reliability_ground(data: Mapping[str, Any]) -> Markup:
    """Return the diagram's axes, diagonal, and the original curve."""
    for entry in data["calibrators"]:
        if "original" in entry["reliability"]:
            return _ground(entry, _HEIGHT).shared("ground")
    return Markup("")


def reliability(entry: Mapping[str, Any]) -> Markup:
    """Draw accuracy against confidence of each output, with bands of 95 % intervals.

    The marks take their hover texts from the table below the figure, row by row.
    """
    drawing = _diagram(_HEIGHT)
    drawing.reuse("ground")
    shown = [name for name in reliability_reports(entry) if name != "original"]
    _add(drawing, entry, shown)
    names = ", ".join(["original", *shown])
    return drawing.markup(f"Reliability diagram of {entry['name']}: {names}")


def reliability_of(entry: Mapping[str, Any], report: str) -> Markup:
    """Draw a smaller diagram of one output."""
    drawing = _diagram(_HEIGHT - 60)
    drawing.line((0, 0), (1, 1), "diagonal")
    _add(drawing, entry, [report], with_tips=True)
    return drawing.markup(f"Reliability diagram of {entry['name']}: {report}")


def _diagram(height: int) -> Drawing:
    return Drawing(Axis("confidence", 0.0, 1.0), Axis("accuracy", 0.0, 1.0), height=height)


def _ground(entry: Mapping[str, Any], height: int) -> Drawing:
    drawing = _diagram(height)
    drawing.line((0, 0), (1, 1), "diagonal")
    _add(drawing, entry, ["original"])
    return drawing


def _add(
    drawing: Drawing, entry: Mapping[str, Any], reports: Sequence[str], *, with_tips: bool = False
) -> None:
    """Draw outputs: all bands, then the lines with their marks."""
    shown = {name: filled(entry["reliability"][name]) for name in reports}
    for report, bins in shown.items():
        low, high = (
            [(point["confidence"], point[end]) for point in bins]
            for end in ("accuracy_low", "accuracy_high")
        )
        drawing.area(low, high, f"interval {report}")
    for report, bins in shown.items():
        line = [(point["confidence"], point["accuracy"]) for point in bins]
        drawing.path(line, f"line {report}")
        for point in bins:
            tip = _bin_tip(report, point) if with_tips else None
            few = " few" if point["count"] < _FEW else ""
            drawing.point(point["confidence"], point["accuracy"], report + few, tip)


def _bin_tip(report: str, point: Mapping[str, Any]) -> str:
    return (
        f"{report}: confidence {point['confidence']:.3f}, accuracy {point['accuracy']:.3f} "
        f"[{point['accuracy_low']:.3f}, {point['accuracy_high']:.3f}], {point['count']:,} rows"
    )


def reliability_reports(entry: Mapping[str, Any]) -> list[str]:
    """Return the outputs of a diagram, without those whose bins equal an earlier one's."""
    seen: list[list[dict[str, Any]]] = []
    names = []
    for name, bins in entry["reliability"].items():
        if filled(bins) not in seen:
            seen.append(filled(bins))
            names.append(name)
    return names


def filled(reliability: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return a diagram's non-empty bins, one dict per bin."""
    names = list(reliability)
    bins = [dict(zip(names, row, strict=True)) for row in zip(*reliability.values(), strict=True)]
    return [record for record in bins if record["count"]]


def histogram(entry: Mapping[str, Any]) -> Markup:
    """Draw how many rows have which confidence: original, direct and repaired."""
    counts = entry["histogram"]
    edges = counts["edges"]
    # A calibrator that needs no repair has no repaired output.
    reports = [name for name in _REPORTS if name != "repaired" or not entry["keeps_decisions"]]
    most = max(max(counts[report]) for report in reports)
    drawing = _low_drawing("x-confidence", Axis("rows", 0.0, 1.06 * most))
    for report in reports:
        drawing.steps(edges, counts[report], f"line {report}")
    texts = {name: [str(count) for count in counts[name]] for name in reports}
    drawing.slots("confidence {} to {}", texts)
    return drawing.markup(f"Histogram of confidence for {entry['name']}")


def _low_drawing(below: str, y: Axis) -> Drawing:
    return Drawing(_BELOW[below], y, height=_LOW_HEIGHT, below=below)


def risk_coverage(entry: Mapping[str, Any]) -> Markup:
    """Draw the share of wrong predictions among the most confident rows, for every share kept."""
    curves = entry["selection"]["reports"]
    highest = max(max(curve["risk"]) for curve in curves.values())
    y = Axis("wrong among them (%)", 0.0, 106.0 * highest or 1.0)
    drawing = _low_drawing("x-kept", y)
    for report, curve in curves.items():
        points = [(100 * x, 100 * y) for x, y in zip(curve["coverage"], curve["risk"], strict=True)]
        drawing.path(points, f"line {report}")
    texts = {
        name: [f"{100 * _risk_at(curve, tenth / 10):.2f} %" for tenth in range(1, 11)]
        for name, curve in curves.items()
    }
    drawing.slots("wrong among the share {1} that is most confident", texts)
    return drawing.markup(f"Risk against coverage of {entry['name']}: {', '.join(curves)}")


def _risk_at(curve: Mapping[str, Sequence[float]], coverage: float) -> float:
    """Return the risk of the first point that keeps so many rows."""
    return next(
        risk
        for share, risk in zip(curve["coverage"], curve["risk"], strict=True)
        if share >= coverage - 1e-9
    )


# Characters of a class name that fit next to the squares, and the width of one.
_MAX_CHARACTERS = 12
_CHARACTER_WIDTH = 6.4
# The side of a square, its maximum for few classes, and the width that these fill.
_SQUARE, _LARGEST, _FIELD = 26, 48, 200


def class_panel(each: Mapping[str, Any]) -> Markup:
    """Draw the reliability of one class in every output."""
    gaps = ", ".join(
        f"{report} {number('classwise_ece', gap)}" for report, gap in each["ece"].items()
    )
    lines = {report: [(bin[0], bin[1]) for bin in bins] for report, bins in each["bins"].items()}
    description = f"Reliability of the class {each['name']}"
    return panel(
        lines, description, f"{each['name']}, {each['rows']:,} rows; ECE of the class: {gaps}"
    )


def empty_panel() -> Markup:
    """Return a diagram for the script to draw in."""
    return panel({}, "Reliability of the class chosen")


def bins_text(each: Mapping[str, Any]) -> str:
    """Return the bins of a class as the script reads them, probabilities in thousandths."""
    return " ".join(f"{report};{_bins(bins)}" for report, bins in each["bins"].items())


def _bins(bins: Sequence[tuple[float, float, float]]) -> str:
    return ";".join(f"{1e3 * p:.0f},{1e3 * share:.0f},{rows:.0f}" for p, share, rows in bins)


def classes_text(entry: Mapping[str, Any], order: Sequence[Mapping[str, Any]]) -> str:
    """Return all classes of a calibrator as compact text, in the order of the first list.

    The script creates rows from it; names, counts and the original output are in the first list.
    """
    classes = {each["name"]: each for each in entry["classes"]}
    return "|".join(_class_text(classes[other["name"]]) for other in order)


def _class_text(each: Mapping[str, Any]) -> str:
    reports = [report for report in each["bins"] if report != "original"]
    gaps = [f"{1e5 * each['ece'][report]:.0f}" for report in reports]
    numbers = ",".join([str(each["left"]), str(each["joined"]), *gaps])
    return " ".join([numbers, *(_bins(each["bins"][report]) for report in reports)])


def heat_map(entry: Mapping[str, Any], class_names: Sequence[str] | None) -> Markup:
    """Draw the moves between classes: a row for the class left, a column for the one joined."""
    moves = entry["moves"]
    involved = {move[end] for move in moves for end in ("source", "target")}
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
    most = moves[0]["count"]
    parts += [_cell(move, names, margin, square, most) for move in moves]
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
    move: Mapping[str, Any], names: Sequence[str], margin: float, square: int, most: int
) -> Markup:
    across, down = (margin + names.index(move[end]) * square for end in ("target", "source"))
    cell = Markup(
        '<rect class="move" x="{}" y="{}" width="{side}" height="{side}" style="--heat:{:.2f}" '
        'data-from="{}" data-to="{}" data-n="{}"{}/>'
        '<text class="tick middle" x="{}" y="{}">{}</text>'
    )
    return cell.format(
        across + 0.5,
        down + 0.5,
        0.15 + 0.65 * move["count"] / most,
        move["source"],
        move["target"],
        move["count"],
        move_attributes(move),
        across + square / 2,
        down + square / 2 + 4,
        move["count"],
        side=square - 1,
    )


def move_attributes(move: Mapping[str, Any]) -> Markup:
    """Return how many rows of a move become right or wrong, as attributes for the script."""
    if move["gained"] is None:
        return Markup("")
    return Markup(' data-gained="{gained}" data-lost="{lost}"').format(**move)


def metric_versus_tpcr(data: Mapping[str, Any], measure: str) -> Markup:
    """Draw a metric of every output against TPCR; outliers are pinned to the edges."""
    spec = METRICS[measure]
    entries = data["calibrators"]
    points = [(100 * entry["changes"]["tpcr"], entry["direct"][measure]) for entry in entries]
    preserving = [
        (0.0, entry[report][measure])
        for entry in entries
        for report in ("repaired", "lift")
        if entry[report] is not None
    ]
    preserving.append((0.0, data["uncalibrated"][measure]))
    y = Axis.robust(spec.axis, [spec.scale * value for _, value in points + preserving])
    changed = Axis.robust("", [share for share, _ in points])
    widest = max(changed.pinned(share) for share, _ in points) or 1.0
    x = Axis("predictions changed (TPCR, %)", -0.04 * widest, 1.06 * widest)
    # Three are side by side, drawn at their displayed width so that text keeps its size.
    drawing = Drawing(x, y, width=330, height=310)
    drawing.band(x.low, -x.low, "zero-band")
    scatter = _Scatter(drawing, measure)
    for entry in entries:
        scatter.join(entry)
    for entry in entries:
        scatter.mark(entry)
    base = data["uncalibrated"][measure]
    tip = f"uncalibrated: {spec.short} {number(measure, base)}"
    scatter.put(0.0, base, "original", tip, "cross", beyond="uncalibrated")
    drawing.labels(scatter.labels)
    return drawing.markup(
        f"{spec.name} against the share of predictions changed, {len(entries)} calibrators; "
        f"the table above has the same numbers"
    )


class _Scatter:
    """Marks on a drawing, pinned to its edges if they lie beyond."""

    def __init__(self, drawing: Drawing, measure: str) -> None:
        self.drawing, self.measure = drawing, measure
        self.spec = METRICS[measure]
        self.labels: list[tuple[float, float, str]] = []

    def _at(self, share: float, value: float) -> tuple[float, float]:
        return self.drawing.x.pinned(share), self.drawing.y.pinned(self.spec.scale * value)

    def join(self, entry: Mapping[str, Any]) -> None:
        """Draw a line from the direct output to each repair."""
        share = 100 * entry["changes"]["tpcr"]
        if share > 0:
            start = self._at(share, entry["direct"][self.measure])
            for report in ("repaired", "lift"):
                if entry[report] is not None:
                    end = self._at(0.0, entry[report][self.measure])
                    self.drawing.line(start, end, f"pair {report}")

    def mark(self, entry: Mapping[str, Any]) -> None:
        """Draw the outputs of a calibrator."""
        share = 100 * entry["changes"]["tpcr"]
        direct = entry["direct"][self.measure]
        if share == 0:
            text = number(self.measure, direct)
            tip = f"{entry['name']} keeps every prediction: {self.spec.short} {text}"
            self.put(0.0, direct, "rival", tip, "square", entry["key"])
            return
        for report in ("repaired", "lift"):
            if entry[report] is not None:
                tip = self._tip(entry, report)
                self.put(0.0, entry[report][self.measure], report, tip, beyond=entry["key"])
        self.put(share, direct, "direct", self._tip(entry, "direct"), name=entry["key"])

    def put(
        self,
        share: float,
        value: float,
        kind: str,
        tip: str,
        shape: str = "circle",
        name: str = "",
        beyond: str = "",
    ) -> None:
        """Draw one mark with its name, if any; a pinned mark always has a name and its value."""
        across, height = self._at(share, value)
        shown = self.spec.scale * value
        side = "up" if shown > height else "down" if shown < height else ""
        text = number(self.measure, value)
        if not side and share > across:
            side, text = "right", f"{share:.2f} %"
        if side:
            name = f"{name or beyond} {text}"
        self.drawing.point(across, height, kind, tip, shape=side or shape)
        if name:
            self.labels.append((across, height, name))

    def _tip(self, entry: Mapping[str, Any], report: str) -> str:
        value = number(self.measure, entry[report][self.measure])
        changed = entry["changes"]["tpcr"] if report == "direct" else 0.0
        return f"{entry['name']}, {report}: {self.spec.short} {value}, TPCR {changed:.2%}"
