"""Checks of output files: they can be written, and no output replaces an input."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.cli._vectors import parse_vector

if TYPE_CHECKING:
    from cordcal.evaluate.results.report import FileDigest

INPUTS = (
    "file",
    "sources",
    "calibrated",
    "scores",
    "reports",
    "original",
    "direct",
    "hold_out",
    "model",
    "labels",
    "weights",
    "class_names",
    "groups",
    "second_opinion",
    "baseline",
    "behind",
)
"""Arguments that name files to read."""
OUTPUTS = ("output", "report")
"""Arguments that name files to write."""

_VECTORS = ("labels", "weights", "groups", "behind")
"""Inputs that may name something in a file, or a column instead."""

_Key = tuple[Any, ...]


@dataclass(frozen=True)
class _NamedPath:
    """A file, folder or pattern, and the option that names it."""

    option: str
    path: str

    @cached_property
    def parts(self) -> list[str] | None:
        """The files of a folder or pattern; None for a single file or an invalid path."""
        if self.path == "-" or Path(self.path).is_file():
            return None
        from cordcal.files.disk import parts_of

        with suppress(InputError):
            return parts_of(self.path)
        return None


def check_files(options: Mapping[str, Any], option_names: Mapping[str, str]) -> None:
    """Refuse outputs that are inputs, are inside an input folder, or share a name.

    Parameters
    ----------
    options : mapping of str to object
        The parameters of a command and their values.
    option_names : mapping of str to str
        The option of each parameter, such as ``--output``.
    """
    inputs, outputs = (
        [
            _NamedPath(option_names[name], str(path))
            for name in names
            if options.get(name)
            for path in _paths(name, options[name])
        ]
        for names in (INPUTS, OUTPUTS)
    )
    if not outputs:
        return
    read: dict[_Key, _NamedPath] = {}
    for source in inputs:
        for path in [source.path] if source.parts is None else source.parts:
            read |= dict.fromkeys(_file_keys(path, sys.stdin), source)
    in_parts = bool(options.get("scheduler")) or any(item.parts is not None for item in inputs)
    for output in outputs:
        _check_not_an_input(output, read, in_parts=in_parts)
        for source in inputs:
            _check_not_among_parts(output, source)
    _check_distinct(outputs)


def _paths(name: str, value: Any) -> list[Any]:
    """Return the paths in the value of an option."""
    if name in _VECTORS:
        file = parse_vector(value).file
        return [] if file is None else [file]
    return value if isinstance(value, list) else [value]


def _check_not_an_input(
    output: _NamedPath, read: Mapping[_Key, _NamedPath], *, in_parts: bool
) -> None:
    """Refuse an output that is an input, under any name, or a folder that contains one."""
    for path in _replaced_files(output.path, in_parts=in_parts):
        for key in _file_keys(path, sys.stdout):
            if key in read:
                target = "stdout" if path == "-" else path
                raise InputError(
                    output.option,
                    f"would replace {target}, which the same command reads ({read[key].option})",
                    "name another output; even --force never replaces an input",
                )


def _replaced_files(path: str, *, in_parts: bool) -> Iterator[str]:
    """Yield the files that writing an output may replace."""
    yield path
    if in_parts and path != "-" and Path(path).is_dir():
        yield from (str(file) for file in Path(path).rglob("*") if file.is_file())


def _check_not_among_parts(output: _NamedPath, source: _NamedPath) -> None:
    """Refuse an output that the next run would read as a part of the input."""
    if output.path == "-" or source.parts is None:
        return
    hint = "name a place outside that folder"
    if Path(source.path).is_dir():
        folder, target = (Path(os.path.realpath(file.path)) for file in (source, output))
        names = target.relative_to(folder).parts if target.is_relative_to(folder) else (".",)
        # Hidden files are not read as parts.
        if not any(name.startswith((".", "_")) for name in names):
            raise InputError(
                output.option,
                f"is {output.path}, in the folder {source.path} whose files the same command reads "
                f"({source.option})",
                hint,
            )
        return
    from cordcal.files.disk import root_of

    root = Path(root_of(source.path))
    pattern = Path(source.path).relative_to(root) if root.parts else Path(source.path)
    folder, target = Path(os.path.realpath(root)), Path(os.path.realpath(output.path))
    if not target.suffix:  # a folder of parts
        target /= Path(source.parts[0]).name
    names = target.relative_to(folder).parts if target.is_relative_to(folder) else (".",)
    if _fits(names, pattern.parts) and not any(name.startswith((".", "_")) for name in names):
        raise InputError(
            output.option,
            f"is {output.path}, which {source.path} would match in the next run ({source.option})",
            hint,
        )


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a pattern, part by part; ``**`` stands for any number of folders."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_fits(names[at:], pattern[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _fits(names[1:], pattern[1:])


def _check_distinct(outputs: Iterable[_NamedPath]) -> None:
    """Refuse two outputs with the same path; stdout may be redirected to that file, too."""
    owners = dict.fromkeys(_file_keys("-", sys.stdout), "stdout")
    for output in outputs:
        if output.path == "-":
            continue
        keys = _file_keys(output.path, sys.stdout)
        for key in keys:
            if key in owners:
                raise InputError(
                    output.option,
                    f"is {output.path}, and so is {owners[key]}",
                    "give each output a name of its own",
                )
        owners |= dict.fromkeys(keys, output.option)


def _file_keys(path: str, stream: Any) -> list[_Key]:
    """Return keys that two paths share if they are the same file: real path and inode.

    ``-`` is the stream, which has a key only if it is redirected to a file.
    """
    try:
        if path == "-":
            status = os.fstat(stream.fileno())
            return [_inode_key(status)] if stat.S_ISREG(status.st_mode) else []
        location = ("place", os.path.normcase(os.path.realpath(path)))
    except (OSError, ValueError, AttributeError):  # streams in memory
        return []
    with suppress(OSError):
        return [location, _inode_key(os.stat(path))]
    return [location]


def _inode_key(status: os.stat_result) -> _Key:
    return ("file", status.st_dev, status.st_ino)


def check_output(path: str | os.PathLike[str], *, force: bool) -> None:
    """Refuse an output file that cannot be written, before any work is done."""
    if str(path) == "-":
        return
    from cordcal.files.disk import check_local

    check_local(path)
    target = Path(path)
    if target.is_dir():
        raise InputError(str(target), "is a folder", "name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(str(target), "is not a regular file", "name a file")
    if target.exists() and not force:
        raise InputError(str(target), "exists already", "pass --force to replace it")
    folder = target.parent
    if not folder.is_dir():
        reason = f"cannot be written: the folder {folder} does not exist"
        raise InputError(str(target), reason, "create it first, or name another")
    if not os.access(folder, os.W_OK):
        reason = f"cannot be written: the folder {folder} is not writable"
        raise InputError(str(target), reason, "name another")


def check_suffix(path: str | os.PathLike[str], what: str, *suffixes: str) -> None:
    """Refuse an output whose suffix belongs to another format than the one written.

    Examples
    --------
    >>> check_suffix("report.html", "an HTML page", ".html", ".htm")
    """
    suffix = Path(path).suffix
    # A missing suffix, or the end of a version such as run-1.2, does not name a format.
    if suffix and not suffix[1:].isdecimal() and suffix.lower() not in suffixes:
        raise InputError(
            os.fspath(path),
            f"has the suffix {suffix!r}, but {what} is written with {' or '.join(suffixes)}",
            f"name it {Path(path).with_suffix(suffixes[0]).name}",
        )


def check_report(path: Path, *, force: bool) -> None:
    """Refuse a path to which no HTML report can be written, before any work is done."""
    check_suffix(path, "an HTML page", ".html", ".htm")
    check_output(path, force=force)


def file_digest(path: str) -> FileDigest:
    """Return the size and the SHA-256 of a file, for a report."""
    from cordcal.evaluate.results.report import FileDigest

    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
    return FileDigest(Path(path).name, size, digest)
