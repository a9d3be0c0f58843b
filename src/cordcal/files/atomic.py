"""Write files whole or not at all.

What is written goes to a hidden file beside the output.  It takes the output's name when it
is whole and on the disk, and has the rights of the file that it replaces.
"""

from __future__ import annotations

import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cordcal._errors import InputError
from cordcal.files import locks

# What tells our temporary files from other hidden ones.
_MARK = ".cordcal"


@contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary name beside ``path`` that becomes ``path`` when the block ends well.

    Whatever ends the block early, an interrupt included, leaves ``path`` as it was
    and removes the temporary file.  What a killed process leaves is removed by the next one
    that writes the same file.

    Parameters
    ----------
    path : path
        The output; behind a symbolic link, the file it points to.
    overwrite : bool
        Whether a file of that name may be replaced.  If not, one that another process makes
        meanwhile is safe as well.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = target_of(path)
    check_free(target, overwrite=overwrite)
    _remove_orphans(target)
    with naming(target), _temporary_beside(target) as temporary:
        yield temporary
        publish(temporary, target, overwrite=overwrite)


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the regular file that an output is or will be, behind its symbolic links."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(os.fspath(path), "is no regular file", "name a file, or - for stdout")
    return target


def check_free(target: Path, *, overwrite: bool) -> None:
    """Refuse a name that is taken, unless its file may be replaced."""
    if not overwrite and target.exists():
        raise _taken(target)


def _taken(target: Path) -> InputError:
    hint = "pass {option} to replace it"
    return InputError(str(target), "exists already", hint, option=("overwrite", "True"))


def publish(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Give a whole file its name, once it is on the disk."""
    with temporary.open("r+b") as file:
        os.fsync(file.fileno())
    temporary.chmod(_mode_of(target))
    if overwrite:
        temporary.replace(target)
    else:
        _take_free_name(temporary, target)
    _sync_folder(target.parent)


def _take_free_name(temporary: Path, target: Path) -> None:
    """Name a file in one step that fails if the name is taken by now."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise _taken(target) from None
    except OSError:  # a file system without hard links
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise _taken(target) from None
        temporary.replace(target)
    else:
        temporary.unlink()


def _mode_of(target: Path) -> int:
    """Return the rights of the file that is there, or those that any new file would have."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return _new_mode_beside(target)


def _new_mode_beside(target: Path) -> int:
    """Return the rights of a new file in the folder.

    The umask can only be read by setting it, for all threads; a folder's own rules count, too.
    """
    name = _temporary_name(target)
    handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
        name.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Put a new name on the disk too, where folders can be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _temporary_beside(target: Path) -> Iterator[Path]:
    """Make an empty file beside ``target``, locked while it is in use."""
    name, handle = _new_beside(target)
    if not locks.CAN_LOCK:
        os.close(handle)  # Windows renames no open file
    try:
        yield name
    finally:
        if locks.CAN_LOCK:
            os.close(handle)
        name.unlink(missing_ok=True)


def _temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}{_MARK}{target.suffix}")


def _new_beside(target: Path) -> tuple[Path, int]:
    while True:
        name = _temporary_name(target)
        try:
            handle = locks.open_private(name, new=True)
        except OSError as error:
            raise _unwritable(target, error) from error
        # Between the two steps another process may have taken it for an orphan.
        if locks.locked(handle) and name.exists():
            return name, handle
        os.close(handle)


def _unwritable(target: Path, error: OSError) -> OSError:
    """Say why ``target`` cannot be written: the error names a file of which nobody has heard."""
    folder = target.parent
    why = f"takes no new file ({error.strerror})" if folder.is_dir() else "does not exist"
    return type(error)(f"{target} cannot be written: the folder {folder} {why}")


def _remove_orphans(target: Path) -> None:
    """Remove the temporary files of processes that were killed: nobody holds their locks."""
    if not locks.CAN_LOCK:
        return
    before, after = glob.escape(f".{target.name}."), glob.escape(_MARK + target.suffix)
    for orphan in target.parent.glob(f"{before}*{after}"):
        with suppress(OSError, InputError):
            handle = locks.open_private(orphan)
            if locks.locked(handle):
                orphan.unlink()
            os.close(handle)


@contextmanager
def naming(target: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file or stream in an error of the system that names none, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, os.fspath(target)) from error
        raise
