"""Apply a model to the parts of an input, here or on a cluster, one output each.

One file in the output folder lists the finished parts with digests of their inputs, so that a later
run makes only the others.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from cordcal._errors import ClusterFailure, InputError, Interrupted
from cordcal.files.apply import Applied, ApplyOptions, ModelApplication, apply_model
from cordcal.files.context import FileContext
from cordcal.files.disk import open_locked
from cordcal.files.output import SUFFIXES
from cordcal.files.scores import ScoreFile

Item = TypeVar("Item")
Result = TypeVar("Result")
Open = Callable[[str], ScoreFile]
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each item, on any machine, and yields the results in order."""

FINISHED = "_cordcal.jsonl"
"""The file in an output folder that lists its finished parts."""


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


@dataclass(frozen=True)
class PartWork:
    """How to repair one part: everything that a process on another machine needs.

    Attributes
    ----------
    model : PreservingCalibrator, CORD or Lift
        The fitted model.
    readers : tuple of callable
        Open a part of the scores, or of the original and the direct probabilities.
    options : ApplyOptions
        What to compute and write.
    context : FileContext or None
        The columns next to the scores that the model needs.
    """

    model: Any
    readers: tuple[Open, ...]
    options: ApplyOptions
    context: FileContext | None = None

    def __call__(self, part: tuple[tuple[str, ...], str]) -> dict[str, Any]:
        """Repair a part, given as its inputs and its output, and describe what was done."""
        paths, output = part
        digest = input_digest(paths)
        files = [reader(path) for reader, path in zip(self.readers, paths, strict=True)]
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        work = ModelApplication(self.model, files, self.options, self.context)
        applied = apply_model(work, output, allow_none=True)
        return {"input": digest, "bytes": os.path.getsize(output), "applied": applied.to_dict()}


def input_digest(paths: Sequence[str]) -> str:
    """Return a digest of the contents of files."""
    whole = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def apply_parts(
    work: ModelApplication,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    run: Run = run_locally,
) -> Applied:
    """Write the repaired probabilities of each part to a file of the same name in a folder.

    Parameters
    ----------
    work : ModelApplication
        The model and its input, whose parts have the names of their outputs.
    folder : path
        The folder of the outputs.
    resume : bool
        Keep the parts that an earlier run has written from the same input, model and options.
    overwrite : bool
        Whether existing parts may be replaced.
    run : callable
        Runs the work; by default in this process, one part after the other.

    Returns
    -------
    applied : Applied
        Counts over all parts.
    """
    files = list(work.files.values())
    readers = tuple(file.opener for file in files)
    part_work = PartWork(work.model, readers, work.options, work.context)
    names, inputs = pair_parts(files)
    for name in names:
        if Path(name).suffix.lower() not in SUFFIXES:
            raise InputError(
                name,
                "has a format in which probabilities cannot be written",
                f"name an output file with one of the suffixes {', '.join(SUFFIXES)}",
            )
    target = Path(folder)
    job = describe_job(part_work)
    with _finished_parts(target, names, job, resume=resume, overwrite=overwrite) as finished:
        for name, paths in zip(names, inputs, strict=True):
            if name in finished.parts and finished.parts[name]["input"] != input_digest(paths):
                del finished.parts[name]
        resumed = sum(part["applied"]["rows"] for part in finished.parts.values())
        remaining = [at for at, name in enumerate(names) if name not in finished.parts]
        # Workers may run in another folder.
        items = [(inputs[at], os.path.abspath(target / names[at])) for at in remaining]
        try:
            for at, done in zip(remaining, run(part_work, items), strict=True):
                finished.add(names[at], done)
        except (KeyboardInterrupt, ClusterFailure) as error:
            progress = f"{len(finished.parts)} of {len(names)} parts are complete in {folder}"
            hint = "the same command with {option} makes the others"
            option = ("resume", "True")
            if isinstance(error, ClusterFailure):
                reason = f"{error.reason}; {progress}"
                raise ClusterFailure(error.argument, reason, hint, option=option) from error
            raise Interrupted(progress, hint, option=option) from error
    counted = [Applied(**part["applied"]) for part in finished.parts.values()]
    applied = replace(Applied.total(work.model.n_classes_, counted), resumed=resumed)
    applied.check_not_all_skipped(str(folder))
    return applied


def describe_job(work: PartWork) -> str:
    """Return a digest of all that an output depends on except its input."""
    from cordcal._version import __version__

    arrays, meta = work.model.to_state()
    reading = [repr(getattr(reader, "keywords", None)) for reader in work.readers]
    facts = [__version__, meta, asdict(work.options), reading]
    if work.context is not None:
        opinion = work.context.opinion
        facts += [dict(work.context.columns), dict(work.context.unknown)]
        facts += [] if opinion is None else [opinion.id_column, input_digest(opinion.paths)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


class _FinishedParts:
    """The finished parts of a folder, in memory and in a file of it."""

    def __init__(self, file: BinaryIO, job: str, parts: dict[str, dict[str, Any]]) -> None:
        self._file, self._job, self.parts = file, job, parts

    def add(self, name: str, done: dict[str, Any]) -> None:
        self.parts[name] = done
        self._file.write(json.dumps({"part": name, "job": self._job, **done}).encode() + b"\n")
        self._file.flush()


@contextmanager
def _finished_parts(
    folder: Path, names: Sequence[str], job: str, *, resume: bool, overwrite: bool
) -> Iterator[_FinishedParts]:
    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), "is a file", "name a folder for the parts")
    existing = _existing_files(folder)
    foreign = sorted(existing - {*names})
    if foreign:
        raise InputError(
            str(folder), f"contains other files ({foreign[0]})", "name a new or an empty folder"
        )
    if existing and not (overwrite or resume):
        raise InputError(
            str(folder),
            f"already contains {len(existing):,} parts",
            "pass {option} to keep those that are up to date",
            option=("resume", "True"),
        )
    folder.mkdir(parents=True, exist_ok=True)
    handle = open_locked(folder / FINISHED)
    if handle is None:
        raise InputError(str(folder), "is being written by another process", "wait for it")
    with os.fdopen(handle, "r+b") as file:
        parts = _read_finished(file, folder, job) if resume else {}
        parts = {name: part for name, part in parts.items() if name in set(names)}
        file.seek(0)
        file.truncate()
        finished = _FinishedParts(file, job, {})
        for name, part in parts.items():
            finished.add(name, part)
        yield finished


def _existing_files(folder: Path) -> set[str]:
    """Return the files of a folder that a reader would take for parts."""
    if not folder.is_dir():
        return set()
    relative = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return {
        str(path)
        for path in relative
        if not any(name.startswith((".", "_")) for name in path.parts)
    }


def _read_finished(file: BinaryIO, folder: Path, job: str) -> dict[str, dict[str, Any]]:
    """Return the parts that runs of the same job have finished and that are still there."""
    parts: dict[str, dict[str, Any]] = {}
    for line in file.read().splitlines(keepends=True):
        try:
            part = json.loads(line)
            name, own_job, size = part.pop("part"), part.pop("job"), part["bytes"]
            complete = "input" in part and Applied(**part["applied"]).rows >= 0
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # the line of a killed run may be cut
        target = folder / name
        if complete and own_job == job and target.is_file() and target.stat().st_size == size:
            parts[name] = part
        else:
            parts.pop(name, None)
    return parts
