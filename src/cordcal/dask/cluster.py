"""Work on files, part by part, on the machines of a cluster.

The files lie where every worker sees them under the same path; parts are read and written by
the workers, and a few numbers travel.
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

# Seconds to wait for a scheduler: one that is there answers at once.
_PATIENCE = 10.0
# Seconds until the first look at a result that does not come; each wait is twice as long.
_FIRST_LOOK = 2.0


@contextmanager
def on_cluster(
    address: str,
) -> Iterator[Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]]:
    """Yield what calls a function for each item on a cluster, in the items' order.

    Dask does the items of a worker that dies again.  What it cannot mend, such as the death
    of the scheduler, is raised as `ClusterFailure`; an error of the function as it is.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``tcp://10.0.0.1:8786``.
    """
    # What Dask logs about connections is said in one sentence, or needs no saying.
    with silence_logging_cmgr(logging.CRITICAL):
        _check_scheduler(address)
        with _translated(address):
            client = Client(address, timeout=_PATIENCE, set_as_default=False)
        try:

            def run(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
                with _translated(address):
                    # A task, not scattered data, which would be lost with the workers that hold it.
                    shared = client.submit(_itself, function, pure=False)
                    futures = [client.submit(_called, shared, item, pure=False) for item in items]
                try:
                    for at, future in enumerate(futures, 1):
                        with _translated(address, future, f"part {at} of {len(items)}"):
                            result = _waited_for(client, future, address)
                        yield result
                finally:
                    with suppress(Exception):
                        client.cancel([*futures, shared])

            yield run
        finally:
            # Closing asks the scheduler, which may be gone.
            with suppress(Exception, asyncio.CancelledError):
                client.close()


def _check_scheduler(address: str) -> None:
    """Refuse an address without a scheduler, for which a client may wait without end."""

    async def kind() -> Any:
        options = Security().get_connection_args("client")
        async with rpc(address, timeout=_PATIENCE, connection_args=options) as server:
            return (await server.identity())["type"]

    async def kind_in_time() -> Any:
        return await asyncio.wait_for(kind(), _PATIENCE)

    cause: Exception | None = None
    try:
        # In a thread of its own: a notebook runs an event loop in this one.
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


def _waited_for(client: Client, future: Future, address: str) -> Any:
    """Return a result, however long it takes; warn while there is nobody who works on it."""
    seconds = _FIRST_LOOK
    while True:
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            if future.status == "error":
                raise
        is_late = seconds > _FIRST_LOOK  # a worker that starts again needs some seconds
        if is_late and future.status == "pending" and not client.nthreads():
            warnings.warn(f"{address} has no workers; waiting for one", stacklevel=2)
        seconds *= 2.0  # a large result needs its time to travel


@contextmanager
def _translated(
    address: str, future: Future | None = None, part: str = "the parts"
) -> Iterator[None]:
    """Raise what befell the cluster as a refusal, and errors of the work as they are."""
    try:
        yield
    except KilledWorker as error:
        raise ClusterFailure(
            "scheduler",
            f"is {address!r}, where {error.allowed_failures + 1} workers died at {part}, "
            "often for want of memory",
            "read the workers' logs and run the command again",
        ) from error
    except (Exception, asyncio.CancelledError) as error:
        if not _is_lost(error, future):
            raise
        raise ClusterFailure(
            "scheduler",
            f"is {address!r}, to which the connection was lost",
            "see that it runs and run the command again",
        ) from error


def _is_lost(error: BaseException, future: Future | None) -> bool:
    """Whether an error is about the connection, and not of the work or of what is sent."""
    if isinstance(error, CommClosedError | CancelledError | asyncio.CancelledError):
        return True
    if future is None:
        return isinstance(error, OSError) or type(error).__name__ == "ClosedClientError"
    return bool(future.status != "error")


def _itself(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return function


def _called(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)
