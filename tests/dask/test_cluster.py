"""Failures of a cluster: the same results, or one error that explains how to continue."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal

distributed = pytest.importorskip("distributed", reason="a cluster needs Dask")

from distributed.comm import CommClosedError  # noqa: E402

from cordcal.cli import main  # noqa: E402
from cordcal.dask import cluster as cluster_module  # noqa: E402

PARTS = 4


def new_cluster(**options: Any) -> Any:
    return distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=60, **options
    )


@pytest.fixture(scope="module")
def threads() -> Iterator[str]:
    with new_cluster(processes=False, protocol="tcp") as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write a model and scores in parts; return the command that applies it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(200, 3))
    cordcal.save(cordcal.PreservingCalibrator("ts").fit(logits, labels), "m.safetensors")
    Path("s").mkdir()
    for at, rows in enumerate(np.split(logits, PARTS)):
        np.save(f"s/{at}.npy", rows)
    return ["apply", "m.safetensors", "s", "--quiet", "--output"]


def outputs(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def killed_worker() -> Exception:
    return distributed.KilledWorker("task", None, 3)


LOSSES = {
    "comm": lambda: CommClosedError("Stream is closed"),
    "cancelled": CancelledError,
    "loop": asyncio.CancelledError,
    "refused": ConnectionRefusedError,
    "closed": lambda: RuntimeError("Client is closed"),
    "killed": killed_worker,
}


@pytest.mark.parametrize(
    ("stage", "loss"), [("submit", "comm"), *(("first", loss) for loss in LOSSES), ("last", "comm")]
)
def test_a_loss_at_any_stage_is_one_sentence_and_resumed(
    threads: str,
    job: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    loss: str,
) -> None:
    numbers = itertools.count(1)

    def failing(method: Any, at: int) -> Any:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            if next(numbers) == at:
                raise LOSSES[loss]()
            return method(self, *arguments, **options)

        return call

    assert main([*job, "here"]) == 0
    run = [*job, "there", "--scheduler", threads]
    with monkeypatch.context() as patch:
        if stage == "submit":
            submit = distributed.Client.submit
            patch.setattr(distributed.Client, "submit", failing(submit, 2))
        else:
            result = failing(distributed.Future.result, 1 if stage == "first" else PARTS)
            patch.setattr(distributed.Future, "result", result)
        code = main(run)
    errors = capsys.readouterr().err
    assert code == 2, errors
    assert len(errors.splitlines()) == 1
    assert f"{PARTS - 1 if stage == 'last' else 0} of {PARTS} parts are complete" in errors
    assert "--resume" in errors
    assert main([*run, "--resume"]) == 0
    assert outputs("there") == outputs("here")


def test_groups_are_read_on_the_workers(
    threads: str, job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=3000)
    logits = 3.0 * np.eye(3)[labels] + rng.normal(size=(3000, 3))
    kind = np.where(np.arange(3000) % 2, "pdf", "photo")
    model = cordcal.load("m.safetensors")
    model.certify(logits, labels, 0.1, by=kind)
    cordcal.save(model, "m.safetensors")
    Path("g").mkdir()
    for at in range(2):
        kinds = ["pdf", "photo", "fax", ""]
        np.savez(f"g/{at}.npz", logits=logits[4 * at : 4 * at + 4], kind=kinds)
    apply = ["apply", "m.safetensors", "g", "--groups", "kind", "--output"]
    assert main([*apply, "here"]) == 0
    assert main([*apply, "there", "--scheduler", threads]) == 0
    assert outputs("there").keys() == outputs("here").keys()
    for at in range(2):
        with np.load(f"here/{at}.npz") as here, np.load(f"there/{at}.npz") as there:
            np.testing.assert_array_equal(here["act"], there["act"])
            expected = model.accepts(logits[4 * at : 4 * at + 4], groups=kinds)
            np.testing.assert_array_equal(here["act"], expected)
    assert capsys.readouterr().err.count("not certified in 4 of 8 rows") == 2


def test_an_error_of_the_work_is_raised_as_it_is(threads: str) -> None:
    def work(item: int) -> None:
        raise [FileNotFoundError("x"), TimeoutError("y"), cordcal.InputError("a", "b", "c")][item]

    for at, kind in enumerate((FileNotFoundError, TimeoutError, cordcal.InputError)):
        with cluster_module.on_cluster(threads) as run, pytest.raises(kind) as caught:
            list(run(work, [at]))
        assert not isinstance(caught.value, cluster_module.ClusterFailure)


def test_a_function_that_cannot_be_sent_is_not_a_lost_connection(threads: str) -> None:
    lock = threading.Lock()

    def work(item: int) -> bool:
        return lock.locked()

    # Not a ClusterFailure, which is a ValueError.
    with cluster_module.on_cluster(threads) as run, pytest.raises(TypeError):
        list(run(work, [0]))


def test_without_workers_it_warns_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_FIRST_WAIT", 0.1)
    with new_cluster(processes=False, protocol="tcp") as cluster:
        cluster.scale(0)
        cluster.sync(cluster._correct_state)
        later = threading.Timer(1.0, cluster.scale, [1])
        with cluster_module.on_cluster(cluster.scheduler_address) as run:
            later.start()
            with pytest.warns(UserWarning, match="has no workers"):
                assert list(run(abs, [-1, -2])) == [1, 2]


def pid_and_square(item: int) -> tuple[int, int]:
    return os.getpid(), item**2


def test_a_worker_with_the_function_and_results_dies() -> None:
    with new_cluster() as cluster, cluster_module.on_cluster(cluster.scheduler_address) as run:
        results = run(pid_and_square, range(6))
        pid, _ = next(results)
        os.kill(pid, signal.SIGKILL)  # the only worker, with everything that it holds
        rest = list(results)
    assert [square for _, square in rest] == [1, 4, 9, 16, 25]
    assert {other for other, _ in rest} != {pid}


def test_the_scheduler_dies() -> None:
    with (
        new_cluster(processes=False, protocol="tcp") as cluster,
        cluster_module.on_cluster(cluster.scheduler_address) as run,
    ):
        results = run(abs, range(3))
        next(results)
        cluster.close()
        with pytest.raises(cluster_module.ClusterFailure) as caught:
            list(results)
    assert caught.value.argument == "scheduler"


@pytest.mark.parametrize("address", ["nowhere", "tcp://127.0.0.1", "tls://127.0.0.1:1", "silent"])
def test_an_address_without_a_scheduler(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_CONNECT_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        if address == "silent":  # something listens there and says nothing
            address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(cordcal.InputError) as caught, cluster_module.on_cluster(address):
            pass
    assert caught.value.argument == "scheduler"
    assert address in caught.value.reason


def test_inside_a_running_event_loop(threads: str) -> None:
    """A notebook runs one in the thread that calls."""

    async def cell() -> list[int]:
        with cluster_module.on_cluster(threads) as run:
            return list(run(abs, [-1, 2]))

    # In a thread: a browser test before this one may have left a loop running in the main thread.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(cell())).result() == [1, 2]
