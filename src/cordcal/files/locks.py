"""File locks between processes, and hidden files opened without following symbolic links."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordcal._errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl: Any = None  # type: ignore[no-redef]

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


def open_private(path: Path, *, new: bool = False) -> int:
    """Open one of our hidden files for reading and writing; create it if it does not exist.

    Others who can write to the folder may have put a link there: links are not followed.
    """
    flags = os.O_RDWR | os.O_CREAT | _NO_FOLLOW | _BINARY | (os.O_EXCL if new else 0)
    if path.is_symlink():  # for systems without the flag
        raise _not_regular_error(path)
    handle = os.open(path, flags, 0o600)
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
