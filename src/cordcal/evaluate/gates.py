"""Gates: limits that probabilities must meet before a release.

A gate that could not be evaluated never passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import to_numpy
from cordcal._numeric.types import ArrayLike, Classes, Vector
from cordcal._validation.estimator import as_seed
from cordcal._validation.ids import as_ids, id_digests
from cordcal._validation.labels import (
    MAX_GROUPS,
    NO_GROUP,
    as_groups,
    check_predictions,
    cluster_numbers,
    group_names,
    rows_by_group,
)
from cordcal._validation.table import match
from cordcal.certification import Recheck
from cordcal.evaluate.baseline import Baseline, KeyedBy, keys_of_scores
from cordcal.evaluate.bounds import (
    certified_error_rates,
    lowest_certified_threshold,
    upper_mean,
    upper_rate,
)
from cordcal.evaluate.chance import joint_allowances, measure, of_rows, take
from cordcal.evaluate.pictures import by_group
from cordcal.evaluate.results.audit import CertifiedErrorRate
from cordcal.evaluate.results.pictures import MIN_ROWS_PER_GROUP, GroupReport
from cordcal.evaluate.statistics import resampled
from cordcal.metrics import METRICS, prediction_changes
from cordcal.metrics.base import BlockStream, LabelledRows, MeanStream, Metric, ProbabilityMatrix
from cordcal.metrics.proper import AccuracyStream
from cordcal.repair.prediction_rule import PredictionRule, check_rule

Over = Literal["all", "class", "group", "increase"]
Outcome = Literal["passed", "failed", "not evaluated"]

TPCR = "tpcr"
# Half the width of a 95 % interval in standard errors.
_NORMAL = 1.959964
# Characters that XML 1.0 does not allow, not even as references.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_share(text: str | float, argument: str) -> float:
    """Return a share written as ``0.01`` or ``1%``.

    Examples
    --------
    >>> parse_share("1%", "--error"), parse_share("0.01", "--error")
    (0.01, 0.01)
    """
    try:
        if isinstance(text, str) and text.strip().endswith("%"):
            return float(text.strip()[:-1]) / 100.0
        return math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        raise InputError(argument, f"is {text!r}", "write a number, such as 0.01 or 1%") from None


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
        self._check_direction()
        lowest = -1.0 if self.over == "increase" else 0.0
        if self._is_share and not lowest <= self.limit <= 1.0:
            percent = f"{self.limit:g}%"
            raise InputError(
                "gate",
                f"{self.name} has the limit {self.limit:g}, but it is from {lowest:g} to 1",
                f"write {percent} or {self.limit / 100.0:g} if you mean {percent}"
                if self.limit > 1.0
                else "write such a limit",
            )
        if self.over == "increase" and not self._can_be_resampled:
            raise InputError(
                "gate",
                f"{self.name} is not available: a baseline does not store what it needs",
                "write {option}",
                option=("max", f"{self.measure}=…"),
            )

    @property
    def _can_be_resampled(self) -> bool:
        """Whether its increase over a baseline can be computed from rows that were reduced."""
        if self.measure == TPCR:
            return False
        metric = METRICS[self.measure]
        return metric.resampler is not None or isinstance(metric.stream(), MeanStream)

    @property
    def _is_share(self) -> bool:
        return self.measure == TPCR or METRICS[self.measure].unit == "%"

    def _check_direction(self) -> None:
        """Refuse a limit on the good side: it would pass however bad the value is."""
        lower_is_better = self.measure == TPCR or METRICS[self.measure].lower_is_better
        expected = "max" if lower_is_better or self.over == "increase" else "min"
        if self.bound != expected:
            better = "smaller" if expected == "max" else "larger"
            raise InputError(
                "gate",
                f"{self.name} has a --{self.bound}, but {better} is better",
                f"write --{expected} {self.name}=…",
            )

    @classmethod
    def parse(cls, name: str, limit: Any, bound: Literal["max", "min"] = "max") -> Gate:
        """Create a gate from a name such as ``"nll"`` or ``"ece.group"``, and its limit.

        Examples
        --------
        >>> Gate.parse("ece.group", "5%")
        Gate(measure='ece', limit=0.05, bound='max', over='group')
        """
        measure, _, over = name.partition(".")
        if over not in ("", "class", "group", "increase"):
            raise InputError(
                "gate",
                f"is {name!r}",
                f"write {measure}, {measure}.class, {measure}.group or {measure}.increase",
            )
        value = parse_share(limit, f"gate {name}")
        if math.isnan(value):
            raise InputError("gate", f"{name} has the limit {limit!r}", "write a number")
        return cls(measure, value, bound, over or "all")  # type: ignore[arg-type]

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
        What is compared with the limit.
    reading : str
        The result as a sentence.
    estimate : float or None
        The metric on these rows.
    chance : float or None
        For classes and groups: how much of the estimate may be chance, and is subtracted.
    detail : str
        The rows that the value belongs to, and how it was computed, or why it was not.
    """

    gate: Gate
    outcome: Outcome
    value: float | None
    reading: str
    estimate: float | None = None
    chance: float | None = None
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain Python values."""
        return {"name": self.gate.name, **asdict(self)}


@dataclass(frozen=True)
class Checked:
    """The verdicts of all gates, and the rows for a later check to compare with.

    Attributes
    ----------
    verdicts : tuple of Verdict
        One per gate.
    n : int
        Number of rows.
    measures : mapping of str to float
        Every metric of all rows; empty without labels.
    n_changed : int or None
        Predictions that differ from the original, if it was passed.
    certified : tuple of CertifiedErrorRate
        Bounds for the error rate above several confidences, which hold together with
        probability 1 − α; empty without labels.
    target : CertifiedErrorRate or None
        The lowest confidence that reaches ``target_error``; None if none does.
    baseline : Baseline or None
        What a later check compares with; None without labels.
    n_moved_by_rounding : int
        Predictions that would differ if the probabilities were rounded to four decimals.
    caveats : tuple of str
        Reasons to doubt bounds and intervals.
    certificate : Recheck or None
        The answer about the model's certificate, if the command was asked for it.
    groups : tuple of GroupReport
        The metrics of each group, as of the output ``"direct"``, the worst first; empty without
        labels, or with more groups than a table can hold.
    """

    verdicts: tuple[Verdict, ...]
    n: int
    measures: Mapping[str, float]
    n_changed: int | None
    certified: tuple[CertifiedErrorRate, ...]
    target: CertifiedErrorRate | None
    baseline: Baseline | None = field(compare=False, repr=False)
    n_moved_by_rounding: int = 0
    caveats: tuple[str, ...] = ()
    certificate: Recheck | None = None
    groups: tuple[GroupReport, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """``"failed"`` if one gate failed, else ``"not evaluated"`` if one could not run."""
        outcomes = {outcome for _, outcome, _ in self._answers()}
        if "failed" in outcomes:
            return "failed"
        return "not evaluated" if "not evaluated" in outcomes or not outcomes else "passed"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the baseline as plain Python values."""
        return {
            "outcome": self.outcome,
            "n": self.n,
            "n_changed": self.n_changed,
            "n_moved_by_rounding": self.n_moved_by_rounding,
            "gates": [verdict.to_dict() for verdict in self.verdicts],
            "measures": dict(self.measures),
            "certified": [rate.to_dict() for rate in self.certified],
            "target": None if self.target is None else self.target.to_dict(),
            "caveats": list(self.caveats),
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
            "groups": [group.to_dict() for group in self.groups],
        }

    def _answers(self) -> list[tuple[str, Outcome, str]]:
        """Return the name, outcome and sentence of each gate, and of the certificate."""
        answers = [(own.gate.name, own.outcome, own.reading) for own in self.verdicts]
        if self.certificate is not None:
            outcome: Outcome = "passed" if self.certificate.passed else "failed"
            answers.append(("certificate", outcome, str(self.certificate)))
        return answers

    def to_junit(self, properties: Mapping[str, str] | None = None) -> str:
        """Return the verdicts as a JUnit document, which CI systems display.

        Parameters
        ----------
        properties : mapping of str to str, optional
            Facts to put at the head: versions, digests of files.

        Returns
        -------
        document : str
            XML.
        """
        from xml.etree import ElementTree

        answers = self._answers()
        outcomes = [outcome for _, outcome, _ in answers]
        suite = ElementTree.Element(
            "testsuite",
            name="cordcal check",
            tests=str(len(outcomes)),
            failures=str(outcomes.count("failed")),
            errors=str(outcomes.count("not evaluated")),
        )
        if properties:
            head = ElementTree.SubElement(suite, "properties")
            for name, value in properties.items():
                ElementTree.SubElement(head, "property", name=name, value=_xml_text(value))
        for name, outcome, reading in answers:
            case = ElementTree.SubElement(suite, "testcase", classname="cordcal", name=name)
            tag = {"failed": "failure", "not evaluated": "error"}.get(outcome)
            if tag is not None:
                ElementTree.SubElement(case, tag, message=_xml_text(reading))
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def check(
    probabilities: Any,
    labels: Any = None,
    *,
    gates: Sequence[Gate],
    original: Any = None,
    rule: Literal["argmax"] | PredictionRule | ArrayLike = "argmax",
    groups: Any = None,
    clusters: Any = None,
    ids: Any = None,
    baseline: Baseline | None = None,
    class_names: Sequence[str] | None = None,
    target_error: float | None = None,
    alpha: float = 0.05,
    seed: int | np.random.Generator = 0,
) -> Checked:
    """Check probabilities against gates.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The probabilities.  Rows of pandas objects are matched by index, also in other arguments.
    labels : array_like of int, optional
        The true class of each row; every metric except TPCR needs them.
    gates : sequence of Gate
        The limits.
    original : array_like of shape (n, K) or (n,), optional
        The scores, or the predictions, that TPCR compares with: the classifier's own, or those
        of a previous version.
    rule : "argmax", PredictionRule or array_like of shape (K,)
        How the probabilities predict: by their largest entry, or by the largest weight times
        probability (``rule_`` of a model).  Accuracy, calibration errors and certified error
        rates are those of these predictions and of their probabilities.
    groups : array_like of shape (n,), optional
        The group of each row, for gates over groups.
    clusters : array_like of shape (n,), optional
        What rows share that makes them dependent, such as a patient, a user or a session:
        bounds, intervals and draws then count clusters.  By default rows are independent.
    ids : array_like of shape (n,), optional
        What identifies the rows in a later check; by default their original scores, or their
        probabilities if no original scores are passed.  Rows are compared one by one if their
        id occurs once on both sides.
    baseline : Baseline, optional
        ``Checked.baseline`` of an earlier check.
    class_names : sequence of str, optional
        Names of the columns; labels may then be names.
    target_error : float, optional
        An error rate; the lowest confidence above which it holds is looked for.
    alpha : float
        The probability that a gate over classes or groups fails by chance, and that a certified
        statement is wrong.
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
    if not all(isinstance(gate, Gate) for gate in gates):
        raise InputError(
            "gates", "are not all gates", "pass a list such as [Gate.parse('nll', 0.5)]"
        )
    matrices = {"probabilities": probabilities}
    if original is not None:
        matrices["original"] = original
    matched = match(
        matrices,
        class_names=class_names,
        labels=labels,
        groups=groups,
        clusters=clusters,
        ids=ids,
    )
    groups, ids = matched.groups, matched.ids
    matrix = ProbabilityMatrix.from_array(matched.matrices[0], "probabilities")
    checked_rule = check_rule(rule, matrix.classes, "probabilities", matched.class_names)
    if checked_rule is not None:
        matrix = replace(matrix, rule_weights=checked_rule.weights)
    truth = None
    if matched.labels is not None:
        truth = check_predictions(matched.labels, matrix.rows, matrix.classes, "labels")
    before = None if original is None else _check_original(matched.matrices[1], matrix.rows)
    current = None
    if truth is not None:
        keyed_by: KeyedBy = "scores" if ids is None else "ids"
        if ids is None:
            # Predictions alone do not identify a row.
            scores = matrix.values if before is None or before.ndim == 1 else before
            keys = keys_of_scores(scores)
        else:
            keys = id_digests(as_groups(as_ids(ids), matrix.rows, "ids"))
        current = Baseline(matrix.reduce(truth), keys, keyed_by, _text_names(class_names))
    number = None
    if clusters is not None:
        number = cluster_numbers(matched.clusters, matrix.rows)
    after = matrix.values if checked_rule is None else matrix.predictions()
    evaluator = _Evaluator(
        matrix,
        after,
        current,
        before,
        groups,
        number,
        baseline,
        alpha,
        as_seed(seed),
        _text_names(matched.class_names),
    )
    return Checked(
        tuple(evaluator.verdict(gate) for gate in gates),
        matrix.rows,
        {} if current is None else evaluator.measures(),
        None if before is None else prediction_changes(before, after).n_changed,
        ()
        if current is None
        else certified_error_rates(current.rows, alpha=alpha, clusters=number),
        None
        if current is None or target_error is None
        else lowest_certified_threshold(current.rows, target_error, alpha=alpha, clusters=number),
        current,
        _moved_by_rounding(matrix),
        _caveats(current, number),
        groups=_groups(current, groups),
    )


def _groups(current: Baseline | None, groups: Any) -> tuple[GroupReport, ...]:
    """Return the metrics of each group."""
    if current is None or groups is None:
        return ()
    names = group_names(groups, len(current.rows.labels), NO_GROUP)
    if len(np.unique(names)) > MAX_GROUPS:
        return ()
    return by_group(names, {"direct": current.rows}, current.rows.prediction)


def _caveats(current: Baseline | None, clusters: Classes | None) -> tuple[str, ...]:
    if current is None or current.keyed_by != "ids" or clusters is not None:
        return ()
    repeated = len(current.keys) - len(np.unique(current.keys))
    if not repeated:
        return ()
    return (
        f"{repeated:,} rows repeat an id: rows of one id are not independent, so bounds and "
        f"intervals may be too narrow unless they are passed as clusters",
    )


def _moved_by_rounding(matrix: ProbabilityMatrix) -> int:
    """Count predictions that rounding to four decimals moves, as a screen or a file may do."""
    rounded = replace(matrix, values=np.round(matrix.values.astype(np.float64), 4))
    return int(np.count_nonzero(rounded.predictions() != matrix.predictions()))


def _text_names(class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if class_names is None else tuple(map(str, class_names))


def _check_original(original: Any, rows: int) -> npt.NDArray[Any]:
    before = to_numpy(original, "original")
    if not before.ndim or len(before) != rows:
        raise InputError(
            "original",
            f"has shape {before.shape} but probabilities has {rows} rows",
            "pass the scores or predictions of the same rows",
        )
    return before


def _not_evaluated(gate: Gate, reason: str) -> Verdict:
    return Verdict(gate, "not evaluated", None, f"{gate.name} {reason}", detail=reason)


class _MissingInput(Exception):
    """A gate needs an argument that was not passed."""


@dataclass(frozen=True)
class _Value:
    """What is compared with a limit, and how it came about."""

    value: float
    estimate: float
    where: str = ""
    chance: float | None = None


@dataclass(frozen=True, eq=False)
class _Evaluator:
    """The inputs of all gates, and how each gate is evaluated.

    ``predicted`` holds the predictions, or probabilities whose argmax they are.
    """

    matrix: ProbabilityMatrix
    predicted: npt.NDArray[Any]
    current: Baseline | None
    original: npt.NDArray[Any] | None
    groups: Any
    clusters: Classes | None
    baseline: Baseline | None
    alpha: float
    seed: int
    class_names: tuple[str, ...] | None

    def measures(self) -> dict[str, float]:
        """Return every metric of all rows."""
        rows = np.arange(self.matrix.rows)
        return {name: self._metric(metric, rows) for name, metric in METRICS.items()}

    def verdict(self, gate: Gate) -> Verdict:
        try:
            result = self._value(gate)
        except _MissingInput as missing:
            return _not_evaluated(gate, f"needs {missing}")
        if not math.isfinite(result.value):
            return _not_evaluated(gate, "is not a number")
        passed = gate.keeps(result.value)
        relation = {
            ("max", True): "within",
            ("max", False): "above",
            ("min", True): "at least",
            ("min", False): "below",
        }[gate.bound, passed]
        where = f" {result.where}" if result.where else ""
        return Verdict(
            gate,
            "passed" if passed else "failed",
            result.value,
            f"{gate.name} is {result.value:.6g}{where}, {relation} {gate.limit:g}",
            result.estimate,
            result.chance,
            result.where,
        )

    def _value(self, gate: Gate) -> _Value:
        if gate.over in ("class", "group"):
            return self._worst(gate)
        if gate.over == "increase":
            return self._increase(gate)
        estimate = self._estimate(gate, np.arange(self.matrix.rows))
        return _Value(estimate, estimate)

    def _labelled(self) -> LabelledRows:
        if self.current is None:
            raise _MissingInput("labels")
        return self.current.rows

    def _estimate(self, gate: Gate, rows: npt.NDArray[np.intp]) -> float:
        """Return the gate's metric on some rows."""
        if gate.measure == TPCR:
            if self.original is None:
                raise _MissingInput("the original scores or predictions")
            return prediction_changes(self.original[rows], self.predicted[rows]).tpcr
        return self._metric(METRICS[gate.measure], rows)

    def _metric(self, metric: Metric, rows: Classes) -> float:
        labelled = self._labelled()
        if not isinstance(metric.stream(), BlockStream):
            return metric.value(labelled.take(rows))
        return measure(metric, take(self.matrix, rows), labelled.labels[rows])

    def _worst(self, gate: Gate) -> _Value:
        """Return the part that is furthest beyond the limit once chance is allowed for."""
        parts = list(self._parts(gate))
        large = [(name, rows) for name, rows in parts if len(rows) >= MIN_ROWS_PER_GROUP]
        if not large:
            raise _MissingInput(f"a {gate.over} of at least {MIN_ROWS_PER_GROUP} rows")
        small = len(parts) - len(large)
        ignored = f"; {small:,} smaller ignored" if small else ""
        estimates = [self._estimate(gate, rows) for _, rows in large]
        allowances = self._allowances(gate, [rows for _, rows in large], estimates)
        worst = max if gate.bound == "max" else min
        # A part within the limit needs no allowance for chance.  NaN is not within it.
        beyond = [index for index, value in enumerate(estimates) if not gate.keeps(value)]
        values = []
        for index in beyond or [worst(range(len(large)), key=estimates.__getitem__)]:
            (name, rows), estimate = large[index], estimates[index]
            where = f"for the {gate.over} {name} ({len(rows):,} rows{ignored})"
            if gate.measure == TPCR:
                values.append(_Value(estimate, estimate, where, 0.0))
                continue
            chance = float(allowances[index])
            # No metric is negative; NaN stays.
            value = float(np.maximum(estimate - chance, 0.0))
            if gate.bound == "min":
                value = estimate + chance
            sign = "minus" if gate.bound == "max" else "plus"
            where += f", the estimate {estimate:.4g} {sign} {chance:.4g} for chance"
            values.append(_Value(value, estimate, where, chance))
        # NaN compares as neither smaller nor larger, so look for it first.
        undefined = [item for item in values if not math.isfinite(item.value)]
        return undefined[0] if undefined else worst(values, key=lambda item: item.value)

    def _allowances(self, gate: Gate, parts: list[Classes], estimates: list[float]) -> Vector:
        """Return what chance may add to the metric of each part, for all parts together.

        Accuracy does not take the probabilities at their word: its allowance ends at the
        Clopper-Pearson bound.  For other metrics labels are drawn from the probabilities.
        """
        if gate.measure == TPCR:
            return np.zeros(len(parts))
        if isinstance(METRICS[gate.measure].stream(), AccuracyStream):
            level = self.alpha / len(parts)
            right = self._labelled().correct
            return np.array(
                [
                    upper_rate(right[rows], level, of_rows(self.clusters, rows)) - estimate
                    for rows, estimate in zip(parts, estimates, strict=True)
                ]
            )
        return joint_allowances(
            METRICS[gate.measure],
            self.matrix,
            parts,
            np.array(estimates),
            self.clusters,
            self.alpha,
            self.seed,
        )

    def _parts(self, gate: Gate) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
        """Yield the rows of each class or group.

        Changed predictions belong to the class they had: a class that lost all of them would
        not be seen among the new ones.
        """
        if gate.over == "group":
            if self.groups is None:
                raise _MissingInput("groups")
            yield from rows_by_group(group_names(self.groups, self.matrix.rows, NO_GROUP))
            return
        predicted: npt.NDArray[Any] = self.matrix.predictions()
        if gate.measure == TPCR:
            if self.original is None:
                raise _MissingInput("the original scores or predictions")
            scores = self.original
            predicted = scores if scores.ndim == 1 else scores.argmax(axis=1)
        for number, rows in rows_by_group(predicted):
            yield number if self.class_names is None else self.class_names[int(number)], rows

    def _increase(self, gate: Gate) -> _Value:
        """Return the upper end of the 95 % interval of the increase over the baseline."""
        rows = self._labelled()
        if self.baseline is None or self.current is None:
            raise _MissingInput("a baseline")
        shared = self.current.shared_rows(self.baseline)
        metric = METRICS[gate.measure]
        before, clusters, kind = self.baseline.rows, self.clusters, "two samples"
        if shared is not None:
            rows, before = rows.take(shared[0]), before.take(shared[1])
            clusters, kind = of_rows(clusters, shared[0]), f"{len(shared[0]):,} rows in pairs"
        sign = 1.0 if metric.lower_is_better else -1.0
        change = sign * (metric.value(rows) - metric.value(before))
        largest = _LARGEST_LOSS.get(gate.measure)
        if largest is None:
            margin = self._normal_margin(gate, rows, before, shared is not None, clusters)
        else:
            losses = [_row_losses(metric, part, largest) for part in (rows, before)]
            margin = _bounded_margin(losses, largest, shared is not None, clusters)
            if gate.measure == "nll":
                kind += f", losses of at most {largest:.3g}"
        where = f"(upper end of {change:+.6g} + {margin:.2g}, {kind})"
        return _Value(change + margin, change, where)

    def _normal_margin(
        self,
        gate: Gate,
        rows: LabelledRows,
        before: LabelledRows,
        paired: bool,
        clusters: Classes | None,
    ) -> float:
        """Return 1.96 bootstrap standard errors of an increase of what is not a mean of rows."""
        if paired:
            values = self._resampled(gate, {"now": rows, "before": before}, clusters)
            return _NORMAL * float((values["now"] - values["before"]).std(ddof=1))
        errors = (
            self._resampled(gate, {"rows": part}, part_clusters)["rows"].std(ddof=1)
            for part, part_clusters in ((rows, clusters), (before, None))
        )
        return _NORMAL * math.hypot(*map(float, errors))

    def _resampled(
        self, gate: Gate, outputs: Mapping[str, LabelledRows], clusters: Classes | None
    ) -> dict[str, Vector]:
        """Return a metric's values on the same resamples of all outputs."""
        count = len(next(iter(outputs.values())))
        replicates = resampled(
            {name: [rows] for name, rows in outputs.items()},
            [np.arange(count)],
            count,
            seed=self.seed,
            measures=[gate.measure],
            clusters=None if clusters is None else np.unique(clusters, return_inverse=True)[1],
        )
        return {name: values[gate.measure] for name, values in replicates.items()}


# The largest loss of a row, for metrics that are means of rows.  The bound of an increase has to
# allow for a row of the largest loss that the sample does not show.  With 27.6 nats, the NLL of a
# probability of zero, ten thousand unchanged rows would be needed to exclude an increase of 0.01;
# so for the interval the NLL is clipped at that of a probability of 1e-4.
_LARGEST_LOSS = {"accuracy": 1.0, "brier": 2.0, "nll": -math.log(1e-4)}


def _row_losses(metric: Metric, rows: LabelledRows, largest: float) -> Vector:
    """Return the loss of each row, from 0 to the largest."""
    stream = metric.stream()
    assert isinstance(stream, MeanStream)
    values = np.minimum(stream.of_rows(rows), largest)
    return values if metric.lower_is_better else largest - values


def _bounded_margin(
    losses: Sequence[Vector], largest: float, paired: bool, clusters: Classes | None
) -> float:
    """Return how far above the mean increase the upper end of its 95 % interval is."""
    now, before = losses
    increase = float(now.mean() - before.mean())
    if paired:
        now, before = now - before, np.zeros(1)
    lowest, highest = -largest, largest
    if clusters is not None:
        # Clusters are independent: sums over them count, scaled to the mean of rows.
        _, number, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
        scale = len(sizes) / len(now)
        now = np.asarray(np.bincount(number, now * scale), dtype=np.float64)
        highest *= scale * int(sizes.max())
        lowest = -highest if paired else -largest
    if not paired:
        # Two samples become one of differences: rows of one minus means of blocks of the other.
        count, rng = min(len(now), len(before)), np.random.default_rng(0)
        now, before = (_block_means(rng.permutation(part), count) for part in (now, before))
    return upper_mean(now - before, lowest, highest, 0.025) - increase


def _block_means(values: Vector, blocks: int) -> Vector:
    block = np.arange(len(values)) * blocks // len(values)
    return np.asarray(np.bincount(block, values) / np.bincount(block), dtype=np.float64)
