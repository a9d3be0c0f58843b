"""Folders and patterns of files that are read as one input."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray, NumPyDType
from cordcal._validation.names import class_order
from cordcal.files.columns import FEATURE_NAMES, ColumnSpec
from cordcal.files.disk import NoRows, check_local, no_rows
from cordcal.files.passthrough import PartColumns
from cordcal.files.sources import Contents, Lazy, Source, Span


def parts_of(path: str) -> list[str] | None:
    """Return the files of a folder or of a pattern, in order; None if the path is one file.

    Hidden files, and those that begin with ``_`` such as ``_SUCCESS``, are ignored.

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
    if Path(path).is_dir():
        candidates = [file for file in Path(path).rglob("*") if _is_part(file, path)]
        for file in candidates:
            if file.is_symlink() and file.is_dir():
                raise InputError(
                    os.fspath(file),
                    "is a link to a folder, which is not followed",
                    "move its files here, or name all parts with a pattern",
                )
    elif glob.has_magic(path):
        candidates = [Path(file) for file in glob.glob(path, recursive=True)]
    else:
        return None
    files = [file for file in candidates if file.is_file()]
    for file in candidates:
        if file.is_symlink() and not file.exists():
            raise InputError(
                os.fspath(file), "is a link to a file that does not exist", "restore or remove it"
            )
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


def _is_part(path: Path, folder: str) -> bool:
    return not any(name.startswith((".", "_")) for name in path.relative_to(folder).parts)


def part_order(first: Contents, part: Contents, matrix: str, spec: ColumnSpec) -> list[int] | None:
    """Return the order in which a part's columns are those of the first part.

    Parameters
    ----------
    first, part : Contents
        The first part, and another one.
    matrix : str
        The matrix of both.
    spec : ColumnSpec
        May have the names of columns without headings.
    """
    expected, own = (_names_in_part(contents, matrix, spec) for contents in (first, part))
    if expected is None and own is None:
        widths = [contents.shapes[matrix][1] for contents in (part, first)]
        if widths[0] != widths[1]:
            raise InputError(
                part.path,
                f"has {widths[0]} columns of {matrix} but {first.path} has {widths[1]}",
                "pass parts with the same classes",
            )
        return None
    if expected is None or own is None:
        with_names, without = (first, part) if own is None else (part, first)
        raise InputError(
            without.path,
            f"does not name its classes but {with_names.path} does",
            "name the classes in every part",
        )
    return class_order(own, expected, part.path, first.path)


def _names_in_part(contents: Contents, matrix: str, spec: ColumnSpec) -> tuple[str, ...] | None:
    """Return the names of a matrix's columns: their headings, else the class names."""
    if matrix in contents.headings:
        return contents.headings[matrix]
    if matrix in FEATURE_NAMES:
        return None
    return contents.class_names or spec.class_names


@dataclass(frozen=True)
class _PartSpans:
    """The pieces of one array in all parts."""

    spans: tuple[Span, ...]
    pieces: tuple[int, ...]
    dtypes: tuple[NumPyDType, ...]
    columns: tuple[PartColumns, ...]


class FileParts(Source):
    """Several files, one after the other; files without rows are skipped.

    A file is open only while its rows are read.
    """

    def __init__(
        self,
        path: str,
        parts: Sequence[str],
        spec: ColumnSpec,
        open_source: Callable[[str, ColumnSpec], Source],
    ) -> None:
        self.path, self.parts = path, parts
        self._spec, self._open_source = spec, open_source
        self._scanned: dict[str, _PartSpans] = {}
        for part in parts:
            try:
                self._sample = self._open(part).sample()
            except NoRows:
                continue
            # Columns of later parts are reordered to match this one.
            self._spec = replace(spec, order=self._sample.headings)
            return
        raise no_rows(path)

    def _open(self, part: str) -> Source:
        return self._open_source(part, self._spec)

    def sample(self) -> Contents:
        """Return the first rows of the first part that has any."""
        return replace(self._sample, path=self.path)

    def contents(self) -> Contents:
        """Return all parts as one; arrays are read when they are needed."""
        parts: list[Contents] = []
        for path in self.parts:
            try:
                source = self._open(path)
                source.sample()  # fails without rows
            except NoRows:
                continue
            parts.append(source.contents())
        first = parts[0]
        for other in parts[1:]:
            first.check_header(other)
            for key in (*first.matrices, *first.vectors):
                if key not in other.shapes:
                    raise _lacks(other.path, key)

        def read(key: str) -> NumPyArray:
            arrays = [first[key]]
            for part in parts[1:]:
                order = None
                if key in first.matrices:
                    order = part_order(first, part, key, self._spec)
                arrays.append(part[key] if order is None else part[key].take(order, axis=1))
            return np.concatenate(arrays)

        return replace(
            first,
            path=self.path,
            matrices=Lazy(first.matrices, read),
            vectors=Lazy(first.vectors, read),
            shapes=Lazy(first.shapes, lambda key: read(key).shape),
            other_columns=None,
            parts=tuple(parts),
        )

    def spans_of(self, key: str) -> tuple[Span, ...]:
        """Return the spans of an array in all parts."""
        return self._scan(key).spans

    def _scan(self, key: str) -> _PartSpans:
        """Open every part once, and check that all have the same classes."""
        if key not in self._scanned:
            spans: list[Span] = []
            pieces: list[int] = []
            dtypes: list[NumPyDType] = []
            columns: list[PartColumns] = []
            for part in self.parts:
                done = spans[-1][1] if spans else 0
                own: tuple[Span, ...] = ()
                with suppress(NoRows):
                    source = self._open(part)
                    self._check_part(source, part, key)
                    own = source.spans_of(key)
                    dtypes.append(source.dtype_of(key))
                    if self._spec.passthrough:
                        columns += source.part_columns(key)
                spans += [(done + start, done + stop) for start, stop in own]
                pieces.append(len(own))
            self._scanned[key] = _PartSpans(
                tuple(spans), tuple(pieces), tuple(dtypes), tuple(columns)
            )
        return self._scanned[key]

    def _check_part(self, source: Source, part: str, key: str) -> None:
        """Refuse a part that lacks an array, or has other classes."""
        sample = source.sample()
        self._sample.check_header(sample)
        if key not in sample.shapes:
            raise _lacks(part, key)
        for matrix in (key, *FEATURE_NAMES):
            if matrix in self._sample.matrices and matrix in sample.matrices:
                part_order(self._sample, sample, matrix, self._spec)  # refuses other classes

    def dtype_of(self, key: str) -> NumPyDType:
        """Return the dtype that holds every part's values."""
        return np.result_type(*self._scan(key).dtypes)

    def part_rows(self, matrix: str) -> list[int]:
        """Return how many rows of a matrix each part has."""
        scan = self._scan(matrix)
        spans = iter(scan.spans)
        return [sum(stop - start for start, stop in islice(spans, count)) for count in scan.pieces]

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the passthrough columns of each part."""
        return list(self._scan(matrix).columns)

    def pieces(
        self, first: int, keys: Sequence[str], *, passthrough: bool = False
    ) -> Iterator[Contents]:
        """Yield the pieces of all parts, part after part."""
        done = 0
        for part, count in zip(self.parts, self._scan(keys[0]).pieces, strict=True):
            if count and done + count > first:
                source = self._open(part)
                yield from source.pieces(max(0, first - done), keys, passthrough=passthrough)
            done += count


def _lacks(part: str, key: str) -> InputError:
    return InputError(
        part, f"has no {key!r}, as the parts before it have", "pass parts of one kind"
    )
