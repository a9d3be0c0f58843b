"""``cordcal study``: compare calibrators on many data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordcal._errors import InputError, Interrupted
from cordcal.cli.plugins import (
    add_command,
    counted_progress,
    echo,
    echo_heading,
)

if TYPE_CHECKING:
    from cordcal_study import Study


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, study, "study study.toml --output results/")


def study(
    file: Annotated[Path, typer.Argument(help="The study file (TOML).")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for tables, figures and the index.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            envvar="CORDCAL_STUDY_DATA",
            help="Folder of the data; by default that in the study file.",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache", help="Folder of finished cells; by default cells in the output folder."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Number of worker processes; by default one per processor."),
    ] = None,
    allow_import: Annotated[
        bool,
        typer.Option(
            "--allow-import",
            help="Allow calibrators given as module:Class; importing them runs their code.",
        ),
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw figures with matplotlib.")
    ] = True,
    render: Annotated[
        bool,
        typer.Option(
            "--render",
            help="Write tables, figures and pages again from the data of an earlier run in the "
            "output folder, without computing anything.",
        ),
    ] = False,
) -> None:
    """Run the experiments of a study file; a rerun continues an interrupted run."""
    echo_heading(f"cordcal study: {file}")
    if output.exists() and not output.is_dir():
        raise InputError(str(output), "is a file", "name a folder for the results")
    from cordcal_study import read_study, render_study, run_study, write_study

    if render:
        index = write_study(render_study(file, output), output, figures=figures, data=False)
        echo(f"index: {index}")
        return
    specification = read_study(file, data=data, allow_import=allow_import)
    cells = output / "cells" if cache is None else cache
    _check_inputs(file, specification, output)
    output.mkdir(parents=True, exist_ok=True)
    try:
        with counted_progress("cells") as advance:
            result = run_study(specification, cells, workers=workers, advance=advance)
    except KeyboardInterrupt as error:
        message = f"finished cells are kept in {cells}"
        raise Interrupted(message, "run the same command again to continue") from error
    index = write_study(result, output, figures=figures)
    for skipped in result.left_out:
        echo(f"not run: {skipped.group}, {skipped.set}: {skipped.calibrator}: {skipped.why}")
    echo(f"index: {index}")


def _check_inputs(file: Path, specification: Study, output: Path) -> None:
    """Refuse an output folder in which results would replace an input of the study."""
    from cordcal_study.specs import OWN_EXPERIMENTS

    names = ("index.html", "study.json", *specification.experiments, *OWN_EXPERIMENTS)
    written = [(output / name).resolve() for name in names]
    for path in (file, *(data for spec in specification.sets for data in spec.files)):
        if path.is_file() and any(path.resolve().is_relative_to(target) for target in written):
            raise InputError(
                "--output",
                f"would write where the same command reads {path}",
                "name another folder; inputs are never replaced",
            )
