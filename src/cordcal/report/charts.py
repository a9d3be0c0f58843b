"""The pictures of one calibrator, drawn from the plain dict of a result: nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordcal.report._svg import Axis, Drawing, Markup

# Of a reliability diagram and of the other pictures, in the drawing's units.
_HEIGHT, _LOW = 360, 300
# A bin of fewer rows has a smaller mark: its accuracy is mostly chance.
_FEW = 10
_REPORTS = ("original", "direct", "repaired")
# Axes that every calibrator's histogram and curve have.
_BELOW = {
    "x-confidence": Axis("confidence", 0.0, 1.0),
    "x-kept": Axis("rows kept (%)", 0.0, 100.0),
}


def grounds(data: Mapping[str, Any]) -> Markup:
    """Return what the pictures of all calibrators have in common, for them to reuse."""
    confidence, kept = (Drawing.below(x, name, height=_LOW) for name, x in _BELOW.items())
    return _reliability_ground(data) + confidence + kept


def _reliability_ground(data: Mapping[str, Any]) -> Markup:
    """Return the diagram's axes, diagonal, and the original report."""
    for entry in data["calibrators"]:
        if "original" in entry["reliability"]:
            return _ground(entry, _HEIGHT).shared("ground")
    return Markup("")


def reliability(entry: Mapping[str, Any]) -> Markup:
    """Draw accuracy against confidence of each report, with bands of 95 % intervals.

    The marks take their hover texts from the table below the picture, row by row.
    """
    drawing = _diagram(_HEIGHT)
    drawing.reuse("ground")
    shown = [name for name in reliability_reports(entry) if name != "original"]
    _add(drawing, entry, shown)
    said = ", ".join(["original", *shown])
    return drawing.markup(f"Reliability diagram of {entry['name']}: {said}")


def reliability_of(entry: Mapping[str, Any], report: str) -> Markup:
    """Draw one report's diagram by itself, smaller."""
    drawing = _diagram(_HEIGHT - 60)
    drawing.line((0, 0), (1, 1), "diagonal")
    _add(drawing, entry, [report], told=True)
    return drawing.markup(f"Reliability diagram of {entry['name']}: {report}")


def _diagram(height: int) -> Drawing:
    return Drawing(Axis("confidence", 0.0, 1.0), Axis("accuracy", 0.0, 1.0), height=height)


def _ground(entry: Mapping[str, Any], height: int) -> Drawing:
    drawing = _diagram(height)
    drawing.line((0, 0), (1, 1), "diagonal")
    _add(drawing, entry, ["original"])
    return drawing


def _add(
    drawing: Drawing, entry: Mapping[str, Any], reports: Sequence[str], *, told: bool = False
) -> None:
    """Draw reports: all bands, then the lines with their marks."""
    shown = {name: filled(entry["reliability"][name]) for name in reports}
    for report, bins in shown.items():
        low, high = (
            [(each["confidence"], each[end]) for each in bins]
            for end in ("accuracy_low", "accuracy_high")
        )
        drawing.area(low, high, f"interval {report}")
    for report, bins in shown.items():
        drawing.path([(each["confidence"], each["accuracy"]) for each in bins], f"line {report}")
        for each in bins:
            tip = _bin_tip(report, each) if told else None
            few = " few" if each["count"] < _FEW else ""
            drawing.point(each["confidence"], each["accuracy"], report + few, tip)


def _bin_tip(report: str, each: Mapping[str, Any]) -> str:
    return (
        f"{report}: confidence {each['confidence']:.3f}, accuracy {each['accuracy']:.3f} "
        f"[{each['accuracy_low']:.3f}, {each['accuracy_high']:.3f}], {each['count']:,} rows"
    )


def reliability_reports(entry: Mapping[str, Any]) -> list[str]:
    """Return the reports of a diagram, once where two have the same bins."""
    seen: list[list[dict[str, Any]]] = []
    names = []
    for name, bins in entry["reliability"].items():
        if filled(bins) not in seen:
            seen.append(filled(bins))
            names.append(name)
    return names


def filled(reliability: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return a diagram's bins that hold rows, one dict a bin."""
    names = list(reliability)
    bins = [dict(zip(names, row, strict=True)) for row in zip(*reliability.values(), strict=True)]
    return [each for each in bins if each["count"]]


def histogram(entry: Mapping[str, Any]) -> Markup:
    """Draw how many rows have which confidence: original, direct and repaired."""
    counts = entry["histogram"]
    edges = counts["edges"]
    # A map that keeps decisions has one report, not two.
    reports = [name for name in _REPORTS if name != "repaired" or not entry["keeps_decisions"]]
    most = max(max(counts[report]) for report in reports)
    drawing = _low_drawing("x-confidence", Axis("rows", 0.0, 1.06 * most))
    for report in reports:
        drawing.steps(edges, counts[report], f"line {report}")
    told = {name: [str(count) for count in counts[name]] for name in reports}
    drawing.slots("confidence {} to {}", told)
    return drawing.markup(f"Histogram of confidence for {entry['name']}")


def _low_drawing(below: str, y: Axis) -> Drawing:
    return Drawing(_BELOW[below], y, height=_LOW, below=below)


def risk_coverage(entry: Mapping[str, Any]) -> Markup:
    """Draw the share of wrong decisions among the most confident rows, for every share kept."""
    curves = entry["selection"]["reports"]
    highest = max(max(curve["risk"]) for curve in curves.values())
    y = Axis("wrong among them (%)", 0.0, 106.0 * highest or 1.0)
    drawing = _low_drawing("x-kept", y)
    for report, curve in curves.items():
        points = [(100 * x, 100 * y) for x, y in zip(curve["coverage"], curve["risk"], strict=True)]
        drawing.path(points, f"line {report}")
    told = {
        name: [f"{100 * _risk_at(curve, tenth / 10):.2f} %" for tenth in range(1, 11)]
        for name, curve in curves.items()
    }
    drawing.slots("wrong among the share {1} that is most confident", told)
    return drawing.markup(f"Risk against coverage of {entry['name']}: {', '.join(curves)}")


def _risk_at(curve: Mapping[str, Sequence[float]], coverage: float) -> float:
    """Return the risk of the first point that keeps so many rows."""
    return next(
        risk
        for kept, risk in zip(curve["coverage"], curve["risk"], strict=True)
        if kept >= coverage - 1e-9
    )
