"""What every calibrator promises, as checks that take its key: the estimator contract, states,
weights, orders, invalid input, and data at the edge.

`cases` lists them for the keys of cordcal and, in its own tests, for those of cordcal-study.
"""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from cordcal import calibrators
from errors import refused


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def noisy_logits(
    rows: int, classes: int, *, seed: int = 0, scale: float = 3.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return overconfident, non-negative logits of a mediocre classifier, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    logits = scale * (np.eye(classes)[labels] + 0.7 * rng.normal(size=(rows, classes)))
    return logits - logits.min(), labels


def features_for(scores: np.ndarray) -> np.ndarray:
    """Return features that depend on the row alone."""
    finite = np.where(scores > -1e12, scores, 0.0)
    return np.tanh(finite @ np.random.default_rng(9).normal(size=(scores.shape[1], 6)))


# Little training, to be quick.
BRIEF: dict[str, dict[str, Any]] = {
    "adats": {"epochs": 2, "hidden": (16, 8), "features": features_for},
    "pts": {"steps": 20},
    "smart": {"epochs": 20},
    "diag": {"steps": 20},
    "boost": {"rounds": 5},
    "boosted-blend": {"rounds": 5, "members": ("ts", "vs", "irm")},
}


def make_map(key: str, **params: object) -> calibrators.Calibrator:
    """Return a calibrator; networks and trees with little training."""
    if key in BRIEF:
        module = "lightgbm" if "boost" in key else "torch"
        pytest.importorskip(module, reason=f"{key} is trained with {module}")
    return calibrators.make(key, **{**BRIEF.get(key, {}), **params})


def one_of_each_family(keys: Iterable[str]) -> list[str]:
    """Return the first key of each file of calibrators that scores alone can fit."""
    families: dict[str, str] = {}
    for key in keys:
        if key not in BRIEF:
            families.setdefault(calibrators.calibrator_class(key).__module__, key)
    return list(families.values())


def cases(keys: Iterable[str]) -> list[Any]:
    """Return every check with every key."""
    checks = {
        name.removeprefix("check_"): check
        for name, check in inspect.getmembers(sys.modules[__name__], inspect.isfunction)
        if name.startswith("check_")
    }
    return [
        pytest.param(check, key, id=f"{name}-{key}")
        for key in keys
        for name, check in checks.items()
    ]


def sound(q: np.ndarray) -> None:
    assert np.isfinite(q).all()
    assert (q >= 0.0).all()
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-9)


def quietly(key: str, scores: np.ndarray, labels: np.ndarray, **params: object) -> np.ndarray:
    """Fit and predict; only a ConvergenceWarning, at most one, may be raised."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        model = make_map(key, **params).fit(scores, labels)
    assert [w.category for w in raised] in ([], [ConvergenceWarning]), raised
    return model.predict_proba(scores)


def check_clone_and_determinism(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    model = make_map(key)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.predict_proba(logits)
    first = model.fit(logits, labels).predict_proba(logits)
    again = clone(model).fit(logits, labels).predict_proba(logits)
    assert first.dtype == np.float64
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first.sum(axis=1), 1.0, atol=1e-12)
    assert (first >= 0.0).all()


def check_predictions_do_not_depend_on_the_batch(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    model = make_map(key).fit(logits, labels)
    whole = model.predict_proba(logits)
    for row in (0, 7, 299):
        part = model.predict_proba(logits[row : row + 1])
        np.testing.assert_allclose(part[0], whole[row], atol=1e-14)


def check_arguments_are_left_alone(key: str) -> None:
    logits, labels = noisy_logits(200, 3)
    before = logits.copy()
    logits.setflags(write=False)
    make_map(key).fit(logits, labels).predict_proba(logits)
    np.testing.assert_array_equal(logits, before)


def check_a_prediction_keeps_nothing_of_an_earlier_fit(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    model = make_map(key).fit(logits, labels)
    model.predict_proba(logits)
    again = model.fit(logits[:150], labels[:150]).predict_proba(logits)
    expected = make_map(key).fit(logits[:150], labels[:150]).predict_proba(logits)
    np.testing.assert_array_equal(again, expected)


def check_an_edited_model_predicts_like_its_copy(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    model = make_map(key).fit(logits, labels)
    before = model.predict_proba(logits)
    for part in (model, *getattr(model, "members_", {}).values()):
        for name, value in vars(part).items():
            if name.endswith("_") and isinstance(value, np.ndarray) and value.dtype.kind == "f":
                value *= 0.75
    after = model.predict_proba(logits)
    np.testing.assert_array_equal(copy.deepcopy(model).predict_proba(logits), after)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(logits), after)
    # One number, such as a temperature, is not an array.
    assert key in ("ts", "ts-tva", "ets", "hts", "pb") or (after != before).any()


def check_state_round_trip(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    for kind in ("logits", "probabilities"):
        scores = logits if kind == "logits" else softmax(logits)
        model = make_map(key, input=kind).fit(scores, labels)
        arrays, meta = model.to_state()
        assert all(isinstance(value, np.ndarray) for value in arrays.values())
        loaded = type(model).from_state(arrays, json.loads(json.dumps(meta)))
        if not loaded.is_complete():
            loaded.set_params(features=model.features)
        assert loaded.get_params() == model.get_params()
        np.testing.assert_array_equal(loaded.predict_proba(scores), model.predict_proba(scores))


def check_a_weight_of_two_is_the_row_twice(key: str) -> None:
    # adats draws its batches from rows, and blend its folds: there a row twice is two rows.
    if key in ("adats", "blend", "boosted-blend"):
        return
    logits, labels = noisy_logits(400, 4)
    weight = np.random.default_rng(5).integers(0, 3, size=400)
    repeated = np.repeat(np.arange(400), weight)
    weighted = make_map(key).fit(logits, labels, sample_weight=weight)
    expected = make_map(key).fit(logits[repeated], labels[repeated])
    np.testing.assert_allclose(
        weighted.predict_proba(logits), expected.predict_proba(logits), atol=2e-6
    )


def check_order_is_kept(key: str) -> None:
    if not calibrators.calibrator_class(key).keeps_order:
        return
    for classes in (2, 5):
        logits, labels = noisy_logits(400, classes)
        q = make_map(key).fit(logits, labels).predict_proba(logits)
        order = np.argsort(logits, axis=1)
        assert (np.diff(np.take_along_axis(q, order, axis=1), axis=1) >= 0.0).all()
        np.testing.assert_array_equal(q.argmax(axis=1), logits.argmax(axis=1))


def check_probabilities_are_read_as_floored_logarithms(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    p = softmax(logits)
    p[0], labels[0] = [1.0, 0.0, 0.0, 0.0], 1
    model = make_map(key, input="probabilities").fit(p, labels)
    assert np.isfinite(model.predict_proba(p)).all()
    assert model.to_state()[1]["fitted"]["log_floor_"] == 1e-12


def check_masked_classes(key: str) -> None:
    logits, labels = noisy_logits(300, 5)
    masked = np.random.default_rng(2).random(logits.shape) < 0.2
    masked[np.arange(300), labels] = False
    logits[masked] = -np.inf
    model = make_map(key)
    if model.takes_masked:
        q = model.fit(logits, labels).predict_proba(logits)
        assert np.isfinite(q).all()
        if key in ("ts", "ts-tva", "adats", "pts", "smart", "diag"):
            assert (q[masked] == 0.0).all()
    else:
        with refused("scores", naming=f"'{key}'"):
            model.fit(logits, labels)


def check_docstring_says_what_one_needs(key: str) -> None:
    text = calibrators.calibrator_class(key).__doc__ or ""
    for needed in ("Works on", "argmax", "−inf", "Cost:", "Parameters", "References", "Examples"):
        assert needed in text, (key, needed)


def check_invalid_input_is_refused(key: str) -> None:
    logits, labels = noisy_logits(50, 3)
    logits -= 10.0
    with refused("labels", rows=range(50), naming=["9", "0..2"]):
        make_map(key).fit(logits, np.full(50, 9))
    holed = logits.copy()
    holed[7, 1] = np.nan
    with refused("scores", rows=[7], naming="NaN"):
        make_map(key).fit(holed, labels)
    with refused("scores", option="input"):
        make_map(key).fit(softmax(logits), labels)


def check_a_class_without_a_calibration_row(key: str) -> None:
    logits, labels = noisy_logits(400, 5)
    labels[labels == 3] = 1
    sound(make_map(key).fit(logits, labels).predict_proba(logits))


def check_one_row_a_class(key: str) -> None:
    logits, _ = noisy_logits(5, 5)
    sound(quietly(key, logits, np.arange(5)))


def check_perfectly_separable_rows(key: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=200)
    logits = 5.0 * np.eye(4)[labels] + rng.random((200, 4))
    sound(quietly(key, logits, labels))
    if key in ("ts", "ts-tva", "ets", "vs", "ms", "svs", "sms", "irova-ts", "mcct-i"):
        with pytest.warns(ConvergenceWarning, match=r"(Fit on more rows|optimal)"):
            make_map(key).fit(logits, labels)


def check_saturated_float32_softmax(key: str) -> None:
    logits, labels = noisy_logits(400, 4, scale=60.0)
    p = softmax(logits).astype(np.float32)
    assert (p == 1.0).any()
    assert (p == 0.0).any()
    sound(quietly(key, p, labels, input="probabilities"))


def check_huge_logits(key: str) -> None:
    logits, labels = noisy_logits(400, 4)
    logits -= np.median(logits, axis=1, keepdims=True)
    logits /= np.abs(logits).max(axis=1, keepdims=True)
    logits *= 1e4
    assert (logits.max(), logits.min()) == (1e4, -1e4)
    sound(quietly(key, logits, labels))


def check_duplicated_rows_and_tied_scores(key: str) -> None:
    logits, labels = noisy_logits(60, 4)
    logits = np.round(np.repeat(logits, 8, axis=0))
    sound(make_map(key).fit(logits, np.repeat(labels, 8)).predict_proba(logits))


def check_two_classes(key: str) -> None:
    logits, labels = noisy_logits(400, 2)
    for kind in ("logits", "probabilities"):
        scores = logits if kind == "logits" else softmax(logits)
        sound(make_map(key, input=kind).fit(scores, labels).predict_proba(scores))
