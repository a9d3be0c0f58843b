"""HDF5 files: data sets by path, read on access, in pieces if needed.

Nothing in a file is executed, but a data set may be stored in another file: external links,
external storage and virtual data sets are not followed.
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

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray, NumPyDType
from cordcal.files._numpy import is_long
from cordcal.files.columns import ColumnSpec
from cordcal.files.disk import InputFile, check_size, first_line, no_rows
from cordcal.files.sources import (
    SAMPLE_ROWS,
    Contents,
    InMemorySource,
    Lazy,
    Span,
    array_contents,
    split_rows,
)

MAGIC: bytes = b"\x89HDF\r\n\x1a\n"
# How a collection of text begins: signature, version, three reserved bytes.
_COLLECTION = b"GCOL\x01\x00\x00\x00"
# What h5py raises for damaged files.
_DAMAGE = (OSError, ValueError, RuntimeError, KeyError, TypeError, OverflowError)


class DataSets(Mapping[str, NumPyArray]):
    """The data sets of an HDF5 file by path, each read on access.

    Numbers and text only: compounds, references, numbers longer than doubles and data sets
    stored in other files are omitted.

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
    >>> data_sets = DataSets(path, lambda: open(path, "rb"))
    >>> dict(data_sets.shapes), data_sets["cifar10/resnet/probas_test"].max()
    ({'cifar10/resnet/probas_test': (5, 10)}, np.float64(0.1))
    """

    def __init__(self, name: str, opened: Callable[[], BinaryIO]) -> None:
        self._name, self._opened = name, opened

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each data set."""
        return {path: shape for path, (shape, _) in self._shapes_and_dtypes.items()}

    def dtype(self, path: str) -> NumPyDType:
        """Return the dtype of a data set."""
        dtype: NumPyDType = self._shapes_and_dtypes[path][1]
        return dtype

    @cached_property
    def _shapes_and_dtypes(self) -> dict[str, tuple[tuple[int, ...], NumPyDType]]:
        described: dict[str, tuple[tuple[int, ...], NumPyDType]] = {}

        def add(path: str, entry: Any) -> None:
            if _is_supported(entry):
                described[path] = entry.shape, entry.dtype

        self._with_file(lambda file: file.visititems(add), "table of contents")
        return described

    def rows(self, path: str, start: int, stop: int) -> NumPyArray:
        """Read some rows of a data set."""
        return self._read(path, slice(start, stop))

    def __getitem__(self, path: str) -> NumPyArray:
        if path not in self._shapes_and_dtypes:
            raise KeyError(path)
        shape, dtype = self._shapes_and_dtypes[path]
        check_size(f"{self._name} ({path})", math.prod(shape) * dtype.itemsize)
        return self._read(path, ())

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes_and_dtypes)

    def __len__(self) -> int:
        return len(self._shapes_and_dtypes)

    def _read(self, path: str, where: Any) -> NumPyArray:
        def read(file: Any) -> NumPyArray:
            entry = file[path]
            if entry.dtype.kind not in "OS":
                return np.asarray(entry[where])
            if entry.dtype.kind == "O":
                self._check_text_heaps()
            return np.asarray(entry.asstr(errors="replace")[where], dtype=np.str_)

        values: NumPyArray = self._with_file(read, f"data set {path!r}")
        return values

    def _check_text_heaps(self) -> None:
        """Raise on text storage in which libhdf5 would loop without end."""
        with self._opened() as plain:
            try:
                data: Any = mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError:  # not a file on the disk
                data = plain.read()
            if not all(
                _entries_advance(data, match.start()) for match in re.finditer(_COLLECTION, data)
            ):
                raise ValueError("text storage with an entry of no size")

    def _with_file(self, work: Callable[[Any], Any], what: str) -> Any:
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
                "it may be truncated: write it again",
            ) from error


def _entries_advance(data: Any, start: int) -> bool:
    """Whether every entry of a text collection has a size, so that reading it ends.

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


def _is_supported(entry: Any) -> bool:
    """Whether an entry is a data set of numbers or text stored in this file."""
    h5py = import_h5py()
    if not isinstance(entry, h5py.Dataset) or entry.shape is None:
        return False
    if entry.is_virtual or entry.external:
        return False
    if is_long(entry.dtype):
        return False
    return entry.dtype.kind in "fiub" or h5py.check_string_dtype(entry.dtype) is not None


def import_h5py() -> Any:
    """Return h5py, or raise an error that explains how to install it."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "HDF5 files need h5py; install it with: pip install 'cordcal[hdf5]'"
        ) from error
    return h5py


class Hdf5Source(InMemorySource):
    """An HDF5 file, read in spans of rows."""

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
        contents = self._contents
        matrices, vectors = (
            Lazy(
                [key for key in arrays if key in keys],
                lambda key: self._arrays.rows(key, start, stop),
            )
            for arrays in (contents.matrices, contents.vectors)
        )
        return replace(contents, matrices=matrices, vectors=vectors)
