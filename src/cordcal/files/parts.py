"""Folders and patterns of files that are one input together."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cordcal._errors import InputError
from cordcal._validation.names import class_order
from cordcal.files.columns import FEATURE_NAMES, ColumnSpec
from cordcal.files.contents import Contents
from cordcal.files.opening import NoRows, no_rows
from cordcal.files.passthrough import PartColumns
from cordcal.files.sources import Source, Span


def parts_of(path: str) -> list[str] | None:
    """Return the files of a folder or of a pattern, in order; None where the path is one file.

    Hidden files, and those that begin with ``_`` as a cluster's marks do, are no parts.

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
    if Path(path).is_dir():
        there = [each for each in Path(path).rglob("*") if _is_part(each, path)]
        for each in there:
            if each.is_symlink() and each.is_dir():
                raise InputError(
                    os.fspath(each),
                    "is a link to a folder, which is not followed",
                    "move its files here, or name all parts with a pattern",
                )
    elif glob.has_magic(path):
        there = [Path(each) for each in glob.glob(path, recursive=True)]
    else:
        return None
    found = [each for each in there if each.is_file()]
    for each in there:
        if each.is_symlink() and not each.exists():
            raise InputError(
                os.fspath(each), "is a link to a file that does not exist", "restore or remove it"
            )
    if not found:
        raise InputError(path, "holds no files", "pass a folder or a pattern of score files")
    suffixes = sorted({each.suffix.lower() or "none" for each in found})
    if len(suffixes) > 1:
        raise InputError(
            path,
            f"holds files of several kinds ({', '.join(suffixes)})",
            f"name those that are meant with a pattern, as in '*{suffixes[-1]}'",
        )
    return sorted(map(os.fspath, found))


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
        Where the caller may have given the names of columns without any.
    """
    expected, own = (_names_in_part(each, matrix, spec) for each in (first, part))
    if expected is None and own is None:
        widths = [each.shapes[matrix][1] for each in (part, first)]
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
    """Return the names of a matrix's columns, where they are classes or have headings."""
    if matrix in contents.headings:
        return contents.headings[matrix]
    if matrix in (*FEATURE_NAMES, *(spec.own_features or ())):
        return None
    return contents.class_names or spec.class_names


class Parts(Source):
    """Several files, one after the other; those without rows are passed over.

    Each is open only while its rows are read.
    """

    def __init__(
        self,
        path: str,
        parts: Sequence[str],
        spec: ColumnSpec,
        open_source: Callable[[str, ColumnSpec], Source],
    ) -> None:
        self.path, self.parts = path, parts
        self._places, self._open_source = spec, open_source
        for part in parts:
            try:
                self._sample = self._open(part).sample()
            except NoRows:
                continue
            # Columns of later parts are brought into the order of this one's.
            self._places = replace(spec, order=self._sample.headings)
            self.spans_of = cache(self._spans_of)  # type: ignore[method-assign]
            return
        raise no_rows(path)

    def _open(self, part: str) -> Source:
        return self._open_source(part, self._places)

    def sample(self) -> Contents:
        """Return the first rows of the first part that has any."""
        return replace(self._sample, path=self.path)

    def _spans_of(self, matrix: str) -> tuple[Span, ...]:
        self._counts: list[int] = []
        self._dtypes: list[np.dtype[Any]] = []
        self._columns: list[PartColumns] = []
        found: list[Span] = []
        for part in self.parts:
            done = found[-1][1] if found else 0
            own = self._own_spans(part, matrix)
            found += [(done + start, done + stop) for start, stop in own]
            self._counts.append(len(own))
        return tuple(found)

    def _own_spans(self, part: str, matrix: str) -> tuple[Span, ...]:
        try:
            source = self._open(part)
        except NoRows:
            return ()
        sample = source.sample()
        self._sample.check_header(sample)
        if matrix not in sample.matrices:
            raise InputError(
                part, f"has no {matrix!r}, as the parts before it have", "pass parts of one kind"
            )
        for key in (matrix, *FEATURE_NAMES):
            if key in self._sample.matrices and key in sample.matrices:
                part_order(self._sample, sample, key, self._places)  # refuses other classes
        self._dtypes.append(source.dtype_of(matrix))
        if self._places.rest:
            self._columns += source.part_columns(matrix)
        return source.spans_of(matrix)

    def dtype_of(self, matrix: str) -> np.dtype[Any]:
        """Return the dtype that holds every part's numbers."""
        self.spans_of(matrix)
        return np.result_type(*self._dtypes)

    def part_rows(self, matrix: str) -> list[int]:
        """Return how many rows of a matrix each part has."""
        spans = iter(self.spans_of(matrix))
        return [sum(stop - start for start, stop in islice(spans, count)) for count in self._counts]

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the passthrough columns of each part."""
        self.spans_of(matrix)
        return self._columns

    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows, part after part."""
        self.spans_of(wanted[0])
        done = 0
        for part, count in zip(self.parts, self._counts, strict=True):
            if count and done + count > first:
                yield from self._open(part).pieces(max(0, first - done), wanted, rest=rest)
            done += count
