"""`compare` reads and checks its arguments once, however many calibrators there are."""

from __future__ import annotations

import sys
from collections import Counter
from types import CodeType, FrameType

import numpy as np
import pytest

from cordcal import compare
from cordcal._validation import labels, scores
from cordcal._validation.scores import CheckedScores

COUNTED = {
    function.__code__: function.__name__
    for function in (
        scores.as_scores,
        scores.read_scores,
        scores.check_scores,
        labels.check_predictions,
        labels.check_labels,
        labels.check_weights,
        scores.check_same_shape,
    )
}


def calls(function, *arguments, **named) -> Counter[str]:
    """Count the calls of the checks."""
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code: CodeType = frame.f_code
        if event == "call" and code in COUNTED:
            counts[COUNTED[code]] += 1

    sys.setprofile(note)
    try:
        function(*arguments, **named)
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keys", [["ts"], ["ts", "ets", "vs", "irova", "irm"]])
def test_scores_are_read_once_for_any_number_of_calibrators(keys: list[str]) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    counts = calls(compare, logits, labels, keys, splits=2)
    assert counts["read_scores"] == 1
    assert counts["as_scores"] == 2  # its shape is asked for before its labels are
    assert counts["check_labels"] == 1
    assert counts["check_predictions"] == 0
    assert counts["check_scores"] == counts["check_weights"] == 0


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_parts_of_checked_scores_are_those_of_checked_parts(kind: str) -> None:
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(7), 500)
    probabilities = np.log(probabilities) if kind == "logits" else probabilities
    rows = np.sort(rng.permutation(500)[:123])
    part, alone = (
        CheckedScores.from_scores(probabilities, kind).take(rows),
        CheckedScores.from_scores(probabilities[rows], kind),
    )
    np.testing.assert_array_equal(part.probabilities, alone.probabilities)
    np.testing.assert_array_equal(part.prediction, alone.prediction)
    for domain in ("shifted", "log-probabilities", "probabilities", "logits"):
        expected = scores.read_scores(probabilities[rows], kind, domain, masked=True, owner="ts")
        np.testing.assert_array_equal(part.in_domain(domain, scores.LOG_FLOOR), expected)
