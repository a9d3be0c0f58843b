"""smECE against relplot: its stored values of every version, and the installed one live."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cordcal import metrics
from cordcal.metrics.base import LabelledRows
from cordcal.metrics.smooth import Positions, Residuals, smooth_gap


def cases() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Confidences and correctness by the first letter of the stored description."""
    c, d = np.random.default_rng(0), np.random.default_rng(1)
    f_c, f_d = c.random(1000), d.beta(8, 0.5, 5000)
    mostly = np.array([1] * 90 + [0] * 10)
    return {
        "A": (np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])),
        "B": (np.linspace(0.5, 1, 11), np.arange(11) % 2 == 0),
        "C": (f_c, c.random(1000) < f_c**1.5),
        "D": (f_d, d.random(5000) < f_d - 0.02),
        "E": (np.array([1.0] * 90 + [0.7] * 10), mostly),
        "F": (np.array([0.999] * 90 + [0.7] * 10), mostly),
        "G": (np.full(8, 0.75), np.array([1] * 6 + [0] * 2)),
    }


@pytest.fixture(params=sorted(cases()))
def case(request, fixture_folder):
    confidence, correct = cases()[request.param]
    stored = json.loads((fixture_folder / "smece_reference_values.json").read_text())
    (values,) = (value for name, value in stored.items() if name.startswith(request.param))
    # Top confidences are at least 1 / K; smECE itself takes any number in [0, 1].
    unused = np.zeros(len(confidence))
    labels = np.where(correct, 0, 1)
    rows = LabelledRows(confidence, np.zeros(len(confidence), int), unused, unused, labels, None)
    return rows, values


@pytest.mark.parametrize(
    ("normalization", "version"),
    [("count", "relplot_1.0_and_1.0.1 (the paper's)"), ("density", "relplot_1.0.3")],
)
def test_stored_values_and_widths(case, normalization, version) -> None:
    rows, values = case
    error, width = smooth_gap(rows, normalization)
    assert error == pytest.approx(values[version]["value"], abs=1e-9)
    assert width == values[version]["bandwidth"]


def test_stored_values_with_the_boundary_corrected(case) -> None:
    rows, values = case
    assert smooth_gap(rows, "corrected")[0] == pytest.approx(values["boundary_corrected"], abs=1e-9)


def test_stored_values_at_one_width(case) -> None:
    rows, values = case
    residual = rows.confidence - rows.correct
    points = Residuals(Positions(rows.confidence), residual, np.ones(len(rows)), "density")
    assert points.error_at(0.05) == pytest.approx(
        values["relplot_1.0.3_at_bandwidth_0.05"], abs=1e-9
    )


def test_installed_version(report) -> None:
    relplot = pytest.importorskip("relplot")
    p, y = report
    expected = relplot.smECE(f=p.max(axis=1), y=(p.argmax(axis=1) == y).astype(float))
    assert metrics.smooth_ece(p, y, normalization="density") == pytest.approx(expected, abs=1e-9)
