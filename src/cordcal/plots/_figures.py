"""Figures: reliability diagrams, confidences, changed predictions, certificates, risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked
from cordcal.certification import Certificate
from cordcal.evaluate.comparison import Comparison
from cordcal.evaluate.results.calibrators import Entry
from cordcal.evaluate.results.pictures import MAX_HEAT_MAP, Selective
from cordcal.evaluate.results.report import TradeOffMark
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
from cordcal.report.labels import place_labels
from cordcal.report.tables import CHANGE_KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
            "figures need matplotlib; install it with: pip install matplotlib"
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


def _legend_inside(ax: Axes) -> None:
    """Put the legend above the diagonal, where the curves of most classifiers are not."""
    ax.legend(
        loc="upper left", fontsize="small", handlelength=1.4, framealpha=0.6, edgecolor="none"
    )


# Labels of marks, and the resolution at which their characters have the widths of the report's.
_LABEL_SIZE, _LABEL_DPI = 8, 96
# Heights of the histogram, the gap above it and the text below it, relative to the diagram.
_HISTOGRAM, _GAP, _TEXT = 0.22, 0.03, 0.1
# Areas of the marks of bins in points², proportional to rows.
_LARGEST_AREA, _SMALLEST_AREA = 30.0, 3.0
_UNNAMED = "probabilities"


def reliability_diagram(
    probabilities: object,
    labels: object = None,
    *,
    bins: int = 15,
    strategy: Literal["quantile", "uniform"] = "quantile",
    of_class: int | str | None = None,
    sample_weight: object = None,
    histogram: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw accuracy against confidence with 95 % intervals, and a histogram of rows below.

    Areas of marks are proportional to rows, and no line is drawn through bins of less than ten.
    The legend has each ECE, in bins of equal width.

    Parameters
    ----------
    probabilities : array_like of shape (n, K), mapping, or Entry
        Probabilities; several arrays by name, such as ``{"original": p, "repaired": q}``; or
        one calibrator of a comparison, such as ``comparison["svs"]``, which needs no labels.
    labels : array_like
        The true class of each row: a column index, or the name of a data frame's column.
    bins : int
        Number of bins.
    strategy : {"quantile", "uniform"}
        Bins of equally many rows, or of equal width; those of a class have equal width.
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
    diagrams = _diagrams(probabilities, labels, bins, strategy, of_class, sample_weight)
    ax = axes(ax)
    ax.plot([0, 1], [0, 1], ":", color="0.5", linewidth=1)
    for name, colour in colours_of(list(diagrams)).items():
        shown = diagrams[name]
        _draw_curve(ax, shown.bins, f"{name}, ECE {100.0 * shown.ece:.1f} %", colour)
    xlabel, ylabel = "confidence", "accuracy"
    if of_class is not None:
        xlabel, ylabel = f"probability of class {of_class}", f"share of class {of_class}"
    ax.set(ylabel=ylabel, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    lowest = ax
    if histogram:
        lowest = _draw_histogram(ax, diagrams)
        ax.tick_params(labelbottom=False)
    lowest.set_xlabel(xlabel)
    _legend_inside(ax)
    return ax


@dataclass(frozen=True, eq=False)
class _Diagram:
    """The bins of a diagram, and the ECE and the counts of bins of equal width."""

    bins: Reliability
    ece: float
    edges: Sequence[float]
    counts: Sequence[int]

    @classmethod
    def with_histogram(cls, bins: Reliability, uniform: Reliability) -> Self:
        """Return it for rows whose bins of equal width are known."""
        edges = [*uniform.lower.tolist(), float(uniform.upper[-1])]
        return cls(bins, uniform.ece, edges, uniform.count.tolist())


def _diagrams(
    probabilities: object,
    labels: object,
    bins: int,
    strategy: Literal["quantile", "uniform"],
    of_class: int | str | None,
    weight: object,
) -> dict[str, _Diagram]:
    pictures = getattr(probabilities, "pictures", None)
    if pictures is not None:
        histogram = pictures.histogram
        return {
            name: _Diagram(drawn, pictures.ece[name], histogram.edges, histogram.counts[name])
            for name, drawn in pictures.reliability.items()
        }
    if labels is None:
        raise InputError("labels", "is missing", "pass the true class of each row")
    by_name = probabilities if isinstance(probabilities, Mapping) else {_UNNAMED: probabilities}
    options: dict[str, Any] = {"bins": bins, "sample_weight": weight}
    diagrams = {}
    for name, values in by_name.items():
        if of_class is None:
            drawn = reliability(values, labels, strategy=strategy, **options)
            uniform = reliability(values, labels, **options)
        else:
            drawn = uniform = class_reliability(values, labels, of_class, **options)
        diagrams[name] = _Diagram.with_histogram(drawn, uniform)
    return diagrams


def _draw_curve(ax: Axes, bins: Reliability, name: str, colour: str) -> None:
    marks = bins.marks()
    line = [mark for mark in marks if not mark.is_few]
    confidence = [mark.confidence for mark in line]
    ax.fill_between(
        confidence,
        [mark.accuracy_low for mark in line],
        [mark.accuracy_high for mark in line],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    accuracy = [mark.accuracy for mark in line]
    ax.plot(confidence, accuracy, "-", color=colour, label=name, linewidth=1.2)
    # Without clipping, marks on the frame are not cut.
    ax.scatter(
        [mark.confidence for mark in marks],
        [mark.accuracy for mark in marks],
        [max(_LARGEST_AREA * mark.area, _SMALLEST_AREA) for mark in marks],
        color=colour,
        linewidths=0,
        clip_on=False,
        zorder=3,
    )


def _draw_histogram(ax: Axes, diagrams: Mapping[str, _Diagram]) -> Axes:
    # Without a layout engine, shrink the diagram to make room for the histogram below it.
    if ax.figure.get_layout_engine() is None:
        box = ax.get_position(original=True)
        height = box.height / (1.0 + _HISTOGRAM + _GAP + _TEXT)
        ax.set_position((box.x0, box.y1 - height, box.width, height))
    below = ax.inset_axes((0.0, -_GAP - _HISTOGRAM, 1.0, _HISTOGRAM))
    for name, colour in colours_of(list(diagrams)).items():
        shown = diagrams[name]
        below.stairs(shown.counts, shown.edges, color=colour, linewidth=1.2)
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
    Reliability(1 bins, 3 rows, ECE 0.1333)
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
        strategy: Literal["quantile", "uniform"] = "quantile",
        sample_weight: object = None,
        name: str = _UNNAMED,
        ax: Axes | None = None,
    ) -> Self:
        """Draw from true class indices and the probabilities of all classes."""
        bins = reliability(
            y_prob, y_true, bins=n_bins, strategy=strategy, sample_weight=sample_weight
        )
        return cls(bins, name).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Classifier,
        X: object,
        y: object,
        *,
        n_bins: int = 15,
        strategy: Literal["quantile", "uniform"] = "quantile",
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
            strategy=strategy,
            sample_weight=sample_weight,
            name=name or type(estimator).__name__,
            ax=ax,
        )

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw the diagram; return the display."""
        ax = axes(ax)
        ax.plot([0, 1], [0, 1], ":", color="0.5", linewidth=1)
        (colour,) = colours_of([self.name]).values()
        _draw_curve(
            ax, self.reliability, f"{self.name}, ECE {100.0 * self.reliability.ece:.1f} %", colour
        )
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        _legend_inside(ax)
        self.ax_, self.figure_ = ax, ax.get_figure()  # type: ignore[assignment]
        return self


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
        net = METRICS["accuracy"].write(entry.changes.delta_accuracy or 0.0, signed=True)
        ax.annotate(f" {net} points", (end, position), va="center", fontsize="small")
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
    shown = comparison.report_data().trade_off(measure)
    ax.axvline(0.0, color="#e4e2dc", linewidth=8, zorder=0)
    for pair in shown.pairs:
        across, height = zip(*(mark.where for mark in pair), strict=True)
        ax.plot(across, height, "--", color="#5b6570", linewidth=0.8, zorder=1)
    for mark in shown.marks:
        shape = {"original": "x", "rival": "s"}.get(mark.kind, "o")
        ax.plot(*mark.where, shape, color=COLOURS[mark.kind], markersize=4.5)
    ax.margins(x=0.12)  # room for the name next to the last mark
    ax.set_xlabel("predictions changed (TPCR, %)")
    ax.set_ylabel(METRICS[measure].axis)
    _label_marks(ax, shown.marks)
    return ax


def _label_marks(ax: Axes, marks: Sequence[TradeOffMark]) -> None:
    """Write the names of the calibrators next to their direct outputs, not on each other."""
    figure: Any = ax.figure
    figure.draw_without_rendering()  # the axes take their place
    height, scale = figure.bbox.height, figure.dpi / _LABEL_DPI

    def at(mark: TradeOffMark) -> tuple[float, float]:
        x, y = ax.transData.transform(mark.where)
        return x / scale, (height - y) / scale

    box = ax.get_window_extent()
    inside = tuple(v / scale for v in (box.x0, height - box.y1, box.x1, height - box.y0))
    texts = [(*at(mark), mark.key) for mark in marks if mark.output == "direct"]
    for label in place_labels(texts, [at(mark) for mark in marks], inside):
        x, y = label.point
        # A line from the mark, where the label is far away.
        arrow = None if label.leader is None else {"arrowstyle": "-", "linewidth": 0.5}
        points = 72.0 / _LABEL_DPI
        left, bottom = ax.transData.inverted().transform((x * scale, height - y * scale)).tolist()
        ax.annotate(
            label.text,
            (left, bottom),
            xytext=((label.left - x) * points, (y - label.middle) * points),
            textcoords="offset points",
            fontsize=_LABEL_SIZE,
            va="center",
            arrowprops=arrow,
        )


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


# Of too many classes for a heat map, bars show the largest moves.
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
    draw = _draw_heat_map if moves.n_classes <= MAX_HEAT_MAP else _draw_bars
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
    probabilities : array_like of shape (n, K), mapping, RiskCoverage or Entry
        Probabilities, several arrays by name, a result of `cordcal.metrics.risk_coverage`, or
        one calibrator of a comparison, which needs no labels.
    labels : array_like of int
        The true class of each row, 0..K-1.
    ax : matplotlib Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    ax : matplotlib Axes
        The axes; the legend shows the area under each curve (AURC).
    """
    by_name: Mapping[str, Any]
    if isinstance(probabilities, Entry) and probabilities.pictures.selection is not None:
        by_name = probabilities.pictures.selection.outputs
    else:
        by_name = {_UNNAMED: probabilities}
        if isinstance(probabilities, Mapping):
            by_name = probabilities
    ax = axes(ax)
    for name, colour in colours_of(list(by_name)).items():
        curve = by_name[name]
        if not isinstance(curve, RiskCoverage | Selective):
            curve = compute_risk_coverage(curve, labels)
        ax.plot(
            100.0 * np.asarray(curve.coverage),
            100.0 * np.asarray(curve.risk),
            drawstyle="steps-post",
            color=colour,
            linewidth=1.2,
            label=f"{name}, AURC {curve.aurc:.4f}",
        )
    ax.set(xlabel="rows kept (%)", ylabel="wrong among them (%)", xlim=(0, 100))
    ax.set_ylim(bottom=0.0)
    legend_above(ax)
    return ax
