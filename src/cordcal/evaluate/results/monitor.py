"""The records of a monitor, and how they word evidence, differences and bands."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

from cordcal._numeric.types import Record

VerdictName = Literal["holds", "alarm", "cannot tell"]


@dataclass(frozen=True)
class Alarm(Record):
    """When a test's evidence crossed its limit.

    Attributes
    ----------
    test : {"calibration", "inputs", "act"}
        Which promise is broken: that confidence is honest, that inputs are as in the baseline, or
        that few of the acted predictions are wrong.
    batch : str
        The batch in which it happened.
    rows : int
        How many rows the test had seen then.
    evidence : float
        The evidence, as a factor: 40 means that the bets have multiplied their capital by 40.
    """

    test: Literal["calibration", "inputs", "act"]
    batch: str
    rows: int
    evidence: float


@dataclass(frozen=True)
class Source(Record):
    """A part of the rows from which evidence comes.

    Attributes
    ----------
    name : str
        All predictions, a band of confidence, a predicted class or a group.
    share : float
        Its share of the evidence.
    direction : {"too high", "too low"}
        Whether the confidence is too high or too low there.
    since : int
        The labelled row from which the evidence grew, in steps of 250.
    """

    name: str
    share: float
    direction: Literal["too high", "too low"]
    since: int


@dataclass(frozen=True)
class Period:
    """One batch: what was added, and where the tests stood afterwards.

    Attributes
    ----------
    name : str
        The batch's name.
    rows, labelled, repeated, unknown : int
        New rows; rows whose label was counted; rows left out because they, or a row of their
        cluster, were counted before; and labels of rows that were never added.
    confidence : float
        Mean confidence of the new rows: the accuracy they imply.
    changed : int or None
        Predictions that the direct probabilities would have changed, if they were passed.
    band_rows, band_confidence, band_correct : tuple
        By band of confidence: labelled rows, their summed confidence and how many were right.
    predicted : tuple of int
        New rows by predicted class.
    calibration_evidence, input_evidence, act_evidence : float
        The evidence of each test after the batch, as natural logarithms; of the last one None
        without a certificate.
    gap : tuple of float
        The interval for mean confidence minus accuracy after the batch.
    """

    name: str
    rows: int
    labelled: int
    repeated: int
    unknown: int
    confidence: float
    changed: int | None
    band_rows: tuple[int, ...]
    band_confidence: tuple[float, ...]
    band_correct: tuple[int, ...]
    predicted: tuple[int, ...]
    calibration_evidence: float
    input_evidence: float
    act_evidence: float | None
    gap: tuple[float, float]


@dataclass(frozen=True)
class LabelledBatch(Record):
    """Accuracy and confidence of a batch with labels, side by side.

    Attributes
    ----------
    name : str
        The batch's name.
    rows : int
        Rows whose label was counted.
    accuracy, confidence : float
        The share of them that are right, and their mean confidence.
    """

    name: str
    rows: int
    accuracy: float
    confidence: float

    @classmethod
    def of(cls, period: Period) -> LabelledBatch:
        """Summarise a batch that has labels."""
        sums = (sum(period.band_correct), sum(period.band_confidence))
        return cls(period.name, period.labelled, *(total / period.labelled for total in sums))


@dataclass(frozen=True)
class MonitorStatus(Record):
    """What a monitor knows now.

    Attributes
    ----------
    verdict : {"holds", "alarm", "cannot tell"}
        ``"alarm"`` from the first alarm until it is acknowledged; ``"cannot tell"`` before the
        first row, and before the first after an acknowledgement.
    rows, labelled, waiting, dropped : int
        Rows seen and rows whose label was counted since the tests began; rows that wait for a
        label; and rows that no longer do, because newer ones took their place.
    calibration_evidence, input_evidence : float
        The evidence of both tests as a factor.
    limit : float
        The evidence at which a test raises an alarm: the number of tests over α.
    gap : float or None
        Mean confidence minus accuracy of the labelled rows.
    gap_interval : tuple of float
        An interval for it that holds at every look together, with probability 1 − α.
    confidence : float or None
        Mean confidence of the latest batch with new rows.
    latest : LabelledBatch or None
        The latest batch with labels.
    changed : int or None
        Predictions of that batch that the direct probabilities would have changed.
    sources : tuple of Source
        Where evidence against calibration comes from, if there is an alarm.
    alarms : tuple of Alarm
        Alarms that were not acknowledged.
    act_evidence : float or None
        The evidence that more acted predictions are wrong than promised; None without a
        certificate.
    acted : int
        Acted rows whose label was counted.
    """

    verdict: VerdictName
    rows: int
    labelled: int
    waiting: int
    dropped: int
    calibration_evidence: float
    input_evidence: float
    limit: float
    gap: float | None
    gap_interval: tuple[float, float]
    confidence: float | None
    latest: LabelledBatch | None
    changed: int | None
    sources: tuple[Source, ...]
    alarms: tuple[Alarm, ...]
    act_evidence: float | None = None
    acted: int = 0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _act_line(self, alarm: Alarm | None) -> str:
        if alarm is not None:
            return (
                f"ALARM: more acted predictions are wrong than certified, since {alarm.batch} "
                f"(evidence {factor(alarm.evidence)}, limit {self.limit:g}): ask instead of acting."
            )
        if not self.acted:
            return "No labels of acted rows yet: have some labelled (apply --add audit=2%)."
        return (
            f"The certificate holds: evidence against it {self.act_evidence:.2g} "
            f"({self.acted:,} labelled acted rows)."
        )

    def lines(self) -> list[str]:
        """Return the status in sentences, the verdict first."""
        if self.verdict == "cannot tell":
            return ["Cannot tell: no rows were added since the tests started."]
        lines = []
        raised = {alarm.test: alarm for alarm in self.alarms}
        if "calibration" in raised:
            alarm = raised["calibration"]
            lines.append(
                f"ALARM: the confidence no longer holds, since {alarm.batch} (evidence "
                f"{factor(alarm.evidence)} then, {factor(self.calibration_evidence)} now, "
                f"limit {self.limit:g})."
            )
            lines += [
                f"  {100 * source.share:.0f} % of this evidence comes from {source.name}: "
                f"confidence {source.direction} since about labelled row {source.since:,}."
                for source in self.sources
            ]
        elif self.labelled:
            lines.append(
                f"The confidence holds: evidence against it {self.calibration_evidence:.2g}, "
                f"an alarm needs {self.limit:g}."
            )
        else:
            lines.append("No labels yet, so nothing is known about the confidence.")
        if "inputs" in raised:
            alarm = raised["inputs"]
            lines.append(
                f"ALARM: the inputs have changed, since {alarm.batch} (evidence "
                f"{factor(alarm.evidence)} then, {factor(self.input_evidence)} now, limit "
                f"{self.limit:g}). That does not mean that the confidence is wrong: get labels "
                f"for some of the new rows."
            )
        else:
            lines.append(
                f"The inputs look as before: evidence of a change {self.input_evidence:.2g}."
            )
        if self.act_evidence is not None:
            lines.append(self._act_line(raised.get("act")))
        if self.gap is not None:
            low, high = map(points, self.gap_interval)
            lines.append(
                f"Confidence minus accuracy: {points(self.gap)} points, between {low} "
                f"and {high} however often you look ({self.labelled:,} labelled rows)."
            )
        if self.latest is not None:
            lines.append(
                f"The latest labelled batch, {self.latest.name}: accuracy "
                f"{100 * self.latest.accuracy:.1f} %, mean confidence "
                f"{100 * self.latest.confidence:.1f} %."
            )
        elif self.confidence is not None:
            lines.append(
                f"If the confidence holds, the accuracy of the latest batch is "
                f"{100 * self.confidence:.1f} %; labels would show it."
            )
        if self.changed is not None:
            lines.append(
                f"Without the repair {self.changed:,} of its predictions would have changed."
            )
        if self.waiting:
            lines.append(f"{self.waiting:,} rows wait for their labels.")
        if self.dropped:
            lines.append(
                f"{self.dropped:,} older rows no longer wait: newer ones took their place."
            )
        return lines


# Bounds between bands of confidence: finer towards one, where most classifiers report.
BAND_EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def factor(evidence: float) -> str:
    """Return evidence as a factor, large ones as a power of ten.

    Examples
    --------
    >>> factor(42.7), factor(3.1e17)
    ('42.7', '10^17.5')
    """
    return f"{evidence:.3g}" if evidence < 1e6 else f"10^{math.log10(evidence):.3g}"


def points(share: float) -> str:
    """Return a difference of shares in points with its sign; zero is never negative.

    Examples
    --------
    >>> points(0.0123), points(-0.0004)
    ('+1.2', '+0.0')
    """
    return f"{round(100.0 * share, 1) + 0.0:+.1f}"


def band_names() -> list[str]:
    """Return the bands of confidence in percent.

    Examples
    --------
    >>> band_names()[0], band_names()[-1]
    ('below 50 %', '99 % or more')
    """
    edges = [f"{100 * edge:.0f} %" for edge in BAND_EDGES]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
    return [f"below {edges[0]}", *between, f"{edges[-1]} or more"]


@dataclass(frozen=True)
class MonitorHistory:
    """Everything that the page of a monitor shows.

    Attributes
    ----------
    status : MonitorStatus
        What is known now.
    periods : tuple of Period
        The batches in their order.
    class_names : tuple of str
        Names of the classes.
    baseline_shares : tuple of float
        The share of each predicted class in the baseline.
    baseline_rows : int
        Rows of the baseline.
    alpha, tolerance : float
        Settings of the monitor.
    """

    status: MonitorStatus
    periods: tuple[Period, ...]
    class_names: tuple[str, ...]
    baseline_shares: tuple[float, ...]
    baseline_rows: int
    alpha: float
    tolerance: float
