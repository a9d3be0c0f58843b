"""A pytest plugin for torchmetrics' tests: our ECE is the reference, in the place of netcal's."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics


class OurECE:
    """netcal's interface to the expected calibration error."""

    def __init__(self, bins: int) -> None:
        self.bins = bins

    def measure(self, probabilities: np.ndarray, labels: np.ndarray) -> float:
        """Return the ECE over bins of equal width."""
        return metrics.ece(np.asarray(probabilities, np.float64), labels, bins=self.bins)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Replace the reference in every collected module."""
    for item in items:
        assert hasattr(item.module, "ECE"), "torchmetrics compares with another library now"
        item.module.ECE = OurECE
