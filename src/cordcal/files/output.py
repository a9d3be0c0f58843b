"""Outputs: the base class of their formats, and files written in pieces that can be resumed.

An encoder turns a block of rows into a *piece*: finished, immutable bytes.  Pieces go to a hidden
file next to the output, and a journal lists them with their digests, so that a run can continue
after it was killed.  If a file is more than its pieces in a row (Parquet, Feather), they are also
joined, one by one, in a second hidden file.  A complete file takes the output's name.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, Interrupted
from cordcal._numeric.types import NumPyArray
from cordcal.files.disk import check_free, naming, open_locked, open_private, publish, target_of
from cordcal.files.passthrough import Passthrough

Layout = Literal["wide", "list"]
"""Probabilities as one column per class, or as one column of lists."""


@dataclass(frozen=True, eq=False)
class OutputBlock:
    """Rows of an output: probabilities by name, the predictions they keep, and more columns.

    ``passthrough`` comes first: the columns of the input that are passed through.
    """

    probabilities: Mapping[str, NumPyArray]
    prediction: npt.NDArray[np.integer[Any]]
    extra: Mapping[str, NumPyArray] = field(default_factory=dict)
    passthrough: Passthrough | None = None

    def __len__(self) -> int:
        return int(self.prediction.shape[0])


@dataclass(frozen=True, eq=False)
class Piece:
    """The bytes of a block of rows.

    Attributes
    ----------
    body : bytes-like
        The rows.
    rows : int
        How many there are.
    head : bytes
        What precedes the first piece of a file.
    digest : str
        SHA-256 of the body, to detect damage.
    """

    body: bytes | memoryview
    rows: int
    head: bytes = b""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256(self.body))


def sha256(data: bytes | memoryview) -> str:
    """Return the SHA-256 of some bytes as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class Joiner(Protocol):
    """Writes pieces to an output that is more than their bytes in a row."""

    def append(self, body: bytes | memoryview) -> None:
        """Write the rows of a piece."""


class Encoder(ABC):
    """One output format.

    Attributes
    ----------
    joins : bool
        Whether a file is more than its pieces in a row, and `joiner` writes it.
    """

    joins = False

    def __init__(
        self,
        class_names: Sequence[str] | None = None,
        *,
        spreadsheet: bool = False,
        layout: Layout = "list",
    ) -> None:
        self.names = None if class_names is None else list(class_names)
        self.spreadsheet, self.layout = spreadsheet, layout

    def headings(self, name: str, classes: int) -> list[str]:
        """Return the names of the columns of probabilities, one per class."""
        return [f"{name}:{class_name}" for class_name in self.names or range(classes)]

    @abstractmethod
    def encode(self, block: OutputBlock) -> Piece:
        """Return a block's piece."""

    def finish(self, file: BinaryIO, rows: int) -> None:  # noqa: B027 - most formats need nothing
        """Complete a file of all pieces in a row."""

    def joiner(self, file: BinaryIO) -> AbstractContextManager[Joiner]:
        """Return a `Joiner` for formats whose pieces are not simply concatenated."""
        raise NotImplementedError

    def write(self, file: BinaryIO, block: OutputBlock) -> None:
        """Write a file of one block."""
        piece = self.encode(block)
        if self.joins:
            with self.joiner(file) as joiner:
                joiner.append(piece.body)
        else:
            file.write(piece.head)
            file.write(piece.body)
            self.finish(file, piece.rows)


JournalEntry = dict[str, Any]
"""One line of a journal."""

# Of each end of an input file this many bytes are part of its identity.
_END_BYTES = 2**16


class NoRowsLeft(InputError):
    """Every row was skipped, which is allowed for one of several parts.

    Attributes
    ----------
    skipped : Counter
        Number of skipped rows by reason.
    """

    skipped: Counter[str]


def no_rows_left(
    output: str | os.PathLike[str], skipped: Iterable[Mapping[str, int]]
) -> NoRowsLeft:
    """Return the error that every row was skipped, with the total counts by reason."""
    reason = "would be empty, because no row of the input can be used"
    error = NoRowsLeft(os.fspath(output), reason, "fix the rows, or pass others")
    error.skipped = Counter()
    for counts in skipped:
        error.skipped.update(counts)
    return error


def file_identity(path: str | os.PathLike[str]) -> list[int | str]:
    """Return what changes if a file does: size, times, and a digest of its first and last bytes."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        first = file.read(_END_BYTES)
        file.seek(max(0, status.st_size - _END_BYTES))
        digest = sha256(first + file.read(_END_BYTES))
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, digest]


class ResumableOutput:
    """The finished pieces of an output; made by `resumable_output`.

    Attributes
    ----------
    records : list of dict
        One for every piece: its rows, its place, its digest and the arguments of `append`.
    """

    def __init__(self, name: str, pieces: BinaryIO, journal: BinaryIO) -> None:
        self._name = name
        self._pieces, self._journal = pieces, journal
        self._joiner: Joiner | None = None
        self.records: list[JournalEntry] = []

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return sum(record["rows"] for record in self.records)

    @property
    def position(self) -> int:
        """Rows of the input that are done."""
        return int(self.records[-1]["position"]) if self.records else 0

    def append(self, piece: Piece, *, position: int, changed: int, skipped: dict[str, int]) -> None:
        """Write a piece, then record in the journal that it is finished.

        Parameters
        ----------
        piece : Piece
            The rows to write.
        position : int
            How many rows of the input are done with it.
        changed : int
            Rows in which the calibrator predicts another class.
        skipped : dict of str to int
            Rows of the input that were skipped, by reason.
        """
        end = self.records[-1]["end"] if self.records else 0
        record: JournalEntry = {"position": position, "rows": piece.rows}
        if piece.rows:
            if end == 0:
                end = self._pieces.write(piece.head)
                record["head"] = sha256(piece.head)
            record |= {"start": end, "end": end + len(piece.body), "digest": piece.digest}
            self._pieces.write(piece.body)
            self._pieces.flush()
            if self._joiner is not None:
                self._joiner.append(piece.body)
        else:
            record |= {"start": end, "end": end, "digest": ""}
        record |= {"changed": changed, "skipped": skipped}
        self._journal.write(json.dumps(record).encode() + b"\n")
        self._journal.flush()
        self.records.append(record)

    def restore(self, journal: _Journal, joiner: Joiner | None) -> None:
        """Continue after the recorded pieces that are there and undamaged."""
        self._joiner = joiner
        self._pieces.seek(0)
        journal_end = journal.job_end
        for record, record_end in journal.records:
            if "head" in record and sha256(self._pieces.read(record["start"])) != record["head"]:
                break
            body = self._pieces.read(record["end"] - record["start"])
            if record["rows"]:
                if sha256(body) != record["digest"]:
                    break
                if joiner is not None:
                    joiner.append(body)
            self.records.append(record)
            journal_end = record_end
        end = self.records[-1]["end"] if self.records else 0
        for file, size in ((self._pieces, end), (self._journal, journal_end)):
            file.truncate(size)
            file.seek(size)


@dataclass(frozen=True)
class _Journal:
    """A journal that was read: the job, and the records with the end of each line."""

    job: JournalEntry
    records: list[tuple[JournalEntry, int]]
    job_end: int


@contextmanager
def resumable_output(
    path: str | os.PathLike[str],
    encoder: Encoder,
    job: JournalEntry,
    *,
    resume: bool,
    overwrite: bool = True,
) -> Iterator[ResumableOutput]:
    """Yield an output that becomes ``path`` when the block ends without an error.

    An error removes everything; a killed or interrupted run leaves its pieces, hidden, for the
    next one (`rows_left_behind`).

    Parameters
    ----------
    path : path
        The output; behind a symbolic link, the file it points to.
    encoder : Encoder
        Its format.
    job : dict
        What the output is made of; a run with another job does not continue this one.
    resume : bool
        Continue an earlier run of the same job, if there was one.
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    target = target_of(path)
    pieces_path, joined_path, journal_path = hidden_files(target)
    with naming(target), _open_journal(journal_path, target) as journal:
        # Only now: another writer that was just finishing may have made the output.
        check_free(target, overwrite=overwrite)
        with ExitStack() as stack:
            pieces = stack.enter_context(os.fdopen(open_private(pieces_path), "r+b"))
            output = ResumableOutput(os.fspath(path), pieces, journal)
            finished, finished_path = pieces, pieces_path
            if encoder.joins:
                finished_path = joined_path
                finished = stack.enter_context(os.fdopen(open_private(joined_path), "r+b"))
                finished.truncate(0)
            recorded = _read_journal(journal, journal_path) if resume else None
            if recorded is not None:
                _check_job(recorded.job, job, target)
            else:
                recorded = _Journal(job, [], _write_job(journal, job))
            try:
                with encoder.joiner(finished) if encoder.joins else nullcontext() as joiner:
                    output.restore(recorded, joiner)
                    yield output
                    if not output.rows:
                        raise no_rows_left(path, (record["skipped"] for record in output.records))
                if joiner is None:
                    encoder.finish(finished, output.rows)
                finished.flush()
                publish(finished_path, target, overwrite=overwrite)
            except BaseException as error:
                joined_path.unlink(missing_ok=True)
                if isinstance(error, KeyboardInterrupt) and output.records:
                    raise Interrupted(
                        f"{output.rows:,} rows of {os.fspath(path)} are kept",
                        "the same command with {option} continues after them",
                        option=("resume", "True"),
                    ) from error
                pieces_path.unlink(missing_ok=True)
                journal_path.unlink()
                raise
            pieces_path.unlink(missing_ok=True)
            journal_path.unlink()


def hidden_files(target: Path) -> tuple[Path, Path, Path]:
    """Return where the pieces, the joined file and the journal are until the output is whole."""
    pieces, joined, journal = (
        target.with_name(f".{target.name}.{kind}") for kind in ("partial", "joined", "journal")
    )
    return pieces, joined, journal


def unfinished_rows(path: str | os.PathLike[str]) -> int:
    """Return how many rows an interrupted run has written, which the next one can keep."""
    pieces, _, notes = hidden_files(target_of(path))
    try:
        size = pieces.stat().st_size
        with notes.open("rb") as journal:
            recorded = _read_journal(journal, notes)
    except (OSError, InputError):
        return 0
    records = [] if recorded is None else [record for record, _ in recorded.records]
    return sum(record["rows"] for record in records if record["end"] <= size)


@contextmanager
def _open_journal(path: Path, target: Path) -> Iterator[BinaryIO]:
    """Open the journal and lock it: only the process that has the lock touches the pieces."""
    handle = open_locked(path)
    if handle is None:
        raise InputError(str(target), "is being written by another process", "wait for it")
    with os.fdopen(handle, "r+b") as journal:
        try:
            yield journal
        finally:
            if not os.fstat(handle).st_size:  # made here, and nothing was written
                path.unlink(missing_ok=True)


def _read_journal(journal: BinaryIO, path: Path) -> _Journal | None:
    """Return a journal's lines; None if it has none.  A kill may have cut the last one short."""
    records: list[tuple[JournalEntry, int]] = []
    end = 0
    for line in journal.read().splitlines(keepends=True):
        if line.endswith(b"\n"):
            end += len(line)
            records.append((_parse_record(line, path, is_job=not records), end))
    return _Journal(records[0][0], records[1:], records[0][1]) if records else None


def _write_job(journal: BinaryIO, job: JournalEntry) -> int:
    """Begin a journal, and return the end of its first line."""
    journal.seek(0)
    journal.truncate()
    end = journal.write(json.dumps(job).encode() + b"\n")
    journal.flush()
    return end


def _parse_record(line: bytes, path: Path, *, is_job: bool) -> JournalEntry:
    """Return one line of a journal, or refuse it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not (is_job or _describes_piece(record)):
        raise InputError(
            str(path),
            "is not a journal of an interrupted run",
            "remove it, or start again without {option}",
            option=("resume", "True"),
        )
    return record


def _describes_piece(record: JournalEntry) -> bool:
    skipped, start, end = record.get("skipped"), record.get("start"), record.get("end")
    if not isinstance(skipped, dict) or not isinstance(record.get("digest"), str):
        return False
    numbers = [start, end, *(record.get(name) for name in ("rows", "changed", "position"))]
    are_counts = all(
        type(number) is int and number >= 0 for number in [*numbers, *skipped.values()]
    )
    return are_counts and start <= end  # type: ignore[operator]


def _check_job(recorded: JournalEntry, job: JournalEntry, target: Path) -> None:
    # JSON turns tuples into lists: compare what was written with what would be.
    now = json.loads(json.dumps(job))
    differs = sorted(name for name in {*recorded, *now} if recorded.get(name) != now.get(name))
    if differs:
        raise InputError(
            str(target),
            f"was begun with another {' and '.join(differs)}",
            "finish it as it was begun, or start again without {option}",
            option=("resume", "True"),
        )
