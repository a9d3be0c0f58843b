"""Invalid input raises `InputError`, with the argument, the rows and a hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cordcal import calibrators
from errors import refused

from .conftest import noisy_logits, softmax

LOGITS, LABELS = noisy_logits(50, 3)
LOGITS -= 10.0


def fit(scores=LOGITS, labels=LABELS, *, key: str = "ts", **params) -> object:
    return calibrators.make(key, **params).fit(scores, labels)


@pytest.mark.parametrize(
    ("labels", "rows", "facts"),
    [
        (np.where(np.arange(50) == 4, 3, LABELS), [4], ["3", "0..2"]),
        (np.where(np.arange(50) == 9, -1, LABELS), [9], ["-1", "0..2"]),
        (LABELS + 1, np.flatnonzero(LABELS == 2), ["subtract 1"]),
        (LABELS + 0.5, range(50), ["0..2"]),
        (np.where(np.arange(50) == 2, np.nan, LABELS), [2], ["nan"]),
        (LABELS.astype(str), [], ["class_names", "0..2"]),
        (LABELS[:-1], [], ["(49,)", "50"]),
        (np.eye(3)[LABELS], [], ["(50, 3)", "50"]),
        (np.ones(50, int), [], ["1"]),
    ],
)
def test_labels(labels: np.ndarray, rows: Sequence[int], facts: list[str]) -> None:
    with refused("labels", rows=rows, naming=facts):
        fit(labels=labels)


def changed(row: int, column: int, value: float) -> np.ndarray:
    scores = LOGITS.copy()
    scores[row, column] = value
    return scores


@pytest.mark.parametrize(
    ("scores", "kind", "error"),
    [
        (softmax(LOGITS), "logits", {"naming": 'input="probabilities"', "option": "input"}),
        (np.eye(3)[LABELS], "logits", {"option": "input"}),
        (LOGITS, "probabilities", {"naming": ["row 0", 'input="logits"'], "option": "input"}),
        (np.abs(LOGITS), "probabilities", {"naming": ["row 0", 'input="logits"']}),
        (changed(7, 1, np.nan), "logits", {"rows": [7], "naming": "NaN"}),
        (changed(8, 1, np.inf), "logits", {"rows": [8], "naming": "+inf"}),
        (
            np.where(np.arange(50)[:, None] == 3, -np.inf, LOGITS),
            "logits",
            {"argument": "labels", "rows": [3]},
        ),
        (LOGITS[:, 0], "logits", {"naming": "1 dimension"}),
        (LOGITS[:, :1], "logits", {"naming": "2 columns"}),
        (LOGITS.astype(str), "logits", {"naming": "dtype"}),
        (LOGITS, "probs", {"argument": "input", "naming": ["'probs'", 'input="logits"']}),
    ],
)
def test_scores(scores: np.ndarray, kind: str, error: dict[str, Any]) -> None:
    with refused(**{"argument": "scores"} | error):
        fit(scores, input=kind)


def test_prediction_of_the_other_kind() -> None:
    model = fit()
    with refused("scores", option="input"):
        model.predict_proba(softmax(LOGITS))
    # One-hot logits are common, so a single such row is accepted.
    assert model.predict_proba([[1.0, 0.0, 0.0]]).argmax() == 0
    with refused("scores", naming=["2", "3"]):
        model.predict_proba(LOGITS[:, :2])
    with refused("scores", rows=[1], naming="−inf"):
        model.predict_proba([[0.0, 1.0, 2.0], [-np.inf] * 3])


def test_inexact_sums_are_normalised_with_a_warning() -> None:
    p = np.round(softmax(LOGITS), 4)
    with pytest.warns(UserWarning, match="scores: some rows sum to one only within"):
        model = calibrators.make("irova", input="probabilities").fit(p, LABELS)
    assert model.n_classes_ == 3


def test_weights() -> None:
    with refused("sample_weight", rows=[1], naming="-1"):
        calibrators.make("ts").fit(
            LOGITS, LABELS, sample_weight=np.where(np.arange(50) == 1, -1, 1)
        )
    only = np.where(LABELS == 2, 1.0, 0.0)
    with refused("labels", rows=[], naming="2"):
        calibrators.make("ts").fit(LOGITS, LABELS, sample_weight=only)


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("vs", "max_iter", 0),
        ("dir-odir", "off_diagonal", -1.0),
        ("dir-odir", "intercept", np.nan),
    ],
)
def test_parameters(key: str, name: str, value: float) -> None:
    with refused(name, naming=str(value)):
        fit(key=key, **{name: value})
