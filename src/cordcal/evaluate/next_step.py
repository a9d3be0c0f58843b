"""The next step: the lines that fit and apply the advised report, ready to paste."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordcal.calibrators import available
from cordcal.evaluate.evidence import ORIGINAL

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison


@dataclass(frozen=True)
class NextStep:
    """How to fit the advised report and apply it to new rows.

    Attributes
    ----------
    shell, python : tuple of str
        Lines for a terminal, and for Python.
    """

    shell: tuple[str, ...]
    python: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {"shell": list(self.shell), "python": list(self.python)}


def next_step(
    comparison: Comparison, scores: str, new: str, model: str, options: tuple[str, ...] = ()
) -> NextStep | None:
    """Return the lines for the advised report; None where there is nothing to fit.

    Parameters
    ----------
    comparison : Comparison
        What was compared.
    scores, new, model : str
        Paths of the calibration scores, of the rows to report on, and of the model file.
    options : tuple of str
        Options that the command needs to read the scores.
    """
    advice = comparison.recommendation
    if advice.key is None or advice.key == ORIGINAL[0] or advice.key not in available():
        return None  # a calibrator from elsewhere is its owner's to fit
    repair = "lift" if advice.report == "lift" else None
    preserve = None if comparison.preserve == 1 else comparison.preserve
    kind = None if comparison.input == "logits" else comparison.input
    fit = ["cordcal", "fit", scores, *options, "--calibrator", advice.key]
    for name, value in (("input", kind), ("preserve", preserve), ("repair", repair)):
        fit += [] if value is None else [f"--{name}", str(value)]
    given = {"input": kind, "preserve": preserve, "repair": repair}
    arguments = [repr(advice.key)] + [f"{n}={v!r}" for n, v in given.items() if v is not None]
    return NextStep(
        shell=(
            shlex.join([*fit, "--output", model]),
            shlex.join(["cordcal", "apply", model, new, "--output", "repaired.npz"]),
        ),
        python=(
            "import cordcal",
            f"rows = cordcal.files.read_scores({', '.join([repr(scores), *_arguments(options)])})",
            f"model = cordcal.Preserved({', '.join(arguments)}).fit(rows.values, rows.labels)",
            f"cordcal.save(model, {model!r})",
            f"repaired = model.predict_proba(cordcal.files.read_scores({new!r}).values)",
        ),
    )


def _arguments(options: tuple[str, ...]) -> list[str]:
    """Return the options of the command as arguments of the function.

    Examples
    --------
    >>> _arguments(("--key", "probs", "--labels-column", "y"))
    ["key='probs'", "labels_column='y'"]
    >>> _arguments(("--key", "probs", "--no-header"))
    ["key='probs'", 'header=False']
    """
    switches = {"--header": "header=True", "--no-header": "header=False"}
    valued = [option for option in options if option not in switches]
    pairs = zip(valued[::2], valued[1::2], strict=True)
    # The command reads class names from a file, the function takes them as they are.
    return [
        f"{name.lstrip('-').replace('-', '_')}={value!r}"
        for name, value in pairs
        if name != "--class-names"
    ] + [switches[option] for option in options if option in switches]
