"""Where and how the engine runs: forks, threads, rows alone, other array libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, random_pair, with_zeros

from cordcal.repair import CORD, Lift, engine, rule

CASE = with_zeros(random_pair(3000, 12, noise=2.0))


def fit_and_repair() -> tuple[float, np.ndarray]:
    cord = CORD().fit(CASE.original, CASE.direct)
    return cord.eta_, cord.transform(CASE.original, CASE.direct)


# In a process of its own: other tests may have started JAX, which warns of every fork.
FORK_AFTER_USE = """
import multiprocessing, warnings
import numpy as np
import cordcal
from cordcal._numeric import parallel

rows = np.random.default_rng(0).dirichlet(np.ones(12), size=(2, 3000))

def fit_and_repair():
    cord = cordcal.CORD().fit(*rows)
    return cord.eta_, cord.transform(*rows)

def child(queue):
    queue.put((parallel.default_threads(), *fit_and_repair()))

parallel.THREAD_ENTRIES = 1000  # use the pool before the fork
eta, repaired = fit_and_repair()
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads, too
    process.start()
threads, child_eta, child_repaired = queue.get(timeout=60)
process.join()
assert threads == 1
assert child_eta == eta
np.testing.assert_array_equal(child_repaired, repaired)
"""


@pytest.mark.filterwarnings("ignore:.*sum to one only within")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_a_row_alone_has_the_bits_it_has_among_others(name: str, dtype: str) -> None:
    case = CASES[name]
    rows, classes = case.direct.shape
    labels = np.random.default_rng(0).integers(classes, size=rows)
    pair, prediction = (case.original, case.direct), case.prediction
    for repair in (
        CORD().fit(*pair, prediction=prediction),
        Lift().fit(*pair, labels, prediction=prediction),
        Lift("likelihood").fit(*pair, labels, prediction=prediction),
    ):
        together = repair.transform(*pair, prediction=prediction, dtype=dtype)
        alone = [
            repair.transform(
                *(part[row : row + 1] for part in pair),
                prediction=None if prediction is None else prediction[row : row + 1],
                dtype=dtype,
            )
            for row in range(rows)
        ]
        np.testing.assert_array_equal(np.concatenate(alone), together)


@pytest.mark.skipif(sys.platform == "win32", reason="fork of POSIX")
def test_fork_after_use() -> None:
    command = [sys.executable, "-W", "error", "-c", FORK_AFTER_USE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_eight_threads_at_once() -> None:
    eta, repaired = fit_and_repair()
    with ThreadPoolExecutor(8) as pool:
        results = [job.result() for job in [pool.submit(fit_and_repair) for _ in range(24)]]
    assert {scalar for scalar, _ in results} == {eta}
    assert all(np.array_equal(rows, repaired) for _, rows in results)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_the_rows(threads: int, thread_entries: Callable[[int], None]) -> None:
    thread_entries(1000)
    cord = CORD(threads=1).fit(CASE.original, CASE.direct)
    shared = CORD(threads=threads).fit(CASE.original, CASE.direct)
    assert shared.construction_ == cord.construction_
    np.testing.assert_array_equal(
        shared.transform(CASE.original, CASE.direct), cord.transform(CASE.original, CASE.direct)
    )


def test_memmap_and_data_frame(tmp_path: Path) -> None:
    import pandas as pd

    cord = CORD().fit(CASE.original, CASE.direct)
    expected = cord.transform(CASE.original, CASE.direct)
    np.save(tmp_path / "p.npy", CASE.original)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    np.testing.assert_array_equal(cord.transform(mapped, CASE.direct), expected)
    frame = pd.DataFrame(CASE.direct, columns=[f"class {i}" for i in range(12)])
    np.testing.assert_array_equal(cord.transform(CASE.original, frame), expected)


def assert_alike(cord: CORD, expected: CORD) -> None:
    """The same scalar except for rounding, and the same counts."""
    assert abs(cord.eta_ - expected.eta_) <= 1e-12 * max(1.0, abs(expected.eta_))
    for count in ("n", "n_changed", "n_at_lower", "n_at_upper"):
        assert getattr(cord.construction_, count) == getattr(expected.construction_, count)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"not quite normalised"}))
@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_libraries_agree(name: str, library: str) -> None:
    xp = pytest.importorskip(library)
    case = CASES[name]
    expected = CORD().fit(case.original, case.direct, prediction=case.prediction)
    p, q = xp.asarray(case.original), xp.asarray(case.direct)
    cord = CORD().fit(p, q, prediction=case.prediction)
    assert_alike(cord, expected)
    repaired = cord.transform(p, q, prediction=case.prediction)
    assert type(repaired) is type(q)
    assert repaired.dtype == q.dtype
    expected_rows = expected.transform(case.original, case.direct, prediction=case.prediction)
    np.testing.assert_allclose(np.asarray(repaired), expected_rows, rtol=0, atol=1e-12)
    explanation = cord.explain(p, q, prediction=case.prediction)
    by_numpy = expected.explain(case.original, case.direct, prediction=case.prediction)
    np.testing.assert_allclose(
        explanation.repaired_mass, by_numpy.repaired_mass, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("preserve", [1, 3, "ranking"])
def test_torch_gives_numpys_numbers(preserve: int | str, dtype: str) -> None:
    """Within 1e-12, rounded to the dtype; torch rounds to half precision by way of float32."""
    torch = pytest.importorskip("torch", reason="tensors need torch")
    case = random_pair(2000, 10, noise=2.0)
    p, q = (array.astype(dtype) for array in (case.original, case.direct))
    cord = CORD(preserve).fit(p, q)
    result = cord.transform(torch.asarray(p), torch.asarray(q)).numpy()
    expected = cord.transform(p, q)
    unit = 0.0 if dtype == "float64" else float(np.finfo(dtype).eps)
    np.testing.assert_allclose(result, expected, rtol=unit, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"not quite normalised"}))
def test_torch_narrow_dtypes_keep_the_prediction(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="tensors need torch")
    case = CASES[name]
    kind = getattr(torch, dtype)
    p, q = torch.asarray(case.original), torch.asarray(case.direct)
    cord = CORD().fit(p, q, prediction=case.prediction)
    repaired = cord.transform(p, q, prediction=case.prediction, dtype=kind)
    assert repaired.dtype == kind
    keep = torch.asarray(case.original.argmax(1) if case.prediction is None else case.prediction)
    rows = torch.arange(len(keep))
    masses = repaired[rows, keep].clone()
    repaired[rows, keep] = -1.0
    assert bool((masses > repaired.max(dim=1).values).all())


JAX = """
import os, sys
os.environ["JAX_ENABLE_X64"] = "{x64}"
import numpy as np
import jax.numpy as jnp
from cordcal import CORD
sys.path.insert(0, {folder!r})
from cases import CASES
# JAX compiles every operation for every shape, so a few cases stand for all.  Subnormal
# tails are not among them: XLA flushes such numbers to zero.
names = ["random K=5", "ties at the top", "prediction given"]
for name in (*names, "K=2", "all changed", "boundary rows") if {x64} else names:
    case = CASES[name]
    p, q = jnp.asarray(case.original), jnp.asarray(case.direct)
    wide = np.float64 if {x64} else np.float32
    assert p.dtype == wide
    cord = CORD().fit(p, q, prediction=case.prediction)
    repaired = cord.transform(p, q, prediction=case.prediction)
    assert repaired.dtype == wide
    keep = np.asarray(p).argmax(1) if case.prediction is None else case.prediction
    assert (np.asarray(repaired).argmax(1) == keep).all(), name
    expected = CORD().fit(np.asarray(p), np.asarray(q), prediction=case.prediction)
    wanted = expected.transform(np.asarray(p), np.asarray(q), prediction=case.prediction)
    error = np.abs(np.asarray(repaired, dtype=float) - wanted).max()
    assert error <= (1e-13 if {x64} else 1e-5), (name, error)
print("same")
"""


@pytest.mark.parametrize("x64", [0, 1])
def test_jax(x64: int) -> None:
    pytest.importorskip("jax")
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", JAX.format(x64=x64, folder=str(folder))],
        env={**os.environ, "PYTHONPATH": str(folder.parents[1] / "src"), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("same")


def test_mixed_libraries_are_refused() -> None:
    torch = pytest.importorskip("torch", reason="tensors need torch")
    with pytest.raises(TypeError, match="pass one kind"):
        CORD().fit(torch.asarray(CASE.original), CASE.direct)


def test_tensors_that_require_gradients() -> None:
    torch = pytest.importorskip("torch", reason="tensors need torch")
    case = CASES["random K=5"]
    p, q = torch.tensor(case.original), torch.tensor(case.direct, requires_grad=True)
    cord = CORD().fit(p, q)
    repaired = cord.transform(p, q)
    assert repaired.requires_grad
    expected = cord.transform(case.original, case.direct)
    np.testing.assert_allclose(repaired.detach().numpy(), expected, rtol=1e-12)


def test_calls_that_overlap_in_time_do_not_share_memory() -> None:
    """A thread reuses the memory of blocks, but not while a block is in use."""
    case = random_pair(300, 7, noise=2.0)
    first = engine.described_blocks(case.original, case.direct, None)
    block = next(first)
    tail = block.part.tail.copy()
    second = next(engine.described_blocks(case.direct, case.original, None))
    assert not np.shares_memory(block.part.tail, second.part.tail)
    np.testing.assert_array_equal(block.part.tail, tail)


def test_the_engine_describes_rows_as_the_specification_does() -> None:
    case = with_zeros(random_pair(300, 7, noise=2.0))
    keep = case.original.argmax(axis=1)
    moved = case.direct.argmax(axis=1) != keep
    state, part = rule.row_state(case.original, case.direct, keep, moved)
    (block,) = engine.described_blocks(case.original, case.direct, None)
    for expected, described in ((state, block.state), (part, block.part)):
        for field in fields(expected):
            values = getattr(expected, field.name)
            if values is not None:
                np.testing.assert_allclose(
                    getattr(described, field.name), values, rtol=1e-14, err_msg=field.name
                )
