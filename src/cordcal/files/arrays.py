"""Files of named arrays: npy, npz, HDF5 and torch.

Headers are read first, arrays when they are needed, npy and HDF5 in spans of rows.  Nothing in a
file is executed, and data sets of HDF5 that are stored in other files are not followed.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import re
import struct
import tokenize
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray, NumPyDType
from cordcal._validation.scores import as_matrix
from cordcal.files.base import ColumnFile
from cordcal.files.columns import LABEL_NAMES, ColumnType, list_names
from cordcal.files.disk import InputFile, check_size, first_line

if TYPE_CHECKING:
    from torch import Tensor

CLASS_NAMES = ("class_names", "classes", "names")
_NPY = b"\x93NUMPY"
HDF5 = b"\x89HDF\r\n\x1a\n"
# Arrays on the disk are read in slices of at most this size.
_SLICE_BYTES = 2**24


class ArrayFile(ColumnFile):
    """A file of arrays by name; matrices hold scores, vectors anything else."""

    in_memory = False
    """Whether arrays are read whole."""

    def __init__(self, file: InputFile) -> None:
        self.path, self._file = file.name, file

    @property
    @abstractmethod
    def stored(self) -> Mapping[str, tuple[tuple[int, ...], NumPyDType]]:
        """The shape and the dtype of each array."""

    @abstractmethod
    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return an array, or some rows of it."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all matrices and vectors except the class names."""
        return {
            key: shape
            for key, (shape, _) in self.stored.items()
            if len(shape) in (1, 2) and key not in CLASS_NAMES
        }

    @property
    def matrices(self) -> list[str]:
        """The names of the matrices."""
        return [key for key, shape in self.shapes.items() if len(shape) == 2]

    @property
    def types(self) -> dict[str, ColumnType]:
        """Which arrays are matrices; vectors are never scores."""
        return {key: "list" if len(shape) == 2 else "other" for key, shape in self.shapes.items()}

    @cached_property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names stored in the file."""
        key = next((key for key in CLASS_NAMES if key in self.stored), None)
        return None if key is None else tuple(map(str, self.read(key).reshape(-1)))

    def listed(self) -> str:
        """Return the names and shapes of the arrays, for messages."""
        parts = [f"{name} {shape}" for name, shape in self.shapes.items()]
        return list_names(parts) if parts else "nothing that can be read as an array of numbers"

    def dtype(self, columns: Sequence[str]) -> NumPyDType:
        """Return the dtype of the scores."""
        return self._stored(columns[0])[1]

    def width(self, columns: Sequence[str]) -> int | None:
        """Return the number of classes."""
        return self._stored(columns[0])[0][1]

    def count(self, columns: Sequence[str]) -> int | None:
        """Return the number of rows."""
        return self._stored(columns[0])[0][0]

    def slices(self, columns: Sequence[str] | None) -> Iterator[ArraySlice]:
        """Yield some arrays of one length in slices of rows."""
        keys = list(columns or ())
        (rows, *width), dtype = self._stored(keys[0])
        for key in keys[1:]:
            if (length := self._stored(key)[0][0]) != rows:
                raise InputError(
                    self.path,
                    f"has {length} entries of {key} but {rows} rows of {keys[0]}",
                    "store one entry for each row",
                )
        row_bytes = math.prod(width) * dtype.itemsize
        size = rows if self.in_memory else _SLICE_BYTES // max(1, row_bytes)
        for start in range(0, rows, max(1, size)):
            stop = min(start + max(1, size), rows)
            yield ArraySlice({key: self.read(key, start, stop) for key in keys}, self.path)

    def _stored(self, key: str) -> tuple[tuple[int, ...], NumPyDType]:
        if key not in self.shapes:
            raise InputError(
                self.path, f"has no key or column called {key!r}", f"it has {self.listed()}"
            )
        return self.stored[key]


@dataclass(frozen=True, eq=False)
class ArraySlice:
    """Some rows of arrays, and the file that they are from."""

    arrays: Mapping[str, NumPyArray]
    path: str

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def matrix(self, columns: Sequence[str]) -> NumPyArray:
        """Return a matrix of scores."""
        return np.asarray(as_matrix(self.arrays[columns[0]], f"{self.path} ({columns[0]})"))

    def numbers(self, name: str) -> NumPyArray:
        """Return a vector."""
        return self.arrays[name]

    def values(self, name: str) -> NumPyArray:
        """Return a vector."""
        return self.arrays[name]


def open_arrays(file: InputFile) -> ArrayFile | None:
    """Open a file of arrays, recognised by its first bytes; None for other files."""
    head = file.head(64)
    if head.startswith(_NPY):
        return NpyFile(file)
    if head.startswith(HDF5):
        return Hdf5File(file)
    if not head.startswith(b"PK"):
        return None
    members = _zip_members(file)
    if any(name.endswith("/data.pkl") for name in members):
        return TorchFile(file)
    if "xl/workbook.xml" in members:
        raise InputError(file.name, "is an Excel workbook", "save the sheet as CSV")
    return NpzFile(file)


def _zip_members(file: InputFile) -> list[str]:
    try:
        with file.open() as opened, zipfile.ZipFile(opened) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return []


# NumPy.

# What the libraries raise for damaged, encrypted or foreign archives.
_DAMAGED_NUMPY = (
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
    """The header of an npy file."""

    shape: tuple[int, ...]
    dtype: NumPyDType
    columnwise: bool
    offset: int

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO, name: str) -> Header:
    """Read the header of an npy file; refuse arrays of anything but numbers and text."""
    form = np.lib.format
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    try:
        shape, columnwise, dtype = readers[form.read_magic(file)](file)
    except _DAMAGED_NUMPY as error:
        raise unreadable_error(name, error) from error
    if dtype.hasobject:
        raise unreadable_error(name, "it holds Python objects")
    if dtype.kind not in "fiubUS" or not dtype.itemsize or is_long(dtype):
        raise unreadable_error(name, f"its dtype is {dtype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise unreadable_error(name, f"its shape is {shape}")
    return Header(shape, dtype, columnwise, file.tell())


def is_long(dtype: NumPyDType) -> bool:
    """Whether numbers are longer than doubles: how long depends on the machine."""
    return dtype.kind == "f" and dtype.itemsize > 8


def unreadable_error(name: str, why: object) -> InputError:
    """Return the error for a file that is not a complete array."""
    reason = first_line(why) if isinstance(why, BaseException) else why
    return InputError(
        name,
        f"cannot be read as a NumPy file ({reason})",
        "save whole, plain arrays of numbers",
    )


def read_array(file: BinaryIO, name: str) -> NumPyArray:
    """Read an array, unless it is larger than the limit."""
    start = file.tell()
    check_size(name, read_header(file, name).size)
    file.seek(start)
    try:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except _DAMAGED_NUMPY as error:
        raise unreadable_error(name, error) from error


class NpyFile(ArrayFile):
    """One array, called ``array``; read without a memory map, which would count as memory."""

    format = "npy"

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)
        with file.open() as opened:
            self._header = read_header(opened, self.path)
            size = opened.seek(0, os.SEEK_END) - self._header.offset
        if size < self._header.size:
            reason = f"it is truncated: {size:,} bytes instead of {self._header.size:,}"
            raise unreadable_error(self.path, reason)

    @property
    def stored(self) -> Mapping[str, tuple[tuple[int, ...], NumPyDType]]:
        """The shape and the dtype of the array."""
        return {"array": (self._header.shape, self._header.dtype)}

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return the array, or some rows of it."""
        (rows, *width), dtype, offset = self._header.shape, self._header.dtype, self._header.offset
        count = (rows if stop is None else min(stop, rows)) - start
        columns = math.prod(width)
        check_size(self.path, count * columns * dtype.itemsize)
        with self._file.open() as file:
            if self._header.columnwise and width:
                values = np.empty((count, columns), dtype)
                for column in range(columns):
                    file.seek(offset + (column * rows + start) * dtype.itemsize)
                    values[:, column] = _read_numbers(file, dtype, count)
                return values
            file.seek(offset + start * columns * dtype.itemsize)
            return _read_numbers(file, dtype, count * columns).reshape(count, *width)


def _read_numbers(file: BinaryIO, dtype: NumPyDType, count: int) -> NumPyArray:
    values = np.empty(count, dtype)
    if count:
        file.readinto(values.view(np.uint8).data)  # type: ignore[attr-defined]
    return values


class NpzFile(ArrayFile):
    """An archive of arrays, each read once, when it is needed."""

    format = "npz"
    in_memory = True

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)
        self._read: dict[str, NumPyArray] = {}
        self._headers: dict[str, Header] = {}
        refused: dict[str, InputError] = {}
        for member in self._with_archive(lambda archive: archive.namelist(), "archive"):
            if member.endswith(".npy"):
                key = member.removesuffix(".npy")
                try:
                    self._headers[key] = self._member(key, read_header)
                except InputError as error:
                    refused[key] = error
        if not self._headers and not refused:
            raise InputError(
                self.path,
                "is a zip archive without arrays",
                "pass an npz file that numpy.savez wrote, or a file of another format",
            )
        # Python objects under a name we do not need, such as fold names, do no harm.
        has_matrix = any(len(header.shape) == 2 for header in self._headers.values())
        for key, refusal in refused.items():
            if not has_matrix or key in (*LABEL_NAMES, *CLASS_NAMES):
                raise refusal

    @property
    def stored(self) -> Mapping[str, tuple[tuple[int, ...], NumPyDType]]:
        """The shape and the dtype of each array."""
        return {key: (header.shape, header.dtype) for key, header in self._headers.items()}

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return an array, or some rows of it."""
        if key not in self._read:
            self._read[key] = self._member(key, read_array)
        return self._read[key][start:stop]

    def _member(self, key: str, read: Callable[[Any, str], Any]) -> Any:
        def work(archive: zipfile.ZipFile) -> Any:
            with archive.open(f"{key}.npy") as file:
                return read(file, f"{self.path} ({key})")

        return self._with_archive(work, f"key {key!r}")

    def _with_archive(self, work: Callable[[zipfile.ZipFile], Any], what: str) -> Any:
        try:
            with self._file.open() as file, zipfile.ZipFile(file) as archive:
                return work(archive)
        except InputError:
            raise
        except _DAMAGED_NUMPY as error:
            raise InputError(
                self.path,
                f"is damaged, encrypted or not an npz file: its {what} cannot be read "
                f"({first_line(error)})",
                "save plain arrays of numbers with numpy.savez, one column per class",
            ) from error


def npy_header(dtype: NumPyDType, rows: int, classes: int) -> bytes:
    """Return the header of an npy file; NumPy leaves room for the number of rows to grow."""
    described = np.lib.format.dtype_to_descr(dtype)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": described, "fortran_order": False, "shape": (rows, classes)}
    )
    return buffer.getvalue()


# HDF5.

# How a collection of text begins: signature, version, three reserved bytes.
_COLLECTION = b"GCOL\x01\x00\x00\x00"
# What h5py raises for damaged files.
_DAMAGED_HDF5 = (OSError, ValueError, RuntimeError, KeyError, TypeError, OverflowError)


class Hdf5File(ArrayFile):
    """The data sets of an HDF5 file by path.

    Numbers and text only: compounds, references, numbers longer than doubles and data sets
    stored in other files are omitted.

    Examples
    --------
    >>> import h5py, tempfile
    >>> path = tempfile.mkdtemp() + "/outputs.h5"
    >>> with h5py.File(path, "w") as file:
    ...     file["cifar10/resnet/probas_test"] = np.full((5, 10), 0.1)
    >>> file = Hdf5File(InputFile(path))
    >>> file.shapes, file.read("cifar10/resnet/probas_test", 0, 2).shape
    ({'cifar10/resnet/probas_test': (5, 10)}, (2, 10))
    """

    format = "hdf5"

    @cached_property
    def stored(self) -> Mapping[str, tuple[tuple[int, ...], NumPyDType]]:
        """The shape and the dtype of each data set."""
        described: dict[str, tuple[tuple[int, ...], NumPyDType]] = {}

        def add(path: str, entry: Any) -> None:
            if _is_supported(entry):
                described[path] = entry.shape, entry.dtype

        self._with_file(lambda file: file.visititems(add), "table of contents")
        return described

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return a data set, or some rows of it."""
        shape, dtype = self.stored[key]
        count = (shape[0] if stop is None else min(stop, shape[0])) - start
        check_size(f"{self.path} ({key})", count * math.prod(shape[1:]) * dtype.itemsize)
        rows = slice(start, start + count)

        def work(file: Any) -> NumPyArray:
            entry = file[key]
            if entry.dtype.kind not in "OS":
                return np.asarray(entry[rows])
            if entry.dtype.kind == "O":
                self._check_text_heaps()
            return np.asarray(entry.asstr(errors="replace")[rows], dtype=np.str_)

        values: NumPyArray = self._with_file(work, f"data set {key!r}")
        return values

    def _check_text_heaps(self) -> None:
        """Raise on text storage in which libhdf5 would loop without end."""
        with self._file.open() as plain:
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
            with self._file.open() as plain, h5py.File(plain, "r") as file:
                return work(file)
        except InputError:
            raise
        except _DAMAGED_HDF5 as error:
            raise InputError(
                self.path,
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
    if not isinstance(entry, h5py.Dataset) or not entry.shape:
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
        raise ImportError("HDF5 files need h5py; install it with: pip install h5py") from error
    return h5py


# torch.

# What torch raises for damaged and foreign archives.
_DAMAGED_TORCH = (
    pickle.UnpicklingError,
    RuntimeError,
    ValueError,
    OSError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ImportError,
    OverflowError,
    zipfile.BadZipFile,
)


class TorchFile(ArrayFile):
    """The tensors of a file, and its lists of strings; read whole."""

    format = "torch"
    in_memory = True

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)
        arrays, words = read_tensors(file.name, file.open)
        if not arrays:
            raise InputError(file.name, "holds no tensors", "save tensors, or a dictionary of them")
        self._arrays = {**arrays, **{key: np.array(text) for key, text in words.items()}}

    @property
    def stored(self) -> Mapping[str, tuple[tuple[int, ...], NumPyDType]]:
        """The shape and the dtype of each tensor."""
        return {key: (array.shape, array.dtype) for key, array in self._arrays.items()}

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return a tensor, or some rows of it."""
        return self._arrays[key][start:stop]


def read_tensors(
    name: str, opened: Callable[[], BinaryIO]
) -> tuple[dict[str, NumPyArray], dict[str, tuple[str, ...]]]:
    """Return the arrays of a file by name, and its lists of strings.

    Names are the keys of a dictionary, joined by slashes if nested; entries of a list are
    numbered.  Only zip archives are read: the older format cannot be read without running it.
    """
    torch = _import_torch()
    try:
        with opened() as file, zipfile.ZipFile(file) as archive:
            check_size(name, sum(member.file_size for member in archive.infolist()))
        with opened() as file:
            stored = torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except _DAMAGED_TORCH as error:
        raise InputError(
            name,
            f"cannot be read as tensors alone ({_short_reason(error)})",
            "save plain tensors, or a dictionary of them, with torch.save",
        ) from error
    arrays: dict[str, NumPyArray] = {}
    words: dict[str, tuple[str, ...]] = {}
    size = 0
    for key, value in _entries(stored, "array"):
        if isinstance(value, torch.Tensor):
            where = f"{name} ({key})"
            # An expanded or sparse tensor takes far more memory as an array than in the file.
            size += _size(torch, value, where)
            check_size(where, size)
            arrays[key] = _array(torch, value, where)
        elif _are_words(value):
            words[key] = tuple(value)
        elif isinstance(value, list | tuple) and value and _are_numbers(value):
            arrays[key] = np.asarray(value)
    return arrays, words


def _entries(stored: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(stored, Mapping):
        for key, value in stored.items():
            inner = str(key)
            nested = isinstance(value, Mapping)
            yield from (
                (f"{inner}/{key}" if nested else key, entry)
                for key, entry in _entries(value, inner)
            )
    elif isinstance(stored, list | tuple) and not _are_words(stored) and not _are_numbers(stored):
        yield from ((str(at), value) for at, value in enumerate(stored))
    else:
        yield name, stored


def _are_words(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(entry, str) for entry in value)
    )


def _are_numbers(value: Any) -> bool:
    return all(isinstance(entry, int | float) for entry in value)


def _size(torch: ModuleType, tensor: Tensor, where: str) -> int:
    """Return the bytes of a tensor as an array; refuse a tensor without plain values."""
    for what, is_unsupported in (
        ("a meta tensor, which has no values", tensor.is_meta),
        ("a quantized tensor", tensor.is_quantized),
        ("a nested tensor", tensor.is_nested),
    ):
        if is_unsupported:
            raise _not_plain_error(where, f"is {what}")
    # NumPy has no floats of one byte; they are read as float32.
    itemsize = max(4, tensor.element_size()) if _numpy_lacks_dtype(torch, tensor) else None
    return int(tensor.numel()) * int(itemsize or tensor.element_size())


def _numpy_lacks_dtype(torch: ModuleType, tensor: Tensor) -> bool:
    """Whether NumPy lacks a float dtype: bfloat16 and float8 are converted to float32."""
    known = (torch.float16, torch.float32, torch.float64)
    return bool(tensor.is_floating_point()) and tensor.dtype not in known


def _array(torch: ModuleType, tensor: Tensor, where: str) -> NumPyArray:
    try:
        plain = tensor.detach().to_dense().resolve_conj().resolve_neg()
        return np.asarray((plain.float() if _numpy_lacks_dtype(torch, plain) else plain).numpy())
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        raise _not_plain_error(
            where, f"cannot be read as an array ({_short_reason(error)})"
        ) from error


def _not_plain_error(where: str, reason: str) -> InputError:
    return InputError(where, reason, "save a plain tensor of numbers, as tensor.float() returns")


def _short_reason(error: BaseException) -> str:
    """Return the reason of an error without torch's long advice."""
    text = str(error)
    mark = "WeightsUnpickler error:"
    reason = text.partition(mark)[2].strip() if mark in text else text
    return first_line(Exception(reason)).split(". Please")[0][:200]


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise ImportError("torch files need torch; install it with: pip install torch") from error
    return torch
