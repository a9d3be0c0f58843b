"""Tests of other projects, run against cordcal."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers that other projects' tests have."""
    config.addinivalue_line("markers", "thread_unsafe: scikit-learn's, for its free-threading runs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark expected failures, which must fail, and long tests, from the tables of each module."""
    for item in items:
        if item.path.parent != HERE:
            continue
        module = getattr(item, "module", None)
        reason = getattr(module, "EXPECTED_FAILURES", {}).get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        near = getattr(module, "NEAR_TOLERANCE", {}).get(item.name)
        if near is not None:
            item.add_marker(pytest.mark.xfail(reason=near, strict=False))
        if item.name in getattr(module, "SLOW", {}):
            item.add_marker(pytest.mark.slow)
