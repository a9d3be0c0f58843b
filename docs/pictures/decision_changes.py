"""The picture of the start page and the README: what calibrators do to the digits' decisions.

python docs/pictures/decision_changes.py    writes docs/_static/decision-changes.svg
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _style import plt, write

import cordcal
from cordcal import plots
from cordcal.cli.demo import _CALIBRATION, _SHOWN, _scores


def main() -> None:
    """Compare on the rows of `cordcal demo` and draw."""
    logits, labels = _scores()
    comparison = cordcal.compare(
        logits[:_CALIBRATION],
        labels[:_CALIBRATION],
        _SHOWN,
        evaluation=(logits[_CALIBRATION:], labels[_CALIBRATION:]),
    )
    figure, axes = plt.subplots(figsize=(7.2, 3.0))
    plots.decision_changes(comparison, axes)
    axes.set_title(
        "Decisions each calibrator changes, and the net change of accuracy", loc="left", pad=26
    )
    write(figure, Path(__file__).parents[1] / "_static" / "decision-changes.svg")


if __name__ == "__main__":
    main()
