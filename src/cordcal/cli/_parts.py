"""Inputs of several files, repaired and audited part by part, here or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.cli._console import counted_progress

if TYPE_CHECKING:
    from cordcal.files import ScoreFile
    from cordcal.serving.applying import Applied, Repairer
    from cordcal.serving.auditing import AuditedFiles


def is_parts_output(output: str, scores: str | None) -> bool:
    """Whether an output is a folder of parts: where the input is, and nothing names a file."""
    if output == "-" or scores is None:
        return False
    from cordcal.files._parts import parts_of

    is_folder = output.endswith(os.sep) or Path(output).is_dir() or not Path(output).suffix
    return is_folder and parts_of(scores) is not None


def apply_in_parts(
    rows: Repairer,
    output: str,
    options: dict[str, Any],
    writing: dict[str, Any],
    *,
    scheduler: str | None,
    resume: bool,
    overwrite: bool,
) -> Applied:
    """Write a file for each part of the input to a folder."""
    from cordcal.serving.parts import PartWork, apply_parts, finished_parts, part_names

    if output == "-":
        raise InputError("--output", "is stdout", "name a folder for the parts")
    finished = finished_parts(output)
    if finished and not (resume or overwrite):
        raise InputError(
            output,
            f"holds {finished:,} of the parts already, which an interrupted run finished",
            "pass --resume to continue that run, or --force to start anew",
        )
    files = list(rows.files.values())
    inputs = _inputs(files)
    names = part_names(files[0].path, [paths[0] for paths in inputs])
    readers = tuple(file.opener for file in files)
    work = PartWork(rows.model, readers, options, writing, resume)
    with _running("applying", scheduler) as run:
        return apply_parts(
            work, inputs, names, os.path.abspath(output), overwrite=overwrite, run=run
        )


def audit_in_parts(
    original: ScoreFile, direct: ScoreFile, scheduler: str, **options: Any
) -> AuditedFiles:
    """Audit the parts of two folders on a cluster; files of labels and weights are read here."""
    from cordcal.serving.parts import AuditPart, audit_parts

    paths = _inputs([original, direct])
    inputs = [
        AuditPart(first, second, vectors)
        for (first, second), vectors in zip(paths, original.vectors_apart(), strict=True)
    ]
    readers = original.opener, direct.opener
    with _running("auditing", scheduler) as run:
        return audit_parts(readers, inputs, run=run, **options)


def _inputs(files: Sequence[ScoreFile]) -> list[tuple[Any, ...]]:
    """Return the files of each part, under names that hold on other machines too."""
    from cordcal.files._parts import parts_of
    from cordcal.serving.parts import part_names

    found = [parts_of(file.path) or [file.path] for file in files]
    names = [part_names(file.path, parts) for file, parts in zip(files, found, strict=True)]
    if any(other != names[0] for other in names[1:]) and max(map(len, names)) > 1:
        raise InputError(
            files[0].path,
            f"and {files[1].path} have parts of different names",
            "give the parts of the same rows the same names",
        )
    return [tuple(map(os.path.abspath, paths)) for paths in zip(*found, strict=True)]


@contextmanager
def _running(title: str, scheduler: str | None) -> Iterator[Any]:
    """Yield what does the work, here or on a cluster, and tells of each part."""
    from cordcal.serving.parts import here

    with counted_progress(title) as advance:

        def told(run: Any) -> Callable[[Any, Sequence[Any]], Iterator[Any]]:
            def run_and_tell(function: Any, items: Sequence[Any]) -> Iterator[Any]:
                for at, result in enumerate(run(function, items), 1):
                    advance(at, len(items), "parts")
                    yield result

            return run_and_tell

        if scheduler is None:
            yield told(here)
            return
        with _cluster(scheduler) as run:
            yield told(run)


def _cluster(address: str) -> Any:
    try:
        from cordcal.dask.cluster import on_cluster
    except ImportError as error:
        raise ImportError(
            "a cluster needs Dask; install it with: pip install 'cordcal[dask]'"
        ) from error
    return on_cluster(address)
