"""What every calibrator promises: the estimator contract, states, weights, orders."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from cordcal import calibrators
from errors import refused
from products import product

from .conftest import fit_map, make_map, noisy_logits, one_of_each_family, predict_map, softmax

KEYS = calibrators.available()
FAMILIES = one_of_each_family()
ORDERED = [key for key in KEYS if calibrators.calibrator_class(key).keeps_order]


@pytest.mark.parametrize("key", KEYS)
def test_clone_and_determinism(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    model = make_map(key)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        predict_map(model, logits)
    first = predict_map(fit_map(model, logits, labels), logits)
    again = predict_map(fit_map(clone(model), logits, labels), logits)
    assert first.dtype == np.float64
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first.sum(axis=1), 1.0, atol=1e-12)
    assert (first >= 0.0).all()


@pytest.mark.parametrize("key", KEYS)
def test_predictions_do_not_depend_on_the_batch(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    model = fit_map(make_map(key), logits, labels)
    whole = predict_map(model, logits)
    for row in (0, 7, 299):
        part = model.predict_proba(logits[row : row + 1], **features_of(model, row))
        np.testing.assert_allclose(part[0], whole[row], atol=1e-14)


def features_of(model, row: int) -> dict[str, np.ndarray]:
    if model.key != "adats":
        return {}
    from .conftest import features_for

    return {"features": features_for(noisy_logits(300, 4)[0])[row : row + 1]}


@pytest.mark.parametrize("key", KEYS)
def test_arguments_are_left_alone(key: str) -> None:
    logits, labels = noisy_logits(200, 3)
    before = logits.copy()
    logits.setflags(write=False)
    model = fit_map(make_map(key), logits, labels)
    predict_map(model, logits)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize(
    ("key", "kind"), product(KEYS, ["logits", "probabilities"], whole=FAMILIES)
)
def test_state_round_trip(key: str, kind: str) -> None:
    logits, labels = noisy_logits(300, 4)
    scores = logits if kind == "logits" else softmax(logits)
    model = fit_map(make_map(key, input=kind), scores, labels)
    arrays, meta = model._state()
    assert all(isinstance(value, np.ndarray) for value in arrays.values())
    loaded = type(model)._from_state(arrays, json.loads(json.dumps(meta)))
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(predict_map(loaded, scores), predict_map(model, scores))


# adats draws its batches from rows, and blend its folds: there a row twice is two rows.
@pytest.mark.parametrize(
    "key", [key for key in KEYS if key not in ("adats", "blend", "boosted-blend")]
)
def test_a_weight_of_two_is_the_row_twice(key: str) -> None:
    logits, labels = noisy_logits(400, 4)
    weight = np.random.default_rng(5).integers(0, 3, size=400)
    repeated = np.repeat(np.arange(400), weight)
    weighted = make_map(key).fit(logits, labels, sample_weight=weight)
    expected = make_map(key).fit(logits[repeated], labels[repeated])
    np.testing.assert_allclose(
        weighted.predict_proba(logits), expected.predict_proba(logits), atol=2e-6
    )


@pytest.mark.parametrize(("key", "classes"), product(ORDERED, [2, 5], whole=FAMILIES))
def test_order_is_kept(key: str, classes: int) -> None:
    logits, labels = noisy_logits(400, classes)
    q = predict_map(fit_map(make_map(key), logits, labels), logits)
    order = np.argsort(logits, axis=1)
    assert (np.diff(np.take_along_axis(q, order, axis=1), axis=1) >= 0.0).all()
    np.testing.assert_array_equal(q.argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.parametrize("key", KEYS)
def test_probabilities_are_read_as_floored_logarithms(key: str) -> None:
    logits, labels = noisy_logits(300, 4)
    p = softmax(logits)
    p[0], labels[0] = [1.0, 0.0, 0.0, 0.0], 1
    model = fit_map(make_map(key, input="probabilities"), p, labels)
    q = predict_map(model, p)
    assert np.isfinite(q).all()
    assert model._state()[1]["fitted"]["log_floor_"] == 1e-12


@pytest.mark.parametrize("key", KEYS)
def test_masked_classes(key: str) -> None:
    logits, labels = noisy_logits(300, 5)
    masked = np.random.default_rng(2).random(logits.shape) < 0.2
    masked[np.arange(300), labels] = False
    logits[masked] = -np.inf
    model = make_map(key)
    if model.takes_masked:
        q = predict_map(fit_map(model, logits, labels), logits)
        assert np.isfinite(q).all()
        if key in ("ts", "ts-tva", "adats", "pts", "smart", "diag"):
            assert (q[masked] == 0.0).all()
    else:
        with refused("scores", naming=f"'{key}'"):
            fit_map(model, logits, labels)


def test_registry() -> None:
    keys = (
        "ts vs svs ms sms dir-odir irova irova-ts irm ts-tva mcct-i adats ets platt beta cir "
        "venn-abers mono ts-class hts pb tva-platt tva-beta tva-isotonic tva-histogram top-label "
        "cdf-spline spline pts smart diag boost blend boosted-blend"
    )
    assert sorted(KEYS) == sorted(keys.split(" "))
    table = calibrators.describe()
    assert table.to_dict()["key"] == list(KEYS)
    assert all(key in repr(table) for key in KEYS)
    with refused("calibrator", naming=["'bbq'", "ts, ts-tva"]):
        calibrators.make("bbq")
    with refused("calibrator 'ts'", naming=["'inptu'", "input"]):
        calibrators.make("ts", inptu="logits")


@pytest.mark.parametrize("key", KEYS)
def test_docstring_says_what_one_needs(key: str) -> None:
    text = calibrators.calibrator_class(key).__doc__ or ""
    for needed in ("Works on", "argmax", "−inf", "Cost:", "Parameters", "References", "Examples"):
        assert needed in text, (key, needed)
