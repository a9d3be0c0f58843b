"""Data frames whose columns come in another order than the other side's."""

from __future__ import annotations

import numpy as np
import pandas as pd

import cordcal
from cordcal.evaluate.gates import Gate, check
from errors import refused

NAMES = ["ant", "bee", "cat"]
RNG = np.random.default_rng(5)
TRUTH = RNG.integers(3, size=300)
LOGITS = 2.0 * np.eye(3)[TRUTH] + RNG.normal(size=(300, 3))


def reports() -> tuple[pd.DataFrame, pd.DataFrame]:
    shares = [np.exp(scores) for scores in (LOGITS, 0.5 * LOGITS + [0.4, 0.0, 0.0])]
    first, second = (rows / rows.sum(axis=1, keepdims=True) for rows in shares)
    return pd.DataFrame(first, columns=NAMES), pd.DataFrame(second, columns=NAMES)


def test_audit() -> None:
    original, direct = reports()
    expected = cordcal.audit(original, direct, TRUTH).to_dict()
    assert cordcal.audit(original, direct[NAMES[::-1]], TRUTH).to_dict() == expected
    with refused("direct", naming=("'wolf'", "'bee'")):
        cordcal.audit(original, direct.rename(columns={"bee": "wolf"}))


def test_compare_with_evaluation_rows() -> None:
    frame = pd.DataFrame(LOGITS, columns=NAMES)
    words = np.array(NAMES)[TRUTH]
    other = frame[NAMES[::-1]]
    options = {"class_names": NAMES}
    result, expected = (
        cordcal.compare(frame, words, ["ts"], evaluation=(table, words), **options)
        for table in (other, frame)
    )
    assert result["ts"].direct == expected["ts"].direct
    with refused("evaluation[1]", naming="column numbers"):
        cordcal.compare(frame, TRUTH, ["ts"], evaluation=(other, TRUTH))


def test_changes_and_gates() -> None:
    original, direct = reports()
    reordered = direct[NAMES[::-1]]
    expected = cordcal.metrics.tpcr(original.to_numpy(), direct.to_numpy())
    assert 0.0 < expected < 0.5
    assert cordcal.metrics.tpcr(original, reordered) == expected
    result = check(reordered, original=original, gates=[Gate("tpcr", expected)])
    assert result.outcome == "passed"
    with refused("original", naming=("'wolf'", "'bee'")):
        check(direct, original=original.rename(columns={"bee": "wolf"}), gates=[Gate("tpcr", 1.0)])
