"""`Monitor`: tests, batch after batch, whether the confidence of a deployed model holds."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.types import Classes, Labels, Vector
from cordcal._validation.ids import as_ids, id_digests
from cordcal._validation.labels import (
    NO_GROUP,
    as_clusters,
    as_texts,
    check_predictions,
    cluster_numbers,
    group_names,
    is_missing,
    names_to_indices,
)
from cordcal._validation.names import check_class_names
from cordcal._validation.table import match
from cordcal.certification import Certificate
from cordcal.evaluate.evidence import (
    N_BANDS,
    TILTS,
    ActEvidence,
    CalibrationEvidence,
    Capital,
    DriftEvidence,
    Look,
    bands_of,
)
from cordcal.evaluate.results.monitor import (
    Alarm,
    LabelledBatch,
    MonitorHistory,
    MonitorStatus,
    Period,
    Source,
    VerdictName,
    band_names,
)
from cordcal.files.disk import only_writer
from cordcal.files.models import read_state, write_state
from cordcal.metrics.base import ProbabilityMatrix

Arrays = dict[str, npt.NDArray[Any]]

# Rows that wait for labels, and ids that were counted, are kept up to this number, the oldest
# dropped first: 24 bytes per row, so at most 48 MB.
MAX_REMEMBERED = 1_000_000
# Parts of the evidence smaller than this are not listed.
_MIN_SHARE = 0.05
_STATE_KIND = "monitor"
# 2: rows are identified by the text of their id, and batches by their content.
_STATE_VERSION = 2
_REMEDY = "restore it from a backup, or begin again with `cordcal monitor init`"
# Batches whose rows carry fewer bits can be equal by chance: a million pairs of batches with as
# many are all different with probability 0.9998.
_MIN_BITS = 32.0
# So many of the newest rows are remembered, to compare later rows with them.
_NEWEST = 2000


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the tests use of each row."""

    confidence: Vector
    predicted: Classes
    groups: Classes

    def take(self, index: npt.NDArray[Any]) -> _Rows:
        return _Rows(self.confidence[index], self.predicted[index], self.groups[index])


@dataclass(eq=False)
class _Remembered:
    """Rows that wait for their labels, and ids and clusters that were counted, by their digests."""

    waiting: OrderedDict[int, tuple[float, int, int]] = field(default_factory=OrderedDict)
    counted: OrderedDict[int, None] = field(default_factory=OrderedDict)
    clusters: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def trim(self) -> int:
        """Drop the oldest entries beyond the limit; return how many rows no longer wait."""
        dropped = len(self.waiting) - MAX_REMEMBERED
        for table in (self.waiting, self.counted, self.clusters):
            while len(table) > MAX_REMEMBERED:
                table.popitem(last=False)
        return max(0, dropped)


class Monitor:
    """Watches a calibrated model in production; every look is valid, however many there are.

    Two tests run side by side, each at half of ``alpha``.  With labels: a prediction reported at
    confidence c is right with a probability within ``tolerance`` of c.  Without labels: rows are
    exchangeable with the baseline in predicted class and confidence.  While both hold, the
    probability that the monitor *ever* raises an alarm is at most ``alpha``.

    With a certificate a third test has its share of ``alpha``: of the labelled rows that may be
    acted on, at most the promised share is wrong.

    Which rows get labels must not depend on whether their predictions are right.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The baseline: probabilities of rows that were not used to fit.
    class_names : sequence of str, optional
        Names of the columns; by default those of a frame.
    alpha : float
        The probability of a false alarm over the monitor's whole life.
    tolerance : float
        How far the probability of being right may be from the confidence.
    seed : int
        Seed of the generator that breaks ties.
    model : str, optional
        A digest of the model, stored so that batches of another model are refused.
    clusters : array_like of shape (n,), optional
        What rows of the baseline share that makes them dependent, such as a patient or a user;
        the first row of each counts.
    certificate : Certificate, optional
        That of the model (``model.certificate_``).  Columns are matched with its class names; if
        it has a rule, the rule predicts; if it has groups, every batch needs groups.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def night(rows, off=0.0):
    ...     confidence = rng.uniform(0.5, 1.0, rows)
    ...     right = rng.random(rows) < confidence - off
    ...     return np.column_stack([confidence, 1.0 - confidence]), np.where(right, 0, 1)
    >>> monitor = Monitor(night(1000)[0])
    >>> monitor.add(*night(2000)).verdict
    'holds'
    >>> monitor.add(*night(4000, off=0.1)).verdict
    'alarm'
    >>> monitor.status.sources[0].name, monitor.status.sources[0].since
    ('all predictions', 2000)
    """

    def __init__(
        self,
        probabilities: Any,
        *,
        class_names: Sequence[str] | None = None,
        alpha: float = 0.05,
        tolerance: float = 0.02,
        seed: int = 0,
        model: str | None = None,
        clusters: Any = None,
        certificate: Certificate | None = None,
    ) -> None:
        if not 0.0 < alpha < 1.0:
            raise InputError("alpha", f"is {alpha}", "pass a probability, such as 0.05")
        if not 0.0 <= tolerance < 0.5:
            raise InputError("tolerance", f"is {tolerance}", "pass a number from 0 to 0.5")
        matched = match(
            {"probabilities": probabilities},
            class_names=class_names,
            fitted_names=None if certificate is None else certificate.class_names,
            fitted_source="certify",
            clusters=clusters,
        )
        self.certificate = certificate
        matrix = ProbabilityMatrix.from_array(
            matched.matrices[0], "probabilities", self._rule_weights
        )
        if certificate is not None:
            _check_certificate(certificate, matrix.classes, matched.class_names)
        self.alpha, self.tolerance, self.seed, self.model = alpha, tolerance, seed, model
        self.n_classes = matrix.classes
        self.class_names = None
        if matched.class_names is not None:
            self.class_names = check_class_names(matched.class_names, matrix.classes)
        rows = _Rows(*matrix.confidences(), np.full(matrix.rows, -1, dtype=np.intp))
        if clusters is not None:
            values = cluster_numbers(matched.clusters, matrix.rows)
            rows = rows.take(np.sort(np.unique(values, return_index=True)[1]))
        counts = np.zeros((matrix.classes, N_BANDS), dtype=np.int64)
        np.add.at(counts, (rows.predicted, bands_of(rows.confidence)), 1)
        self.baseline_rows = len(rows.predicted)
        if not self.baseline_rows:
            raise InputError("probabilities", "has no rows", "pass rows that were not used to fit")
        self.baseline_counts = counts
        self.periods: list[Period] = []
        self.alarms: list[Alarm] = []
        self.group_names: list[str] = []
        # The rows of each batch as a digest, and whether their labels were counted.
        self._batches: dict[str, bool] = {}
        self._remembered = _Remembered()
        # Rows that waited for a label until newer ones took their place.
        self.dropped = 0
        # The cells of the newest rows: predicted class × number of bands + band.
        self._newest = np.zeros(0, dtype=np.intp)
        self.calibration = CalibrationEvidence(self.n_classes, tolerance)
        self.inputs = DriftEvidence(counts, seed)
        self.act = None if certificate is None else ActEvidence(certificate.error)

    @property
    def baseline_shares(self) -> Vector:
        """The share of each predicted class in the baseline."""
        return np.asarray(self.baseline_counts.sum(axis=1) / self.baseline_rows)

    @property
    def _rule_weights(self) -> Vector | None:
        rule = None if self.certificate is None else self.certificate.prediction_rule
        return None if rule is None else rule.weights

    @property
    def limit(self) -> float:
        """The evidence, as a factor, at which a test raises an alarm."""
        return (2.0 if self.act is None else 3.0) / self.alpha

    @property
    def status(self) -> MonitorStatus:
        """What is known now."""
        latest = next((period for period in reversed(self.periods) if period.rows), None)
        with_labels = next((period for period in reversed(self.periods) if period.labelled), None)
        labelled = self.calibration.rows
        gap = self.calibration.mean_gap if labelled else None
        return MonitorStatus(
            verdict=self._verdict(),
            rows=self.inputs.rows,
            labelled=labelled,
            waiting=len(self._remembered.waiting),
            dropped=self.dropped,
            calibration_evidence=_factor(self.calibration.evidence),
            input_evidence=_factor(self.inputs.evidence),
            limit=self.limit,
            gap=gap,
            gap_interval=self.calibration.gap_interval(self.alpha),
            confidence=None if latest is None else latest.confidence,
            latest=None if with_labels is None else LabelledBatch.of(with_labels),
            changed=None if latest is None else latest.changed,
            sources=self._sources(),
            alarms=tuple(self.alarms),
            act_evidence=None if self.act is None else _factor(self.act.evidence),
            acted=0 if self.act is None else self.act.rows,
        )

    @property
    def history(self) -> MonitorHistory:
        """Everything that a page shows."""
        return MonitorHistory(
            status=self.status,
            periods=tuple(self.periods),
            class_names=self.class_names or tuple(map(str, range(self.n_classes))),
            baseline_shares=tuple(self.baseline_shares.tolist()),
            baseline_rows=self.baseline_rows,
            alpha=self.alpha,
            tolerance=self.tolerance,
        )

    def _verdict(self) -> VerdictName:
        if self.alarms:
            return "alarm"
        return "holds" if self.inputs.rows or self.calibration.rows else "cannot tell"

    def add(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        clusters: Any = None,
        direct: Any = None,
        name: str | None = None,
        allow_missing_ids: bool = False,
    ) -> MonitorStatus:
        """Add a batch of rows.

        A batch that was added before changes nothing, except that its labels are counted if
        they come later.  It is recognised by its rows, whatever its name is; the rows of a very
        small batch may be equal by chance, so without ids it always counts.  With ids, rows
        without labels wait for them: pass the same ids later, here or to `add_labels`.  A row
        counts at most once in each test.

        Parameters
        ----------
        probabilities : array_like of shape (n, K)
            What the deployed model reported.
        labels : array_like of shape (n,), optional
            The true classes.
        ids : array_like of shape (n,), optional
            What identifies the rows in later batches: text as it is written, numbers by value.
        groups : array_like of shape (n,), optional
            The group of each row, each tested on its own as well; required if the certificate
            has groups.
        clusters : array_like of shape (n,), optional
            What rows share that makes them dependent, such as a patient or a user: the first row
            of each cluster counts, in all batches together.
        direct : array_like of shape (n, K), optional
            The calibrator's probabilities before the repair, to count changed predictions.
        name : str, optional
            The batch's name in messages and on the page.
        allow_missing_ids : bool
            Whether rows whose id is empty are counted, each as a row of its own; by default they
            are refused.

        Returns
        -------
        status : MonitorStatus
            What is known now.
        """
        if groups is None and self.certificate is not None and self.certificate.by == "group":
            raise InputError("groups", "is missing: the certificate has groups", "pass groups=")
        matrices = {"probabilities": probabilities}
        if direct is not None:
            matrices["direct"] = direct
        matched = match(
            matrices,
            fitted_names=self.class_names,
            fitted_source="the baseline",
            labels=labels,
            groups=groups,
            clusters=clusters,
            ids=ids,
        )
        matrix = self._matrix(matched.matrices[0], "probabilities")
        codes, group_names = self._group_codes(matched.groups, matrix.rows)
        rows = _Rows(*matrix.confidences(), codes)
        truth = None if labels is None else matrix.check_labels(matched.labels, None)[0]
        keys = None if ids is None else _id_keys(matched.ids, matrix.rows, allow_missing_ids)
        changed = None if direct is None else self._changes(matched.matrices[1], rows.predicted)
        name = f"batch {len(self.periods) + 1}" if name is None else name
        names, known = self._recognise(rows, keys)
        # Rows that come again with ids can wait for labels now.
        can_wait = keys is not None and names[0] not in self._batches
        if known or (known is False and truth is None and not can_wait):
            return self.status
        if known is False and keys is None and clusters is not None:
            raise InputError(
                "clusters",
                "has rows that were added before without labels, and which of them count is not "
                "known",
                "pass ids with both",
            )
        first = self._first_of_clusters(matched.clusters, matrix.rows)
        self._batches |= dict.fromkeys(names, truth is not None)
        self.group_names = group_names
        new, ready, correct = self._sort_rows(rows, truth, keys, first)
        if known is not None:
            new = _rows_of([])
        self._bet(
            name, new, ready, correct, repeated=matrix.rows - len(new.predicted), changed=changed
        )
        return self.status

    def _recognise(
        self, rows: _Rows, keys: list[int | None] | None
    ) -> tuple[list[str], bool | None]:
        """Return what a batch is remembered by, and whether its labels were counted before.

        That is None for a new batch.  A batch that had no ids is recognised with them, and the
        other way round; of two batches with ids, the ids decide.
        """
        rows_only = _digest(rows.confidence.astype("<f8"), rows.predicted.astype("<i8"))
        names = [rows_only] if _bits(rows) >= _MIN_BITS else []
        if keys is None:
            either = [*names, *(f"ids {name}" for name in names)]
        else:
            own = _digest(rows_only.encode(), np.array([key or 0 for key in keys], dtype="<u8"))
            either, names = [own, *names], [own, *(f"ids {name}" for name in names)]
        flags = [self._batches[name] for name in either if name in self._batches]
        return names, any(flags) if flags else None

    def _first_of_clusters(self, clusters: Any, rows: int) -> npt.NDArray[np.bool_]:
        """Return which rows are the first of their cluster, in all batches."""
        first = np.ones(rows, dtype=np.bool_)
        if clusters is None:
            return first
        digests = id_digests(as_clusters(clusters, rows), "clusters").tolist()
        seen = self._remembered.clusters
        for row, digest in enumerate(digests):
            first[row] = digest not in seen
            seen[digest] = None
        return first

    def add_labels(
        self, ids: Any, labels: Any, *, name: str | None = None, strict: bool = False
    ) -> MonitorStatus:
        """Add labels of rows that were added without them.

        Parameters
        ----------
        ids : array_like of shape (n,)
            Ids of rows that wait.  Labels of other rows are not used; ``periods[-1].unknown`` is
            their number.
        labels : array_like of shape (n,)
            Their true classes.
        name : str, optional
            The batch's name.
        strict : bool
            Whether to refuse labels of rows that were never added.

        Returns
        -------
        status : MonitorStatus
            What is known now.
        """
        keys = _id_keys(ids, None)
        truth = check_predictions(
            names_to_indices(labels, (len(keys), self.n_classes), self.class_names),
            len(keys),
            self.n_classes,
            "labels",
        )
        memory = self._remembered
        waiting = [key in memory.waiting for key in keys]
        unknown = [
            not wait and key not in memory.counted for wait, key in zip(waiting, keys, strict=True)
        ]
        if strict:
            raise_first(
                row_error(
                    np.array(unknown, dtype=np.bool_),
                    "ids",
                    "does not wait for a label",
                    f"add its probabilities first; the latest {MAX_REMEMBERED:,} rows are kept",
                )
            )
        ready = [index for index, wait in enumerate(waiting) if wait]
        if not ready and not any(unknown):
            return self.status
        rows = _rows_of([memory.waiting.pop(keys[index]) for index in ready])
        memory.counted.update((keys[index], None) for index in ready)
        self.dropped += memory.trim()
        self._bet(
            f"batch {len(self.periods) + 1}" if name is None else name,
            _rows_of([]),
            rows,
            rows.predicted == truth[ready],
            repeated=len(keys) - len(ready) - sum(unknown),
            unknown=sum(unknown),
            changed=None,
        )
        return self.status

    def acknowledge(self, *, start_from: Literal["baseline", "newest"] = "baseline") -> None:
        """Clear the alarms and start the tests again; without an alarm nothing changes.

        Parameters
        ----------
        start_from : {"baseline", "newest"}
            What the test of the inputs compares new rows with: the baseline, so that a change
            that stays raises an alarm again; or the newest rows, at most 2,000, so that the
            change counts as the new state.
        """
        if start_from not in ("baseline", "newest"):
            raise InputError("start_from", f"is {start_from!r}", "use baseline or newest")
        if not self.alarms:
            return
        counts = self.baseline_counts
        if start_from == "newest":
            counts = np.bincount(self._newest, minlength=counts.size).reshape(counts.shape)
        self.alarms.clear()
        self.calibration = CalibrationEvidence(self.n_classes, self.tolerance)
        self.inputs = DriftEvidence(counts, self.inputs.generator)
        if self.certificate is not None:
            self.act = ActEvidence(self.certificate.error)

    def _matrix(self, probabilities: Any, argument: str) -> ProbabilityMatrix:
        matrix = ProbabilityMatrix.from_array(probabilities, argument, self._rule_weights)
        if matrix.classes != self.n_classes:
            raise InputError(
                argument,
                f"has {matrix.classes} classes but the baseline has {self.n_classes}",
                "pass probabilities of the same model",
            )
        if not matrix.rows:
            raise InputError(argument, "has no rows", "pass at least one row")
        return matrix

    def _group_codes(self, groups: Any, rows: int) -> tuple[Classes, list[str]]:
        """Return the number of each row's group, and all names in order of appearance."""
        codes = np.full(rows, -1, dtype=np.intp)
        if groups is None:
            return codes, self.group_names
        names = group_names(groups, rows, NO_GROUP)
        known = {name: number for number, name in enumerate(self.group_names)}
        for index, group in enumerate(names.tolist()):
            codes[index] = known.setdefault(group, len(known))
        return codes, list(known)

    def _changes(self, direct: Any, predicted: Classes) -> int:
        matrix = self._matrix(direct, "direct")
        if matrix.rows != len(predicted):
            raise InputError(
                "direct",
                f"has {matrix.rows} rows but probabilities has {len(predicted)}",
                "pass both outputs of the same rows",
            )
        return int((matrix.confidences()[1] != predicted).sum())

    def _sort_rows(
        self,
        rows: _Rows,
        truth: Labels | None,
        keys: list[int | None] | None,
        first: npt.NDArray[np.bool_],
    ) -> tuple[_Rows, _Rows, npt.NDArray[np.bool_]]:
        """Return the new rows, those whose label counts now, and whether they are right."""
        memory = self._remembered
        new, ready, answers = [], [], []
        columns = zip(
            [None] * len(first) if keys is None else keys,
            rows.confidence.tolist(),
            rows.predicted.tolist(),
            rows.groups.tolist(),
            strict=True,
        )
        for index, (key, *row) in enumerate(columns):
            if key in memory.counted:
                continue
            known = memory.waiting.get(key) if key is not None else None
            if known is None and not first[index]:
                # Another row of its cluster counts; its label, if it comes later, does not.
                if key is not None:
                    memory.counted[key] = None
                continue
            stored = known or (row[0], row[1], row[2])
            if known is None:
                new.append(index)
            if truth is not None:
                ready.append(stored)
                answers.append(truth[index])
            if key is not None and truth is None:
                memory.waiting[key] = stored
            elif key is not None:
                memory.waiting.pop(key, None)
                memory.counted[key] = None
        self.dropped += memory.trim()
        counted = _rows_of(ready)
        right = counted.predicted == np.array(answers, dtype=np.intp)
        return rows.take(np.array(new, dtype=np.intp)), counted, right

    def _bet(
        self,
        name: str,
        new: _Rows,
        ready: _Rows,
        correct: npt.NDArray[np.bool_],
        *,
        repeated: int,
        changed: int | None,
        unknown: int = 0,
    ) -> None:
        """Let the tests bet on rows, and record the batch."""
        limit = float(np.log(self.limit))
        bands = bands_of(ready.confidence)
        if len(new.predicted):
            new_bands = bands_of(new.confidence)
            cells = new.predicted * N_BANDS + new_bands
            self._newest = np.concatenate([self._newest, cells])[-_NEWEST:]
            look = self.inputs.update(new.predicted, new_bands, limit)
            self._raise_alarm("inputs", name, look)
        if len(ready.predicted):
            look = self.calibration.update(
                ready.confidence, correct, ready.predicted, ready.groups, limit
            )
            self._raise_alarm("calibration", name, look)
            self._watch_acted(name, ready, correct, limit)
        self.periods.append(
            Period(
                name=name,
                rows=len(new.predicted),
                labelled=len(ready.predicted),
                repeated=repeated,
                unknown=unknown,
                confidence=float(new.confidence.mean()) if len(new.predicted) else 0.0,
                changed=changed,
                band_rows=_by_band(bands, np.ones(len(bands), dtype=np.int64)),
                band_confidence=_by_band(bands, ready.confidence),
                band_correct=_by_band(bands, correct.astype(np.int64)),
                predicted=tuple(np.bincount(new.predicted, minlength=self.n_classes).tolist()),
                calibration_evidence=self.calibration.evidence,
                input_evidence=self.inputs.evidence,
                act_evidence=None if self.act is None else self.act.evidence,
                gap=self.calibration.gap_interval(self.alpha),
            )
        )

    def _watch_acted(
        self, name: str, rows: _Rows, correct: npt.NDArray[np.bool_], limit: float
    ) -> None:
        """Let the third test bet on the rows that may be acted on."""
        if self.act is None or self.certificate is None:
            return
        # Rows of a batch without groups have the number −1.
        names = np.array([*self.group_names, NO_GROUP])[rows.groups]
        names[names == NO_GROUP] = ""  # which is never certified
        acted = self.certificate.accepts_confidence(rows.confidence, rows.predicted, names)
        if acted.any():
            self._raise_alarm("act", name, self.act.update(~correct[acted], limit))

    def _raise_alarm(
        self, test: Literal["calibration", "inputs", "act"], batch: str, look: Look | None
    ) -> None:
        known = any(alarm.test == test for alarm in self.alarms)
        if look is not None and not known:
            self.alarms.append(Alarm(test, batch, look.rows, _factor(look.evidence)))

    def _sources(self) -> tuple[Source, ...]:
        """Return the parts of the rows that most evidence against calibration comes from."""
        if not any(alarm.test == "calibration" for alarm in self.alarms):
            return ()
        shares = self.calibration.shares()
        totals = shares.sum(axis=1)
        sources = []
        for cell in np.argsort(-totals, kind="stable")[:3]:
            if totals[cell] < _MIN_SHARE:
                break
            tilt = int(shares[cell].argmax())
            sources.append(
                Source(
                    name=self._cell_name(int(cell)),
                    share=float(totals[cell]),
                    direction="too high" if TILTS[tilt] < 0.0 else "too low",
                    since=self.calibration.capital.first_row_of_best((int(cell), tilt)),
                )
            )
        return tuple(sources)

    def _cell_name(self, cell: int) -> str:
        """Return the name of a cell of `CalibrationEvidence`."""
        if cell == 0:
            return "all predictions"
        cell -= 1
        if cell < N_BANDS:
            return f"confidence {band_names()[cell]}"
        cell -= N_BANDS
        if cell < self.n_classes:
            return f"predictions of {self.class_names[cell] if self.class_names else cell}"
        return f"group {self.group_names[cell - self.n_classes]}"

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the state to one file, whole or not at all.

        Parameters
        ----------
        path : path
            Where to.
        overwrite : bool
            Whether a file of that name may be replaced.
        """
        arrays, body = self._state()
        write_state(path, _STATE_KIND, arrays, body, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the state that `save` wrote.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        monitor : Monitor
            The monitor as it was.
        """
        return read_state(path, _STATE_KIND, cls._from_state, remedy=_REMEDY)

    @classmethod
    @contextmanager
    def updating(cls, path: str | os.PathLike[str]) -> Iterator[Self]:
        """Load a state, and save it after the block; other writers wait outside.

        Nothing is written if the block raises.

        Parameters
        ----------
        path : path
            The file.

        Yields
        ------
        monitor : Monitor
            The monitor to change.
        """
        with only_writer(path):
            monitor = cls.load(path)
            yield monitor
            monitor.save(path)

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        waiting, counted = self._remembered.waiting, self._remembered.counted
        stored = _rows_of(list(waiting.values()))
        arrays: Arrays = {
            "counts": self.inputs.counts,
            "histogram": self.inputs.histogram,
            "recent": self.inputs.recent,
            "baseline_counts": self.baseline_counts,
            "newest": self._newest,
            "waiting_keys": np.array(list(waiting), dtype=np.uint64),
            "waiting_confidence": stored.confidence,
            "waiting_predicted": stored.predicted,
            "waiting_groups": stored.groups,
            "counted_keys": np.array(list(counted), dtype=np.uint64),
            "cluster_keys": np.array(list(self._remembered.clusters), dtype=np.uint64),
            "period_predicted": np.array(
                [period.predicted for period in self.periods], dtype=np.int64
            ).reshape(len(self.periods), self.n_classes),
        }
        for test, capital in self._capitals().items():
            arrays |= {f"{test}.{name}": getattr(capital, name) for name in _CAPITAL_ARRAYS}
        periods = [asdict(period) for period in self.periods]
        for period in periods:
            del period["predicted"]
        body = {
            "version": _STATE_VERSION,
            **{name: getattr(self, name) for name in _STORED_AS_THEY_ARE},
            "class_names": self.class_names,
            "batches": self._batches,
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "periods": periods,
            "rows": {test: capital.rows for test, capital in self._capitals().items()},
            "gap_sum": self.calibration.gap_sum,
            "square_sum": self.calibration.square_sum,
            "generator": self.inputs.generator.bit_generator.state,
        }
        if self.certificate is not None:
            body["certificate"] = self.certificate.to_state()
        return arrays, body

    def _capitals(self) -> dict[str, Capital]:
        tests = {"calibration": self.calibration, "inputs": self.inputs, "act": self.act}
        return {name: test.capital for name, test in tests.items() if test is not None}

    @classmethod
    def _from_state(cls, arrays: Arrays, body: dict[str, Any]) -> Self:
        if body.get("version") != _STATE_VERSION:
            raise InputError(
                "state",
                f"is a state of version {body.get('version', 1)}, this cordcal reads version "
                f"{_STATE_VERSION}: rows are identified in another way",
                "begin again with `cordcal monitor init`",
            )
        monitor = cls.__new__(cls)
        for name in _STORED_AS_THEY_ARE:
            setattr(monitor, name, body[name])
        names = body["class_names"]
        monitor.class_names = None if names is None else tuple(names)
        monitor.baseline_counts, monitor._newest = arrays["baseline_counts"], arrays["newest"]
        monitor.n_classes = len(monitor.baseline_counts)
        monitor._batches = dict(body["batches"])
        monitor.alarms = [Alarm(**alarm) for alarm in body["alarms"]]
        monitor.periods = [
            Period(**{name: _as_tuple(value) for name, value in period.items()}, predicted=counts)
            for period, counts in zip(
                body["periods"], map(tuple, arrays["period_predicted"].tolist()), strict=True
            )
        ]
        waiting = zip(
            arrays["waiting_confidence"].tolist(),
            arrays["waiting_predicted"].tolist(),
            arrays["waiting_groups"].tolist(),
            strict=True,
        )
        monitor._remembered = _Remembered(
            OrderedDict(zip(arrays["waiting_keys"].tolist(), waiting, strict=True)),
            *(
                OrderedDict.fromkeys(arrays[f"{name}_keys"].tolist())
                for name in ("counted", "cluster")
            ),
        )
        monitor.calibration = CalibrationEvidence(monitor.n_classes, monitor.tolerance)
        monitor.calibration.gap_sum = int(body["gap_sum"])
        monitor.calibration.square_sum = int(body["square_sum"])
        monitor.inputs = DriftEvidence(arrays["counts"], monitor.seed)
        monitor.inputs.histogram, monitor.inputs.recent = arrays["histogram"], arrays["recent"]
        monitor.inputs.generator.bit_generator.state = body["generator"]
        monitor.certificate = monitor.act = None
        if "certificate" in body:
            monitor.certificate = Certificate.from_dict(body["certificate"])
            monitor.act = ActEvidence(monitor.certificate.error)
        for test, capital in monitor._capitals().items():
            capital.rows = int(body["rows"][test])
            for name in _CAPITAL_ARRAYS:
                setattr(capital, name, arrays[f"{test}.{name}"])
            capital.shape = capital.log_capital.shape
        return monitor


_SETTINGS = ("alpha", "tolerance", "seed", "model")
_STORED_AS_THEY_ARE = (*_SETTINGS, "baseline_rows", "group_names", "dropped")
_CAPITAL_ARRAYS = ("log_capital", "sums", "best", "best_start")


def _check_certificate(certificate: Certificate, classes: int, names: Sequence[Any] | None) -> None:
    """Refuse a certificate of other classes, or of predictions that a monitor does not have."""
    own = certificate.class_names
    if certificate.n_classes != classes or (
        own is not None and names is not None and tuple(map(str, names)) != own
    ):
        raise InputError(
            "certificate",
            f"has other classes than the baseline ({certificate.n_classes} and {classes}, or in "
            "another order)",
            "pass that of the same model, and its class names or none",
        )
    if certificate.needs_prediction:
        raise InputError(
            "certificate",
            "is one of predictions that were passed, which a monitor does not have",
            "leave it out: calibration and inputs are watched without it",
        )


def _factor(evidence: float) -> float:
    """Return exp(evidence), at most the largest double."""
    return float(np.exp(min(evidence, 709.0)))


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _rows_of(stored: list[tuple[float, int, int]]) -> _Rows:
    confidence, predicted, groups = zip(*stored, strict=True) if stored else ((), (), ())
    return _Rows(
        np.array(confidence, dtype=np.float64),
        np.array(predicted, dtype=np.intp),
        np.array(groups, dtype=np.intp),
    )


def _by_band(bands: Classes, values: npt.NDArray[Any]) -> Any:
    """Return the sum of values in each band."""
    sums = np.zeros(N_BANDS, dtype=values.dtype)
    np.add.at(sums, bands, values)
    return tuple(sums.tolist())


def _id_keys(ids: Any, rows: int | None, allow_missing: bool = False) -> list[Any]:
    """Return a 64-bit digest of each id; None for an empty one, if that is allowed."""
    values = as_ids(ids)
    if values.ndim != 1 or (rows is not None and len(values) != rows):
        expected = "one id per row" if rows is None else f"{rows} ids, one per row"
        raise InputError("ids", f"has shape {values.shape}", f"pass {expected}")
    present = ~is_missing(values) if allow_missing else np.ones(len(values), dtype=np.bool_)
    keys: list[int | None] = [None] * len(values)
    seen: set[int | None] = set()
    repeated = np.zeros(len(values), dtype=np.bool_)
    digests = id_digests(values[present]).tolist()
    for row, key in zip(np.flatnonzero(present).tolist(), digests, strict=True):
        repeated[row] = key in seen
        seen.add(key)
        keys[row] = key
    raise_first(
        row_error(
            repeated,
            "ids",
            "repeats an id of this batch",
            "give every row its own id",
            detail=lambda row: f"repeats the id {as_texts(values)[row]} of this batch",
        )
    )
    return keys


def _digest(*parts: npt.NDArray[Any] | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.tobytes())
    return digest.hexdigest()


def _bits(rows: _Rows) -> float:
    """Return the information in the order of a batch's rows: rows × entropy of their values."""
    pairs = np.column_stack([rows.confidence, rows.predicted])
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    return float(len(pairs) * np.log2(len(pairs)) - (counts * np.log2(counts)).sum())
