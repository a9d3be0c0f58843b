"""The report's pictures with matplotlib, for papers (``pip install 'cordcal[figures]'``).

Each function takes a result object and, if wanted, the axes to draw on, and returns the axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cordcal.metrics import MEASURES
from cordcal.report.words import CHANGE_KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cordcal.evaluate.comparison import Comparison, Entry

# The report's own colours, so that a paper and its report agree.
COLOURS = {
    "original": "#6f7680",
    "direct": "#c4601a",
    "repaired": "#1f5fa8",
    "rival": "#2f7d62",
    "gained": "#2f8f6b",
    "lost": "#c2453f",
    "neutral": "#a6a29a",
}


def decision_changes(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draw the decisions each direct report changes, split by what the change does.

    Parameters
    ----------
    comparison : Comparison
        What `cordcal.compare` returned.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    ax : matplotlib Axes
        The axes, one bar a calibrator, the change of accuracy written beside it.
    """
    ax = _axes(ax)
    entries = [entry for entry in comparison if entry.changes.n_changed]
    places = np.arange(len(entries))
    behind = np.zeros(len(entries))
    for kind, sign, words in CHANGE_KINDS:
        shares = np.array([100.0 * getattr(entry.changes, kind) for entry in entries])
        ax.barh(places, shares, left=behind, color=COLOURS[kind], label=f"{sign} {words}")
        behind += shares
    for place, end, entry in zip(places, behind, entries, strict=True):
        net = 100.0 * (entry.changes.delta_accuracy or 0.0)
        ax.annotate(f" {net:+.2f} points", (end, place), va="center", fontsize="small")
    ax.set_yticks(places, [entry.key for entry in entries])
    ax.invert_yaxis()
    ax.margins(x=0.2)
    ax.set_xlabel("decisions changed (TPCR, %)")
    if entries:
        ax.legend(frameon=False)
    return ax


def metric_versus_tpcr(
    comparison: Comparison, measure: str = "ece", ax: Axes | None = None
) -> Axes:
    """Draw a measure against TPCR, each direct report joined to its repair.

    Parameters
    ----------
    comparison : Comparison
        What `cordcal.compare` returned.
    measure : str
        One of the measures.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    ax : matplotlib Axes
        The axes.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure is {measure!r}; use one of {', '.join(MEASURES)}")
    ax = _axes(ax)
    scale = MEASURES[measure].scale
    ax.axvline(0.0, color="#e4e2dc", linewidth=8, zorder=0)
    for entry in comparison:
        direct, repaired = (scale * report[measure] for report in (entry.direct, entry.repaired))
        tpcr = 100.0 * entry.changes.tpcr
        if tpcr == 0.0:
            ax.plot(0.0, direct, "s", color=COLOURS["rival"])
            continue
        ax.plot([tpcr, 0.0], [direct, repaired], "--", color="#5b6570", linewidth=0.8, zorder=1)
        ax.plot(tpcr, direct, "o", color=COLOURS["direct"])
        ax.plot(0.0, repaired, "o", color=COLOURS["repaired"])
        ax.annotate(
            entry.key, (tpcr, direct), xytext=(5, 3), textcoords="offset points", fontsize="small"
        )
    ax.plot(0.0, scale * comparison.uncalibrated[measure], "x", color=COLOURS["original"])
    ax.set_xlabel("decisions changed (TPCR, %)")
    ax.set_ylabel(MEASURES[measure].axis)
    return ax


def reliability_diagram(entry: Entry, ax: Axes | None = None) -> Axes:
    """Draw accuracy against confidence of both reports, with 95 % intervals.

    Parameters
    ----------
    entry : Entry
        One calibrator of a comparison, such as ``comparison["svs"]``.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    ax : matplotlib Axes
        The axes.
    """
    ax = _axes(ax)
    ax.plot([0, 1], [0, 1], ":", color="#5b6570", linewidth=1)
    for name, bins in entry.pictures.reliability.items():
        filled = bins.count > 0
        accuracy = bins.accuracy[filled]
        reach = [accuracy - bins.accuracy_low[filled], bins.accuracy_high[filled] - accuracy]
        ax.errorbar(
            bins.confidence[filled],
            accuracy,
            yerr=np.maximum(reach, 0.0),
            fmt="o-",
            markersize=4,
            linewidth=1.2,
            elinewidth=0.8,
            color=COLOURS[name],
            label=name,
        )
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(frameon=False)
    return ax


def confidence_histogram(entry: Entry, ax: Axes | None = None) -> Axes:
    """Draw how many rows have which confidence: original, direct and repaired.

    Parameters
    ----------
    entry : Entry
        One calibrator of a comparison.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    ax : matplotlib Axes
        The axes.
    """
    ax = _axes(ax)
    counts = entry.pictures.histogram
    for name in ("original", "direct", "repaired"):
        style = "--" if name == "original" else "-"
        ax.stairs(counts[name], counts["edges"], color=COLOURS[name], label=name, linestyle=style)
    ax.set(xlabel="confidence", ylabel="rows", xlim=(0, 1))
    ax.legend(frameon=False)
    return ax


def _axes(ax: Axes | None) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'cordcal[figures]'"
        ) from error
    return plt.subplots()[1]
