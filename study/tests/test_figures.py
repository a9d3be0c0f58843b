"""Figures of small studies: nothing lies outside the picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cordcal_study import figures

PANEL = {
    "title": "all",
    "labels": ["TS", "VS"],
    "gained": [0.0, 2.0],
    "lost": [0.0, 1.0],
    "neutral": [0.0, 0.5],
}
POINTS = [
    {"label": f"calibrator {number}", "tpcr": float(number), "direct": 0.2, "repaired": 0.1}
    for number in range(12)
]
TRADEOFF = {"title": "all", "measure": "NLL", "points": POINTS, "original": 0.3}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("changes", {"panels": [PANEL]}),
        ("changes", {"panels": [PANEL] * 3}),
        ("tradeoff", {"panels": [TRADEOFF], "columns": 1}),
    ],
)
def test_a_legend_fits_into_its_figure(kind: str, data: dict[str, object], tmp_path: Path) -> None:
    canvas = Figure(layout="constrained")
    FigureCanvasAgg(canvas)
    figures._DRAWN[kind](canvas, data)  # type: ignore[index]
    canvas.savefig(tmp_path / "drawn.png")
    (legend,) = canvas.legends
    drawn = legend.get_window_extent()
    assert canvas.bbox.x0 <= drawn.x0 < drawn.x1 <= canvas.bbox.x1
    assert canvas.bbox.y0 <= drawn.y0 < drawn.y1 <= canvas.bbox.y1
