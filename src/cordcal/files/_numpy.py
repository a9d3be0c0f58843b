"""NumPy's own files: headers first, and of an archive only the arrays that are asked for."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files.opening import check_size, first_line

Value = TypeVar("Value")

# What a damaged, encrypted or foreign archive makes the libraries raise.
_DAMAGE = (
    ValueError,
    EOFError,
    OSError,
    RuntimeError,
    LookupError,
    OverflowError,
    SyntaxError,  # a header is read as Python's literals
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)


@dataclass(frozen=True)
class Header:
    """What the beginning of an array's file says of it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columnwise: bool
    offset: int

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO, name: str) -> Header:
    """Read the header of a npy file, and refuse what is no array of plain values."""
    form = np.lib.format
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    try:
        shape, columnwise, dtype = readers[form.read_magic(file)](file)
    except _DAMAGE as error:
        raise unreadable(name, error) from error
    if dtype.hasobject:
        raise unreadable(name, "it holds Python objects")
    if dtype.kind not in "fiubUS" or not dtype.itemsize or is_long(dtype):
        raise unreadable(name, f"its dtype is {dtype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise unreadable(name, f"its shape is {shape}")
    return Header(shape, dtype, columnwise, file.tell())


def is_long(dtype: np.dtype[Any]) -> bool:
    """Whether numbers are longer than doubles: how long depends on the machine."""
    return dtype.kind == "f" and dtype.itemsize > 8


def unreadable(name: str, why: object) -> InputError:
    """Say that a file is no whole array."""
    told = first_line(why) if isinstance(why, BaseException) else why
    return InputError(
        name,
        f"cannot be read as a NumPy file ({told})",
        "save whole, plain arrays of numbers",
    )


def read_array(file: BinaryIO, name: str) -> npt.NDArray[Any]:
    """Read a whole array, unless it says that it is too large."""
    start = file.tell()
    check_size(name, read_header(file, name).size)
    file.seek(start)
    try:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except _DAMAGE as error:
        raise unreadable(name, error) from error


class Archive(Mapping[str, npt.NDArray[Any]]):
    """The arrays of a npz file, each read when it is first asked for.

    Parameters
    ----------
    name : str
        The file, for messages.
    opened : callable
        Opens the file.
    """

    def __init__(self, name: str, opened: Callable[[], BinaryIO]) -> None:
        self._name, self._opened = name, opened
        self._read: dict[str, npt.NDArray[Any]] = {}

    @cached_property
    def headers(self) -> dict[str, Header | InputError]:
        """What each array's beginning says, or why it cannot be read."""
        found: dict[str, Header | InputError] = {}
        for member in self._within(lambda archive: archive.namelist(), "archive"):
            if member.endswith(".npy"):
                key = member.removesuffix(".npy")
                try:
                    found[key] = self._member(key, read_header)
                except InputError as refusal:
                    found[key] = refusal
        return found

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        if key not in self._read:
            self._read[key] = self._member(key, read_array)
        return self._read[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.headers)

    def __len__(self) -> int:
        return len(self.headers)

    def _member(self, key: str, read: Callable[[Any, str], Any]) -> Any:
        def work(archive: zipfile.ZipFile) -> Any:
            with archive.open(f"{key}.npy") as file:
                return read(file, f"{self._name} ({key})")

        return self._within(work, f"key {key!r}")

    def _within(self, work: Callable[[zipfile.ZipFile], Any], what: str) -> Any:
        try:
            with self._opened() as file, zipfile.ZipFile(file) as archive:
                return work(archive)
        except InputError:
            raise
        except _DAMAGE as error:
            raise InputError(
                self._name,
                f"is damaged, encrypted or no npz file: its {what} cannot be read "
                f"({first_line(error)})",
                "save plain arrays of numbers with numpy.savez, one column a class",
            ) from error


class _Named(Mapping[str, Value]):
    """Values under names that are known before any value is."""

    _keys: Sequence[str]

    @abstractmethod
    def _value(self, key: str) -> Value:
        """Return what has one of the names."""

    def __getitem__(self, key: str) -> Value:
        if key not in self._keys:
            raise KeyError(key)
        return self._value(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Chosen(_Named[npt.NDArray[Any]]):
    """Some of an archive's arrays, or some rows of them; nothing is read before it is asked for."""

    def __init__(
        self, whole: Mapping[str, npt.NDArray[Any]], keys: list[str], rows: slice | None = None
    ) -> None:
        self._whole, self._keys, self._rows = whole, keys, rows

    def _value(self, key: str) -> npt.NDArray[Any]:
        values = self._whole[key]
        return values if self._rows is None else values[self._rows]


class Lazy(_Named[Value]):
    """Values by name that a function makes when they are first asked for."""

    def __init__(self, keys: Iterable[str], read: Callable[[str], Value]) -> None:
        self._keys, self._read = tuple(keys), read
        self._held: dict[str, Value] = {}

    def _value(self, key: str) -> Value:
        if key not in self._held:
            self._held[key] = self._read(key)
        return self._held[key]


def in_memory(data: bytes) -> Callable[[], BinaryIO]:
    """Return what opens bytes that were read already."""
    return lambda: io.BytesIO(data)
