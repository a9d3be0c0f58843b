"""Context: columns next to the scores change the confidence, never the prediction."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import cordcal
from cordcal import InputError, PreservingCalibrator
from cordcal.repair.context import MIN_EVIDENCE, fit_context
from cordcal.repair.lift_rule import IDENTITY, RIDGES, fit_curve
from internals import ContextValues

pytestmark = pytest.mark.filterwarnings("ignore:.*kept against the evidence")


def problem(
    rows: int = 1200, seed: int = 0, classes: int = 3
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return logits, labels and context of which two columns and a second opinion matter."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    source = rng.choice(["pdf", "photo", "scan"], size=rows)
    blur = rng.normal(size=rows)
    spread = np.exp(0.4 * blur) * np.where(source == "photo", 2.0, 0.8)
    logits = 2.0 * np.eye(classes)[labels] + spread[:, None] * rng.normal(size=(rows, classes))
    other = 2.0 * np.eye(classes)[labels] + rng.normal(size=(rows, classes))
    context = {"source": source, "blur": blur, "other": other, "noise": rng.normal(size=rows)}
    return logits, labels, context


@pytest.fixture(scope="module")
def fitted():
    logits, labels, context = problem()
    return PreservingCalibrator().fit(logits, labels, context=context)


def without(context: dict, *names: str) -> dict:
    return {name: values for name, values in context.items() if name not in names}


def test_effects_are_those_of_a_general_optimiser() -> None:
    rng = np.random.default_rng(1)
    rows = 600
    mass = rng.uniform(0.2, 0.98, size=rows)
    group, number = rng.integers(4, size=rows), rng.normal(size=rows)
    z = np.log(mass / (1 - mass)) + np.array([-1.0, 0.0, 0.5, 1.0])[group] + 0.7 * number
    right = rng.random(rows) < 1 / (1 + np.exp(-z))
    values = ContextValues({"group": group.astype(str).astype(object), "number": number})
    curve = fit_curve(mass, 1 - mass, right, None)
    fit = fit_context(values, np.zeros(rows, int), mass, 1 - mass, right, None, curve, None)
    assert [column.name for column in fit.columns] == ["group", "number"]
    scaled = (number - number.mean()) / number.std()
    design = np.c_[np.log(mass), -np.log1p(-mass), np.ones(rows), np.eye(4)[group], scaled]
    strength = np.r_[[RIDGES[0]] * 3, [fit.strengths[0]] * 4, fit.strengths[1]]
    center = np.r_[IDENTITY[:3], np.zeros(5)]

    def loss(theta: np.ndarray) -> float:
        margin = (design @ theta) * np.where(right, 1.0, -1.0)
        return np.logaddexp(0, -margin).sum() + 0.5 * (strength * (theta - center) ** 2).sum()

    optimum = minimize(loss, center, method="BFGS", options={"gtol": 1e-9}).x
    errors = (~right).sum()
    expected = center + errors / (errors + 2.0) * (optimum - center)
    whole = fit.curves[0]
    found = np.r_[whole.curve[:3], whole.effects[0], whole.effects[1]]
    mean = expected[3:7][group].mean()  # which γ has
    expected[2:7] += np.r_[mean, [-mean] * 4]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert fit.gap < 1e-12


def test_strengths_make_the_rows_most_likely() -> None:
    """No strength ten per cent away has more evidence, by Laplace's approximation written out."""
    rng = np.random.default_rng(2)
    rows = 800
    mass = rng.uniform(0.3, 0.95, size=rows)
    group = rng.integers(10, size=rows)
    z = np.log(mass / (1 - mass)) + rng.normal(size=10)[group]
    right = rng.random(rows) < 1 / (1 + np.exp(-z))
    values = ContextValues({"group": group.astype(str).astype(object)})
    curve = fit_curve(mass, 1 - mass, right, None)
    fit = fit_context(values, np.zeros(rows, int), mass, 1 - mass, right, None, curve, None)
    design = np.c_[np.log(mass), -np.log1p(-mass), np.ones(rows), np.eye(10)[group]]
    center = np.r_[IDENTITY[:3], np.zeros(10)]

    def evidence(strength: float) -> float:
        penalty = np.r_[[RIDGES[0]] * 3, [strength] * 10]
        theta = center.copy()
        for _ in range(50):
            p = 1 / (1 + np.exp(-design @ theta))
            hessian = (design.T * (p * (1 - p))) @ design + np.diag(penalty)
            theta = theta - np.linalg.solve(
                hessian, design.T @ (p - right) + penalty * (theta - center)
            )
        margin = (design @ theta) * np.where(right, 1.0, -1.0)
        value = np.logaddexp(0, -margin).sum() + 0.5 * (penalty * (theta - center) ** 2).sum()
        return -value - 0.5 * np.linalg.slogdet(hessian / penalty)[1]

    chosen = evidence(fit.strengths[0])
    around = max(evidence(fit.strengths[0] * factor) for factor in (0.1, 0.3, 0.5, 2.0, 3.0, 10.0))
    assert chosen > around
    grid = max(evidence(strength) for strength in np.geomspace(0.05, 1e4, 60))
    assert chosen > grid - 0.05
    assert fit.evidence[0] > MIN_EVIDENCE


def test_noise_gets_nothing() -> None:
    logits, labels, _ = problem(600, 3)
    rng = np.random.default_rng(103)
    context = {f"n{i}": rng.normal(size=600) for i in range(5)}
    context |= {f"c{i}": rng.integers(i + 2, size=600).astype(str) for i in range(5)}
    model = PreservingCalibrator().fit(logits, labels, context=context)
    plain = PreservingCalibrator().fit(logits, labels)
    assert model.context_effects() == ()
    np.testing.assert_array_equal(
        model.predict_proba(logits, context=context), plain.predict_proba(logits)
    )


def test_many_effects_are_screened_and_those_that_matter_stay() -> None:
    """Twelve columns of forty categories that mean nothing do not hide one that does."""
    logits, labels, context = problem(1500, 21)
    rng = np.random.default_rng(0)
    noise = {f"n{i}": rng.integers(40, size=1500).astype(str) for i in range(12)}
    matters = without(context, "noise")
    model = PreservingCalibrator("ts", repair="lift").fit(
        logits, labels, context={**noise, **matters}
    )
    assert {effect.column for effect in model.context_effects()} == set(matters)


def test_equal_columns_are_not_both_left_out() -> None:
    logits, labels, context = problem(800, 4)
    twice = {"source": context["source"], "again": context["source"]}
    model = PreservingCalibrator().fit(logits, labels, context=twice)
    assert model.context_effects()


def test_confidence_is_honest_per_category_on_new_rows(fitted) -> None:
    logits, labels, context = problem(8000, 9)
    plain = PreservingCalibrator().fit(*problem()[:2])
    prediction = logits.argmax(axis=1)
    gaps = {}
    for name, probabilities in (
        ("context", fitted.predict_proba(logits, context=context)),
        ("plain", plain.predict_proba(logits)),
    ):
        assert (probabilities.argmax(axis=1) == prediction).all()
        difference = probabilities.max(axis=1) - (prediction == labels)
        gaps[name] = max(
            abs(difference[context["source"] == source].mean()) for source in ("pdf", "photo")
        )
    assert 2.0 * gaps["context"] < 0.08 < gaps["plain"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
@pytest.mark.parametrize("rule", ["argmax", [1.0, 2.0, 0.5]])
def test_predictions_stay_in_every_dtype(dtype, prefer, rule) -> None:
    logits, labels, context = problem(500, 5)
    weights = np.ones(3) if isinstance(rule, str) else np.array(rule)
    prediction = (np.exp(logits) * weights).argmax(axis=1)
    options = {} if isinstance(rule, str) else {"prediction": prediction}
    model = PreservingCalibrator(prefer=prefer, rule=rule)
    model.fit(logits, labels, context=context, **options)
    probabilities = model.predict_proba(logits, context=context, dtype=dtype, **options)
    weighted = probabilities.astype(np.float64) * weights
    others = weighted.copy()
    others[np.arange(500), prediction] = -1.0
    assert (weighted[np.arange(500), prediction] > others.max(axis=1)).all()


def test_a_row_has_the_same_bits_alone_and_in_any_batch(fitted) -> None:
    logits, _, context = problem(40, 6)
    whole = fitted.predict_proba(logits, context=context)
    for row in range(40):
        alone = {name: values[row : row + 1] for name, values in context.items()}
        one = fitted.predict_proba(logits[row : row + 1], context=alone)
        np.testing.assert_array_equal(one[0], whole[row])


def test_missing_values_use_the_curve_fitted_without_the_column(fitted) -> None:
    logits, labels, context = problem()
    masked = {name: values.copy() for name, values in context.items()}
    masked["source"] = masked["source"].astype(object)
    masked["source"][:50] = None
    masked["blur"][25:75] = np.nan
    masked["other"][100:110] = np.nan
    mixed = fitted.predict_proba(logits, context=masked)
    lacking = PreservingCalibrator().fit(logits, labels, context=without(context, "source"))
    expected = lacking.predict_proba(logits, context=without(context, "source"))
    # The strengths are those of all columns together, so that they differ a little.
    np.testing.assert_allclose(mixed[:25], expected[:25], atol=0.02)
    full = fitted.predict_proba(logits, context=context)
    np.testing.assert_array_equal(mixed[110:], full[110:])
    assert (abs(mixed - full).max(axis=1)[:110] > 0).mean() > 0.7


def test_no_context_for_any_row_is_the_model_without(fitted) -> None:
    logits, labels, _ = problem()
    plain = PreservingCalibrator().fit(logits, labels)
    np.testing.assert_array_equal(
        fitted.predict_proba(logits, context={}), plain.predict_proba(logits)
    )


UNKNOWN = {
    "None": lambda rows: [None] * rows,
    "NaN": lambda rows: np.full(rows, np.nan),
    "empty text": lambda rows: [""] * rows,
    "rows of None": lambda rows: np.full((rows, 3), None),
    "pandas' NA": lambda rows: pytest.importorskip("pandas").Series([None] * rows, dtype="Int64"),
    "rows of pandas' NA": lambda rows: np.full((rows, 3), pytest.importorskip("pandas").NA),
}


@pytest.mark.parametrize("missing", UNKNOWN)
@pytest.mark.parametrize("column", ["source", "blur", "other"])
@pytest.mark.parametrize("rows", [1, 20])
def test_a_column_unknown_in_all_rows_of_a_call(fitted, missing, column, rows) -> None:
    """It has the curve of the same rows in a call where another row has the column."""
    logits, _, context = problem(20, 7)
    whole = {name: np.copy(values) for name, values in context.items()}
    whole["source"] = whole["source"].astype(object)
    whole[column][:19] = None if column == "source" else np.nan
    expected = fitted.predict_proba(logits, context=whole)[: min(rows, 19)]
    some = {name: values[:rows] for name, values in context.items()}
    some[column] = UNKNOWN[missing](rows)
    found = fitted.predict_proba(logits[:rows], context=some)
    np.testing.assert_array_equal(found[:19], expected)


def test_unseen_categories_have_no_effect_and_numbers_are_clipped(fitted) -> None:
    logits, _, context = problem(20, 7)
    unseen = {**context, "source": np.array(["fax"] * 20)}
    assert np.isfinite(fitted.predict_proba(logits, context=unseen)).all()
    far, farther = (
        fitted.predict_proba(logits, context={**context, "blur": np.full(20, value)})
        for value in (1e3, 1e300)
    )
    np.testing.assert_array_equal(far, farther)


def test_rows_and_weights() -> None:
    """The order of rows does not matter, and weight 2 is the row twice."""
    logits, labels, context = problem(400, 8)
    order = np.random.default_rng(0).permutation(400)
    model = PreservingCalibrator("ts", repair="lift").fit(logits, labels, context=context)
    shuffled = PreservingCalibrator("ts", repair="lift").fit(
        logits[order], labels[order], context={name: v[order] for name, v in context.items()}
    )
    new, _, later = problem(50, 9)
    np.testing.assert_allclose(
        shuffled.predict_proba(new, context=later),
        model.predict_proba(new, context=later),
        rtol=1e-9,
    )
    twice = np.r_[np.arange(400), np.arange(100)]
    weight = np.where(np.arange(400) < 100, 2.0, 1.0)
    repeated = PreservingCalibrator("ts", repair="lift").fit(
        logits[twice], labels[twice], context={name: v[twice] for name, v in context.items()}
    )
    weighted = PreservingCalibrator("ts", repair="lift").fit(
        logits, labels, context=context, sample_weight=weight
    )
    np.testing.assert_allclose(
        repeated.predict_proba(new, context=later),
        weighted.predict_proba(new, context=later),
        rtol=1e-6,
    )


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "dictionary"])
def test_frames_of_any_library(library, fitted) -> None:
    logits, labels, context = problem()
    columns = without(context, "other")
    expected = PreservingCalibrator().fit(logits, labels, context=columns)
    module = pytest.importorskip(library if library != "dictionary" else "pandas")
    frame = {
        "pandas": pd.DataFrame,
        "polars": lambda data: module.DataFrame(data),
        "pyarrow": lambda data: module.table(data),
        "dictionary": lambda data: {name: list(values) for name, values in data.items()},
    }[library](columns)
    model = PreservingCalibrator().fit(logits, labels, context=frame)
    assert model.context_effects() == expected.context_effects()
    np.testing.assert_array_equal(
        model.predict_proba(logits, context=frame), expected.predict_proba(logits, context=columns)
    )


def test_rows_and_classes_of_frames_are_matched_by_name() -> None:
    logits, labels, context = problem(500, 10)
    names, index = ["ant", "bee", "cat"], [f"r{i}" for i in range(500)]
    scores = pd.DataFrame(logits, columns=names, index=index)
    other = pd.DataFrame(context["other"], columns=names, index=index)
    columns = pd.DataFrame({"source": context["source"]}, index=index)
    truth = pd.Series(np.array(names)[labels], index=index)
    order = np.random.default_rng(1).permutation(500)
    expected = PreservingCalibrator().fit(scores, truth, context={**columns, "other": other})
    shuffled = PreservingCalibrator().fit(
        scores,
        truth,
        context={**columns.iloc[order], "other": other.iloc[order][["cat", "ant", "bee"]]},
    )
    assert shuffled.context_effects() == expected.context_effects()


def test_model_files(fitted, tmp_path) -> None:
    logits, _, context = problem(30, 11)
    cordcal.save(fitted, tmp_path / "model.safetensors")
    loaded = cordcal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        loaded.predict_proba(logits, context=context), fitted.predict_proba(logits, context=context)
    )
    assert loaded.context_effects() == fitted.context_effects()
    with pytest.raises(InputError, match="fit had the columns 'source', 'blur'"):
        loaded.predict_proba(logits)


def test_effects_describe_the_confidence(fitted) -> None:
    effects = {(e.column, e.value): e for e in fitted.context_effects()}
    photo, pdf = effects["source", "photo"], effects["source", "pdf"]
    assert photo.high < 0.0 < pdf.effect
    assert effects["blur", "+1 sd"].effect < 0.0
    assert effects["other", "same prediction"].effect > 0.0
    logit = np.log(0.8 / 0.2) + photo.effect
    assert photo.confidence == pytest.approx(1 / (1 + np.exp(-logit)))
    assert "0.80 → 0." in str(photo)
    assert not any(e.column == "noise" for e in effects.values())


def test_exports_refuse_context(fitted, tmp_path) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(InputError, match="was fitted with context, which exports do not take"):
        cordcal.onnx.export(fitted, tmp_path / "model.onnx")


def test_torch_modules_refuse_context(fitted) -> None:
    pytest.importorskip("torch")
    from cordcal.torch import PreservingModule

    with pytest.raises(InputError, match="was fitted with context, which exports do not take"):
        PreservingModule(fitted)


def test_columns_without_an_effect_are_not_needed(fitted) -> None:
    logits, _, context = problem(20, 19)
    np.testing.assert_array_equal(
        fitted.predict_proba(logits, context=without(context, "noise")),
        fitted.predict_proba(logits, context=context),
    )


def test_explanations_are_those_of_the_confidence(fitted) -> None:
    logits, _, context = problem(50, 20)
    explanation = fitted.explain(logits, context=context)
    confidence = fitted.predict_proba(logits, context=context).max(axis=1)
    np.testing.assert_allclose(explanation.repaired_mass, confidence)
    assert (explanation.prediction == logits.argmax(axis=1)).all()
    with pytest.raises(InputError, match="fit had the columns"):
        fitted.explain(logits)
    ranked = PreservingCalibrator("vs", preserve=2).fit(*problem()[:2])
    assert ranked.explain(logits).repaired_mass.shape == (50, 2)


REFUSED = {
    "a list": (lambda c: [1, 2], "pass a data frame, or a dictionary"),
    "numbered columns": (lambda c: {0: c["blur"]}, "name every column by a text"),
    "another length": (lambda c: {"blur": c["blur"][:-1]}, "has 299 rows but the scores have 300"),
    "infinite": (lambda c: {"blur": np.r_[np.inf, c["blur"][1:]]}, "holds an infinite number"),
    "times": (lambda c: {"day": np.arange(300).astype("M8[D]")}, "holds times"),
    "identifiers": (
        lambda c: {"id": np.array([f"r{i}" for i in range(300)])},
        "300 different values in 300 rows, as identifiers do",
    ),
    "no value": (lambda c: {"blur": np.full(300, np.nan)}, "has no value"),
    "other classes": (lambda c: {"other": c["other"][:, :2]}, "there are 3 classes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_context_is_refused(case) -> None:
    logits, labels, context = problem(300, 12)
    change, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        PreservingCalibrator().fit(logits, labels, context=change(context))


def test_bad_context_of_predict_is_refused(fitted) -> None:
    logits, _, context = problem(20, 13)
    with pytest.raises(InputError, match="lacks the column 'source', which has an effect"):
        fitted.predict_proba(logits, context=without(context, "source"))
    with pytest.raises(InputError, match="holds numbers but fit had categories"):
        fitted.predict_proba(logits, context={**context, "source": np.arange(20)})
    with pytest.raises(InputError, match="fit had none"):
        PreservingCalibrator().fit(*problem()[:2]).predict_proba(logits, context=context)


@pytest.mark.parametrize("options", [{"calibrator": "ts"}, {"calibrator": "ts", "preserve": 2}])
def test_cord_refuses_context(options) -> None:
    logits, labels, context = problem(300, 14)
    with pytest.raises(InputError, match=r"""repair=["']lift["']"""):
        PreservingCalibrator(**options).fit(logits, labels, context=context)


def test_caveats_about_columns() -> None:
    logits, labels, _ = problem(300, 15)
    cases = {
        "is the same in every row": {"constant": np.array(["x"] * 300)},
        "determines the labels in 100.0 %": {"copy": labels.astype(str)},
        "determines which predictions are right": {"ok": logits.argmax(axis=1) == labels},
        "is right in all 300 rows": {"other": 9.0 * np.eye(3)[labels]},
    }
    for message, columns in cases.items():
        with pytest.warns(UserWarning, match=message):
            PreservingCalibrator().fit(logits, labels, context=columns)


def test_patterns_of_missing_columns_in_the_calibration_rows() -> None:
    """Rows in which two of three columns are missing get the curve of the third."""
    logits, labels, context = problem(1500, 16)
    context = without(context, "noise")
    context["source"] = context["source"].astype(object)
    context["source"][:500] = None
    context["blur"][:500] = np.nan
    model = PreservingCalibrator().fit(logits, labels, context=context)
    stored = {curve.columns for curve in model.repair_.context_.curves}
    assert stored >= {(0, 1, 2), (0, 1), (0, 2), (1, 2), (2,), ()}
    lengths = [len(curve.columns) for curve in model.repair_.context_.curves]
    assert all(first >= second for first, second in itertools.pairwise(lengths))
    probabilities = model.predict_proba(logits, context=context)
    assert (probabilities.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_certificates_see_the_confidence_with_context() -> None:
    first, truth, columns = problem()
    model = PreservingCalibrator().fit(first, truth, context=columns)
    logits, labels, context = problem(2000, 17)
    certificate = model.certify(logits, labels, 0.05, context=context)
    new, _, later = problem(500, 18)
    confidence = model.predict_proba(new, context=later).max(axis=1)
    np.testing.assert_array_equal(
        model.accepts(new, context=later), confidence >= certificate.parts[0].threshold
    )
    plain = model.certify(logits, labels, 0.05, context={})
    assert plain.share < certificate.share
    with pytest.raises(InputError, match="fit had the columns"):
        model.accepts(new)
