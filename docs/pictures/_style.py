"""What the pictures share: size, colours and how they are written."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from cordcal.plots import COLOURS

__all__ = ["COLOURS", "plt", "write"]

plt.rcParams.update(
    {
        "figure.dpi": 100,
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "cordcal",  # the same picture gives the same bytes
        "legend.frameon": False,
    }
)


def write(figure: plt.Figure, path: Path) -> None:
    """Write a figure as SVG without a date, so that only a change changes the file."""
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight", facecolor="white")
    plt.close(figure)
