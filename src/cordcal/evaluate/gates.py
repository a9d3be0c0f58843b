"""Gates: limits that probabilities must meet before a release.

A gate that could not be evaluated never passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import to_numpy
from cordcal._numeric.types import ArrayLike
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
)
from cordcal.metrics import METRICS, prediction_changes
from cordcal.metrics.base import (
    BlockStream,
    LabelledRows,
    MeanStream,
    Metric,
    ProbabilityMatrix,
    Resampler,
)
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
    """

    verdicts: tuple[Verdict, ...]
    n: int
    measures: Mapping[str, float]
    n_changed: int | None
    certified: tuple[CertifiedErrorRate, ...]
    target: CertifiedErrorRate | None
    baseline: Baseline | None = field(compare=False, repr=False)
    n_moved_by_rounding: int = 0

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
    ids : array_like of shape (n,), optional
        What identifies the rows in a later check; by default their original scores, or their
        probabilities if no original scores are passed.
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
    matched = match(matrices, class_names=class_names, labels=labels, groups=groups, ids=ids)
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
    after = matrix.values if checked_rule is None else matrix.predictions()
    evaluator = _Evaluator(
        matrix,
        after,
        current,
        before,
        groups,
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
        () if current is None else certified_error_rates(current.rows, alpha=alpha),
        None
        if current is None or target_error is None
        else lowest_certified_threshold(current.rows, target_error, alpha=alpha),
        current,
        _moved_by_rounding(matrix),
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
    baseline: Baseline | None
    alpha: float
    seed: int
    class_names: tuple[str, ...] | None

    def measures(self) -> dict[str, float]:
        """Return every metric of all rows."""
        labels = self._labelled().labels
        return {name: _measure(metric, self.matrix, labels) for name, metric in METRICS.items()}

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
        labels = self._labelled().labels
        return _measure(METRICS[gate.measure], _take(self.matrix, rows), labels[rows])

    def _worst(self, gate: Gate) -> _Value:
        """Return the part that is furthest beyond the limit once chance is allowed for."""
        parts = list(self._parts(gate))
        large = [(name, rows) for name, rows in parts if len(rows) >= MIN_ROWS_PER_GROUP]
        if not large:
            raise _MissingInput(f"a {gate.over} of at least {MIN_ROWS_PER_GROUP} rows")
        small = len(parts) - len(large)
        ignored = f"; {small:,} smaller ignored" if small else ""
        estimates = [self._estimate(gate, rows) for _, rows in large]
        worst = max if gate.bound == "max" else min
        # A part within the limit needs no allowance for chance.  NaN is not within it.
        beyond = [index for index, value in enumerate(estimates) if not gate.keeps(value)]
        values = []
        for index in beyond or [worst(range(len(large)), key=estimates.__getitem__)]:
            (name, rows), estimate = large[index], estimates[index]
            chance = 0.0 if gate.measure == TPCR else self._chance(gate, rows, len(large))
            value = estimate - chance if gate.bound == "max" else estimate + chance
            if gate.measure != TPCR and METRICS[gate.measure].calibration_error:
                value = max(0.0, value)
            where = f"for the {gate.over} {name} ({len(rows):,} rows{ignored})"
            if gate.measure != TPCR:
                sign = "minus" if gate.bound == "max" else "plus"
                where += f", the estimate {estimate:.4g} {sign} {chance:.4g} for chance"
            values.append(_Value(value, estimate, where, chance))
        # NaN compares as neither smaller nor larger, so look for it first.
        undefined = [item for item in values if not math.isfinite(item.value)]
        return undefined[0] if undefined else worst(values, key=lambda item: item.value)

    def _chance(self, gate: Gate, rows: npt.NDArray[np.intp], parts: int) -> float:
        """Return how much worse than expected the metric of some rows may be by chance.

        Labels are drawn from the probabilities, as if they were right.  A calibration error is
        then only chance, so all of its quantile counts; of other metrics, what lies beyond
        their expectation.
        """
        metric = METRICS[gate.measure]
        rng = np.random.default_rng([self.seed, len(rows), int(rows[0])])
        # The spread shrinks with the root of the number of rows, so some of them are enough.
        drawn = rows if len(rows) <= _CHANCE_ROWS else rng.choice(rows, _CHANCE_ROWS, replace=False)
        scale = math.sqrt(len(drawn) / len(rows))
        replicates = _chance_values(metric, _take(self.matrix, drawn), rng)
        sign = 1.0 if metric.lower_is_better else -1.0
        centre = 0.0 if metric.calibration_error else float(replicates.mean())
        return scale * (_upper_quantile(sign * replicates, self.alpha / parts) - sign * centre)

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
        sign = 1.0 if METRICS[gate.measure].lower_is_better else -1.0
        if shared is None:
            now, before = (
                self._resampled(gate, {"rows": part})["rows"] for part in (rows, self.baseline.rows)
            )
            change = sign * (now[0] - before[0])
            error = math.hypot(float(now[1].std(ddof=1)), float(before[1].std(ddof=1)))
            kind = "two samples"
        else:
            pair = {"now": rows.take(shared[0]), "before": self.baseline.rows.take(shared[1])}
            values = self._resampled(gate, pair)
            change = sign * (values["now"][0] - values["before"][0])
            error = float((values["now"][1] - values["before"][1]).std(ddof=1))
            kind = f"{len(shared[0]):,} rows in pairs"
        margin = _NORMAL * error
        where = f"(upper end of {change:+.6g} ± {margin:.2g}, {kind})"
        return _Value(change + margin, change, where)

    def _resampled(
        self, gate: Gate, outputs: Mapping[str, LabelledRows]
    ) -> dict[str, tuple[float, npt.NDArray[np.float64]]]:
        """Return a metric's value and its values on the same resamples of all outputs."""
        count = len(next(iter(outputs.values())))
        replicates = resampled(
            {name: [rows] for name, rows in outputs.items()},
            [np.arange(count)],
            count,
            seed=self.seed,
            measures=[gate.measure],
        )
        metric = METRICS[gate.measure]
        return {
            name: (metric.value(rows), replicates[name][gate.measure])
            for name, rows in outputs.items()
        }


# How often labels are drawn for the chance level, for how many rows at most, and how many labels
# at once.
_CHANCE_DRAWS = 400
_CHANCE_ROWS = 20_000
_LABELS_AT_ONCE = 2**18


def _take(matrix: ProbabilityMatrix, rows: npt.NDArray[np.intp]) -> ProbabilityMatrix:
    return replace(matrix, values=matrix.values[rows])


def _measure(metric: Metric, matrix: ProbabilityMatrix, labels: npt.NDArray[np.intp]) -> float:
    """Return a metric of rows whose predictions follow the matrix's rule."""
    if matrix.rule_weights is None:
        return metric.function(matrix.values, labels)
    stream = metric.stream()
    if not isinstance(stream, BlockStream):
        return metric.value(matrix.reduce(labels))
    stream.update_checked(matrix, labels, None)
    return float(stream.result())


def _chance_values(
    metric: Metric, matrix: ProbabilityMatrix, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return a metric's values with labels drawn from the rows, many times."""
    stream = metric.stream()
    prediction = matrix.predictions()
    if isinstance(stream, MeanStream):
        return _chance_means(stream, matrix.values, prediction, rng)
    if metric.calibration_error and metric.resampler is not None and metric.exact_resampler:
        confidence = matrix.values[np.arange(matrix.rows), prediction].astype(np.float64)
        return _chance_calibration_errors(metric.resampler, confidence, rng)
    draws = np.concatenate(list(_draw_labels(matrix.values, rng)), axis=1)
    return np.array([_measure(metric, matrix, labels) for labels in draws.T])


def _chance_means(
    stream: MeanStream,
    probabilities: npt.NDArray[Any],
    prediction: npt.NDArray[np.intp],
    rng: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """Return the means of a loss per row, with labels drawn from the rows."""
    number = np.arange(len(probabilities))[:, None]
    confidence = probabilities[number[:, 0], prediction]
    squares = np.square(probabilities, dtype=np.float64).sum(axis=1)[:, None] + 1.0
    means = []
    for labels in _draw_labels(probabilities, rng):
        mass = probabilities[number, labels].astype(np.float64)
        draws = labels.shape[1]
        rows = LabelledRows(
            np.repeat(confidence, draws),
            np.repeat(prediction, draws),
            mass.ravel(),
            (squares - 2.0 * mass).ravel(),
            labels.ravel(),
            None,
        )
        means.append(stream.of_rows(rows).reshape(labels.shape).mean(axis=0))
    return np.concatenate(means)


def _chance_calibration_errors(
    resampler: Callable[[LabelledRows], Resampler],
    confidence: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """Return calibration errors of the predictions, with labels drawn from the rows.

    They depend only on which predictions are right.  So every row is there twice, right and
    wrong, and a draw gives one of the two the weight one.
    """
    rows = len(confidence)
    wrong, zeros = np.repeat([0, 1], rows), np.zeros(2 * rows)
    twice = np.concatenate([confidence, confidence])
    values = resampler(LabelledRows(twice, np.zeros_like(wrong), zeros, zeros, wrong, None))
    errors = []
    for start in range(0, _CHANCE_DRAWS, step := max(1, _LABELS_AT_ONCE // rows)):
        draws = min(step, _CHANCE_DRAWS - start)
        right = rng.random((rows, draws)) < confidence[:, None]
        weight = np.concatenate([right, ~right]).astype(np.float64)
        errors.append(values(weight, np.full(draws, float(rows))))
    return np.concatenate(errors)


def _draw_labels(
    probabilities: npt.NDArray[Any], rng: np.random.Generator
) -> Iterator[npt.NDArray[np.intp]]:
    """Yield labels drawn from the rows, as blocks of rows × draws."""
    rows, classes = probabilities.shape
    bounds = probabilities.astype(np.float64).cumsum(axis=1)
    bounds /= bounds[:, -1:]
    # One sorted list for all rows: row i's bounds lie between i and i + 1.
    offsets = np.arange(rows)[:, None]
    ends = (bounds + offsets).ravel()
    step = max(1, _LABELS_AT_ONCE // rows)
    for start in range(0, _CHANCE_DRAWS, step):
        at = rng.random((rows, min(step, _CHANCE_DRAWS - start))) + offsets
        labels = np.searchsorted(ends, at, side="right") - offsets * classes
        yield np.minimum(labels, classes - 1)


def _upper_quantile(values: npt.NDArray[np.float64], level: float) -> float:
    """Return the quantile that a share ``level`` of the values exceeds.

    Beyond what the draws resolve, that of a distribution with their mean, spread and skewness
    (Cornish-Fisher), but no less than their maximum.
    """
    if len(values) * level >= 5.0:
        return float(np.quantile(values, 1.0 - level))
    from scipy.special import ndtri

    spread = values.std(ddof=1)
    if not spread:
        return float(values.max())
    skewness = ((values - values.mean()) ** 3).mean() / spread**3
    normal = float(ndtri(1.0 - level))
    quantile = values.mean() + spread * (normal + (normal**2 - 1.0) * skewness / 6.0)
    return max(float(values.max()), float(quantile))
