"""``cordcal audit``: what a calibrator did to the decisions, from its outputs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cordcal.cli._console import note, progress, say, show, show_json
from cordcal.cli._options import (
    ForceOption,
    InputOption,
    JsonOption,
    LabelsOption,
    OnErrorOption,
    ReportOption,
    check_on_error,
    check_output,
    open_pair,
    probabilities_of,
    read_pair,
    say_skipped,
)

TITLE = "What the calibrator does to decisions"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=(
            "Example: cordcal audit --original p.npz --direct q.npz --labels y.npy "
            "--report audit.html"
        ),
    )(audit)


def audit(
    original: Annotated[
        str, typer.Option("--original", help="The classifier's own scores: a file, or - for stdin.")
    ],
    direct: Annotated[
        str, typer.Option("--direct", help="The calibrator's reports of the same rows.")
    ],
    labels: LabelsOption = None,
    input: InputOption = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="A repair fitted on other rows; else one is fitted here."),
    ] = None,
    on_error: OnErrorOption = "stop",
    report: ReportOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Count the decisions a calibrator changes, and measure its report before and after repair."""
    if report is not None:
        check_output(report, force=force)
    (note if json else say)(f"cordcal audit: {original} against {direct}")
    treatment = check_on_error(on_error)
    repair = None if model is None else _repair(model)
    if report is None:
        found = _audit_files(original, direct, labels, input, repair, treatment)
    else:
        if treatment == "skip":
            raise ValueError("--report draws all rows; leave out --on-error skip, or --report")
        first, second = read_pair(original, direct, kind=input, labels=labels)
        import cordcal

        decision = first.values.argmax(axis=1)
        names = first.class_names or second.class_names
        truth = first.labels if first.labels is not None else second.labels
        pair = probabilities_of(first), second.values
        with progress("auditing", 1) as advance:
            advance(second.path)
            found = cordcal.audit(*pair, truth, class_names=names, decision=decision, cord=repair)
        data = _data(found, pair, truth, decision, names, repair, second.path)
        from cordcal.report import write_html

        source = f"{Path(first.path).name} against {Path(second.path).name}"
        write_html(data, report, title=TITLE, source=source)
    if json:
        show_json(found.to_dict())
        return
    show(found)
    if report is not None:
        say(f"report: {report}")


def _audit_files(
    original: str, direct: str, labels: str | None, input: Any, repair: Any, on_error: Any
) -> Any:
    """Audit without holding the files in memory."""
    first, second = open_pair(original, direct, kind=input, labels=labels)
    from cordcal.evaluate.files import audit_files

    names = first.class_names or second.class_names
    with progress("auditing", 1) as advance:
        advance(second.path)
        found, skipped = audit_files(
            first, second, class_names=names, cord=repair, on_error=on_error
        )
    say_skipped(skipped)
    return found


def _repair(path: str) -> Any:
    import cordcal

    model = cordcal.load(path)
    return getattr(model, "cord_", model)


def _data(
    found: Any, pair: Any, truth: Any, decision: Any, names: Any, repair: Any, path: str
) -> dict[str, Any]:
    """Return the report's dict, with the pictures of the same repair as the audit's."""
    import cordcal
    from cordcal.evaluate._pictures import Pictures
    from cordcal.evaluate.fingerprint import Fingerprint
    from cordcal.preserved import Reports
    from cordcal.report import audit_data

    cord = cordcal.CORD().fit(*pair, decision=decision) if repair is None else repair
    repaired = cord.transform(*pair, decision=decision)
    columns = list(names) if names else [str(index) for index in range(pair[1].shape[1])]
    bins = {name: found.reliability[name] for name in ("direct", "repaired") if found.reliability}
    pictures = Pictures.of(
        pair[0], Reports(pair[1], repaired, decision), columns, bins, labels=truth
    )
    return audit_data(
        found,
        pictures,
        name=Path(path).name,
        fingerprint=str(Fingerprint.of(pair[0])),
        class_names=names,
    )
