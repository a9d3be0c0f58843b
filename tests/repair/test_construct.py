"""`CORD.construct`: the scalar of all rows together, however they are cut and kept."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest

from cordcal import CORD
from cordcal.repair.construction import ConstructionState, SpilledBlocks
from errors import refused

RNG = np.random.default_rng(0)
ROWS, CLASSES = 900, 7
ORIGINAL = RNG.dirichlet(np.ones(CLASSES), ROWS)
DIRECT = RNG.dirichlet(np.full(CLASSES, 0.5), ROWS)
PREDICTION = RNG.integers(0, CLASSES, ROWS)
# Weights over seven orders of magnitude, and a first stretch without any.
WEIGHT = RNG.random(ROWS) * 10.0 ** RNG.integers(-3, 4, ROWS)
WEIGHT[:120] = 0.0


def batches(cuts: list[int], **columns: np.ndarray) -> list[dict[str, np.ndarray]]:
    return [
        {name: column[start:stop] for name, column in columns.items()}
        for start, stop in pairwise([0, *cuts, ROWS])
    ]


@pytest.mark.parametrize("spill_bytes", [None, 0, 20_000])
@pytest.mark.parametrize("preserve", [1, 3, "ranking"])
@pytest.mark.parametrize("extras", [(), ("prediction",), ("sample_weight",)])
def test_the_construction_is_that_of_fit(
    preserve: int | str, extras: tuple[str, ...], spill_bytes: int | None
) -> None:
    extra = {"prediction": PREDICTION, "sample_weight": WEIGHT}
    columns = {name: extra[name] for name in extras}
    fitted = CORD(preserve).fit(ORIGINAL, DIRECT, **columns)
    cut = batches([1, 100, 110, 640], original=ORIGINAL, direct=DIRECT, **columns)
    constructed = CORD(preserve).construct(iter(cut), spill_bytes=spill_bytes)
    assert constructed.construction_ == fitted.construction_
    np.testing.assert_array_equal(constructed.eta_, fitted.eta_)


def test_pairs_will_do() -> None:
    pairs = list(zip(np.split(ORIGINAL, 9), np.split(DIRECT, 9), strict=True))
    assert CORD().construct(pairs).eta_ == CORD().fit(ORIGINAL, DIRECT).eta_


def test_states_merge() -> None:
    first, second = ConstructionState(1, 1), ConstructionState(1, 1, 0)
    first.add(ORIGINAL[:200], DIRECT[:200], None, WEIGHT[:200])
    second.add(ORIGINAL[200:], DIRECT[200:], None, WEIGHT[200:])
    fitted = CORD().fit(ORIGINAL, DIRECT, sample_weight=WEIGHT)
    assert ConstructionState(1, 1).merge(second).merge(first).construct() == fitted.construction_


@pytest.mark.parametrize("preserve", [1, 2])
def test_states_that_travelled(preserve: int) -> None:
    parts = [
        pickle.loads(pickle.dumps(ConstructionState(preserve, 1, 0).add(p, q)))
        for p, q in zip(np.split(ORIGINAL, 9), np.split(DIRECT, 9), strict=True)
    ]
    result = CORD(preserve).merge_states(reversed(parts))
    assert result.construction_ == CORD(preserve).fit(ORIGINAL, DIRECT).construction_
    with refused("states", naming="3"):
        CORD(3).merge_states(parts)
    with refused("states"):
        CORD().merge_states([])


def test_a_bad_row_is_named_by_its_number_in_the_whole() -> None:
    bad = DIRECT.copy()
    bad[777, 2] = np.nan
    with refused("direct", rows=[777], naming="NaN"):
        CORD().construct(batches([300, 600], original=ORIGINAL, direct=bad))


@pytest.mark.parametrize(
    ("items", "argument", "naming"),
    [
        ([], "batches", "empty"),
        ([(ORIGINAL,)], "batches", "1"),
        ([{"original": ORIGINAL, "scores": DIRECT}], "batches", "'scores'"),
        (
            [(ORIGINAL, DIRECT), (ORIGINAL[:, :6], DIRECT[:, :6])],
            "direct",
            ["6 classes", "7"],
        ),
        ([(ORIGINAL, DIRECT), (ORIGINAL, DIRECT, PREDICTION)], "prediction", "row 900"),
        (
            [{"original": ORIGINAL, "direct": DIRECT, "sample_weight": np.zeros(ROWS)}],
            "sample_weight",
            "zero",
        ),
    ],
)
def test_bad_batches(items: list[object], argument: str, naming: str | list[str]) -> None:
    with refused(argument, naming=naming):
        CORD().construct(items)  # type: ignore[arg-type]


def test_blocks_are_spilled_in_order() -> None:
    blocks_on_disk: SpilledBlocks[np.ndarray] = SpilledBlocks(limit=1000)
    blocks = [np.full(size, float(size)) for size in (50, 60, 70, 5)]
    for block in blocks:
        blocks_on_disk.append(block)
    assert (
        blocks_on_disk.spilled == 2
    )  # 880 bytes fit, 560 more do not; the small one keeps its place
    for _ in range(2):
        for stored, block in zip(blocks_on_disk, blocks, strict=True):
            np.testing.assert_array_equal(stored, block)
