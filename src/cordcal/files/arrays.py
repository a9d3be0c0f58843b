"""Files of named arrays: npy, npz, HDF5 and torch.

Headers are read first, arrays when they are needed, npy and HDF5 in spans of rows.  Nothing in a
file is executed, and data sets of HDF5 that are stored in other files are not followed.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import re
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray, NumPyDType
from cordcal._validation.scores import as_matrix
from cordcal.files.columns import LABEL_NAMES, ColumnType, list_names
from cordcal.files.disk import InputFile, check_size, reading
from cordcal.files.sources import ColumnFile

CLASS_NAMES = ("class_names", "classes", "names")
_NPY = b"\x93NUMPY"
HDF5 = b"\x89HDF\r\n\x1a\n"
# Arrays on the disk are read in slices of at most this size.
_SLICE_BYTES = 2**24


class ArrayFile(ColumnFile):
    """A file of arrays by name; matrices hold scores, vectors anything else.

    Attributes
    ----------
    stored : dict
        The shape and the dtype of each array.
    in_memory : bool
        Whether arrays are read whole.
    """

    stored: dict[str, tuple[tuple[int, ...], NumPyDType]]
    in_memory = False

    def __init__(self, file: InputFile) -> None:
        self.path, self._file, self.stored = file.name, file, {}

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
        return [key for key, kind in self.types.items() if kind == "list"]

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
        shape, dtype = self._stored(keys[0])
        rows = shape[0]
        for key in keys[1:]:
            if (length := self._stored(key)[0][0]) != rows:
                raise InputError(
                    self.path,
                    f"has {length} entries of {key} but {rows} rows of {keys[0]}",
                    "store one entry for each row",
                )
        size = rows if self.in_memory else _SLICE_BYTES // max(1, _bytes(shape[1:], dtype))
        for start in range(0, rows, max(1, size)):
            stop = min(start + max(1, size), rows)
            yield ArraySlice({key: self.read(key, start, stop) for key in keys}, self.path)

    def _stored(self, key: str) -> tuple[tuple[int, ...], NumPyDType]:
        if key not in self.shapes:
            raise InputError(
                self.path, f"has no key or column called {key!r}", f"it has {self.listed()}"
            )
        return self.stored[key]


def _bytes(shape: Sequence[int], dtype: NumPyDType) -> int:
    return math.prod(shape) * dtype.itemsize


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

    def values(self, name: str) -> NumPyArray:
        """Return a vector."""
        return self.arrays[name]

    numbers = values


def open_arrays(file: InputFile) -> ArrayFile | None:
    """Open a file of arrays, recognised by its first bytes; None for other files."""
    head = file.head
    if head.startswith(_NPY):
        return NpyFile(file)
    if head.startswith(HDF5):
        return Hdf5File(file)
    if not head.startswith(b"PK"):
        return None
    with _archive(file, file.name) as archive:
        members = archive.namelist()
    if any(name.endswith("/data.pkl") for name in members):
        return TorchFile(file)
    if "xl/workbook.xml" in members:
        raise InputError(file.name, "is an Excel workbook", "save the sheet as CSV")
    return NpzFile(file, members)


@contextmanager
def _archive(file: InputFile, where: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive; what is damaged in it is an `InputError` that names a place."""
    with reading(where, "a zip archive"), file.open() as opened, zipfile.ZipFile(opened) as archive:
        yield archive


# NumPy.


def read_header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], NumPyDType, bool]:
    """Read shape, dtype and whether columns are contiguous from the header of an npy file.

    Arrays of anything but numbers and text are refused.
    """
    form = np.lib.format
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    with reading(name, "a NumPy file", "save whole, plain arrays of numbers"):
        shape, columnwise, dtype = readers[form.read_magic(file)](file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        if dtype.kind not in "fiubUS" or not dtype.itemsize or is_long(dtype):
            raise ValueError(f"its dtype is {dtype}")
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"its shape is {shape}")
    return shape, dtype, columnwise


def is_long(dtype: NumPyDType) -> bool:
    """Whether numbers are longer than doubles: how long depends on the machine."""
    return dtype.kind == "f" and dtype.itemsize > 8


class NpyFile(ArrayFile):
    """One array, called ``array``; read without a memory map, which would count as memory."""

    format = "npy"

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)
        with file.open() as opened:
            shape, dtype, self._columnwise = read_header(opened, self.path)
            self._offset = opened.tell()
            size = opened.seek(0, os.SEEK_END) - self._offset
        self.stored["array"] = shape, dtype
        if size < (expected := _bytes(shape, dtype)):
            raise InputError(
                self.path,
                f"is truncated: it has {size:,} bytes of its array instead of {expected:,}",
                "write it again",
            )

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return the array, or some rows of it."""
        (rows, *width), dtype = self.stored[key]
        count = (rows if stop is None else min(stop, rows)) - start
        columns = math.prod(width)
        check_size(self.path, _bytes((count, columns), dtype))
        with self._file.open() as file:
            if self._columnwise and width:
                values = np.empty((count, columns), dtype)
                for column in range(columns):
                    file.seek(self._offset + (column * rows + start) * dtype.itemsize)
                    values[:, column] = _read_numbers(file, dtype, count)
                return values
            file.seek(self._offset + start * columns * dtype.itemsize)
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

    def __init__(self, file: InputFile, members: Sequence[str]) -> None:
        super().__init__(file)
        self._read: dict[str, NumPyArray] = {}
        refused: dict[str, InputError] = {}
        for member in members:
            key = member.removesuffix(".npy")
            if key == member:
                continue
            try:
                with self._member(key) as opened:
                    self.stored[key] = read_header(opened, self._where(key))[:2]
            except InputError as error:
                refused[key] = error
        if not self.stored and not refused:
            raise InputError(
                self.path,
                "is a zip archive without arrays",
                "pass an npz file that numpy.savez wrote, or a file of another format",
            )
        # Python objects under a name we do not need, such as fold names, do no harm.
        for key, refusal in refused.items():
            if not self.matrices or key in (*LABEL_NAMES, *CLASS_NAMES):
                raise refusal

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return an array, or some rows of it."""
        if key not in self._read:
            check_size(self._where(key), _bytes(*self.stored[key]))
            with self._member(key) as opened:
                self._read[key] = np.lib.format.read_array(opened, allow_pickle=False)
        return self._read[key][start:stop]

    def _where(self, key: str) -> str:
        return f"{self.path} ({key})"

    @contextmanager
    def _member(self, key: str) -> Iterator[Any]:
        with _archive(self._file, self._where(key)) as archive, archive.open(f"{key}.npy") as file:
            yield file


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

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)

        def add(path: str, entry: Any) -> None:
            if _is_supported(entry):
                self.stored[path] = entry.shape, entry.dtype

        with self._opened(self.path) as opened:
            opened.visititems(add)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return a data set, or some rows of it."""
        where, (shape, dtype) = f"{self.path} ({key})", self.stored[key]
        count = (shape[0] if stop is None else min(stop, shape[0])) - start
        check_size(where, _bytes((count, *shape[1:]), dtype))
        rows = slice(start, start + count)
        with self._opened(where) as opened:
            if dtype.kind not in "OS":
                return np.asarray(opened[key][rows])
            if dtype.kind == "O":
                self._check_text_heaps()
            return np.asarray(opened[key].asstr(errors="replace")[rows], dtype=np.str_)

    def _check_text_heaps(self) -> None:
        """Raise on text storage in which libhdf5 would loop without end."""
        with self._file.open() as plain:
            try:
                data: Any = mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError:  # not a file on the disk
                data = plain.read()
            places = (match.start() for match in re.finditer(_COLLECTION, data))
            if not all(_entries_advance(data, place) for place in places):
                raise ValueError("text storage with an entry of no size")

    @contextmanager
    def _opened(self, where: str) -> Iterator[Any]:
        h5py = import_h5py()
        with reading(where, "HDF5"), self._file.open() as plain, h5py.File(plain, "r") as file:
            yield file


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
    if entry.is_virtual or entry.external or is_long(entry.dtype):
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


class TorchFile(ArrayFile):
    """The tensors of a file, and its lists of words or numbers; read whole.

    Names are the keys of a dictionary, joined by slashes if nested; entries of a list are
    numbered.  Only zip archives are read: the older format cannot be read without running it.
    """

    format = "torch"
    in_memory = True

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)
        try:
            import torch
        except ImportError as error:
            reason = "torch files need torch; install it with: pip install torch"
            raise ImportError(reason) from error
        hint = "save plain tensors, or a dictionary of them, with torch.save"
        with file.open() as opened, reading(self.path, "tensors alone", hint):
            with zipfile.ZipFile(opened) as archive:
                check_size(self.path, sum(member.file_size for member in archive.infolist()))
            opened.seek(0)
            content = torch.load(opened, map_location="cpu", weights_only=True)
        if isinstance(content, list | tuple):
            content = dict(enumerate(content))
        self._arrays: dict[str, NumPyArray] = {}
        size = 0
        for key, value in _entries(content):
            where = f"{self.path} ({key})"
            if isinstance(value, torch.Tensor):
                with reading(where, "an array", "save a plain tensor of numbers, as float() makes"):
                    # An expanded or sparse tensor takes far more memory than in the file.
                    size += _tensor_bytes(value)
                    check_size(where, size)
                    self._arrays[key] = _array(value)
            elif isinstance(value, list | tuple) and _are_plain(value):
                self._arrays[key] = np.array(value)
        if not any(isinstance(value, torch.Tensor) for _, value in _entries(content)):
            raise InputError(self.path, "holds no tensors", hint)
        self.stored = {key: (array.shape, array.dtype) for key, array in self._arrays.items()}

    def read(self, key: str, start: int = 0, stop: int | None = None) -> NumPyArray:
        """Return a tensor, or some rows of it."""
        return self._arrays[key][start:stop]


def _entries(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what nested dictionaries hold, by name."""
    if not isinstance(content, Mapping):
        yield name or "array", content
        return
    for key, value in content.items():
        yield from _entries(value, f"{name}/{key}" if name else str(key))


def _are_plain(values: Sequence[Any]) -> bool:
    """Whether values are words, or numbers."""
    kinds = set(map(type, values))
    return bool(kinds) and (kinds == {str} or kinds <= {int, float, bool})


def _tensor_bytes(tensor: Any) -> int:
    """Return the bytes of a tensor as an array; raise for one without plain values."""
    for kind in ("meta", "quantized", "nested"):
        if getattr(tensor, f"is_{kind}"):
            raise TypeError(f"it is a {kind} tensor")
    return int(tensor.numel() * max(tensor.element_size(), 4 if _is_short(tensor) else 1))


def _is_short(tensor: Any) -> bool:
    """Whether NumPy lacks a float dtype: bfloat16 and float8 are converted to float32."""
    known = ("torch.float16", "torch.float32", "torch.float64")
    return bool(tensor.is_floating_point()) and str(tensor.dtype) not in known


def _array(tensor: Any) -> NumPyArray:
    plain = tensor.detach().to_dense().resolve_conj().resolve_neg()
    return np.asarray((plain.float() if _is_short(plain) else plain).numpy())
