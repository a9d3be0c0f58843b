"""Gates: limits that probabilities must meet before a release.

A gate that could not be evaluated never passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import to_numpy
from cordcal._validation.estimator import as_seed
from cordcal._validation.labels import names_to_indices
from cordcal._validation.layouts import align_rows
from cordcal._validation.names import column_names, in_column_order, integer_column_names
from cordcal.evaluate.groups import as_groups, parts_of
from cordcal.evaluate.statistics import resampled
from cordcal.metrics import METRICS, decision_changes
from cordcal.metrics.rows import LabelledRows, ProbabilityMatrix
from cordcal.report.data import MIN_ROWS_PER_GROUP

Over = Literal["all", "class", "group", "increase"]
Outcome = Literal["passed", "failed", "not evaluated"]

TPCR = "tpcr"
# Half the width of a 95 % interval in standard errors.
_NORMAL = 1.959964
_BASELINE_FORMAT = 1
# Characters that XML 1.0 does not allow, not even as references.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Gate:
    """One limit.

    Parameters
    ----------
    measure : str
        ``"tpcr"``, the share of predictions changed, or a metric.
    limit : float
        The largest or smallest value allowed.
    bound : {"max", "min"}
        Whether the limit is the largest or the smallest value allowed.
    over : {"all", "class", "group", "increase"}
        All rows; the worst predicted class; the worst group; or the increase over the baseline,
        by the upper end of its 95 % interval.
    """

    measure: str
    limit: float
    bound: Literal["max", "min"] = "max"
    over: Over = "all"

    def __post_init__(self) -> None:
        if self.measure != TPCR and self.measure not in METRICS:
            known = ", ".join((TPCR, *METRICS))
            raise InputError(
                "gate", f"names {self.measure!r}, which is not a metric", f"use one of {known}"
            )
        for name, allowed in (
            ("bound", ("max", "min")),
            ("over", ("all", "class", "group", "increase")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise InputError(name, f"is {value!r}", f"use one of {', '.join(allowed)}")

    @classmethod
    def parse(cls, name: str, limit: Any, bound: Literal["max", "min"] = "max") -> Gate:
        """Create a gate from a name such as ``"nll"`` or ``"ece.group"``, and its limit.

        Examples
        --------
        >>> Gate.parse("ece.group", 0.05)
        Gate(measure='ece', limit=0.05, bound='max', over='group')
        """
        measure, _, over = name.partition(".")
        if over not in ("", "class", "group", "increase"):
            raise InputError(
                "gate",
                f"is {name!r}",
                f"write {measure}, {measure}.class, {measure}.group or {measure}.increase",
            )
        if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
            raise InputError("gate", f"{name} has the limit {limit!r}", "write a number")
        return cls(measure, float(limit), bound, over or "all")  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """The gate's name, in the form that `parse` accepts."""
        return self.measure if self.over == "all" else f"{self.measure}.{self.over}"

    def keeps(self, value: float) -> bool:
        """Whether a value is within the limit."""
        return value <= self.limit if self.bound == "max" else value >= self.limit


@dataclass(frozen=True)
class Verdict:
    """The result of one gate.

    Attributes
    ----------
    gate : Gate
        The limit.
    outcome : {"passed", "failed", "not evaluated"}
        Whether it is met.
    value : float or None
        The measured value.
    reading : str
        The result as a sentence.
    """

    gate: Gate
    outcome: Outcome
    value: float | None
    reading: str

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain Python values."""
        return {"name": self.gate.name, **asdict(self)}


@dataclass(frozen=True)
class Checked:
    """The verdicts of all gates, and the metrics for a later check to compare with.

    Attributes
    ----------
    verdicts : tuple of Verdict
        One per gate.
    n : int
        Number of rows.
    measures : mapping of str to (value, standard error)
        Every resampled metric; empty without labels.
    """

    verdicts: tuple[Verdict, ...]
    n: int
    measures: Mapping[str, tuple[float, float]]

    @property
    def outcome(self) -> Outcome:
        """``"failed"`` if one gate failed, else ``"not evaluated"`` if one could not run."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        if "failed" in outcomes:
            return "failed"
        return "not evaluated" if "not evaluated" in outcomes or not outcomes else "passed"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values; it serves as a baseline."""
        return {
            "format": _BASELINE_FORMAT,
            "outcome": self.outcome,
            "n": self.n,
            "gates": [verdict.to_dict() for verdict in self.verdicts],
            "measures": {
                name: {"value": value, "standard_error": error}
                for name, (value, error) in self.measures.items()
            },
        }

    def to_junit(self) -> str:
        """Return the verdicts as a JUnit document, which CI systems display."""
        from xml.etree import ElementTree

        outcomes = [verdict.outcome for verdict in self.verdicts]
        suite = ElementTree.Element(
            "testsuite",
            name="cordcal check",
            tests=str(len(outcomes)),
            failures=str(outcomes.count("failed")),
            errors=str(outcomes.count("not evaluated")),
        )
        for verdict in self.verdicts:
            case = ElementTree.SubElement(
                suite, "testcase", classname="cordcal", name=verdict.gate.name
            )
            tag = {"failed": "failure", "not evaluated": "error"}.get(verdict.outcome)
            if tag is not None:
                ElementTree.SubElement(case, tag, message=_NOT_XML.sub("\ufffd", verdict.reading))
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def check(
    report: Any,
    labels: Any = None,
    *,
    gates: Sequence[Gate],
    original: Any = None,
    groups: Any = None,
    baseline: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    seed: int | np.random.Generator = 0,
) -> Checked:
    """Check probabilities against gates.

    Parameters
    ----------
    report : array_like of shape (n, K)
        Probabilities.  Rows of pandas objects are matched by index, also in other arguments.
    labels : array_like of int, optional
        The true class of each row; every metric except TPCR needs them.
    gates : sequence of Gate
        The limits.
    original : array_like of shape (n, K) or (n,), optional
        The scores, or the predictions, that TPCR compares with: the classifier's own, or those
        of a previous version.
    groups : array_like of shape (n,), optional
        The group of each row, for gates over groups.
    baseline : mapping, optional
        What `Checked.to_dict` returned for earlier probabilities.
    class_names : sequence of str, optional
        Names of the columns; labels may then be names.
    seed : int or numpy.random.Generator
        Seed of the resampling; one is drawn from a generator.

    Returns
    -------
    checked : Checked
        A verdict for each gate.

    Examples
    --------
    >>> checked = check([[0.9, 0.1], [0.2, 0.8]], original=[0, 0], gates=[Gate("tpcr", 0.0)])
    >>> checked.outcome, checked.verdicts[0].reading
    ('failed', 'tpcr is 0.5, above 0')
    """
    report, labels, original, groups = align_rows(
        report=report, labels=labels, original=original, groups=groups
    )
    checked = ProbabilityMatrix.from_array(report, "report")
    names = integer_column_names(report) if class_names is None else class_names
    labels = names_to_indices(labels, checked.values.shape, names)
    truth = None if labels is None else checked.check_labels(labels, None)[0]
    measures = {} if truth is None else _measure(checked.reduce(truth), as_seed(seed))
    original = in_column_order(original, "original", column_names(report), "report")
    before = None if original is None else _check_original(original, checked.rows)
    evaluator = _Evaluator(checked.values, truth, measures, before, groups, baseline)
    verdicts = tuple(evaluator.verdict(gate) for gate in gates)
    return Checked(verdicts, checked.rows, measures)


def _check_original(original: Any, rows: int) -> npt.NDArray[Any]:
    before = to_numpy(original, "original")
    if not before.ndim or len(before) != rows:
        raise InputError(
            "original",
            f"has shape {before.shape} but report has {rows} rows",
            "pass the scores or decisions of the same rows",
        )
    return before


def _measure(rows: LabelledRows, seed: int) -> dict[str, tuple[float, float]]:
    """Return each metric that can be resampled, with its standard error."""
    index = np.arange(len(rows))
    replicates = resampled({"report": [rows]}, [index], len(rows), seed=seed)["report"]
    return {
        name: (METRICS[name].value(rows), float(values.std(ddof=1)))
        for name, values in replicates.items()
    }


class _MissingInput(Exception):
    """A gate needs an argument that was not passed."""


@dataclass(frozen=True, eq=False)
class _Evaluator:
    """The inputs of all gates, and how each gate is evaluated."""

    report: npt.NDArray[Any]
    labels: npt.NDArray[np.intp] | None
    measures: Mapping[str, tuple[float, float]]
    original: npt.NDArray[Any] | None
    groups: Any
    baseline: Mapping[str, Any] | None

    def verdict(self, gate: Gate) -> Verdict:
        try:
            value, where = self._value(gate)
        except _MissingInput as missing:
            return Verdict(gate, "not evaluated", None, f"{gate.name} needs {missing}")
        if not math.isfinite(value):
            return Verdict(gate, "not evaluated", None, f"{gate.name} is not a number")
        passed = gate.keeps(value)
        side = "above" if gate.bound == "max" else "below"
        limit = f"within {gate.limit:g}" if passed else f"{side} {gate.limit:g}"
        reading = f"{gate.name} is {value:.6g}{where}, {limit}"
        return Verdict(gate, "passed" if passed else "failed", value, reading)

    def _value(self, gate: Gate) -> tuple[float, str]:
        """Return the value to compare with the limit, and which rows it describes."""
        if gate.over in ("class", "group"):
            return self._worst(gate)
        if gate.over == "increase":
            return self._increase(gate)
        return self._value_on(gate, np.arange(len(self.report))), ""

    def _value_on(self, gate: Gate, rows: npt.NDArray[np.intp]) -> float:
        """Return the gate's metric on some rows."""
        if gate.measure == TPCR:
            if self.original is None:
                raise _MissingInput("the original scores or predictions")
            return decision_changes(self.original[rows], self.report[rows]).tpcr
        if self.labels is None:
            raise _MissingInput("labels")
        return METRICS[gate.measure].function(self.report[rows], self.labels[rows])

    def _worst(self, gate: Gate) -> tuple[float, str]:
        """Return the worst part's value and its name."""
        parts = list(self._parts(gate))
        large = [(name, rows) for name, rows in parts if len(rows) >= MIN_ROWS_PER_GROUP]
        if not large:
            raise _MissingInput(f"a {gate.over} of at least {MIN_ROWS_PER_GROUP} rows")
        values = [(self._value_on(gate, rows), name, len(rows)) for name, rows in large]
        worst = max if gate.bound == "max" else min
        # NaN compares as neither smaller nor larger, so look for it first.
        undefined = [item for item in values if not math.isfinite(item[0])]
        value, name, count = undefined[0] if undefined else worst(values)
        small = len(parts) - len(large)
        ignored = f"; {small:,} smaller ignored" if small else ""
        return value, f" for the {gate.over} {name} ({count:,} rows{ignored})"

    def _parts(self, gate: Gate) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
        if gate.over == "group":
            if self.groups is None:
                raise _MissingInput("groups")
            yield from parts_of(as_groups(self.groups, len(self.report)))
        else:
            yield from parts_of(self.report.argmax(axis=1))

    def _increase(self, gate: Gate) -> tuple[float, str]:
        """Return the upper end of the increase over the baseline."""
        if gate.measure == TPCR:
            raise _MissingInput("a metric of the baseline; TPCR compares with predictions")
        if self.labels is None or self.baseline is None:
            raise _MissingInput("labels" if self.labels is None else "a baseline")
        before = self.baseline.get("measures", {}).get(gate.measure)
        now = self.measures.get(gate.measure)
        if not isinstance(before, Mapping) or now is None:
            raise _MissingInput(f"a baseline with {gate.measure}")
        value, error = now
        change = value - float(before["value"])
        if not METRICS[gate.measure].lower_is_better:
            change = -change
        margin = _NORMAL * math.hypot(error, float(before["standard_error"]))
        return change + margin, f" at most ({change:+.6g} ± {margin:.2g})"
