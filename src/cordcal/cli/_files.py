"""Which options of the commands name files, and why no output ever replaces an input."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cordcal._errors import InputError

INPUTS = (
    "scores",
    "reports",
    "original",
    "direct",
    "evaluation",
    "model",
    "labels",
    "weights",
    "features",
    "class_names",
    "groups",
    "gates",
    "baseline",
)
"""Arguments that name what a command reads; `write_study` knows the many files of a study."""
OUTPUTS = ("output", "report", "write_baseline", "junit")
"""Arguments that name what a command writes."""

_Key = tuple[Any, ...]


@dataclass(frozen=True)
class _Named:
    """A file, folder or pattern, and the option that names it, as people write it."""

    option: str
    path: str

    @cached_property
    def parts(self) -> list[str] | None:
        """The files of a folder or of a pattern; None where it is one file, or wrong."""
        if self.path == "-" or Path(self.path).is_file():
            return None
        from cordcal.files._parts import parts_of

        with suppress(InputError):
            return parts_of(self.path)
        return None


def check_files(options: Mapping[str, Any], written: Mapping[str, str]) -> None:
    """Refuse outputs that are inputs, lie among them, or have one name.

    Parameters
    ----------
    options : mapping of str to object
        The arguments of a command.
    written : mapping of str to str
        How people write each of them, such as ``--output``.
    """
    inputs, outputs = (
        [_Named(written[name], str(options[name])) for name in names if options.get(name)]
        for names in (INPUTS, OUTPUTS)
    )
    if not outputs:
        return
    read: dict[_Key, _Named] = {}
    for source in inputs:
        for path in [source.path] if source.parts is None else source.parts:
            read |= dict.fromkeys(_keys(path, sys.stdin), source)
    in_parts = bool(options.get("scheduler")) or any(each.parts is not None for each in inputs)
    for output in outputs:
        _check_apart(output, read, in_parts=in_parts)
        for source in inputs:
            _check_outside(output, source)
    _check_names(outputs)


def _check_apart(output: _Named, read: Mapping[_Key, _Named], *, in_parts: bool) -> None:
    """Refuse an output that is an input under whatever name, or a folder that has one in it."""
    for path in _written_to(output.path, in_parts=in_parts):
        for key in _keys(path, sys.stdout):
            if key in read:
                place = "stdout" if path == "-" else path
                raise InputError(
                    output.option,
                    f"would replace {place}, which the same command reads ({read[key].option})",
                    "name another output; not even --force replaces an input",
                )


def _written_to(path: str, *, in_parts: bool) -> Iterator[str]:
    """Yield the files that may be replaced where an output goes."""
    yield path
    if path == "-":
        return
    if Path(path).is_dir():
        if in_parts:
            yield from (str(each) for each in Path(path).rglob("*") if each.is_file())
        return
    from cordcal.files._growing import hidden_files

    yield from map(str, hidden_files(Path(os.path.realpath(path))))


def _check_outside(output: _Named, source: _Named) -> None:
    """Refuse an output that the next run would read as a part of the input's folder."""
    if output.path == "-" or not Path(source.path).is_dir():
        return
    folder, target = (Path(os.path.realpath(each.path)) for each in (source, output))
    if not target.is_relative_to(folder):
        return
    if any(name.startswith((".", "_")) for name in target.relative_to(folder).parts):
        return  # no part
    raise InputError(
        output.option,
        f"is {output.path}, in the folder {source.path} whose files the same command reads "
        f"({source.option})",
        "name a place outside that folder",
    )


def _check_names(outputs: Iterable[_Named]) -> None:
    """Refuse two outputs of one name; what is printed may be redirected to a file, too."""
    before = dict.fromkeys(_keys("-", sys.stdout), "stdout")
    for output in outputs:
        if output.path == "-":
            continue
        keys = _keys(output.path, sys.stdout)
        for key in keys:
            if key in before:
                raise InputError(
                    output.option,
                    f"is {output.path}, and so is {before[key]}",
                    "give each output a name of its own",
                )
        before |= dict.fromkeys(keys, output.option)


def _keys(path: str, stream: Any) -> list[_Key]:
    """Return what tells whether two paths are one file: the place, and the file that is there.

    ``-`` is the stream, which is a file only if the shell has redirected it to one.
    """
    try:
        if path == "-":
            status = os.fstat(stream.fileno())
            return [_identity(status)] if stat.S_ISREG(status.st_mode) else []
        place = ("place", os.path.normcase(os.path.realpath(path)))
    except (OSError, ValueError, AttributeError):  # streams in memory
        return []
    with suppress(OSError):
        return [place, _identity(os.stat(path))]
    return [place]


def _identity(status: os.stat_result) -> _Key:
    return ("file", status.st_dev, status.st_ino)


def check_output(path: str | os.PathLike[str], *, force: bool) -> None:
    """Refuse an output file that could not be written, before any work is done."""
    if str(path) == "-":
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(str(target), "is a folder", "name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(str(target), "is no regular file", "name a file")
    if target.exists() and not force:
        raise InputError(str(target), "exists already", "pass --force to replace it")
    folder = target.parent
    if not folder.is_dir():
        why = f"cannot be written: the folder {folder} does not exist"
        raise InputError(str(target), why, "make it first, or name another")
    if not os.access(folder, os.W_OK):
        why = f"cannot be written: the folder {folder} is not writable"
        raise InputError(str(target), why, "name another")


def check_suffix(path: str | os.PathLike[str], what: str, *suffixes: str) -> None:
    """Refuse an output whose suffix names another format than the one that is written.

    Examples
    --------
    >>> check_suffix("report.html", "an HTML page", ".html", ".htm")
    """
    suffix = Path(path).suffix
    # No suffix, or the end of a version such as run-1.2, names no format.
    if suffix and not suffix[1:].isdecimal() and suffix.lower() not in suffixes:
        raise InputError(
            os.fspath(path),
            f"has the suffix {suffix!r}, but {what} is written",
            f"use the suffix {' or '.join(suffixes)}",
        )


def check_report(path: Path, *, force: bool) -> None:
    """Refuse a file that a report could not be written to, before any work is done."""
    check_suffix(path, "an HTML page", ".html", ".htm")
    check_output(path, force=force)
