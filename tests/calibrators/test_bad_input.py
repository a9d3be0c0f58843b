"""What is refused, and what the message says to write instead."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import calibrators

from .conftest import fit_map, make_map, noisy_logits, softmax

LOGITS, LABELS = noisy_logits(50, 3)
LOGITS -= 10.0


def fit(scores=LOGITS, labels=LABELS, *, key: str = "ts", **params) -> object:
    return calibrators.make(key, **params).fit(scores, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.where(np.arange(50) == 4, 3, LABELS), r"labels: row 4 is 3, outside 0\.\.2; scores"),
        (np.where(np.arange(50) == 9, -1, LABELS), r"labels: row 9 is -1, outside 0\.\.2"),
        (LABELS + 1, r"the column index of the true class; these count from 1, so subtract 1"),
        (LABELS + 0.5, r"labels: row 0 is .*, not a class index; pass integers 0\.\.2"),
        (np.where(np.arange(50) == 2, np.nan, LABELS), r"labels: row 2 is nan, not a class"),
        (LABELS.astype(str), r"labels has dtype <U\d+; pass class indices 0\.\.2"),
        (LABELS[:-1], r"labels has shape \(49,\) but scores has 50 rows"),
        (np.eye(3)[LABELS], r"labels has shape \(50, 3\) but scores has 50 rows"),
        (np.ones(50, int), r"labels are all 1; a calibrator needs rows of at least two classes"),
    ],
)
def test_labels(labels: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(labels=labels)


@pytest.mark.parametrize("key", calibrators.available())
def test_every_calibrator_refuses(key: str) -> None:
    with pytest.raises(ValueError, match=r"labels: row 0 is 9, outside 0\.\.2"):
        fit_map(make_map(key), LOGITS, np.full(50, 9))
    with pytest.raises(ValueError, match="scores: row 7 contains NaN"):
        fit_map(make_map(key), changed(7, 1, np.nan), LABELS)
    with pytest.raises(ValueError, match="scores look like probabilities"):
        fit_map(make_map(key), softmax(LOGITS), LABELS)


def changed(row: int, column: int, value: float) -> np.ndarray:
    scores = LOGITS.copy()
    scores[row, column] = value
    return scores


@pytest.mark.parametrize(
    ("scores", "kind", "message"),
    [
        (softmax(LOGITS), "logits", r'look like probabilities: .* write input="probabilities"'),
        (np.eye(3)[LABELS], "logits", "look like probabilities"),
        (LOGITS, "probabilities", r'row 0 contains a negative number .* write input="logits"'),
        (np.abs(LOGITS), "probabilities", r'row 0 sums to .*, not 1, .* input="logits" if'),
        (changed(7, 1, np.nan), "logits", "scores: row 7 contains NaN; drop or fix"),
        (changed(8, 1, np.inf), "logits", r"scores: row 8 contains \+inf"),
        (np.where(np.arange(50)[:, None] == 3, -np.inf, LOGITS), "logits", "labels: row 3 is"),
        (LOGITS[:, 0], "logits", "scores has 1 dimension"),
        (LOGITS[:, :1], "logits", "at least 2 columns"),
        (LOGITS.astype(str), "logits", "scores has dtype"),
        (LOGITS, "probs", r"input is 'probs'; write input=\"logits\" or"),
    ],
)
def test_scores(scores: np.ndarray, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(scores, input=kind)


def test_prediction_of_the_other_kind() -> None:
    model = fit()
    with pytest.raises(ValueError, match="scores look like probabilities"):
        model.predict_proba(softmax(LOGITS))
    # A one-hot row of logits is no rarity, so it is believed.
    assert model.predict_proba([[1.0, 0.0, 0.0]]).argmax() == 0
    with pytest.raises(ValueError, match="scores has 2 columns but fit saw 3"):
        model.predict_proba(LOGITS[:, :2])
    with pytest.raises(ValueError, match="row 1 has no class left: every logit is −inf"):
        model.predict_proba([[0.0, 1.0, 2.0], [-np.inf] * 3])


def test_sloppy_sums_are_normalised_with_a_warning() -> None:
    p = np.round(softmax(LOGITS), 4)
    with pytest.warns(UserWarning, match="scores: some rows sum to one only within"):
        model = calibrators.make("irova", input="probabilities").fit(p, LABELS)
    assert model.n_classes_ == 3


def test_weights() -> None:
    with pytest.raises(ValueError, match="sample_weight: row 1 is -1"):
        calibrators.make("ts").fit(
            LOGITS, LABELS, sample_weight=np.where(np.arange(50) == 1, -1, 1)
        )
    only = np.where(LABELS == 2, 1.0, 0.0)
    with pytest.raises(ValueError, match="labels are all 2"):
        calibrators.make("ts").fit(LOGITS, LABELS, sample_weight=only)


@pytest.mark.parametrize(
    ("key", "params", "message"),
    [
        ("vs", {"max_iter": 0}, "max_iter is 0; pass a whole number from 1 on"),
        ("dir-odir", {"off_diagonal": -1.0}, "off_diagonal is -1.0; pass a finite number"),
        ("dir-odir", {"intercept": np.nan}, "intercept is nan"),
    ],
)
def test_parameters(key: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(key=key, **params)
