"""Work on files, part by part, on the machines of a cluster.

The files lie where every worker sees them under the same path; parts are read and written by
the workers, and a few numbers travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cordcal._door.errors import Refusal

# How long to wait for a scheduler: one that is there answers at once.
_PATIENCE = "10s"


@contextmanager
def on_cluster(
    address: str,
) -> Iterator[Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]]:
    """Yield what calls a function for each item on a cluster, in the items' order.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``tcp://10.0.0.1:8786``.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise Refusal(
            "scheduler",
            f"is {address!r}, where none answers",
            "pass the address that dask scheduler prints, such as tcp://10.0.0.1:8786",
        ) from error
    with client:

        def run(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            shared = client.scatter(function, broadcast=True)
            futures = [client.submit(_called, shared, item, pure=False) for item in items]
            try:
                for future in futures:
                    yield future.result()
            finally:
                client.cancel(futures)

        yield run


def _called(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)
