"""Plots of a comparison: predictions changed, metrics against TPCR, confidences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cordcal._errors import InputError
from cordcal.evaluate.comparison import Comparison
from cordcal.metrics import METRICS
from cordcal.plots._axes import COLOURS, axes, legend_above, signed
from cordcal.report.columns import CHANGE_KINDS
from cordcal.report.data import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def decision_changes(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draw the predictions that each calibrator changes, split by their effect on accuracy.

    Parameters
    ----------
    comparison : Comparison
        The result of `cordcal.compare`.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        The axes: one bar per calibrator, with the change of accuracy next to it.
    """
    _check_comparison(comparison)
    ax = axes(ax)
    entries = [entry for entry in comparison if entry.changes.n_changed]
    positions = np.arange(len(entries))
    bar_ends = np.zeros(len(entries))
    for kind, sign, words in CHANGE_KINDS:
        shares = np.array([100.0 * getattr(entry.changes, kind) for entry in entries])
        ax.barh(positions, shares, left=bar_ends, color=COLOURS[kind], label=f"{sign} {words}")
        bar_ends += shares
    for position, end, entry in zip(positions, bar_ends, entries, strict=True):
        net = 100.0 * (entry.changes.delta_accuracy or 0.0)
        ax.annotate(f" {signed(net, 2)} points", (end, position), va="center", fontsize="small")
    ax.set_yticks(positions, [entry.key for entry in entries])
    ax.invert_yaxis()
    ax.margins(x=0.25)  # room for the text next to the longest bar
    ax.set_xlabel("predictions changed (TPCR, %)")
    legend_above(ax)
    return ax


def metric_versus_tpcr(
    comparison: Comparison, measure: str = "ece", ax: Axes | None = None
) -> Axes:
    """Draw a metric against the share of predictions changed (TPCR).

    A line joins the direct probabilities of a calibrator to the repaired ones.

    Parameters
    ----------
    comparison : Comparison
        The result of `cordcal.compare`.
    measure : str
        The key of a metric.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        The axes.
    """
    if measure not in METRICS:
        raise InputError("measure", f"is {measure!r}", f"use one of {', '.join(METRICS)}")
    _check_comparison(comparison)
    ax = axes(ax)
    scale = METRICS[measure].scale
    ax.axvline(0.0, color="#e4e2dc", linewidth=8, zorder=0)
    for entry in comparison:
        direct, repaired = scale * entry.direct[measure], scale * entry.repaired[measure]
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
    ax.margins(x=0.12)  # room for the name next to the last mark
    ax.set_xlabel("predictions changed (TPCR, %)")
    ax.set_ylabel(METRICS[measure].axis)
    return ax


def confidence_histogram(entry: Entry, ax: Axes | None = None) -> Axes:
    """Draw histograms of the confidence of every output.

    Parameters
    ----------
    entry : Entry
        One calibrator of a comparison.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        The axes.
    """
    if not isinstance(entry, Entry):
        raise InputError(
            "entry",
            f"is of type {type(entry).__name__}",
            'pass one of a comparison, such as comparison["svs"]',
        )
    ax = axes(ax)
    histogram = entry.pictures.histogram
    for name, counts in histogram.counts.items():
        style = "--" if name == "original" else "-"
        ax.stairs(counts, histogram.edges, color=COLOURS[name], label=name, linestyle=style)
    ax.set(xlabel="confidence", ylabel="rows", xlim=(0, 1))
    legend_above(ax)
    return ax


def _check_comparison(comparison: object) -> None:
    if not isinstance(comparison, Comparison):
        raise InputError(
            "comparison",
            f"is of type {type(comparison).__name__}",
            "pass what cordcal.compare returned",
        )
