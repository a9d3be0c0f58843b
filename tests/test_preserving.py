"""PreservingCalibrator: the prediction of the scores, in every dtype with every calibrator."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import cordcal
from cordcal import CORD, PreservingCalibrator, calibrators
from errors import refused
from products import product

DTYPES = (np.float64, np.float32, np.float16)
KEYS = [k for k in calibrators.available() if calibrators.calibrator_class(k).extra is None]
# The first key of each module of calibrators.
FAMILIES = {calibrators.calibrator_class(key).__module__: key for key in reversed(KEYS)}.values()
# Fits that take minutes with a thousand classes.
WIDE = ("ms", "sms", "dir-odir")


def noisy(rows: int = 600, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    logits = 10.0 + 3.0 * np.eye(classes)[labels] + 2.0 * rng.normal(size=(rows, classes))
    return logits, labels


def assert_predictions_are_kept(
    model: PreservingCalibrator, scores: np.ndarray, **extra: object
) -> None:
    prediction = scores.argmax(axis=1)
    for dtype in DTYPES:
        repaired = model.predict_proba(scores, dtype=dtype, **extra)
        assert repaired.dtype == dtype
        np.testing.assert_array_equal(repaired.argmax(axis=1), prediction)
        others = repaired.copy()
        others[np.arange(len(others)), prediction] = -1
        assert (others.max(axis=1) < repaired.max(axis=1)).all()


@pytest.mark.parametrize(("key", "dtype"), product(KEYS, DTYPES, whole=FAMILIES))
def test_every_calibrator_keeps_predictions(key: str, dtype: type) -> None:
    logits, labels = noisy()
    scores = logits.astype(dtype)
    model = PreservingCalibrator(key).fit(scores, labels)
    new = noisy(seed=1)[0].astype(dtype)
    assert_predictions_are_kept(model, new)
    np.testing.assert_array_equal(model.predict(new), new.argmax(axis=1))


def check_real(real_set, keys: list[str], rows: int | None) -> None:
    order = np.random.default_rng(0).permutation(len(real_set.labels))[:rows]
    scores, labels = real_set.scores[order], real_set.labels[order]
    half = len(order) // 2
    for key in keys:
        with warnings.catch_warnings():
            # Sums in float16, separable samples and log-probabilities as logits are all there.
            warnings.simplefilter("ignore")
            model = PreservingCalibrator(key, input=real_set.kind).fit(scores[:half], labels[:half])
            assert_predictions_are_kept(model, scores[half:])


def test_real_outputs_sampled(real_set) -> None:
    """Every calibrator on a quarter of the real outputs."""
    check_sample(real_set, KEYS[real_set.place % 4 :: 4])


@pytest.mark.exhaustive
def test_real_outputs_sampled_with_every_calibrator(real_set) -> None:
    check_sample(real_set, KEYS)


def check_sample(real_set, keys: list[str]) -> None:
    classes = real_set.scores.shape[1]
    left = WIDE if classes > 100 else ()
    # Six fits of every member: few classes show what a blend does.
    keys = [k for k in keys if k not in left and not (k == "blend" and classes > 10)]
    check_real(real_set, keys, rows=600)


def test_real_outputs_whole_with_temperature_and_isotonic(real_set) -> None:
    check_real(real_set, ["ts", "irova"], rows=None)


@pytest.mark.slow
def test_real_outputs_whole(real_set) -> None:
    left = WIDE if real_set.scores.shape[1] >= 1000 else ()
    check_real(real_set, [key for key in KEYS if key not in left], rows=None)


def test_the_prediction_is_read_from_the_scores_not_from_a_softmax() -> None:
    logits, labels = noisy(classes=3)
    model = PreservingCalibrator("ts").fit(logits, labels)
    # The second logit is the largest; in the softmax it ties with the first.
    close = np.array([[0.0, 1e-20, -9.0]])
    p = np.exp(close - close.max())
    assert (p / p.sum()).argmax() == 0
    assert model.predict(close)[0] == 1
    assert_predictions_are_kept(model, close)


def test_reports_hold_both() -> None:
    logits, labels = noisy()
    model = PreservingCalibrator("irova").fit(logits, labels)
    both = model.predict_both(logits, dtype=np.float32)
    np.testing.assert_array_equal(both.direct, model.direct_proba(logits))
    np.testing.assert_array_equal(both.repaired, model.predict_proba(logits, dtype=np.float32))
    np.testing.assert_array_equal(both.prediction, logits.argmax(axis=1))
    assert set(both.to_dict()) == {"direct", "repaired", "prediction"}
    assert (both.direct.argmax(axis=1) != both.prediction).any()
    assert model.construction_.prediction_given
    assert model.construction_.n == 600


def test_it_is_calibrator_then_cord_on_the_same_rows() -> None:
    logits, labels = noisy()
    weight = np.random.default_rng(3).random(600)
    model = PreservingCalibrator("vs").fit(logits, labels, sample_weight=weight)
    calibrator = calibrators.make("vs").fit(logits, labels, sample_weight=weight)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    direct = calibrator.predict_proba(logits)
    cord = CORD().fit(p, direct, prediction=logits.argmax(axis=1), sample_weight=weight)
    assert model.repair_.eta_ == pytest.approx(cord.eta_, rel=1e-12)
    np.testing.assert_array_equal(model.direct_proba(logits), direct)


def test_class_names() -> None:
    logits, labels = noisy()
    names = ["ant", "bee", "cat", "dog"]
    model = PreservingCalibrator("ts", class_names=names).fit(logits, labels)
    np.testing.assert_array_equal(model.predict(logits), np.array(names)[logits.argmax(axis=1)])
    with refused("class_names", naming=["2", "4"]):
        PreservingCalibrator("ts", class_names=["a", "b"]).fit(logits, labels)
    # In no order that sorting would find.
    names = ["dog", "ant", "cat", "bee"]
    by_name = PreservingCalibrator("ts", class_names=names).fit(logits, np.array(names)[labels])
    assert by_name.repair_.eta_ == model.repair_.eta_
    with refused("labels", naming="class_names="):
        PreservingCalibrator("ts").fit(logits, np.array(names)[labels])


@pytest.mark.parametrize("named", [False, True])
def test_columns_of_data_frames(named: bool) -> None:
    logits, labels = noisy()
    names = ["dog", "ant", "cat", "bee"]
    frame = pd.DataFrame(logits, columns=names)
    model = PreservingCalibrator("ts", class_names=names if named else None).fit(frame, labels)
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(logits))
    reordered = frame[names[::-1]]
    np.testing.assert_array_equal(model.predict_proba(reordered), model.predict_proba(logits))
    np.testing.assert_array_equal(model.predict(reordered), model.predict(logits))
    where = "class_names" if named else "fit"
    with refused("scores", naming=["'wolf'", "'bee'", where]):
        model.predict(frame.rename(columns={"bee": "wolf"}))
    with refused("scores", naming=["'bee'", "class_names", "'dog'"]):
        PreservingCalibrator("ts", class_names=names).fit(frame[names[::-1]], labels)


def test_prefit() -> None:
    logits, labels = noisy()
    fitted = calibrators.make("irova").fit(logits[:300], labels[:300])
    model = PreservingCalibrator(fitted, prefit=True).fit(logits[300:])
    assert model.calibrator_ is fitted
    assert_predictions_are_kept(model, logits)
    with refused("prefit=True", naming="'ts'"):
        PreservingCalibrator("ts", prefit=True).fit(logits)
    with pytest.raises(NotFittedError):
        PreservingCalibrator(calibrators.make("ts"), prefit=True).fit(logits)


class Foreign:
    """Somebody's own calibrator: no estimator, no params."""

    def fit(self, scores: np.ndarray, labels: np.ndarray) -> Foreign:
        self.model = LogisticRegression(max_iter=2000).fit(scores, labels)
        return self

    def predict_proba(self, scores: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(scores).astype(np.float32)


@pytest.mark.parametrize("foreign", [Foreign(), LogisticRegression(max_iter=2000)])
def test_foreign_calibrators(foreign: object, tmp_path) -> None:
    logits, labels = noisy()
    model = PreservingCalibrator(foreign).fit(logits, labels)
    assert model.calibrator_ is not foreign
    assert_predictions_are_kept(model, logits)
    assert model.predict_proba(logits).dtype == np.float64
    with pytest.raises(ValueError, match=rf"{type(foreign).__name__}; save model\.repair_"):
        cordcal.save(model, tmp_path / "model.safetensors")


@pytest.mark.parametrize("key", KEYS)
def test_saved_whole(key: str, tmp_path) -> None:
    logits, labels = noisy()
    model = PreservingCalibrator(key, class_names=list("abcd")).fit(logits, labels)
    cordcal.save(model, tmp_path / "model.safetensors")
    loaded = cordcal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(logits), model.predict_proba(logits))
    np.testing.assert_array_equal(loaded.predict(logits), model.predict(logits))
    assert loaded.construction_ == model.construction_


@pytest.mark.parametrize("preserve", [2, "ranking"])
def test_more_ranks(preserve: int | str, tmp_path) -> None:
    logits, labels = noisy()
    model = PreservingCalibrator("irova", preserve=preserve).fit(logits, labels)
    repaired = model.predict_proba(logits)
    for rank in range(2):
        expected = np.argsort(-logits, axis=1, kind="stable")[:, rank]
        np.testing.assert_array_equal(
            np.argsort(-repaired, axis=1, kind="stable")[:, rank], expected
        )
    cordcal.save(model, tmp_path / "model.safetensors")
    loaded = cordcal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(logits), repaired)


def test_contract_and_refusals() -> None:
    logits, labels = noisy()
    model = PreservingCalibrator("ts", input="logits")
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.predict_proba(logits)
    with refused("labels", rows=[], naming="prefit=True"):
        model.fit(logits)
    with refused("scores", rows=[], option="input"):
        model.fit(np.eye(4)[labels], labels)
    with refused("input", naming=["'logits'", 'input="probabilities"']):
        PreservingCalibrator(calibrators.make("ts", input="probabilities"), input="logits").fit(
            logits, labels
        )
    with refused("calibrator", naming="object"):
        PreservingCalibrator(object()).fit(logits, labels)
    fitted = model.fit(logits, labels)
    with refused("scores", rows=[], naming=["3", "4"]):
        fitted.predict(logits[:, :3])
    with refused("scores", rows=[2], naming="NaN"):
        fitted.predict(np.where(np.arange(600)[:, None] == 2, np.nan, logits))


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_new_scores_are_checked(method: str) -> None:
    logits, labels = noisy()
    call = getattr(PreservingCalibrator("ts").fit(logits, labels), method)
    with refused("scores", rows=[0, 1], naming="NaN"):
        call(np.full((2, 4), np.nan))
    with refused("scores", rows=[], naming='input="probabilities"', option="input"):
        call(softmax(logits[:2], axis=1))
    call = getattr(
        PreservingCalibrator("ts", input="probabilities").fit(softmax(logits, axis=1), labels),
        method,
    )
    with refused("scores", rows=[1], naming="-0.5", option="input"):
        call([[0.25] * 4, [-0.5, 0.5, 0.5, 0.5]])
    with refused("scores", rows=[0], naming="2", option="input"):
        call([[0.5] * 4])
    with pytest.warns(UserWarning, match="some rows sum to one only within"):
        call([[0.2501, 0.25, 0.25, 0.25]])


def test_warnings_point_at_the_caller() -> None:
    p = np.tile([[0.5, 0.3, 0.199], [0.3, 0.5, 0.199], [0.199, 0.3, 0.5]], (10, 1))
    labels = np.where(np.arange(30) < 6, np.arange(30) + 1, np.arange(30)) % 3
    with pytest.warns(UserWarning, match="some rows sum") as raised:
        PreservingCalibrator("ts", input="probabilities").fit(p, labels)
    assert {warning.filename for warning in raised} == {__file__}
