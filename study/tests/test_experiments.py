"""The chapters of the experiments, from cells made by hand."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cordcal_study.cells import Cell, Fit, Plan, Request
from cordcal_study.chapters import Chapter, Part, Table
from cordcal_study.data import Rows, SetData
from cordcal_study.experiments import CELL_EXPERIMENTS, ablations, effects, rivals
from cordcal_study.specs import SetSpec, Shifted, Study
from cordcal_study.tidy import tidy_rows

NAMES = (
    "accuracy",
    "nll",
    "nll_1e-10",
    "nll_1e-6",
    "brier",
    "ece",
    "ece_equal_mass",
    "smooth_ece",
    "tpcr",
    "mean_gap",
)


def plan_of(classes: int = 3, sets: int = 2, **study: object) -> Plan:
    rows = Rows(np.zeros((8, classes)), np.zeros(8, dtype=np.int64))
    specs = tuple(SetSpec(f"net {index}", "G", Path("x.npz")) for index in range(sets))
    options = {"calibrators": ("vs", "ms"), "rivals": ("ts",), "seeds": (0, 1), **study}
    return Plan(
        Study("t", specs, **options),  # type: ignore[arg-type]
        {("G", spec.name): SetData("logits", rows, None, {}).facts() for spec in specs},
    )


def cells_of(asked: list[Request], value) -> dict[Fit, Cell]:
    """Return cells whose measures are ``value(fit, repair, measure)``."""
    cells: dict[Fit, Cell] = {}
    for request in asked:
        cell = cells.setdefault(request.fit, Cell())
        cell.measures.setdefault(request.evaluation, {}).update(
            {
                repair: {name: value(request.fit, repair, name) for name in NAMES}
                for repair in request.repairs
            }
        )
    return cells


def chapter_of(key: str, plan: Plan, value) -> Chapter:
    experiment = CELL_EXPERIMENTS[key]
    requests = experiment.requests(plan)
    rows = tidy_rows(requests, cells_of(requests, value), experiment.measures)
    return experiment.chapter(plan, rows)


def column(table: Table, name: str) -> list[tuple[Part, ...]]:
    return [row[table.header.index(name)] for row in table.rows]


@pytest.mark.parametrize(
    ("classes", "features", "missing"),
    [
        (100, True, set()),
        (101, True, {"mcct-i"}),
        (1000, True, {"ms", "sms", "dir-odir", "venn-abers", "spline", "mcct-i"}),
        (10, False, {"adats"}),
    ],
)
def test_what_the_data_do_not_allow_is_left_out(
    classes: int, features: bool, missing: set[str]
) -> None:
    rows = Rows(np.zeros((8, classes)), np.zeros(8, dtype=np.int64))
    if features:
        rows = Rows(rows.scores, rows.labels, np.zeros((8, 2)))
    spec = SetSpec("net", "G", Path("x.npz"))
    plan = Plan(Study("t", (spec,)), {("G", "net"): SetData("logits", rows, None, {}).facts()})
    if find_spec("torch") is None:
        missing = missing | {"adats"}  # it is trained with torch
    assert set(plan.left_out(spec)) == missing
    assert not missing & {*plan.bases(spec), *plan.rivals(spec)}


def test_a_set_may_name_what_the_rules_leave_out() -> None:
    rows = Rows(np.zeros((8, 1000)), np.zeros(8, dtype=np.int64))
    spec = SetSpec("net", "G", Path("x.npz"), calibrators=("ms",))
    plan = Plan(Study("t", (spec,)), {("G", "net"): SetData("logits", rows, None, {}).facts()})
    assert plan.bases(spec) == ["ms"]
    assert "the study file does not name it" in plan.left_out(spec)["vs"]


def test_base_is_chosen_by_the_measure_or_by_ece() -> None:
    values = {
        ("vs", "direct"): {"ece": 0.01, "nll": 0.9, "ece_equal_mass": 0.05},
        ("ms", "direct"): {"ece": 0.02, "nll": 0.1, "ece_equal_mass": 0.03},
        ("vs", "cord"): {"ece": 0.03, "nll": 0.8, "ece_equal_mass": 0.06},
        ("ms", "cord"): {"ece": 0.04, "nll": 0.2, "ece_equal_mass": 0.02},
        ("ts", "direct"): {"ece": 0.05, "nll": 0.5, "ece_equal_mass": 0.07},
        ("uncalibrated", "direct"): {"ece": 0.9, "nll": 0.9, "ece_equal_mass": 0.9},
    }

    def value(fit: Fit, repair: str, name: str) -> float:
        return 0.0 if name == "tpcr" else values[fit.calibrator, repair].get(name, 0.5)

    chapter = chapter_of("rivals", plan_of(), value)
    errors, scores, complete = chapter.tables
    assert column(errors, "Base†")[0][0].text == "VS / MS"
    ece, equal_mass, _ = column(errors, "+ CORD")[0]
    assert (ece.text, ece.mark, ece.strong) == ("3.00", "worse", True)
    assert (equal_mass.text, equal_mass.mark) == ("2.00", "better")
    # By ECE alone it is vs, although ms has the lower NLL.
    assert column(scores, "Base†")[0][0].text == "VS"
    assert column(scores, "direct")[0][1].text == "0.9000"
    assert column(scores, "TS")[0][1].strong  # 0.5 is below 0.8
    assert column(complete, "VS")[0][0].strong
    assert column(complete, "MS")[1][0].strong
    assert "optimistic" in chapter.paragraphs[0]
    assert rivals.requests(plan_of(rival_groups=("G",))) == rivals.requests(plan_of())


def test_stars_and_daggers_follow_the_sign() -> None:
    plan = plan_of(sets=10)

    def value(fit: Fit, repair: str, name: str) -> float:
        sign = {"ece": 1.0, "nll": -1.0, "brier": 0.0}.get(name, 0.0)
        bump = 0.1 + 0.001 * int(fit.set.split()[1])
        return 1.0 + (sign * bump if repair.startswith("minimal") else 0.0)

    table = chapter_of("minimal", plan, value).tables[0]
    minimal, stabilised, cord = table.rows
    assert [part.stars for (part,) in stabilised[2:]] == ["***", "†††", ""]
    assert [part.stars for (part,) in minimal[2:]] == ["***", "†††", ""]
    assert [part.stars for (part,) in cord[2:]] == ["", "", ""]
    assert [part.strong for (part,) in cord[2:]] == [True, False, True]


def test_lambda_is_the_mean_over_conditions() -> None:
    def value(fit: Fit, repair: str, name: str) -> float:
        return {"direct": 0.5, "lambda 0": 0.4}.get(repair, 0.3) if name == "ece" else 1.0

    table = chapter_of("lambda", plan_of(), value).tables[0]
    assert [part.text for (part,) in column(table, "ΔECE (pp)")] == ["10.000", *["20.000"] * 6]
    assert [row[0][0].text for row in table.rows if row[0][0].strong] == ["0.5"]
    assert len(ablations.WEIGHTS) == 7


def test_paired_effects_and_their_dependence_on_tpcr() -> None:
    def value(fit: Fit, repair: str, name: str) -> float:
        if name == "tpcr":
            return {"vs": 0.01, "ms": 0.2}[fit.calibrator] if repair == "direct" else 0.0
        gain = {"vs": 0.001, "ms": 0.1}[fit.calibrator]
        return 1.0 - (gain if repair == "cord" else 0.0)

    by_group, by_unit, by_tpcr = chapter_of("paired", plan_of(), value).tables
    assert by_group.rows[0][1][0].text == "4 (2)"
    assert [row[1][0].text for row in by_unit.rows] == ["net 0", "net 1", "mean, t interval"]
    shown = column(by_group, "ΔECE (pp)")[0][0]
    assert shown.text.startswith("5.050 [")
    assert (shown.mark, shown.strong) == ("better", True)
    assert [part.text for (part,) in column(by_tpcr, "Conditions")] == ["0", "2", "0", "0", "2"]
    assert [entry[0].text for entry in column(by_tpcr, "ΔECE (pp)")] == [
        "–",
        "0.100",
        "–",
        "–",
        "10.000",
    ]
    assert set(effects.REDUCTIONS) == {"ece", "nll", "brier"}


def test_kinds_of_shift_are_averaged_only_where_each_has_every_severity() -> None:
    def families(*shifted: Shifted) -> list[str]:
        rows = Rows(np.zeros((8, 3)), np.zeros(8, dtype=np.int64))
        spec = SetSpec("net", "G", Path("x.npz"), shifted=shifted)
        data = SetData("logits", rows, None, {shift.name: rows for shift in shifted}).facts()
        plan = Plan(Study("t", (spec,), calibrators=("vs",), seeds=(0,)), {("G", "net"): data})
        chapter = chapter_of("shift", plan, lambda *_: 0.5)
        return [row[0][0].text for row in chapter.tables[0].rows]

    blur = [Shifted("blur", severity, Path("b.npz")) for severity in (1, 2)]
    noise = [Shifted("noise", severity, Path("n.npz")) for severity in (1, 2)]
    names = ["G, blur"] * 3 + ["G, noise"] * 3
    assert families(*blur, *noise) == ["G"] * 3 + names
    assert families(*blur, noise[0]) == ["G, blur"] * 3 + ["G, noise"] * 2


def test_what_stabilising_alone_gains_is_not_the_repairs() -> None:
    losses = {"direct": 0.5, "stabilised": 0.2, "cord": 0.1}
    effects = chapter_of("paired", plan_of(), lambda fit, repair, name: losses[repair]).tables[0]
    assert column(effects, "ΔNLL")[0][0].text.startswith("0.4000")
    assert column(effects, "ΔNLL, both stabilised")[0][0].text.startswith("0.1000")
    (table,) = chapter_of("floor", plan_of(), lambda fit, repair, name: losses[repair]).tables
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert row["stabilised alone"][0].text == "0.30000"
    assert row["both stabilised"][0].text == "0.10000"


def test_bold_asks_for_predictions_that_stayed() -> None:
    def value(fit: Fit, repair: str, name: str) -> float:
        if name == "tpcr":
            return 0.03 if fit.calibrator == "ts" else 0.0
        return {"ts": 0.1, "uncalibrated": 0.4}.get(fit.calibrator, 0.2)

    errors = chapter_of("rivals", plan_of(), value).tables[0]
    assert not any(part.strong for part in column(errors, "TS")[0])
    assert column(errors, "Uncal.")[0][0].text == "40.00"
    assert all(part.strong for part in column(errors, "+ CORD")[0])
