"""Dask collections: the numbers of the same rows in memory, whatever the blocks and scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cordcal import CORD, InputError, Lift, PreservingCalibrator, audit, metrics
from cordcal.repair.solve import ROUNDS
from errors import refused

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
SOURCE = Path(__file__).parents[2] / "src"

RNG = np.random.default_rng(0)
ROWS, CLASSES = 700, 6
ORIGINAL = RNG.dirichlet(np.ones(CLASSES), ROWS)
DIRECT = RNG.dirichlet(np.full(CLASSES, 0.5), ROWS)
PREDICTION = RNG.integers(0, CLASSES, ROWS)
LABELS = RNG.integers(0, CLASSES, ROWS)
WEIGHT = RNG.random(ROWS) * 10.0 ** RNG.integers(-3, 4, ROWS)
WEIGHT[:150] = 0.0

# Few rows and many blocks, uneven ones, classes cut apart, one block.
CHUNKS = [(10, CLASSES), ((1, 99, 600), CLASSES), (250, 2), (ROWS, CLASSES)]


@pytest.fixture(autouse=True)
def threads() -> object:
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def lazy(array: np.ndarray, chunks: object) -> object:
    return da.from_array(array, chunks=chunks)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("extras", [(), ("prediction", "sample_weight")])
@pytest.mark.parametrize("preserve", [1, 2])
def test_the_construction_is_that_in_memory(
    chunks: object, extras: tuple[str, ...], preserve: int
) -> None:
    extra = {"prediction": PREDICTION, "sample_weight": WEIGHT}
    columns = {name: extra[name] for name in extras}
    expected = CORD(preserve).fit(ORIGINAL, DIRECT, **columns)
    blocks = {name: lazy(column, 123) for name, column in columns.items()}
    result = CORD(preserve).fit(lazy(ORIGINAL, chunks), lazy(DIRECT, (300, 4)), **blocks)
    assert result.construction_ == expected.construction_
    levels = getattr(result.construction_, "levels", (result.construction_,))
    assert max(level.passes for level in levels) <= ROUNDS


def test_a_whole_ranking() -> None:
    expected = CORD("ranking").fit(ORIGINAL, DIRECT)
    result = CORD("ranking").fit(lazy(ORIGINAL, (90, 6)), lazy(DIRECT, (90, 6)))
    assert result.construction_ == expected.construction_
    repaired = result.transform(lazy(ORIGINAL, (70, 6)), lazy(DIRECT, (70, 6)))
    np.testing.assert_array_equal(repaired.compute(), expected.transform(ORIGINAL, DIRECT))


def test_more_levels_than_are_sent_out_are_constructed_in_memory() -> None:
    original, direct = RNG.dirichlet(np.ones(14), (2, 60))
    expected = CORD(12).fit(original, direct)
    result = CORD(12).fit(lazy(original, (25, 14)), lazy(direct, (25, 14)))
    assert result.construction_ == expected.construction_


def test_no_rows_travel_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    compute = dask.compute

    def watched(*collections: object, **options: object) -> object:
        results = compute(*collections, **options)
        sizes.extend(len(pickled) for pickled in map(pickle_of, results))
        return results

    def pickle_of(value: object) -> bytes:
        import pickle

        return pickle.dumps(value)

    monkeypatch.setattr("cordcal.dask._rows.dask.compute", watched)
    original, direct = RNG.dirichlet(np.ones(3), (2, 40_000))
    CORD().fit(lazy(original, (5_000, 3)), lazy(direct, (5_000, 3)))
    # A round's probes are some hundred numbers of a few hundred bytes; the rows were 2 MB.
    assert max(sizes) < 100_000


@pytest.mark.parametrize("dtype", [None, np.float32])
def test_transform_is_lazy_and_the_same(dtype: object) -> None:
    cord = CORD().fit(ORIGINAL, DIRECT, prediction=PREDICTION)
    repaired = cord.transform(
        lazy(ORIGINAL, (100, 3)), lazy(DIRECT, (70, 6)), prediction=PREDICTION, dtype=dtype
    )
    assert isinstance(repaired, da.Array)
    expected = cord.transform(ORIGINAL, DIRECT, prediction=PREDICTION, dtype=dtype)
    assert (repaired.dtype, repaired.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(repaired.compute(), expected)


@pytest.mark.parametrize("prefer", ["confidence", "likelihood"])
@pytest.mark.parametrize("dtype", [None, np.float32])
def test_lift_is_lazy_and_the_same(prefer: str, dtype: object) -> None:
    repair = Lift(prefer).fit(ORIGINAL, DIRECT, LABELS, prediction=PREDICTION)
    lifted = repair.transform(
        lazy(ORIGINAL, (100, 3)), lazy(DIRECT, (70, 6)), prediction=PREDICTION, dtype=dtype
    )
    assert isinstance(lifted, da.Array)
    expected = repair.transform(ORIGINAL, DIRECT, prediction=PREDICTION, dtype=dtype)
    np.testing.assert_array_equal(lifted.compute(), expected)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("extras", [(), ("prediction", "sample_weight")])
def test_lift_is_fitted_as_in_memory(chunks: object, extras: tuple[str, ...]) -> None:
    extra = {"prediction": PREDICTION, "sample_weight": WEIGHT}
    columns = {name: extra[name] for name in extras}
    expected = Lift().fit(ORIGINAL, DIRECT, LABELS, **columns)
    blocks = {name: lazy(column, 123) for name, column in columns.items()}
    result = Lift().fit(lazy(ORIGINAL, chunks), lazy(DIRECT, (300, 4)), lazy(LABELS, 77), **blocks)
    assert result.construction_ == expected.construction_


def test_lift_names_the_row_and_the_argument_of_a_block() -> None:
    labels = LABELS.copy()
    labels[333] = CLASSES
    reports = lazy(ORIGINAL, (100, 6)), lazy(DIRECT, (100, 6))
    with pytest.raises(InputError) as refusal:
        Lift().fit(*reports, lazy(labels, 100))
    assert refusal.value.argument == "labels"
    assert refusal.value.rows.tolist() == [333]
    with pytest.raises(InputError) as refusal:
        Lift().fit(*reports, LABELS, sample_weight=np.zeros(ROWS))
    assert refusal.value.argument == "sample_weight"
    with pytest.raises(InputError) as refusal:
        Lift().fit(*reports, LABELS, axis=1)
    assert refusal.value.argument == "axis"


@pytest.mark.parametrize("repair", [CORD(), Lift()])
def test_explain_refuses_collections(repair: CORD | Lift) -> None:
    repair.fit(ORIGINAL, DIRECT, *([LABELS] if isinstance(repair, Lift) else []))
    with pytest.raises(InputError) as refusal:
        repair.explain(lazy(ORIGINAL, (100, 6)), lazy(DIRECT, (100, 6)))
    assert "compute()" in refusal.value.hint


def test_a_lifted_model() -> None:
    logits = 2.0 * np.eye(CLASSES)[LABELS] + RNG.normal(size=(ROWS, CLASSES))
    model = PreservingCalibrator("svs", repair="lift").fit(logits, LABELS)
    result = model.predict_proba(lazy(logits, (90, 4)))
    np.testing.assert_array_equal(result.compute(), model.predict_proba(logits))


def test_preserved() -> None:
    logits = 2.0 * np.eye(CLASSES)[LABELS] + RNG.normal(size=(ROWS, CLASSES))
    model = PreservingCalibrator("vs").fit(logits, LABELS)
    result = model.predict_proba(lazy(logits, (90, 4)), dtype=np.float32)
    assert isinstance(result, da.Array)
    np.testing.assert_array_equal(result.compute(), model.predict_proba(logits, dtype=np.float32))
    direct = model.direct_proba(lazy(logits, (90, 4)))
    np.testing.assert_array_equal(direct.compute(), model.direct_proba(logits))
    named = PreservingCalibrator("ts", class_names=list("abcdef")).fit(logits, LABELS)
    decided = named.predict(lazy(logits, (90, 4)))
    assert (decided.shape, decided.dtype) == ((ROWS,), np.dtype("<U1"))
    np.testing.assert_array_equal(decided.compute(), named.predict(logits))
    with pytest.raises(ValueError, match="axis, prediction and context"):
        named.predict(lazy(logits, (90, 4)), axis=1)


@pytest.mark.parametrize(
    "name",
    ["accuracy", "nll", "brier", "ece", "ece_equal_mass", "smooth_ece", "classwise_ece"],
)
def test_measures(name: str) -> None:
    measure = getattr(metrics, name)
    expected = measure(DIRECT, LABELS, sample_weight=WEIGHT)
    result = measure(lazy(DIRECT, (80, 6)), lazy(LABELS, 33), sample_weight=lazy(WEIGHT, 100))
    assert result == pytest.approx(expected, rel=1e-12)
    holes = np.where(LABELS == 0, -1, LABELS)
    expected = measure(DIRECT, holes, ignore_index=-1)
    assert measure(lazy(DIRECT, (80, 6)), holes, ignore_index=-1) == pytest.approx(expected)


def test_changes() -> None:
    pair = lazy(ORIGINAL, (80, 6)), lazy(DIRECT, (33, 6))
    assert metrics.prediction_changes(*pair, LABELS) == metrics.prediction_changes(
        ORIGINAL, DIRECT, LABELS
    )
    assert metrics.topk_changes(*pair, 3) == metrics.topk_changes(ORIGINAL, DIRECT, 3)
    prediction = lazy(PREDICTION, 50)
    assert metrics.tpcr(prediction, pair[1]) == metrics.tpcr(PREDICTION, DIRECT)


def test_audit() -> None:
    expected = audit(ORIGINAL, DIRECT, LABELS, resamples=20).to_dict()
    result = audit(lazy(ORIGINAL, (80, 6)), lazy(DIRECT, (33, 6)), LABELS, resamples=20).to_dict()
    assert result.keys() == expected.keys()
    for name in ("n", "changes", "topk_changes", "by_class", "by_confidence", "rows", "eta"):
        assert result[name] == expected[name], name
    for one, other in zip(result["measures"], expected["measures"], strict=True):
        for key in ("original", "direct", "repaired", "difference"):
            assert one[key] == pytest.approx(other[key], abs=1e-12)


def test_data_frames() -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    original, direct = (dd.from_pandas(pd.DataFrame(x), npartitions=5) for x in (ORIGINAL, DIRECT))
    cord = CORD().fit(original, direct)
    assert cord.construction_ == CORD().fit(ORIGINAL, DIRECT).construction_
    repaired = cord.transform(original, direct).compute()
    np.testing.assert_array_equal(repaired, cord.transform(ORIGINAL, DIRECT))
    # Filtered partitions may be empty.
    some = [
        frame.map_partitions(lambda part: part[part.index < 100]) for frame in (original, direct)
    ]
    few = CORD().fit(*some)
    assert few.construction_ == CORD().fit(ORIGINAL[:100], DIRECT[:100]).construction_


def test_data_frames_in_models_measures_and_audits() -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    whole = pd.DataFrame(DIRECT).assign(label=LABELS, weight=WEIGHT)
    frame = dd.from_pandas(whole, npartitions=5)
    direct = frame[list(range(CLASSES))]
    original = dd.from_pandas(pd.DataFrame(ORIGINAL), npartitions=5)
    likely = np.where(np.arange(ROWS) % 3, ORIGINAL.argmax(axis=1), LABELS)
    model = PreservingCalibrator("irova", input="probabilities").fit(ORIGINAL, likely)
    result = model.predict_proba(original).compute()
    np.testing.assert_array_equal(result, model.predict_proba(ORIGINAL))
    np.testing.assert_array_equal(model.predict(original).compute(), ORIGINAL.argmax(axis=1))
    nll = metrics.nll(direct, frame["label"], sample_weight=frame["weight"])
    assert nll == pytest.approx(metrics.nll(DIRECT, LABELS, sample_weight=WEIGHT), rel=1e-12)
    assert metrics.tpcr(original, direct) == metrics.tpcr(ORIGINAL, DIRECT)
    seen = audit(original, direct, frame["label"], resamples=20)
    assert seen.changes == audit(ORIGINAL, DIRECT, LABELS, resamples=20).changes


def test_bad_rows_and_bad_blocks() -> None:
    bad = DIRECT.copy()
    bad[432, 1] = np.nan
    original, direct = lazy(ORIGINAL, (100, 6)), lazy(bad, (100, 6))
    with refused("direct", rows=[432], naming="NaN"):
        CORD().fit(original, direct)
    cord = CORD().fit(ORIGINAL, DIRECT)
    with refused("direct", rows=[432], naming="NaN"):
        cord.transform(original, direct).compute()
    with refused("probabilities", rows=[432], naming="NaN"):
        metrics.ece(direct, LABELS)
    with refused("direct", rows=[], naming=["699 rows", "original has 700"]):
        CORD().fit(original, lazy(DIRECT[:-1], (100, 6)))
    with pytest.raises(ValueError, match="zero in every row"):
        CORD().fit(original, lazy(DIRECT, (100, 6)), sample_weight=np.zeros(ROWS))


def test_dask_is_not_imported_for_arrays() -> None:
    code = (
        "import sys, numpy as np, cordcal\n"
        "p = np.full((4, 2), 0.5)\n"
        "cordcal.CORD().fit(p, p).transform(p, p)\n"
        "cordcal.metrics.ece(p, [0, 1, 0, 1])\n"
        "assert 'dask' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


def _kill_once(block: np.ndarray, flag: str) -> np.ndarray:
    """Kill the worker that holds this block, the first time it is made."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_dies_changes_nothing(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    expected = CORD().fit(ORIGINAL, DIRECT).construction_
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, distributed.Client(cluster), dask.config.set(scheduler=None):
        original, direct = lazy(ORIGINAL, (100, 6)), lazy(DIRECT, (100, 6))
        assert CORD().fit(original, direct).construction_ == expected

        # With its type passed, dask does not call the function here.
        meta = np.empty((0, 0))
        doomed = direct.map_blocks(_kill_once, flag=str(tmp_path / "killed"), meta=meta)
        result = CORD().fit(original, doomed)
        assert (tmp_path / "killed").exists()
        assert result.construction_ == expected

        # Now with the rows' state on the workers: one dies between two rounds.
        probes = []
        from cordcal.dask import _rows as adapter

        solve = adapter.solve_in_rounds

        def deadly(bounds: object, probe: object, **options: object) -> object:
            def counted(etas: object) -> object:
                probes.append(etas)
                if len(probes) == 2:
                    worker = next(iter(cluster.workers.values()))
                    os.kill(worker.pid, signal.SIGKILL)
                return probe(etas)  # type: ignore[operator]

            return solve(bounds, counted, **options)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adapter, "solve_in_rounds", deadly)
            assert CORD().fit(original, direct).construction_ == expected
        assert len(probes) >= 2
        repaired = result.transform(original, direct).compute()
        np.testing.assert_array_equal(repaired, result.transform(ORIGINAL, DIRECT))


def test_columns_of_frames_are_matched_by_name() -> None:
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    names = [f"c{at}" for at in range(DIRECT.shape[1])]
    original, direct = (
        dd.from_pandas(pd.DataFrame(x, columns=names), npartitions=3) for x in (ORIGINAL, DIRECT)
    )
    reordered = direct[names[::-1]]
    cord = CORD().fit(original, reordered)
    assert cord.eta_ == CORD().fit(original, direct).eta_
    repaired = cord.transform(original, reordered).compute()
    np.testing.assert_array_equal(repaired, cord.transform(original, direct).compute())
    labels = np.where(np.arange(ROWS) % 2, LABELS, ORIGINAL.argmax(axis=1))
    model = PreservingCalibrator("ts", input="probabilities").fit(
        pd.DataFrame(ORIGINAL, columns=names), labels
    )
    result = model.predict_proba(original[names[::-1]]).compute()
    np.testing.assert_array_equal(result, model.predict_proba(ORIGINAL))
