"""Predictions: how they move between classes, and the error rate of confident ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cordcal._validation.names import label_names
from cordcal.metrics import Flows, RiskCoverage, decision_flows
from cordcal.metrics import risk_coverage as compute_risk_coverage
from cordcal.plots._axes import COLOURS, axes, colours_of, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# With more classes the cells of a heat map are too small to read; bars show the largest moves.
MAX_HEAT_MAP_CLASSES = 30
MAX_BARS = 20


def flows(
    original: object,
    evaluated: object = None,
    *,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how many predictions move from one class to another.

    Parameters
    ----------
    original : array_like of shape (n, K) or (n,), or Flows
        The original scores or their predictions; or a result of
        `cordcal.metrics.decision_flows`.
    evaluated : array_like of shape (n, K)
        The scores whose predictions are compared with the original ones.
    class_names : sequence of str, optional
        One name per class; by default the columns of a data frame.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        A heat map for up to 30 classes, else bars of the most frequent moves.
    """
    moves = original if isinstance(original, Flows) else decision_flows(original, evaluated)
    known = label_names(original, class_names) or range(moves.n_classes)
    names = [str(name) for name in known]
    ax = axes(ax)
    draw = _draw_heat_map if moves.n_classes <= MAX_HEAT_MAP_CLASSES else _draw_bars
    draw(ax, moves, names)
    return ax


def _draw_heat_map(ax: Axes, moves: Flows, names: list[str]) -> None:
    counts = moves.matrix()
    ax.imshow(np.ma.masked_equal(counts, 0), cmap="Oranges", vmin=0, aspect="equal")
    half = counts.max() / 2.0
    for source, target, count in zip(moves.source, moves.target, moves.count, strict=True):
        colour = "white" if count > half else "black"
        ax.text(target, source, f"{count:,}", ha="center", va="center", size="small", color=colour)
    ax.set_xticks(range(len(names)), names, rotation=90 if len(names) > 6 else 0)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="new prediction", ylabel="original prediction")


def _draw_bars(ax: Axes, moves: Flows, names: list[str]) -> None:
    largest = slice(0, MAX_BARS)
    labels = [
        f"{names[source]} → {names[target]}"
        for source, target in zip(moves.source[largest], moves.target[largest], strict=True)
    ]
    positions = np.arange(len(labels))
    ax.barh(positions, moves.count[largest], color=COLOURS["direct"])
    ax.set_yticks(positions, labels, fontsize="small")
    ax.invert_yaxis()
    ax.set_xlabel("rows")


def risk_coverage(probabilities: object, labels: object = None, *, ax: Axes | None = None) -> Axes:
    """Draw the error rate among the most confident rows against their share of all rows.

    Parameters
    ----------
    probabilities : array_like of shape (n, K), mapping, or RiskCoverage
        Probabilities, several arrays by name, or a result of `cordcal.metrics.risk_coverage`.
    labels : array_like of int
        The true class of each row, 0..K-1.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        The axes; the legend shows the area under each curve (AURC).
    """
    by_name = (
        probabilities if isinstance(probabilities, Mapping) else {"probabilities": probabilities}
    )
    ax = axes(ax)
    for name, colour in colours_of(list(by_name)).items():
        curve = by_name[name]
        if not isinstance(curve, RiskCoverage):
            curve = compute_risk_coverage(curve, labels)
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
