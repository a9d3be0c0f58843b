"""What every plot shares: colours, axes, signs, and a legend that covers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def axes(ax: Axes | None) -> Axes:
    """Return the axes to draw on, new ones where none are given."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'cordcal[figures]'"
        ) from error
    return plt.subplots(layout="constrained")[1]


def colours_of(names: list[str]) -> dict[str, Any]:
    """Return a colour for each report: the report's own, else the style's next."""
    spare = (f"C{number}" for number in range(len(names)))
    return {name: COLOURS.get(name) or next(spare) for name in names}


def legend_above(ax: Axes) -> None:
    """Put the legend over the axes, where it covers no data."""
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
    """Return a number with its sign, a true minus for negative ones.

    Examples
    --------
    >>> signed(-0.5, 2), signed(0.25, 2)
    ('−0.50', '+0.25')
    """
    return f"{value:+.{digits}f}".replace("-", "−")
