"""``cordcal apply``: repaired reports of new rows, with a model file."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cordcal.cli._console import note, show_json
from cordcal.cli._options import (
    ForceOption,
    InputOption,
    JsonOption,
    KeyOption,
    OriginalOption,
    OutputDtype,
    check_names,
    check_output,
    probabilities_of,
    read,
    read_pair,
)


class _Command(TyperCommand):
    """Reads ``--direct`` without ``--original`` as the wish for the direct report as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = any(each == "--original" or each.startswith("--original=") for each in args)
        if not named:
            args = ["--with-direct" if each == "--direct" else each for each in args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        cls=_Command,
        epilog=(
            "Example: cordcal apply model.safetensors new.npz --output repaired.npz\n\n"
            "Example: cordcal apply cord.safetensors --original p.npz --direct q.npz "
            "--output repaired.csv"
        ),
    )(apply)


def apply(
    model: Annotated[str, typer.Argument(help="A model file that cordcal fit wrote.")],
    scores: Annotated[
        str | None, typer.Argument(help="The rows to report on; - reads stdin.")
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", help="npz, npy, csv or parquet by its suffix; - prints CSV."),
    ] = "-",
    original: OriginalOption = None,
    direct: Annotated[
        str | None,
        typer.Option(
            "--direct",
            help="With --original: your calibrator's reports. Alone: write the direct report too.",
        ),
    ] = None,
    with_direct: Annotated[bool, typer.Option("--with-direct", hidden=True)] = False,
    dtype: Annotated[
        OutputDtype | None, typer.Option("--dtype", help="Of the repaired report.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the story of each row's repair.")
    ] = False,
    key: KeyOption = None,
    input: InputOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write repaired reports: probabilities whose own argmax is the classifier's decision."""
    check_output(output, force=force)
    if json and output == "-":
        raise ValueError("--json and --output - both go to stdout; name an output file")
    import cordcal

    fitted = cordcal.load(model)
    wanted = None if dtype is None else dtype.value
    if hasattr(fitted, "calibrator_"):
        if scores is None or original is not None:
            raise ValueError(
                f"{model} holds a calibrator with its repair; pass the rows' scores, not "
                f"--original and --direct"
            )
        result = _with_calibrator(fitted, model, scores, key, input, wanted, explain)
    else:
        if original is None or direct is None or scores is not None:
            raise ValueError(
                f"{model} holds a repair alone; pass --original and --direct, the classifier's "
                f"and your calibrator's reports of the same rows"
            )
        result = _with_repair(fitted, original, direct, input, wanted, explain)
    reports, decision, names, extra = result
    changed = int((reports["direct"].argmax(axis=1) != decision).sum())
    if not with_direct:
        del reports["direct"]
    from cordcal.io import write_reports

    write_reports(output, reports, decision, class_names=names, extra=extra)
    rows, classes = reports["repaired"].shape
    if json:
        show_json({"output": output, "rows": rows, "classes": classes, "changed": changed})
        return
    where = "stdout" if output == "-" else output
    note(
        f"{where}: {rows:,} rows × {classes:,} classes; the direct report would change "
        f"{changed:,} decisions ({changed / rows:.2%}), the repaired one changes none"
    )


def _with_calibrator(
    fitted: Any,
    model: str,
    path: str,
    key: str | None,
    input: Any,
    dtype: str | None,
    explain: bool,
) -> tuple[dict[str, Any], Any, Any, dict[str, Any] | None]:
    from cordcal.calibrators._registry import takes_features
    from cordcal.calibrators._scores import original_probabilities

    found = read(path, key=key, kind=input)
    kind = fitted.calibrator_.input
    if found.kind != kind:
        raise ValueError(
            f"{found.path} looks like {found.kind} but {model} was fitted on {kind}; pass {kind}, "
            f"or say --input {kind} if they are"
        )
    own = None if fitted.class_names is None else tuple(map(str, fitted.class_names))
    check_names(own, model, found.class_names, found.path)
    features = found.features if takes_features(fitted.calibrator_) else None
    reports = fitted.reports(found.values, dtype, features=features)
    story = None
    if explain:
        story = fitted.cord_.explain(
            original_probabilities(found.values, kind), reports.direct, decision=reports.decision
        )
    both = {"repaired": reports.repaired, "direct": reports.direct}
    return both, reports.decision, own or found.class_names, _columns(story)


def _with_repair(
    fitted: Any, original: str, direct: str, input: Any, dtype: str | None, explain: bool
) -> tuple[dict[str, Any], Any, Any, dict[str, Any] | None]:
    first, second = read_pair(original, direct, kind=input)
    decision = first.values.argmax(axis=1)
    pair = probabilities_of(first), second.values
    repaired = fitted.transform(*pair, decision=decision, dtype=dtype)
    story = fitted.explain(*pair, decision=decision) if explain else None
    names = first.class_names or second.class_names
    return {"repaired": repaired, "direct": second.values}, decision, names, _columns(story)


def _columns(story: Any) -> dict[str, Any] | None:
    """Return an explanation as columns; the decision has its own already."""
    if story is None:
        return None
    return {name: column for name, column in story.to_dict().items() if name != "decision"}
