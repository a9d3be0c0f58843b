"""A model file as a model card: Markdown with the YAML block that model hubs read.

Nothing is computed here and nothing is added to what the file says.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordcal._errors import printable
from cordcal._version import __version__
from cordcal.files.models import facts_of, load
from cordcal.metrics import METRICS
from cordcal.report.tables import number

if TYPE_CHECKING:
    from cordcal.repair.context import FittedContext

# What Markdown and HTML give a meaning.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&])")
_GAP = "confidence_minus_accuracy"


def model_card(path: str | os.PathLike[str]) -> str:
    """Return the card of a model file.

    Parameters
    ----------
    path : path
        A file that `cordcal.save` or ``cordcal fit`` wrote.

    Returns
    -------
    card : str
        The text of a ``README.md`` for the model.

    Examples
    --------
    >>> import tempfile, numpy as np, cordcal
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> cordcal.save(cordcal.PreservingCalibrator("ts").fit(logits, labels), path)
    >>> model_card(path).splitlines()[1]
    'library_name: "cordcal"'
    """
    model, facts, name = load(path), facts_of(path), Path(path).name
    measures = _Measures(model)
    sections = {
        "What was fitted": _table(_fitted(model)),
        "Figures": measures.text(),
        "Predictions": _list(_predictions(model)),
        "Which predictions may go through": _list(_certificate(model)),
        "Limits": _list(_limits(model, measures)),
        "File": _table(_file(name, model, facts)),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items() if text)
    return (
        f"---\n{_yaml_block(name, model, facts, measures)}---\n\n# {_escape(name)}\n\n"
        f"{_lead(model)}\n\n{body}\n"
    )


class _Measures:
    """The figures of a file, and on which rows they were measured."""

    def __init__(self, model: Any) -> None:
        held_out = getattr(model, "measured_", None)
        gap = getattr(model, "confidence_", None)
        self.metrics: Mapping[str, Any] = {}
        self.gap: Mapping[str, Sequence[float]] = {}
        self.rows, self.held_out = "", held_out is not None
        if held_out is not None:
            fits = held_out["fits"]
            how = f"in {fits} folds" if fits > 1 else "by a second fit"
            self.rows = f"{held_out['rows']:,} calibration rows held out {how}"
            stored = held_out["metrics"]
            self.metrics = {key: stored[key] for key in METRICS if key in stored}
            self.gap = held_out["confidence"]
        elif gap is not None:
            self.rows = f"{gap.n:,} rows of the fit itself"
            self.gap = {"before": gap.before, "after": gap.after}

    def text(self) -> str:
        if not self.gap:
            return "The file holds no figures: it was written without labels."
        how = ", each predicted by a model fitted without it" if self.held_out else ""
        lines = [f"Measured on {self.rows}{how}. Intervals have a level of 95 %.", ""]
        rows = [("", "before", "after", "change")]
        for key, values in self.metrics.items():
            estimate, low, high = values["change"]
            ends = ", ".join(METRICS[key].write(end, signed=True) for end in (low, high))
            change = f"{number(key, estimate, signed=True)} [{ends}]"
            before, after = number(key, values["before"]), number(key, values["after"])
            rows.append((METRICS[key].short, before, after, change))
        before, after = (_points(self.gap[moment]) for moment in ("before", "after"))
        rows.append(("Confidence − accuracy", before, after, ""))
        lines.append(_table(rows[1:], rows[0]))
        if not self.held_out:
            lines += ["", "The figures after were measured on rows that the fit has seen."]
        return "\n".join(lines)

    def results(self) -> list[tuple[str, float]]:
        """Return the names and values after calibration, of held-out rows only."""
        if not self.held_out:
            return []
        values = [(key, values["after"]) for key, values in self.metrics.items()]
        return [*values, (_GAP, self.gap["after"][0])]


def _lead(model: Any) -> str:
    what = "Restores the predictions of" if not _calibrator(model) else "Calibrates"
    text = f"{what} a classifier of {model.n_classes_:,} classes"
    if _repair(model) is None:
        return f"{text}. This is a calibrator alone: it may change predictions."
    return f"{text}: the confidence changes, and no prediction does."


def _fitted(model: Any) -> list[tuple[str, str]]:
    construction, calibrator = _construction(model), _calibrator(model)
    rows = []
    if calibrator is not None:
        rows += [("Calibrator", f"{calibrator.title} ({calibrator.key})")]
        rows += [("Takes", str(calibrator.input))]
    if (repair := _repair(model)) is not None:
        rows.append(("Repair", type(repair).__name__))
    if construction is not None:
        rows.append(("Calibration rows", f"{construction.n:,}"))
    rows.append(("Classes", f"{model.n_classes_:,}"))
    if (names := _names(model)) is not None:
        rows.append(("Class names", ", ".join(names)))
    if patterns := getattr(model, "score_columns_", ()):
        rows.append(("Columns", ", ".join(patterns)))
    if getattr(model, "preserve", 1) != 1:
        rows.append(("Ranks kept", str(model.preserve)))
    return rows


def _predictions(model: Any) -> list[str]:
    construction = _construction(model)
    if construction is None:
        return []
    n, changed = construction.n, construction.n_changed
    return [
        f"Changed: 0 of {n:,} calibration rows, and none of new rows.",
        f"The calibrator without the repair would change {changed:,} of {n:,} "
        f"({100 * changed / n:.2f} %).",
    ]


def _certificate(model: Any) -> list[str]:
    certificate = getattr(model, "certificate_", None)
    if certificate is not None:
        return str(certificate).splitlines()
    return ["The file holds no certificate."] if hasattr(model, "certificate_") else []


def _limits(model: Any, measures: _Measures) -> list[str]:
    construction, lines = _construction(model), []
    if measures.gap:
        lines.append("The figures hold for new rows like those they were measured on.")
    if construction is not None:
        share = 100 * construction.n_at_lower / construction.n
        lines.append(f"{share:.2f} % of the predictions are kept against the evidence.")
    if getattr(model, "rule_", None) is not None:
        lines.append("The prediction is the largest weight times probability, not the argmax.")
    if getattr(model, "needs_prediction_", False):
        lines.append("The predictions must be passed with the scores.")
    context = getattr(_repair(model), "context_", None)
    if context is not None:
        lines += _describe_context(context)
    return lines


def _describe_context(context: FittedContext) -> list[str]:
    """Return which columns next to the scores are needed, and which are not."""
    needed = ", ".join(column.name for column in context.columns)
    unused = ", ".join(context.without_effect)
    lines = [f"The context {needed} must be passed with the scores."] if needed else []
    if unused:
        lines.append(f"The context {unused} has no effect and may be left out.")
    return lines


def _file(name: str, model: Any, facts: Mapping[str, str]) -> list[tuple[str, str]]:
    rows = [("Name", name), ("Format", f"safetensors, cordcal version {facts['version']}")]
    if "cordcal" in facts:
        rows.append(("Written by", f"cordcal {facts['cordcal']}"))
    rows.append(("Digest of the contents (SHA-256)", facts["digest"]))
    if hasattr(model, "digest"):
        rows.append(("Digest of the probabilities", model.digest()))
    return [*rows, ("This card", f"cordcal {__version__}")]


def _yaml_block(name: str, model: Any, facts: Mapping[str, str], measures: _Measures) -> str:
    """Return the metadata; every text is in JSON's quotes, which YAML reads alike."""
    lines = [
        f"library_name: {_quoted('cordcal')}",
        f"tags: {_quoted_list(['calibration', 'confidence', 'classification'])}",
    ]
    if results := measures.results():
        lines += [
            "model-index:",
            f"  - name: {_quoted(name)}",
            "    results:",
            "      - task:",
            f"          type: {_quoted('classification')}",
            "        dataset:",
            f"          name: {_quoted(measures.rows)}",
            f"          type: {_quoted('calibration-rows')}",
            "        metrics:",
        ]
        for key, value in results:
            lines += [f"          - type: {_quoted(key)}", f"            value: {float(value)!r}"]
    lines += ["cordcal:", f"  classes: {int(model.n_classes_)}"]
    if (names := _names(model)) is not None:
        lines.append(f"  class_names: {_quoted_list(names)}")
    if (calibrator := _calibrator(model)) is not None:
        lines.append(f"  calibrator: {_quoted(calibrator.key)}")
    if (repair := _repair(model)) is not None:
        lines.append(f"  repair: {_quoted(type(repair).__name__)}")
    lines += [f"  digest: {_quoted(facts['digest'])}", ""]
    return "\n".join(lines)


def _calibrator(model: Any) -> Any:
    """Return the calibrator of a model, the model itself if it is one, or None."""
    return getattr(model, "calibrator_", model if hasattr(model, "key") else None)


def _repair(model: Any) -> Any:
    """Return the repair of a model, the model itself if it is one, or None."""
    return getattr(model, "repair_", model if hasattr(model, "construction_") else None)


def _construction(model: Any) -> Any:
    construction = getattr(model, "construction_", None)
    return getattr(construction, "levels", [construction])[0]


def _names(model: Any) -> list[str] | None:
    names = getattr(model, "class_names", None)
    return None if names is None else [str(name) for name in names]


def _points(interval: Sequence[float]) -> str:
    middle, low, high = (f"{100 * value:+.2f}".replace("-", "−") for value in interval)
    return f"{middle} points [{low}, {high}]"


def _quoted(text: str) -> str:
    return json.dumps(printable(text), ensure_ascii=False)


def _quoted_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _escape(text: str) -> str:
    """Return text in which Markdown and HTML see no markup."""
    return _SPECIAL.sub(r"\\\1", printable(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")


def _table(rows: Sequence[Sequence[str]], header: Sequence[str] = ("", "")) -> str:
    lines = [header, ["---"] * len(header), *([_escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escape(line)}" for line in lines)
