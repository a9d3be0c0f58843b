"""A measure against the share of decisions changed, each direct report joined to its repairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordcal.metrics import MEASURES
from cordcal.report._svg import Axis, Drawing, Markup
from cordcal.report.words import number


def metric_versus_tpcr(data: Mapping[str, Any], measure: str) -> Markup:
    """Draw a measure of every report against TPCR; values far from the rest are pinned."""
    spec = MEASURES[measure]
    entries = data["calibrators"]
    points = [(100 * entry["changes"]["tpcr"], entry["direct"][measure]) for entry in entries]
    kept = [
        (0.0, entry[report][measure])
        for entry in entries
        for report in ("repaired", "lift")
        if entry[report] is not None
    ]
    kept.append((0.0, data["uncalibrated"][measure]))
    y = Axis.robust(spec.axis, [spec.scale * value for _, value in points + kept])
    changed = Axis.robust("", [share for share, _ in points])
    widest = max(changed.pinned(share) for share, _ in points) or 1.0
    x = Axis("decisions changed (TPCR, %)", -0.04 * widest, 1.06 * widest)
    # Three stand side by side: as wide as they are shown, so that letters keep their size.
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
        f"{spec.name} against the share of decisions changed, {len(entries)} calibrators; "
        f"the table above holds the same numbers"
    )


class _Scatter:
    """Marks on a drawing, pinned to its edges where they lie beyond."""

    def __init__(self, drawing: Drawing, measure: str) -> None:
        self.drawing, self.measure = drawing, measure
        self.spec = MEASURES[measure]
        self.labels: list[tuple[float, float, str]] = []

    def _at(self, share: float, value: float) -> tuple[float, float]:
        return self.drawing.x.pinned(share), self.drawing.y.pinned(self.spec.scale * value)

    def join(self, entry: Mapping[str, Any]) -> None:
        """Draw a line from the direct report to each repair."""
        share = 100 * entry["changes"]["tpcr"]
        if share > 0:
            start = self._at(share, entry["direct"][self.measure])
            for report in ("repaired", "lift"):
                if entry[report] is not None:
                    end = self._at(0.0, entry[report][self.measure])
                    self.drawing.line(start, end, f"pair {report}")

    def mark(self, entry: Mapping[str, Any]) -> None:
        """Draw the reports of a calibrator."""
        share = 100 * entry["changes"]["tpcr"]
        direct = entry["direct"][self.measure]
        if share == 0:
            written = number(self.measure, direct)
            tip = f"{entry['name']} keeps every decision: {self.spec.short} {written}"
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
        """Draw one mark, named if it has a name; one that is pinned is, with its value."""
        across, height = self._at(share, value)
        shown = self.spec.scale * value
        side = "up" if shown > height else "down" if shown < height else ""
        written = number(self.measure, value)
        if not side and share > across:
            side, written = "right", f"{share:.2f} %"
        if side:
            name = f"{name or beyond} {written}"
        self.drawing.point(across, height, kind, tip, shape=side or shape)
        if name:
            self.labels.append((across, height, name))

    def _tip(self, entry: Mapping[str, Any], report: str) -> str:
        value = number(self.measure, entry[report][self.measure])
        changed = entry["changes"]["tpcr"] if report == "direct" else 0.0
        return f"{entry['name']}, {report}: {self.spec.short} {value}, TPCR {changed:.2%}"
