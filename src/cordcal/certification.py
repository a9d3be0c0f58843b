"""`certify`: which predictions may be acted on, with a bound for the share that is wrong.

The thresholds of a part are tested downwards in a sequence that depends on the confidences alone,
and parts share the probability of an error.  `docs/how-it-works/act-or-ask.md` has the proof.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.arrays import to_numpy
from cordcal._numeric.types import ArrayLike, Classes, Flags, Floats, Record, StoredRecord, Vector
from cordcal._validation.labels import (
    as_groups,
    check_predictions,
    cluster_numbers,
    few_groups,
    group_names,
    is_missing,
)
from cordcal._validation.scores import as_matrix, check_probabilities
from cordcal._validation.table import MatchedRows, match
from cordcal.repair.prediction_rule import PredictionRule, check_rule

# Thresholds in the sequence of a part: neighbours differ by less than 2 % of its rows.
_MAX_THRESHOLDS = 60
ALL = "all"
"""The name of the part with all rows."""

By = Literal["all", "class", "group"]
Question = Literal["violated", "renewed"]


@dataclass(frozen=True)
class CertifiedPart(StoredRecord):
    """What is certified about one part: all rows, a predicted class, or a group.

    Attributes
    ----------
    name : str
        ``"all"``, the class or the group.
    rows : int
        Rows to certify on.
    needed : int
        The fewest rows that could be certified, if none of them were wrong.
    threshold : float or None
        Predictions with at least this confidence may go through; None: none may.
    accepted, errors : int
        Rows to certify on that go through, and how many of them are wrong.
    bound : float or None
        At most this share of the predictions that go through is wrong.
    curve : tuple of (share, error rate)
        The error rate of the most confident rows, for a picture; not stored in model files.
    """

    name: str
    rows: int
    needed: int
    threshold: float | None = None
    accepted: int = 0
    errors: int = 0
    bound: float | None = None
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def share(self) -> float:
        """The share of the rows that goes through."""
        return self.accepted / self.rows if self.rows else 0.0

    def __str__(self) -> str:
        if self.threshold is None:
            reason = (
                f"{self.rows:,} rows, but a statement needs {self.needed:,}"
                if self.rows < self.needed
                else f"no threshold passes the test ({self.rows:,} rows)"
            )
            return f"{self.name}: nothing goes through: {reason}"
        return (
            f"{self.name}: {100.0 * self.share:.1f} % go through, at {100.0 * self.threshold:.10g} "
            f"% confidence or more ({self.errors:,} of {self.accepted:,} wrong here)"
        )


@dataclass(frozen=True)
class Recheck(Record):
    """A certificate on new labelled rows.

    Attributes
    ----------
    question : {"violated", "renewed"}
        Whether there is evidence against the certificate, or whether it is certified again.
    passed : bool
        Not violated; or renewed.
    parts : tuple of CertifiedPart
        The thresholds of the certificate, with the rows and errors of the new rows.
    p_value : float
        The smallest p-value of the parts, or for ``"renewed"`` the largest.
    level : float
        What a p-value is compared with: δ over the number of parts.
    error : float
        The share of acted predictions that the certificate allows to be wrong.
    """

    question: Question
    passed: bool
    parts: tuple[CertifiedPart, ...]
    p_value: float
    level: float
    error: float

    @property
    def accepted(self) -> int:
        """How many of the new rows go through."""
        return sum(part.accepted for part in self.parts)

    @property
    def errors(self) -> int:
        """How many of those are wrong."""
        return sum(part.errors for part in self.parts)

    def __str__(self) -> str:
        if not self.accepted:
            unknown = {
                "violated": "it is not known whether the certificate is violated",
                "renewed": "the certificate is not renewed",
            }[self.question]
            return f"{unknown}: no acted row"
        answer = {
            ("violated", True): "the certificate is not violated",
            ("violated", False): "the certificate is violated",
            ("renewed", True): "the certificate is renewed",
            ("renewed", False): "the certificate is not renewed",
        }[self.question, self.passed]
        return (
            f"{answer}: {self.errors:,} of {self.accepted:,} acted predictions are wrong "
            f"(p = {self.p_value:.2g}, level {self.level:.2g})"
        )


@dataclass(frozen=True)
class Certificate(StoredRecord):
    """Thresholds above which predictions may be acted on, and what was promised about them.

    With probability ``confidence`` over the rows to certify on, in every part at most ``error`` of
    the predictions that go through are wrong, on new rows like these.

    Attributes
    ----------
    error, confidence : float
        The promise.
    by : {"all", "class", "group"}
        What the parts are.
    parts : tuple of CertifiedPart
        One per part.
    n_classes : int
        Number of classes.
    rule : tuple of float or None
        The weights of the rule by which the probabilities predict; None for the argmax.
    needs_prediction : bool
        Whether the predictions were passed, and `accepts` needs them.
    caveats : tuple of str
        Reasons to doubt the promise.
    model : str or None
        The digest of the model whose probabilities these are.
    class_names : tuple of str or None
        The names of the classes, by which columns of later frames are matched.
    """

    error: float
    confidence: float
    by: By
    parts: tuple[CertifiedPart, ...]
    n_classes: int
    rule: tuple[float, ...] | None = None
    needs_prediction: bool = False
    caveats: tuple[str, ...] = ()
    model: str | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def rows(self) -> int:
        """The number of rows to certify on."""
        return sum(part.rows for part in self.parts)

    @property
    def share(self) -> float:
        """The share of all rows that goes through."""
        return sum(part.accepted for part in self.parts) / self.rows

    def accepts(
        self, probabilities: ArrayLike, *, prediction: ArrayLike | None = None, groups: Any = None
    ) -> Flags:
        """Return for each row whether its prediction may go through.

        Parameters
        ----------
        probabilities : array_like of shape (n, K)
            Probabilities of the same model, in float32 or float64: half precision rounds a
            confidence across its threshold in some rows.
        prediction : array_like of shape (n,), optional
            The predictions; required if `certify` had them.
        groups : array_like of shape (n,), optional
            The group of each row; required with groups.  A group that was not certified, or is
            new, never goes through.

        Returns
        -------
        accepted : ndarray of bool of shape (n,)
            True for the predictions to act on.
        """
        matched = match(
            {"probabilities": probabilities},
            fitted_names=self.class_names,
            fitted_source="certify",
            prediction=prediction,
            groups=groups,
        )
        confidence, predicted = self._checked(matched)
        return self.accepts_confidence(confidence, predicted, matched.groups)

    def accepts_confidence(
        self, confidence: Floats, prediction: Classes, groups: Any = None
    ) -> Flags:
        """Return the same for rows whose confidence and prediction are known."""
        if self.by == "group":
            if groups is None:
                raise InputError(
                    "groups",
                    "is missing: certify had groups",
                    "pass {option}",
                    option=("groups", "…"),
                )
            threshold = {part.name: part.threshold for part in self.parts}
            names = group_names(groups, len(confidence))
            found, number = np.unique(names, return_inverse=True)
            levels = _as_levels([threshold.get(name) for name in found.tolist()])[number]
        elif self.by == "class":
            levels = self.thresholds()[prediction]
        else:
            levels = self.thresholds()[0]
        # In float32, in which confidences are stored: the same row acts alike in any dtype or file.
        return np.asarray(np.asarray(confidence, np.float32) >= levels.astype(np.float32))

    def _checked(self, rows: MatchedRows) -> tuple[Floats, Classes]:
        """Return the confidence and the prediction of each row of probabilities, checked."""
        matrix = as_matrix(rows.matrices[0], "probabilities")
        _check_classes(matrix, self.n_classes)
        if self.needs_prediction and rows.prediction is None:
            raise InputError(
                "prediction",
                "is missing: certify had predictions",
                "pass {option}",
                option=("prediction", "…"),
            )
        array = to_numpy(matrix)
        _row_sums(array)
        predicted = _predictions(array, rows.prediction, self.prediction_rule)
        return array[np.arange(len(array)), predicted], predicted

    def recheck(
        self,
        probabilities: ArrayLike,
        labels: ArrayLike,
        question: Question,
        *,
        prediction: ArrayLike | None = None,
        groups: Any = None,
        clusters: ArrayLike | None = None,
    ) -> Recheck:
        """Answer a question about the certificate by new labelled rows.

        Parameters
        ----------
        probabilities, labels, prediction, groups, clusters : array_like
            New rows, as for `certify` and `accepts`.
        question : {"violated", "renewed"}
            ``"violated"`` fails only on evidence that more predictions are wrong than promised;
            ``"renewed"`` fails unless these rows certify the same thresholds again.

        Returns
        -------
        recheck : Recheck
            The answer.
        """
        if question not in ("violated", "renewed"):
            raise InputError("question", f"is {question!r}", "use violated or renewed")
        certified = [part for part in self.parts if part.threshold is not None]
        if not certified:
            raise InputError("certificate", "lets nothing through", "certify on more rows")
        rows = match(
            {"probabilities": probabilities},
            fitted_names=self.class_names,
            fitted_source="certify",
            labels=labels,
            prediction=prediction,
            groups=groups,
            clusters=clusters,
        )
        confidence, predicted = self._checked(rows)
        accepted = self.accepts_confidence(confidence, predicted, rows.groups)
        wrong = predicted != check_predictions(
            rows.labels, len(predicted), self.n_classes, "labels"
        )
        cluster = None if clusters is None else cluster_numbers(rows.clusters, len(predicted))
        names = np.full(len(predicted), ALL)
        if self.by == "class":
            names = np.array([part.name for part in self.parts])[predicted]
        elif self.by == "group":
            names = group_names(rows.groups, len(predicted))
        parts, values = [], []
        for part in certified:
            inside = names == part.name
            acted = inside & accepted
            count, errors = int(acted.sum()), int((acted & wrong).sum())
            parts.append(replace(part, rows=int(inside.sum()), accepted=count, errors=errors))
            largest = largest_cluster(cluster, np.flatnonzero(inside))
            values.append(_p_value(question, errors, count, self.error, largest))
        level = (1.0 - self.confidence) / len(certified)
        value = min(values) if question == "violated" else max(values)
        passed = value > level if question == "violated" else value <= level
        passed = passed and any(part.accepted for part in parts)
        return Recheck(question, passed, tuple(parts), value, level, self.error)

    def thresholds(self) -> Vector:
        """Return the threshold of each part; more than one where nothing goes through."""
        return _as_levels([part.threshold for part in self.parts])

    def class_thresholds(self) -> Vector | None:
        """Return a threshold per class, 2 where nothing goes through; None with groups."""
        if self.by == "group":
            return None
        levels = np.minimum(self.thresholds(), 2.0)
        return levels if self.by == "class" else np.repeat(levels, self.n_classes)

    @property
    def prediction_rule(self) -> PredictionRule | None:
        """The rule by which the probabilities predict; None for the argmax."""
        return None if self.rule is None else PredictionRule(np.array(self.rule))

    def __str__(self) -> str:
        certified = [part for part in self.parts if part.threshold is not None]
        first = (
            f"{100.0 * self.share:.1f} % of the predictions may go through: with "
            f"{100.0 * self.confidence:.4g} % confidence at most {100.0 * self.error:.4g} % of "
            f"them are wrong{_IN_EACH[self.by]} ({self.rows:,} rows)"
            if certified
            else f"no prediction may go through: an error rate of at most "
            f"{100.0 * self.error:.4g} % could not be certified"
        )
        parts = [str(part) for part in self.parts]
        return "\n".join([first, *parts, *(f"caveat: {caveat}" for caveat in self.caveats)])

    def _repr_html_(self) -> str:
        """Return the certificate as a table, for notebooks."""
        first, *_ = str(self).splitlines()
        lines = "".join(
            f"<tr><td>{html.escape(part.name)}</td><td>"
            + ("–" if part.threshold is None else f"{100.0 * part.threshold:.10g} %")
            + f"</td><td>{100.0 * part.share:.1f} %</td><td>{part.errors:,} of "
            f"{part.accepted:,}</td><td>{part.rows:,}</td></tr>"
            for part in self.parts
        )
        head = "".join(
            f"<th>{name}</th>"
            for name in ("part", "threshold", "share that goes through", "wrong here", "rows")
        )
        caveats = "".join(f"<p>{html.escape(caveat)}</p>" for caveat in self.caveats)
        return f"<p>{first}</p><table><tr>{head}</tr>{lines}</table>{caveats}"

    def to_state(self) -> dict[str, Any]:
        """Return what a model file stores: everything but the curves."""
        state = self.to_dict()
        for part in state["parts"]:
            del part["curve"]
        return state


_IN_EACH = {"all": "", "class": ", of each class", "group": ", of each group"}


def _as_levels(thresholds: Sequence[float | None]) -> Vector:
    return np.array([np.inf if level is None else level for level in thresholds], dtype=np.float64)


def certify(
    probabilities: ArrayLike,
    labels: ArrayLike,
    error: float = 0.02,
    *,
    confidence: float = 0.95,
    by: Literal["class"] | ArrayLike | None = None,
    prediction: ArrayLike | None = None,
    rule: PredictionRule | ArrayLike | None = None,
    clusters: ArrayLike | None = None,
) -> Certificate:
    """Find the predictions that may go through with at most a share ``error`` of them wrong.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        Probabilities of rows that no calibrator was fitted on.
    labels : array_like of shape (n,)
        The true classes, as column indices or class names.
    error : float
        The largest share that may be wrong among the predictions that go through.
    confidence : float
        The probability that all statements are right.
    by : None, "class" or array_like of shape (n,)
        One threshold for all rows, one per predicted class, or one per group, which every row
        must have.
    prediction : array_like of shape (n,), optional
        The predictions; by default what the probabilities predict.
    rule : PredictionRule or array_like of shape (K,), optional
        How the probabilities predict; by default by their largest entry.
    clusters : array_like of shape (n,), optional
        What rows share that makes them dependent, such as a patient; by default rows are
        independent.

    Returns
    -------
    certificate : Certificate
        A threshold per part; its `accepts` applies them to new rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first = rng.uniform(0.0, 1.0, 4000)
    >>> labels = (rng.random(4000) > first).astype(int)
    >>> certificate = certify(np.c_[first, 1.0 - first], labels, error=0.1)
    >>> print(certificate)
    29.3 % of the predictions may go through: with 95 % confidence at most 10 % of them are wrong (4,000 rows)
    all: 29.3 % go through, at 85.28 % confidence or more (97 of 1,173 wrong here)
    >>> certificate.accepts([[0.9, 0.1], [0.4, 0.6]])
    array([ True, False])
    """  # noqa: E501 - the first line of the output
    error, delta = _check_shares(error, confidence)
    groups = None if by is None or isinstance(by, str) else by
    if isinstance(by, str) and by != "class":
        raise InputError("by", f"is {by!r}", 'write by="class", or pass one group per row')
    rows = match(
        {"probabilities": probabilities},
        labels=labels,
        prediction=prediction,
        groups=groups,
        clusters=clusters,
    )
    values = as_matrix(rows.matrices[0], "probabilities")
    array = to_numpy(values)
    array = array / _row_sums(array)[:, None]
    checked_rule = None
    if rule is not None:
        checked_rule = check_rule(rule, array.shape[1], "probabilities", rows.class_names)
    truth = check_predictions(rows.labels, len(array), array.shape[1], "labels")
    predicted = _predictions(array, rows.prediction, checked_rule)
    kind, part_of, names = _parts(by, rows.groups, predicted, array.shape[1], rows.class_names)
    parts = certify_rows(
        array[np.arange(len(array)), predicted],
        predicted != truth,
        error,
        delta,
        part_of=part_of,
        names=names,
        clusters=None if clusters is None else cluster_numbers(rows.clusters, len(array)),
    )
    weights = None if checked_rule is None else tuple(checked_rule.weights.tolist())
    certificate = Certificate(
        error,
        confidence,
        kind,
        parts,
        array.shape[1],
        weights,
        prediction is not None,
        class_names=None if rows.columns is None else tuple(rows.columns),
    )
    _refuse_too_few(certificate)
    return certificate


def certify_rows(
    confidence: Vector,
    wrong: Flags,
    error: float,
    delta: float,
    *,
    part_of: Classes | None = None,
    names: Sequence[str] = (ALL,),
    clusters: npt.NDArray[Any] | None = None,
) -> tuple[CertifiedPart, ...]:
    """Certify each part; all statements hold together with probability 1 − δ.

    Parts share δ evenly in the order of their sizes, and one that is certified down to its last
    threshold passes its share on to the next (the fallback procedure of Wiens, 2003).

    Parameters
    ----------
    confidence, wrong : ndarray of shape (n,)
        The probability of the prediction, and whether it is wrong.
    error, delta : float
        The error rate, and the probability that any statement is wrong.
    part_of : ndarray of int, optional
        The part of each row, an index into ``names``.
    names : sequence of str
        The parts' names.
    clusters : ndarray, optional
        The cluster of each row.

    Returns
    -------
    parts : tuple of CertifiedPart
        One per name.
    """
    if part_of is None:
        part_of = np.zeros(len(confidence), dtype=np.intp)
    confidence = confidence.astype(np.float32).astype(np.float64)
    members = np.split(
        np.argsort(part_of, kind="stable"), np.cumsum(np.bincount(part_of, minlength=len(names)))
    )[:-1]
    largest = [largest_cluster(clusters, rows) for rows in members]
    # In whole clusters: a part of n rows is worth n / m independent ones.
    sizes = np.array([len(rows) // size for rows, size in zip(members, largest, strict=True)])
    order = np.argsort(-sizes, kind="stable")
    count = _testable(sizes[order], error, delta)
    needed = fewest_rows(error, delta / max(count, 1))
    sequences = [
        _sequence(confidence[members[at]], error, delta / count, largest[at])
        for at in order[:count]
    ]
    # Everything above is without labels.
    parts = [
        CertifiedPart(name, len(rows), needed * size)
        for name, rows, size in zip(names, members, largest, strict=True)
    ]
    level = 0.0
    for at, sequence in zip(order[:count], sequences, strict=True):
        level += delta / count
        parts[at], is_complete = _test(parts[at], sequence, wrong[members[at]], error, level)
        if not is_complete:
            level = 0.0
    return tuple(parts)


class _Sequence(NamedTuple):
    """The thresholds of a part in the order they are tested, and the rows above each."""

    order: Classes
    counts: npt.NDArray[np.int64]
    thresholds: Vector
    largest: int


def _sequence(confidence: Vector, error: float, level: float, largest: int) -> _Sequence:
    """Return the thresholds to test, downwards from the one that is likeliest to pass."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    first = largest * fewest_rows(error, level)
    counts = np.linspace(first, len(ordered), _MAX_THRESHOLDS).round().astype(np.int64)
    # A threshold cannot separate rows of equal confidence.
    counts = np.unique(np.searchsorted(-ordered, -ordered[counts - 1], side="right"))
    # The chance to pass if the confidences are right.
    expected = np.clip(np.cumsum(1.0 - ordered)[counts - 1] / counts, 1e-12, 1.0)
    allowed = _most_errors(counts, error, level, largest)
    chance = tail(allowed / largest, counts / largest, expected)
    counts = counts[int(np.argmax(chance)) :]
    thresholds = np.array([_between(ordered, int(count)) for count in counts])
    return _Sequence(order, counts, thresholds, largest)


def _test(
    part: CertifiedPart, sequence: _Sequence, wrong: Flags, error: float, level: float
) -> tuple[CertifiedPart, bool]:
    """Test the thresholds one by one until one fails; return whether none did."""
    errors = np.cumsum(wrong[sequence.order])
    at_counts = errors[sequence.counts - 1]
    passed = tail(at_counts, sequence.counts, error, sequence.largest) <= level
    steps = len(passed) if passed.all() else int(np.argmin(passed))
    marks = np.unique(np.linspace(1, part.rows, 101).astype(np.int64))
    rates = errors[marks - 1] / marks
    curve = tuple(zip((marks / part.rows).tolist(), rates.tolist(), strict=True))
    if not steps:
        return CertifiedPart(part.name, part.rows, part.needed, curve=curve), False
    last = steps - 1
    certified = CertifiedPart(
        part.name,
        part.rows,
        part.needed,
        float(sequence.thresholds[last]),
        int(sequence.counts[last]),
        int(at_counts[last]),
        error,
        curve,
    )
    return certified, steps == len(passed)


def _between(ordered: Vector, count: int) -> float:
    """Return a short number that separates the first rows from the others, in float32.

    Examples
    --------
    >>> _between(np.array([0.99, 0.8413, 0.8391, 0.5]), 2), _between(np.array([0.9, 0.8]), 2)
    (0.84, 0.0)
    """
    if count == len(ordered):
        return 0.0
    low, high = float(ordered[count]), float(ordered[count - 1])
    for digits in range(1, 17):
        threshold = round((low + high) / 2.0, digits)
        if low < np.float32(threshold) <= high:
            return threshold
    return high


def tail(errors: Any, rows: Any, rate: Any, largest: int = 1) -> Any:
    """Return a bound for the probability of so few errors at an error rate.

    It is the binomial one for independent rows.  With clusters of at most m rows, Chernoff: a sum
    of n rows in independent clusters is below its mean no more often than that of n/m rows.

    Parameters
    ----------
    errors, rows : array_like
        Number of errors and of rows.
    rate : float
        The error rate of the hypothesis.
    largest : int
        Rows of the largest cluster.

    Returns
    -------
    probability : ndarray or float
        The p-value of the hypothesis that the error rate is larger.
    """
    from scipy.special import betainc, kl_div

    if largest == 1:
        # The binomial distribution function, also between whole numbers.
        others = np.asarray(rows) - errors
        return np.where(others > 0, betainc(np.maximum(others, 1), errors + 1.0, 1.0 - rate), 1.0)
    share = np.asarray(errors) / rows
    divergence = kl_div(share, rate) + kl_div(1.0 - share, 1.0 - rate)
    return np.where(share >= rate, 1.0, np.exp(-np.asarray(rows) / largest * divergence))


def _p_value(question: Question, errors: int, rows: int, rate: float, largest: int) -> float:
    """Return that of a rate within the promise (violated), or of a larger one (renewed)."""
    if not rows:
        return 1.0
    if question == "violated":  # so few right ones
        return float(tail(rows - errors, rows, 1.0 - rate, largest))
    return float(tail(errors, rows, rate, largest))


def fewest_rows(error: float, level: float) -> int:
    """Return how many rows without an error certify the rate: ln δ / ln(1 − r)."""
    return math.ceil(math.log(level) / math.log1p(-error))


def _testable(sizes: npt.NDArray[np.int64], error: float, delta: float) -> int:
    """Return how many parts, the largest first, are large enough to share δ."""
    enough = (
        count
        for count in range(len(sizes), 0, -1)
        if sizes[count - 1] >= fewest_rows(error, delta / count)
    )
    return next(enough, 0)


def _most_errors(
    rows: npt.NDArray[np.int64], error: float, level: float, largest: int
) -> npt.NDArray[np.int64]:
    """Return the most errors with which each number of rows passes."""
    low, high = np.zeros_like(rows), (rows * error).astype(np.int64) + 1
    while (high - low > 1).any():
        middle = (low + high) // 2
        passes = tail(middle, rows, error, largest) <= level
        low, high = np.where(passes, middle, low), np.where(passes, high, middle)
    return low


def largest_cluster(clusters: npt.NDArray[Any] | None, rows: Classes) -> int:
    """Return how many of the rows are in one cluster at most."""
    if clusters is None or not len(rows):
        return 1
    return int(np.unique(clusters[rows], return_counts=True)[1].max())


def _check_shares(error: float, confidence: float) -> tuple[float, float]:
    """Return the error rate and δ."""
    shares: dict[str, tuple[Any, float]] = {
        "error": (error, 0.02),
        "confidence": (confidence, 0.95),
    }
    for name, (value, example) in shares.items():
        if not isinstance(value, Real):
            raise InputError(name, f"is {value!r}", f"pass a number, such as {example}")
    if not 0.0 < error < 1.0:
        raise InputError("error", f"is {error}", "pass a share between 0 and 1, such as 0.02")
    # Below one half the tail of the binomial is not that of unequal probabilities.
    if not 0.5 < confidence < 1.0:
        raise InputError(
            "confidence", f"is {confidence}", "pass a share above one half, such as 0.95"
        )
    return float(error), 1.0 - float(confidence)


def _row_sums(array: Floats) -> Vector:
    """Return the sums of rows of probabilities, checked."""
    sums: Vector = array.sum(axis=1, dtype=np.float64)
    check_probabilities(array, sums, "probabilities", array.dtype)
    return sums


def _check_classes(matrix: Any, classes: int) -> None:
    if matrix.shape[1] != classes:
        raise InputError(
            "probabilities",
            f"has {matrix.shape[1]} columns, but {classes} classes were certified",
            "pass probabilities of the same model",
        )


def _predictions(array: Floats, prediction: Any, rule: PredictionRule | None) -> Classes:
    if prediction is not None:
        return check_predictions(prediction, *array.shape)
    return np.asarray(array.argmax(axis=1) if rule is None else rule.predict(array))


def _parts(
    by: Any, groups: Any, predicted: Classes, classes: int, class_names: Sequence[Any] | None
) -> tuple[By, Classes | None, list[str]]:
    """Return what the parts are, the part of each row, and their names."""
    if by is None:
        return "all", None, [ALL]
    if isinstance(by, str):
        return "class", predicted, [str(name) for name in class_names or range(classes)]
    raise_first(
        row_error(
            is_missing(as_groups(groups, len(predicted))),
            "groups",
            "has no group",
            "leave out rows without a group, which never act, or give them one by name",
        )
    )
    names, number = np.unique(few_groups(groups, len(predicted)), return_inverse=True)
    return "group", number, names.tolist()


def _refuse_too_few(certificate: Certificate) -> None:
    """Refuse rows of which no part is large enough for any statement."""
    if all(part.rows < part.needed for part in certificate.parts):
        needed = min(part.needed for part in certificate.parts)
        raise InputError(
            "labels",
            f"has {certificate.rows:,} rows, in no part the {needed:,} that any statement about "
            f"an error rate of {100.0 * certificate.error:.4g} % needs",
            "pass more rows, or a larger error",
        )
