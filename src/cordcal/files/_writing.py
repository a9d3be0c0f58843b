"""Write files whole or not at all, and the files that hold repaired reports."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal.files._encoding import ReportBlock, encoder_for


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path`` that becomes ``path`` when the block ends well.

    Whatever ends the block early, an interrupt included, leaves ``path`` as it was
    and removes the temporary file.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = Path(path)
    temporary = _temporary_beside(target)
    try:
        yield temporary
        # mkstemp makes private files; give this one the rights any new file would have.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_beside(target: Path) -> Path:
    """Make an empty file beside ``target``, or say why ``target`` cannot be written."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it")
    folder = target.parent
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=folder)
    except OSError as error:
        # The error names the temporary file, of which nobody has heard.
        why = f"takes no new file ({error.strerror})" if folder.is_dir() else "does not exist"
        message = f"{target} cannot be written: the folder {folder} {why}"
        raise type(error)(message) from error
    os.close(handle)
    return Path(name)


def write_reports(
    path: str | os.PathLike[str],
    reports: Mapping[str, npt.NDArray[Any]],
    decision: npt.NDArray[np.integer[Any]],
    *,
    class_names: Sequence[str] | None = None,
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
) -> None:
    """Write reports to a npz, npy, CSV or Parquet file, chosen by the suffix.

    Parameters
    ----------
    path : path or "-"
        ``-`` writes CSV to stdout.
    reports : mapping of str to ndarray of shape (n, K)
        ``repaired`` first, then ``direct`` if wanted.  A npy file holds the first alone.
    decision : ndarray of int
        The class each row keeps.
    class_names : sequence of str, optional
        One name a column.
    extra : mapping of str to ndarray of shape (n,), optional
        More columns, such as an explanation.
    """
    block = ReportBlock(reports, decision, {} if extra is None else extra)
    if Path(path).suffix.lower() == ".npz":
        _write_npz(path, block, class_names)
        return
    encoder = encoder_for(path, class_names)
    encoded = encoder.encode(block)
    if str(path) == "-":
        sys.stdout.write(b"".join([encoded.head, *encoded.body]).decode())
        return
    with replacing(path) as temporary, temporary.open("w+b") as file:
        file.write(encoded.head)
        file.writelines(encoded.body)
        encoder.finish(file, [(len(encoded.head), encoded.footer)], len(block))


def _write_npz(
    path: str | os.PathLike[str], block: ReportBlock, class_names: Sequence[str] | None
) -> None:
    columns = {**block.reports, "decision": block.decision, **block.extra}
    if class_names is not None:
        columns["class_names"] = np.array(list(class_names), dtype=np.str_)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]
