"""npy and npz files: headers are read first, arrays on access."""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray, NumPyDType
from cordcal.files.columns import LABEL_NAMES, ColumnSpec
from cordcal.files.disk import InputFile, NoRows, check_size, first_line
from cordcal.files.output import Encoder, OutputBlock, Piece
from cordcal.files.sources import (
    CLASS_NAMES,
    SAMPLE_ROWS,
    Contents,
    InMemorySource,
    Lazy,
    Source,
    Span,
    array_contents,
    split_rows,
)

# What the libraries raise for damaged, encrypted or foreign archives.
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
    except _DAMAGE as error:
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
    except _DAMAGE as error:
        raise unreadable_error(name, error) from error


class Archive(Mapping[str, NumPyArray]):
    """The arrays of an npz file, each read on first access.

    Parameters
    ----------
    name : str
        The file, for messages.
    opened : callable
        Opens the file.
    """

    def __init__(self, name: str, opened: Callable[[], BinaryIO]) -> None:
        self._name, self._opened = name, opened
        self._read: dict[str, NumPyArray] = {}

    @cached_property
    def headers(self) -> dict[str, Header | InputError]:
        """The header of each array, or the error that it cannot be read."""
        headers: dict[str, Header | InputError] = {}
        for member in self._with_archive(lambda archive: archive.namelist(), "archive"):
            if member.endswith(".npy"):
                key = member.removesuffix(".npy")
                try:
                    headers[key] = self._member(key, read_header)
                except InputError as refusal:
                    headers[key] = refusal
        return headers

    def __getitem__(self, key: str) -> NumPyArray:
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

        return self._with_archive(work, f"key {key!r}")

    def _with_archive(self, work: Callable[[zipfile.ZipFile], Any], what: str) -> Any:
        try:
            with self._opened() as file, zipfile.ZipFile(file) as archive:
                return work(archive)
        except InputError:
            raise
        except _DAMAGE as error:
            raise InputError(
                self._name,
                f"is damaged, encrypted or not an npz file: its {what} cannot be read "
                f"({first_line(error)})",
                "save plain arrays of numbers with numpy.savez, one column per class",
            ) from error


class NpySource(Source):
    """An npy file, read without a memory map, which would count as memory in use."""

    def __init__(self, file: InputFile, spec: ColumnSpec) -> None:
        self._file, self.path = file, file.name
        with file.open() as opened:
            self._header = read_header(opened, self.path)
            size = opened.seek(0, os.SEEK_END) - self._header.offset
        if size < self._header.size:
            reason = f"it is truncated: {size:,} bytes instead of {self._header.size:,}"
            raise unreadable_error(self.path, reason)

    def contents(self) -> Contents:
        """Return the array; shapes are known from the header."""
        shape = self._header.shape
        arrays = Lazy(["array"], lambda key: self._read(0, shape[0]))
        empty = Lazy[NumPyArray]((), lambda key: np.empty(0))
        is_matrix, is_vector = len(shape) == 2, len(shape) == 1
        return Contents(
            self.path,
            "npy",
            arrays if is_matrix else empty,
            arrays if is_vector else empty,
            None,
            {"array": shape} if is_matrix or is_vector else {},
        )

    def sample(self) -> Contents:
        """Return the first rows."""
        contents = self.contents()
        if not contents.shapes:
            raise InputError(
                self.path,
                "does not hold a matrix of scores (rows × classes)",
                f"it has an array of shape {self._header.shape}",
            )
        return self._piece(0, min(SAMPLE_ROWS, self.spans_of("array")[0][1]))

    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the spans of the rows."""
        shape = self._header.shape
        for what, length in zip(("rows", "columns"), shape, strict=False):
            if not length:
                raise NoRows(self.path, f"has no {what}", "pass at least one row of two classes")
        return tuple(split_rows(shape[0], self._header.size // shape[0]))

    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield the rows of each span; an array has no other columns."""
        for start, stop in self.spans_of("array")[first:]:
            yield self._piece(start, stop)

    def _piece(self, start: int, stop: int) -> Contents:
        values = self._read(start, stop)
        matrices, vectors = ({"array": values}, {}) if values.ndim == 2 else ({}, {"array": values})
        return Contents.of(self.path, "npy", matrices, vectors)

    def _read(self, start: int, stop: int) -> NumPyArray:
        (rows, *width), dtype, offset = self._header.shape, self._header.dtype, self._header.offset
        count, columns = stop - start, math.prod(width)
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


def open_npz(file: InputFile, spec: ColumnSpec) -> InMemorySource:
    """Open an archive of arrays, each of which is read when it is needed."""
    archive = Archive(file.name, file.open)
    headers = archive.headers.items()
    shapes = {key: header.shape for key, header in headers if isinstance(header, Header)}
    refused = {key: error for key, error in headers if isinstance(error, InputError)}
    if not shapes and not refused:
        raise InputError(
            file.name,
            "is a zip archive without arrays",
            "pass an npz file that numpy.savez wrote, or a file of another format",
        )
    # Python objects under a name we do not need, such as fold names, do no harm.
    has_matrix = any(len(shape) == 2 for shape in shapes.values())
    for key, error in refused.items():
        if not has_matrix or key in (*LABEL_NAMES, *CLASS_NAMES):
            raise error
    return InMemorySource(array_contents(file.name, "npz", archive, shapes))


class NpyEncoder(Encoder):
    """The first kind of probabilities alone, as a plain array."""

    def encode(self, block: OutputBlock) -> Piece:
        """Return the rows as they are in memory."""
        matrix = np.ascontiguousarray(next(iter(block.probabilities.values())))
        # A header for no rows yet; NumPy leaves room for the number to grow.
        head = _npy_header(matrix.dtype, 0, matrix.shape[1])
        return Piece(matrix.data.cast("B") if len(block) else b"", len(block), head)

    def finish(self, file: BinaryIO, rows: int) -> None:
        """Write the number of rows into the header."""
        file.seek(0)
        np.lib.format.read_magic(file)
        (_, classes), _, dtype = np.lib.format.read_array_header_1_0(file)
        file.seek(0)
        file.write(_npy_header(dtype, rows, classes))


def _npy_header(dtype: NumPyDType, rows: int, classes: int) -> bytes:
    described = np.lib.format.dtype_to_descr(dtype)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": described, "fortran_order": False, "shape": (rows, classes)}
    )
    return buffer.getvalue()


class NpzEncoder(Encoder):
    """All arrays under their names, compressed; written at once, never in pieces."""

    def encode(self, block: OutputBlock) -> Piece:
        """Return the archive."""
        arrays = {**block.probabilities, "prediction": block.prediction, **block.extra}
        if self.names is not None:
            arrays["class_names"] = np.array(self.names, dtype=np.str_)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        return Piece(buffer.getbuffer(), len(block))
