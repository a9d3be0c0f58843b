"""What a notebook shows: progress, tracebacks and models on one screen."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import cordcal
from cordcal.evaluate.constraint_cost import measure_constraint_cost


def rows(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=count)
    return 2.0 * np.eye(3)[labels] + rng.normal(size=(count, 3)), labels


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook, in which every clock is two seconds further at each look."""
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    clock = iter(np.arange(0.0, 1e4, 2.0))
    monkeypatch.setattr("cordcal._numeric.progress.perf_counter", lambda: next(clock))


def test_a_long_comparison_shows_its_steps(
    notebook: None, capsys: pytest.CaptureFixture[str]
) -> None:
    cordcal.compare(*rows(), ["ts", "vs"])
    written = capsys.readouterr().err
    assert "comparing: 0 of 3, vs" in written
    assert "comparing: 2 of 3, intervals" in written
    assert "fitting" not in written  # the outermost work alone
    assert written.endswith(" \r")  # erased


def test_a_long_fit_shows_its_steps(notebook: None, capsys: pytest.CaptureFixture[str]) -> None:
    cordcal.PreservingCalibrator().fit(*rows())
    assert "fitting blend: 1 of 10" in capsys.readouterr().err


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    cordcal.compare(*rows(), ["ts"])
    assert capsys.readouterr().err == ""


def test_a_traceback_shows_the_callers_lines() -> None:
    def mine() -> None:
        cordcal.PreservingCalibrator().fit(np.zeros((3, 2)), [0, 1])

    with pytest.raises(cordcal.InputError) as raised:
        mine()
    lines = raised.value._render_traceback_()
    assert "in mine" in "".join(lines)
    assert "src/cordcal" not in "".join(lines).replace("\\", "/")
    assert lines[-1] == f"InputError: {raised.value}"


def test_a_model_is_folded_to_one_screen() -> None:
    model = cordcal.PreservingCalibrator().fit(*rows())
    shown = model._repr_html_()
    depth, visible = 0, []
    for part in shown.replace("<", "\n<").splitlines():
        depth += part.startswith("<details") - part.startswith("</details")
        if depth == 0 or (depth == 1 and part.startswith("<summary")):
            visible.append(part)
    assert 1 < "".join(visible).count("<div") + "".join(visible).count("<summary") < 15


def test_tiny_rests_do_not_overflow() -> None:
    direct = np.array([[1.0, 5e-324, 0.0], [0.0, 1.0, 5e-324], [0.5, 0.5, 0.0]])
    cost = measure_constraint_cost(direct, np.array([0, 1, 0]), np.array([0, 1, 1]))
    assert np.isfinite(cost.kept)
