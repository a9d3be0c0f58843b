"""Every public callable that takes a matrix matches rows and columns, or refuses them.

The callables come from the frozen list of the public surface: a new one without a case fails.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cordcal
from cordcal import CORD, InputError, Lift, PreservingCalibrator, metrics
from cordcal.evaluate.gates import Gate

NAMES = ["ant", "bee", "cat", "dog"]
ROWS = 80
RNG = np.random.default_rng(7)
LABELS = RNG.integers(0, 4, ROWS)
LOGITS = 2.0 * np.eye(4)[LABELS] + RNG.normal(size=(ROWS, 4))
OTHER_LOGITS = 0.7 * LOGITS + [0.3, -0.2, 0.1, 0.0] + 0.3 * RNG.normal(size=(ROWS, 4))
INDEX = [f"row {number}" for number in RNG.permutation(ROWS)]
TRUTH = pd.Series(np.array(NAMES)[LABELS], index=INDEX)
PREDICTION = pd.Series(np.array(NAMES)[LOGITS.argmax(axis=1)], index=INDEX)

# Arguments that are matrices with one column per class.
MATRICES = {
    *("scores", "probabilities", "original", "direct", "evaluated", "report", "repaired"),
    *("y_prob", "direct_calibration", "direct_evaluation"),
}


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


VALUES = {
    "logits": LOGITS,
    "probabilities": softmax(LOGITS),
    "other": softmax(OTHER_LOGITS),
    "third": softmax(0.9 * OTHER_LOGITS),
}

Case = tuple[dict[str, str], Callable[..., Any]]
CASES: dict[str, Case] = {}


def case(*names: str, **matrices: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a call: its arguments that are matrices, and the values that they hold."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            CASES[name] = (matrices, functools.partial(function, name))
        return function

    return register


# Not matched here, with the reason.
EXEMPT = {
    r"cordcal\.Comparison\.next_step": "scores is the path of a file",
    r"cordcal\.(evaluate\.results\.)?Outputs": "a record",
    r"cordcal\.repair\.(Construction|Explanation|LiftConstruction|RankingConstruction)": "a record",
    r"cordcal\.plots\.ReliabilityDisplay": "takes a record",
    r"cordcal\.repair\.ConstructionState\..*": "takes arrays that are matched already",
    r".*\.(update_checked|update_arrays|map_scores)": "takes arrays that are matched already",
    r".*\.(fit_parameters|logits|probabilities)": "takes arrays that are matched already",
    r".*\.(fit|predict|transform|explain)_checked": "takes arrays that are matched already",
    r"cordcal\.repair\.ConfidenceGap(\.of)?": "takes arrays that are matched already",
    r"cordcal\.metrics\.PredictionChangesStream\.add": "takes arrays that are matched already",
    r"cordcal\.PrecomputedProbabilities(\.between)?": "holds arrays that compare matches",
    r"cordcal\.(files|llm)\..*": "files have their own tests",
    r"cordcal\.onnx\..*": "takes a model",
    r"cordcal\.expressions\..*": "takes arrays of one library",
    r"cordcal\.(torch|sklearn)\..*": "takes tensors, or inputs of an estimator",
}


def by_name(values: np.ndarray, columns: list[str]) -> np.ndarray:
    """Return the first rows of a result with the columns of fit, in the order of NAMES."""
    return np.asarray(values)[:20, [columns.index(name) for name in NAMES]]


def model(kind: str = "vs", **options: Any) -> PreservingCalibrator:
    frame = pd.DataFrame(LOGITS, columns=NAMES)
    return PreservingCalibrator(kind, **options).fit(frame, TRUTH.to_numpy())


@case("cordcal.PreservingCalibrator.fit", scores="logits")
def _(_: str, scores: Any) -> Any:
    fitted = PreservingCalibrator("vs").fit(scores, TRUTH)
    return by_name(fitted.predict_proba(pd.DataFrame(LOGITS, columns=NAMES)), fitted.columns_)


@case(
    *("cordcal.PreservingCalibrator.predict_proba", "cordcal.PreservingCalibrator.direct_proba"),
    *("cordcal.PreservingCalibrator.predict_both", "cordcal.PreservingCalibrator.predict"),
    "cordcal.PreservingCalibrator.explain",
    scores="logits",
)
def _(name: str, scores: Any) -> Any:
    result = getattr(model(), name.rpartition(".")[2])(scores)
    return getattr(result, "repaired", getattr(result, "repaired_mass", result))


def fitted_repair(name: str, rule: object = (1.0, 2.0, 0.5, 1.5)) -> CORD | Lift:
    original = pd.DataFrame(VALUES["probabilities"], columns=NAMES)
    direct = pd.DataFrame(VALUES["other"], columns=NAMES)
    if ".CORD." in name:
        return CORD(rule=rule).fit(original, direct)
    return Lift(rule=rule).fit(original, direct, TRUTH.to_numpy())


@case(
    *(f"cordcal.{part}{name}.fit" for part in ("", "repair.") for name in ("CORD", "Lift")),
    original="probabilities",
    direct="other",
)
def _(name: str, original: Any, direct: Any) -> Any:
    if ".CORD." in name:
        return CORD().fit(original, direct, prediction=PREDICTION).construction_.attained
    return Lift().fit(original, direct, TRUTH, prediction=PREDICTION).construction_.alpha


@case(
    *(f"cordcal.{part}{name}.transform" for part in ("", "repair.") for name in ("CORD", "Lift")),
    *(f"cordcal.{part}{name}.explain" for part in ("", "repair.") for name in ("CORD", "Lift")),
    original="probabilities",
    direct="other",
)
def _(name: str, original: Any, direct: Any) -> Any:
    result = getattr(fitted_repair(name), name.rpartition(".")[2])(original, direct)
    return getattr(result, "repaired_mass", result)


@case("cordcal.lift_confidences", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    confidence = pd.Series(np.linspace(0.3, 0.9, ROWS), index=INDEX)
    return cordcal.lift_confidences(confidence, PREDICTION, probabilities)


@case(
    *(f"cordcal.{part}PredictionRule.predict" for part in ("", "repair.")),
    probabilities="probabilities",
)
def _(_: str, probabilities: Any) -> Any:
    rule = fitted_repair(".CORD.").rule_
    assert rule is not None
    return rule.predict(probabilities)


@case("cordcal.audit", original="probabilities", direct="other")
def _(_: str, original: Any, direct: Any) -> Any:
    result = cordcal.audit(original, direct, TRUTH, resamples=2)
    return [measure.repaired for measure in result.measures]


@case("cordcal.check", probabilities="probabilities", original="other")
def _(_: str, probabilities: Any, original: Any) -> Any:
    gates = [Gate("tpcr", 0.0), Gate("classwise_ece", 0.5)]
    checked = cordcal.check(probabilities, TRUTH, original=original, gates=gates)
    return [verdict.value for verdict in checked.verdicts]


@case("cordcal.compare", scores="logits", evaluation="logits", direct="other")
def _(_: str, scores: Any, evaluation: Any, direct: Any) -> Any:
    precomputed = cordcal.PrecomputedProbabilities(direct, direct)
    comparison = cordcal.compare(
        scores, TRUTH, {"vs": "vs", "mine": precomputed}, evaluation=(evaluation, TRUTH)
    )
    return [comparison["vs"].direct["nll"], comparison["mine"].direct["nll"]]


@case("cordcal.Monitor", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    monitor = cordcal.Monitor(probabilities)
    monitor.add(pd.DataFrame(VALUES["probabilities"], columns=NAMES), TRUTH.to_numpy())
    return monitor.status.gap


@case("cordcal.Monitor.add", probabilities="probabilities", direct="other")
def _(_: str, probabilities: Any, direct: Any) -> Any:
    monitor = cordcal.Monitor(pd.DataFrame(VALUES["probabilities"], columns=NAMES))
    status = monitor.add(probabilities, TRUTH, direct=direct)
    return [status.gap, status.changed]


@case(
    *(f"cordcal.metrics.{name}" for name in ("accuracy", "brier", "classwise_ece", "ece", "nll")),
    *("cordcal.metrics.ece_equal_mass", "cordcal.metrics.smooth_ece"),
    probabilities="probabilities",
)
def _(name: str, probabilities: Any) -> Any:
    return getattr(metrics, name.rpartition(".")[2])(probabilities, TRUTH)


@case("cordcal.metrics.measure_all", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    return metrics.measure_all(probabilities, TRUTH).classwise_ece


@case("cordcal.metrics.reliability", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    return metrics.reliability(probabilities, TRUTH).accuracy


@case("cordcal.metrics.risk_coverage", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    return metrics.risk_coverage(probabilities, TRUTH).aurc


@case("cordcal.metrics.class_reliability", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    return metrics.class_reliability(probabilities, TRUTH, "cat").accuracy


@case("cordcal.metrics.prediction_changes", original="probabilities", evaluated="other")
def _(_: str, original: Any, evaluated: Any) -> Any:
    return metrics.prediction_changes(original, evaluated, TRUTH).delta_accuracy


@case("cordcal.metrics.tpcr", original="probabilities", evaluated="other")
def _(_: str, original: Any, evaluated: Any) -> Any:
    return metrics.tpcr(original, evaluated)


@case("cordcal.metrics.topk_changes", original="probabilities", evaluated="other")
def _(_: str, original: Any, evaluated: Any) -> Any:
    return metrics.topk_changes(original, evaluated, 2).n_order_changed


@case("cordcal.metrics.prediction_flows", original="probabilities", report="other")
def _(_: str, original: Any, report: Any) -> Any:
    flows = metrics.prediction_flows(original, report)
    assert flows.class_names is not None
    order = np.argsort(np.array(flows.class_names))
    return flows.matrix()[np.ix_(order, order)]


@case("cordcal.plots.flows", original="probabilities", evaluated="other")
def _(_: str, original: Any, evaluated: Any) -> Any:
    flows = pytest.importorskip("cordcal.plots").flows
    import matplotlib.pyplot as plt

    axes = flows(original, evaluated)
    names = [text.get_text() for text in axes.get_yticklabels()]
    cells = {
        (*(names[round(at)] for at in reversed(text.get_position())), text.get_text())
        for text in axes.texts
    }
    plt.close("all")
    return sorted(cells)


@case(
    *("cordcal.metrics.mean_retention", "cordcal.metrics.MeanRetentionStream.update"),
    original="probabilities",
    direct="other",
    repaired="third",
)
def _(name: str, original: Any, direct: Any, repaired: Any) -> Any:
    if name.endswith("update"):
        return metrics.MeanRetentionStream().update(original, direct, repaired).result()
    return metrics.mean_retention(original, direct, repaired)


@case("cordcal.metrics.PredictionChangesStream.update", original="probabilities", evaluated="other")
def _(_: str, original: Any, evaluated: Any) -> Any:
    stream = metrics.PredictionChangesStream()
    stream.update(pd.DataFrame(VALUES["probabilities"], columns=NAMES), VALUES["other"])
    return stream.update(original, evaluated).result().n_changed


@case("cordcal.metrics.TopkChangesStream.update", original="probabilities", evaluated="other")
def _(_: str, original: Any, evaluated: Any) -> Any:
    return metrics.TopkChangesStream(2).update(original, evaluated).result().n_set_changed


@case(
    *(
        f"cordcal.metrics.{name}Stream.update"
        for name in ("Accuracy", "Brier", "ClasswiseECE", "ECE", "EqualMassECE", "NLL")
    ),
    *("cordcal.metrics.ReliabilityStream.update", "cordcal.metrics.SmoothECEStream.update"),
    probabilities="probabilities",
)
def _(name: str, probabilities: Any) -> Any:
    stream = getattr(metrics, name.split(".")[2])()
    stream.update(pd.DataFrame(VALUES["other"], columns=NAMES), TRUTH.to_numpy())
    result = stream.update(probabilities, TRUTH).result()
    return getattr(result, "accuracy", result)


@case("cordcal.plots.reliability_diagram", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    axes = pytest.importorskip("cordcal.plots").reliability_diagram(probabilities, TRUTH)
    import matplotlib.pyplot as plt

    heights = [patch.get_height() for patch in axes.patches]
    plt.close("all")
    return heights


@case("cordcal.plots.risk_coverage", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    axes = pytest.importorskip("cordcal.plots").risk_coverage(probabilities, TRUTH)
    import matplotlib.pyplot as plt

    area = float(np.mean(axes.lines[0].get_ydata()))
    plt.close("all")
    return area


@case("cordcal.plots.ReliabilityDisplay.from_predictions", y_prob="probabilities")
def _(_: str, y_prob: Any) -> Any:
    display = pytest.importorskip("cordcal.plots").ReliabilityDisplay
    import matplotlib.pyplot as plt

    result = display.from_predictions(TRUTH, y_prob).reliability.accuracy
    plt.close("all")
    return result


def certificate() -> cordcal.Certificate:
    return cordcal.certify(frame("probabilities"), TRUTH, 0.4, by="class")


@case("cordcal.certify", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    parts = cordcal.certify(probabilities, TRUTH, 0.4, by="class").parts
    levels = {part.name: -1.0 if part.threshold is None else part.threshold for part in parts}
    return [levels[name] for name in NAMES]


@case("cordcal.Certificate.accepts", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    return certificate().accepts(probabilities)


@case("cordcal.Certificate.recheck", probabilities="probabilities")
def _(_: str, probabilities: Any) -> Any:
    result = certificate().recheck(probabilities, TRUTH, "renewed")
    return [(part.name, part.accepted, part.errors) for part in result.parts]


@case("cordcal.PreservingCalibrator.plot", scores="logits")
def _(_: str, scores: Any) -> Any:
    pytest.importorskip("matplotlib")
    return model().plot(scores, TRUTH).lines[-1].get_xydata()


@case("cordcal.PreservingCalibrator.score", scores="logits")
def _(_: str, scores: Any) -> Any:
    return model().score(scores, TRUTH)


@case("cordcal.PreservingCalibrator.certify", scores="logits")
def _(_: str, scores: Any) -> Any:
    return [part.errors for part in model().certify(scores, TRUTH, 0.4, by="class").parts]


@case("cordcal.PreservingCalibrator.accepts", scores="logits")
def _(_: str, scores: Any) -> Any:
    fitted = model()
    fitted.certify(frame("logits"), TRUTH, 0.4, by="class")
    return fitted.accepts(scores)


CALIBRATOR = re.compile(r"cordcal\.calibrators\.(?:[a-z_]+\.)?([A-Z]\w*)\.(fit|predict_proba)")


def calibrator_case(name: str) -> Case | None:
    """Return the case of a calibrator's own methods: all of them share their base's."""
    if not CALIBRATOR.fullmatch(name):
        return None
    is_fit = name.endswith(".fit")

    def run(scores: Any) -> Any:
        frame = pd.DataFrame(LOGITS, columns=NAMES)
        vector = cordcal.calibrators.make("vs")
        if is_fit:
            result = vector.fit(scores, TRUTH).predict_proba(frame)
            return by_name(result, vector.columns_)
        return vector.fit(frame, TRUTH.to_numpy()).predict_proba(scores)

    return {"scores": "logits"}, run


def surface() -> Iterator[tuple[str, set[str]]]:
    """Yield the public callables and their arguments that are matrices."""
    listed = Path(__file__).with_name("data") / "api.txt"
    for line in listed.read_text("utf-8").splitlines():
        name, _, signature = line.partition("(")
        arguments = set(re.findall(r"(?:^|, )\*?([a-z_]+)", signature)) & MATRICES
        if arguments and not any(re.fullmatch(pattern, name) for pattern in EXEMPT):
            yield name, arguments


def case_of(name: str) -> Case | None:
    return CASES.get(name) or calibrator_case(name)


def test_every_callable_that_takes_a_matrix_has_a_case() -> None:
    missing = [name for name, _ in surface() if case_of(name) is None]
    assert not missing
    incomplete = [
        (name, arguments - set(found[0]))
        for name, arguments in surface()
        if (found := case_of(name)) is not None and arguments - set(found[0])
    ]
    assert not incomplete


def calls() -> list[tuple[str, str]]:
    """Return every callable with each of its matrices; calibrators share one method."""
    names = [name for name, _ in surface() if not CALIBRATOR.fullmatch(name)]
    names += ["cordcal.calibrators.Calibrator.fit", "cordcal.calibrators.Calibrator.predict_proba"]
    cases = ((name, case_of(name)) for name in names)
    return [(name, argument) for name, known in cases if known for argument in known[0]]


CALLS = calls()
IDS = [f"{name.removeprefix('cordcal.')}-{argument}" for name, argument in CALLS]


def frame(values: str) -> pd.DataFrame:
    return pd.DataFrame(VALUES[values], columns=NAMES, index=INDEX)


def run(name: str, changed: Mapping[str, Callable[[pd.DataFrame], Any]]) -> Any:
    known = case_of(name)
    assert known is not None
    matrices, call = known
    arguments = {}
    for argument, values in matrices.items():
        change = changed.get(argument, lambda table: table)
        arguments[argument] = change(frame(values))
    return call(**arguments)


def expected(name: str) -> Any:
    return run(name, {})


def assert_same(result: Any, reference: Any) -> None:
    if isinstance(reference, list) and reference and isinstance(reference[0], tuple):
        assert result == reference
    elif np.asarray(reference).dtype.kind in "iuf":
        np.testing.assert_allclose(result, reference, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_array_equal(result, reference)


# What a result per class or column looks like in the columns' own order is that of the first
# matrix, so a permuted first matrix permutes it.
def in_order(name: str, argument: str, result: Any, order: list[int]) -> Any:
    known = case_of(name)
    assert known is not None
    is_first = next(iter(known[0])) == argument
    array = np.asarray(result)
    if is_first and name.endswith(".lift_confidences") and array.ndim == 2:
        return array[:, np.argsort(order)]
    return result


ORDER = [2, 0, 3, 1]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(("name", "argument"), CALLS, ids=IDS)
def test_permuted_columns(name: str, argument: str, library: str) -> None:
    def permuted(table: pd.DataFrame) -> Any:
        return as_library(table.iloc[:, ORDER], library)

    result = run(name, {argument: permuted})
    assert_same(in_order(name, argument, result, ORDER), expected(name))


@pytest.mark.parametrize(("name", "argument"), CALLS, ids=IDS)
def test_permuted_rows(name: str, argument: str) -> None:
    order = np.random.default_rng(3).permutation(ROWS)
    known = case_of(name)
    assert known is not None
    result = run(name, {argument: lambda table: table.iloc[order]})
    is_first = next(iter(known[0])) == argument
    if is_first and np.ndim(result) and len(result) == ROWS:
        result = np.asarray(result)[np.argsort(order)]  # results come in the first one's order
    assert_same(result, expected(name))


def as_library(table: pd.DataFrame, library: str) -> Any:
    if library == "pandas":
        return table
    polars = pytest.importorskip("polars")
    return polars.DataFrame({name: table[name].to_numpy() for name in table.columns})


CHANGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "a renamed class": lambda table: table.rename(columns={"cat": "emu"}),
    "a missing class": lambda table: (
        table.drop(columns="cat").div(table.drop(columns="cat").sum(axis=1), axis=0)
        if np.allclose(table.sum(axis=1), 1.0)
        else table.drop(columns="cat")
    ),
}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("name", "argument"), CALLS, ids=IDS)
def test_other_classes(name: str, argument: str, change: str, library: str) -> None:
    with pytest.raises(InputError, match=r"'?(cat|emu)'?|shape|columns|classes"):
        run(name, {argument: lambda table: as_library(CHANGES[change](table), library)})
