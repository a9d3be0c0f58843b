"""Temperature maps against the exact optima of the synthetic set."""

from __future__ import annotations

import pytest

from cordcal import calibrators


def test_ts_is_the_exact_optimum(synth, optima) -> None:
    model = calibrators.make("ts").fit(synth.cal_logits, synth.cal_labels)
    assert model.temperature_ == pytest.approx(optima["TS(CE)"]["T"], rel=1e-7)
    assert model.objective_ == pytest.approx(optima["TS(CE)"]["objective"], rel=1e-9)
