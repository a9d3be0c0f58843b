"""The plots of a comparison show its numbers."""

from __future__ import annotations

import numpy as np
import pytest

import cordcal
from errors import refused

pytest.importorskip("matplotlib").use("agg")

import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen first

from cordcal import plots  # noqa: E402


@pytest.fixture(scope="module")
def comparison():
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=600)
    logits = 2.0 * np.eye(3)[labels] + 1.5 * rng.normal(size=(600, 3))
    return cordcal.compare(logits, labels, ["ts", "vs", "irova"])


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_bars_add_up_to_the_changes(comparison) -> None:
    ax = plots.prediction_changes(comparison)
    shown = [entry for entry in comparison if entry.changes.n_changed]
    widths = np.array([patch.get_width() for patch in ax.patches]).reshape(3, len(shown))
    np.testing.assert_allclose(widths.sum(axis=0), [100 * entry.changes.tpcr for entry in shown])
    assert [label.get_text() for label in ax.get_yticklabels()] == [entry.key for entry in shown]


def test_points_are_the_metrics(comparison) -> None:
    ax = plots.metric_versus_tpcr(comparison, "nll")
    points = {(x, y) for line in ax.lines for x, y in line.get_xydata()}
    entry = comparison["vs"]
    assert (100 * entry.changes.tpcr, entry.direct["nll"]) in points
    assert (0.0, entry.repaired["nll"]) in points
    assert (0.0, comparison.uncalibrated["nll"]) in points
    with refused("measure", naming=["auc", "accuracy, nll"]):
        plots.metric_versus_tpcr(comparison, "auc")


def test_the_diagram_shows_the_filled_bins(comparison) -> None:
    ax = plots.reliability_diagram(comparison["vs"])
    bins = comparison["vs"].pictures.reliability["repaired"]
    filled = bins.count > 0
    drawn = next(line for line in ax.lines if line.get_label().startswith("repaired, ECE"))
    np.testing.assert_array_equal(drawn.get_xdata(), bins.confidence[filled])
    np.testing.assert_array_equal(drawn.get_ydata(), bins.accuracy[filled])


def test_the_histogram_counts_every_row(comparison) -> None:
    ax = plots.confidence_histogram(comparison["vs"])
    assert ax.patches
    for steps in ax.patches:
        assert steps.get_data().values.sum() == comparison.n_evaluation


def test_draws_on_the_axes_passed(comparison) -> None:
    import matplotlib.pyplot as plt

    ax = plt.subplots()[1]
    assert plots.confidence_histogram(comparison["ts"], ax) is ax


def test_text_next_to_bars_and_marks_stays_inside(comparison) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    plots.prediction_changes(comparison, ax=left)
    plots.metric_versus_tpcr(comparison, ax=right)
    figure.canvas.draw()
    for ax in (left, right):
        assert ax.texts
        for text in ax.texts:
            assert text.get_window_extent().x1 <= ax.bbox.x1


def test_other_types_are_refused(comparison) -> None:
    probabilities = np.full((4, 2), 0.5)
    for draw in (plots.prediction_changes, plots.metric_versus_tpcr):
        with refused("comparison", naming="Audit"):
            draw(cordcal.audit(probabilities, probabilities))
    with refused("entry", naming="ndarray"):
        plots.confidence_histogram(probabilities)
