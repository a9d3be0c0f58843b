"""Open files for reading: regular files only, and at most a limit of bytes at once."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from cordcal._errors import InputError
from cordcal.files.atomic import naming

LIMIT = "CORDCAL_READ_LIMIT"
# More than any calibration set that we know of; a small archive may claim to hold far more.
_DEFAULT_LIMIT = 4 * 2**30


# A scheme of two letters or more (C:/ is a drive); pathlib makes one slash of two.
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class NoRows(InputError):
    """A file that is empty, which is fine for one of several parts."""


def no_rows(path: str) -> NoRows:
    """Return the error for a file without rows."""
    return NoRows(path, "has no rows", "pass at least one")


def check_local(path: str | os.PathLike[str]) -> None:
    """Refuse a remote address such as ``s3://bucket/scores.parquet``."""
    if _REMOTE.match(os.fspath(path)) and not os.path.exists(path):
        raise InputError(
            os.fspath(path),
            "is a remote address, and cordcal opens no connections",
            "copy the files to this machine, or mount the storage, and pass the local path",
        )


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file; devices and pipes may never end."""
    check_local(path)
    status = os.stat(path)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise InputError(
            os.fspath(path), "is not a regular file", "pass a file, or - to read stdin"
        )
    return Path(path).open("rb")


@dataclass(frozen=True)
class InputFile:
    """A file on the disk, or the bytes that came from stdin.

    Attributes
    ----------
    name : str
        The path, or ``"stdin"``.
    data : bytes or None
        The bytes of stdin.
    """

    name: str
    data: bytes | None = None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> InputFile:
        """Return a file; ``-`` is stdin, which is read here."""
        if os.fspath(path) != "-":
            return cls(os.fspath(path))
        with naming("stdin"):
            data = sys.stdin.buffer.read(limit() + 1)
        check_size("stdin", len(data))
        return cls("stdin", data)

    def open(self) -> BinaryIO:
        """Open the file for reading."""
        return open_regular(self.name) if self.data is None else io.BytesIO(self.data)

    def head(self, size: int) -> bytes:
        """Return the first bytes."""
        with self.open() as file:
            return file.read(size)

    def read(self) -> bytes:
        """Return all bytes, up to the limit."""
        if self.data is not None:
            return self.data
        with self.open() as file:
            check_size(self.name, os.fstat(file.fileno()).st_size)
            return file.read()


def read_whole(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    """Return the name of a file in messages, and its bytes; ``-`` is stdin."""
    file = InputFile.from_path(path)
    return file.name, file.read()


def check_size(name: str, size: int) -> None:
    """Refuse to read more than the limit at once."""
    max_bytes = limit()
    if size > max_bytes:
        raise InputError(
            name,
            f"takes {size / 1e9:,.1f} GB of memory to be read, more than the limit of "
            f"{max_bytes / 1e9:,.1f} GB",
            f"store it as npy or Parquet, which are read in pieces, or set the environment "
            f"variable {LIMIT} to more bytes",
        )


def limit() -> int:
    """Return how many bytes may be read at once."""
    value = os.environ.get(LIMIT, "")
    if value and not value.isdecimal():
        raise InputError(LIMIT, f"is {value!r}", "set it to a number of bytes")
    return int(value) if value else _DEFAULT_LIMIT


def first_line(error: BaseException) -> str:
    """Return the first line of an error message."""
    return str(error).split("\n", 1)[0].rstrip(".")


def import_arrow() -> tuple[ModuleType, ModuleType]:
    """Return pyarrow and its Parquet module, or explain how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet and Feather files need pyarrow; install it with: pip install "
            "'cordcal[parquet]'"
        ) from error
    return pyarrow, pyarrow.parquet
