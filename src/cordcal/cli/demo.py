"""``cordcal demo``: a comparison on data that comes with scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordcal.cli._console import echo_heading, progress
from cordcal.cli._files import check_report
from cordcal.cli._options import JsonOption, add_command
from cordcal.cli.compare import present

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison

# Of 1,797 digits; those that remain are for evaluation.  benchmarks/demo_data.py compares this
# choice with others.
_TRAINING, _CALIBRATION = 400, 300
# One calibrator of each kind, to be fast and fit a screen; `compare` runs all.
_SHOWN = ("ts", "vs", "sms", "dir-odir", "irova", "blend")


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, demo, "demo")


def demo(
    report: Annotated[
        Path,
        typer.Option(
            "--report", metavar="FILE", help="HTML report to write; replaced on every run."
        ),
    ] = Path("cordcal-demo.html"),
    json: JsonOption = False,
) -> None:
    """Run the comparison on scikit-learn's digits: train, calibrate, repair, compare."""
    check_report(report, force=True)
    echo_heading("cordcal demo: handwritten digits, classified by a random forest")
    echo_heading(f"{_TRAINING} digits to train on, {_CALIBRATION} to calibrate on")
    with progress("comparing", len(_SHOWN) + 1) as advance:
        comparison = compare_on_digits(advance)
    step = comparison.next_step()  # as for scores in a file
    source = "scikit-learn's digits"
    present(
        comparison,
        report,
        source=source,
        step=step,
        json=json,
        force=True,
    )


def compare_on_digits(progress: Callable[[str], None] | None = None) -> Comparison:
    """Train a random forest on some digits, and compare calibrators on the others."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    import cordcal

    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    training, fit, test = np.split(order, [_TRAINING, _TRAINING + _CALIBRATION])
    forest = RandomForestClassifier(random_state=0).fit(pixels[training], digits[training])
    return cordcal.compare(
        forest.predict_proba(pixels[fit]),
        digits[fit],
        _SHOWN,
        input="probabilities",
        evaluation=(forest.predict_proba(pixels[test]), digits[test]),
        class_names=[f"digit {digit}" for digit in range(10)],
        progress=progress,
    )
