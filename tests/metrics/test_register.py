"""A metric is one record: once registered, it is in every table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

import cordcal
from cordcal import metrics, report
from cordcal.metrics import METRICS, Metric
from extensions import TRUE_MASS


@pytest.fixture
def registered() -> Iterator[Metric]:
    yield metrics.register(TRUE_MASS)
    metrics.unregister("true_mass")


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=600)
    return 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(600, 3)), labels


def test_it_is_measured_compared_and_written(registered, rows) -> None:
    result = cordcal.compare(*rows, ["ts", "irova"])
    entry = result["irova"]
    assert entry.direct["true_mass"] != entry.repaired["true_mass"]
    gain = entry.gain["true_mass"]
    assert gain.low < gain.estimate < gain.high
    assert result.best["true_mass"].value == max(
        result.measures(*pair)["true_mass"] for pair in result.preserving()
    )
    page = report.render(result, title="t")
    assert "The mean probability of the true class." in page
    assert page.count("true mass") > 3
    console = Console(width=200)
    with console.capture() as shown:
        console.print(result)
    assert "true mass" in shown.get()


def test_an_audit_has_it_with_its_direction(registered, rows) -> None:
    original = np.exp(rows[0]) / np.exp(rows[0]).sum(axis=1, keepdims=True)
    direct = 0.2 + 0.4 * np.roll(original, 1, axis=1)
    result = cordcal.audit(original, direct, rows[1], resamples=50)
    (measured,) = [row for row in result.measures if row.measure == "true_mass"]
    assert measured.direct == TRUE_MASS.function(direct, rows[1])
    assert measured.verdict == "better"
    assert measured.low > 0.0


def test_unregistered_metrics_are_gone_and_all_records_are_complete() -> None:
    assert "true_mass" not in METRICS
    for key, metric in METRICS.items():
        assert metric.key == key == metric.function.__name__
        assert getattr(metrics, key) is metric.function
        assert metric.meaning.endswith(".")


def test_an_unknown_metric_is_named() -> None:
    result = metrics.measure_all([[0.5, 0.5]], [0])
    with pytest.raises(AttributeError, match=r"'bries'.*accuracy"):
        _ = result.bries
