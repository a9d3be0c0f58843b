"""Figures: reliability diagrams, confidences, changed predictions, certificates, risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked
from cordcal.certification import Certificate
from cordcal.evaluate.comparison import Comparison
from cordcal.evaluate.results import Entry
from cordcal.metrics import (
    METRICS,
    Flows,
    Reliability,
    RiskCoverage,
    class_reliability,
    prediction_flows,
    reliability,
)
from cordcal.metrics import risk_coverage as compute_risk_coverage
from cordcal.report.tables import CHANGE_KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colours of the HTML report, so that figures and report match.
COLOURS = {
    "original": "#6f7680",
    "direct": "#c4601a",
    "repaired": "#1f5fa8",
    "lift": "#7a3fa0",
    "rival": "#2f7d62",
    "gained": "#2f8f6b",
    "lost": "#c2453f",
    "neutral": "#a6a29a",
}


def axes(ax: Axes | None) -> Axes:
    """Return the axes to draw on; new ones if ``ax`` is None."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'cordcal[figures]'"
        ) from error
    return plt.subplots(layout="constrained")[1]


def colours_of(names: list[str]) -> dict[str, str]:
    """Return a colour per name: that of `COLOURS`, or the next one of the style."""
    style_colours = (f"C{number}" for number in range(len(names)))
    return {name: COLOURS.get(name) or next(style_colours) for name in names}


def legend_above(ax: Axes) -> None:
    """Put the legend above the axes, where it covers no data."""
    handles, names = ax.get_legend_handles_labels()
    if names:
        ax.legend(
            handles,
            names,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=len(names),
            frameon=False,
            fontsize="small",
            handlelength=1.4,
            columnspacing=1.2,
        )


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, and the minus sign U+2212 for negative numbers.

    Examples
    --------
    >>> signed(-0.5, 2), signed(0.25, 2)
    ('−0.50', '+0.25')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Heights of the histogram, the gap above it and the text below it, relative to the diagram.
_HISTOGRAM, _GAP, _TEXT = 0.22, 0.03, 0.1
# A single array without a name needs no legend.
_UNNAMED = "probabilities"


def reliability_diagram(
    probabilities: object,
    labels: object = None,
    *,
    bins: int = 15,
    of_class: int | str | None = None,
    sample_weight: object = None,
    histogram: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw accuracy against confidence with 95 % intervals, and a histogram of rows below.

    Parameters
    ----------
    probabilities : array_like of shape (n, K), mapping, or Entry
        Probabilities; several arrays by name, such as ``{"original": p, "repaired": q}``; or
        one calibrator of a comparison, such as ``comparison["svs"]``, which needs no labels.
    labels : array_like
        The true class of each row: a column index, or the name of a data frame's column.
    bins : int
        Number of equal-width bins, as in `cordcal.metrics.ece`.
    of_class : int or str, optional
        Draw how often this class (a column index or name) is the true class against its
        probability; by default the diagram is of the predicted class.
    sample_weight : array_like, optional
        Weights of the rows.
    histogram : bool
        Whether to draw the number of rows per bin below.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        The axes of the diagram.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> proba = rng.dirichlet(np.ones(3), 200)
    >>> labels = [rng.choice(3, p=row) for row in proba]
    >>> ax = reliability_diagram(proba, labels)
    >>> ax.get_ylabel()
    'accuracy'
    """
    by_name = _bins_by_name(probabilities, labels, bins, of_class, sample_weight)
    ax = axes(ax)
    ax.plot([0, 1], [0, 1], ":", color="0.5", linewidth=1)
    for name, colour in colours_of(list(by_name)).items():
        _draw_curve(ax, by_name[name], name, colour)
    xlabel, ylabel = "confidence", "accuracy"
    if of_class is not None:
        xlabel, ylabel = f"probability of class {of_class}", f"share of class {of_class}"
    ax.set(ylabel=ylabel, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    lowest = ax
    if histogram:
        lowest = _draw_histogram(ax, by_name)
        ax.tick_params(labelbottom=False)
    lowest.set_xlabel(xlabel)
    if list(by_name) != [_UNNAMED]:
        legend_above(ax)
    return ax


def _bins_by_name(
    probabilities: object, labels: object, bins: int, of_class: int | str | None, weight: object
) -> Mapping[str, Reliability]:
    pictures = getattr(probabilities, "pictures", None)
    if pictures is not None:
        stored: Mapping[str, Reliability] = pictures.reliability
        return stored
    if labels is None:
        raise InputError("labels", "is missing", "pass the true class of each row")
    by_name = probabilities if isinstance(probabilities, Mapping) else {_UNNAMED: probabilities}
    if of_class is None:
        return {
            name: reliability(values, labels, bins=bins, sample_weight=weight)
            for name, values in by_name.items()
        }
    return {
        name: class_reliability(values, labels, of_class, bins=bins, sample_weight=weight)
        for name, values in by_name.items()
    }


def _draw_curve(ax: Axes, bins: Reliability, name: str, colour: str) -> None:
    filled = bins.count > 0
    confidence, accuracy = bins.confidence[filled], bins.accuracy[filled]
    ax.fill_between(
        confidence,
        bins.accuracy_low[filled],
        bins.accuracy_high[filled],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    # Without clipping, marks on the frame are not cut.
    (line,) = ax.plot(confidence, accuracy, "o-", color=colour, label=name, clip_on=False)
    line.set(markersize=4, linewidth=1.2)


def _draw_histogram(ax: Axes, by_name: Mapping[str, Reliability]) -> Axes:
    # Without a layout engine, shrink the diagram to make room for the histogram below it.
    if ax.figure.get_layout_engine() is None:
        box = ax.get_position(original=True)
        height = box.height / (1.0 + _HISTOGRAM + _GAP + _TEXT)
        ax.set_position((box.x0, box.y1 - height, box.width, height))
    below = ax.inset_axes((0.0, -_GAP - _HISTOGRAM, 1.0, _HISTOGRAM))
    for name, colour in colours_of(list(by_name)).items():
        bins = by_name[name]
        edges = np.append(bins.lower, bins.upper[-1])
        below.stairs(bins.count, edges, color=colour, linewidth=1.2)
    below.set(xlim=(0, 1), ylabel="rows")
    return below


class Classifier(Protocol):
    """A fitted classifier of scikit-learn."""

    classes_: np.ndarray[tuple[int], np.dtype[np.generic]]

    def predict_proba(self, X: object) -> object:
        """Return the probabilities of all classes."""
        ...


@dataclass(eq=False)
class ReliabilityDisplay:
    """A multiclass reliability diagram with the interface of scikit-learn's displays.

    scikit-learn's `CalibrationDisplay` is for two classes only; this one draws the confidence
    of the predicted class for any number of classes.

    Parameters
    ----------
    reliability : Reliability
        The bins, as `cordcal.metrics.reliability` returns them.
    name : str
        The name in the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where `plot` drew it.

    Examples
    --------
    >>> import numpy as np
    >>> display = ReliabilityDisplay.from_predictions([0, 1, 1], np.eye(3)[[0, 1, 2]] * 0.7 + 0.1)
    >>> display.reliability
    Reliability(15 bins, 3 rows, ECE 0.1333)
    """

    reliability: Reliability
    name: str = _UNNAMED
    ax_: Axes | None = field(default=None, init=False, repr=False)
    figure_: Figure | None = field(default=None, init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        y_true: object,
        y_prob: object,
        *,
        n_bins: int = 15,
        sample_weight: object = None,
        name: str = _UNNAMED,
        ax: Axes | None = None,
    ) -> Self:
        """Draw from true class indices and the probabilities of all classes."""
        bins = reliability(y_prob, y_true, bins=n_bins, sample_weight=sample_weight)
        return cls(bins, name).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Classifier,
        X: object,
        y: object,
        *,
        n_bins: int = 15,
        sample_weight: object = None,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw from a fitted classifier with ``predict_proba`` and ``classes_``."""
        classes = list(estimator.classes_)
        index_of = {label: index for index, label in enumerate(classes)}
        refuse_masked(y, "y")
        unknown = [label for label in np.asarray(y).tolist() if label not in index_of]
        if unknown:
            raise InputError(
                "y",
                f"contains {unknown[0]!r}, which is not a class of the estimator",
                "pass labels that it was fitted on",
            )
        return cls.from_predictions(
            [index_of[label] for label in np.asarray(y).tolist()],
            estimator.predict_proba(X),
            n_bins=n_bins,
            sample_weight=sample_weight,
            name=name or type(estimator).__name__,
            ax=ax,
        )

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw the diagram; return the display."""
        ax = axes(ax)
        ax.plot([0, 1], [0, 1], ":", color="0.5", linewidth=1)
        (colour,) = colours_of([self.name]).values()
        _draw_curve(ax, self.reliability, self.name, colour)
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        legend_above(ax)
        self.ax_, self.figure_ = ax, ax.get_figure()  # type: ignore[assignment]
        return self


if TYPE_CHECKING:
    from matplotlib.axes import Axes


def prediction_changes(comparison: Comparison, ax: Axes | None = None) -> Axes:
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
        `cordcal.metrics.prediction_flows`.
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
    moves = original if isinstance(original, Flows) else prediction_flows(original, evaluated)
    known = class_names or moves.class_names or range(moves.n_classes)
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


def certificate(certificate: Certificate, *, ax: Axes | None = None) -> Axes:
    """Draw what share of each part goes through, and how many of those are wrong.

    Parameters
    ----------
    certificate : Certificate
        What `cordcal.certify` returned.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        The error rate of the most confident rows of each part, a point at its threshold, and a
        dashed line at the certified error rate.
    """
    if not any(part.curve for part in certificate.parts):
        raise InputError(
            "certificate", "has no curves: files do not keep them", "pass what certify returned"
        )
    ax = axes(ax)
    parts = {part.name: part for part in certificate.parts if part.curve}
    for name, colour in colours_of(list(parts)).items():
        part = parts[name]
        shares, rates = 100.0 * np.array(part.curve).T
        label = f"{name}, {100.0 * part.share:.1f} % go through"
        ax.plot(shares, rates, color=colour, linewidth=1.2, label=label)
        if part.accepted:
            wrong = 100.0 * part.errors / part.accepted
            ax.plot(100.0 * part.share, wrong, marker="o", color=colour)
    ax.axhline(100.0 * certificate.error, color="black", linestyle="--", linewidth=0.8)
    ax.set(xlabel="most confident rows (%)", ylabel="wrong among them (%)", xlim=(0, 100))
    ax.set_ylim(bottom=0.0)
    legend_above(ax)
    return ax


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
