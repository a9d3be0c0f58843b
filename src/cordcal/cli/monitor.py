"""``cordcal monitor``: watch whether the confidence of a deployed model still holds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import cordcal
from cordcal._errors import InputError
from cordcal.cli._console import echo, echo_error, echo_info, show_json
from cordcal.cli._files import check_output, check_report
from cordcal.cli._inputs import (
    open_scores,
    read_column,
    read_groups,
    read_model_rows,
    read_scores,
)
from cordcal.cli._options import (
    DEFAULT_INPUTS,
    LABELLED_OPTIONS,
    ForceOption,
    Group,
    InputOptions,
    JsonOption,
    ReportOption,
    add_command,
    parse_share,
    with_input_options,
)
from cordcal.cli._vectors import parse_vector

if TYPE_CHECKING:
    import numpy.typing as npt

    from cordcal.evaluate.monitor import Monitor
    from cordcal.evaluate.results.monitor import MonitorStatus

_EXIT_CODES = {"holds": 0, "alarm": 1, "cannot tell": 2}
_EXIT_CODES_HELP = {
    0: "it holds; nothing to do.",
    1: "an alarm, until it is acknowledged; send the output to somebody.",
    2: "no rows yet, or the input is wrong; look at the message, the state is unchanged.",
}

StateArgument = Annotated[
    Path, typer.Argument(metavar="STATE", help="File of the monitor's state.")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE",
        help="Model file, if the files hold the classifier's scores; it is applied.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    monitor = typer.Typer(
        name="monitor",
        cls=Group,
        help="Watch a deployed model: does its confidence still hold, do its inputs look as "
        "before? Look as often as you like: the chance of a false alarm, ever, stays at 5 %.",
        short_help="Watch a deployed model: does its confidence still hold?",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    add_command(monitor, init, "monitor init state.monitor --baseline p.npz")
    add_command(
        monitor,
        add,
        "monitor add state.monitor tonight.npz",
        "monitor add state.monitor tonight.csv --columns 'p*' --id-column id",
        exit_codes=_EXIT_CODES_HELP,
    )
    add_command(
        monitor,
        label,
        "monitor label state.monitor labels.csv --id-column id",
        exit_codes=_EXIT_CODES_HELP,
    )
    add_command(
        monitor,
        show,
        "monitor show state.monitor --report monitor.html",
        exit_codes=_EXIT_CODES_HELP,
    )
    add_command(monitor, acknowledge, "monitor acknowledge state.monitor")
    app.add_typer(monitor)


_FILE_OPTIONS = (*LABELLED_OPTIONS, "cluster_column", "input")


@with_input_options(*_FILE_OPTIONS)
def init(
    output: Annotated[
        Path, typer.Argument(metavar="STATE", help="File of the monitor's state to write.")
    ],
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline", metavar="FILE", help="Probabilities of rows that were not used to fit."
        ),
    ],
    model: ModelOption = None,
    confidence: Annotated[
        str,
        typer.Option(
            "--confidence", metavar="SHARE", help="Probability that no false alarm is ever raised."
        ),
    ] = "95%",
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            metavar="NUMBER",
            help="How far confidence and share of right predictions may differ.",
        ),
    ] = 0.02,
    inputs: InputOptions = DEFAULT_INPUTS,
    force: ForceOption = False,
) -> None:
    """Begin to watch a model: store what its outputs look like now.

    With labels, the confidence of the baseline is tested, too: it should hold.
    """
    check_output(output, force=force)
    alpha = round(1.0 - parse_share(confidence, "--confidence"), 12)  # 0.05, not 0.05 + 4e-17
    from cordcal.evaluate.monitor import Monitor

    outputs = _read(baseline, inputs, model)
    fitted = None if model is None else _load(model)
    clusters = read_column(inputs.cluster_column, baseline, inputs=inputs)
    monitor = Monitor(
        outputs.probabilities,
        class_names=outputs.class_names,
        alpha=alpha,
        tolerance=tolerance,
        model=None if fitted is None else fitted.digest(),
        clusters=clusters,
        certificate=None if fitted is None else fitted.certificate_,
    )
    monitor.save(output, overwrite=force)
    rows = f"{monitor.baseline_rows:,} rows"
    echo(f"{output}: watching {monitor.n_classes} classes, with a baseline of {rows}")
    if outputs.labels is not None:
        _echo_baseline(monitor, outputs, clusters)
    applied = "" if model is None else f" --model {model}"
    echo_info(f"next: cordcal monitor add {output} NEW_FILE{applied}")


def _echo_baseline(monitor: Monitor, outputs: _Outputs, clusters: Any) -> None:
    """Print whether the confidence holds on the baseline, in the test that new rows take."""
    from cordcal.evaluate.results.monitor import points

    test = copy.deepcopy(monitor)
    test.certificate = test.act = None  # the rows it was found on may be these, without groups
    status = test.add(outputs.probabilities, outputs.labels, clusters=clusters)
    if status.gap is not None:
        echo(f"Confidence minus accuracy in the baseline: {points(status.gap)} points")
    if any(alarm.test == "calibration" for alarm in status.alarms):
        echo_error(
            "cordcal: warning: the confidence does not hold in the baseline, so expect an alarm; "
            "calibrate the model again, or allow for more with --tolerance"
        )


@with_input_options(*_FILE_OPTIONS, "id_column", "groups")
def add(
    state: StateArgument,
    new: Annotated[
        list[str],
        typer.Argument(
            metavar="NEW", help="What `apply` wrote, or scores with --model; a batch per file."
        ),
    ],
    model: ModelOption = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    json: JsonOption = False,
) -> None:
    """Add the outputs of a night, with labels or without, and print the verdict."""
    from cordcal.evaluate.monitor import Monitor

    for option, value in (("--labels", inputs.labels), ("--groups", inputs.groups)):
        if parse_vector(value).file is not None and len(new) > 1:
            raise InputError(option, "belongs to one file", "add one file at a time")
    with Monitor.updating(state) as monitor:
        _check_model(monitor, model, state)
        if inputs.groups is None and monitor.certificate and monitor.certificate.by == "group":
            raise InputError(
                "--groups",
                "is missing: the certificate of the model has groups",
                "name the column with the group of each row",
            )
        for path in new:
            with _late_labels_hint():
                outputs = _read(path, inputs, model, monitor)
            before = len(monitor.periods)
            with _errors_about(path):
                monitor.add(
                    outputs.probabilities,
                    outputs.labels,
                    ids=read_column(inputs.id_column, path, inputs=inputs),
                    groups=read_groups(path, inputs),
                    clusters=read_column(inputs.cluster_column, path, inputs=inputs),
                    direct=outputs.direct,
                    name=Path(path).name,
                )
            if len(monitor.periods) == before:
                echo_info(f"{path} was added before and is not counted twice")
            else:
                _echo_left_out(monitor, path)
        status = monitor.status
    _print(status, json=json)


def label(
    state: StateArgument,
    file: Annotated[str, typer.Argument(help="File with ids and labels.")],
    id_column: Annotated[
        str, typer.Option("--id-column", metavar="NAME", help="Column or key of the ids.")
    ],
    labels: Annotated[
        str | None,
        typer.Option("--labels", metavar="NAME", help="Column or key of the labels."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse labels of rows that were never added.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Add labels of rows that were added without them."""
    from cordcal.evaluate.monitor import Monitor
    from cordcal.files.sources import parse_labels

    with Monitor.updating(state) as monitor:
        ids = read_column(id_column, file, inputs=DEFAULT_INPUTS)
        truth = parse_labels(read_column(labels, file, inputs=DEFAULT_INPUTS, file=file))
        before = len(monitor.periods)
        with _errors_about(file):
            status = monitor.add_labels(ids, truth, name=Path(file).name, strict=strict)
        if len(monitor.periods) == before:
            echo_info(f"the labels of {file} were counted before and are not counted twice")
        else:
            _echo_left_out(monitor, file)
    _print(status, json=json)


def _echo_left_out(monitor: Monitor, path: str) -> None:
    """Print how many rows of the latest batch are not counted."""
    period = monitor.periods[-1]
    if period.repeated:
        echo_info(
            f"{path}: {period.repeated:,} rows are not counted: they, or a row of their cluster, "
            "were counted before"
        )
    if period.unknown:
        echo_info(
            f"{path}: {period.unknown:,} labels are not used: no row with their id waits for one"
        )


def show(
    state: StateArgument,
    report: ReportOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Print the verdict, and write a page with the history."""
    if report is not None:
        check_report(report, force=force)
    from cordcal.evaluate.monitor import Monitor

    monitor = Monitor.load(state)
    if report is not None:
        from cordcal.report.monitor import write_monitor_html

        write_monitor_html(monitor.history, report, source=state.name, overwrite=force)
        echo_info(f"report: {report}")
    _print(monitor.status, json=json)


def acknowledge(
    state: StateArgument,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="newest",
            help="Compare new inputs with the newest rows (at most 2,000), so that a change that "
            "stays raises no alarm again; by default the baseline stays as it is.",
        ),
    ] = None,
) -> None:
    """Clear an alarm: the tests start again."""
    if baseline not in (None, "newest"):
        raise InputError("--baseline", f"is {baseline!r}", "write newest, or leave it out")
    from cordcal.evaluate.monitor import Monitor

    with Monitor.updating(state) as monitor:
        alarms = len(monitor.alarms)
        monitor.acknowledge(start_from="baseline" if baseline is None else "newest")
    if not alarms:
        echo(f"{state}: there is no alarm to acknowledge, so nothing changed")
        return
    counted = "1 alarm" if alarms == 1 else f"{alarms} alarms"
    compared = "the baseline" if baseline is None else "the newest rows"
    echo(
        f"{state}: {counted} acknowledged, the tests start again; new inputs are compared with "
        f"{compared}"
    )


@dataclass(frozen=True, eq=False)
class _Outputs:
    """The probabilities of a file, as read or as computed by a model."""

    probabilities: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    class_names: tuple[str, ...] | None
    direct: npt.NDArray[Any] | None = None


def _read(
    path: str,
    inputs: InputOptions,
    model: str | None,
    monitor: Monitor | None = None,
) -> _Outputs:
    """Read probabilities, or read scores and apply the model to them."""
    if model is not None and not _is_output(path, inputs, model):
        return _apply(model, path, inputs)
    names: Sequence[Any] | None = None if monitor is None else monitor.class_names
    if names is None and model is not None:
        names = _load(model).class_names
    scores = read_scores(
        path,
        inputs,
        role="repaired",
        classes=names,
        classes_in="the baseline",
    )
    if scores.kind == "logits":
        raise InputError(
            path, "does not hold probabilities", "pass what `apply` wrote, or scores with --model"
        )
    if monitor is not None and monitor.model is not None and scores.key != "repaired":
        raise InputError(
            path,
            "is not what `apply` wrote, and the baseline was made with a model",
            "pass the model, too, as --model FILE",
        )
    return _Outputs(scores.values, scores.labels, scores.class_names)


def _is_output(path: str, inputs: InputOptions, model: str) -> bool:
    """Return whether a file is what `apply` wrote, and not scores that a model is applied to."""
    if path == "-" or inputs.columns is not None:
        return False  # stdin can be read once, and options name scores
    fitted = _load(model)
    try:
        file = open_scores(
            path,
            inputs,
            classes=fitted.class_names or list(map(str, range(fitted.n_classes_))),
            pattern=getattr(fitted, "score_columns_", None),
        )
    except InputError:
        return False  # applying the model raises the error about scores
    if file.key == "repaired" and file.columns and fitted.score_kind() == "probabilities":
        raise InputError(
            path,
            "may be what `apply` wrote, or probabilities to apply the model to",
            "name the columns of the latter with {option}, or pass the former without --model",
            option=("columns", "p_*"),
        )
    return file.key == "repaired"


def _apply(model: str, path: str, inputs: InputOptions) -> _Outputs:
    """Apply a model to the scores of a file."""
    fitted = _load(model)
    try:
        rows, names, context = read_model_rows(fitted, model, path, inputs)
    except InputError as error:
        if error.argument != "--second-opinion":
            raise
        hint = "pass what `apply --second-opinion` wrote, without --model"
        raise InputError(model, "needs a second opinion", hint) from None
    both = fitted.predict_both(rows.values, context=context)
    return _Outputs(both.repaired, rows.labels, names, both.direct)


def _load(model: str) -> cordcal.PreservingCalibrator:
    """Load a model, or refuse a repair alone."""
    fitted = cordcal.load(model)
    if not isinstance(fitted, cordcal.PreservingCalibrator):
        raise InputError(model, "holds a repair alone", "pass what `apply` wrote, without --model")
    return fitted


@contextmanager
def _errors_about(path: str) -> Iterator[None]:
    """Name the file in errors of the library, which names its arguments."""
    try:
        yield
    except InputError as error:
        raise error.with_argument(path) from None


@contextmanager
def _late_labels_hint() -> Iterator[None]:
    """Explain how to add a file in which only some rows have labels."""
    try:
        yield
    except InputError as error:
        from cordcal._validation.labels import NO_LABEL

        if error.reason != NO_LABEL:
            raise
        raise InputError(
            error.argument,
            error.reason,
            "to count all rows, add them without the column of labels and with --id-column, then "
            "the labels with `cordcal monitor label`; or leave out rows without a label",
            rows=error.rows,
        ) from None


def _check_model(monitor: Monitor, model: str | None, state: Path) -> None:
    """Refuse a model that is not the one the monitor was begun with."""
    if model is None:
        return
    fitted = _load(model)
    if monitor.model not in (None, fitted.digest()):
        raise InputError(
            "--model",
            f"is {model}, another model than that of {state}",
            "begin a new monitor for it with `cordcal monitor init`",
        )
    if monitor.certificate not in (None, fitted.certificate_):
        echo_info(
            f"{model} was certified again; {state} watches the certificate that it was begun with"
        )


def _print(status: MonitorStatus, *, json: bool) -> None:
    """Print the status and exit with the code of its verdict."""
    if json:
        show_json(status.to_dict())
    else:
        for line in status.lines():
            echo(line)
    raise typer.Exit(_EXIT_CODES[status.verdict])
