"""The settings of a study: its sets, its benchmark, everything together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cordcal._numeric.types import Kind
from cordcal.calibrators import calibrator_class
from cordcal_study.calibrators import NEED_FEATURES, available, of_role
from cordcal_study.imports import Imported

EXPERIMENTS = (
    "main",
    "paired",
    "floor",
    "minimal",
    "targets",
    "lambda",
    "ranking",
    "size",
    "shift",
    "rivals",
    "runtime",
)
"""The paper's experiments, which a study runs by default."""
OWN_EXPERIMENTS = ("benchmark", "answers")
"""Experiments that need a table of their own in the study file."""
Unit = Literal["classifiers", "conditions"]
"""What intervals over many conditions resample."""
ClaimMetric = Literal["nll", "brier", "ece"]
SEEDS = (0, 1, 2, 3, 4)
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def usual_keys(role: Literal["base", "rival"]) -> tuple[str, ...]:
    """Return the default bases or rivals: none that is trained for minutes on scores alone."""
    classes = {key: calibrator_class(key) for key in of_role(role)}
    return tuple(key for key, cls in classes.items() if key in NEED_FEATURES or cls.extra is None)


@dataclass(frozen=True)
class Shifted:
    """The rows of a set under a shift, in the same order.

    A file may stack several severities; this is number ``part`` of ``parts``.
    """

    kind: str
    severity: int
    file: Path
    part: int = 0
    parts: int = 1

    @property
    def name(self) -> str:
        """The name of the evaluation in tables."""
        return f"{self.kind} {self.severity}"


@dataclass(frozen=True)
class SetSpec:
    """One set of outputs: a classifier on a data set.

    Attributes
    ----------
    name, group : str
        The classifier, and the data set it belongs to in tables.
    file : Path
        The rows to split, or to calibrate on if ``evaluation`` is given.
    evaluation : Path or None
        The rows to evaluate on; then there is one split, the given one.
    input : str or None
        What the scores are, if the file does not show it.
    key, labels : str or None
        Where the scores and labels are, as for `cordcal.files.read_scores`.
    features : Path or None
        A file of penultimate features of the same rows.
    scale : float
        A factor for the logits.
    seeds : tuple of int or None
        The splits of this set, if not those of the study.
    calibrators : tuple of str or None
        The base calibrators to run here, if not those of the study.
    shifted : tuple of Shifted
        Files for the experiment ``shift``.
    experiment : str or None
        A calibration and an evaluation part in one HDF5 file, by the path of their group.
    source : str
        The data behind the rows; sets of one source share their images or texts.
    family : str
        The kind of classifier, by which the benchmark groups sets.
    benchmark, networks : bool
        Whether the set is part of the benchmark, and whether networks run there too.
    place : str
        The line of the study file, for messages.
    """

    name: str
    group: str
    file: Path
    evaluation: Path | None = None
    input: Kind | None = None
    key: str | None = None
    labels: str | None = None
    features: Path | None = None
    scale: float = 1.0
    seeds: tuple[int, ...] | None = None
    calibrators: tuple[str, ...] | None = None
    shifted: tuple[Shifted, ...] = ()
    experiment: str | None = None
    source: str = ""
    family: str = "not stated"
    benchmark: bool = True
    networks: bool = False
    place: str = ""

    @property
    def paired(self) -> bool:
        """Whether the rows to evaluate on are given, so that there is only one split."""
        return self.evaluation is not None or self.experiment is not None

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that its rows are read from."""
        labels = () if self.labels is None else (Path(self.labels),)  # or a key
        others = (self.evaluation, self.features, *(shift.file for shift in self.shifted))
        return (self.file, *labels, *(other for other in others if other is not None))


@dataclass(frozen=True)
class Claim:
    """What an output of the benchmark should show, written before the run.

    Attributes
    ----------
    text : str
        The claim in words.
    output : str
        The output it is about, such as ``"blend + lift"``.
    against : tuple of str
        Other outputs; ``"preserving"`` means all that change no prediction, ``"all"`` all.
    metric : str
        The loss by which outputs are compared.
    groups : tuple of str
        The groups it is about; all if empty.
    """

    text: str
    output: str
    against: tuple[str, ...]
    metric: ClaimMetric = "nll"
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """The settings of the benchmark.

    Attributes
    ----------
    rows : tuple of int or "all"
        Numbers of calibration rows; ``"all"`` is half of a set, or a given calibration file.
    seeds : tuple of int
        The splits.
    calibrators : tuple of str
        The calibrators to compare.
    max_rows, max_evaluation_rows : int
        Larger sets are reduced to so many rows, drawn at random.
    max_classes : mapping of str to int
        Calibrators that take too long beyond a number of classes, with that number.
    comparisons : tuple of str
        Outputs that get a table of comparisons with every other one.
    claims : tuple of Claim
        What was expected.
    """

    rows: tuple[int | Literal["all"], ...] = (300, 1000, "all")
    seeds: tuple[int, ...] = (0, 1, 2)
    calibrators: tuple[str, ...] = field(default_factory=available)
    max_rows: int = 5000
    max_evaluation_rows: int = 10_000
    max_classes: Mapping[str, int] = field(default_factory=dict)
    comparisons: tuple[str, ...] = ("blend + lift",)
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Study:
    """The settings of a study, checked except for the contents of its data files."""

    title: str
    sets: tuple[SetSpec, ...]
    seeds: tuple[int, ...] = SEEDS
    calibrators: tuple[str, ...] = field(default_factory=lambda: usual_keys("base"))
    rivals: tuple[str, ...] = field(default_factory=lambda: usual_keys("rival"))
    experiments: tuple[str, ...] = EXPERIMENTS
    format: Literal["csv", "parquet"] = "csv"
    fractions: tuple[float, ...] = FRACTIONS
    size_groups: tuple[str, ...] | None = None
    size_calibrators: tuple[str, ...] | None = None
    rival_groups: tuple[str, ...] | None = None
    resample: Unit = "classifiers"
    benchmark: Benchmark | None = None
    answers: tuple[str, ...] = ()
    own: Mapping[str, Imported] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in the order of the file."""
        return tuple(dict.fromkeys(spec.group for spec in self.sets))

    def in_group(self, group: str) -> tuple[SetSpec, ...]:
        """Return the sets of one group."""
        return tuple(spec for spec in self.sets if spec.group == group)
