"""Process the parts of files on a Dask cluster.

Every worker must see the files under the same path.  Workers read and write the parts; only a
few numbers are sent.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client, Future, KilledWorker, Security
from distributed.comm import CommClosedError
from distributed.core import rpc
from distributed.utils import silence_logging_cmgr

from cordcal._errors import ClusterFailure, InputError

# Seconds to wait for a scheduler; a running one answers immediately.
_CONNECT_TIMEOUT = 10.0
# Seconds to wait for a result before the first check; each wait is twice the last.
_FIRST_WAIT = 2.0


@contextmanager
def on_cluster(
    address: str,
) -> Iterator[Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]]:
    """Yield a function that maps another over items on a cluster, in the items' order.

    Dask repeats the items of a worker that dies.  Failures it cannot recover from, such as the
    death of the scheduler, raise `ClusterFailure`; errors of the function are raised unchanged.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``tcp://10.0.0.1:8786``.
    """
    # Connection problems are raised as one error, so Dask need not log them.
    with silence_logging_cmgr(logging.CRITICAL):
        _check_scheduler(address)
        with _cluster_errors(address):
            client = Client(address, timeout=_CONNECT_TIMEOUT, set_as_default=False)
        try:

            def run(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
                with _cluster_errors(address):
                    # A task, not scattered data, which would be lost with its workers.
                    shared = client.submit(_identity, function, pure=False)
                    futures = [client.submit(_call, shared, item, pure=False) for item in items]
                try:
                    for number, future in enumerate(futures, 1):
                        with _cluster_errors(address, future, f"part {number} of {len(items)}"):
                            result = _wait_for(client, future, address)
                        yield result
                finally:
                    with suppress(Exception):
                        client.cancel([*futures, shared])

            yield run
        finally:
            # Closing contacts the scheduler, which may be gone.
            with suppress(Exception, asyncio.CancelledError):
                client.close()


def _check_scheduler(address: str) -> None:
    """Refuse an address without a scheduler, where a client might wait forever."""

    async def kind() -> Any:
        options = Security().get_connection_args("client")
        async with rpc(address, timeout=_CONNECT_TIMEOUT, connection_args=options) as server:
            return (await server.identity())["type"]

    async def kind_in_time() -> Any:
        return await asyncio.wait_for(kind(), _CONNECT_TIMEOUT)

    cause: Exception | None = None
    try:
        # In a separate thread, because a notebook runs an event loop in this one.
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: asyncio.run(kind_in_time())).result()
        if answer == "Scheduler":
            return
    except Exception as error:  # anything may answer there, in any protocol
        cause = error
    raise InputError(
        "scheduler",
        f"is {address!r}, where no scheduler answers",
        "pass the address that dask scheduler prints, such as tcp://10.0.0.1:8786",
    ) from cause


def _wait_for(client: Client, future: Future, address: str) -> Any:
    """Wait for a result without limit; warn while the cluster has no workers."""
    timeout = _FIRST_WAIT
    while True:
        try:
            return future.result(timeout=timeout)
        except TimeoutError:
            if future.status == "error":
                raise
        is_late = timeout > _FIRST_WAIT  # a restarting worker needs some seconds
        if is_late and future.status == "pending" and not client.nthreads():
            warnings.warn(f"{address} has no workers; waiting for one", stacklevel=2)
        timeout *= 2.0  # a large result takes time to transfer


@contextmanager
def _cluster_errors(
    address: str, future: Future | None = None, part: str = "the parts"
) -> Iterator[None]:
    """Raise failures of the cluster as `ClusterFailure`, and errors of the work unchanged."""
    try:
        yield
    except KilledWorker as error:
        raise ClusterFailure(
            "scheduler",
            f"is {address!r}, where {error.allowed_failures + 1} workers died at {part}, "
            "often because memory ran out",
            "read the workers' logs and run the command again",
        ) from error
    except (Exception, asyncio.CancelledError) as error:
        if not _is_lost(error, future):
            raise
        raise ClusterFailure(
            "scheduler",
            f"is {address!r}, to which the connection was lost",
            "check that it is running and run the command again",
        ) from error


def _is_lost(error: BaseException, future: Future | None) -> bool:
    """Return whether the connection failed, not the work or its serialisation."""
    if isinstance(error, CommClosedError | CancelledError | asyncio.CancelledError):
        return True
    if future is None:
        return isinstance(error, OSError) or type(error).__name__ == "ClosedClientError"
    return bool(future.status != "error")


def _identity(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return function


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)
