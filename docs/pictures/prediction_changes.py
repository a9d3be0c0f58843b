"""The picture of the start page and the README: what calibrators do to the digits' predictions.

python docs/pictures/prediction_changes.py    writes docs/_static/prediction-changes.svg
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _style import plt, write

from cordcal import plots
from cordcal.cli.demo import compare_on_digits


def main() -> None:
    """Compare on the rows of `cordcal demo` and draw."""
    comparison = compare_on_digits()
    figure, axes = plt.subplots(figsize=(7.2, 3.0))
    plots.prediction_changes(comparison, axes)
    axes.set_title(
        "Predictions each calibrator changes, and the net change of accuracy", loc="left", pad=26
    )
    write(figure, Path(__file__).parents[1] / "_static" / "prediction-changes.svg")


if __name__ == "__main__":
    main()
