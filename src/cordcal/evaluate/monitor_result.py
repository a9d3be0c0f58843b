"""What a `cordcal.Monitor` reports: its status, alarms and the record of each batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

VerdictName = Literal["holds", "alarm", "cannot tell"]


@dataclass(frozen=True)
class Alarm:
    """When a test's evidence crossed its limit.

    Attributes
    ----------
    test : {"calibration", "inputs"}
        Which promise is broken: that confidence is honest, or that inputs are as in the baseline.
    batch : str
        The batch in which it happened.
    rows : int
        How many rows the test had seen then.
    evidence : float
        The evidence, as a factor: 40 means that the bets have multiplied their capital by 40.
    """

    test: Literal["calibration", "inputs"]
    batch: str
    rows: int
    evidence: float


@dataclass(frozen=True)
class Source:
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
    rows, labelled, repeated : int
        New rows, rows whose label was counted, and rows left out because they were known.
    confidence : float
        Mean confidence of the new rows: the accuracy they imply.
    changed : int or None
        Predictions that the direct probabilities would have changed, if they were passed.
    band_rows, band_confidence, band_correct : tuple
        By band of confidence: labelled rows, their summed confidence and how many were right.
    predicted : tuple of int
        New rows by predicted class.
    calibration_evidence, input_evidence : float
        The evidence of both tests after the batch, as natural logarithms.
    gap : tuple of float
        The interval for mean confidence minus accuracy after the batch.
    """

    name: str
    rows: int
    labelled: int
    repeated: int
    confidence: float
    changed: int | None
    band_rows: tuple[int, ...]
    band_confidence: tuple[float, ...]
    band_correct: tuple[int, ...]
    predicted: tuple[int, ...]
    calibration_evidence: float
    input_evidence: float
    gap: tuple[float, float]


@dataclass(frozen=True)
class MonitorStatus:
    """What a monitor knows now.

    Attributes
    ----------
    verdict : {"holds", "alarm", "cannot tell"}
        ``"alarm"`` from the first alarm until it is acknowledged; ``"cannot tell"`` before the
        first row.
    rows, labelled, waiting : int
        Rows seen and rows whose label was counted since the tests began, and rows that wait for
        a label.
    calibration_evidence, input_evidence : float
        The evidence of both tests as a factor.
    limit : float
        The evidence at which a test raises an alarm, 2/α.
    gap : float or None
        Mean confidence minus accuracy of the labelled rows.
    gap_interval : tuple of float
        An interval for it that holds at every look together, with probability 1 − α.
    confidence : float or None
        Mean confidence of the latest batch with new rows: the accuracy it implies.
    changed : int or None
        Predictions of that batch that the direct probabilities would have changed.
    sources : tuple of Source
        Where evidence against calibration comes from, if there is an alarm.
    alarms : tuple of Alarm
        Alarms that were not acknowledged.
    """

    verdict: VerdictName
    rows: int
    labelled: int
    waiting: int
    calibration_evidence: float
    input_evidence: float
    limit: float
    gap: float | None
    gap_interval: tuple[float, float]
    confidence: float | None
    changed: int | None
    sources: tuple[Source, ...]
    alarms: tuple[Alarm, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain Python values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the status in sentences, the verdict first."""
        if self.verdict == "cannot tell":
            return ["Cannot tell: no rows were added yet."]
        lines = []
        raised = {alarm.test: alarm for alarm in self.alarms}
        if "calibration" in raised:
            alarm = raised["calibration"]
            lines.append(
                f"ALARM: the confidence no longer holds, since {alarm.batch} "
                f"(evidence {alarm.evidence:.3g}, limit {self.limit:g})."
            )
            lines += [
                f"  {source.share:.0%} of it from {source.name}: confidence {source.direction}, "
                f"growing since labelled row {source.since:,}"
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
                f"{alarm.evidence:.3g}, limit {self.limit:g}). That does not mean that the "
                f"confidence is wrong: get labels for some of the new rows."
            )
        else:
            lines.append(
                f"The inputs look as before: evidence of a change {self.input_evidence:.2g}."
            )
        if self.gap is not None:
            low, high = (100.0 * end for end in self.gap_interval)
            lines.append(
                f"Confidence minus accuracy: {100.0 * self.gap:+.1f} points, between {low:+.1f} "
                f"and {high:+.1f} however often you look ({self.labelled:,} labelled rows)."
            )
        if self.confidence is not None:
            lines.append(f"The latest batch implies an accuracy of {self.confidence:.1%}.")
        if self.changed is not None:
            lines.append(
                f"Without the repair {self.changed:,} of its predictions would have changed."
            )
        if self.waiting:
            lines.append(f"{self.waiting:,} rows wait for their labels.")
        return lines
