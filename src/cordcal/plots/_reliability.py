"""Reliability diagrams: accuracy against confidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked
from cordcal.metrics import Reliability, class_reliability, reliability
from cordcal.plots._axes import axes, colours_of, legend_above

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
