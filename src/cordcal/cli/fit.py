"""``cordcal fit``: a calibrator that keeps decisions, or the repair alone, as a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cordcal._door.errors import Refusal
from cordcal.cli._command import add_command
from cordcal.cli._console import note, progress, row_progress, say, show_json
from cordcal.cli._options import (
    ForceOption,
    InputOption,
    JsonOption,
    KeyOption,
    LabelsOption,
    OnErrorOption,
    OriginalOption,
    PreserveOption,
    check_on_error,
    check_output,
    need_labels,
    open_file,
    open_pair,
    parse_preserve,
    read,
    refuse_with_pair,
    say_skipped,
)

if TYPE_CHECKING:
    from cordcal.files import ScoreFile, Scores
    from cordcal.serving._refusals import OnError


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        fit,
        "fit scores.npz --output model.safetensors",
        "fit scores.npz --calibrator svs --repair lift",
        "fit --original p.npz --direct q.npz --output cord.safetensors",
    )


def fit(
    scores: Annotated[
        str | None, typer.Argument(help="Calibration scores with labels; - reads stdin.")
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option("--calibrator", help="Its key; without it a blend, repaired by lift."),
    ] = None,
    repair: Annotated[
        str | None,
        typer.Option("--repair", help="cord (of a calibrator that is named) or lift."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", help="The model file to write.")] = Path(
        "model.safetensors"
    ),
    original: OriginalOption = None,
    direct: Annotated[
        str | None, typer.Option("--direct", help="Your own calibrator's reports of these rows.")
    ] = None,
    labels: LabelsOption = None,
    key: KeyOption = None,
    input: InputOption = None,
    preserve: PreserveOption = "1",
    on_error: OnErrorOption = "stop",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Fit a calibrator and its repair on calibration rows, and write both to a model file.

    With --original and --direct only the repair is fitted, which needs neither labels nor a
    calibrator.
    """
    import cordcal

    depth = parse_preserve(preserve)
    treatment = check_on_error(on_error)
    if original is not None or direct is not None:
        if scores is not None or calibrator is not None or repair is not None:
            raise Refusal(
                "scores",
                "and --original with --direct are two ways to fit",
                "pass one of them, but not both",
            )
        refuse_with_pair(labels=labels, key=key)
        pair = _pair(original, direct, input)
        check_output(output, force=force)
        model = _repair(*pair, depth, treatment)
    else:
        if scores is None:
            raise Refusal(
                "scores", "is missing", "pass a file of scores, or --original and --direct"
            )
        if calibrator is not None:
            cordcal.calibrators.calibrator_class(calibrator)  # refuses an unknown key
        wanted: Any = repair
        cordcal.Preserved(calibrator, repair=wanted, preserve=depth)._new_repair()  # refuses others
        found = _rows(scores, treatment, key=key, labels=labels, kind=input)
        truth = need_labels(found)
        # A mistake in the input is the graver one: tell of it before the output's.
        check_output(output, force=force)
        if not json:
            note(f"fitting {calibrator or 'blend'} on {scores}")
        model = _calibrator(found, truth, calibrator, repair, depth)
    cordcal.save(model, output, overwrite=force)
    construction = model.construction_
    if json:
        show_json({"model": str(output), "construction": construction.to_dict()})
        return
    say(repr(construction))
    say(f"model: {output}")


def _rows(path: str, on_error: OnError, **options: Any) -> Scores:
    """Read the calibration rows, without those that are to be skipped."""
    if on_error == "stop":
        return read(path, **options)
    from cordcal.serving._refusals import read_sound

    found, skipped = read_sound(open_file(path, **options))
    say_skipped(skipped)
    return found


def _calibrator(
    found: Scores,
    truth: Any,
    key: str | None,
    repair: Any,
    preserve: int | Literal["ranking"],
) -> Any:
    import cordcal
    from cordcal.calibrators._registry import takes_features

    model = cordcal.Preserved(
        key,
        repair=repair,
        input=found.kind,
        preserve=preserve,
        class_names=found.class_names,
    )
    with progress("fitting", 1) as advance:
        advance(key or "blend")
        features = found.features if takes_features(key or "blend") else None
        return model.fit(found.values, truth, features=features)


def _pair(original: str | None, direct: str | None, input: Any) -> tuple[ScoreFile, ScoreFile]:
    if original is None or direct is None:
        missing = "--original" if original is None else "--direct"
        raise Refusal(missing, "is missing", "the repair needs both reports of the same rows")
    return open_pair(original, direct, kind=input)


def _repair(
    original: ScoreFile, direct: ScoreFile, preserve: int | Literal["ranking"], on_error: OnError
) -> Any:
    import cordcal
    from cordcal.serving._pairs import construct_from_files

    cord = cordcal.CORD(preserve)
    with row_progress("fitting") as progress:
        skipped = construct_from_files(cord, original, direct, on_error=on_error, progress=progress)
    say_skipped(skipped)
    return cord
