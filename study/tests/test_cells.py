"""Cells: computed once, kept by content, extended by what is missing, right to the last bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cordcal import PreservingCalibrator, metrics
from cordcal.calibrators import calibrator_class
from cordcal.repair import CORD
from cordcal_study import cells
from cordcal_study.cells import UNCALIBRATED, Cell, Fit, Request, Task, compute, stored
from cordcal_study.data import CLEAN, load_set
from cordcal_study.repairs import (
    MinimalRepair,
    RankingProjection,
    VariantCORD,
    make_repair,
    weighted,
)
from cordcal_study.specs import SetSpec, Shifted
from cordcal_study.tidy import tidy_rows
from errors import refused

ROWS, CLASSES = 301, 4


@pytest.fixture
def spec(tmp_path: Path) -> SetSpec:
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=ROWS)
    for name, noise in (("clean", 2.0), ("shifted", 4.0)):
        logits = 3.0 * np.eye(CLASSES)[labels] + noise * rng.normal(size=(ROWS, CLASSES))
        np.savez(tmp_path / f"{name}.npz", logits=logits.astype(np.float32), labels=labels)
    shifted = (Shifted("noise", 3, tmp_path / "shifted.npz"),)
    return SetSpec("net", "g", tmp_path / "clean.npz", shifted=shifted)


def task(spec: SetSpec, key: str, requested: dict[str, tuple[str, ...]], **fit: float) -> Task:
    folder = spec.file.parent / "cells"
    made = Fit("g", "net", key, int(fit.get("seed", 0)), fit.get("fraction", 1.0))
    return Task(made, spec, load_set(spec).facts(), requested, folder)


def test_halves_are_disjoint_equal_and_nested(spec: SetSpec) -> None:
    data = load_set(spec)
    whole, part = data.calibration(3, 1.0), data.calibration(3, 0.4)
    held_out = data.evaluated(3, CLEAN)
    rows = {row.tobytes() for row in whole.scores}
    assert len(whole) == ROWS // 2
    assert len(part) == round(0.4 * len(whole))
    assert {row.tobytes() for row in part.scores} < rows
    assert not rows & {row.tobytes() for row in held_out.scores}
    assert len(whole) + len(held_out) == ROWS
    np.testing.assert_array_equal(data.evaluated(3, "noise 3").labels, held_out.labels)


def test_a_cell_holds_what_the_library_says(spec: SetSpec) -> None:
    cell = compute(task(spec, "irova", {CLEAN: ("direct", "cord"), "noise 3": ("direct", "cord")}))
    data = load_set(spec)
    calibration = data.calibration(0, 1.0)
    model = PreservingCalibrator("irova").fit(calibration.scores, calibration.labels)
    for name in (CLEAN, "noise 3"):
        rows = data.evaluated(0, name)
        outputs = model.predict_both(rows.scores, dtype=np.float64)  # as cells are measured
        for repair, output in (("direct", outputs.direct), ("cord", outputs.repaired)):
            result = cell.measures[name][repair]
            assert result["ece"] == metrics.ece(output, rows.labels)
            assert result["nll"] == metrics.nll(output, rows.labels)
            assert result["tpcr"] == metrics.tpcr(outputs.prediction, output)
        assert cell.measures[name]["cord"]["tpcr"] == 0.0 < cell.measures[name]["direct"]["tpcr"]
        assert cell.measures[name]["direct"]["mean_gap"] == 0.0


def test_every_repair_keeps_predictions_and_a_ranking_repair_rankings(spec: SetSpec) -> None:
    names = ("minimal", "target none", "lambda 0.1", "cord", "top 2", "top 5", "ranking")
    cell = compute(task(spec, "irova", {CLEAN: (*names, "projection")}))
    measured = cell.measures[CLEAN]
    assert {measures["tpcr"] for measures in measured.values()} == {0.0}
    assert measured["cord"]["ranking_changed"] > 0
    assert measured["top 2"]["top2_changed"] == 0.0
    assert measured["ranking"]["ranking_changed"] == measured["projection"]["ranking_changed"] == 0
    assert measured["top 5"] == measured["ranking"]  # there are four classes


def test_names_make_the_repairs_they_say() -> None:
    assert isinstance(make_repair("minimal", 3), MinimalRepair)
    assert isinstance(make_repair("projection", 3), RankingProjection)
    assert make_repair("lambda 0.3", 3).reference_weight == 0.3
    assert make_repair("target projected", 3).target == "projected"
    assert isinstance(make_repair("target none", 3), VariantCORD)
    assert make_repair("top 2", 3).preserve == 2
    assert make_repair("top 5", 3).preserve == make_repair("ranking", 9).preserve == "ranking"
    assert (type(make_repair("cord", 3)), make_repair("cord", 3).preserve) == (CORD, 1)
    assert weighted(0.5) == "cord"


def test_uncalibrated_is_the_original(spec: SetSpec) -> None:
    cell = compute(task(spec, UNCALIBRATED, {CLEAN: ("direct",)}))
    rows = load_set(spec).evaluated(0, CLEAN)
    result = cell.measures[CLEAN]["direct"]
    assert result["tpcr"] == 0.0
    assert result["accuracy"] == np.mean(rows.scores.argmax(axis=1) == rows.labels)


def test_nothing_is_computed_twice(spec: SetSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    first = task(spec, "vs", {CLEAN: ("direct",)})
    assert stored(first) is None
    before = compute(first)
    assert stored(first) == before

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(calibrator_class("vs"), "fit", refuse)
    more = replace(first, requested={CLEAN: ("direct", "cord")})
    assert stored(more) is None
    measured: list[str] = []
    original = cells.measure
    monkeypatch.setattr(
        cells, "measure", lambda name, *a, **k: measured.append(name) or original(name, *a, **k)
    )
    after = compute(more)  # from the stored map: only the missing repair
    assert measured == ["cord"]
    assert after.measures[CLEAN]["direct"] == before.measures[CLEAN]["direct"]
    assert stored(more) == after


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"measures": 3, "notes": []}', "\udcff", "[" * 10**5]
)
def test_a_damaged_cell_is_named(spec: SetSpec, text: str) -> None:
    one = task(spec, "vs", {CLEAN: ("direct",)})
    path = one.path(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with refused(naming=path.name):
        compute(one)


def test_the_address_is_made_of_the_content(spec: SetSpec, tmp_path: Path) -> None:
    one = task(spec, "vs", {CLEAN: ("direct",)})
    addresses = {
        one.address(),
        task(spec, "svs", {}).address(),
        task(spec, "vs", {}, seed=1).address(),
        task(spec, "vs", {}, fraction=0.5).address(),
        task(replace(spec, scale=2.0), "vs", {}).address(),
    }
    assert len(addresses) == 5
    # Another name, folder or set of repairs is the same content.
    copy = tmp_path / "elsewhere.npz"
    copy.write_bytes(spec.file.read_bytes())
    again = task(replace(spec, name="other", file=copy), "vs", {CLEAN: ("cord",)})
    assert again.address() == one.address()


def test_a_refusal_is_recorded_and_leaves_no_rows(spec: SetSpec) -> None:
    pytest.importorskip("torch", reason="adats refuses to fit without features once it has torch")
    asked = Request(Fit("g", "net", "adats", 0), CLEAN, ("direct",))
    cell = compute(task(spec, "adats", {CLEAN: ("direct",)}))
    assert cell.failure is not None
    assert "features" in cell.failure
    assert tidy_rows([asked], {asked.fit: cell}) == []
    assert isinstance(cell, Cell)
