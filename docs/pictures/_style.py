"""What the pictures share: size, colours and how they are written."""

import re
from importlib import resources
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from cordcal.plots import COLOURS

__all__ = ["COLOURS", "plt", "write"]

# What no report has: the ground and the ink of a picture, which the page does not give it.
_GROUND_AND_INK = {"#ffffff": "#0d1117", "#000000": "#e8eaed", "#222222": "#e8eaed"}

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
    drawn = path.read_text(encoding="utf-8")
    path.write_text(drawn.replace("</style>", f"{_in_dark_mode(drawn)}</style>", 1), "utf-8")


def _in_dark_mode(drawn: str) -> str:
    """Return the rules that give each colour of a picture the one the report has in dark mode."""
    style = resources.files("cordcal.report").joinpath("templates", "style.css").read_text("utf-8")
    pairs = dict(re.findall(r"light-dark\((#\w{6}), (#\w{6})\)", style)) | _GROUND_AND_INK
    rules = [f"svg{{fill: {pairs['#000000']}}}"]  # texts name no colour: black is the default
    for part, colour in sorted(set(re.findall(r'(fill|stroke)(?:: |=")(#\w{6})', drawn))):
        named = f'[style*="{part}: {colour}"], [{part}="{colour}"]'
        rules.append(f"{named} {{{part}: {pairs[colour]} !important}}")
    return "\n@media (prefers-color-scheme: dark){" + "\n".join(rules) + "}"
