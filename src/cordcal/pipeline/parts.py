"""Folders of parts: each is repaired separately, here or on other machines.

While the work runs, a journal in the output folder lists the finished parts, so that a killed
run can be continued; each part is complete or absent.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from cordcal._errors import ClusterFailure, InputError, Interrupted
from cordcal._numeric.types import NumPyArray
from cordcal.evaluate.audit import AuditStream
from cordcal.files.disk import NoRows, open_locked
from cordcal.files.formats import written_suffixes
from cordcal.files.output import NoRowsLeft, file_identity, no_rows_left
from cordcal.files.scores import ScoreFile
from cordcal.pipeline.applying import (
    Applied,
    CalibratedRows,
    RepairedRows,
    apply_model,
    describe_model,
    sum_counts,
)
from cordcal.pipeline.auditing import (
    AuditedFiles,
    append_rows,
    audit_rows,
    finish_audit,
    merge_audits,
)
from cordcal.pipeline.loop import OnError, process_batches
from cordcal.repair import CORD, Lift

Item = TypeVar("Item")
Result = TypeVar("Result")
Open = Callable[[str], ScoreFile]
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each item, on any machine, and yields the results in order."""

Identity = list[list[int | str]]
"""The `file_identity` of each input of a part."""

_JOURNAL = ".cordcal.journal"


def run_locally(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Run the work in this process, one item after the other."""
    return map(function, items)


def part_names(folder: str, parts: Sequence[str]) -> list[str]:
    """Return the name of each part of a folder or pattern in the output folder.

    Examples
    --------
    >>> part_names("scores", ["scores/day=1/a.parquet", "scores/day=2/a.parquet"])
    ['day=1/a.parquet', 'day=2/a.parquet']
    """
    root = folder if Path(folder).is_dir() else os.path.commonpath([Path(p).parent for p in parts])
    return [os.path.relpath(part, root) for part in parts]


@dataclass(frozen=True)
class PartWork:
    """How to repair one part: everything that a process on another machine needs.

    Attributes
    ----------
    model : PreservingCalibrator, CORD or Lift
        The fitted model.
    readers : tuple of callable
        Open a part of the scores, or of the original and the direct probabilities.
    options : mapping
        ``dtype``, ``with_direct`` and ``explain``.
    writing : mapping
        Options of `apply_model`.
    resume : bool
        Whether to continue a killed run of the same job.
    """

    model: Any
    readers: tuple[Open, ...]
    options: Mapping[str, Any]
    writing: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False

    def __call__(self, part: tuple[tuple[str, ...], str]) -> Applied:
        """Repair a part, given as its inputs and its output; without valid rows, write nothing."""
        paths, output = part
        skipped: Counter[str] = Counter()
        try:
            files = [reader(path) for reader, path in zip(self.readers, paths, strict=True)]
            kind: Any = CalibratedRows if len(files) == 1 else RepairedRows
            Path(output).parent.mkdir(parents=True, exist_ok=True)
            rows = kind(self.model, *files, **self.options)
            return apply_model(rows, output, resume=self.resume, **self.writing)
        except NoRowsLeft as refusal:
            skipped = refusal.skipped
        except NoRows:
            pass
        # An output of an earlier run would be mistaken for one of this run.
        Path(output).unlink(missing_ok=True)
        return Applied(0, self.model.n_classes_, 0, dict(skipped))


def apply_parts(
    work: PartWork,
    inputs: Sequence[tuple[str, ...]],
    names: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    run: Run = run_locally,
) -> Applied:
    """Write the repaired probabilities of each part to a file of the same name in a folder.

    Parameters
    ----------
    work : PartWork
        How to repair a part.
    inputs : sequence of tuple of str
        The files of each part.
    names : sequence of str
        The name of each part in the folder.
    folder : path
        The folder of the outputs.
    overwrite : bool
        Whether existing parts may be replaced.
    run : callable
        Runs the work; by default in this process, one part after the other.

    Returns
    -------
    applied : Applied
        Counts over all parts.
    """
    target = Path(folder)
    _check_suffixes(names)
    reading = [getattr(reader, "keywords", None) for reader in work.readers]
    options = repr((work.options, work.writing, reading))
    job = {**describe_model(work.model), "options": options}
    parts = {name: [*map(file_identity, paths)] for name, paths in zip(names, inputs, strict=True)}
    with _journal(target, job, parts, resume=work.resume, overwrite=overwrite) as journal:
        remaining = [at for at, name in enumerate(names) if name not in journal.done]
        resumed_rows = sum(record["rows"] for record in journal.done.values())
        items = [(inputs[at], str(target / names[at])) for at in remaining]
        try:
            for at, done in zip(remaining, run(work, items), strict=True):
                journal.record(names[at], parts[names[at]], done)
        except (KeyboardInterrupt, ClusterFailure) as error:
            progress = (
                f"{len(journal.done)} of {len(names)} parts are complete in {os.fspath(folder)}"
            )
            hint, option = (
                "the same command with {option} continues with the others",
                ("resume", "True"),
            )
            if isinstance(error, ClusterFailure):
                reason = f"{error.reason}; {progress}"
                raise ClusterFailure(error.argument, reason, hint, option=option) from error
            raise Interrupted(progress, hint, option=option) from error
        total = sum_counts(list(journal.done.values()), work.model.n_classes_, resumed_rows)
        if not total.rows:
            raise no_rows_left(folder, [total.skipped])
        return total


def _check_suffixes(names: Sequence[str]) -> None:
    for name in names:
        if Path(name).suffix.lower() not in written_suffixes():
            raise InputError(
                name,
                "has a format in which probabilities cannot be written",
                f"name an output file with one of the suffixes {', '.join(written_suffixes())}",
            )


class _Journal:
    """Which parts are done, in memory and on the disk."""

    def __init__(self, folder: Path, file: BinaryIO, done: dict[str, dict[str, Any]]) -> None:
        self._folder, self._file, self.done = folder, file, done

    def record(self, name: str, identity: Identity, applied: Applied) -> None:
        output = file_identity(self._folder / name) if applied.rows else None
        self.done[name] = {"input": identity, "output": output, **applied.to_dict()}
        self._file.write(json.dumps({"part": name, **self.done[name]}).encode() + b"\n")
        self._file.flush()


@contextmanager
def _journal(
    folder: Path,
    job: dict[str, Any],
    parts: Mapping[str, Identity],
    *,
    resume: bool,
    overwrite: bool,
) -> Iterator[_Journal]:
    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), "is a file", "name a folder for the parts")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _JOURNAL
    handle = open_locked(path)
    if handle is None:
        raise InputError(str(folder), "is being written by another process", "wait for it")
    with os.fdopen(handle, "r+b") as file:
        done = _read_journal(file, job, folder, parts) if resume else {}
        try:
            _check_folder(folder, parts, overwrite=overwrite or resume)
        except InputError:
            if not os.fstat(handle).st_size:
                path.unlink()
            raise
        if not done:
            file.seek(0)
            file.truncate()
            file.write(json.dumps(job).encode() + b"\n")
            file.flush()
        yield _Journal(folder, file, done)
        path.unlink()


def finished_parts(folder: str | os.PathLike[str]) -> int:
    """Return how many parts an interrupted run has finished, which the next one can keep."""
    try:
        lines = (Path(folder) / _JOURNAL).read_bytes().splitlines(keepends=True)[1:]
    except OSError:
        return 0
    return sum(line.endswith(b"\n") for line in lines)


def _check_folder(folder: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Refuse a folder with other files, which a reader would mistake for parts."""
    existing = {
        os.path.relpath(file, folder)
        for file in folder.rglob("*")
        if file.is_file() and not file.name.startswith(".")
    }
    foreign = sorted(existing - {*names})
    if foreign:
        raise InputError(
            str(folder), f"contains other files ({foreign[0]})", "name a new or an empty folder"
        )
    if existing and not overwrite:
        raise InputError(
            str(folder),
            "already contains parts",
            "pass {option} to replace them",
            option=("overwrite", "True"),
        )


def _read_journal(
    file: BinaryIO, job: dict[str, Any], folder: Path, parts: Mapping[str, Identity]
) -> dict[str, dict[str, Any]]:
    """Return the parts that an earlier run of the same job has finished, as they are now."""
    lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    if not lines:
        return {}
    try:
        first, *records = (json.loads(line) for line in lines)
        done = {record.pop("part"): record for record in records}
    except (ValueError, KeyError, AttributeError, TypeError):
        first, done = None, {}
    if first != json.loads(json.dumps(job)):
        raise InputError(
            str(folder),
            "was begun with another model or set of options",
            "finish it as it was begun, or start again without {option}",
            option=("resume", "True"),
        )
    return {
        name: record
        for name, record in done.items()
        if record.get("input") == parts.get(name)
        and (not record["rows"] or _is_unchanged(folder / name, record.get("output")))
    }


def _is_unchanged(output: Path, identity: object) -> bool:
    return output.is_file() and file_identity(output) == identity


# Audits.


@dataclass(frozen=True, eq=False)
class AuditPart:
    """One part of an audit.

    Attributes
    ----------
    original, direct : str
        The files of its scores and of its direct probabilities.
    vectors : mapping of str to ndarray
        ``labels`` and ``weights`` of its rows, if they are in separate files.
    """

    original: str
    direct: str
    vectors: Mapping[str, NumPyArray] = field(default_factory=dict)


@dataclass(frozen=True)
class _PartState:
    """What an audit needs of a part to fit the repair: its rows and their summary."""

    rows: int
    state: Any
    class_names: tuple[str, ...] | None


@dataclass(frozen=True)
class _DescribePart:
    readers: tuple[Open, Open]
    on_error: OnError
    with_state: bool

    def __call__(self, part: AuditPart) -> _PartState:
        files = _open_pair(self.readers, part)
        if files is None:
            return _PartState(0, None, None)
        original, direct = files["original"], files["direct"]
        names = original.class_names or direct.class_names
        if not self.with_state:
            return _PartState(original.rows, None, names)
        state = CORD()._new_state(direct.classes, None)
        append_rows(state, files, self.on_error)
        return _PartState(original.rows, state if state.classes else None, names)


@dataclass(frozen=True)
class _AuditPart:
    readers: tuple[Open, Open]
    repair: CORD | Lift
    on_error: OnError

    def __call__(self, item: tuple[AuditPart, int]) -> tuple[AuditStream | None, Counter[str]]:
        part, first_row = item
        files = _open_pair(self.readers, part)
        if files is None:
            return None, Counter()
        audit_batch = partial(audit_rows, self.repair, files["original"].kind, shift=first_row)
        return merge_audits(
            self.repair, process_batches(files, audit_batch, on_error=self.on_error)
        )


def _open_pair(readers: tuple[Open, Open], part: AuditPart) -> dict[str, ScoreFile] | None:
    paths = part.original, part.direct
    try:
        original, direct = (reader(path) for reader, path in zip(readers, paths, strict=True))
    except NoRows:
        return None
    if original.shape != direct.shape:
        raise InputError(
            original.path,
            f"has shape {original.shape} but {direct.path} has shape {direct.shape}",
            "both must hold the same rows and classes",
        )
    original.attach(part.vectors)
    return {"original": original, "direct": direct}


def audit_parts(
    readers: tuple[Open, Open],
    inputs: Sequence[AuditPart],
    *,
    repair: CORD | Lift | None = None,
    on_error: OnError = "stop",
    run: Run = run_locally,
) -> AuditedFiles:
    """Audit parts; the numbers are those of all rows in one file.

    Parameters
    ----------
    readers : tuple of callable
        Open a part of the original and of the direct probabilities.
    inputs : sequence of AuditPart
        What to audit.
    repair : CORD or Lift, optional
        A fitted repair; by default one is fitted on all parts.
    on_error : {"stop", "skip"}
        What to do with an invalid row.
    run : callable
        Runs the work; by default in this process.

    Returns
    -------
    audited : AuditedFiles
        As of `audit_files`.
    """
    described = list(run(_DescribePart(readers, on_error, repair is None), inputs))
    if not any(part.rows for part in described):
        raise InputError("the parts", "have no rows", "pass at least one")
    fitted = repair
    if fitted is None:
        states = (part.state for part in described if part.state is not None)
        fitted = CORD().merge_states(states)
    firsts = [sum(part.rows for part in described[:at]) for at in range(len(described))]
    numbered = list(zip(inputs, firsts, strict=True))
    total, skipped = merge_audits(fitted, run(_AuditPart(readers, fitted, on_error), numbered))
    names = next((part.class_names for part in described if part.rows), None)
    return finish_audit(total, skipped, class_names=names, fitted_here=repair is None)
