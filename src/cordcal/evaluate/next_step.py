"""The next step after a comparison: commands that fit and apply what it recommends."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cordcal.calibrators import available
from cordcal.report.data import ORIGINAL, SuggestedCommand

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison


def next_step(
    comparison: Comparison, scores: str, new: str, model: str, options: tuple[str, ...] = ()
) -> SuggestedCommand | None:
    """Return the commands for the recommendation; None if there is nothing to fit.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    scores, new, model : str
        Paths of the calibration scores, of the new rows, and of the model file.
    options : tuple of str
        Options that the command needs to read the scores.
    """
    advice = comparison.recommendation
    if advice.key is None or advice.key == ORIGINAL[0] or advice.key not in available():
        return None  # a user's own calibrator has no key to fit it by
    settings = {
        "calibrator": None if advice.is_default else advice.key,
        "input": None if comparison.input == "logits" else comparison.input,
        "preserve": None if comparison.preserve == 1 else comparison.preserve,
        "repair": "lift" if advice.output == "lift" and not advice.is_default else None,
    }
    written = {name: value for name, value in settings.items() if value is not None}
    fit = ["cordcal", "fit", scores, *options]
    fit += [word for name, value in written.items() for word in (f"--{name}", str(value))]
    arguments = [f"{name}={value!r}" for name, value in written.items()]
    read = [repr(scores), *_as_arguments(options)]
    return SuggestedCommand(
        shell=(
            shlex.join([*fit, "--output", model]),
            shlex.join(["cordcal", "apply", model, new, "--output", "repaired.npz"]),
        ),
        python=(
            "import cordcal",
            f"rows = cordcal.files.read_scores({', '.join(read)})",
            f"model = cordcal.PreservingCalibrator({', '.join(arguments)})",
            "model.fit(rows.values, rows.labels)",
            f"cordcal.save(model, {model!r})",
            f"repaired = model.predict_proba(cordcal.files.read_scores({new!r}).values)",
        ),
    )


def _as_arguments(options: tuple[str, ...]) -> list[str]:
    """Return options of the command as Python arguments of `read_scores`.

    Examples
    --------
    >>> _as_arguments(("--key", "probs", "--labels-column", "y"))
    ["key='probs'", "labels_column='y'"]
    >>> _as_arguments(("--key", "probs", "--no-header"))
    ["key='probs'", 'header=False']
    """
    switches = {"--header": "header=True", "--no-header": "header=False"}
    valued = [option for option in options if option not in switches]
    pairs = zip(valued[::2], valued[1::2], strict=True)
    # The command reads class names from a file; the function takes the names themselves.
    return [
        f"{name.lstrip('-').replace('-', '_')}={value!r}"
        for name, value in pairs
        if name != "--class-names"
    ] + [switches[option] for option in options if option in switches]
