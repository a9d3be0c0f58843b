"""``cordcal demo``: the main job on data that comes with scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from cordcal.cli._console import say, show

if TYPE_CHECKING:
    import numpy.typing as npt

_SEED = 0
# Of the 1,797 digits: enough to train on, the rest shared by calibration and evaluation.
_TRAINING, _CALIBRATION = 400, 700
_CALIBRATORS = ("ts", "irova")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        help="Run the comparison on scikit-learn's digits: train, calibrate, repair, compare.",
        epilog="Example: cordcal demo",
    )(demo)


def demo() -> None:
    """Train a classifier on digits and compare calibrators, direct against repaired."""
    say("cordcal demo: handwritten digits, a naive Bayes classifier, direct against repaired")
    logits, labels = _scores()
    fit, test = slice(0, _CALIBRATION), slice(_CALIBRATION, None)
    say(
        f"{_TRAINING} digits to train on, {len(labels[fit])} to calibrate on, "
        f"{len(labels[test])} to evaluate on"
    )
    show(_table(logits[fit], labels[fit], logits[test], labels[test]))
    say("The repaired rows keep every decision of the classifier; the direct rows need not.")


def _scores() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Train on some digits; return the log-scores and labels of the others, shuffled."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.naive_bayes import MultinomialNB

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(_SEED).permutation(len(labels))
    training, rest = order[:_TRAINING], order[_TRAINING:]
    # Ink in sixteenths: counts as they are would make naive Bayes certain of everything.
    classifier = MultinomialNB().fit(pixels[training] / 16, labels[training])
    return classifier.predict_joint_log_proba(pixels[rest] / 16), labels[rest]


def _table(fit_scores: Any, fit_labels: Any, scores: Any, labels: Any) -> Any:
    from rich.table import Table

    import cordcal
    from cordcal import arrays, metrics

    table = Table(title="On the evaluation digits (percent, but for NLL and Brier)")
    table.add_column("report")
    for heading in ("accuracy", "TPCR", "C+", "C−", "C0", "ECE", "NLL", "Brier"):
        table.add_column(heading, justify="right")

    def add(name: str, report: Any) -> None:
        changes = metrics.decision_changes(scores, report, labels)
        shares = (changes.tpcr, changes.gained, changes.lost, changes.neutral)
        table.add_row(
            name,
            f"{100 * metrics.accuracy(report, labels):.2f}",
            *(f"{100 * (share or 0.0):.2f}" for share in shares),
            f"{100 * metrics.ece(report, labels):.2f}",
            f"{metrics.nll(report, labels):.4f}",
            f"{metrics.brier(report, labels):.4f}",
        )

    add("uncalibrated", arrays.softmax(scores))
    for key in _CALIBRATORS:
        reports = cordcal.Preserved(key).fit(fit_scores, fit_labels).reports(scores)
        table.add_section()
        add(f"{key}, direct", reports.direct)
        add(f"{key}, repaired", reports.repaired)
    return table
