"""Invalid scores, labels, weights and parameters, and the option that the error proposes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cordcal import calibrators
from errors import refused

from .conftest import fit_map, make_map, noisy_logits, softmax

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
        (LABELS.astype(str), [], ["<U", "0..2"]),
        (LABELS[:-1], [], ["(49,)", "50"]),
        (np.eye(3)[LABELS], [], ["(50, 3)", "50"]),
        (np.ones(50, int), [], ["all 1"]),
    ],
)
def test_labels(labels: np.ndarray, rows: Sequence[int], facts: list[str]) -> None:
    with refused("labels", rows=rows, naming=facts):
        fit(labels=labels)


@pytest.mark.parametrize("key", calibrators.available())
def test_every_calibrator_refuses(key: str) -> None:
    with refused("labels", rows=range(50), naming=["9", "0..2"]):
        fit_map(make_map(key), LOGITS, np.full(50, 9))
    with refused("scores", rows=[7], naming="NaN"):
        fit_map(make_map(key), changed(7, 1, np.nan), LABELS)
    with refused("scores", rows=[], option="input"):
        fit_map(make_map(key), softmax(LOGITS), LABELS)


def changed(row: int, column: int, value: float) -> np.ndarray:
    scores = LOGITS.copy()
    scores[row, column] = value
    return scores


@pytest.mark.parametrize(
    ("scores", "kind", "rows", "facts"),
    [
        (softmax(LOGITS), "logits", [], ['input="probabilities"']),
        (np.eye(3)[LABELS], "logits", [], ['input="probabilities"']),
        (LOGITS, "probabilities", None, ["row 0", "negative", 'input="logits"']),
        (np.abs(LOGITS), "probabilities", None, ["row 0", 'input="logits"']),
        (changed(7, 1, np.nan), "logits", [7], ["NaN"]),
        (changed(8, 1, np.inf), "logits", [8], ["+inf"]),
        (LOGITS[:, 0], "logits", [], ["1 dimension"]),
        (LOGITS[:, :1], "logits", [], ["2 columns"]),
        (LOGITS.astype(str), "logits", [], ["dtype"]),
    ],
)
def test_scores(
    scores: np.ndarray, kind: str, rows: Sequence[int] | None, facts: list[str]
) -> None:
    with refused("scores", rows=rows, naming=facts):
        fit(scores, input=kind)


def test_a_label_whose_class_is_masked() -> None:
    with refused("labels", rows=[3]):
        fit(np.where(np.arange(50)[:, None] == 3, -np.inf, LOGITS))


def test_an_unknown_kind() -> None:
    with refused("input", naming=["'probs'", 'input="logits"']):
        fit(input="probs")


def test_prediction_of_the_other_kind() -> None:
    model = fit()
    with refused("scores", rows=[], option="input"):
        model.predict_proba(softmax(LOGITS))
    # A one-hot row of logits is not rare, so it is accepted.
    assert model.predict_proba([[1.0, 0.0, 0.0]]).argmax() == 0
    with refused("scores", naming=["2 columns", "3"]):
        model.predict_proba(LOGITS[:, :2])
    with refused("scores", rows=[1], naming="−inf"):
        model.predict_proba([[0.0, 1.0, 2.0], [-np.inf] * 3])


def test_inexact_sums_are_normalised_with_a_warning() -> None:
    p = np.round(softmax(LOGITS), 4)
    with pytest.warns(UserWarning, match="scores: "):
        model = calibrators.make("irova", input="probabilities").fit(p, LABELS)
    assert model.n_classes_ == 3


def test_weights() -> None:
    with refused("sample_weight", rows=[1], naming="-1"):
        calibrators.make("ts").fit(
            LOGITS, LABELS, sample_weight=np.where(np.arange(50) == 1, -1, 1)
        )
    only = np.where(LABELS == 2, 1.0, 0.0)
    with refused("labels", rows=[], naming="all 2"):
        calibrators.make("ts").fit(LOGITS, LABELS, sample_weight=only)


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [("vs", "max_iter", 0), ("dir-odir", "off_diagonal", -1.0), ("dir-odir", "intercept", np.nan)],
)
def test_parameters(key: str, name: str, value: float) -> None:
    with refused(name, naming=repr(value)):
        fit(key=key, **{name: value})
