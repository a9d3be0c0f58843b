"""Gates: limits that probabilities must meet before a release.

A gate that could not be evaluated never passes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import to_numpy
from cordcal._numeric.types import ArrayLike, Classes, Matrix, Vector
from cordcal._validation.estimator import as_seed
from cordcal._validation.labels import (
    as_groups,
    check_predictions,
    rows_by_group,
)
from cordcal._validation.table import match
from cordcal.evaluate.baseline import Baseline, KeyedBy, id_digests, keys_of_scores
from cordcal.evaluate.results import MIN_ROWS_PER_GROUP, CertifiedErrorRate
from cordcal.evaluate.statistics import (
    certified_error_rates,
    lowest_certified_threshold,
    parse_share,
    resampled,
    upper_mean,
    upper_rate,
)
from cordcal.metrics import METRICS, prediction_changes
from cordcal.metrics.base import (
    BlockStream,
    LabelledRows,
    MeanStream,
    Metric,
    ProbabilityMatrix,
)
from cordcal.metrics.proper import AccuracyStream
from cordcal.repair.prediction_rule import PredictionRule, check_rule

Over = Literal["all", "class", "group", "increase"]
Outcome = Literal["passed", "failed", "not evaluated"]

TPCR = "tpcr"
# Half the width of a 95 % interval in standard errors.
_NORMAL = 1.959964
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

    @property
    def outcome(self) -> Outcome:
        """``"failed"`` if one gate failed, else ``"not evaluated"`` if one could not run."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
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
        }

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

        outcomes = [verdict.outcome for verdict in self.verdicts]
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
        for verdict in self.verdicts:
            case = ElementTree.SubElement(
                suite, "testcase", classname="cordcal", name=verdict.gate.name
            )
            tag = {"failed": "failure", "not evaluated": "error"}.get(verdict.outcome)
            if tag is not None:
                ElementTree.SubElement(case, tag, message=_xml_text(verdict.reading))
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
            keys = id_digests(as_groups(ids, matrix.rows))
        current = Baseline(matrix.reduce(truth), keys, keyed_by, _text_names(class_names))
    number = None
    if clusters is not None:
        values = as_groups(matched.clusters, matrix.rows, "clusters")
        number = np.unique(values, return_inverse=True)[1]
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
    )


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
        return _measure(metric, _take(self.matrix, rows), labelled.labels[rows])

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
                    upper_rate(right[rows], level, _of(self.clusters, rows)) - estimate
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
            yield from rows_by_group(as_groups(self.groups, self.matrix.rows))
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
            clusters, kind = _of(clusters, shared[0]), f"{len(shared[0]):,} rows in pairs"
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
    level = 0.025
    now, before = losses
    if paired:
        increase = now - before
        return upper_mean(increase, largest, level, clusters) - float(increase.mean())
    # Two samples: the margins of both ends add up as standard errors do.
    above = upper_mean(now, largest, level, clusters) - float(now.mean())
    below = upper_mean(-before, 0.0, level) + float(before.mean())
    return math.hypot(above, below)


def _of(clusters: Classes | None, rows: Classes) -> Classes | None:
    return None if clusters is None else clusters[rows]


def _take(matrix: ProbabilityMatrix, rows: Classes) -> ProbabilityMatrix:
    return replace(matrix, values=matrix.values[rows])


def _measure(metric: Metric, matrix: ProbabilityMatrix, labels: Classes) -> float:
    """Return a metric of rows whose predictions follow the matrix's rule."""
    stream = metric.stream()
    if not isinstance(stream, BlockStream):
        return metric.value(matrix.reduce(labels))
    stream.update_checked(matrix, labels, None)
    return float(stream.result())


# Chance.  Labels are drawn from the probabilities, as if these were right, for all parts at once
# (Westfall and Young).  In each draw the most surprising part counts: the draws show how
# surprising it is in a share 1 − α of all cases, whatever the number, the sizes and the
# dependence of the parts.  How surprising a part is must be comparable between parts: the
# exponent of the tail of a Poisson variable with the mean, the variance and the skewness of the
# part's metric.  For a part of nearly certain rows, in which draws show hardly an error, that is
# the Chernoff bound, so that such parts do not decide for all others.

# The spread shrinks with the root of the number of rows, so some of a part's rows are enough.
_CHANCE_ROWS = 20_000
# Labels that are drawn at once.
_LABELS_AT_ONCE = 2**20
# The estimate and its draws are summed in different orders.
_ROUNDING = 1e-12


def joint_allowances(
    metric: Metric,
    matrix: ProbabilityMatrix,
    parts: Sequence[Classes],
    estimates: Vector,
    clusters: Classes | None,
    alpha: float,
    seed: int,
) -> Vector:
    """Return how much worse than expected each part may be by chance, for all parts together.

    A calibration error of right probabilities is only chance, so all of it counts; of other
    metrics, what lies beyond their expectation.  Rows of one cluster share their luck: they are
    right or wrong together, as far as their confidences allow.

    Parameters
    ----------
    metric : Metric
        The metric; lower is better.
    matrix : ProbabilityMatrix
        The probabilities of all rows.
    parts : sequence of ndarray of int
        The rows of each part; no row belongs to two.
    estimates : ndarray
        The metric of each part.
    clusters : ndarray of int, optional
        The cluster of each row, as numbers from 0; by default each row is one of its own.
    alpha : float
        The probability that any part exceeds its allowance, if the probabilities are right.
    seed : int
        Seed of the draws.
    """
    rng = np.random.default_rng([seed, len(parts)])
    drawn = [
        np.sort(rng.choice(rows, _CHANCE_ROWS, replace=False)) if len(rows) > _CHANCE_ROWS else rows
        for rows in parts
    ]
    scale = np.sqrt([len(some) / len(rows) for some, rows in zip(drawn, parts, strict=True)])
    rows = np.concatenate(drawn)
    draws = _Draws(_take(matrix, rows), np.cumsum([0, *map(len, drawn)]), _of(clusters, rows))
    values, moments = draws.of(metric, alpha, rng)
    if metric.calibration_error:
        # The observed value counts in the mean as the draws do: errors in parts where no draw
        # shows one would seem more surprising than the draws otherwise.
        observed = np.where(np.isfinite(estimates), estimates / scale, values.mean(axis=1))
        moments = replace(moments, mean=np.column_stack([values, observed]).mean(axis=1))
    surprise = _surprise(values - moments.mean[:, None], moments).max(axis=0)
    rank = math.ceil((1.0 - alpha) * (len(surprise) + 1)) - 1
    excess = _excess(float(np.sort(surprise)[rank]), moments)
    return scale * (excess + moments.mean * metric.calibration_error) + _ROUNDING


@dataclass(frozen=True, eq=False)
class _Moments:
    """Mean and variance of each part's metric, and its third cumulant over the variance."""

    mean: Vector
    variance: Vector
    jump: Vector


def _surprise(excess: Matrix, moments: _Moments) -> Matrix:
    """Return the tail exponent v/b² · h(bx/v) of each excess x; h(u) = (1 + u) log(1 + u) − u."""
    x = np.maximum(excess, 0.0)
    v, b = moments.variance[:, None], moments.jump[:, None]
    u = np.divide(b * x, v, out=np.zeros_like(x), where=v > 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Below 1e-4, h(u) cancels; it is u²/2 − u³/6.
        exact = ((1.0 + u) * np.log1p(u) - u) * v / (b * b)
        near = x * x / (2.0 * v) * (1.0 - u / 3.0)
    return np.asarray(np.where(v > 0.0, np.where(u < 1e-4, near, exact), 0.0))


def _excess(surprise: float, moments: _Moments) -> Vector:
    """Return the excess with a given surprise, by bisection."""
    low = np.zeros(len(moments.mean))
    # h(u) ≥ u²/(2 + u) bounds the excess from above.
    linear = surprise * moments.jump
    high = linear + np.sqrt(linear**2 + 2.0 * surprise * moments.variance)
    for _ in range(60):
        middle = (low + high) / 2.0
        less = _surprise(middle[:, None], moments)[:, 0] < surprise
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return high


@dataclass(frozen=True, eq=False)
class _Draws:
    """Rows whose labels are drawn; part i has the rows from ``starts[i]`` to ``starts[i + 1]``."""

    matrix: ProbabilityMatrix
    starts: Classes
    clusters: Classes | None

    def of(self, metric: Metric, alpha: float, rng: np.random.Generator) -> tuple[Matrix, _Moments]:
        """Return a metric of each part, parts × draws, and its moments."""
        rows = _LabelDraws.of(self.matrix)
        stream = metric.stream()
        uniform = self._uniform(metric.draws, alpha, rng)
        if isinstance(stream, MeanStream):
            blocks = [self._part_means(rows.losses(stream, u)) for u in uniform]
            return np.concatenate(blocks, axis=1), self._moments(*rows.moments(stream))
        parts = [slice(*pair) for pair in itertools.pairwise(self.starts.tolist())]
        blocks = []
        for u in uniform:
            if metric.of_correct is None:
                labels = rows.labels(u)
                block = [self._one_by_one(metric, at, labels[at]) for at in parts]
            else:
                right = u < rows.confidence[:, None]
                block = [metric.of_correct(rows.confidence[at], right[at]) for at in parts]
            blocks.append(np.stack(block))
        values = np.concatenate(blocks, axis=1)
        spread = rows.confidence * (1.0 - rows.confidence)
        moments = self._moments(spread, spread, np.abs(2.0 * rows.confidence - 1.0))
        # These are moments of the sum of all residuals: bins and classes scale them alike.
        seen, expected = values.var(axis=1).sum(), moments.variance.sum()
        scale = seen / expected if seen and expected else 1.0
        return values, replace(
            moments, variance=moments.variance * scale, jump=moments.jump * math.sqrt(scale)
        )

    def _one_by_one(self, metric: Metric, part: slice, labels: Classes) -> Vector:
        matrix = replace(self.matrix, values=self.matrix.values[part])
        return np.array([_measure(metric, matrix, column) for column in labels.T])

    def _uniform(self, draws: int, alpha: float, rng: np.random.Generator) -> Iterator[Matrix]:
        """Yield what decides the labels, rows × draws in blocks; clusters share it."""
        # With fewer, no draw would be beyond the level.
        draws = max(draws, math.ceil(1.0 / alpha) - 1)
        step = max(1, _LABELS_AT_ONCE // self.matrix.rows)
        for start in range(0, draws, step):
            count = min(step, draws - start)
            if self.clusters is None:
                yield rng.random((self.matrix.rows, count))
            else:
                yield rng.random((int(self.clusters.max()) + 1, count))[self.clusters]

    def _part_means(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        sums = np.add.reduceat(values, self.starts[:-1], axis=0)
        return np.asarray((sums.T / np.diff(self.starts)).T)

    def _moments(self, mean: Vector, variance: Vector, jump: Vector) -> _Moments:
        """Return the moments of parts from those of rows; deviations of one cluster add up."""
        sizes = np.diff(self.starts)
        part = np.repeat(np.arange(len(sizes)), sizes)
        deviation = np.sqrt(variance)
        if self.clusters is not None:
            pairs, index = np.unique(np.stack([part, self.clusters]), axis=1, return_inverse=True)
            deviation, jump = (
                np.asarray(np.bincount(index, column), dtype=np.float64)
                for column in (deviation, jump)
            )
            part = pairs[0]
        total = np.bincount(part, deviation**2)
        third = np.bincount(part, jump * deviation**2)
        ratio = np.divide(third, total, out=np.zeros_like(third), where=total > 0.0)
        return _Moments(self._part_means(mean), total / sizes**2, np.maximum(ratio, 0.0) / sizes)


@dataclass(frozen=True, eq=False)
class _LabelDraws:
    """Rows of probabilities as distributions of their labels.

    A number u between 0 and 1 decides a label: the prediction if u is below its confidence,
    otherwise the other classes in their order.  ``ends`` is one sorted list for all rows: those
    of row i lie between i and i + 1.
    """

    probabilities: npt.NDArray[Any]
    confidence: Vector
    prediction: Classes
    ends: Vector
    squares: Vector

    @classmethod
    def of(cls, matrix: ProbabilityMatrix) -> _LabelDraws:
        prediction, number = matrix.predictions(), np.arange(matrix.rows)
        others = matrix.values.astype(np.float64)
        confidence = np.minimum(others[number, prediction], 1.0)
        squares = np.vecdot(others, others)
        others[number, prediction] = 0.0
        others.cumsum(axis=1, out=others)
        total = others[:, -1:].copy()
        np.divide(others, total, out=others, where=total > 0.0)
        others += number[:, None]
        return cls(matrix.values, confidence, prediction, others.ravel(), squares)

    def _wrong(self, u: Matrix) -> tuple[Classes, Classes, Classes]:
        """Return the rows and draws whose labels are not the predictions, and these labels."""
        rows, draws = np.nonzero(u >= self.confidence[:, None])
        below = self.confidence[rows]
        # Rounding must not reach the next row.
        share = np.minimum((u[rows, draws] - below) / (1.0 - below), 1.0 - 1e-9)
        classes = self.probabilities.shape[1]
        labels = np.searchsorted(self.ends, share + rows, side="right") - rows * classes
        return rows, draws, np.clip(labels, 0, classes - 1)

    def labels(self, u: Matrix) -> Classes:
        """Return drawn labels, rows × draws."""
        labels = np.broadcast_to(self.prediction[:, None], u.shape).copy()
        rows, draws, others = self._wrong(u)
        labels[rows, draws] = others
        return labels

    def _loss(self, stream: MeanStream, rows: Classes, labels: Classes) -> Vector:
        mass = self.probabilities[rows, labels].astype(np.float64)
        errors = self.squares[rows] + 1.0 - 2.0 * mass
        return stream.of_rows(
            LabelledRows(self.confidence[rows], self.prediction[rows], mass, errors, labels, None)
        )

    def losses(self, stream: MeanStream, u: Matrix) -> Matrix:
        """Return the losses of drawn labels, rows × draws."""
        right = self._loss(stream, np.arange(len(u)), self.prediction)
        losses = np.broadcast_to(right[:, None], u.shape).copy()
        rows, draws, others = self._wrong(u)
        losses[rows, draws] = self._loss(stream, rows, others)
        return losses

    def moments(self, stream: MeanStream) -> tuple[Vector, Vector, Vector]:
        """Return mean and variance of each loss, and its third cumulant over the variance."""
        count, classes = self.probabilities.shape
        result = np.zeros((3, count))
        step = max(1, _LABELS_AT_ONCE // classes)
        for start in range(0, count, step):
            at = np.arange(start, min(start + step, count))
            every = np.tile(np.arange(classes), len(at))
            losses = self._loss(stream, np.repeat(at, classes), every).reshape(len(at), classes)
            weight = self.probabilities[at].astype(np.float64)
            weight /= weight.sum(axis=1, keepdims=True)
            mean = np.vecdot(weight, losses)
            deviation = losses - mean[:, None]
            squares = weight * deviation**2
            variance, third = squares.sum(axis=1), np.vecdot(squares, deviation)
            ratio = np.divide(third, variance, out=np.zeros_like(mean), where=variance > 0.0)
            result[:, at] = mean, variance, ratio
        return result[0], result[1], result[2]
