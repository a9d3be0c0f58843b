"""``cordcal audit``: how many predictions a calibrator changes, from its outputs alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordcal.cli._console import (
    VERBOSITY,
    echo,
    echo_heading,
    echo_skipped,
    row_progress,
    show,
    show_json,
)
from cordcal.cli._files import check_report, file_digest
from cordcal.cli._inputs import (
    audit_in_parts,
    open_pair,
    read_column,
    read_groups,
)
from cordcal.cli._options import (
    DEFAULT_INPUTS,
    LABELLED_OPTIONS,
    ForceOption,
    InputOptions,
    JsonOption,
    OnErrorOption,
    ReportOption,
    SchedulerOption,
    StrictOption,
    add_command,
    check_on_error,
    with_input_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordcal.evaluate.audit_files import AuditedFiles
    from cordcal.repair import CORD, Lift

TITLE = "How the calibrator changes predictions"


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        audit,
        "audit --original p.npz --direct q.npz --labels y.npy --report audit.html",
    )


@with_input_options(*LABELLED_OPTIONS, "weights", "cluster_column", "groups", "input")
def audit(
    original: Annotated[
        str,
        typer.Option(
            "--original", metavar="FILE", help="File of the classifier's scores; - reads stdin."
        ),
    ],
    direct: Annotated[
        str,
        typer.Option(
            "--direct", metavar="FILE", help="The calibrator's probabilities of the same rows."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="Model file of a repair fitted on other rows; by default one is fitted here.",
        ),
    ] = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    on_error: OnErrorOption = "stop",
    scheduler: SchedulerOption = None,
    report: ReportOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """Count the predictions a calibrator changes, and evaluate it before and after repair."""
    if report is not None:
        check_report(report, force=force)
    echo_heading(f"cordcal audit: {original} against {direct}")
    treatment = check_on_error(on_error)
    repair = None if model is None else _repair(model)
    first, second = open_pair(original, direct, inputs)
    names = first.class_names or second.class_names
    by_group = read_groups(original, inputs)
    clusters = read_column(inputs.cluster_column, original, inputs=inputs)
    if scheduler is not None:
        result = audit_in_parts(
            first,
            second,
            scheduler,
            repair=repair,
            groups=by_group,
            on_error=treatment,
            clusters=clusters,
        )
    else:
        from cordcal.evaluate.audit_files import audit_files

        with row_progress("auditing") as progress:
            result = audit_files(
                first,
                second,
                class_names=names,
                repair=repair,
                groups=by_group,
                on_error=treatment,
                clusters=clusters,
                progress=progress,
            )
    echo_skipped(result.skipped)
    if report is not None:
        _write_report(result, report, first.path, second.path, names, force=force)
    if json:
        reports = [group.to_dict() for group in result.pictures.groups]
        show_json({**result.audit.to_dict(), "groups": reports})
    else:
        show(result.audit, wide=VERBOSITY.verbose)
        if result.pictures.groups:
            from cordcal.report.terminal import group_table

            table = group_table(
                result.pictures.groups, "repaired", "repaired", result.audit.n_classes
            )
            show(table, wide=VERBOSITY.verbose)
        if report is not None:
            echo(f"Report  {report}")
    if strict and result.audit.caveats:
        raise typer.Exit(1)


def _write_report(
    result: AuditedFiles,
    report: Path,
    original: str,
    direct: str,
    names: Sequence[str] | None,
    *,
    force: bool,
) -> None:
    from cordcal.report import write_html

    data = result.audit.report_data_with(
        result.pictures,
        name=Path(direct).name,
        fingerprint=result.fingerprint,
        class_names=None if names is None else tuple(names),
    )
    paths = [path for path in (original, direct) if Path(path).is_file()]
    data = replace(data, files=tuple(map(file_digest, paths)))
    source = f"{Path(original).name} against {Path(direct).name}"
    write_html(data, report, title=TITLE, source=source, overwrite=force)


def _repair(path: str) -> CORD | Lift:
    import cordcal

    model = cordcal.load(path)
    repair: CORD | Lift = getattr(model, "repair_", model)
    return repair
