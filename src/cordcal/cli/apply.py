"""``cordcal apply``: repaired probabilities of new rows, with a model file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cordcal._errors import InputError
from cordcal.cli._console import (
    describe_changes,
    echo_debug,
    echo_info,
    echo_skipped,
    row_progress,
    show_json,
)
from cordcal.cli._files import check_output
from cordcal.cli._inputs import (
    apply_in_parts,
    check_classes,
    echo_uncertified,
    echo_unknown_counts,
    is_parts_output,
    open_model_scores,
    open_pair,
)
from cordcal.cli._options import (
    CONTEXT_OPTIONS,
    DEFAULT_INPUTS,
    TEXT_OPTIONS,
    ForceOption,
    InputOptions,
    JsonOption,
    OnErrorOption,
    OriginalOption,
    OutputDtype,
    SchedulerOption,
    add_command,
    check_on_error,
    parse_share,
    with_input_options,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        apply,
        "apply model.safetensors new.npz --output repaired.npz",
        "apply cord.safetensors --original p.npz --direct q.npz --output repaired.csv",
    )


@with_input_options(
    *("columns", "class_names", *CONTEXT_OPTIONS, "input", *TEXT_OPTIONS),
    groups=Annotated[
        str | None,
        typer.Option(
            "--groups",
            metavar="NAME",
            help="Column or key of the groups that the model is certified by: adds the column act.",
        ),
    ],
)
def apply(
    model: Annotated[str, typer.Argument(help="A model file that cordcal fit wrote.")],
    scores: Annotated[
        list[str] | None,
        typer.Argument(help="Scores of new rows: files, folders or patterns; - reads stdin."),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Output file; its suffix selects the format: npz, npy, csv, jsonl, parquet, "
            "feather or arrow. A folder if the input is in parts; - prints CSV.",
        ),
    ] = "-",
    original: OriginalOption = None,
    direct: Annotated[
        str | None,
        typer.Option(
            "--direct", metavar="FILE", help="With --original: your calibrator's probabilities."
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            metavar="NAMES",
            help="Columns to add, as in direct,explanation,audit=2%: the direct probabilities, "
            "what the repair did in each row, a random share of the rows to act on, for a person "
            "to label (monitor uses those).",
        ),
    ] = None,
    keep: Annotated[
        str,
        typer.Option(
            "--keep",
            metavar="others|all|none",
            help="Which columns of the input to copy: `others` than the scores, `all`, or `none`.",
        ),
    ] = "others",
    names: Annotated[
        str,
        typer.Option(
            "--names",
            metavar="PATTERN",
            help="Names of the columns of probabilities, with {class} for the class.",
        ),
    ] = "p_{class}",
    dtype: Annotated[
        OutputDtype | None,
        typer.Option("--dtype", help="Dtype of the output; by default that of the scores."),
    ] = None,
    decimals: Annotated[
        int | None,
        typer.Option(
            "--decimals",
            metavar="NUMBER",
            help="Round for display: the decimals sum to one and keep the prediction on top. "
            "Small classes become zero; not for metrics.",
        ),
    ] = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="In a folder, make only parts that are missing or changed."),
    ] = False,
    on_error: OnErrorOption = "stop",
    spreadsheet: Annotated[
        bool,
        typer.Option("--spreadsheet", help="In CSV, prefix text that looks like a formula with '."),
    ] = False,
    scheduler: SchedulerOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 2 if the input has no rows.")
    ] = False,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write repaired probabilities, which keep the classifier's prediction in every row."""
    in_parts = scheduler is not None or is_parts_output(output, scores or original)
    if in_parts:
        from cordcal.files.disk import check_local

        check_local(output)
    else:
        check_output(output, force=force)
    if json and output == "-":
        raise InputError("--json", "goes to stdout, as --output - does", "name an output file")
    if resume and not in_parts:
        raise InputError(
            "--resume",
            "continues a folder of parts",
            "leave it out: a single file is written again from the start",
        )
    treatment = check_on_error(on_error)
    added = _parse_added(add or [])
    if keep not in ("others", "all", "none"):
        raise InputError("--keep", f"is {keep!r}", "write others, all or none")
    import cordcal
    from cordcal.files.apply import ApplyOptions, ModelApplication, apply_model
    from cordcal.repair.decimals import check_decimals

    if scores and _are_swapped(model, scores[0]):
        raise InputError(
            model,
            f"is not a model file but {scores[0]} is",
            f"the model comes first: cordcal apply {scores[0]} {model}",
        )
    context = None
    fitted = cordcal.load(model)
    certificate = getattr(fitted, "certificate_", None)
    is_by_group = certificate is not None and certificate.by == "group"
    if inputs.groups is not None and not is_by_group:
        raise InputError(
            "--groups", f"is not used: {model} has no certificate by group", "leave it out"
        )
    if hasattr(fitted, "calibrator_"):
        if not scores and original is None and direct is None:
            raise InputError(
                "scores",
                "is missing",
                f"pass the file of scores: cordcal apply {model} FILE",
            )
        if not scores or original is not None or direct is not None:
            raise InputError(
                model,
                "holds a calibrator with its repair",
                "pass the rows' scores, not --original and --direct (--add direct writes the "
                "direct probabilities, too)",
            )
        file, class_names, context = open_model_scores(
            fitted,
            model,
            scores,
            inputs,
            groups=inputs.groups,
            allow_empty=True,
        )
        files = [file]
    else:
        if original is None or direct is None or scores:
            raise InputError(
                model,
                "holds a repair alone",
                "pass --original and --direct, the classifier's and your calibrator's "
                "probabilities of the same rows",
            )
        if inputs.uses_context:
            option = next(iter(inputs.used(*CONTEXT_OPTIONS)))
            raise InputError(option, "does not go with --original and --direct", "leave it out")
        pattern = getattr(fitted, "score_columns_", None)
        first, second = open_pair(original, direct, inputs, pattern=pattern)
        check_classes(fitted, model, second)
        class_names = first.class_names or second.class_names
        files = [first, second]
    if added.audit is not None and certificate is None:
        raise InputError(
            "--add",
            f"has audit, which draws from the rows to act on, but {model} has no certificate",
            f"run cordcal certify held-out.npz --model {model}",
        )
    if is_by_group and inputs.groups is None:
        echo_info(
            f"{model} is certified by group, so there is no column act: name the column of the "
            "groups with --groups"
        )
    options = ApplyOptions(
        class_names=class_names,
        names=names,
        dtype=None if dtype is None else dtype.value,
        decimals=decimals,
        with_direct=added.direct,
        explain=added.explanation,
        passthrough=keep != "none" and _holds_columns(output),
        keep_scores=keep == "all",
        on_error=treatment,
        spreadsheet=spreadsheet,
        audit=added.audit,
        groups=inputs.groups,
    )
    work = ModelApplication(fitted, files, options, context)
    if decimals is not None:
        check_decimals(decimals, work.dtype)  # before anything is written
    if in_parts:
        applied = apply_in_parts(work, output, scheduler=scheduler, resume=resume, overwrite=force)
    else:
        with row_progress("applying") as progress:
            applied = apply_model(work, output, overwrite=force, progress=progress)
    if json:
        show_json({"output": output, **applied.to_dict()})
    else:
        place = "stdout" if output == "-" else output
        echo_skipped(applied.skipped)
        echo_unknown_counts(applied.unknown, applied.rows)
        echo_uncertified(inputs.groups, applied.uncertified, applied.rows)
        kept = f"; {applied.resumed:,} rows were up to date" if applied.resumed else ""
        changes = describe_changes(applied.changed, applied.rows) if applied.rows else "no rows"
        rows = f"{applied.rows:,} row{'' if applied.rows == 1 else 's'}"
        echo_info(f"{place}: {rows} × {applied.classes:,} classes; {changes}{kept}")
    if strict and not applied.rows:
        raise typer.Exit(2)


class _Added(NamedTuple):
    """The columns of ``--add``; ``audit`` is a share."""

    direct: bool = False
    explanation: bool = False
    audit: float | None = None


def _parse_added(texts: Sequence[str]) -> _Added:
    """Return the columns of ``--add``.

    Examples
    --------
    >>> _parse_added(["direct,audit=2%"])
    _Added(direct=True, explanation=False, audit=0.02)
    """
    added = _Added()
    for word in [word.strip() for text in texts for word in text.split(",")]:
        name, _, share = word.partition("=")
        if name == "audit" and share:
            added = added._replace(audit=parse_share(share, "--add"))
        elif name in ("direct", "explanation") and not share:
            added = added._replace(**{name: True})
        else:
            raise InputError(
                "--add", f"has {word!r}", "write some of direct, explanation and audit=2%"
            )
    return added


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
