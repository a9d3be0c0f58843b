"""Files on the disk: open them for reading, and write them completely or not at all.

Only regular files are opened, and at most a limit of bytes is read at once.  An output is complete
or absent: data goes to a hidden file next to it, which is renamed when it is complete and on the
disk.  It gets the permissions of the file that it replaces.
"""

from __future__ import annotations

import errno
import glob
import io
import math
import mmap
import os
import re
import secrets
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray

try:
    import fcntl
except ImportError:  # Windows
    fcntl: Any = None  # type: ignore[no-redef]

LIMIT = "CORDCAL_READ_LIMIT"
# More than any calibration set that we know of; a small archive may claim to hold far more.
_DEFAULT_LIMIT = 4 * 2**30


# A scheme of two letters or more (C:/ is a drive); pathlib makes one slash of two.
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def no_rows(path: str) -> InputError:
    """Return the error for a file without rows."""
    return InputError(path, "has no rows", "pass at least one")


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

    @cached_property
    def head(self) -> bytes:
        """The first 64 bytes, by which formats are recognised."""
        with self.open() as file:
            return file.read(64)

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
            f"takes {_in_words(size)} of memory to be read, more than the limit of "
            f"{_in_words(max_bytes)}",
            f"store it as npy or Parquet, which are read in pieces, or set the environment "
            f"variable {LIMIT} to more bytes",
        )


def _in_words(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def limit() -> int:
    """Return how many bytes may be read at once."""
    value = os.environ.get(LIMIT, "")
    if value and not value.isdecimal():
        raise InputError(LIMIT, f"is {value!r}", "set it to a number of bytes")
    return int(value) if value else _DEFAULT_LIMIT


def first_line(error: BaseException) -> str:
    """Return the first line of an error message, without the long advice of torch."""
    text = str(error).rpartition("WeightsUnpickler error:")[2].strip()
    return text.split("\n", 1)[0].split(". Please")[0][:200].rstrip(".")


# What the system refuses says nothing about the bytes of a file.
_NOT_DAMAGED = (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.EPERM)


@contextmanager
def reading(
    where: str, format: str, hint: str = "it may be truncated: write it again"
) -> Iterator[None]:
    """Turn what a library raises for a damaged or foreign file into an `InputError`."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # the libraries have dozens of their own for damaged bytes
        if isinstance(error, OSError) and error.errno in _NOT_DAMAGED:
            raise
        reason = f"cannot be read as {format} ({first_line(error)})"
        raise InputError(where, reason, hint) from error


# Several files.

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Parts:
    """The files of an input: one, or those of a folder, a pattern or a list.

    Attributes
    ----------
    name : str
        What the input is called in messages.
    files : tuple of str
        The files, in order.
    root : str or None
        The folder below which they are; None if the input is one file.
    """

    name: str
    files: tuple[str, ...]
    root: str | None = None

    @classmethod
    def of(cls, paths: PathLike | Sequence[PathLike]) -> Parts:
        """Return the files of a path, or of several, each a file, a folder or a pattern.

        Examples
        --------
        >>> Parts.of(["2026/a.csv", "2026/b.csv"])
        Parts(name='2026/a.csv (and 1 more)', files=('2026/a.csv', '2026/b.csv'), root='2026')
        """
        listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not listed:
            raise InputError("path", "is an empty list", "pass at least one file")
        names = [os.fspath(path) for path in listed]
        found = [parts_of(name) for name in names]
        if len(names) == 1:
            name, files = names[0], found[0]
            return cls(name, (name,)) if files is None else cls(name, tuple(files), root_of(name))
        if "-" in names:
            raise InputError("-", "is stdin, next to other files", "pass stdin alone, or files")
        pairs = zip(names, found, strict=True)
        several = [file for name, files in pairs for file in (files or [name])]
        places = Counter(map(os.path.realpath, several))
        for file in several:
            if places[os.path.realpath(file)] > 1:
                raise InputError(file, "is listed twice", "pass each file once")
        root = os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in several])
        return cls(f"{names[0]} (and {len(names) - 1} more)", tuple(several), os.path.relpath(root))

    @property
    def relative(self) -> list[str]:
        """The names of the files below the root."""
        if self.root is None:
            return [os.path.basename(file) for file in self.files]
        return [os.path.relpath(file, self.root) for file in self.files]


def parts_of(path: str) -> list[str] | None:
    """Return the files of a folder or of a pattern, in order; None if the path is one file.

    Files and folders whose names begin with ``.`` or ``_``, such as ``_SUCCESS`` and
    ``_temporary``, are ignored, unless they are in a folder that the pattern itself names.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for name in ("part-1.csv", "part-0.csv", "_SUCCESS"):
    ...     _ = Path(folder, name).write_text("0.5,0.5")
    >>> [Path(part).name for part in parts_of(folder)]
    ['part-0.csv', 'part-1.csv']
    """
    if path == "-" or Path(path).is_file():
        return None
    check_local(path)
    is_folder = Path(path).is_dir()
    if not is_folder and not glob.has_magic(path):
        return None
    paths = Path(path).rglob("*") if is_folder else map(Path, glob.glob(path, recursive=True))
    candidates = [file for file in paths if _is_part(file, root_of(path))]
    for file in filter(Path.is_symlink, candidates):
        if not file.exists():
            reason = "is a link to a file that does not exist"
            raise InputError(os.fspath(file), reason, "restore or remove it")
        if is_folder and file.is_dir():
            reason = "is a link to a folder, which is not followed"
            hint = "move its files here, or name all parts with a pattern"
            raise InputError(os.fspath(file), reason, hint)
    files = [file for file in candidates if file.is_file()]
    places = Counter(map(os.path.realpath, files))
    for file in filter(Path.is_symlink, files):
        if places[os.path.realpath(file)] > 1:
            reason = "is a link to another file of the same input"
            raise InputError(os.fspath(file), reason, "remove it, so that rows count once")
    if not files:
        raise InputError(path, "holds no files", "pass a folder or a pattern of score files")
    suffixes = sorted({file.suffix.lower() or "none" for file in files})
    if len(suffixes) > 1:
        raise InputError(
            path,
            f"holds files of several kinds ({', '.join(suffixes)})",
            f"name those that are meant with a pattern, as in '*{suffixes[-1]}'",
        )
    return sorted(map(os.fspath, files))


def root_of(path: str) -> str:
    """Return the folder below which the files of a folder or pattern are.

    Examples
    --------
    >>> root_of("scores/day=*/*.parquet")
    'scores'
    """
    if Path(path).is_dir():
        return path
    fixed: list[str] = []
    for part in Path(path).parts[:-1]:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return os.path.join(*fixed) if fixed else "."


def _is_part(path: Path, folder: str) -> bool:
    parts = Path(os.path.relpath(path, folder)).parts
    return not any(name.startswith((".", "_")) for name in parts if name != "..")


# Below this size the allocator is faster.
_LARGE_BYTES = 2**20


def large_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> NumPyArray:
    """Return an array like `numpy.empty` whose memory returns to the system when it is freed.

    The allocator keeps freed memory in pieces that seldom fit the next request: with several
    threads that adds up to hundreds of megabytes.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


# Writing.

CAN_LOCK = fcntl is not None
# Flags that some systems lack.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; False if another process has the lock."""
    if not CAN_LOCK:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_private(path: Path, *, new: bool = False, mode: int = 0o600) -> int:
    """Open one of our hidden files for reading and writing; create it if it does not exist.

    Others who can write to the folder may have put a link there: links are not followed.
    """
    flags = os.O_RDWR | os.O_CREAT | _NO_FOLLOW | _BINARY | (os.O_EXCL if new else 0)
    if path.is_symlink():  # for systems without the flag
        raise _not_regular_error(path)
    handle = os.open(path, flags, mode)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise _not_regular_error(path)
    return handle


def open_locked(path: Path) -> int | None:
    """Open a hidden file and take its lock; None if another process has it."""
    while True:
        handle = open_private(path)
        if not try_lock(handle):
            os.close(handle)
            return None
        if _is_at(handle, path):
            return handle
        os.close(handle)  # the previous owner has finished and removed the file


# How long a writer waits for another one before it gives up, in seconds.
WAIT_FOR_WRITER = 60.0


@contextmanager
def only_writer(path: str | os.PathLike[str]) -> Iterator[None]:
    """Make other writers of a file wait while the block reads, changes and writes it."""
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.cordcal-lock")
    give_up = time.monotonic() + WAIT_FOR_WRITER
    while (handle := open_locked(lock)) is None:
        if time.monotonic() > give_up:
            raise InputError(str(path), "is being written by another process", "try again later")
        time.sleep(0.05)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # while it is locked, so that no other process has it
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _not_regular_error(path: Path) -> InputError:
    return InputError(str(path), "is a link or not a regular file", "remove it")


# Marks our temporary files among other hidden ones.
_MARK = ".cordcal"


@contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``path`` when the block ends without an error.

    An error or interrupt leaves ``path`` as it was and removes the temporary file.  What a
    killed process leaves behind is removed by the next one that writes the same file.

    Parameters
    ----------
    path : path
        The output; behind a symbolic link, the file it points to.
    overwrite : bool
        Whether an existing file may be replaced.  If not, a file that another process creates
        in the meantime is kept, too.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as temporary:
    ...     _ = temporary.write_text("complete")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = target_of(path)
    if not overwrite and target.exists():
        raise _name_taken_error(target)
    _remove_orphans(target)
    with naming(target), _temporary_file(target) as temporary:
        yield temporary
        publish(temporary, target, overwrite=overwrite)


def write_text(path: str | os.PathLike[str], text: str, *, overwrite: bool = True) -> None:
    """Write a text file, completely or not at all."""
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the regular file that an output is or will be, behind its symbolic links."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(os.fspath(path), "is not a regular file", "name a file, or - for stdout")
    return target


def _name_taken_error(target: Path) -> InputError:
    hint = "pass {option} to replace it"
    return InputError(str(target), "exists already", hint, option=("overwrite", "True"))


def publish(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Sync a complete file to the disk and rename it to its target."""
    with temporary.open("r+b") as file:
        os.fsync(file.fileno())
    with suppress(FileNotFoundError):
        temporary.chmod(stat.S_IMODE(target.stat().st_mode))
    if overwrite:
        temporary.replace(target)
    else:
        _rename_if_free(temporary, target)
    _sync_folder(target.parent)


def _rename_if_free(temporary: Path, target: Path) -> None:
    """Rename in one step that fails if the name has been taken in the meantime."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise _name_taken_error(target) from None
    except OSError:  # a file system without hard links
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise _name_taken_error(target) from None
        temporary.replace(target)
    else:
        temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Sync a folder to the disk, where the system allows it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _temporary_file(target: Path) -> Iterator[Path]:
    """Create an empty file next to ``target``, locked while it is in use.

    It has the permissions of a new file, or is private until it gets those of the file that it
    replaces.
    """
    mode = 0o600 if target.exists() else 0o666
    while True:
        name = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_MARK}{target.suffix}")
        try:
            handle = open_private(name, new=True, mode=mode)
        except OSError as error:
            raise _not_writable_error(target, error) from error
        # Between the two steps another process may have taken it for an orphan.
        if try_lock(handle) and name.exists():
            break
        os.close(handle)
    if not CAN_LOCK:
        os.close(handle)  # Windows cannot rename an open file
    try:
        yield name
    finally:
        if CAN_LOCK:
            os.close(handle)
        name.unlink(missing_ok=True)


def _not_writable_error(target: Path, error: OSError) -> OSError:
    """Return an error that names ``target`` instead of our temporary file."""
    folder = target.parent
    why = f"takes no new file ({error.strerror})" if folder.is_dir() else "does not exist"
    return type(error)(f"{target} cannot be written: the folder {folder} {why}")


def _remove_orphans(target: Path) -> None:
    """Remove the temporary files of killed processes, whose locks are free."""
    if not CAN_LOCK:
        return
    before, after = glob.escape(f".{target.name}."), glob.escape(_MARK + target.suffix)
    for orphan in target.parent.glob(f"{before}*{after}"):
        with suppress(OSError, InputError):
            handle = open_private(orphan)
            if try_lock(handle):
                orphan.unlink()
            os.close(handle)


@contextmanager
def naming(target: str | os.PathLike[str]) -> Iterator[None]:
    """Add the name of the file or stream to OS errors that lack one, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, os.fspath(target)) from error
        raise


def write_to_stdout(pieces: Iterable[bytes | memoryview]) -> None:
    """Write UTF-8 text to stdout, whatever the encoding of the terminal."""
    sys.stdout.flush()
    with naming("stdout"):
        binary = getattr(sys.stdout, "buffer", None)
        if binary is None:  # a stream of text in memory
            sys.stdout.writelines(bytes(piece).decode() for piece in pieces)
        else:
            binary.writelines(pieces)
        sys.stdout.flush()
