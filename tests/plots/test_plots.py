"""The plots of arrays draw the computed metrics, on any axes, in any style."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from errors import refused

pytest.importorskip("matplotlib").use("agg")

import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen first

import cordcal  # noqa: E402
from cordcal import metrics, plots  # noqa: E402


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    report = rng.dirichlet(np.ones(4), 500)
    labels = np.array([rng.choice(4, p=row) for row in report])
    sharper = report**2 / (report**2).sum(axis=1, keepdims=True)
    return report, sharper, labels


def line(ax, name: str):
    return next(drawn for drawn in ax.lines if drawn.get_label() == name)


def test_a_diagram_of_several_arrays(rows) -> None:
    report, sharper, labels = rows
    ax = plots.reliability_diagram({"original": sharper, "repaired": report}, labels, bins=10)
    bins = metrics.reliability(report, labels, bins=10, strategy="quantile")
    names = [
        f"{name}, ECE {100 * metrics.ece(values, labels, bins=10):.1f} %"
        for name, values in (("original", sharper), ("repaired", report))
    ]
    np.testing.assert_array_equal(line(ax, names[1]).get_ydata(), bins.accuracy)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == names
    assert line(ax, names[0]).get_color() == plots.COLOURS["original"]
    (below,) = ax.child_axes
    assert below.patches[0].get_data().values.sum() == len(labels)


@pytest.mark.parametrize("layout", [None, "constrained", "tight"])
@pytest.mark.parametrize("columns", [1, 2])
def test_nothing_of_a_diagram_is_cut(rows, columns: int, layout: str | None) -> None:
    report, sharper, labels = rows
    _, grid = plt.subplots(1, columns, squeeze=False, layout=layout)
    for cell in grid.flat:
        plots.reliability_diagram({"original": sharper, "repaired": report}, labels, ax=cell)
    new = plots.reliability_diagram({"original": sharper, "repaired": report}, labels)
    for ax in [*grid.flat, new]:
        ax.figure.canvas.draw()
        box = ax.get_tightbbox()
        assert box.y0 >= 0.0
        assert box.y1 <= ax.figure.bbox.height
        assert ax.child_axes[0].get_xlabel() == "confidence"


def test_a_diagram_of_one_class(rows) -> None:
    report, _, labels = rows
    ax = plots.reliability_diagram(report, labels, of_class=1, histogram=False)
    bins = metrics.class_reliability(report, labels, 1)
    drawn = line(ax, f"probabilities, ECE {100 * bins.ece:.1f} %")
    np.testing.assert_array_equal(drawn.get_ydata(), bins.accuracy[bins.count >= 10])
    (marks,) = (c for c in ax.collections if len(c.get_sizes()) == (bins.count > 0).sum())
    counts = bins.count[bins.count > 0]
    large = marks.get_sizes() > 3.0  # the smallest marks stay visible
    shares = marks.get_sizes() / marks.get_sizes().max()
    np.testing.assert_allclose(shares[large], (counts / counts.max())[large])
    assert (bins.count[bins.count > 0] < 10).any()
    assert ax.get_xlabel() == "probability of class 1"


def test_no_bin_of_a_diagram_has_few_rows(rows) -> None:
    report, _, labels = rows
    bins = metrics.reliability(report[:45], labels[:45], strategy="quantile")
    assert bins.count.min() >= 10
    assert bins.count.sum() == 45
    tied = np.tile([[0.7, 0.3]], (40, 1))
    assert len(metrics.reliability(tied, np.zeros(40, int), strategy="quantile")) == 1
    with refused("strategy"):
        metrics.reliability(report, labels, strategy="width")


def test_a_model_draws_before_and_after_in_one_call(rows) -> None:
    report, _, labels = rows
    model = cordcal.PreservingCalibrator("ts", input="probabilities").fit(report, labels)
    ax = model.plot(report, labels)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [
        f"{name}, ECE {100 * metrics.ece(values, labels):.1f} %"
        for name, values in (("original", report), ("repaired", model.predict_proba(report)))
    ]
    assert model.plot(report, labels, ax=ax) is ax


def test_labels_of_marks_do_not_overlap() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=800)
    logits = 2.0 * np.eye(4)[labels] + 1.5 * rng.normal(size=(800, 4))
    keys = ["ts", "vs", "svs", "irova", "irova-ts", "dir-odir", "ms", "beta", "platt"]
    comparison = cordcal.compare(logits, labels, keys)
    for measure in ("nll", "ece", "brier"):
        ax = plots.metric_versus_tpcr(comparison, measure)
        ax.figure.canvas.draw()
        boxes = [text.get_window_extent() for text in ax.texts]
        assert boxes
        for at, box in enumerate(boxes):
            assert not any(box.shrunk(0.9, 0.7).overlaps(other) for other in boxes[:at])


def test_svg_and_matplotlib_show_the_same_marks() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    logits = 2.0 * np.eye(3)[labels] + 1.5 * rng.normal(size=(600, 3))
    comparison = cordcal.compare(logits, labels, ["ts", "irova"])
    ax = plots.metric_versus_tpcr(comparison, "nll")
    drawn = [tuple(mark.get_xydata()[0]) for mark in ax.lines if mark.get_marker() in "oxs"]
    rows = comparison.report_data().rows()
    assert len(drawn) == len(rows)
    assert {value for _, value in drawn} == {row.measures["nll"] for row in rows}
    diagram = plots.risk_coverage(comparison["irova"])
    assert len(diagram.lines) == len(comparison["irova"].pictures.selection.outputs)


def test_labels_are_required(rows) -> None:
    with refused("labels"):
        plots.reliability_diagram(rows[0])


def test_flows_as_cells_or_bars(rows) -> None:
    report, _, _ = rows
    moved = report[:, ::-1]
    ax = plots.flows(report, moved, class_names=["a", "b", "c", "d"])
    counts = metrics.prediction_flows(report, moved)
    assert sorted(int(text.get_text()) for text in ax.texts) == sorted(counts.count.tolist())
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c", "d"]
    rng = np.random.default_rng(3)
    many = plots.flows(rng.integers(40, size=300), rng.dirichlet(np.ones(40), 300))
    assert len(many.patches) == 20


def test_a_certificate_with_its_points() -> None:
    rng = np.random.default_rng(0)
    first = rng.uniform(0.0, 1.0, 4000)
    labels = (rng.random(4000) > first).astype(int)
    result = cordcal.certify(np.c_[first, 1.0 - first], labels, error=0.1, by="class")
    ax = plots.certificate(result)
    for part in result.parts:
        drawn = line(ax, f"{part.name}, {100 * part.share:.1f} % go through")
        np.testing.assert_allclose(drawn.get_xydata(), 100 * np.array(part.curve))
    points = [tuple(drawn.get_xydata()[0]) for drawn in ax.lines if len(drawn.get_xydata()) == 1]
    assert points == [
        pytest.approx((100 * part.share, 100 * part.errors / part.accepted))
        for part in result.parts
    ]
    assert ax.lines[-1].get_ydata()[0] == pytest.approx(10.0)
    with refused("certificate"):
        plots.certificate(cordcal.certification.Certificate.from_dict(result.to_state()))


def test_risk_against_coverage(rows) -> None:
    report, sharper, labels = rows
    ax = plots.risk_coverage({"original": report, "repaired": sharper}, labels)
    curve = metrics.risk_coverage(sharper, labels)
    drawn = line(ax, f"repaired, AURC {curve.aurc:.4f}")
    np.testing.assert_allclose(drawn.get_ydata(), 100 * curve.risk)
    assert plots.risk_coverage(curve).get_xlabel() == "rows kept (%)"


def test_axes_passed_any_style_and_a_file(rows) -> None:
    report, _, labels = rows
    with plt.style.context("dark_background"):
        ax = plt.subplots()[1]
        assert plots.reliability_diagram(report, labels, ax=ax) is ax
        for kind in ("pdf", "svg"):
            ax.figure.savefig(BytesIO(), format=kind)


class Classifier:
    """A fitted classifier whose classes are words."""

    def __init__(self, report: np.ndarray) -> None:
        self.report, self.classes_ = report, np.array(["a", "b", "c", "d"])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.report[X]


def test_the_display_of_an_estimator(rows) -> None:
    report, _, labels = rows
    estimator = Classifier(report)
    words = estimator.classes_[labels]
    display = plots.ReliabilityDisplay.from_estimator(estimator, np.arange(500), words)
    expected = metrics.reliability(report, labels, strategy="quantile")
    np.testing.assert_array_equal(display.reliability.count, expected.count)
    assert display.name == "Classifier"
    assert display.ax_.figure is display.figure_
    with refused("y", naming="'z'"):
        plots.ReliabilityDisplay.from_estimator(estimator, [0], ["z"])
