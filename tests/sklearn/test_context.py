"""The scikit-learn class with columns next to the features, by metadata routing."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cordcal import InputError, PreservingCalibrator, metrics
from cordcal.sklearn import PreservingCalibratedClassifierCV, scorers

pd = pytest.importorskip("pandas")


def made(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Return features that are worse in photographs, which is known but not a feature."""
    rng = np.random.default_rng(seed)
    y = rng.choice(["ant", "bee", "wasp"], size=rows)
    source = rng.choice(["pdf", "photo"], size=rows)
    spread = np.where(source == "photo", 2.0, 0.5)[:, None]
    X = (y[:, None] == ["ant", "bee", "wasp"]) * 2.0 + spread * rng.normal(size=(rows, 3))
    return X, y, pd.DataFrame({"source": source}, index=range(5, rows + 5))


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    return made(900, 0)


def model(**options: object) -> PreservingCalibratedClassifierCV:
    return PreservingCalibratedClassifierCV(
        LogisticRegression(), method="ts", repair="lift", cv=3, **options
    )


@pytest.mark.parametrize("ensemble", [False, True])
def test_confidence_follows_the_column_and_predictions_stay(rows, ensemble) -> None:
    X, y, context = rows
    fitted = model(ensemble=ensemble).fit(X, y, context=context)
    new, truth, later = made(2000, 1)
    probabilities = fitted.predict_proba(new, context=later)
    prediction = fitted.predict(new)
    np.testing.assert_array_equal(fitted.classes_[probabilities.argmax(axis=1)], prediction)
    plain = model(ensemble=ensemble).fit(X, y)
    np.testing.assert_array_equal(plain.predict(new), prediction)
    photo, right = later["source"].to_numpy() == "photo", prediction == truth
    gaps = [
        abs((p.max(axis=1) - right)[photo].mean())
        for p in (probabilities, plain.predict_proba(new))
    ]
    assert gaps[0] < 0.03 < 0.08 < gaps[1]


def test_routing_through_a_pipeline_and_cross_validation(rows) -> None:
    X, y, context = rows
    with sklearn.config_context(enable_metadata_routing=True):
        own = model().set_fit_request(context=True).set_predict_proba_request(context=True)
        pipeline = make_pipeline(StandardScaler(), own)
        pipeline.fit(X, y, context=context)
        scaled = StandardScaler().fit(X).transform(X)
        expected = model().fit(scaled, y, context=context)
        np.testing.assert_array_equal(
            pipeline.predict_proba(X, context=context),
            expected.predict_proba(scaled, context=context),
        )
        scores = cross_validate(pipeline, X, y, params={"context": context}, cv=2)
        assert scores["test_score"].min() > 0.6


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_scorers_pass_the_context(rows, classes, in_pipeline) -> None:
    X, y, context = rows
    kept = np.isin(y, ["ant", "bee", "wasp"][:classes])
    X, y, context = X[kept], y[kept], context[kept]
    with sklearn.config_context(enable_metadata_routing=True):
        own = model().set_fit_request(context=True).set_predict_proba_request(context=True)
        if in_pipeline:
            own = make_pipeline(StandardScaler(), own)
        scoring = {"log_loss": scorers.log_loss, "ece": scorers.ece}
        params, folds = {"context": context}, KFold(2)
        options = {"params": params, "cv": folds, "error_score": "raise"}
        results = cross_validate(own, X, y, scoring=scoring, **options)
        alone = cross_validate(own, X, y, scoring=scorers.log_loss, **options)
        for fold, (train, test) in enumerate(folds.split(X)):
            fitted = clone(own).fit(X[train], y[train], context=context.iloc[train])
            proba = fitted.predict_proba(X[test], context=context.iloc[test])
            loss = metrics.nll(proba, np.searchsorted(fitted.classes_, y[test]))
            expected = pytest.approx(-loss, abs=1e-12)
            assert results["test_log_loss"][fold] == expected
            assert alone["test_score"][fold] == expected
        called = scorers.log_loss(fitted, X[test], y[test], context=context.iloc[test])
        assert called == expected
        search = GridSearchCV(own, {}, scoring=scorers.log_loss, cv=folds, error_score="raise")
        search.fit(X, y, context=context)
        assert search.best_score_ == pytest.approx(alone["test_score"].mean(), abs=1e-12)


def test_a_second_opinion_is_matched_by_class_name(rows) -> None:
    X, y, _ = rows
    rng = np.random.default_rng(3)
    other = (y[:, None] == ["ant", "bee", "wasp"]) + 1.5 * rng.random((900, 3))
    other /= other.sum(axis=1, keepdims=True)
    fitted = model().fit(X, y, context={"other": other})
    frame = pd.DataFrame(other, columns=["ant", "bee", "wasp"])[["wasp", "ant", "bee"]]
    named = model().fit(X, y, context={"other": frame})
    expected = fitted.predict_proba(X, context={"other": other})
    np.testing.assert_array_equal(named.predict_proba(X, context={"other": frame}), expected)
    missing = {"other": np.full_like(other, np.nan)}
    np.testing.assert_array_equal(
        fitted.predict_proba(X, context=missing), fitted.predict_proba(X, context={})
    )


def test_the_calibrator_alone_has_the_context(rows) -> None:
    X, y, context = rows
    fitted = model().fit(X, y, context=context)
    calibrator = fitted.to_calibrator()
    assert isinstance(calibrator, PreservingCalibrator)
    assert {effect.column for effect in calibrator.context_effects()} == {"source"}
    scores = fitted.calibrated_classifiers_[0].estimator.decision_function(X)
    np.testing.assert_array_equal(
        calibrator.predict_proba(scores, context=context), fitted.predict_proba(X, context=context)
    )


def test_what_is_refused(rows) -> None:
    X, y, context = rows
    with pytest.raises(InputError, match="needs a repair that learns"):
        PreservingCalibratedClassifierCV(method="ts").fit(X, y, context=context)
    with pytest.raises(InputError, match="has 900 rows but the scores have 800"):
        model().fit(X[:800], y[:800], context=context)
    fitted = model().fit(X, y, context=context)
    with pytest.raises(InputError, match="is missing: fit had the columns 'source'"):
        fitted.predict_proba(X)
    with pytest.raises(InputError, match="fit had none"):
        model().fit(X, y).predict_proba(X, context=context)
    assert not hasattr(clone(fitted), "repair_")


def test_a_column_that_knows_the_label_is_doubted(rows) -> None:
    X, y, _ = rows
    with pytest.warns(UserWarning, match="determines the labels in 100.0 %"):
        model().fit(X, y, context={"copy": y})


@pytest.mark.parametrize("missing", [None, pd.NA, np.nan, ""])
def test_one_row_whose_column_is_unknown(rows, missing) -> None:
    X, y, context = rows
    number = context.assign(blur=np.where(context["source"] == "photo", 2.0, 0.5))
    fitted = model().fit(X, y, context=number)
    new = pd.DataFrame({"source": ["photo"], "blur": pd.Series([missing], dtype=object)})
    other = pd.DataFrame({"source": ["photo"] * 2, "blur": [np.nan, 1.0]})
    expected = fitted.predict_proba(X[:2], context=other)[:1]
    # The estimator itself may multiply one row in another order than two.
    np.testing.assert_allclose(fitted.predict_proba(X[:1], context=new), expected, rtol=1e-12)
