"""Shared by all plots: colours, axes, signs, and a legend above the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
