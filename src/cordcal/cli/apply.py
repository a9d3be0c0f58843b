"""``cordcal apply``: repaired probabilities of new rows, with a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordcal._errors import InputError
from cordcal.cli._answers import apply_to_answers, refuse_with_answers
from cordcal.cli._console import (
    describe_changes,
    echo_debug,
    echo_error,
    echo_info,
    echo_skipped,
    row_progress,
    show_json,
)
from cordcal.cli._files import check_output
from cordcal.cli._inputs import (
    apply_in_parts,
    check_classes,
    is_parts_output,
    open_model_scores,
    open_pair,
    refuse_with_pair,
)
from cordcal.cli._options import (
    ANSWER_OPTIONS,
    DEFAULT_INPUTS,
    ForceOption,
    InputOption,
    InputOptions,
    JsonOption,
    OnErrorOption,
    OriginalOption,
    OutputDtype,
    OutputLayout,
    SchedulerOption,
    add_command,
    check_on_error,
    with_input_options,
)

if TYPE_CHECKING:
    from cordcal.pipeline.applying import ModelApplication


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        apply,
        "apply model.safetensors new.npz --output repaired.npz",
        "apply cord.safetensors --original p.npz --direct q.npz --output repaired.csv",
    )


@with_input_options("key", "columns", "class_names", "header", *ANSWER_OPTIONS)
def apply(
    model: Annotated[str, typer.Argument(help="A model file that cordcal fit wrote.")],
    scores: Annotated[
        str | None,
        typer.Argument(help="Scores of new rows: a file, folder or pattern; - reads stdin."),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            help="Output file; its suffix selects the format: npz, npy, csv, jsonl, parquet, "
            "feather or arrow. A folder if the input is in parts; - prints CSV.",
        ),
    ] = "-",
    original: OriginalOption = None,
    direct: Annotated[
        str | None,
        typer.Option("--direct", help="With --original: your calibrator's probabilities."),
    ] = None,
    with_direct: Annotated[
        bool, typer.Option("--with-direct", help="Write the direct probabilities, too.")
    ] = False,
    dtype: Annotated[
        OutputDtype | None,
        typer.Option("--dtype", help="Dtype of the output; by default that of the scores."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Add columns that explain each row's repair.")
    ] = False,
    inputs: InputOptions = DEFAULT_INPUTS,
    drop_rest: Annotated[
        bool, typer.Option("--drop-rest", help="Omit the input's other columns from the output.")
    ] = False,
    layout: Annotated[
        OutputLayout | None,
        typer.Option(
            "--layout",
            help="One column per class, or one column of lists; by default as in the input.",
        ),
    ] = None,
    input: InputOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    on_error: OnErrorOption = "stop",
    spreadsheet: Annotated[
        bool,
        typer.Option(
            "--spreadsheet", help="In CSV, prefix class names that look like formulas with '."
        ),
    ] = False,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write repaired probabilities, which keep the classifier's prediction in every row."""
    in_parts = scheduler is not None or is_parts_output(output, scores or original)
    if in_parts:
        from cordcal.files.disk import check_local

        check_local(output)
    else:
        _check_output(output, force=force)
    if json and output == "-":
        raise InputError("--json", "goes to stdout, as --output - does", "name an output file")
    treatment = check_on_error(on_error)
    if resume and "-" in (scores, original, direct, output):
        raise InputError("--resume", "needs files", "stdin and stdout cannot be continued")
    import cordcal
    from cordcal.pipeline.applying import CalibratedRows, RepairedRows, apply_model

    if scores is not None and _are_swapped(model, scores):
        raise InputError(
            model,
            f"is not a model file but {scores} is",
            f"the model comes first: cordcal apply {scores} {model}",
        )
    fitted = cordcal.load(model)
    passthrough = not drop_rest and _holds_columns(output)
    options: dict[str, Any] = {
        "dtype": None if dtype is None else dtype.value,
        "with_direct": with_direct,
        "explain": explain,
    }
    if hasattr(fitted, "calibrator_"):
        if scores is None and original is None and direct is None:
            raise InputError(
                "scores",
                "is missing",
                f"pass the file of scores: cordcal apply {model} FILE",
            )
        if scores is None or original is not None or direct is not None:
            raise InputError(
                model,
                "holds a calibrator with its repair",
                "pass the rows' scores, not --original and --direct (--with-direct writes the "
                "direct probabilities, too)",
            )
        if inputs.answers is not None:
            refuse_with_answers(
                resume=resume,
                scheduler=scheduler,
                drop_rest=drop_rest,
                layout=layout,
                spreadsheet=spreadsheet,
                input=input,
            )
            answer_options: dict[str, Any] = {"on_error": treatment, "force": force, "json": json}
            apply_to_answers(fitted, inputs, scores, output, options, **answer_options)
            return
        file, names = open_model_scores(
            fitted, model, scores, inputs, kind=input, passthrough=passthrough
        )
        rows: ModelApplication = CalibratedRows(fitted, file, **options)
    else:
        if original is None or direct is None or scores is not None:
            raise InputError(
                model,
                "holds a repair alone",
                "pass --original and --direct, the classifier's and your calibrator's "
                "probabilities of the same rows",
            )
        refuse_with_pair(inputs, "key")
        pattern = getattr(fitted, "score_columns_", None)
        first, second = open_pair(
            original,
            direct,
            inputs,
            kind=input,
            pattern=pattern,
            passthrough=passthrough,
            on_error=treatment,
        )
        check_classes(fitted, model, second)
        names = first.class_names or second.class_names
        rows = RepairedRows(fitted, first, second, **options)
    output_options: dict[str, Any] = {
        "class_names": names,
        "on_error": treatment,
        "spreadsheet": spreadsheet,
        "layout": None if layout is None else layout.value,
    }
    rerun_options: dict[str, Any] = {"resume": resume, "overwrite": force}
    if not resume and (force or not in_parts):  # without --force, no part is replaced
        _echo_discarded(output, in_parts=in_parts)
    if in_parts:
        applied = apply_in_parts(
            rows, output, options, output_options, scheduler=scheduler, **rerun_options
        )
    else:
        with row_progress("applying") as progress:
            applied = apply_model(
                rows, output, progress=progress, **output_options, **rerun_options
            )
    if json:
        show_json({"output": output, **applied.to_dict()})
        return
    place = "stdout" if output == "-" else output
    echo_skipped(applied.skipped)
    echo_info(
        f"{place}: {applied.rows:,} rows × {applied.classes:,} classes; "
        + describe_changes(applied.changed, applied.rows)
    )


def _check_output(output: str, *, force: bool) -> None:
    """Refuse an output that cannot be written; mention an interrupted run to continue."""
    from cordcal.files.output import unfinished_rows

    if output != "-" and not force and Path(output).is_file():
        rows = unfinished_rows(output)
        if rows:
            raise InputError(
                output,
                f"exists already, and {rows:,} rows of an interrupted run are kept",
                "pass --force --resume to continue that run and replace it",
            )
    check_output(output, force=force)


def _echo_discarded(output: str, *, in_parts: bool) -> None:
    if output == "-":
        return
    if in_parts:
        from cordcal.pipeline.parts import finished_parts

        count, unit = finished_parts(output), "parts"
    else:
        from cordcal.files.output import unfinished_rows

        count, unit = unfinished_rows(output), "rows"
    if count:
        echo_error(
            f"{output}: discarding {count:,} {unit} of an interrupted run; --resume would have "
            f"continued it"
        )


def _holds_columns(output: str) -> bool:
    """Return whether the output format can hold columns other than probabilities."""
    if Path(output).suffix.lower() not in (".npy", ".npz"):
        return True
    echo_debug(f"{output} can hold only probabilities; the input's other columns are omitted")
    return False


def _are_swapped(model: str, scores: str) -> bool:
    from cordcal.files.models import is_model

    both_are_files = Path(model).is_file() and Path(scores).is_file()
    return both_are_files and is_model(scores) and not is_model(model)
