"""Calibrators of other libraries, functions, modules and precomputed probabilities in compare."""

from __future__ import annotations

import numpy as np
import pytest

import cordcal
from errors import refused


def rows(count: int = 400, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    return 3.0 * np.eye(classes)[labels] + 2.0 * rng.normal(size=(count, classes)), labels


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def halved(fit_scores: np.ndarray, fit_labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    return softmax(scores / 2.0)


class Transformer:
    """As netcal's objects: probabilities in, probabilities out, and no predict_proba."""

    def fit(self, proba: np.ndarray, labels: np.ndarray) -> Transformer:
        assert np.allclose(proba.sum(axis=1), 1.0)
        return self

    def transform(self, proba: np.ndarray) -> np.ndarray:
        return 0.9 * proba + 0.1 / proba.shape[1]


class Marginal:
    """As verified_calibration's marginal calibrators: rows that need not sum to one."""

    def train_calibration(self, proba: np.ndarray, labels: np.ndarray) -> None:
        self.factor = 0.5

    def calibrate(self, proba: np.ndarray) -> np.ndarray:
        return self.factor * proba


class Top(Marginal):
    """As its top calibrators: one confidence for each row."""

    def calibrate(self, proba: np.ndarray) -> np.ndarray:
        return self.factor * proba.max(axis=1) + 0.4


def test_names_of_a_mapping_and_of_pairs() -> None:
    scores, labels = rows()
    named = cordcal.compare(scores, labels, {"mine": halved, "ts": "ts", "net": Transformer()})
    assert [entry.key for entry in named.entries] == ["mine", "ts", "net"]
    pairs = cordcal.compare(scores, labels, [("mine", halved), "ts"])
    assert [entry.key for entry in pairs.entries] == ["mine", "ts"]
    assert pairs["mine"].direct == named["mine"].direct


def test_several_of_one_class_are_numbered() -> None:
    scores, labels = rows()
    both = [cordcal.calibrators.make("mono"), cordcal.calibrators.make("mono", smoothness=1.0)]
    comparison = cordcal.compare(scores, labels, both)
    assert [entry.key for entry in comparison.entries] == ["mono 1", "mono 2"]


@pytest.mark.parametrize("calibrator", [halved, Transformer(), Marginal(), Top()])
def test_reports_are_probabilities_and_predictions_are_kept(calibrator: object) -> None:
    scores, labels = rows()
    reports = cordcal.PreservingCalibrator(calibrator).fit(scores, labels).predict_both(scores)
    np.testing.assert_allclose(reports.direct.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(reports.repaired.argmax(axis=1), scores.argmax(axis=1))


def test_a_lone_confidence_is_lifted() -> None:
    scores, labels = rows()
    direct = cordcal.PreservingCalibrator(Top()).fit(scores, labels).direct_proba(scores)
    p = softmax(scores)
    expected = cordcal.lift_confidences(0.5 * p.max(axis=1) + 0.4, scores.argmax(axis=1), p)
    np.testing.assert_allclose(direct, expected, atol=1e-11)


def test_torch_modules() -> None:
    torch = pytest.importorskip("torch")
    scores, labels = rows()
    module = torch.nn.Linear(4, 4).double()
    direct = cordcal.PreservingCalibrator(module).fit(scores, labels).direct_proba(scores)
    with torch.no_grad():
        logits = module(torch.tensor(scores)).numpy()
    np.testing.assert_allclose(direct, softmax(logits), atol=1e-12)


def test_precomputed_probabilities() -> None:
    fit, fit_labels = rows()
    test, test_labels = rows(seed=1)
    precomputed = cordcal.PrecomputedProbabilities(softmax(fit / 2.0), softmax(test / 2.0))
    comparison = cordcal.compare(
        fit, fit_labels, {"given": precomputed, "mine": halved}, evaluation=(test, test_labels)
    )
    assert comparison["given"].repaired == comparison["mine"].repaired
    with refused("direct_calibration", naming="shape"):
        cordcal.compare(
            fit[1:], fit_labels[1:], {"given": precomputed}, evaluation=(test, test_labels)
        )


def test_precomputed_probabilities_of_equal_scores_differ() -> None:
    scores, labels = rows()
    precomputed = cordcal.PrecomputedProbabilities(softmax(scores / 2.0), softmax(scores / 3.0))
    comparison = cordcal.compare(
        scores, labels, {"given": precomputed}, evaluation=(scores, labels)
    )
    for measure in ("nll", "ece"):
        expected = getattr(cordcal.metrics, measure)(softmax(scores / 3.0), labels)
        assert comparison["given"].direct[measure] == expected


def test_precomputed_probabilities_need_evaluation_rows_not_a_share() -> None:
    # The shapes would fit: half of the rows, whichever the draw takes.
    scores, labels = rows()
    half = softmax(scores[: len(scores) // 2])
    with pytest.raises(cordcal.InputError) as refused:
        cordcal.compare(
            scores, labels, {"given": cordcal.PrecomputedProbabilities(half, half)}, evaluation=0.5
        )
    assert refused.value.argument == "evaluation"
    assert "(scores, labels)" in refused.value.hint


@pytest.mark.parametrize(
    ("calibrator", "sentence"),
    [
        (3, r"calibrators\['it'\] is a int, which has neither fit nor predict_proba; pass"),
        (Transformer, r"calibrators\['it'\] is the class Transformer; pass an instance"),
        (lambda scores: scores, r"cannot be called with \(fit_scores, fit_labels, scores\); pass"),
        (type("Half", (), {"fit": print})(), "is a Half with fit but without predict_proba; pass"),
    ],
)
def test_what_cannot_be_used_gets_a_sentence(calibrator: object, sentence: str) -> None:
    scores, labels = rows()
    with pytest.raises(cordcal.InputError, match=sentence):
        cordcal.compare(scores, labels, {"it": calibrator})


def test_a_report_of_another_shape_gets_a_sentence() -> None:
    scores, labels = rows()
    with pytest.raises(cordcal.InputError, match="the output of wide has shape"):
        cordcal.compare(scores, labels, {"it": _wide})


def _wide(fit_scores: np.ndarray, fit_labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    return np.ones((len(scores), 7))


_wide.__name__ = "wide"


def test_netcal_itself() -> None:
    scaling = pytest.importorskip("netcal.scaling")
    scores, labels = rows()
    comparison = cordcal.compare(
        scores, labels, {"netcal": scaling.TemperatureScaling(), "ts": "ts"}
    )
    assert comparison["netcal"].direct["nll"] == pytest.approx(
        comparison["ts"].direct["nll"], abs=1e-4
    )


def test_scikit_learn_itself() -> None:
    from sklearn.linear_model import LogisticRegression

    scores, labels = rows()
    several = {f"C={c}": LogisticRegression(C=c) for c in (0.1, 10.0)}
    comparison = cordcal.compare(scores, labels, several)
    assert [entry.key for entry in comparison.entries] == ["C=0.1", "C=10.0"]


def test_probmetrics_itself() -> None:
    library = pytest.importorskip("probmetrics.calibrators")
    scores, labels = rows()
    calibrator = library.get_calibrator("temp-scaling")
    comparison = cordcal.compare(scores, labels, {"theirs": calibrator, "ts": "ts"})
    assert comparison["theirs"].direct["nll"] == pytest.approx(
        comparison["ts"].direct["nll"], abs=1e-4
    )


def test_labels_may_be_names_and_the_seed_a_generator() -> None:
    scores, labels = rows()
    names = ["ant", "bee", "cow", "dog"]
    words = np.array(names)[labels]
    seed = np.random.default_rng(5)
    comparison = cordcal.compare(scores, words, "ts", class_names=names, seed=seed)
    again = cordcal.compare(scores, labels, "ts", seed=comparison.seed)
    assert comparison["ts"].direct == again["ts"].direct


def test_the_classifier_takes_calibrator_objects() -> None:
    from sklearn.naive_bayes import GaussianNB

    from cordcal.sklearn import PreservingCalibratedClassifierCV

    scores, labels = rows()
    mono = cordcal.calibrators.make("mono", smoothness=0.1)
    for method in (mono, Transformer()):
        model = PreservingCalibratedClassifierCV(GaussianNB(), method=method, preserve=2, cv=3)
        proba = model.fit(scores, labels).predict_proba(scores)
        np.testing.assert_array_equal(proba.argmax(axis=1), model.predict(scores))
    with pytest.raises(cordcal.InputError, match="method is a int"):
        PreservingCalibratedClassifierCV(GaussianNB(), method=3).fit(scores, labels)


def test_the_classifier_repairs_with_lift(tmp_path) -> None:
    from sklearn.naive_bayes import GaussianNB

    from cordcal.sklearn import PreservingCalibratedClassifierCV

    scores, labels = rows(600)
    words = np.array(["ant", "bee", "cow", "dog"])[labels]
    results = {}
    for repair in ("cord", "lift", cordcal.Lift(prefer="likelihood")):
        for ensemble in (False, True):
            model = PreservingCalibratedClassifierCV(
                GaussianNB(), method="svs", repair=repair, ensemble=ensemble, cv=3
            ).fit(scores, words)
            proba = model.predict_proba(scores)
            np.testing.assert_array_equal(
                model.classes_[proba.argmax(axis=1)], model.predict(scores)
            )
            results[str(repair), ensemble] = proba
    assert isinstance(model.repair_, cordcal.Lift)
    assert model.repair_.prefer == "likelihood"
    assert not np.allclose(results["cord", False], results["lift", False])
    cordcal.save(model.repair_, tmp_path / "lift.safetensors")
    loaded = cordcal.load(tmp_path / "lift.safetensors")
    reports = softmax(scores), model.direct_proba(scores)
    prediction = scores.argmax(axis=1)
    np.testing.assert_array_equal(
        loaded.transform(*reports, prediction=prediction),
        model.repair_.transform(*reports, prediction=prediction),
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"repair": "lfit"}, "repair is 'lfit'; write 'cord', 'lift' or Lift"),
        ({"repair": "lift", "preserve": 2}, "preserve is 2 but Lift learns"),
    ],
)
def test_the_classifier_refuses_other_repairs(settings: dict[str, object], sentence: str) -> None:
    from sklearn.naive_bayes import GaussianNB

    from cordcal.sklearn import PreservingCalibratedClassifierCV

    scores, labels = rows()
    with pytest.raises(cordcal.InputError, match=sentence):
        PreservingCalibratedClassifierCV(GaussianNB(), **settings).fit(scores, labels)
