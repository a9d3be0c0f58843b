"""Pandas indices and masks, in every function that takes more than one argument."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cordcal import (
    CORD,
    InputError,
    Lift,
    PrecomputedProbabilities,
    PreservingCalibrator,
    audit,
    compare,
    lift_confidences,
    metrics,
)
from cordcal._validation.table import match
from cordcal.calibrators import make
from cordcal.evaluate.gates import Gate, check

pd = pytest.importorskip("pandas")

N, K = 60, 3
RNG = np.random.default_rng(7)
LABELS = RNG.integers(K, size=N)
ORIGINAL = 0.7 * RNG.dirichlet(np.ones(K), N) + 0.3 * np.eye(K)[LABELS]
DIRECT = 0.5 * RNG.dirichlet(np.ones(K), N) + 0.5 * ORIGINAL
WEIGHT = RNG.uniform(0.5, 2.0, N)
PLAIN = {"p": ORIGINAL, "q": DIRECT, "y": LABELS, "w": WEIGHT}
NAMES = np.array([f"row {row}" for row in range(N)], dtype=object)
SHUFFLED = RNG.permutation(N)

Function = Callable[..., Any]


def preserved(p: Any, y: Any, w: Any) -> Any:
    model = PreservingCalibrator("ts", input="probabilities").fit(p, y, sample_weight=w)
    return model.predict_proba(ORIGINAL)


def compared(p: Any, y: Any, w: Any) -> Any:
    groups = w.round() if hasattr(w, "round") else w
    result = compare(p, y, ["ts"], input="probabilities", groups=groups)
    return result["ts"].direct["nll"], [
        (group.name, group.n, group.measures["direct"]["nll"])
        for group in result["ts"].pictures.groups
    ]


def compared_elsewhere(p: Any, q: Any, y: Any) -> Any:
    precomputed = {"mine": PrecomputedProbabilities(q, q)}
    result = compare(p, y, precomputed, input="probabilities", evaluation=(p, y))
    return result["mine"].direct["nll"], result["mine"].repaired["nll"]


def audited(p: Any, q: Any, y: Any, w: Any) -> Any:
    return audit(p, q, y, sample_weight=w, resamples=2).to_dict()


def checked(q: Any, p: Any, y: Any) -> Any:
    gates = [Gate("nll", 1.0), Gate("tpcr", 1.0), Gate("tpcr", 1.0, over="group")]
    return check(q, y, gates=gates, original=p, groups=y).to_dict()


def constructed(p: Any, q: Any, w: Any) -> Any:
    return CORD().construct([{"original": p, "direct": q, "sample_weight": w}]).eta_


def transformed(p: Any, q: Any, y: Any) -> Any:
    cord = CORD().fit(ORIGINAL, DIRECT, prediction=LABELS)
    return cord.transform(p, q, prediction=y), cord.explain(p, q, prediction=y).repaired_mass


def diagram(p: Any, y: Any, w: Any) -> Any:
    pytest.importorskip("matplotlib")
    from cordcal import plots

    ax = plots.reliability_diagram(p, y, sample_weight=w, histogram=False)
    return [line.get_ydata() for line in ax.get_lines()]


def streamed(p: Any, y: Any, w: Any) -> Any:
    return metrics.NLLStream().update(p, y, sample_weight=w).result()


FUNCTIONS: dict[str, Function] = {
    "PreservingCalibrator.fit": preserved,
    "calibrator.fit": lambda p, y, w: (
        make("vs", input="probabilities").fit(p, y, sample_weight=w).predict_proba(ORIGINAL)
    ),
    "compare": compared,
    "compare(Given)": compared_elsewhere,
    "audit": audited,
    "check": checked,
    "CORD.fit": lambda p, q, w: CORD().fit(p, q, sample_weight=w).eta_,
    "CORD.fit(prediction=)": lambda p, q, y: CORD().fit(p, q, prediction=y).eta_,
    "CORD.construct": constructed,
    "CORD.transform": transformed,
    "Lift.fit": lambda p, q, y, w: Lift().fit(p, q, y, sample_weight=w).curve_,
    "lift": lambda w, y, p: lift_confidences(0.35 + w / 5.0, y, p),
    "measure_all": lambda p, y, w: metrics.measure_all(p, y, sample_weight=w).values,
    "accuracy(ignore_index=)": lambda p, y, w: metrics.accuracy(
        p, y, sample_weight=w, ignore_index=2
    ),
    "NLLStream": streamed,
    "class_reliability": lambda p, y, w: (
        metrics.class_reliability(p, y, 1, sample_weight=w).accuracy
    ),
    "risk_coverage": lambda p, y, w: metrics.risk_coverage(p, y, sample_weight=w).risk,
    "prediction_changes": lambda p, q, y, w: metrics.prediction_changes(
        p, q, y, sample_weight=w
    ).to_dict(),
    "prediction_changes(predictions)": lambda y, q: metrics.prediction_changes(y, q).to_dict(),
    "prediction_flows": lambda p, q: metrics.prediction_flows(p, q).to_dict(),
    "topk_changes": lambda p, q, w: metrics.topk_changes(p, q, k=2, sample_weight=w),
    "mean_retention": lambda y, p, q, w: metrics.mean_retention(y, p, q, sample_weight=w),
    "reliability_diagram": diagram,
}


def arguments_of(function: Function) -> list[str]:
    return list(function.__code__.co_varnames[: function.__code__.co_argcount])


def with_index(name: str, index: Any, order: Any = slice(None)) -> Any:
    """Return an argument as a frame or series with an index, and then in another order."""
    values = PLAIN[name]
    kind = pd.DataFrame if values.ndim == 2 else pd.Series
    return kind(values, index=index).iloc[order]


def assert_same(result: Any, expected: Any) -> None:
    """Compare numbers, arrays, and what holds them; a frame's columns may add up differently."""
    if isinstance(expected, dict):
        assert result.keys() == expected.keys()
        result, expected = list(result.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(result, expected, rtol=1e-12)
    else:
        assert result == expected


@pytest.fixture(params=FUNCTIONS)
def function(request: pytest.FixtureRequest) -> Function:
    return FUNCTIONS[request.param]


def test_indices_that_mean_something_are_matched(function: Function) -> None:
    first, *others = arguments_of(function)
    rows = {first: with_index(first, NAMES)}
    rows |= {name: with_index(name, NAMES, SHUFFLED) for name in others}
    plain = {name: PLAIN[name] for name in rows}
    assert_same(function(**rows), function(**plain))


def test_a_default_index_and_one_of_a_larger_frame_go_by_position(function: Function) -> None:
    first, *others = arguments_of(function)
    larger = 3 * SHUFFLED + 5
    rows = {first: with_index(first, None)}
    rows |= {name: with_index(name, larger) for name in others}
    plain = {name: PLAIN[name] for name in rows}
    assert_same(function(**rows), function(**plain))


def test_arrays_without_an_index_go_by_position(function: Function) -> None:
    first, *others = arguments_of(function)
    plain = {name: PLAIN[name] for name in (first, *others)}
    assert_same(
        function(**{**plain, others[0]: with_index(others[0], SHUFFLED)}), function(**plain)
    )


@pytest.mark.parametrize("shuffled", ["first", "second"])
def test_a_default_index_and_its_numbers_in_another_order_are_refused(
    function: Function, shuffled: str
) -> None:
    names = arguments_of(function)
    at = 0 if shuffled == "first" else 1
    rows = {name: with_index(name, None) for name in names}
    rows[names[at]] = with_index(names[at], SHUFFLED)
    with pytest.raises(InputError) as caught:
        function(**rows)
    assert ".loc[" in caught.value.hint
    assert ".to_numpy()" in caught.value.hint


def test_an_entry_that_one_side_lacks_is_refused(function: Function) -> None:
    names = arguments_of(function)
    rows = {name: with_index(name, NAMES) for name in names}
    other = NAMES.copy()
    other[11] = "row of another table"
    rows[names[1]] = with_index(names[1], other)
    with pytest.raises(InputError, match="row of another table") as caught:
        function(**rows)
    assert caught.value.rows.tolist() == [11]


def test_masked_entries_are_refused(function: Function) -> None:
    names = arguments_of(function)
    plain = {name: PLAIN[name] for name in names}
    expected = function(**plain)
    for name in names:
        mask = np.zeros(PLAIN[name].shape, dtype=bool)
        unmasked = np.ma.array(PLAIN[name], mask=mask)
        assert_same(function(**{**plain, name: unmasked}), expected)
        mask[[4, 9]] = True
        with pytest.raises(InputError) as caught:
            function(**{**plain, name: np.ma.array(PLAIN[name], mask=mask)})
        assert caught.value.rows.tolist() == [4, 9]
        assert caught.value.reason == "has masked entries"


# The rule itself.


def series(index: Any, values: Any = None) -> Any:
    return pd.Series(range(len(index)) if values is None else values, index=index)


def matched(first: Any, second: Any) -> list[int]:
    return match({"scores": first}, labels=second).labels.tolist()


def test_equal_indices_with_repeated_entries_go_by_position() -> None:
    index = ["a", "a", "b"]
    assert matched(series(index), series(index)) == [0, 1, 2]


@pytest.mark.parametrize("repeats", ["scores", "labels"])
def test_repeated_entries_are_refused_where_indices_differ(repeats: str) -> None:
    one, other = series(["a", "b", "c"]), series(["a", "b", "b"])
    rows = (other, one) if repeats == "scores" else (one, other)
    with pytest.raises(InputError, match="'b'") as caught:
        matched(*rows)
    assert (caught.value.argument, caught.value.rows.tolist()) == (repeats, [2])


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([30, 10, 20]),
        pd.Index([2.5, 0.5, 1.5]),
        pd.Index(["c", "a", "b"], dtype=object),
        pd.Index([3, 1, 2], dtype="Int64"),
        pd.RangeIndex(7, 1, -2),
        pd.date_range("2026-01-01", periods=3)[[2, 0, 1]],
        pd.MultiIndex.from_tuples([("x", 2), ("x", 1), ("y", 1)]),
        pd.Categorical(["c", "a", "b"]),
    ],
    ids=lambda index: type(index).__name__ + str(getattr(index, "dtype", "")),
)
def test_every_kind_of_index_is_matched(index: Any) -> None:
    one = series(index)
    other = one.iloc[[1, 2, 0]]
    assert matched(one, other) == [0, 1, 2]
    assert matched(other, one) == [1, 2, 0]
    assert matched(one.reset_index(drop=True), other) == [1, 2, 0]  # by position


INDICES = [
    pd.date_range("2026-01-01", periods=3),
    pd.date_range("2026-01-01", periods=3, tz="UTC"),
    pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]),
    pd.MultiIndex.from_tuples([("a", 1, 1), ("a", 2, 1), ("b", 1, 1)]),
    pd.interval_range(0, 3),
    pd.period_range("2026-01", periods=3, freq="M"),
    pd.Index([5, 7, None], dtype="Int64"),
    pd.Index([5.0, np.nan, 6.0]),
    pd.Index([1j, 2j, 3j]),
    pd.Index([1, "a", None], dtype=object),
    pd.Index([7, 8, 9], dtype="uint8"),
]


# Each two kinds once; which of them is the scores' index takes turns.
PAIRS = [
    (one, other) if (one + other) % 2 else (other, one)
    for one, other in itertools.combinations_with_replacement(range(len(INDICES)), 2)
]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(*pair, marks=() if pair in PAIRS else pytest.mark.exhaustive)
        for pair in itertools.product(range(len(INDICES)), repeat=2)
    ],
)
def test_indices_of_different_kinds_are_refused(one: int, other: int) -> None:
    rows = series(INDICES[one]), series(INDICES[other])
    if one == other:
        assert matched(*rows) == [0, 1, 2]
        return
    with pytest.raises(InputError) as caught:
        matched(*rows)
    assert caught.value.argument == "labels"


def test_numbers_in_order_are_a_default_index_whatever_holds_them() -> None:
    listed, floats = pd.Index([0, 1, 2]), pd.Index([0.0, 1.0, 2.0])
    for index in (listed, floats, pd.Index([0, 1, 2], dtype="Int64")):
        assert matched(series(index), series([7, 5, 6])) == [0, 1, 2]
        with pytest.raises(InputError):
            matched(series(index), series([2, 1, 0]))


@pytest.mark.parametrize("scores", [np.arange(3), series([0, 1, 2])], ids=["array", "default"])
def test_orders_that_differ_next_to_scores_in_an_unknown_one_are_refused(scores: Any) -> None:
    labels = series([5, 2, 9])
    weight = labels.iloc[[2, 0, 1]]
    with pytest.raises(InputError) as caught:
        match({"scores": scores}, labels=labels, sample_weight=weight)
    assert caught.value.argument == "sample_weight"
    assert "sample_weight.loc[labels.index]" in caught.value.hint
    rows = match({"scores": scores}, labels=labels, sample_weight=labels)
    columns = (*rows.matrices, rows.labels, rows.sample_weight)
    assert [list(column) for column in columns] == [[0, 1, 2]] * 3


def test_what_has_no_index_goes_by_position_with_the_first_argument() -> None:
    scores = series([5, 2, 9])
    labels = scores.iloc[[2, 0, 1]]
    for weight in (np.arange(3), series([0, 1, 2])):
        rows = match({"scores": scores}, labels=labels, sample_weight=weight)
        columns = (*rows.matrices, rows.labels, rows.sample_weight)
        assert [list(column) for column in columns] == [[0, 1, 2]] * 3


def test_other_lengths_are_left_to_the_checks_of_shapes() -> None:
    with pytest.raises(InputError) as caught:
        metrics.accuracy(with_index("p", NAMES), with_index("y", NAMES).iloc[:-1])
    assert "shape" in caught.value.reason


def test_one_row_as_a_series_is_matched_by_its_classes() -> None:
    row = pd.Series([0.6, 0.3, 0.1], index=["ant", "bee", "cat"])
    cord = CORD().fit(ORIGINAL, DIRECT)
    moved = pd.Series([0.5, 0.4, 0.1], index=["ant", "bee", "cat"])
    expected = cord.transform(row.to_numpy(), moved.to_numpy())
    assert_same(cord.transform(row, moved.iloc[[2, 0, 1]]), expected)


def test_a_split_frame_goes_by_position() -> None:
    # What scikit-learn's train_test_split leaves: frames and labels with rows of the whole.
    whole = pd.DataFrame(ORIGINAL).assign(y=LABELS, w=WEIGHT)
    part = whole.iloc[SHUFFLED[:40]]
    scores = pd.DataFrame(part[[0, 1, 2]].to_numpy())  # a model's output, numbered from zero
    expected = metrics.nll(scores.to_numpy(), part.y.to_numpy(), sample_weight=part.w.to_numpy())
    assert metrics.nll(scores, part.y, sample_weight=part.w) == expected
    assert metrics.nll(part[[0, 1, 2]], part.y, sample_weight=part.w) == expected


def test_lists_of_masked_rows_are_refused() -> None:
    rows = [np.ma.array([0.4, 0.6]), np.ma.array([0.4, 0.6], mask=[True, False])]
    with pytest.raises(InputError) as caught:
        metrics.accuracy(rows, [0, 1])
    assert caught.value.rows.tolist() == [1]


def test_masked_labels_of_a_classifier_are_refused() -> None:
    from sklearn.naive_bayes import GaussianNB

    from cordcal.sklearn import PreservingCalibratedClassifierCV

    model = PreservingCalibratedClassifierCV(GaussianNB(), cv=2)
    for masked in (
        {"y": np.ma.array(LABELS, mask=LABELS == 0)},
        {"sample_weight": np.ma.array(WEIGHT, mask=True)},
    ):
        with pytest.raises(InputError) as caught:
            model.fit(**{"X": ORIGINAL, "y": LABELS, **masked})
        assert caught.value.argument == next(iter(masked))


def test_rows_of_a_classifier_go_by_position_as_in_scikit_learn() -> None:
    from sklearn.naive_bayes import GaussianNB

    from cordcal.sklearn import PreservingCalibratedClassifierCV

    model = PreservingCalibratedClassifierCV(GaussianNB(), cv=2)
    expected = model.fit(ORIGINAL, LABELS).predict_proba(ORIGINAL)
    frame = pd.DataFrame(ORIGINAL, index=NAMES, columns=["a", "b", "c"])
    model.fit(frame, pd.Series(LABELS, index=NAMES[SHUFFLED]))
    assert_same(model.predict_proba(frame), expected)


@pytest.mark.parametrize("name", ["pandas", "numpy.ma"])
def test_a_module_that_another_thread_is_loading(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in sys.modules already, and still empty."""
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    scores, labels = np.eye(3), [0, 1, 2]
    assert match({"scores": scores}, labels=labels).labels is labels
