"""What a study file says, as records: the sets, the league, the whole study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from cordcal._numeric.types import Kind
from cordcal.calibrators import available, calibrator_class
from cordcal.calibrators.adapters import Imported
from cordcal.calibrators.registry import of_role

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
"""The paper's experiments: what a study runs that does not say."""
OWN_EXPERIMENTS = ("league", "answers")
"""Those that need a table of their own in the study file."""
Unit = Literal["classifiers", "conditions"]
"""What intervals over many conditions resample."""
UNITS = get_args(Unit)
SEEDS = (0, 1, 2, 3, 4)
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def usual_rivals() -> tuple[str, ...]:
    """Return the rivals of a study that names none: no network that scores alone would train."""
    classes = {key: calibrator_class(key) for key in of_role("rival")}
    return tuple(
        key for key, found in classes.items() if found.needs_features or not found.needs_torch
    )


@dataclass(frozen=True)
class Shifted:
    """The same rows as its set's, in the same order, under a shift.

    A file may hold several severities below each other; ``part`` and ``parts`` say which of
    how many this is.
    """

    kind: str
    severity: int
    file: Path
    part: int = 0
    parts: int = 1

    @property
    def name(self) -> str:
        """What the evaluation is called in tables."""
        return f"{self.kind} {self.severity}"


@dataclass(frozen=True)
class SetSpec:
    """One set of outputs: a classifier on a data set.

    Attributes
    ----------
    name, group : str
        The classifier, and the data set it belongs to in tables.
    file : Path
        The rows to split, or to calibrate on where ``evaluation`` is given.
    evaluation : Path or None
        The rows to evaluate on; then there is one split, the given one.
    input : str or None
        What the scores are, where the file does not make it plain.
    key, labels : str or None
        Where the scores and labels are, as for `cordcal.files.read_scores`.
    features : Path or None
        A file of penultimate features of the same rows.
    scale : float
        What the logits are multiplied by.
    seeds : tuple of int or None
        The splits of this set, where not the study's.
    calibrators : tuple of str or None
        The bases to run here, where not the study's.
    shifted : tuple of Shifted
        Files for the experiment ``shift``.
    experiment : str or None
        A calibration and an evaluation part in one HDF5 file, by the path of their group.
    source : str
        What the rows are made of; sets of one source share their images or texts.
    family : str
        The kind of classifier, for the league's advice.
    league, networks : bool
        Whether it plays in the league, and whether maps that are networks play there, too.
    place : str
        Where the study file speaks of it, for messages.
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
    league: bool = True
    networks: bool = False
    place: str = ""

    @property
    def paired(self) -> bool:
        """Whether the rows to evaluate on are given, so that there is one way to split."""
        return self.evaluation is not None or self.experiment is not None

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that its rows are read from."""
        labels = () if self.labels is None else (Path(self.labels),)  # or a key
        others = (self.evaluation, self.features, *(each.file for each in self.shifted))
        return (self.file, *labels, *(each for each in others if each is not None))


@dataclass(frozen=True)
class Claim:
    """What a report of the league is to show, written down before the run.

    Attributes
    ----------
    text : str
        The claim in words.
    report : str
        The report it is about, such as ``"blend + lift"``.
    against : tuple of str
        Other reports, or ``"keepers"`` or ``"all"`` for all of these.
    measure : str
        The loss that decides who wins.
    groups : tuple of str
        The groups it is about; all where empty.
    """

    text: str
    report: str
    against: tuple[str, ...]
    measure: str = "nll"
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class League:
    """How the league is played.

    Attributes
    ----------
    rows : tuple of int or "all"
        Calibration rows of each round; ``"all"`` is half of a set, or a given calibration file.
    seeds : tuple of int
        The splits.
    calibrators : tuple of str
        Who plays.
    most_rows, most_evaluation : int
        At most so many rows are fitted and evaluated on, drawn at random.
    most_classes : mapping of str to int
        Up to how many classes a calibrator plays, where its fits take too long beyond.
    duels : tuple of str
        Reports that are shown against every other one.
    claims : tuple of Claim
        What was expected.
    """

    rows: tuple[int | Literal["all"], ...] = (300, 1000, "all")
    seeds: tuple[int, ...] = (0, 1, 2)
    calibrators: tuple[str, ...] = field(default_factory=available)
    most_rows: int = 5000
    most_evaluation: int = 10_000
    most_classes: Mapping[str, int] = field(default_factory=dict)
    duels: tuple[str, ...] = ("blend + lift",)
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Study:
    """A whole study file, checked but for the contents of its data files."""

    title: str
    sets: tuple[SetSpec, ...]
    seeds: tuple[int, ...] = SEEDS
    calibrators: tuple[str, ...] = field(default_factory=lambda: of_role("base"))
    rivals: tuple[str, ...] = field(default_factory=usual_rivals)
    experiments: tuple[str, ...] = EXPERIMENTS
    format: Literal["csv", "parquet"] = "csv"
    fractions: tuple[float, ...] = FRACTIONS
    size_groups: tuple[str, ...] | None = None
    size_calibrators: tuple[str, ...] | None = None
    rival_groups: tuple[str, ...] | None = None
    resample: Unit = "classifiers"
    league: League | None = None
    answers: tuple[str, ...] = ()
    own: Mapping[str, Imported] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in the order of the file."""
        return tuple(dict.fromkeys(each.group for each in self.sets))

    def in_group(self, group: str) -> tuple[SetSpec, ...]:
        """Return the sets of one group."""
        return tuple(each for each in self.sets if each.group == group)
