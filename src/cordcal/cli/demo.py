"""``cordcal demo``: a comparison on data that comes with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordcal.cli._command import add_command
from cordcal.cli._console import echo_heading, progress
from cordcal.cli._files import check_report
from cordcal.cli._options import JsonOption, WideOption
from cordcal.cli.compare import present

if TYPE_CHECKING:
    import numpy.typing as npt

_SEED = 0
# Of 1,797 digits; those that remain are for evaluation.
_TRAINING, _CALIBRATION = 400, 700
# One calibrator of each kind, to be fast and fit a screen; `compare` runs all.
_SHOWN = ("ts", "mono", "vs", "sms", "dir-odir", "irova", "blend")


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, demo, "demo")


def demo(
    report: Annotated[
        Path, typer.Option("--report", help="HTML report to write; replaced on every run.")
    ] = Path("cordcal-demo.html"),
    json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """Run the comparison on scikit-learn's digits: train, calibrate, repair, compare."""
    check_report(report, force=True)
    echo_heading(
        "cordcal demo: handwritten digits, a naive Bayes classifier, direct against repaired"
    )
    logits, labels = _scores()
    echo_heading(
        f"{_TRAINING} digits to train on, {_CALIBRATION} to calibrate on, "
        f"{len(labels) - _CALIBRATION} to evaluate on"
    )
    import cordcal

    with progress("comparing", len(_SHOWN) + 1) as advance:
        comparison = cordcal.compare(
            logits[:_CALIBRATION],
            labels[:_CALIBRATION],
            _SHOWN,
            evaluation=(logits[_CALIBRATION:], labels[_CALIBRATION:]),
            class_names=[f"digit {digit}" for digit in range(10)],
            progress=advance,
        )
    step = comparison.next_step()  # as for scores in a file
    source = "scikit-learn's digits"
    present(comparison, report, source=source, json=json, force=True, wide=wide, step=step)


def _scores() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Train on some digits; return log-scores and labels of the others, shuffled."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.naive_bayes import MultinomialNB

    from cordcal._numeric.parallel import one_blas_thread

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(_SEED).permutation(len(labels))
    training, remaining = order[:_TRAINING], order[_TRAINING:]
    # Pixels scaled to [0, 1]: with the raw counts naive Bayes is certain of every digit.
    with one_blas_thread():  # the same table on every machine
        classifier = MultinomialNB().fit(pixels[training] / 16, labels[training])
        return classifier.predict_joint_log_proba(pixels[remaining] / 16), labels[remaining]
