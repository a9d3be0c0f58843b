"""Decisions: where changed ones go, and how wrong the confident ones are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cordcal.metrics import Flows, RiskCoverage, decision_flows
from cordcal.metrics import risk_coverage as curve_of
from cordcal.plots._axes import COLOURS, axes, colours_of, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A heat map of more classes has cells too small to read; then the largest moves are listed.
MOST_CLASSES = 30
MOST_MOVES = 20


def flows(
    original: Any,
    report: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw from which class to which other a report moves decisions.

    Parameters
    ----------
    original : array_like of shape (n, K) or (n,), or Flows
        The original report or its decisions; or what `cordcal.metrics.decision_flows` returned.
    report : array_like of shape (n, K)
        The report whose decisions are compared.
    class_names : sequence of str, optional
        One name a class.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    ax : matplotlib Axes
        A heat map for up to 30 classes, else bars of the most frequent moves.
    """
    found = original if isinstance(original, Flows) else decision_flows(original, report)
    names = [str(index) for index in range(found.n_classes)]
    if class_names is not None:
        names = [str(name) for name in class_names]
    ax = axes(ax)
    draw = _heat_map if found.n_classes <= MOST_CLASSES else _largest
    draw(ax, found, names)
    return ax


def _heat_map(ax: Axes, found: Flows, names: list[str]) -> None:
    counts = found.matrix()
    shown = np.ma.masked_equal(counts, 0)
    ax.imshow(shown, cmap="Oranges", vmin=0, aspect="equal")
    half = counts.max() / 2.0
    for source, target, count in zip(found.source, found.target, found.count, strict=True):
        colour = "white" if count > half else "black"
        ax.text(target, source, f"{count:,}", ha="center", va="center", size="small", color=colour)
    ax.set_xticks(range(len(names)), names, rotation=90 if len(names) > 6 else 0)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="decision of the report", ylabel="original decision")


def _largest(ax: Axes, found: Flows, names: list[str]) -> None:
    most = slice(0, MOST_MOVES)
    moves = [
        f"{names[source]} → {names[target]}"
        for source, target in zip(found.source[most], found.target[most], strict=True)
    ]
    places = np.arange(len(moves))
    ax.barh(places, found.count[most], color=COLOURS["direct"])
    ax.set_yticks(places, moves, fontsize="small")
    ax.invert_yaxis()
    ax.set_xlabel("rows")


def risk_coverage(reports: Any, labels: Any = None, *, ax: Axes | None = None) -> Axes:
    """Draw the error among the most confident rows against the share of rows kept.

    Parameters
    ----------
    reports : array_like of shape (n, K), mapping, or RiskCoverage
        A report, several by name, or what `cordcal.metrics.risk_coverage` returned.
    labels : array_like of int
        The true class of each row, 0..K-1.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    ax : matplotlib Axes
        The axes; the legend names each area under the curve (AURC).
    """
    named = reports if isinstance(reports, Mapping) else {"report": reports}
    ax = axes(ax)
    for name, colour in colours_of(list(named)).items():
        curve = named[name]
        if not isinstance(curve, RiskCoverage):
            curve = curve_of(curve, labels)
        ax.plot(
            100.0 * curve.coverage,
            100.0 * curve.risk,
            drawstyle="steps-post",
            color=colour,
            linewidth=1.2,
            label=f"{name}, AURC {curve.aurc:.4f}",
        )
    ax.set(xlabel="rows kept (%)", ylabel="wrong among them (%)", xlim=(0, 100))
    ax.set_ylim(bottom=0.0)
    legend_above(ax)
    return ax
