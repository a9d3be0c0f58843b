"""Reliability diagrams: accuracy against confidence, of one or several reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked
from cordcal.metrics import Reliability, class_reliability, reliability
from cordcal.plots._axes import axes, colours_of, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The histogram's height, the gap above it and the words below it, in heights of the diagram.
_HISTOGRAM, _GAP, _WORDS = 0.22, 0.03, 0.1
# A single report without a name needs no legend.
_UNNAMED = "report"


def reliability_diagram(
    reports: Any,
    labels: Any = None,
    *,
    bins: int = 15,
    of_class: int | None = None,
    sample_weight: Any = None,
    histogram: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw accuracy against confidence with 95 % intervals, and a histogram of rows below.

    Parameters
    ----------
    reports : array_like of shape (n, K), mapping, or Entry
        A report; several by name, such as ``{"original": p, "repaired": q}``; or one calibrator
        of a comparison, such as ``comparison["svs"]``, which needs no labels.
    labels : array_like of int
        The true class of each row, 0..K-1.
    bins : int
        Equal-width bins, those of `cordcal.metrics.ece`.
    of_class : int, optional
        Draw how often this class is the true one against the probability it is given; by
        default the diagram is of each row's largest entry.
    sample_weight : array_like, optional
        Weights of the rows.
    histogram : bool
        Whether to draw the rows of each bin below.
    ax : matplotlib Axes, optional
        Where to draw.

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
    found = _bins_by_name(reports, labels, bins, of_class, sample_weight)
    ax = axes(ax)
    ax.plot([0, 1], [0, 1], ":", color="0.5", linewidth=1)
    for name, colour in colours_of(list(found)).items():
        _draw(ax, found[name], name, colour)
    words = ("confidence", "accuracy")
    if of_class is not None:
        words = (f"probability of class {of_class}", f"share of class {of_class}")
    ax.set(ylabel=words[1], xlim=(0, 1), ylim=(0, 1), aspect="equal")
    lowest = ax
    if histogram:
        lowest = _histogram(ax, found)
        ax.tick_params(labelbottom=False)
    lowest.set_xlabel(words[0])
    if list(found) != [_UNNAMED]:
        legend_above(ax)
    return ax


def _bins_by_name(
    reports: Any, labels: Any, bins: int, of_class: int | None, weight: Any
) -> Mapping[str, Reliability]:
    pictures = getattr(reports, "pictures", None)
    if pictures is not None:
        found: Mapping[str, Reliability] = pictures.reliability
        return found
    if labels is None:
        raise InputError("labels", "is missing", "pass the true class of each row")
    named = reports if isinstance(reports, Mapping) else {_UNNAMED: reports}
    if of_class is None:
        return {
            name: reliability(report, labels, bins=bins, sample_weight=weight)
            for name, report in named.items()
        }
    return {
        name: class_reliability(report, labels, of_class, bins=bins, sample_weight=weight)
        for name, report in named.items()
    }


def _draw(ax: Any, bins: Reliability, name: str, colour: Any) -> None:
    filled = bins.count > 0
    where, accuracy = bins.confidence[filled], bins.accuracy[filled]
    ax.fill_between(
        where,
        bins.accuracy_low[filled],
        bins.accuracy_high[filled],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    # A mark on the frame is shown whole.
    style = {"markersize": 4, "linewidth": 1.2, "clip_on": False}
    ax.plot(where, accuracy, "o-", color=colour, label=name, **style)


def _histogram(ax: Any, found: Mapping[str, Reliability]) -> Any:
    # A layout engine makes room for what hangs below the axes; without one it is made here.
    if ax.figure.get_layout_engine() is None:
        box = ax.get_position(original=True)
        height = box.height / (1.0 + _HISTOGRAM + _GAP + _WORDS)
        ax.set_position((box.x0, box.y1 - height, box.width, height))
    below = ax.inset_axes((0.0, -_GAP - _HISTOGRAM, 1.0, _HISTOGRAM))
    for name, colour in colours_of(list(found)).items():
        bins = found[name]
        edges = np.append(bins.lower, bins.upper[-1])
        below.stairs(bins.count, edges, color=colour, linewidth=1.2)
    below.set(xlim=(0, 1), ylabel="rows")
    return below


@dataclass(eq=False)
class ReliabilityDisplay:
    """A multiclass reliability diagram in scikit-learn's manner.

    scikit-learn's `CalibrationDisplay` is for two classes only; this one draws the confidence
    of the predicted class, whatever the number of classes.

    Parameters
    ----------
    reliability : Reliability
        The bins, as `cordcal.metrics.reliability` returns them.
    name : str
        The report's name in the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

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
        y_true: Any,
        y_prob: Any,
        *,
        n_bins: int = 15,
        sample_weight: Any = None,
        name: str = _UNNAMED,
        ax: Axes | None = None,
    ) -> Self:
        """Draw from true class indices and the probabilities of all classes."""
        bins = reliability(y_prob, y_true, bins=n_bins, sample_weight=sample_weight)
        return cls(bins, name).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_bins: int = 15,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw from a fitted classifier with ``predict_proba`` and ``classes_``."""
        classes = list(estimator.classes_)
        place = {label: index for index, label in enumerate(classes)}
        refuse_masked(y, "y")
        unknown = [label for label in np.asarray(y).tolist() if label not in place]
        if unknown:
            raise InputError(
                "y",
                f"holds {unknown[0]!r}, which is none of the estimator's classes",
                "pass labels that it was fitted on",
            )
        return cls.from_predictions(
            [place[label] for label in np.asarray(y).tolist()],
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
        _draw(ax, self.reliability, self.name, colour)
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        legend_above(ax)
        self.ax_, self.figure_ = ax, ax.get_figure()  # type: ignore[assignment]
        return self
