"""``cordcal study``: the paper's experiments on a folder of outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordcal._errors import InputError, Interrupted
from cordcal.cli._command import add_command
from cordcal.cli._console import counted_progress, echo, echo_heading
from cordcal.cli._options import AllowImportOption

if TYPE_CHECKING:
    from cordcal.study import Study


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, study, "study study.toml --output results/")


def study(
    file: Annotated[Path, typer.Argument(help="The study file (TOML).")],
    output: Annotated[
        Path, typer.Option("--output", help="The folder for tables, figures and the index.")
    ],
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of the data; the file's where left out.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder of finished cells; cells in the output folder."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Worker processes; one a processor.")
    ] = None,
    allow_import: AllowImportOption = False,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw figures with matplotlib.")
    ] = True,
) -> None:
    """Run the experiments of a study file; a rerun continues where it stopped."""
    echo_heading(f"cordcal study: {file}")
    if output.exists() and not output.is_dir():
        raise InputError(str(output), "is a file", "name a folder for the results")
    from cordcal.study import read_study, run_study
    from cordcal.study.figures import check_matplotlib
    from cordcal.study.page import write_study

    wanted = read_study(file, data=data, allow_import=allow_import)
    if figures:
        check_matplotlib()
    cells = output / "cells" if cache is None else cache
    _check_inputs(file, wanted, output)
    output.mkdir(parents=True, exist_ok=True)
    try:
        with counted_progress("cells") as advance:
            result = run_study(wanted, cells, workers=workers, advance=advance)
    except KeyboardInterrupt as error:
        kept = f"the cells that were finished are kept in {cells}"
        raise Interrupted(kept, "the same command goes on with the others") from error
    index = write_study(result, output, figures=figures)
    for each in result.left_out:
        echo(f"not run: {each['group']}, {each['set']}: {each['calibrator']}: {each['why']}")
    echo(f"index: {index}")


def _check_inputs(file: Path, wanted: Study, output: Path) -> None:
    """Refuse a folder of results in which a file of the study would be replaced."""
    from cordcal.study.specs import OWN_EXPERIMENTS

    names = ("index.html", "study.json", *wanted.experiments, *OWN_EXPERIMENTS)
    written = [(output / name).resolve() for name in names]
    for path in (file, *(each for spec in wanted.sets for each in spec.files)):
        if path.is_file() and any(path.resolve().is_relative_to(place) for place in written):
            raise InputError(
                "--output",
                f"would write where the same command reads {path}",
                "name another folder; no input is ever replaced",
            )
