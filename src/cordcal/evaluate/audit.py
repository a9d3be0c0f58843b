"""Audit one calibrator: which predictions it changes, and what the repair does about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Self, cast

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, warn
from cordcal._numeric import arrays
from cordcal._numeric.types import Array, ArrayLike, Classes, Floats, Kind, NumPyArray, NumPyDType
from cordcal._validation import layouts
from cordcal._validation.caveats import Caveat
from cordcal._validation.data_caveats import audit_caveats
from cordcal._validation.estimator import as_seed
from cordcal._validation.labels import check_predictions, check_weights, cluster_numbers, few_groups
from cordcal._validation.names import Name, check_class_names
from cordcal._validation.scores import CheckedScores, as_matrix, check_kind, check_same_shape
from cordcal._validation.table import match
from cordcal.evaluate.audit_result import Audit
from cordcal.evaluate.baseline import Fingerprint
from cordcal.evaluate.bounds import certified_error_rates
from cordcal.evaluate.constraint_cost import cost_without_labels, lower_end
from cordcal.evaluate.pictures import ChangedRows, pictures_of_rows
from cordcal.evaluate.results.audit import CertifiedErrorRate, MeasureComparison
from cordcal.evaluate.results.pictures import Pictures
from cordcal.evaluate.statistics import Replicates, percentile_interval, resampled
from cordcal.metrics import METRICS, TopkChangesStream
from cordcal.metrics.base import ProbabilityMatrix, require_rows
from cordcal.metrics.changes import read_predictions
from cordcal.metrics.proper import NLL_FLOOR
from cordcal.metrics.registry import MeasuredProbabilities, MetricsStream
from cordcal.preserving import PreservingCalibrator
from cordcal.repair import CORD, Lift
from cordcal.repair.fitted import check_fitted
from cordcal.repair.prediction_rule import PredictionRule

__all__ = ["Audit", "audit"]

# How many of the top classes are compared by order, as a list of suggestions shows them.
_TOP_CLASSES = 5

_OUTPUTS = ("original", "direct", "repaired")


def audit(
    original: ArrayLike,
    direct: ArrayLike,
    labels: ArrayLike = None,
    *,
    input: Kind = "probabilities",
    class_names: Sequence[str] | None = None,
    prediction: ArrayLike = None,
    sample_weight: ArrayLike = None,
    clusters: ArrayLike = None,
    repair: CORD | Lift | PreservingCalibrator | None = None,
    rule: Literal["argmax"] | PredictionRule | ArrayLike = "argmax",
    axis: int | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Audit:
    """Measure what a calibrator does to a classifier's predictions, and what the repair does.

    The repaired probabilities come from ``repair``, fitted on calibration rows.  By default
    a CORD is fitted on the audited rows themselves: it needs no labels and learns a single
    number, but its retained mean is then exact by construction, and the audit mentions it.

    Parameters
    ----------
    original : array_like of shape (n, K)
        The classifier's probabilities or logits; see ``input``.  Rows of pandas objects are
        matched by index, those of the other arguments as well.
    direct : array_like of shape (n, K)
        The calibrator's probabilities of the same rows.
    labels : array_like, optional
        The true class of each row, as a column index or as a class name; without labels only
        predictions are compared.
    input : {"probabilities", "logits"}
        What ``original`` is.  Predictions are then the argmax of the logits, as passed.
    class_names : sequence of str, optional
        One name per column; by default the columns of a data frame.
    prediction : array_like of int, optional
        The classifier's predictions, if they are not the argmax of ``original``.
    sample_weight : array_like, optional
        Weights of the rows.
    clusters : array_like, optional
        What rows share that makes them dependent, such as a patient, a user or a session:
        intervals and bounds then count clusters.  By default rows are independent.
    repair : CORD, Lift or PreservingCalibrator, optional
        A fitted repair, or a model that contains one.
    rule : "argmax", PredictionRule or array_like of shape (K,)
        How direct and repaired probabilities predict; by default by their largest entry.  A
        ``repair`` with a rule brings its own.
    axis : int, optional
        The dimension of the classes, for dense outputs such as (B, K, H, W); every position is
        then a row.
    level : float
        Level of the paired bootstrap intervals.
    resamples : int
        Bootstrap resamples.
    seed : int or numpy.random.Generator
        Seed of the resampling; one is drawn from a generator.

    Returns
    -------
    audit : Audit
        Counts, tables, intervals and an interpretation in plain words.

    Warns
    -----
    UserWarning
        If a dtype cannot represent probabilities that the log loss distinguishes from zero, or
        if ``repair`` was fitted on these same rows.

    Examples
    --------
    >>> import numpy as np
    >>> original = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1]])
    >>> direct = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.4, 0.5, 0.1]])
    >>> audit(original, direct)
    Audit(3 rows × 3 classes: 1 prediction changed, 33.33 %)
    >>> print(audit(original, direct, class_names=["cat", "dog", "owl"]).interpret())
    The calibrator changes 1 of 3 predictions (33.33 %); the repaired probabilities change none.
    Most changes are among predictions of class cat: 1 of 2 (50.00 %).
    Most changes are among rows with original confidence (0, 0.5]: 1 of 2 (50.00 %).
    The order of the top 2 classes changes in 66.67 % of the rows.
    The repaired probabilities change it in 33.33 %; preserve=2 keeps it.
    Keeping the predictions costs 0.0020 nats per row if the direct probabilities are correct.
    Without labels, nothing can be said about accuracy or calibration.
    """
    if not 0.0 < level < 1.0:
        raise InputError("level", f"is {level}", "pass a number between 0 and 1, such as 0.95")
    if resamples < 1:
        raise InputError("resamples", f"is {resamples}", "pass at least 1")
    check_kind(input)
    seed = as_seed(seed)
    fitted = None
    if repair is not None:
        fitted = _fitted_repair(repair, has_predictions=prediction is not None or input == "logits")
        if not isinstance(rule, str):
            raise InputError("rule", "is passed with repair", "leave it out: repair has its own")
    matched = match(
        {"original": original, "direct": direct},
        class_names=class_names,
        fitted_names=getattr(repair, "columns_", None),
        fitted_source="repair",
        labels=labels,
        prediction=prediction,
        sample_weight=sample_weight,
        clusters=clusters,
    )
    (original, direct), (labels, prediction, sample_weight, clusters) = layouts.flatten_rows(
        axis,
        matched.matrices,
        (matched.labels, matched.prediction, matched.sample_weight, matched.clusters),
    )
    names = matched.class_names
    columns: dict[str, ArrayLike] = {"prediction": prediction, "sample_weight": sample_weight}
    collection = layouts.lazy_handler(original, direct)
    if collection is not None and input == "logits":
        raise InputError(
            "input", "is 'logits', which dask collections do not support", "pass probabilities"
        )
    if collection is None:
        # Rows in one piece: sums over the columns of another layout may round in another order.
        original, direct = (
            np.ascontiguousarray(matrix) if isinstance(matrix, np.ndarray) else matrix
            for matrix in (as_matrix(original, "original"), as_matrix(direct, "direct"))
        )
        check_same_shape(original, "original", direct, "direct")
        if input == "logits":
            scores = _check_logits(original)
            original, direct = scores.probabilities, arrays.to_numpy(direct)
            columns["prediction"] = scores.prediction if prediction is None else prediction
        names_or_numbers(names, direct.shape[1])
    with _suggesting_logits():
        model = CORD(rule=rule).fit(original, direct, **columns) if fitted is None else fitted
        if collection is None:
            stream = AuditStream(model).update(original, direct, labels, **columns)
        else:
            stream = collection.audited(model, original, direct, labels, **columns)
    messages: list[str] = []
    if isinstance(fitted, CORD) and stream.rows == fitted.construction_.n:
        # A repair fitted with weights is recognised only with the same weights.
        for weight in [None] if sample_weight is None else [None, sample_weight]:
            refitted = CORD(fitted.preserve, rule=fitted.rule)
            refitted.fit(original, direct, prediction=columns["prediction"], sample_weight=weight)
            messages = messages or seen_before(fitted, refitted)
    return stream.result(
        class_names=None if names is None else [str(name) for name in names],
        fitted_here=fitted is None,
        level=level,
        resamples=resamples,
        seed=seed,
        noticed=messages,
        clusters=clusters,
    )


@contextmanager
def _suggesting_logits() -> Iterator[None]:
    """Propose ``input="logits"`` in errors about an original that is not probabilities."""
    try:
        yield
    except InputError as error:
        if error.argument != "original" or "softmax" not in error.hint:
            raise
        raise error.with_option_hint("input", "logits") from None


def _check_logits(original: Array) -> CheckedScores:
    try:
        return CheckedScores.from_scores(arrays.to_numpy(original), "logits")
    except InputError as error:
        raise error.with_argument("original") from None


def _fitted_repair(
    model: CORD | Lift | PreservingCalibrator, *, has_predictions: bool
) -> CORD | Lift:
    """Return a fitted repair, or that of a `PreservingCalibrator`; require its predictions."""
    repair = cast(CORD | Lift, getattr(model, "repair_", model))
    check_fitted(repair)
    if not has_predictions and repair.construction_.prediction_given:
        raise InputError(
            "prediction",
            "is missing: repair was fitted with explicit predictions (a PreservingCalibrator keeps "
            "the argmax of its scores)",
            "pass prediction=, e.g. scores.argmax(axis=1)",
        )
    return repair


def seen_before(repair: CORD, refitted: CORD) -> list[str]:
    """Return a warning if a repair was fitted on the audited rows, as ``refitted`` was.

    A construction's means are exact sums, the same for any order of the rows: two
    constructions with the same numbers come from the same rows.
    """
    if refitted.construction_ != repair.construction_:
        return []
    return [
        "These are the rows that repair was fitted on: the numbers describe the fit, not new data. "
        "Pass evaluation rows that were not used for fitting."
    ]


def names_or_numbers(class_names: Sequence[Name] | None, classes: int) -> list[str]:
    """Return one name per class: ``class_names``, or the column numbers."""
    if class_names is None:
        return [str(index) for index in range(classes)]
    return list(check_class_names(class_names, classes))


class AuditStream:
    """`audit` in blocks of rows, with one fitted repair.

    It stores about 170 bytes per row, whatever the number of classes.  Every count, metric and
    resample is the same as for all rows at once.

    Parameters
    ----------
    repair : CORD or Lift
        A fitted repair.
    recognise : bool
        Compute a fingerprint of the rows: original and direct probabilities, labels, weights
        and predictions.
    """

    def __init__(self, repair: CORD | Lift, *, recognise: bool = False) -> None:
        self.repair = repair
        self.fingerprint = Fingerprint(0, 0) if recognise else None
        self.identical = True
        self.dtypes: dict[str, NumPyDType] = {}
        self._columns: dict[str, list[NumPyArray]] = {}
        self._measured = {name: MetricsStream() for name in _OUTPUTS}
        self._results: dict[str, MeasuredProbabilities] = {}
        # The order of the first K - 1 classes is the whole order.
        top = min(_TOP_CLASSES, repair.n_classes_ - 1)
        self._topk = {name: TopkChangesStream(top) for name in _OUTPUTS[1:]}

    @property
    def rows(self) -> int:
        """Rows seen so far."""
        return sum(map(len, self._columns.get("prediction", [])))

    def update(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        labels: ArrayLike = None,
        *,
        prediction: ArrayLike = None,
        sample_weight: ArrayLike = None,
        rows: npt.NDArray[np.intp] | None = None,
    ) -> Self:
        """Add a block of rows; the arguments are those of `audit`.

        Parameters
        ----------
        original, direct : array_like of shape (n, K)
            The classifier's and the calibrator's probabilities.
        labels : array_like of int, optional
            The true class of each row.
        prediction : array_like of int, optional
            The classifier's predictions.
        sample_weight : array_like, optional
            Weights of the rows.
        rows : ndarray of int, optional
            The row numbers, if rows before or between them are missing.

        Returns
        -------
        self : AuditStream
            The stream, so that calls can be chained.
        """
        rule = self.repair.rule_
        weights = None if rule is None else rule.weights
        p, q = (
            ProbabilityMatrix.from_array(original, "original"),
            ProbabilityMatrix.from_array(direct, "direct", weights),
        )
        check_same_shape(p.values, "original", q.values, "direct")
        repaired = ProbabilityMatrix.from_array(
            self.repair.transform(p.values, q.values, prediction=prediction), "repaired", weights
        )
        outputs = dict(zip(_OUTPUTS, (p, q, repaired), strict=True))
        predictions = p.values if prediction is None else prediction
        original_prediction = read_predictions(predictions, "prediction")[0]
        direct_prediction = q.predictions()
        index = np.arange(q.rows)
        columns = {
            "prediction": original_prediction,
            "direct_prediction": direct_prediction,
            "original_confidence": p.values.max(axis=1).astype(np.float64),
            "direct_confidence": q.values[index, direct_prediction].astype(np.float64),
            "end": np.concatenate(
                [lower_end(block, original_prediction[at], weights)[2] for at, block in q.blocks()]
            ),
            **{name: output.mass_on(original_prediction) for name, output in outputs.items()},
        }
        if sample_weight is not None:
            columns["weight"] = check_weights(sample_weight, q.rows, some=False)
        if labels is not None:
            columns["labels"] = check_predictions(labels, q.rows, q.classes, "labels")
            for name, output in outputs.items():
                self._measured[name].update_checked(
                    output, columns["labels"], columns.get("weight")
                )
        if rows is not None:
            columns["row"] = rows
        order = p.values
        if prediction is not None:
            order = order.copy()
            order[index, original_prediction] = 2.0  # the order to keep starts with the prediction
        for name, topk in self._topk.items():
            ranked = _ranked_values(outputs[name])
            topk.update(order, ranked, sample_weight=columns.get("weight"))
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)
        self.dtypes = {name: output.values.dtype for name, output in outputs.items()}
        self.identical = self.identical and bool(np.array_equal(p.values, q.values))
        if self.fingerprint is not None:
            missing = np.full(q.rows, -1)  # neither a label nor a weight
            others = [columns.get(name, missing) for name in ("prediction", "labels", "weight")]
            self.fingerprint += Fingerprint.of(p.values, q.values, *others)
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream with the same repair; return this stream."""
        for name, columns in other._columns.items():
            self._columns.setdefault(name, []).extend(columns)
        for name, stream in self._measured.items():
            stream.merge(other._measured[name])
        for name, topk in self._topk.items():
            topk.merge(other._topk[name])
        self.dtypes = self.dtypes or other.dtypes
        self.identical = self.identical and other.identical
        if self.fingerprint is not None and other.fingerprint is not None:
            self.fingerprint += other.fingerprint
        return self

    def _concatenate(
        self, class_names: Sequence[str] | None
    ) -> tuple[dict[str, NumPyArray], ChangedRows]:
        """Return the columns of all rows so far, and their predictions before and after."""
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        names = names_or_numbers(class_names, self.repair.n_classes_)
        labels, weight = columns.get("labels"), columns.get("weight")
        return columns, ChangedRows(
            columns["prediction"], columns["direct_prediction"], labels, weight, names
        )

    def pictures(
        self, class_names: Sequence[str] | None = None, groups: ArrayLike = None
    ) -> Pictures:
        """Return the data of the report's figures; call `result` first.

        ``groups`` has an entry for every row, also for those that are missing between others.
        """
        columns, changed = self._concatenate(class_names)
        confidences = {
            "original": columns["original_confidence"],
            "direct": columns["direct_confidence"],
            "repaired": columns["repaired"],
        }
        masses = {name: columns[name] for name in _OUTPUTS}
        rows = columns.get("row")
        names = None
        if groups is not None:
            if changed.labels is None:
                raise InputError("groups", "need labels", "pass the labels, too")
            seen = self.rows if rows is None else int(rows.max()) + 1
            # Where rows were skipped, some may be missing at the end, too.
            names = few_groups(groups, seen if seen == self.rows else max(seen, len(groups)))
            names = names if rows is None else names[rows]
        return pictures_of_rows(changed, masses, confidences, self._results, rows, names)

    def result(
        self,
        *,
        class_names: Sequence[str] | None = None,
        fitted_here: bool,
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
        noticed: Sequence[str] = (),
        clusters: ArrayLike = None,
    ) -> Audit:
        """Return the audit of all rows so far.

        ``noticed`` are further warnings to issue, ``clusters`` those of all rows, also of skipped
        ones.
        """
        require_rows(self.rows)
        columns, changed = self._concatenate(class_names)
        masses = {name: columns[name] for name in _OUTPUTS}
        measured: dict[str, MeasuredProbabilities] = {}
        certified: tuple[CertifiedErrorRate, ...] = ()
        comparisons: tuple[MeasureComparison, ...] = ()
        if changed.labels is not None:
            measured = {name: stream.result() for name, stream in self._measured.items()}
            cluster = None
            if clusters is not None:
                values = arrays.to_numpy(clusters)
                if "row" in columns and len(values) > columns["row"].max():
                    values = values[columns["row"]]
                cluster = cluster_numbers(values, self.rows)
            comparisons = _compare_metrics(measured, level, resamples, seed, cluster)
            if changed.weight is None and not noticed:
                rows = measured["repaired"].rows
                certified = certified_error_rates(rows, alpha=1.0 - level, clusters=cluster)
        self._results = measured
        messages = [*_underflow(self.dtypes, measured), *noticed]
        for message in messages:
            warn(message)
        return Audit(
            n=self.rows,
            n_classes=len(changed.names),
            identical=self.identical,
            changes=changed.count(slice(None)),
            topk_changes={name: topk.result() for name, topk in self._topk.items()},
            by_class=changed.by_class(),
            by_confidence=changed.by_confidence(columns["original_confidence"]),
            rows=changed.largest(
                masses, columns["direct_confidence"], row_numbers=columns.get("row")
            ),
            measures=comparisons,
            reliability={name: report.reliability() for name, report in measured.items()},
            cost=cost_without_labels(masses["direct"], columns["end"], changed.weight),
            eta=self.repair.eta_ if isinstance(self.repair, CORD) else None,
            fitted_here=fitted_here,
            level=level,
            resamples=resamples,
            seed=seed,
            warnings=tuple(messages),
            caveats=_caveats(changed, class_names),
            certified=certified,
            by_rule=self.repair.rule_ is not None,
        )


def _ranked_values(matrix: ProbabilityMatrix) -> Floats:
    """Return probabilities, or weight times probability under a rule, in their order."""
    if matrix.rule_weights is None:
        return matrix.values
    products: Floats = matrix.values.astype(np.float64) * matrix.rule_weights
    return products


def _compare_metrics(
    measured: dict[str, MeasuredProbabilities],
    level: float,
    resamples: int,
    seed: int,
    clusters: Classes | None,
) -> tuple[MeasureComparison, ...]:
    rows = measured["direct"].metrics.n
    replicates = resampled(
        {name: [measured[name].rows] for name in ("direct", "repaired")},
        [np.arange(rows)],
        rows,
        resamples=resamples,
        seed=seed,
        clusters=clusters,
    )
    return tuple(_compare_metric(name, measured, replicates, level) for name in METRICS)


def _compare_metric(
    name: str,
    measured: dict[str, MeasuredProbabilities],
    replicates: dict[str, Replicates],
    level: float,
) -> MeasureComparison:
    original, direct, repaired = (measured[output].metrics.values[name] for output in _OUTPUTS)
    low = high = None
    if name in replicates["direct"]:
        differences = replicates["repaired"][name] - replicates["direct"][name]
        low, high = map(float, percentile_interval(differences, level))
    return MeasureComparison(name, original, direct, repaired, repaired - direct, low, high)


def _underflow(
    dtypes: dict[str, NumPyDType], measured: dict[str, MeasuredProbabilities]
) -> list[str]:
    """Return a warning if zeros may be probabilities that the dtype cannot represent."""
    zeros = {}
    for name, report in measured.items():
        smallest = np.finfo(dtypes[name]).smallest_subnormal
        count = int(np.count_nonzero(report.rows.true_mass == 0.0))
        if count and smallest > NLL_FLOOR:
            zeros[name] = count
    if not zeros:
        return []
    counts = " and ".join(f"{count:,} rows of {name}" for name, count in zeros.items())
    return [
        f"float16 has no positive number below 6e-8: the true class has probability 0 in "
        f"{counts}, each of which adds {-np.log(NLL_FLOOR):.1f} to the sum of the NLL. "
        f"Pass float32 or float64 probabilities for a reliable log loss."
    ]


def _caveats(rows: ChangedRows, class_names: Sequence[str] | None) -> tuple[Caveat, ...]:
    """Return the caveats about labels and predictions."""
    if rows.labels is None:
        return ()
    return tuple(
        audit_caveats(
            rows.prediction,
            rows.labels,
            classes=len(rows.names),
            names=class_names,
            weight=rows.weight,
        )
    )
