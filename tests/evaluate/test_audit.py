"""The audit: its counts, its sentences, its warnings and its forms."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import cordcal
from cordcal import CORD, Lift, PreservingCalibrator, audit, metrics
from errors import refused


def pair(seed: int = 0, rows: int = 600, classes: int = 5):
    rng = np.random.default_rng(seed)
    original = rng.dirichlet(np.full(classes, 0.5), rows)
    direct = 0.6 * original + 0.4 * rng.dirichlet(np.full(classes, 0.5), rows)
    labels = np.array([rng.choice(classes, p=row) for row in original])
    return original, direct, labels


@pytest.fixture(scope="module")
def result():
    return audit(*pair(), class_names=["ant", "bee", "cat", "dog", "[eel]"], resamples=50)


def test_counts_are_those_of_the_measures(result) -> None:
    original, direct, labels = pair()
    assert result.changes == metrics.prediction_changes(original, direct, labels)
    for groups in (result.by_class, result.by_confidence):
        for field in ("n", "n_changed", "n_gained", "n_lost", "n_neutral"):
            assert sum(getattr(group.changes, field) for group in groups) == getattr(
                result.changes, field
            )
    by_class = {group.group: group.changes.n for group in result.by_class}
    assert by_class["cat"] == np.count_nonzero(original.argmax(axis=1) == 2)


def test_bands_hold_the_original_confidence(result) -> None:
    confidence = pair()[0].max(axis=1)
    bands = {group.group: group.changes.n for group in result.by_confidence}
    assert bands["(0.6, 0.7]"] == np.count_nonzero((confidence > 0.6) & (confidence <= 0.7))


def test_measures_are_those_of_the_three_reports(result) -> None:
    original, direct, labels = pair()
    repaired = CORD().fit(original, direct).transform(original, direct)
    for entry in result.measures:
        measure = getattr(metrics, entry.measure)
        assert entry.original == pytest.approx(measure(original, labels), rel=1e-12)
        assert entry.direct == pytest.approx(measure(direct, labels), rel=1e-12)
        assert entry.repaired == pytest.approx(measure(repaired, labels), rel=1e-12)
        assert entry.difference == entry.repaired - entry.direct
        assert (entry.low is None) == (entry.measure == "classwise_ece")
    accuracy = result.measures[0]
    assert accuracy.difference == pytest.approx(-result.changes.delta_accuracy, abs=1e-15)
    assert accuracy.low <= accuracy.difference <= accuracy.high


def test_rows_that_change_most(result) -> None:
    original, direct, _ = pair()
    prediction, moved = original.argmax(axis=1), direct.argmax(axis=1)
    margin = direct.max(axis=1) - direct[np.arange(600), prediction]
    first = result.rows[0]
    assert first.row == margin.argmax()
    assert first.direct_confidence - first.direct_mass == margin.max()
    assert first.prediction == ["ant", "bee", "cat", "dog", "[eel]"][prediction[first.row]]
    assert first.original_mass == original[first.row].max()
    margins = [row.direct_confidence - row.direct_mass for row in result.rows]
    assert margins == sorted(margins, reverse=True)
    assert len(result.rows) == 10
    assert np.count_nonzero(prediction != moved) > 10


def test_forms(result) -> None:
    rich = pytest.importorskip("rich.console")
    plain = result.to_dict()
    assert json.loads(json.dumps(plain))["changes"]["n_changed"] == result.changes.n_changed
    pytest.importorskip("pandas")
    assert list(result.to_frame()["measure"])[:2] == ["accuracy", "nll"]
    notebook = result._repr_html_()
    assert f"<td>{result.measures[1].repaired:.4f}</td>" in notebook
    assert notebook.count("<tr>") == 1 + len(result.measures)
    assert result.to_frame("by_class")["n"].sum() == 600
    assert len(result.to_frame("rows")) == 10
    with refused("table", naming=("'classes'", "measures", "by_class")):
        result.to_frame("classes")
    console = rich.Console(width=100, record=True, file=io.StringIO())
    console.print(result)
    text = console.export_text()
    assert "smECE" in text
    assert "[eel]" in text
    assert f"{result.changes.n_changed:,} of 600 predictions" in text
    assert repr(result).startswith("Audit(600 rows × 5 classes: ")


def test_words(result) -> None:
    text = result.interpret()
    assert f"changes {result.changes.n_changed} of 600 predictions" in text
    assert "become right" in text
    assert "fitted on these same rows" in text


def test_identical_reports_change_nothing() -> None:
    original, _, labels = pair()
    result = audit(original, original, labels, resamples=20)
    assert result.identical
    assert result.changes.n_changed == 0
    assert result.rows == ()
    assert result.interpret() == (
        "The direct probabilities equal the original ones in every entry."
    )
    assert {measure.verdict for measure in result.measures} == {"same"}


def test_no_prediction_changed_though_the_reports_differ() -> None:
    original, _, _ = pair()
    sharper = original**1.3 / (original**1.3).sum(axis=1, keepdims=True)
    assert (
        audit(original, sharper)
        .interpret()
        .startswith("The calibrator changes none of the 600 predictions.")
    )


def test_without_labels_only_predictions_are_compared() -> None:
    original, direct, _ = pair()
    result = audit(original, direct)
    assert result.measures == ()
    assert result.reliability == {}
    assert result.changes.gained is None
    assert result.rows[0].label is None
    assert "Without labels" in result.interpret()
    assert result.to_frame().empty


def test_predictions_that_are_passed_are_kept() -> None:
    original, direct, labels = pair()
    prediction = direct.argmax(axis=1)
    result = audit(original, direct, labels, prediction=prediction, resamples=20)
    assert result.changes.n_changed == 0


def test_the_order_of_the_first_classes_is_compared() -> None:
    original, direct, _ = pair(classes=7)
    result = audit(original, direct)
    repaired = CORD().fit(original, direct).transform(original, direct)
    for name, report in (("direct", direct), ("repaired", repaired)):
        assert result.topk_changes[name] == metrics.topk_changes(original, report, 5)
    assert "preserve=5 keeps it" in result.interpret()
    by_rule = cordcal.audit(original, direct, rule=np.linspace(1.0, 1.5, original.shape[1]))
    assert "The repaired probabilities change it in" in by_rule.interpret()
    assert "preserve=" not in by_rule.interpret()  # a rule keeps no further ranks
    prediction = direct.argmax(axis=1)
    options = {
        "prediction": prediction,
        "repair": CORD(6).fit(original, direct, prediction=prediction),
    }
    with pytest.warns(UserWarning, match="rows that repair was fitted on"):
        preserved = audit(original, direct, **options)
    assert preserved.topk_changes["repaired"].n_order_changed == 0
    assert "The repaired probabilities keep it" in preserved.interpret()
    assert len(json.loads(json.dumps(preserved.to_dict()))["eta"]) == 6


def test_a_fitted_repair_is_used_and_its_rows_are_recognised() -> None:
    original, direct, labels = pair()
    cord = CORD().fit(original[:300], direct[:300])
    result = audit(original[300:], direct[300:], labels[300:], repair=cord, resamples=20)
    assert result.eta == cord.eta_
    assert not result.fitted_here
    assert result.warnings == ()
    shuffled = np.random.default_rng(0).permutation(300)
    with pytest.warns(UserWarning, match="rows that repair was fitted on"):
        seen = audit(original[shuffled], direct[shuffled], repair=cord)
    assert "fitted on" in seen.interpret()


def test_a_repair_comes_from_a_model_too() -> None:
    original, direct, labels = pair()
    model = PreservingCalibrator("ts", input="probabilities").fit(original[:300], labels[:300])
    prediction = original[300:].argmax(axis=1)
    arrays = (original[300:], direct[300:], labels[300:])
    result = audit(*arrays, repair=model, prediction=prediction, resamples=20)
    assert result.eta == model.repair_.eta_
    with refused("prediction", naming="scores.argmax(axis=1)"):
        audit(*arrays, repair=model.repair_)
    with pytest.raises(NotFittedError, match="this CORD is not fitted yet"):
        audit(*arrays, repair=CORD())


def test_rounding_is_no_improvement() -> None:
    original, direct, labels = pair()
    once = CORD().fit(original, direct).transform(original, direct)
    result = audit(original, once, labels, resamples=20)
    assert {row.verdict for row in result.measures} <= {"same"}


def test_half_precision_zeros_are_pointed_out() -> None:
    original = np.array([[0.5, 0.5 - 1e-8, 1e-8], [0.25, 0.25, 0.5]])
    # The repair lifts exact zeros to 1e-11, which half precision cannot hold either.
    with pytest.warns(UserWarning, match="0 in 1 rows of direct and 1 rows of repaired, each"):
        audit(original, original.astype(np.float16), [2, 2], resamples=5)
    audit(original, original.astype(np.float32), [2, 2], resamples=5)


def test_weights_reach_every_number() -> None:
    original, direct, labels = pair()
    weight = (np.arange(600) < 200).astype(float)
    result = audit(original, direct, labels, sample_weight=weight, resamples=20)
    part = audit(original[:200], direct[:200], labels[:200], resamples=20)
    assert result.eta == part.eta
    assert result.changes.tpcr == part.changes.tpcr
    assert result.cost == part.cost > 0.0
    assert [group.changes for group in result.by_class] == [
        group.changes for group in part.by_class
    ]
    for ours, theirs in zip(result.measures, part.measures, strict=True):
        assert ours.repaired == pytest.approx(theirs.repaired, rel=1e-9)


def test_the_cost_of_a_row_counts_by_its_weight() -> None:
    original, direct, _ = pair(rows=60)
    weight = np.random.default_rng(1).integers(4, size=60)
    repeated = audit(np.repeat(original, weight, axis=0), np.repeat(direct, weight, axis=0))
    result = audit(original, direct, sample_weight=weight)
    assert result.cost == pytest.approx(repeated.cost, rel=1e-12)
    assert result.cost != pytest.approx(audit(original, direct).cost, rel=1e-3)


def test_bands_are_of_the_original_confidence_whatever_was_decided() -> None:
    original = np.array([[0.85, 0.1, 0.05], [0.2, 0.75, 0.05], [0.3, 0.3, 0.4]])
    result = audit(original, original[:, ::-1], prediction=[1, 1, 0])
    counts = {group.group: group.changes.n for group in result.by_confidence}
    assert counts == {"(0, 0.5]": 1, "(0.7, 0.8]": 1, "(0.8, 0.9]": 1}


def test_a_repair_that_was_fitted_with_these_weights_is_recognised() -> None:
    original, direct, _ = pair()
    weight = np.random.default_rng(1).random(600)
    weighted = CORD().fit(original, direct, sample_weight=weight)
    with pytest.warns(UserWarning, match="rows that repair was fitted on"):
        audit(original, direct, sample_weight=weight, repair=weighted)
    with pytest.warns(UserWarning, match="rows that repair was fitted on"):
        audit(original, direct, sample_weight=weight, repair=CORD().fit(original, direct))


def test_the_seed_fixes_the_intervals() -> None:
    arrays = pair(rows=100)
    assert audit(*arrays, resamples=20).measures == audit(*arrays, resamples=20).measures
    assert audit(*arrays, resamples=20).measures != audit(*arrays, resamples=20, seed=1).measures


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"original": np.array([[2.0, -1.0]])}, "original: row 0 contains a negative number"),
        ({"direct": np.array([[3.0, 1.0]])}, "direct: row 0 sums to 4, not 1"),
        ({"direct": np.array([[0.5, 0.25, 0.25]])}, "original has shape (1, 2)"),
        ({"labels": [7]}, "labels: row 0 is 7, outside 0..1"),
        ({"class_names": ["a"]}, "class_names has 1 names but there are 2 columns"),
        ({"level": 95}, "level is 95"),
        ({"resamples": 0}, "resamples is 0"),
    ],
)
def test_bad_input(change, message) -> None:
    arguments = {
        "original": np.array([[0.5, 0.5]]),
        "direct": np.array([[0.5, 0.5]]),
        "labels": [0],
    }
    arguments.update(change)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - read below
        audit(
            arguments.pop("original"), arguments.pop("direct"), arguments.pop("labels"), **arguments
        )
    assert message in str(caught.value)


def test_logits_are_refused_with_a_hint() -> None:
    logits = np.array([[3.0, -1.0], [0.5, 2.0]])
    with refused("original", naming="softmax"):
        audit(logits, np.array([[0.5, 0.5], [0.5, 0.5]]))


def test_public_name() -> None:
    assert "audit" in cordcal.__all__
    assert cordcal.audit is audit


def test_real_outputs(real_set) -> None:
    original = real_set.probabilities()
    rng = np.random.default_rng(0)
    # A calibrator that changes some predictions: powers and factors by class.
    direct = original ** rng.uniform(0.7, 1.0, original.shape[1])
    direct *= rng.uniform(0.8, 1.25, original.shape[1])
    direct /= direct.sum(axis=1, keepdims=True)
    result = audit(original, direct, real_set.labels, resamples=3)
    assert result.changes.n_changed > 0
    accuracy = result.measures[0]
    assert accuracy.repaired == accuracy.original
    cord = CORD().fit(original, direct)
    # Zero wherever the mean is attainable; flat reports with many changes may not allow it.
    missed = abs(cord.construction_.target - cord.construction_.direct_mean)
    retained = metrics.mean_retention(original, direct, cord.transform(original, direct))
    assert retained == pytest.approx(missed, abs=1e-9)


def test_a_lift_is_audited_like_any_repair() -> None:
    rng = np.random.default_rng(0)
    original, direct = rng.dirichlet(np.ones(4), (2, 200))
    labels = rng.integers(4, size=200)
    lift = Lift().fit(original, direct, labels)
    result = audit(original, direct, labels, repair=lift, resamples=10)
    repaired = lift.transform(original, direct)
    nll = next(measure for measure in result.measures if measure.measure == "nll")
    assert nll.repaired == pytest.approx(metrics.nll(repaired, labels), abs=1e-12)
    assert result.eta is None
    json.dumps(result.to_dict(), allow_nan=True)


def test_what_rounds_to_zero_has_no_minus() -> None:
    assert metrics.METRICS["nll"].write(-1e-9, signed=True) == "+0.0000"
    assert metrics.METRICS["nll"].write(-1e-9) == "0.0000"


def test_logits_are_audited_by_their_own_argmax() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=400)
    logits = 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(400, 3))
    logits[0] = [40.0, 40.0 + 1e-14 * 2**3, 0.0]  # tied once it is a softmax
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    direct = cordcal.PreservingCalibrator("vs").fit(logits, labels).direct_proba(logits)
    from_logits = cordcal.audit(logits, direct, labels, input="logits")
    expected = cordcal.audit(p, direct, labels, prediction=logits.argmax(axis=1))
    assert from_logits.changes == expected.changes
    assert from_logits.eta == pytest.approx(expected.eta, rel=1e-9)
    with refused("original", naming='input="probabilities"'):
        cordcal.audit(p, direct, input="logits")
    with refused("original", rows=range(400), naming='input="logits"'):
        cordcal.audit(-1.0 - np.abs(logits), direct)
    with refused("input", naming="logits"):
        cordcal.audit(p, direct, input="scores")


def test_error_rates_are_certified_for_labelled_rows() -> None:
    rng = np.random.default_rng(0)
    original = rng.dirichlet(np.full(3, 0.3), 800)
    labels = (original.cumsum(axis=1) > rng.random((800, 1))).argmax(axis=1)
    direct = 0.9 * original + 0.1 / 3
    result = audit(original, direct, labels, resamples=10, level=0.9)
    repaired = CORD().fit(original, direct).transform(original, direct)
    for rate in result.certified:
        above = repaired.max(axis=1) >= rate.threshold
        assert rate.n == above.sum()
        assert rate.errors == (repaired.argmax(axis=1) != labels)[above].sum()
        assert rate.errors / rate.n < rate.bound <= 1.0
    assert [rate.threshold for rate in result.certified][:2] == [0.5, 0.6]
    assert "with 90 % confidence: of the predictions reported at 90 % or more" in result.interpret()
    assert result.to_dict()["certified"][0]["n"] == result.certified[0].n
    # Nothing is certified without labels, with weights, or for rows that the repair has seen.
    assert audit(original, direct).certified == ()
    weights = np.ones(800)
    assert audit(original, direct, labels, sample_weight=weights, resamples=10).certified == ()
    repair = CORD().fit(original, direct)
    with pytest.warns(UserWarning, match="fitted on"):
        assert audit(original, direct, labels, repair=repair, resamples=10).certified == ()
