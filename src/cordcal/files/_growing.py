"""An output that grows block by block and can be continued after the process was killed.

The blocks go to a hidden file beside the output, which takes the output's name when it is
whole.  A journal says which blocks are in it, so that the next run can go on behind them.
"""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cordcal._errors import InputError, Interrupted
from cordcal.files._encoding import Encoded, Encoder
from cordcal.files._locks import open_locked, open_private
from cordcal.files._replacing import check_free, naming, publish, target_of

Record = dict[str, Any]


class NothingLeft(InputError):
    """Every row was refused, which is fine for one of several parts.

    Attributes
    ----------
    skipped : Counter
        How many rows were, by reason.
    """

    skipped: Counter[str]


def nothing_left(
    output: str | os.PathLike[str], skipped: Iterable[Mapping[str, int]]
) -> NothingLeft:
    """Say that every row was refused; each block has counted its own by reason."""
    why = "would be empty, because no row of the input can be used"
    refusal = NothingLeft(os.fspath(output), why, "mend the rows, or pass others")
    refusal.skipped = Counter()
    for counts in skipped:
        refusal.skipped.update(counts)
    return refusal


class GrowingFile:
    """The part of an output that is there; made by `growing`.

    Attributes
    ----------
    records : list of dict
        One for every block that is there: what `append` was told about it.
    """

    def __init__(self, name: str, file: BinaryIO, journal: BinaryIO, encoder: Encoder) -> None:
        self._name = name
        self._file, self._journal, self._encoder = file, journal, encoder
        self.records: list[Record] = []

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return sum(record["rows"] for record in self.records)

    def append(self, block: Encoded, **told: Any) -> None:
        """Write a block, then note in the journal that it is there."""
        end = self.records[-1]["end"] if self.records else 0
        if end == 0 and block.rows:
            end = self._file.write(block.head)
        start = end
        if block.rows:
            end += sum(map(self._file.write, block.body))
            self._file.flush()
        footer = base64.b64encode(block.footer).decode()
        record = {"start": start, "end": end, "rows": block.rows, "footer": footer, **told}
        self._journal.write(json.dumps(record).encode() + b"\n")
        self._journal.flush()
        self.records.append(record)

    def resume(self, records: list[Record]) -> None:
        """Go on behind these blocks; whatever lies behind them is cut off."""
        self.records = records
        end = records[-1]["end"] if records else 0
        self._file.truncate(end)
        self._file.seek(end)

    def finish(self) -> None:
        """End the file."""
        if not self.rows:
            raise nothing_left(self._name, (record.get("skipped", {}) for record in self.records))
        parts = [
            (record["start"], base64.b64decode(record["footer"]))
            for record in self.records
            if record["rows"]
        ]
        self._encoder.finish(self._file, parts, self.rows)
        self._file.flush()


@contextmanager
def growing(
    path: str | os.PathLike[str],
    encoder: Encoder,
    job: Record,
    *,
    resume: bool,
    overwrite: bool = True,
) -> Iterator[GrowingFile]:
    """Yield a file that becomes ``path`` when the block ends well.

    An error removes what was written; a killed or interrupted run leaves it, hidden, for
    the next one (`left_behind`).

    Parameters
    ----------
    path : path
        The output; behind a symbolic link, the file it points to.
    encoder : Encoder
        Its format.
    job : dict
        What the output is made of; a run with another job does not continue this one.
    resume : bool
        Go on where an earlier run of the same job stopped, if there was one.
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    target = target_of(path)
    hidden, notes = hidden_files(target)
    with naming(target), _journal(notes, target) as journal:
        # Only now: a writer that was just finishing may have made the output.
        check_free(target, overwrite=overwrite)
        with os.fdopen(open_private(hidden), "r+b") as file:
            output = GrowingFile(os.fspath(path), file, journal, encoder)
            records = _read(journal, notes, hidden.stat().st_size) if resume else []
            if records:
                _check_job(records[0], job, target)
            else:
                journal.truncate(0)
                journal.write(json.dumps(job).encode() + b"\n")
                journal.flush()
            output.resume(records[1:])
            try:
                yield output
                output.finish()
                publish(hidden, target, overwrite=overwrite)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and output.records:
                    raise Interrupted(
                        f"{output.rows:,} rows of {os.fspath(path)} are kept",
                        "the same command with {option} goes on behind them",
                        option=("resume", "True"),
                    ) from error
                hidden.unlink(missing_ok=True)
                notes.unlink()
                raise
            notes.unlink()


def hidden_files(target: Path) -> tuple[Path, Path]:
    """Return where the blocks and their journal lie until the output is whole."""
    partial, journal = (f".{target.name}.{kind}" for kind in ("partial", "journal"))
    return target.with_name(partial), target.with_name(journal)


def left_behind(path: str | os.PathLike[str]) -> int:
    """Return how many rows of an output an interrupted run left, which the next may go on with."""
    hidden, notes = hidden_files(target_of(path))
    try:
        with notes.open("rb") as journal:
            lines = journal.read().splitlines(keepends=True)[1:]
        size = hidden.stat().st_size
        # A killed run may have left half a line.
        whole = [line for line in lines if line.endswith(b"\n")]
        found = [_record(line, notes, is_job=False) for line in whole]
    except (OSError, InputError):
        return 0
    return sum(record["rows"] for record in found if record["end"] <= size)


@contextmanager
def _journal(notes: Path, target: Path) -> Iterator[BinaryIO]:
    """Open the journal and lock it: whoever has it may touch the file beside it."""
    handle = open_locked(notes)
    if handle is None:
        raise InputError(str(target), "is being written by another process", "wait for it")
    with os.fdopen(handle, "r+b") as journal:
        try:
            yield journal
        finally:
            if not os.fstat(handle).st_size:  # made here, and nothing came of it
                notes.unlink(missing_ok=True)


def _read(journal: BinaryIO, notes: Path, size: int) -> list[Record]:
    """Return the whole records of a journal that describe bytes which are there."""
    records: list[Record] = []
    whole = 0
    for line in journal.read().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        record = _record(line, notes, is_job=not records)
        if record.get("end", 0) > size:
            break
        records.append(record)
        whole += len(line)
    journal.truncate(whole)
    journal.seek(whole)
    return records


def _record(line: bytes, notes: Path, *, is_job: bool) -> Record:
    """Return one line of a journal, or say that it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not (is_job or _describes_block(found)):
        raise InputError(
            str(notes),
            "is no journal of an interrupted run",
            "remove it, or start anew without {option}",
            option=("resume", "True"),
        )
    return found


def _describes_block(record: Record) -> bool:
    numbers = [record.get(name) for name in ("start", "end", "rows", "changed")]
    skipped = record.get("skipped")
    if not isinstance(skipped, dict) or not isinstance(record.get("footer"), str):
        return False
    return all(type(each) is int and each >= 0 for each in [*numbers, *skipped.values()])


def _check_job(found: Record, job: Record, target: Path) -> None:
    # JSON turns tuples into lists: compare what was written with what would be.
    now = json.loads(json.dumps(job))
    differs = sorted(name for name in {*found, *now} if found.get(name) != now.get(name))
    if differs:
        raise InputError(
            str(target),
            f"was begun with another {' and '.join(differs)}",
            "finish it as it was begun, or start anew without {option}",
            option=("resume", "True"),
        )
