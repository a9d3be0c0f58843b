"""The comparison: splits, metrics, intervals, what is omitted, and the recommendation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from cordcal import PreservingCalibrator, compare, metrics
from cordcal.calibrators import available, make
from cordcal.calibrators.temperature import TemperatureScaling
from cordcal.evaluate.candidates import choose_calibrators
from cordcal.evaluate.statistics import shifted_interval
from cordcal.report import write_html
from cordcal.report.tables import OUTPUT_NAMES
from errors import refused


def rows(count: int, classes: int = 4, *, seed: int = 0, bias: float = 0.0):
    """The true log-odds of noisy rows, except for a ``bias`` towards the first class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    logits = 2.0 * np.eye(classes)[labels] + rng.normal(size=(count, classes))
    logits[:, 0] += bias
    return 2.0 * logits, labels


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return rows(1500, bias=1.0)


@pytest.fixture(scope="module")
def comparison(data) -> cordcal.evaluate.comparison.Comparison:
    return cordcal.compare(*data, ["ts", "vs", "irova"], class_names=list("abcd"))


def test_measures_are_those_of_the_reports(data) -> None:
    logits, labels = data
    fit, test = slice(0, 700), slice(700, None)
    comparison = cordcal.compare(
        logits[fit], labels[fit], ["vs"], evaluation=(logits[test], labels[test])
    )
    reports = (
        cordcal.PreservingCalibrator("vs").fit(logits[fit], labels[fit]).predict_both(logits[test])
    )
    entry = comparison["vs"]
    for report, measured in (
        (reports.direct, entry.direct),
        (reports.repaired, entry.repaired),
        (softmax(logits[test], axis=1), comparison.uncalibrated),
    ):
        expected = metrics.measure_all(report, labels[test]).to_dict()
        del expected["n"]
        assert dict(measured) == expected
    assert entry.changes == metrics.prediction_changes(logits[test], reports.direct, labels[test])


def test_repaired_keeps_the_accuracy_and_rivals_are_one_report(comparison) -> None:
    for entry in comparison:
        assert entry.repaired["accuracy"] == comparison.uncalibrated["accuracy"]
    assert comparison["ts"].keeps_predictions
    assert comparison["ts"].changes.n_changed == 0
    assert comparison["ts"].gain["nll"].to_dict() == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    assert comparison["vs"].changes.n_changed > 0


def test_intervals_hold_the_estimate_and_pair_the_rows(comparison) -> None:
    for entry in comparison:
        for measure in ("accuracy", "nll", "brier"):
            gain = entry.gain[measure]
            assert gain.low <= gain.estimate <= gain.high
            assert gain.estimate == pytest.approx(
                entry.direct[measure] - entry.repaired[measure], abs=1e-9
            )
    # Accuracy changes only in changed rows: the paired interval cannot exceed their share.
    gain, changes = comparison["vs"].gain["accuracy"], comparison["vs"].changes
    unpaired = 2 * 1.96 * np.sqrt(2 * 0.25 / comparison.n_evaluation)
    assert 0 < gain.high - gain.low < unpaired
    assert abs(gain.estimate - changes.delta_accuracy) < 1e-12


def test_a_seed_gives_the_same_comparison_again(data) -> None:
    first, second, other = (
        cordcal.compare(*data, "irova", seed=seed).to_dict() for seed in (1, 1, 2)
    )
    for comparison in (first, second, other):
        del comparison["seconds"], comparison["calibrators"][0]["seconds"]
    assert first == second
    assert first["uncalibrated"] != other["uncalibrated"]


def test_splits_are_averaged_and_resampled_together(data) -> None:
    one = cordcal.compare(*data, "irova", splits=1)
    four = cordcal.compare(*data, "irova", splits=4)
    assert four.splits == 4
    assert four["irova"].changes.n == 4 * one["irova"].changes.n
    assert four.uncalibrated["nll"] != one.uncalibrated["nll"]
    # Four overlapping halves of one set do not make the interval half as wide.
    width = [
        comparison["irova"].gain["nll"].high - comparison["irova"].gain["nll"].low
        for comparison in (one, four)
    ]
    assert width[1] > 0.5 * width[0]


def test_all_leaves_out_what_cannot_run() -> None:
    from cordcal.evaluate.candidates import unsuited_calibrators

    keys = ["ts", "ms", "sms", "dir-odir"]
    assert set(unsuited_calibrators(keys, 1000)) == {"ms", "sms", "dir-odir"}
    assert unsuited_calibrators(keys, 100) == {}
    logits, labels = rows(300, 3)
    logits[5, (labels[5] + 1) % 3] = -np.inf  # a masked class, which some maps cannot take
    comparison = cordcal.compare(logits, labels)
    assert "−inf" in comparison.left_out["vs"]
    assert "ts" in comparison.keys()  # noqa: SIM118 - the comparison iterates over entries
    assert any("Not run: " in sentence for sentence in comparison.to_dict()["reading"])


def test_a_named_calibrator_that_fails_is_an_error() -> None:
    logits, labels = rows(300, 3)
    logits[5, (labels[5] + 1) % 3] = -np.inf
    with pytest.raises(ValueError, match="masked"):
        cordcal.compare(logits, labels, ["vs"])


def test_own_calibrators_are_compared_by_their_name(data) -> None:
    class Flat:
        def fit(self, scores, labels):
            return self

        def predict_proba(self, scores):
            return np.full(scores.shape, 1.0 / scores.shape[1])

        def get_params(self, deep=True):
            return {}

    comparison = cordcal.compare(*data, [Flat(), "ts"])
    assert comparison.keys() == ["Flat", "ts"]
    assert comparison["Flat"].changes.tpcr > 0.5


def test_it_says_when_changes_are_worth_having() -> None:
    comparison = cordcal.compare(*rows(3000, bias=2.0), ["ts", "vs"])
    assert comparison.recommendation.changing.key == "vs"
    assert "If predictions may change: vs (direct) changes" in comparison.interpret()
    assert comparison["vs"].gain["accuracy"].low > 0


def test_it_says_when_a_plain_scaler_wins() -> None:
    # No class is favoured, so one temperature is all there is to learn; isotonic maps overfit.
    logits, labels = rows(1500, 10, seed=4)
    comparison = cordcal.compare(2.0 * logits, labels, ["ts", "irova"])
    assert comparison.recommendation.key == "ts"
    assert comparison.recommendation.output == "direct"


def test_it_says_when_nothing_is_gained() -> None:
    rng = np.random.default_rng(9)
    probabilities = rng.dirichlet(np.ones(3), 2000)
    labels = (probabilities.cumsum(axis=1) < rng.random((2000, 1))).sum(axis=1)
    comparison = cordcal.compare(probabilities, labels, ["irova"], input="probabilities")
    assert comparison.recommendation.key == "uncalibrated"
    assert comparison.recommendation.headline == (
        "Recommended: keep the classifier's own probabilities"
    )
    assert comparison.next_step() is None


def test_best_names_the_lowest_that_keeps_predictions(comparison) -> None:
    best = comparison.best["nll"]
    assert best.value == min(
        comparison.uncalibrated["nll"],
        comparison["ts"].direct["nll"],
        *(comparison[key].repaired["nll"] for key in ("vs", "irova")),
    )
    assert "accuracy" not in comparison.best


def test_results_are_plain(comparison) -> None:
    json.dumps(comparison.to_dict(), allow_nan=False)
    frame = comparison.to_frame()
    lifts = sum(entry.lift is not None for entry in comparison)
    preserving = sum(entry.keeps_predictions for entry in comparison)
    assert len(frame) == 1 + 2 * len(comparison) - preserving + lifts
    assert set(frame.columns) >= {"nll", "nll_low", "nll_high", "tpcr"}
    for measure in ("accuracy", "nll", "brier", "ece", "ece_equal_mass"):
        inside = frame[f"{measure}_low"].le(frame[measure]) & frame[measure].le(
            frame[f"{measure}_high"]
        )
        assert inside.all(), measure
    assert frame["accuracy_high"].le(1.0).all()
    assert frame.loc[frame.output == "repaired", "tpcr"].eq(0).all()
    assert repr(comparison).startswith(
        "Comparison of 3 calibrators on 750 rows × 4 classes. Recommended: "
    )
    with pytest.raises(KeyError, match="'ms' was not compared; there are ts, vs, irova"):
        comparison["ms"]


def test_reports_by_name(comparison) -> None:
    entry = comparison["vs"]
    assert comparison.measures("vs") is entry.repaired
    assert comparison.measures("vs", "lift") is entry.lift
    assert comparison.measures("ts", "direct") is comparison["ts"].direct
    assert comparison.measures("uncalibrated") is comparison.uncalibrated
    assert comparison.measures("uncalibrated", "original") is comparison.uncalibrated


@pytest.mark.parametrize(
    ("key", "report", "allowed"),
    [
        ("vs", "nonsense", ("direct", "repaired", "lift")),
        ("vs", "original", ("direct", "repaired", "lift")),
        ("ts", "lift", ("direct", "repaired")),
        ("uncalibrated", "repaired", ("original",)),
    ],
)
def test_reports_that_do_not_exist_are_refused(comparison, key, report, allowed) -> None:
    for ask in (
        lambda: comparison.measures(key, report),
        lambda: comparison.replicates(key, report, "nll"),
        lambda: comparison.difference((key, report), ("vs", "direct"), "nll"),
        lambda: comparison.difference(("vs", "direct"), (key, report), "nll"),
    ):
        with refused("output", naming=repr(report)) as caught:
            ask()
        assert set(caught.value.hint.removeprefix("use ").split(" or ")) == {
            repr(value) for value in allowed
        }


@pytest.mark.parametrize("measure", ["loss", "classwise_ece"])
def test_differences_of_what_is_not_resampled_are_refused(comparison, measure) -> None:
    with refused("measure") as caught:
        comparison.difference(("vs", "repaired"), ("ts", "direct"), measure)
    assert "nll" in caught.value.hint


def test_replicates_know_their_measures(comparison) -> None:
    assert comparison.replicates("vs", "repaired", "classwise_ece") is None
    with refused("measure", naming="'loss'"):
        comparison.replicates("vs", "repaired", "loss")


def test_fingerprint_tells_what_was_measured() -> None:
    scores, labels = rows(300)
    test, truth = rows(100, seed=1)
    other = labels.copy()
    other[0] = (other[0] + 1) % 4
    nudged = test.copy()
    nudged[5, 1] += 1e-9
    first = np.repeat(["north", "south"], 50)

    def fingerprint(scores=scores, labels=labels, keys="ts", **options) -> str:
        return compare(scores, labels, keys, **options).fingerprint

    known = {"evaluation": (test, truth)}
    different = [
        fingerprint(),
        fingerprint(labels=other),
        fingerprint(seed=1),
        fingerprint(evaluation=0.4),
        fingerprint(splits=2),
        fingerprint(preserve=2),
        fingerprint(scores[::-1], labels[::-1]),  # the same rows, drawn otherwise
        fingerprint(groups=np.repeat(["north", "south"], 150)),
        fingerprint(**known),
        fingerprint(evaluation=(nudged, truth)),
        fingerprint(evaluation=(test, truth[::-1])),
        fingerprint(evaluation=(scores, labels)),
        fingerprint(groups=first, **known),
        fingerprint(groups=first[::-1], **known),
        fingerprint(softmax(scores, axis=1), input="probabilities"),
    ]
    assert len(set(different)) == len(different)
    assert fingerprint(keys="vs") == fingerprint(class_names=list("abcd")) == different[0]
    # Rows that are given are the same in any order.
    assert fingerprint(evaluation=(test[::-1], truth[::-1])) == fingerprint(**known)


def test_tables_for_papers_and_notebooks(comparison) -> None:
    markdown = comparison.to_markdown(["nll"], intervals=False)
    best = comparison.best["nll"]
    output = OUTPUT_NAMES[best.output]
    assert re.search(rf"\| \**{best.key}\** \| \**{output}\** \| \*\*{best.value:.4f}", markdown)
    assert len(re.findall(r"\n\| \**ts\** \|", markdown)) == 1  # one output: it needs no repair
    values = [float(line.split("|")[3].strip(" *")) for line in markdown.splitlines()[2:-2]]
    assert values == sorted(values)
    assert r"\textbf{" in comparison.to_latex()
    drawn = comparison.replicates("vs", "direct", "nll")
    centred = drawn - drawn.mean() + comparison["vs"].direct["nll"]
    low, high = np.quantile(centred, [0.025, 0.975])
    assert f"[{low:.4f}, {high:.4f}]" in comparison.to_html(["nll"])
    notebook = comparison._repr_html_()
    assert comparison.recommendation.headline in notebook
    assert "<table>" in notebook
    with refused("measures", naming=("'loss'", "accuracy, nll")):
        comparison.to_markdown(["loss"])


@pytest.mark.parametrize(
    ("options", "argument", "fact"),
    [
        ({"calibrators": "tz"}, None, "'tz'"),
        ({"calibrators": []}, "calibrators", "empty"),
        ({"calibrators": ["ts", "ts"]}, "calibrators", "'ts'"),
        ({"evaluation": 1.0}, "evaluation", "1.0"),
        ({"evaluation": None}, "evaluation", "NoneType"),
        ({"evaluation": [0.5]}, "evaluation", "list"),
        ({"evaluation": (np.zeros((5, 3)),)}, "evaluation", "tuple of 1"),
        ({"evaluation": (np.zeros((5, 3)), np.zeros(5, int))}, "evaluation", "3 classes"),
        ({"splits": 0}, "splits", "0"),
        ({"class_names": ["a"]}, "class_names", "4 columns"),
        ({"input": "odds"}, "input", "'odds'"),
    ],
)
def test_bad_input(data, options: dict, argument: str | None, fact: str) -> None:
    with refused(argument, naming=fact):
        cordcal.compare(*data, **{"calibrators": ["ts"], **options})


def test_splits_of_separate_evaluation_rows_are_refused(data) -> None:
    with refused("splits"):
        cordcal.compare(*data, "ts", evaluation=data, splits=2)


def test_lift_is_a_third_report_of_maps_that_change_predictions() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(400, 3)) * [1.0, 2.0, 3.0]
    comparison = compare(logits, labels, ["ts", "vs", "blend"])
    assert comparison["ts"].lift is None
    for key in ("vs", "blend"):
        assert comparison[key].lift["accuracy"] == comparison.uncalibrated["accuracy"]
        assert (key, "lift") in comparison.preserving()
    frame = comparison.to_frame()
    assert list(frame["output"][frame["calibrator"] == "vs"]) == ["direct", "repaired", "lift"]
    fit = np.sort(np.random.default_rng(0).permutation(400)[200:])
    rest = np.sort(np.random.default_rng(0).permutation(400)[:200])
    model = PreservingCalibrator(input="logits").fit(logits[fit], labels[fit])
    expected = metrics.nll(model.predict_proba(logits[rest]), labels[rest])
    assert comparison["blend"].lift["nll"] == pytest.approx(expected, rel=1e-12)


class Doubling:
    """A map of one's own that changes predictions: it doubles the second class's odds."""

    def __init__(self, fewest: int = 0) -> None:
        self.fewest = fewest

    def fit(self, scores, labels):
        if len(labels) < self.fewest:
            raise ValueError("it wants more rows")
        return self

    def predict_proba(self, scores):
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p[:, 1] *= 2.0
        return p / p.sum(axis=1, keepdims=True)


def test_objects_are_lifted_too() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(400, 3))
    maps = {"own": Doubling(), "vs": make("vs"), "greedy": Doubling(fewest=200)}
    comparison = compare(logits, labels, maps)
    for key in ("own", "vs"):
        assert comparison[key].lift["accuracy"] == comparison.uncalibrated["accuracy"]
    by_key = compare(logits, labels, ["vs"])
    assert comparison["vs"].lift == by_key["vs"].lift
    # Where rows cannot be held out there is none, and the notes say why.
    assert comparison["greedy"].lift is None
    assert any(
        "no lift" in note and "wants more rows" in note for note in comparison["greedy"].notes
    )


def test_the_constraint_cost_is_compared_with_the_repairs() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(400, 3)) * [1.0, 2.0, 3.0]
    comparison = compare(logits, labels, ["vs"])
    cost = comparison["vs"].constraint_cost
    assert cost.cord == pytest.approx(comparison["vs"].repaired["nll"], rel=1e-12)
    assert cost.lift == pytest.approx(comparison["vs"].lift["nll"], rel=1e-12)
    words = comparison.interpret()
    assert f"CORD is {cost.cord - cost.kept:.4f}" in words
    assert f"lift is {cost.lift - cost.kept:.4f}" in words


def test_calibrators_that_need_an_extra_are_tried_only_with_all() -> None:
    by_default = set(choose_calibrators("default", "logits").by_name)
    assert set(available()) - by_default == {"boost", "boosted-blend"}
    # The blend fits its members anyway.
    blend = make("blend").fit(*rows(300))
    assert {"blend", *blend.members_, *blend.notes_} <= by_default
    assert set(choose_calibrators("all", "logits").by_name) == set(available())


def test_a_map_that_ties_all_classes_does_not_keep_predictions_by_itself(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=600)
    p = rng.integers(1, 4, size=(600, 4)).astype(float)
    p /= p.sum(axis=1, keepdims=True)
    # Scores that say nothing: ets gives every class the same probability.
    with pytest.warns(UserWarning, match="below the most frequent class"):
        result = cordcal.compare(p, labels, ["ts", "ets"], input="probabilities")
    assert result["ets"].changes.n_changed > 0
    assert not result["ets"].keeps_predictions
    assert ("ets", "direct") not in result.preserving()
    assert ("ets", "repaired") in result.preserving()
    # Equal probabilities stay equal under ts, so the rows keep their predictions.
    assert result["ts"].keeps_predictions
    write_html(result, tmp_path / "report.html")


class Coarse(TemperatureScaling):
    """A temperature that gives the two largest classes of a row the same probability."""

    key = "coarse"

    @classmethod
    def probabilities(cls, scores, params, *, xp):
        report = super().probabilities(scores, params, xp=xp)
        top = np.argsort(-report, axis=1, kind="stable")[:, :2]
        mean = np.take_along_axis(report, top, axis=1).mean(axis=1, keepdims=True)
        np.put_along_axis(report, top, mean, axis=1)
        return report


def test_a_new_tie_does_not_keep_predictions_either() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=400)
    # The first class is always just ahead of the second: a tie between them changes nothing.
    first = rng.uniform(0.40, 0.45, 400)
    p = np.stack([first, first - 0.02, 1.02 - 2.0 * first], axis=1)
    result = cordcal.compare(
        p, labels, {"coarse": Coarse(input="probabilities")}, input="probabilities"
    )
    assert result["coarse"].changes.n_changed == 0
    assert not result["coarse"].keeps_predictions


def test_a_shifted_interval_stays_in_the_metrics_range() -> None:
    def ends(value: float, drawn: list[float]) -> tuple[float, float]:
        return shifted_interval(value, np.array(drawn))

    assert ends(0.999, [0.99, 1.0, 1.0])[1] == 1.0  # an accuracy
    assert ends(0.01, [0.01, 0.05, 0.09])[0] == 0.0  # a binned error, larger in resamples
    assert ends(-0.5, [-0.7, -0.5, -0.3])[0] < -0.5  # a measure of one's own


def test_threads_change_nothing_and_every_name_is_reported_once(monkeypatch) -> None:
    logits, labels = rows(6600, 10)
    named = {"first": "vs", "second": "irova", "ts": "ts"}
    results = []
    for threads in (1, 2):
        for module in ("calibrators.crossfit", "evaluate.statistics"):
            monkeypatch.setattr(f"cordcal.{module}.default_threads", lambda count=threads: count)
        names: list[str] = []
        comparison = compare(logits, labels, named, progress=names.append)
        assert sorted(names) == ["first", "intervals", "second", "ts"]
        assert names[-1] == "intervals"
        results.append(comparison)
    one, two = results
    for output in one.outputs():
        assert one.measures(*output) == two.measures(*output)
        for measure, values in one.resampled.get(output, {}).items():
            assert np.array_equal(values, two.resampled[output][measure])


def test_two_rows_are_too_few_for_any_calibrator() -> None:
    with pytest.warns(UserWarning, match="only 2 rows"):
        comparison = cordcal.compare([[2.0, 0.0, 1.0], [0.0, 1.0, 3.0]], [0, 2])
    assert not list(comparison)
    assert "blend" in comparison.left_out
