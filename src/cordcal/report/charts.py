"""The report's pictures, drawn from the plain dict of a result.  Nothing is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordcal.metrics import MEASURES
from cordcal.report._svg import Axis, Drawing, Markup
from cordcal.report.words import number

# Above this ratio of largest to smallest, a linear axis hides everything but the largest.
_LOG_RATIO = 8.0
_REPORTS = ("direct", "repaired")


def metric_versus_tpcr(data: Mapping[str, Any], measure: str) -> Markup:
    """Draw a measure against TPCR, each direct report joined to its repair."""
    spec = MEASURES[measure]
    entries = data["calibrators"]
    values = [entry[report][measure] for entry in entries for report in _REPORTS]
    values.append(data["uncalibrated"][measure])
    scaled = [spec.scale * value for value in values]
    log = min(scaled) > 0 and max(scaled) > _LOG_RATIO * min(scaled)
    widest = max(100 * entry["changes"]["tpcr"] for entry in entries)
    x = Axis("decisions changed (TPCR, %)", -0.04 * (widest or 1), 1.06 * (widest or 1))
    y = Axis.around(spec.axis + (", log scale" if log else ""), scaled, log=log)
    drawing = Drawing(x, y)
    drawing.band(x.low, -x.low, "zero-band")
    for entry in entries:
        direct, repaired = (spec.scale * entry[report][measure] for report in _REPORTS)
        tpcr = 100 * entry["changes"]["tpcr"]
        if tpcr > 0:
            drawing.line((tpcr, direct), (0, repaired), "pair")
    labels: list[tuple[float, float, str]] = []
    for entry in entries:
        direct, repaired = (spec.scale * entry[report][measure] for report in _REPORTS)
        tpcr = 100 * entry["changes"]["tpcr"]
        if tpcr == 0:
            value = number(measure, entry["direct"][measure])
            tip = f"{entry['name']} keeps every decision: {spec.short} {value}"
            drawing.point(0, direct, "rival", tip, shape="square")
            continue
        drawing.point(0, repaired, "repaired", _tip(entry, "repaired", measure))
        drawing.point(tpcr, direct, "direct", _tip(entry, "direct", measure))
        labels.append((tpcr, direct, entry["key"]))
    drawing.labels(labels)
    base = data["uncalibrated"][measure]
    tip = f"uncalibrated: {spec.short} {number(measure, base)}"
    drawing.point(0, spec.scale * base, "original", tip, shape="cross")
    return drawing.markup(
        f"{spec.name} against the share of decisions changed, {len(entries)} calibrators; "
        f"the table above holds the same numbers"
    )


def _tip(entry: Mapping[str, Any], report: str, measure: str) -> str:
    value = number(measure, entry[report][measure])
    changed = 0.0 if report == "repaired" else entry["changes"]["tpcr"]
    return f"{entry['name']}, {report}: {MEASURES[measure].short} {value}, TPCR {changed:.2%}"


def reliability(entry: Mapping[str, Any]) -> Markup:
    """Draw accuracy against confidence of each report, with bands of 95 % intervals."""
    drawing = Drawing(
        Axis("confidence", 0.0, 1.0), Axis("accuracy", 0.0, 1.0), width=380, height=360
    )
    drawing.line((0, 0), (1, 1), "diagonal")
    shown = {name: filled(entry["reliability"][name]) for name in reliability_reports(entry)}
    for report, bins in shown.items():
        low, high = (
            [(each["confidence"], each[end]) for each in bins]
            for end in ("accuracy_low", "accuracy_high")
        )
        drawing.area(low, high, f"interval {report}")
    for report, bins in shown.items():
        drawing.path([(each["confidence"], each["accuracy"]) for each in bins], f"line {report}")
        for each in bins:
            tip = (
                f"{report}: confidence {each['confidence']:.3f}, accuracy {each['accuracy']:.3f} "
                f"[{each['accuracy_low']:.3f}, {each['accuracy_high']:.3f}], {each['count']:,} rows"
            )
            drawing.point(each["confidence"], each["accuracy"], report, tip)
    return drawing.markup(f"Reliability diagram of {entry['name']}: {', '.join(shown)}")


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
    reports = ("original", *_REPORTS)
    most = max(max(counts[report]) for report in reports)
    drawing = Drawing(Axis("confidence", 0.0, 1.0), Axis("rows", 0.0, 1.06 * most), height=300)
    for low, high, *bars in zip(
        edges[:-1], edges[1:], *(counts[name] for name in reports), strict=True
    ):
        tip = f"confidence {low:.2f} to {high:.2f}: " + ", ".join(
            f"{name} {count:,}" for name, count in zip(reports, bars, strict=True)
        )
        drawing.bar(low, high, max(bars), "hover", tip)
    for report in reports:
        steps: list[tuple[float, float]] = []
        for low, high, count in zip(edges[:-1], edges[1:], counts[report], strict=True):
            steps += [(low, count), (high, count)]
        drawing.path(steps, f"line {report}")
    return drawing.markup(f"Histogram of confidence for {entry['name']}")
