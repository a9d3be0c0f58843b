"""Folders and patterns of files that are one input together."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

from cordcal._door.errors import Refusal
from cordcal.files._contents import Contents
from cordcal.files._opening import NoRows, no_rows
from cordcal.files._sources import Source, Span


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
                raise Refusal(
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
            raise Refusal(
                os.fspath(each), "is a link to a file that does not exist", "restore or remove it"
            )
    if not found:
        raise Refusal(path, "holds no files", "pass a folder or a pattern of score files")
    suffixes = sorted({each.suffix.lower() or "none" for each in found})
    if len(suffixes) > 1:
        raise Refusal(
            path,
            f"holds files of several kinds ({', '.join(suffixes)})",
            f"name those that are meant with a pattern, as in '*{suffixes[-1]}'",
        )
    return sorted(map(os.fspath, found))


def _is_part(path: Path, folder: str) -> bool:
    return not any(name.startswith((".", "_")) for name in path.relative_to(folder).parts)


class Parts(Source):
    """Several files, one after the other; those without rows are passed over.

    Each is open only while its rows are read.
    """

    def __init__(self, path: str, parts: Sequence[str], open_part: Callable[[str], Source]) -> None:
        self.path, self.parts, self._open = path, parts, open_part
        for part in parts:
            try:
                self._sample = open_part(part).sample()
            except NoRows:
                continue
            self.spans_of = cache(self._spans_of)  # type: ignore[method-assign]
            return
        raise no_rows(path)

    def sample(self) -> Contents:
        """Return the first rows of the first part that has any."""
        return replace(self._sample, path=self.path)

    def _spans_of(self, matrix: str) -> tuple[Span, ...]:
        self._counts: list[int] = []
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
        there = sample.matrices
        if matrix not in there:
            raise Refusal(
                part, f"has no {matrix!r}, as the parts before it have", "pass parts of one kind"
            )
        return source.spans_of(matrix)

    def part_rows(self, matrix: str) -> list[int]:
        """Return how many rows of a matrix each part has."""
        spans = iter(self.spans_of(matrix))
        return [sum(stop - start for start, stop in islice(spans, count)) for count in self._counts]

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
