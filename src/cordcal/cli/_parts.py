"""Inputs in several files: apply and audit them part by part, locally or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._errors import InputError
from cordcal.cli._console import counted_progress

if TYPE_CHECKING:
    from cordcal.files import ScoreFile
    from cordcal.pipeline.applying import Applied, ModelApplication
    from cordcal.pipeline.auditing import AuditedFiles
    from cordcal.pipeline.parts import Run


def is_parts_output(output: str, scores: str | None) -> bool:
    """Return whether the output is a folder of parts: the input is, and no suffix is given."""
    if output == "-" or scores is None:
        return False
    from cordcal.files.parts import parts_of

    is_folder = output.endswith(os.sep) or Path(output).is_dir() or not Path(output).suffix
    return is_folder and parts_of(scores) is not None


def apply_in_parts(
    rows: ModelApplication,
    output: str,
    options: dict[str, Any],
    writing: dict[str, Any],
    *,
    scheduler: str | None,
    resume: bool,
    overwrite: bool,
) -> Applied:
    """Write one output file per part of the input to a folder."""
    from cordcal.pipeline.parts import PartWork, apply_parts, finished_parts, part_names

    if output == "-":
        raise InputError("--output", "is stdout", "name a folder for the parts")
    finished = finished_parts(output)
    if finished and not (resume or overwrite):
        raise InputError(
            output,
            f"already has {finished:,} parts of an interrupted run",
            "pass --resume to continue that run, or --force to start again",
        )
    files = list(rows.files.values())
    inputs = _part_inputs(files)
    names = part_names(files[0].path, [paths[0] for paths in inputs])
    readers = tuple(file.opener for file in files)
    work = PartWork(rows.model, readers, options, writing, resume)
    with _runner("applying", scheduler) as run:
        return apply_parts(
            work, inputs, names, os.path.abspath(output), overwrite=overwrite, run=run
        )


def audit_in_parts(
    original: ScoreFile, direct: ScoreFile, scheduler: str, **options: Any
) -> AuditedFiles:
    """Audit the parts of two folders on a cluster; labels and weights are read locally."""
    from cordcal.pipeline.parts import AuditPart, audit_parts

    paths = _part_inputs([original, direct])
    inputs = [
        AuditPart(first, second, vectors)
        for (first, second), vectors in zip(paths, original.separate_vectors(), strict=True)
    ]
    readers = original.opener, direct.opener
    with _runner("auditing", scheduler) as run:
        return audit_parts(readers, inputs, run=run, **options)


def _part_inputs(files: Sequence[ScoreFile]) -> list[tuple[str, ...]]:
    """Return the files of each part as absolute paths, which workers can open."""
    from cordcal.files.parts import parts_of
    from cordcal.pipeline.parts import part_names

    parts = [parts_of(file.path) or [file.path] for file in files]
    names = [part_names(file.path, paths) for file, paths in zip(files, parts, strict=True)]
    if any(other != names[0] for other in names[1:]) and max(map(len, names)) > 1:
        raise InputError(
            files[0].path,
            f"and {files[1].path} have parts with different names",
            "give the parts of the same rows the same names",
        )
    return [tuple(map(os.path.abspath, paths)) for paths in zip(*parts, strict=True)]


@contextmanager
def _runner(title: str, scheduler: str | None) -> Iterator[Run]:
    """Yield a function that runs the work, locally or on a cluster, and shows progress."""
    from cordcal.pipeline.parts import run_locally

    with counted_progress(title) as advance:

        def with_progress(run: Run) -> Run:
            def run_and_count(
                function: Callable[[Any], Any], items: Sequence[Any]
            ) -> Iterator[Any]:
                for count, result in enumerate(run(function, items), 1):
                    advance(count, len(items), "parts")
                    yield result

            return run_and_count

        if scheduler is None:
            yield with_progress(run_locally)
            return
        with _cluster(scheduler) as run:
            yield with_progress(run)


def _cluster(address: str) -> AbstractContextManager[Run]:
    try:
        from cordcal.dask.cluster import on_cluster
    except ImportError as error:
        raise ImportError(
            "a cluster needs Dask; install it with: pip install 'cordcal[dask]'"
        ) from error
    return on_cluster(address)
