"""Blocks of rows kept in memory up to a limit, and in a temporary file beyond it."""

from __future__ import annotations

import pickle
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from typing import IO, Any, Generic, TypeVar

import numpy as np

Block = TypeVar("Block")
Other = TypeVar("Other")


class Shelf(Generic[Block]):
    """A list of blocks of which only the first ``limit`` bytes stay in memory.

    The rest lies in a temporary file that has no name where the system allows it, so that
    nobody else can read or write it; a block is read when its turn comes, and let go.

    Parameters
    ----------
    limit : int, optional
        Bytes to keep in memory; by default everything.

    Examples
    --------
    >>> import numpy as np
    >>> shelf = Shelf(limit=100)
    >>> for size in (5, 10, 20):
    ...     shelf.append(np.ones(size))
    >>> shelf.spilled, [int(block.sum()) for block in shelf]
    (2, [5, 10, 20])
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._held: list[Block] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._places: list[int] = []

    @property
    def spilled(self) -> int:
        """How many blocks lie in the file."""
        return len(self._places)

    def append(self, block: Block) -> None:
        """Add a block at the end."""
        if self.limit is None:
            self._held.append(block)
            return
        size = nbytes(block)
        if not self._places and self._bytes + size <= self.limit:
            self._held.append(block)
            self._bytes += size
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="cordcal-")  # noqa: SIM115 - lives with us
            weakref.finalize(self, self._file.close)
        self._places.append(self._file.seek(0, 2))
        pickle.dump(block, self._file, protocol=pickle.HIGHEST_PROTOCOL)

    def __len__(self) -> int:
        return len(self._held) + len(self._places)

    def __iter__(self) -> Iterator[Block]:
        yield from self._held
        for place in self._places:
            assert self._file is not None
            self._file.seek(place)
            yield pickle.load(self._file)

    def __getstate__(self) -> tuple[int | None, list[Block]]:
        return self.limit, list(self)

    def __setstate__(self, state: tuple[int | None, list[Block]]) -> None:
        limit, blocks = state
        self.__init__(limit)  # type: ignore[misc]
        for block in blocks:
            self.append(block)

    def beside(self, blocks: Iterable[Other]) -> Shelf[Other]:
        """Return another shelf of the same limit with these blocks."""
        shelf: Shelf[Other] = Shelf(self.limit)
        for block in blocks:
            shelf.append(block)
        return shelf


def nbytes(block: Any) -> int:
    """Return the bytes of the arrays in a dataclass or a tuple."""
    if isinstance(block, np.ndarray):
        return block.nbytes
    fields = getattr(block, "__dataclass_fields__", None)
    if fields is not None:
        return sum(nbytes(getattr(block, name)) for name in fields)
    return sum(map(nbytes, block)) if isinstance(block, tuple) else 0
