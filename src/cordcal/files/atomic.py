"""Atomic writing: an output is complete or absent.

Data goes to a hidden file next to the output, which is renamed when it is complete and on the
disk.  It gets the permissions of the file that it replaces.
"""

from __future__ import annotations

import glob
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    check_free(target, overwrite=overwrite)
    _remove_orphans(target)
    with naming(target), _temporary_file(target) as temporary:
        yield temporary
        publish(temporary, target, overwrite=overwrite)


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the regular file that an output is or will be, behind its symbolic links."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(os.fspath(path), "is not a regular file", "name a file, or - for stdout")
    return target


def check_free(target: Path, *, overwrite: bool) -> None:
    """Raise if a file of that name exists and may not be replaced."""
    if not overwrite and target.exists():
        raise _name_taken_error(target)


def _name_taken_error(target: Path) -> InputError:
    hint = "pass {option} to replace it"
    return InputError(str(target), "exists already", hint, option=("overwrite", "True"))


def publish(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Sync a complete file to the disk and rename it to its target."""
    with temporary.open("r+b") as file:
        os.fsync(file.fileno())
    temporary.chmod(_mode_of(target))
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


def _mode_of(target: Path) -> int:
    """Return the permissions of the existing file, or those of a new file."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return _new_file_mode(target)


def _new_file_mode(target: Path) -> int:
    """Return the permissions of a new file in the folder.

    The umask can only be read by setting it, for all threads, and ACLs of the folder count, too.
    """
    name = _temporary_name(target)
    handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
        name.unlink(missing_ok=True)


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
    """Create an empty file next to ``target``, locked while it is in use."""
    name, handle = _create_temporary(target)
    if not CAN_LOCK:
        os.close(handle)  # Windows cannot rename an open file
    try:
        yield name
    finally:
        if CAN_LOCK:
            os.close(handle)
        name.unlink(missing_ok=True)


def _temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}{_MARK}{target.suffix}")


def _create_temporary(target: Path) -> tuple[Path, int]:
    while True:
        name = _temporary_name(target)
        try:
            handle = open_private(name, new=True)
        except OSError as error:
            raise _not_writable_error(target, error) from error
        # Between the two steps another process may have taken it for an orphan.
        if try_lock(handle) and name.exists():
            return name, handle
        os.close(handle)


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
