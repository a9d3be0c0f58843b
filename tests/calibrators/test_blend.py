"""Blend: certified shares, folds, members that fail, and rows that are hard to fit on."""

from __future__ import annotations

import pickle
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import cordcal
from cordcal.calibrators import (
    Calibrator,
    _base,
    crossfit,
    make,
    register,
    unregister,
)
from cordcal.calibrators import blend as blend_module
from cordcal.calibrators._base import Size
from cordcal.calibrators._simplex import best_shares
from cordcal.calibrators.blend import _MEMBERS, Blend, _prior, _rating
from cordcal.calibrators.crossfit import FitCache, Folds, cross_fit, cross_fit_any
from cordcal.calibrators.temperature import TemperatureScaling
from errors import refused
from internals import CheckedScores


def rows(n: int = 400, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    noise = rng.normal(size=(n, classes)) * np.linspace(1.0, 2.0, classes)
    return 2.0 * np.eye(classes)[labels] + noise, labels


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """What members of a blend see of logits."""
    return CheckedScores.from_scores(scores, "logits").in_domain("log-probabilities", 1e-12)


# The shares.


def simplex_grid(steps: int) -> np.ndarray:
    first, second = np.meshgrid(np.arange(1, steps), np.arange(1, steps))
    inside = first + second < steps
    pairs = np.column_stack([first[inside], second[inside]]) / steps
    return np.column_stack([pairs, 1.0 - pairs.sum(axis=1)])


def test_no_point_of_a_grid_has_better_shares() -> None:
    rng = np.random.default_rng(0)
    likelihood = rng.random((3, 50))
    weight = rng.random(50)
    weight /= weight.mean()
    prior = np.array([1.0, 0.5, 0.5])
    mixture = best_shares(likelihood, weight, prior)

    def value(shares: np.ndarray) -> float:
        return float(-(weight * np.log(shares @ likelihood)).sum() - prior @ np.log(shares))

    best = min(value(point) for point in simplex_grid(60))
    assert value(mixture.shares) <= best
    assert mixture.shares.sum() == pytest.approx(1.0, abs=1e-15)
    assert 0.0 <= mixture.gap <= 1e-10


@pytest.mark.parametrize("hard", ["zeros", "equal", "one member", "tiny"])
def test_hard_shares_have_their_certificate(hard: str) -> None:
    rng = np.random.default_rng(1)
    likelihood = {
        "zeros": np.where(rng.random((4, 90)) < 0.5, 0.0, 1.0),
        "equal": np.tile(rng.random(90), (4, 1)),
        "one member": rng.random((1, 90)),
        "tiny": rng.random((4, 90)) ** 60,
    }[hard]
    members = len(likelihood)
    mixture = best_shares(likelihood, np.ones(90), np.full(members, 2.0 / members))
    assert mixture.gap <= 1e-10
    if hard == "equal":
        np.testing.assert_allclose(mixture.shares, 0.25, rtol=1e-6)


def test_few_errors_favour_the_simplest_members() -> None:
    simple = np.array([True, True, False, False])
    np.testing.assert_allclose(_prior(simple, 30.0), [1.0, 1.0, 0.5, 0.5])
    assert _prior(simple, 0.0).sum() == pytest.approx(22.0)
    np.testing.assert_allclose(_prior(~simple & simple, 5.0), 0.5)


def test_what_does_well_alone_is_rated_by_the_root_of_its_likelihood() -> None:
    likelihood = np.array([[0.5, 0.5], [0.5, 0.125], [0.0, 0.5]])
    rating = _rating(likelihood, np.ones(2))
    assert rating[0] / rating[1] == pytest.approx(2.0)
    assert 0.0 < rating[2] < 1e-5  # a zero likelihood is clipped, so its loss is finite
    assert rating.sum() == pytest.approx(1.0)
    weighed = _rating(likelihood, np.array([1.9, 0.1]))
    assert weighed[0] / weighed[1] == pytest.approx(4.0**0.05)


def test_with_few_rows_the_shares_lean_to_what_does_well_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(7)
    labels = rng.integers(4, size=60)
    # A bias for each class is what is wrong here, and svs learns it from few rows.
    logits = 3.0 * np.eye(4)[labels] + rng.normal(size=(60, 4)) + [2.0, 0.0, -2.0, 0.0]

    def share() -> float:
        blend = Blend(members=("ts", "irova", "svs")).fit(logits, labels)
        return float(blend.weights_[list(blend.members_).index("svs")])

    rated = share()
    monkeypatch.setattr("cordcal.calibrators.blend._RATED_ROWS", 0.0)
    assert rated > 2.0 * share()


# The folds.


def test_classes_of_two_rows_stay_in_training() -> None:
    labels = np.repeat(np.arange(30), 2)
    folds = Folds.of(rows(60)[0], labels, 5, seed=3)
    for number in range(5):
        assert set(labels[folds.number != number]) == set(range(30))
    counts = np.bincount(folds.number)
    assert counts.max() - counts.min() <= 1


def test_more_folds_than_rows_hold_out_one_each() -> None:
    folds = Folds.of(rows(3)[0], np.array([0, 1, 0]), 5, seed=0)
    assert folds.count == 3
    assert folds.note is None


def tied_rows(groups: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of which most have copies, with their own labels: as from a tree or a table."""
    rng = np.random.default_rng(seed)
    leaf = np.concatenate([np.arange(groups), rng.integers(groups, size=5 * groups)])
    chance = rng.dirichlet(np.ones(4), groups)[leaf]
    labels = (chance.cumsum(axis=1) < rng.random(len(leaf))[:, None]).sum(axis=1)
    return np.log(chance), labels


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_rows_of_equal_scores_share_a_fold(dtype: type) -> None:
    scores, labels = tied_rows()
    scores = scores.astype(dtype)
    scores[:, 0] = np.where(np.arange(len(scores)) % 2, 0.0, -0.0)
    folds = Folds.of(scores, labels, 5, seed=1)
    _, group = np.unique(scores, axis=0, return_inverse=True)
    pairs = {(int(g), int(number)) for g, number in zip(group.ravel(), folds.number, strict=True)}
    assert len(pairs) == group.max() + 1
    largest = np.bincount(group.ravel()).max()
    for k in range(4):
        totals = np.bincount(folds.number[labels == k], minlength=5)
        assert np.ptp(totals) <= largest


def test_the_loop_over_groups_deals_single_rows_in_turn() -> None:
    scores, labels = rows(83)
    single = Folds.of(scores, labels, 5, seed=0)
    # One row with two copies more sends all groups through the loop.
    copies = np.append(np.arange(83), [7, 7])
    grouped = Folds.of(scores[copies], labels[copies], 5, seed=0).number
    assert (grouped[83:] == grouped[7]).all()
    for k in range(4):
        assert np.ptp(np.bincount(single.number[labels == k], minlength=5)) <= 1
        assert np.ptp(np.bincount(grouped[labels[copies] == k], minlength=5)) <= 2


def test_folds_do_not_depend_on_the_order_of_rows() -> None:
    scores, labels = tied_rows()
    weight = np.random.default_rng(0).random(len(labels))
    order = np.random.default_rng(1).permutation(len(labels))
    for w in (None, weight):
        folds = Folds.of(scores, labels, 5, 0, w)
        moved = Folds.of(scores[order], labels[order], 5, 0, None if w is None else w[order])
        np.testing.assert_array_equal(moved.number, folds.number[order])


def test_folds_of_weighted_rows_are_those_of_repeated_rows() -> None:
    scores, labels = rows(150)
    weight = np.random.default_rng(0).integers(0, 4, len(labels))
    weighted = Folds.of(scores, labels, 5, 0, weight.astype(float)).number
    repeated = np.repeat(np.arange(len(labels)), weight)
    expected = Folds.of(scores[repeated], labels[repeated], 5, 0).number
    np.testing.assert_array_equal(weighted[repeated], expected)


def test_the_seed_decides_which_rows_share_a_fold() -> None:
    scores, labels = rows(150)
    assert (Folds.of(scores, labels, 5, 0).number != Folds.of(scores, labels, 5, 1).number).any()


def test_with_few_distinct_rows_folds_share_copies() -> None:
    scores = np.repeat(np.eye(4) * 3.0, 20, axis=0)
    labels = np.where(
        np.arange(80) % 5 == 0, np.tile(np.arange(4), 20), np.repeat(np.arange(4), 20)
    )
    folds = Folds.of(scores, labels, 5, seed=0)
    np.testing.assert_array_equal(np.bincount(folds.number), 16)
    assert "only 4 rows are distinct" in str(folds.note)
    assert Blend(("ts", "svs")).fit(scores, labels).notes_["folds"] == folds.note
    with pytest.warns(UserWarning, match="only 4 rows are distinct"):
        cordcal.PreservingCalibrator("ts", repair="lift").fit(scores, labels)


def test_every_training_part_has_two_classes() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 2))
    labels = np.zeros(60, dtype=int)
    # All rows of the second class are copies: held out together, none would be left.
    scores[40:], labels[40:] = scores[40], 1
    folds = Folds.of(scores, labels, 5, seed=0)
    for number in range(5):
        assert set(labels[folds.number != number]) == {0, 1}


def test_cross_fitted_numbers_are_those_of_fold_models() -> None:
    scores, labels = rows(60)
    folds = Folds.of(scores, labels, 3, seed=0)
    original = CheckedScores.from_scores(scores, "logits")
    held_out = cross_fit_any(lambda: make("vs"), original, labels, None, folds)
    out = folds.number == 1
    report = make("vs").fit(scores[~out], labels[~out]).predict_proba(scores[out])
    at = np.arange(out.sum())
    prediction = scores[out].argmax(axis=1)
    np.testing.assert_array_equal(held_out.likelihood[out], report[at, labels[out]])
    np.testing.assert_allclose(held_out.masses.mass[out], report[at, prediction], rtol=1e-14)
    np.testing.assert_allclose(held_out.masses.rest[out], 1.0 - report[at, prediction], rtol=1e-9)


def confident_rows(n: int = 1500, classes: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Rows with saturated probabilities, some exactly tied, and some wrong predictions."""
    scores, labels = rows(n, classes, seed=4)
    scores = np.round(8.0 * scores, 1)
    scores[::10] = np.round(0.2 * scores[::10])
    return scores, labels


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("draw", [rows, confident_rows])
@pytest.mark.parametrize("key", [*_MEMBERS, "ms", "cir", "ts-tva", "platt", "hts"])
def test_folds_near_the_fit_on_all_rows_are_as_good_as_cold_ones(
    key: str, draw, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_base, "MIN_ENTRIES_TO_SHARE", 1)
    scores, labels = draw()
    weight = np.random.default_rng(9).integers(0, 3, len(labels)) * 1.0 if weighted else None
    original = CheckedScores.from_scores(scores, "logits")
    folds = Folds.of(scores, labels, 5, 0, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # confident rows are separable for some maps
        fitted = make(key).fit(scores, labels, sample_weight=weight)
        near = cross_fit(fitted, folds.rows(original, labels, weight))
        cold = cross_fit_any(lambda: make(key), original, labels, weight, folds)
    first, second = (np.log(np.maximum(x.likelihood, 1e-12)) for x in (near, cold))
    assert abs(np.average(first - second, weights=weight)) < 3e-6
    assert np.abs(near.masses.mass - cold.masses.mass).mean() < 3e-6


def test_fits_on_all_rows_do_not_depend_on_folds() -> None:
    scores, labels = confident_rows()
    blend = Blend().fit(scores, labels)
    for key, member in blend.members_.items():
        seen = log_probabilities(scores) if key == "vs" else scores
        expected = make(key).fit(seen, labels).predict_proba(seen)
        np.testing.assert_array_equal(member.predict_proba(seen), expected)


@pytest.mark.parametrize("draw", [rows, confident_rows])
def test_shares_are_those_of_cold_folds(draw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_base, "MIN_ENTRIES_TO_SHARE", 1)
    scores, labels = draw()
    scores = log_probabilities(scores)
    blend = Blend().fit(scores, labels)
    original = CheckedScores.from_scores(scores, "logits")
    folds = Folds.of(original.comparable(), labels, 5, 0)
    cold = np.stack(
        [
            cross_fit_any(partial(make, key), original, labels, None, folds).likelihood
            for key in blend.members_
        ]
    )
    mixed = -np.log(blend.weights_ @ cold).mean()
    assert mixed == pytest.approx(blend.objective_, abs=1e-5)
    # No other shares of the cold folds are better, up to what the pseudo-rows cost anyway.
    sizes = np.array([make(key).size.at(scores.shape[1]) for key in blend.members_])
    errors = float((scores.argmax(axis=1) != labels).sum())
    prior = _prior(sizes <= 4, errors) + 5.0 * _rating(cold, np.ones(len(labels)))
    best = best_shares(cold, np.ones(len(labels)), prior)
    assert best.loss == pytest.approx(blend.objective_, abs=1e-5)
    np.testing.assert_allclose(best.shares, blend.weights_, atol=1e-3)


# The calibrator.


def test_a_blend_is_the_sum_of_its_members() -> None:
    scores, labels = rows()
    blend = Blend(members=("ts", "vs", "irova")).fit(scores, labels)
    logs = log_probabilities(scores)
    parts = [
        member.predict_proba(logs if key == "vs" else scores)
        for key, member in blend.members_.items()
    ]
    expected = sum(share * part for share, part in zip(blend.weights_, parts, strict=True))
    np.testing.assert_allclose(blend.predict_proba(scores), expected, rtol=1e-15)
    assert blend.gap_ <= 1e-10
    mixed = blend.held_out_
    assert -np.log(mixed.likelihood).mean() == pytest.approx(blend.objective_, rel=1e-12)
    np.testing.assert_allclose(mixed.masses.mass + mixed.masses.rest, 1.0, rtol=1e-14)


def test_shared_steps_do_not_change_a_bit() -> None:
    scores, labels = rows()
    blend = Blend().fit(scores, labels)
    for temperature in (blend.members_["svs"].temperature_, 3.0):
        blend.members_["svs"].temperature_ = temperature
        for count in (1, 7, len(scores)):
            parts = [
                m.predict_proba(
                    log_probabilities(scores[:count]) if key == "vs" else scores[:count]
                )
                for key, m in blend.members_.items()
            ]
            expected = parts[0] * blend.weights_[0]
            for share, part in zip(blend.weights_[1:], parts[1:], strict=True):
                expected += part * share
            np.testing.assert_array_equal(blend.predict_proba(scores[:count]), expected)


def test_a_seed_decides_everything() -> None:
    scores, labels = rows()
    first, again, other = (Blend(("ts", "vs"), seed=seed).fit(scores, labels) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.weights_, again.weights_)
    assert (first.weights_ != other.weights_).all()


def test_members_follow_the_number_of_classes() -> None:
    blend = Blend()
    assert {"sms", "dir-odir"} <= set(blend._keys(100, 1000))
    assert "sms" in blend._keys(200, 1000)
    assert "dir-odir" not in blend._keys(101, 1000)
    assert "sms" not in blend._keys(1000, 1000)


def test_fewer_rows_than_classes_have_fewer_members() -> None:
    assert Blend()._keys(100, 100) == Blend()._keys(100, 5000)
    assert Blend()._keys(100, 99) == ("ts", "ets", "mono", "irova", "irm")
    scores, labels = rows(30, 20)
    # Weights count rows: with weight 2 there are enough.
    once, twice = (Blend().fit(scores, labels, sample_weight=np.full(30, w)) for w in (0.5, 2.0))
    assert "sms" not in {*once.members_, *once.notes_}
    assert "sms" in {*twice.members_, *twice.notes_}


def test_a_share_below_half_a_percent_is_dropped() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=3000)
    # Logits that lean to one class: temperatures cannot correct that, vector scaling can.
    logits = 3.0 * np.eye(3)[labels] + rng.normal(size=(3000, 3)) + np.array([6.0, 0.0, 0.0])
    blend = Blend(("ts", "vs")).fit(logits, labels)
    assert list(blend.members_) == ["vs"]
    assert blend.notes_ == {"ts": "its share is below half a percent"}
    np.testing.assert_array_equal(blend.weights_, [1.0])


def test_the_order_of_rows_changes_only_rounding() -> None:
    scores, labels = rows(500)
    order = np.random.default_rng(2).permutation(len(labels))
    first = cordcal.PreservingCalibrator().fit(scores, labels)
    moved = cordcal.PreservingCalibrator().fit(scores[order], labels[order])
    assert list(first.calibrator_.members_) == list(moved.calibrator_.members_)
    np.testing.assert_allclose(
        moved.calibrator_.weights_, first.calibrator_.weights_, rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(
        moved.predict_proba(scores), first.predict_proba(scores), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("repair", ["cord", "lift"])
@pytest.mark.parametrize("calibrator", [None, "svs"])
def test_weight_two_is_the_row_twice(calibrator: Any, repair: str) -> None:
    scores, labels = rows(300)
    weight = np.random.default_rng(0).integers(0, 4, len(labels))
    repeated = np.repeat(np.arange(len(labels)), weight)
    model = cordcal.PreservingCalibrator(calibrator, repair=repair)
    weighted = model.fit(scores, labels, sample_weight=weight).predict_proba(scores)
    twice = model.fit(scores[repeated], labels[repeated]).predict_proba(scores)
    # Temperatures agree to about 1e-8; steep pieces of isotonic curves amplify that.
    np.testing.assert_allclose(weighted, twice, rtol=1e-5, atol=1e-6)


def test_repeated_rows_do_not_leak_into_the_held_out_ones() -> None:
    scores, labels = rows(1200, seed=5)
    fit, test = slice(0, 200), slice(200, None)
    once = cordcal.PreservingCalibrator().fit(scores[fit], labels[fit])
    tripled = cordcal.PreservingCalibrator().fit(
        np.tile(scores[fit], (3, 1)), np.tile(labels[fit], 3)
    )
    before, after = (
        cordcal.metrics.nll(model.predict_proba(scores[test]), labels[test])
        for model in (once, tripled)
    )
    assert after < 1.01 * before


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_a_model_file_keeps_every_member(kind: str, tmp_path) -> None:
    scores, labels = rows()
    if kind == "probabilities":
        scores = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    model = cordcal.PreservingCalibrator(input=kind).fit(scores, labels)
    cordcal.save(model, tmp_path / "model.safetensors")
    again = cordcal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(scores), model.predict_proba(scores))
    assert list(again.calibrator_.members_) == list(model.calibrator_.members_)
    assert again.construction_ == model.construction_


def test_masked_logits_leave_out_members_that_cannot_take_them() -> None:
    scores, labels = rows()
    masked = scores.copy()
    masked[np.arange(len(labels)), (labels + 1) % 4] = -np.inf
    blend = Blend(("ts", "vs", "irova-ts")).fit(masked, labels)
    assert "irova-ts" in blend.members_
    assert "contains −inf" in blend.notes_["vs"]
    assert np.isfinite(blend.predict_proba(masked)).all()


# Members that fail.


class Failing(TemperatureScaling):
    key, title, short = "failing", "Fails without row 0", "Failing"

    def fit_parameters(self, scores, labels, weight) -> None:
        if len(labels) < 400:
            raise ValueError("it wants all rows")
        super().fit_parameters(scores, labels, weight)


class Wandering(TemperatureScaling):
    key, title, short = "wandering", "Does not converge", "Wandering"
    size = Size(fixed=20)  # one of the simplest would be used all the same

    def fit_parameters(self, scores, labels, weight) -> None:
        super().fit_parameters(scores, labels, weight)
        self._warn("no optimum")


@pytest.fixture
def failing():
    for calibrator in (Failing, Wandering):
        register(calibrator)
    yield
    for calibrator in (Failing, Wandering):
        unregister(calibrator.key)


def test_members_that_fail_are_left_out_with_a_note(failing) -> None:
    scores, labels = rows(400)
    blend = Blend(("ts", "failing", "wandering")).fit(scores, labels)
    assert list(blend.members_) == ["ts"]
    assert blend.notes_ == {"failing": "it wants all rows", "wandering": "wandering: no optimum"}
    with refused("members", naming="failing: it wants all rows"):
        Blend(("failing",)).fit(scores, labels)


@pytest.mark.parametrize("errors", [0, 1])
def test_few_errors_do_not_leave_isotonic_curves_alone(errors: int) -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(10, size=1030)
    scores = 2.0 * rng.normal(size=(1030, 10))
    scores[np.arange(1030), labels] += 8.0
    fit, test = np.arange(30), np.arange(30, 1030)
    right = scores.argmax(axis=1) == labels
    labels[fit] = scores[fit].argmax(axis=1)
    if errors:
        labels[0] = (labels[0] + 1) % 10
    blend = Blend().fit(scores[fit], labels[fit])
    assert blend.weights_[list(blend.members_).index("ts")] > 0.2
    direct = blend.predict_proba(scores[test])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without errors there is no optimal temperature
        ts = make("ts").fit(scores[fit], labels[fit]).predict_proba(scores[test])
    assert right[test].mean() < 0.99
    assert cordcal.metrics.nll(direct, labels[test]) < 1.1 * cordcal.metrics.nll(ts, labels[test])


def test_members_without_an_optimum_serve_where_there_are_no_others(failing) -> None:
    scores, labels = rows(400)
    assert list(Blend(("wandering",)).fit(scores, labels).members_) == ["wandering"]


def test_doubted_rows_choose_the_same_members(failing) -> None:
    scores, labels = rows(400)
    wrong = (labels + 1) % 4
    alone = Blend(("ts", "vs", "wandering")).fit(scores, wrong)
    with pytest.warns(UserWarning, match="with labels − 1"):
        model = cordcal.PreservingCalibrator(Blend(("ts", "vs", "wandering"))).fit(scores, wrong)
    assert model.calibrator_.notes_ == alone.notes_
    np.testing.assert_array_equal(model.calibrator_.weights_, alone.weights_)


def test_a_constant_added_to_a_row_changes_nothing() -> None:
    scores, labels = rows(300)
    shift = 100.0 * np.random.default_rng(1).normal(size=(300, 1))
    model = cordcal.PreservingCalibrator().fit(scores, labels)
    assert "vs" in model.calibrator_.members_
    expected = model.predict_proba(scores)
    np.testing.assert_allclose(model.predict_proba(scores + shift), expected, rtol=0, atol=1e-9)
    again = cordcal.PreservingCalibrator().fit(log_probabilities(scores), labels)
    np.testing.assert_allclose(again.predict_proba(scores), expected, rtol=0, atol=1e-6)


def test_logits_of_any_finite_size() -> None:
    scores, labels = rows(200)
    for scale in (1e-3, 1e100, 1e307):
        model = cordcal.PreservingCalibrator().fit(scale * scores, labels)
        result = model.predict_proba(scale * scores)
        assert np.isfinite(result).all()
        assert (result.argmax(axis=1) == scores.argmax(axis=1)).all()


def test_without_errors_half_is_the_original() -> None:
    scores, _ = rows(200)
    original = CheckedScores.from_scores(scores, "logits").probabilities
    with pytest.warns(UserWarning, match="every prediction is right"):
        model = cordcal.PreservingCalibrator().fit(scores, scores.argmax(axis=1))
    shares = dict(zip(model.calibrator_.members_, model.calibrator_.weights_, strict=True))
    assert shares["ts"] == 0.5
    assert model.calibrator_.members_["ts"].temperature_ == 1.0
    assert model.calibrator_.weights_.sum() == pytest.approx(1.0)
    result = model.predict_proba(scores)
    assert (result[np.arange(200), scores.argmax(axis=1)] >= 0.5 * original.max(axis=1)).all()
    with pytest.warns(UserWarning, match="every prediction is right"):
        weighted = cordcal.PreservingCalibrator().fit(
            np.concatenate([scores, scores[:5]]),
            np.concatenate([scores.argmax(axis=1), (scores[:5].argmax(axis=1) + 1) % 4]),
            sample_weight=np.append(np.ones(200), np.zeros(5)),
        )
    np.testing.assert_allclose(weighted.predict_proba(scores), result, atol=1e-6)


def test_ties_larger_than_a_fold_are_divided() -> None:
    """As for a decision tree, whose largest leaf holds most of the rows."""
    rng = np.random.default_rng(0)
    leaf = rng.random(1000) < 0.8
    scores = np.where(leaf[:, None], [2.0, 0.0, -1.0], rng.normal(size=(1000, 3)))
    labels = rng.integers(3, size=1000)
    folds = Folds.of(scores, labels, 5, seed=0)
    held_out = np.bincount(folds.number[leaf], minlength=5)
    assert np.ptp(held_out) <= 5
    others = [
        np.unique(folds.number[(scores == row).all(axis=1)]).size for row in scores[~leaf][:20]
    ]
    assert others == [1] * 20
    shuffle = rng.permutation(1000)
    again = Folds.of(scores[shuffle], labels[shuffle], 5, seed=0).number
    for fold in range(5):  # the same rows up to copies
        first = np.sort(labels[leaf & (folds.number == fold)])
        second = np.sort(labels[shuffle][leaf[shuffle] & (again == fold)])
        np.testing.assert_array_equal(first, second)


# Rows that are hard to fit on.


@pytest.mark.parametrize(
    ("case", "doubt"),
    [
        ("fewer rows than folds", "only 4 rows"),
        ("a class of one row", None),
        ("every prediction right", "were these rows used for training"),
        ("every one wrong", "with labels − 1 it would be 100"),
    ],
)
def test_hard_rows_work(case: str, doubt: str | None) -> None:
    scores, labels = rows(120)
    if case == "fewer rows than folds":
        scores, labels = rows(4, 3, seed=1)
        labels = np.array([0, 1, 0, 1])
    elif case == "a class of one row":
        labels = np.where(labels == 3, 0, labels)
        labels[0] = 3
    elif case == "every prediction right":
        labels = scores.argmax(axis=1)
    else:
        labels = (scores.argmax(axis=1) + 1) % 4
    with nullcontext() if doubt is None else pytest.warns(UserWarning, match=doubt):
        model = cordcal.PreservingCalibrator().fit(scores, labels)
    report = model.predict_proba(scores)
    assert np.isfinite(report).all()
    assert (report.argmax(axis=1) == scores.argmax(axis=1)).all()
    assert model.calibrator_.weights_.sum() == pytest.approx(1.0)


def test_one_member_is_that_member() -> None:
    scores, labels = rows()
    blend = Blend(("svs",)).fit(scores, labels)
    np.testing.assert_array_equal(
        blend.predict_proba(scores), make("svs").fit(scores, labels).predict_proba(scores)
    )


@pytest.mark.parametrize(
    ("params", "argument", "fact"),
    [
        ({"members": ()}, "members", "()"),
        ({"members": "ts"}, "members", "'ts'"),
        ({"members": ("ts", "ts")}, "members", "'ts'"),
        ({"members": ("ts", "blend")}, "members", "'blend'"),
        ({"members": ("tz",)}, "calibrator", "'tz'"),
        ({"folds": 1}, "folds", "1"),
        ({"folds": 2.5}, "folds", "2.5"),
    ],
)
def test_invalid_parameters_raise(params, argument: str, fact: str) -> None:
    with refused(argument, naming=fact):
        Blend(**params).fit(*rows(400))


def test_labels_of_one_class_raise() -> None:
    with refused("labels", rows=[], naming="0"):
        Blend().fit(rows(400)[0], np.zeros(400, int))


def test_a_cache_fits_each_calibrator_once(monkeypatch) -> None:
    scores, labels = rows(100)
    original = CheckedScores.from_scores(scores, "logits")
    fit_cache = FitCache(original, labels, None, Folds.of(scores, labels, 5, 0))
    blend = Blend(("ts", "vs"))
    blend.fit_from(fit_cache)
    monkeypatch.setattr(
        Calibrator, "fit_checked", lambda *args, **kwargs: pytest.fail("fitted again")
    )
    again = Blend(("ts", "vs"))
    again.fit_from(fit_cache)
    np.testing.assert_array_equal(again.weights_, blend.weights_)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch, failing) -> None:
    monkeypatch.setattr(crossfit, "MIN_ENTRIES_TO_SHARE", 1)
    scores, labels = rows(400)
    fitted = []
    for threads in (1, 3):
        monkeypatch.setattr(crossfit, "default_threads", lambda count=threads: count)
        members = ("ts", "vs", "irova", "mono", "sms", "wandering", "failing")
        fitted.append(Blend(members).fit(scores, labels))
    first, second = fitted
    assert first.notes_ == second.notes_
    np.testing.assert_array_equal(first.weights_, second.weights_)
    np.testing.assert_array_equal(first.held_out_.likelihood, second.held_out_.likelihood)
    np.testing.assert_array_equal(first.predict_proba(scores), second.predict_proba(scores))


def test_threads_do_not_change_a_bit_of_a_prediction(
    monkeypatch: pytest.MonkeyPatch, thread_entries: Callable[[int], None]
) -> None:
    scores, labels = rows(400)
    blend = Blend().fit(scores, labels)
    monkeypatch.setattr(blend_module, "CACHED_ENTRIES", 64)
    thread_entries(64)
    predicted, names = [], set()
    original = TemperatureScaling.probabilities

    def recorded(cls: type, scores: np.ndarray, params: Any, *, xp: Any) -> np.ndarray:
        names.add(threading.current_thread().name)
        return original(scores, params, xp=xp)

    monkeypatch.setattr(TemperatureScaling, "probabilities", classmethod(recorded))
    for threads in (1, 3):
        monkeypatch.setattr(blend_module, "default_threads", lambda count=threads: count)
        predicted.append(blend.predict_proba(scores))
    assert len(names) > 1
    np.testing.assert_array_equal(*predicted)


def test_changed_attributes_change_the_prediction() -> None:
    scores, labels = rows(400)
    model = make("irova").fit(scores, labels)
    before = model.predict_proba(scores)
    model.knot_y_ = np.linspace(0.1, 0.9, model.knot_y_.size)
    changed = model.predict_proba(scores)
    assert (changed != before).any()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(scores), changed)


def test_a_fitted_blend_keeps_nothing_of_its_fits() -> None:
    scores, labels = rows(400)
    blend = Blend().fit(scores, labels)
    for model in (blend, *blend.members_.values(), make("dir-odir").fit(scores, labels)):
        assert not [name for name in vars(model) if name.startswith("_")]
    pickle.loads(pickle.dumps(blend))


def test_convergence_warnings_of_members_do_not_reach_the_caller(recwarn) -> None:
    scores, _ = rows(120)
    Blend().fit(scores, scores.argmax(axis=1))
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def without_class(seed: int = 0, absent: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=500)
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(500, 4))
    return logits[labels != absent], labels[labels != absent]


def cache_of(logits, labels, weight=None) -> FitCache:
    original = CheckedScores.from_scores(logits, "logits")
    return FitCache(original, labels, weight, Folds.of_rows(original, labels, 5, 0, weight))


def test_rows_of_every_class_get_no_pseudo_row() -> None:
    cache = cache_of(*without_class(absent=9))
    assert cache.with_absent_classes is cache


@pytest.mark.parametrize("repeat", [1, 2])
def test_the_pseudo_row_of_a_class_is_its_likeliest_row(repeat: int) -> None:
    logits, labels = without_class()
    exponentials = np.exp(logits)
    mass = exponentials[:, 2] / exponentials.sum(axis=1)
    top = int(mass.argmax())
    order = np.random.default_rng(1).permutation(repeat * len(labels))
    rows, truth = np.tile(logits, (repeat, 1))[order], np.tile(labels, repeat)[order]
    cache = cache_of(rows, truth, np.full(len(truth), 1.0 / repeat))
    extended = cache.with_absent_classes
    assert extended.original.rows == len(truth) + 1
    assert (extended.original.raw[-1] == logits[top]).all()
    assert extended.labels[-1] == 2
    assert extended.weight[-1] == pytest.approx(mass[top], rel=1e-12)
    copies = np.flatnonzero((rows == logits[top]).all(axis=1))
    assert (extended.folds.number[copies] == extended.folds.number[-1]).all()
    assert (extended.folds.number[:-1] == cache.folds.number).all()


def test_a_class_without_rows_is_not_impossible() -> None:
    logits, labels = without_class()
    blend = Blend().fit(logits, labels)
    assert blend.held_out_.likelihood.shape == labels.shape
    for key, member in blend.members_.items():
        # Without the pseudo-row it is 5e-8 for vs.
        assert member.predict_proba(np.array([[0.0, 0.0, 20.0, 0.0]]))[0, 2] > 0.2, key


def test_a_class_that_cannot_be_gets_no_pseudo_row() -> None:
    logits, labels = without_class()
    logits[:, 2] = -np.inf
    cache = cache_of(logits, labels)
    assert cache.with_absent_classes.original.rows == len(labels)


def test_many_classes_without_rows_count_as_one_row_at_most() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    logits = np.column_stack([4.0 * np.eye(3)[labels], np.zeros((60, 20))])
    logits += rng.normal(size=logits.shape)
    cache = cache_of(logits, labels).with_absent_classes
    assert cache.original.rows == 80
    assert 0.0 < cache.weight[60:].sum() <= 1.0
    assert (cache.weight[:60] == 1.0).all()


def test_all_labels_of_one_class_are_still_refused() -> None:
    logits, _ = without_class()
    with refused("labels"):
        Blend().fit(logits, np.zeros(len(logits), dtype=int))
