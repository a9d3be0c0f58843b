"""A study's figures, drawn with matplotlib from plain data.  Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from itertools import cycle
from typing import TYPE_CHECKING, Any

from cordcal.plots import COLOURS
from cordcal.report.tables import CHANGE_KINDS

if TYPE_CHECKING:
    from cordcal_study.chapters import Figure, FigureKind

_COLOURS = {**COLOURS, "cord": COLOURS["repaired"], "reduction": COLOURS["repaired"]}
# One for each calibrator, distinguishable at a size of five points.
_MARKERS = "osD^vPX*<>"
# Above this ratio of largest to smallest, a linear axis hides everything but the largest.
_LOG_RATIO = 8.0
# Sharp enough on a screen, small enough to store with the text.
_DPI = 110
# Colours, their transparent overlaps and the edges of letters need no more.
_PALETTE = 96


def save_pdf(figure: Figure, path: Any) -> None:
    """Draw a figure and write it as PDF, for a paper."""
    # Without a date the file is the same on every run.
    _draw(figure).savefig(path, format="pdf", metadata={"CreationDate": None})


def save_png(figure: Figure, path: Any) -> None:
    """Draw a figure and write it as PNG, for a page."""
    from PIL import Image  # comes with matplotlib

    drawn = BytesIO()
    _draw(figure).savefig(drawn, dpi=_DPI, format="png")
    # A palette makes the file a third as large; without metadata it is the same on every run.
    Image.open(drawn).convert("RGB").quantize(_PALETTE).save(path, format="png", optimize=True)


def _draw(figure: Figure) -> Any:
    """Draw a figure without opening a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(layout="constrained")
    FigureCanvasAgg(canvas)
    assert figure.data is not None
    _DRAWN[figure.kind](canvas, figure.data)
    return canvas


def _panels(canvas: Any, count: int, columns: int, width: float, height: float) -> list[Any]:
    lines = -(-count // columns)
    canvas.set_size_inches(width * columns, height * lines)
    axes: list[Any] = canvas.subplots(lines, columns, squeeze=False).ravel().tolist()
    for axis in axes[count:]:
        axis.set_visible(False)
    for axis in axes:
        axis.tick_params(which="both", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    return axes[:count]


def _changes(canvas: Any, data: Mapping[str, Any]) -> None:
    panels = data["panels"]
    axes = _panels(canvas, len(panels), min(3, len(panels)), 3.6, 2.9)
    for axis, panel in zip(axes, panels, strict=True):
        places = range(len(panel["labels"]))
        floor = [0.0] * len(panel["labels"])
        for kind, sign, words in CHANGE_KINDS:
            name = f"{sign} {words}"
            axis.bar(places, panel[kind], 0.7, floor, color=_COLOURS[kind], label=name)
            floor = [low + high for low, high in zip(floor, panel[kind], strict=True)]
        net = [up - down for up, down in zip(panel["gained"], panel["lost"], strict=True)]
        axis.plot(places, net, "D", color="black", markersize=4, label="change in accuracy (pp)")
        axis.axhline(0.0, color="black", linewidth=0.6)
        axis.set_xticks(places, panel["labels"], rotation=40, ha="right")
        axis.set_title(panel["title"], fontsize=9)
        axis.set_ylabel("rows (%)", fontsize=8)
    _legend(canvas, axes[0])


def _tradeoff(canvas: Any, data: Mapping[str, Any]) -> None:
    panels = data["panels"]
    axes = _panels(canvas, len(panels), data["columns"], 3.6, 2.7)
    names = dict.fromkeys(point["label"] for panel in panels for point in panel["points"])
    markers = dict(zip(names, cycle(_MARKERS), strict=False))
    for axis, panel in zip(axes, panels, strict=True):
        points = panel["points"]
        widest = max((point["tpcr"] for point in points), default=0.0) or 1.0
        axis.axvspan(-0.03 * widest, 0.03 * widest, color="0.9", zorder=0)
        for point in points:
            ends = [point["repaired"], point["direct"]]
            axis.plot([0.0, point["tpcr"]], ends, "--", color="0.6", linewidth=0.8)
            marker = markers[point["label"]]
            axis.plot(0.0, ends[0], marker, color=_COLOURS["repaired"], markersize=5)
            axis.plot(point["tpcr"], ends[1], marker, color=_COLOURS["direct"], markersize=5)
        axis.plot(0.0, panel["original"], "x", color=_COLOURS["original"], markersize=7)
        values = [point[output] for point in points for output in ("direct", "repaired")]
        if min(values, default=0.0) > 0 and max(values) > _LOG_RATIO * min(values):
            axis.set_yscale("log")
        axis.margins(x=0.12)
        axis.set_title(panel["title"], fontsize=9)
        axis.set_xlabel("predictions changed (%)", fontsize=8)
        axis.set_ylabel(panel["measure"], fontsize=8)
    # Names at the points would cover each other: every calibrator has a marker instead.
    for name, marker in markers.items():
        axes[0].plot([], [], marker, color="0.35", markersize=5, label=name)
    for output in ("direct", "repaired"):
        axes[0].plot([], [], "-", color=_COLOURS[output], linewidth=4, label=output)
    axes[0].plot([], [], "x", color=_COLOURS["original"], markersize=6, label="original")
    _legend(canvas, axes[0])


def _reliability(canvas: Any, data: Mapping[str, Any]) -> None:
    rows: Sequence[Sequence[Any]] = data["panels"]
    columns = len(rows[0])
    axes = _panels(canvas, len(rows) * columns, columns, 1.75, 1.75)
    for index, axis in enumerate(axes):
        line, column = divmod(index, columns)
        panel = rows[line][column]
        if panel is None:
            axis.set_visible(False)
            continue
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=0.7)
        for output, curve in panel["curves"].items():
            colour = _COLOURS["original" if column == 0 else output]
            axis.plot(curve["confidence"], curve["accuracy"], color=colour, linewidth=1.2)
            axis.fill_between(
                curve["confidence"],
                curve["low"],
                curve["high"],
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
        axis.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        axis.tick_params(labelsize=6)
        axis.set_title(panel["title"], fontsize=6.5)
        if column == 0:
            axis.set_ylabel(data["rows"][line], fontsize=7)
    for output in ("original", "direct", "repaired"):
        axes[0].plot([], [], color=_COLOURS[output], linewidth=2, label=output)
    _legend(canvas, axes[0])


def _curves(canvas: Any, data: Mapping[str, Any]) -> None:
    panels = data["panels"]
    axes = _panels(canvas, len(panels), data["columns"], 3.0, 2.4)
    for axis, panel in zip(axes, panels, strict=True):
        for name, line in panel["lines"].items():
            axis.plot(
                panel["x"], line["mean"], "o-", color=_COLOURS[name], markersize=3, label=name
            )
            if "low" in line:
                axis.fill_between(
                    panel["x"],
                    line["low"],
                    line["high"],
                    color=_COLOURS[name],
                    alpha=0.2,
                    linewidth=0,
                )
        if panel["y"].startswith("Δ"):
            axis.axhline(0.0, color="black", linewidth=0.6)
        axis.set_title(panel["title"], fontsize=9)
        axis.set_xlabel(data["label"], fontsize=8)
        axis.set_ylabel(panel["y"], fontsize=8)
    if len(panels[0]["lines"]) > 1:
        _legend(canvas, axes[0])


def _ranks(canvas: Any, data: Mapping[str, Any]) -> None:
    panels = data["panels"]
    if not panels:
        return
    most = max(len(panel["names"]) for panel in panels)
    axes = _panels(canvas, len(panels), len(panels), 5.4, 1.0 + 0.17 * most)
    for axis, panel in zip(axes, panels, strict=True):
        first = panel["mean"][0]
        axis.axvspan(first, first + panel["critical"], color="0.93", zorder=0)
        for place, (mean, low, high) in enumerate(
            zip(panel["mean"], panel["low"], panel["high"], strict=True)
        ):
            colour = _COLOURS["repaired" if panel["keeps"][place] else "direct"]
            axis.plot([low, high], [place, place], "-", color=colour, linewidth=1.0, alpha=0.6)
            axis.plot(mean, place, "o", color=colour, markersize=4)
        axis.set_yticks(range(len(panel["names"])), panel["names"], fontsize=7)
        axis.set_ylim(len(panel["names"]) - 0.5, -0.7)
        axis.grid(axis="x", color="0.88", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.set_title(panel["title"], fontsize=9)
        axis.set_xlabel("mean rank", fontsize=8)
    for output, words in (
        ("repaired", "keeps every prediction"),
        ("direct", "changes predictions"),
    ):
        axes[0].plot([], [], "o", color=_COLOURS[output], markersize=4, label=words)
    axes[0].fill_between([], [], color="0.93", label="within the critical difference of the first")
    _legend(canvas, axes[0])


def _legend(canvas: Any, axis: Any) -> None:
    """Put the legend below the panels, in as many columns as fit."""
    handles, names = axis.get_legend_handles_labels()
    renderer = canvas.canvas.get_renderer()
    for columns in range(len(names), 0, -1):
        legend = canvas.legend(
            handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
        )
        if columns == 1 or legend.get_window_extent(renderer).width <= canvas.bbox.width:
            return
        legend.remove()


_DRAWN: dict[FigureKind, Callable[[Any, Mapping[str, Any]], None]] = {
    "changes": _changes,
    "tradeoff": _tradeoff,
    "reliability": _reliability,
    "curves": _curves,
    "ranks": _ranks,
}
