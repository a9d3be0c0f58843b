"""The loops of all work over files: over batches on threads, and over parts on any machine.

Rows that a computation refuses are named by file and row, or skipped and counted.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, collect_warnings, raise_first, row_error, warn
from cordcal._numeric.arrays import softmax
from cordcal._numeric.types import Kind, NumPyArray
from cordcal._validation.labels import NO_LABEL
from cordcal._validation.scores import DROP, original_probabilities
from cordcal.files.columns import is_number
from cordcal.files.context import as_texts
from cordcal.files.scores import Batch, ScoreFile, Scores

OnError = Literal["stop", "skip"]
Rows = tuple[Batch, ...]
"""The same rows of one or more files."""
Progress = Callable[[int, int | None], None]
"""Called with the number of rows done and, where it is known, the number of all rows."""

Item = TypeVar("Item")
Result = TypeVar("Result")

Open = Callable[[str], ScoreFile]
"""Opens a part of an input."""
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each item, on any machine, and yields the results in order."""

_NUMBER = re.compile(r"\d[\d.,e+-]*")


def process_batches(
    files: Mapping[str, ScoreFile],
    function: Callable[[Rows], Result],
    *,
    on_error: OnError,
    progress: Progress | None = None,
) -> Iterator[tuple[Result | None, Counter[str]]]:
    """Yield a function's result for each batch, None if no row is left, and what was skipped.

    Parameters
    ----------
    files : mapping of str to ScoreFile
        Files of the same rows, by the names of the arguments in the function's errors.
    function : callable
        Called with the same rows of every file, on several threads at a time.
    on_error : {"stop", "skip"}
        What to do with rows that the function refuses.
    progress : callable, optional
        Called with the number of rows read, and of all rows if that is known.
    """
    if on_error == "skip":
        files = {name: file.with_unlabelled_rows() for name, file in files.items()}

    def work(rows: Rows) -> tuple[Result | None, Counter[str]]:
        errors = RowErrors(files, on_error)
        return errors.apply(rows, function), errors.counts

    try:
        yield from map_overlapped(read_batches(list(files.values()), progress), work)
    except InputError as error:
        if error.reason == NO_LABEL:  # raised where the labels are read, for the whole batch
            raise error.with_option_hint("on_error", "skip") from None
        raise


def read_batches(files: Sequence[ScoreFile], progress: Progress | None = None) -> Iterator[Rows]:
    """Yield the same rows of every file."""
    size = min(file.batch_rows for file in files)
    iterators = [file.batches(size) for file in files]
    done = 0
    while True:
        rows = tuple(next(batches, None) for batches in iterators)
        if all(batch is None for batch in rows):
            return
        counts = [done + (0 if batch is None else len(batch)) for batch in rows]
        if len(set(counts)) > 1:
            at = counts.index(max(counts))
            other = counts.index(min(counts))
            raise InputError(
                files[other].path,
                f"has {counts[other]:,} rows but {files[at].path} has more",
                "both must hold the same rows",
            )
        _check_ids(files, rows)  # type: ignore[arg-type]
        if progress is not None:
            progress(done, files[0].rows)
        done = counts[0]
        yield rows  # type: ignore[misc]
        del rows


def _check_ids(files: Sequence[ScoreFile], rows: Rows) -> None:
    """Refuse two files whose rows have other identifiers."""
    name = files[0].ids
    if name is None or len(files) == 1:
        return
    own, theirs = (batch.context[name] for batch in rows)
    if np.array_equal(own, theirs):  # much faster than text
        return
    first, second = as_texts(own), as_texts(theirs)
    if len(set(first)) == 1:  # such as the name of a model: it does not identify rows
        return
    for at, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other and not _are_same_number(one, other):
            place, row = files[1].place(int(rows[1].numbers[at]))
            raise InputError(
                place,
                f"has other rows than {files[0].path}, or in another order",
                "bring both files into one order, or leave the column out of one of them",
                rows=[row],
                detail=f"has {other!r} in the column {name!r}, unlike {one!r} in {files[0].path}",
            )


def _are_same_number(one: str | None, other: str | None) -> bool:
    """Whether 7.0, as libraries write integers next to a missing one, stands for 7."""
    if one is None or other is None:
        return False
    return is_number(one) and is_number(other) and float(one) == float(other)


def original_and_prediction(
    values: NumPyArray, kind: Kind
) -> tuple[NumPyArray, npt.NDArray[np.intp]]:
    """Return the classifier's probabilities, and the predictions that its scores show."""
    prediction = values.argmax(axis=1)
    if kind == "probabilities":
        return values, prediction
    top = values.max(axis=1)  # NaN is the largest of any row it is in
    hint = "drop or fix such rows"
    raise_first(
        row_error(np.isnan(top), "original", "contains NaN", hint),
        row_error(np.isinf(top), "original", "contains an infinite value", hint),
    )
    return softmax(values), prediction


class RowErrors:
    """What to do with rows that a function refuses, and how many there were of each kind.

    Parameters
    ----------
    files : mapping of str to ScoreFile
        The files by the names of the arguments in the function's errors: ``"scores"``, or
        ``"original"`` and ``"direct"``.
    on_error : {"stop", "skip"}
        Raise an error that names file and row, or skip the row.
    """

    def __init__(self, files: Mapping[str, ScoreFile], on_error: OnError) -> None:
        self.files, self.on_error = files, on_error
        self.counts: Counter[str] = Counter()

    def apply(self, rows: Rows, function: Callable[[Rows], Result]) -> Result | None:
        """Return a function's result for the rows that it accepts; None if it accepts none.

        All rows that are refused for one reason are dropped together, so the function runs
        once for each reason and once for the other rows, however many rows are bad.
        """
        while len(rows[0]):
            try:
                self._check_labels(rows)
                return function(rows)
            except InputError as error:
                accepted = self._accepted(error, rows[0])
            rows = tuple(batch.take(accepted) for batch in rows)
        return None

    def _check_labels(self, rows: Rows) -> None:
        """Refuse rows without a label, which are numbered -1 if they may be skipped."""
        for name, batch in zip(self.files, rows, strict=True):
            if batch.labels is not None:
                raise_first(row_error(batch.labels < 0, name, NO_LABEL, DROP))

    def _accepted(self, error: InputError, batch: Batch) -> npt.NDArray[np.bool_]:
        """Flag the rows that are not refused, or raise with the names of file and row."""
        file = self.files.get(error.argument)
        if file is None or not error.rows.size:
            names = " and ".join(source.name for source in self.files.values())
            raise error.with_argument(f"{names}: {error.argument}") from error
        if self.on_error == "stop":
            path, row = file.place(int(batch.numbers[error.rows[0]]))
            named = error.select_rows(batch.numbers)
            if path != file.path:
                named = named.offset_rows(row - int(named.rows[0]))
            named = named.with_argument(f"{path} ({file.key})")
            if named.hint == DROP:
                named = named.with_option_hint("on_error", "skip")
            raise named from error
        self.counts[error.reason] += error.rows.size
        accepted = np.ones(len(batch), dtype=bool)
        accepted[error.rows] = False
        return accepted


def read_valid_rows(file: ScoreFile) -> tuple[Scores, Counter[str]]:
    """Read the rows that are probabilities or logits, and count the others by what is wrong.

    Parameters
    ----------
    file : ScoreFile
        The scores, with labels if it has them.

    Returns
    -------
    scores : Scores
        The valid rows, in their order, with their numbers in the file.
    skipped : Counter
        How many rows were skipped, by reason.
    """

    def checked(rows: Rows) -> Batch:
        original_probabilities(rows[0].values, file.kind)
        return rows[0]

    file = file.with_unlabelled_rows()
    errors = RowErrors({"scores": file}, "skip")
    accepted = (errors.apply((batch,), checked) for batch in file)
    batches = [batch for batch in accepted if batch is not None]
    if not batches:
        raise InputError(file.name, "has no row that can be read", "fix the rows, or pass others")
    return file.as_scores(Batch.concat(batches, file.dtype)), errors.counts


def map_overlapped(
    items: Iterable[Item], work: Callable[[Item], Result], workers: int | None = None
) -> Iterator[Result]:
    """Yield ``work(item)`` for every item, in order, while other items are read and worked on.

    One thread reads one item ahead, ``workers`` threads work, and the caller consumes: at most
    ``workers`` items are worked on or wait.  Errors anywhere are raised here, in the order of
    the items, and so are the package's warnings: a file of a thousand batches would otherwise
    give the same one a thousand times.

    Parameters
    ----------
    items : iterable
        Read by one thread, so it may block on a file.
    work : callable
        Run by several threads at a time.
    workers : int, optional
        By default one per core.

    Examples
    --------
    >>> list(map_overlapped(range(5), lambda x: x * x))
    [0, 1, 4, 9, 16]
    """
    threads = workers or _count_cores()
    iterator, end = iter(items), object()
    read, run, once = _collecting(next), _collecting(work), _WarnOnce()
    pending: deque[Future[tuple[Result, list[str]]]] = deque()
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(threads) as pool:
        upcoming: Future[tuple[Any, list[str]]] = reader.submit(read, iterator, end)
        try:
            while (item := once.result_of(upcoming)) is not end:
                upcoming = reader.submit(read, iterator, end)
                pending.append(pool.submit(run, item))
                # Only the worker refers to it now: a batch must not outlive its result.
                del item
                if len(pending) >= threads:
                    yield once.result_of(pending.popleft())
            while pending:
                yield once.result_of(pending.popleft())
        finally:
            for future in pending:
                future.cancel()


def _count_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _collecting(work: Callable[..., Result]) -> Callable[..., tuple[Result, list[str]]]:
    def run(*arguments: object) -> tuple[Result, list[str]]:
        with collect_warnings() as messages:
            return work(*arguments), messages

    return run


class _WarnOnce:
    """Issues the warnings of all items in this thread, those that differ only in numbers once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def result_of(self, future: Future[tuple[Result, list[str]]]) -> Result:
        # Returned immediately, so that nothing here outlives its use by the caller.
        result, messages = future.result()
        for message in messages:
            words = _NUMBER.sub("", message)
            if words not in self._seen:
                self._seen.add(words)
                warn(message)
        return result


# Parts.


def run_locally(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Run the work in this process, one item after the other."""
    return map(function, items)


def pair_parts(files: Sequence[ScoreFile]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the names of the parts, and the files of each as absolute paths."""
    parts = [file.parts.files for file in files]
    names = [file.parts.relative for file in files]
    if any(other != names[0] for other in names[1:]) and max(map(len, names)) > 1:
        raise InputError(
            files[0].path,
            f"and {files[1].path} have parts with different names",
            "give the parts of the same rows the same names",
        )
    return names[0], [tuple(map(os.path.abspath, paths)) for paths in zip(*parts, strict=True)]
