"""HDF5 files: data sets by their paths, read when they are asked for, in pieces if wanted.

Nothing in such a file is executed, but a data set may lie in another file: links out of
the file, external storage and virtual data sets are not followed.
"""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files._numpy import is_long
from cordcal.files.columns import ColumnSpec
from cordcal.files.contents import Contents, Lazy, array_contents
from cordcal.files.opening import InputFile, check_size, first_line, no_rows
from cordcal.files.sources import SAMPLE_ROWS, InMemorySource, Span, split_rows

MAGIC = b"\x89HDF\r\n\x1a\n"
# How a collection of text begins: signature, version, three reserved bytes.
_COLLECTION = b"GCOL\x01\x00\x00\x00"
# What h5py makes of damage, whatever the library below says.
_DAMAGE = (OSError, ValueError, RuntimeError, KeyError, TypeError, OverflowError)


class DataSets(Mapping[str, npt.NDArray[Any]]):
    """The data sets of a HDF5 file by their paths, each read when it is asked for.

    Numbers and text alone: compounds, references, numbers longer than doubles and data sets
    that lie in other files are left out.

    Parameters
    ----------
    name : str
        The file, for messages.
    opened : callable
        Opens the file.

    Examples
    --------
    >>> import h5py, tempfile
    >>> path = tempfile.mkdtemp() + "/outputs.h5"
    >>> with h5py.File(path, "w") as file:
    ...     file["cifar10/resnet/probas_test"] = np.full((5, 10), 0.1)
    >>> found = DataSets(path, lambda: open(path, "rb"))
    >>> dict(found.shapes), found["cifar10/resnet/probas_test"].max()
    ({'cifar10/resnet/probas_test': (5, 10)}, np.float64(0.1))
    """

    def __init__(self, name: str, opened: Callable[[], BinaryIO]) -> None:
        self._name, self._opened = name, opened

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each data set."""
        return {path: shape for path, (shape, _) in self._described.items()}

    def dtype(self, path: str) -> np.dtype[Any]:
        """Return the dtype of a data set."""
        found: np.dtype[Any] = self._described[path][1]
        return found

    @cached_property
    def _described(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        found: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}

        def note(path: str, entry: Any) -> None:
            if _is_plain(entry):
                found[path] = entry.shape, entry.dtype

        self._within(lambda file: file.visititems(note), "table of contents")
        return found

    def rows(self, path: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read some rows of a data set."""
        return self._read(path, slice(start, stop))

    def __getitem__(self, path: str) -> npt.NDArray[Any]:
        if path not in self._described:
            raise KeyError(path)
        shape, dtype = self._described[path]
        check_size(f"{self._name} ({path})", math.prod(shape) * dtype.itemsize)
        return self._read(path, ())

    def __iter__(self) -> Iterator[str]:
        return iter(self._described)

    def __len__(self) -> int:
        return len(self._described)

    def _read(self, path: str, where: Any) -> npt.NDArray[Any]:
        def read(file: Any) -> npt.NDArray[Any]:
            entry = file[path]
            if entry.dtype.kind not in "OS":
                return np.asarray(entry[where])
            if entry.dtype.kind == "O":
                self._check_text_heaps()
            return np.asarray(entry.asstr(errors="replace")[where], dtype=np.str_)

        found: npt.NDArray[Any] = self._within(read, f"data set {path!r}")
        return found

    def _check_text_heaps(self) -> None:
        """Raise on text storage in which libhdf5 would loop without end."""
        with self._opened() as plain:
            try:
                data: Any = mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError:  # not a file on the disk
                data = plain.read()
            if not all(_ends(data, match.start()) for match in re.finditer(_COLLECTION, data)):
                raise ValueError("text storage with an entry of no size")

    def _within(self, work: Callable[[Any], Any], what: str) -> Any:
        h5py = import_h5py()
        try:
            with self._opened() as plain, h5py.File(plain, "r") as file:
                return work(file)
        except InputError:
            raise
        except _DAMAGE as error:
            raise InputError(
                self._name,
                f"cannot be read as HDF5: its {what} is damaged ({first_line(error)})",
                "it may be cut short: write it anew",
            ) from error


def _ends(data: Any, start: int) -> bool:
    """Return whether every entry of a collection of text leads to a later one.

    After the signature and eight bytes of size come entries: a number, a size and the text.
    """
    end = min(start + int.from_bytes(data[start + 8 : start + 16], "little"), len(data))
    place = start + 16
    while place + 16 <= end:
        number = int.from_bytes(data[place : place + 2], "little")
        size = int.from_bytes(data[place + 8 : place + 16], "little")
        # Number 0 is free space, whose size counts its own header.
        step = size if number == 0 else 16 + -(-size // 8) * 8
        if step < 16:
            return False
        place += step
    return True


def _is_plain(entry: Any) -> bool:
    """Whether an entry is a data set of numbers or words that lies in this file."""
    h5py = import_h5py()
    if not isinstance(entry, h5py.Dataset) or entry.shape is None:
        return False
    if entry.is_virtual or entry.external:
        return False
    if is_long(entry.dtype):
        return False
    return entry.dtype.kind in "fiub" or h5py.check_string_dtype(entry.dtype) is not None


def import_h5py() -> Any:
    """Return h5py, or say how to get it."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "HDF5 files need h5py; install it with: pip install 'cordcal[hdf5]'"
        ) from error
    return h5py


class Hdf5Source(InMemorySource):
    """A HDF5 file, some rows of its data sets at a time."""

    def __init__(self, file: InputFile, spec: ColumnSpec) -> None:
        self.path, self._arrays = file.name, DataSets(file.name, file.open)
        super().__init__(array_contents(self.path, "hdf5", self._arrays, self._arrays.shapes))

    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the spans of a data set, known from its shape."""
        rows, *width = self._arrays.shapes[key]
        if not math.prod((rows, *width)):
            raise no_rows(f"{self.path} ({key})")
        return tuple(split_rows(rows, self._arrays.dtype(key).itemsize * math.prod(width)))

    def sample(self) -> Contents:
        """Return the first rows."""
        return self._rows(list(self._arrays), 0, SAMPLE_ROWS)

    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows; data sets have no other columns."""
        for start, stop in self.spans_of(keys[0])[first:]:
            yield self._rows(keys, start, stop)

    def _rows(self, keys: Sequence[str], start: int, stop: int) -> Contents:
        whole = self._contents
        matrices, vectors = (
            Lazy(
                [key for key in arrays if key in keys],
                lambda key: self._arrays.rows(key, start, stop),
            )
            for arrays in (whole.matrices, whole.vectors)
        )
        return replace(whole, matrices=matrices, vectors=vectors)
