"""Cells: one fitted calibrator and the metrics of its outputs, computed once and stored.

A cell is stored under a hash of everything that it depends on: the digest of its data, the split,
the calibrator with its parameters, and the version. It contains the fitted calibrator (small, and
its outputs are the same to the bit) and the metrics by evaluation and repair; a study that
requests more repairs adds to it. A `Plan` lists the cells that a study needs.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal._validation.scores import original_probabilities
from cordcal._version import __version__
from cordcal.calibrators import Calibrator, calibrator_class, make
from cordcal.calibrators.adapters import adapted
from cordcal.files.disk import write_text
from cordcal.files.models import load, save
from cordcal.metrics import METRICS
from cordcal_study.calibrators import bind_features, unsuited
from cordcal_study.data import CLEAN, Rows, SetData, SetFacts, cached_set
from cordcal_study.imports import Imported
from cordcal_study.repairs import DIRECT, Measured, make_repair, measure
from cordcal_study.specs import SetSpec, Study

UNCALIBRATED = "uncalibrated"
"""The key of the original probabilities, without a calibrator."""

# Raised when what is measured, or how it is stored, changes between versions.
_FORMAT = 2

Requested = Mapping[str, tuple[str, ...]]
"""Repairs by evaluation."""


@dataclass(frozen=True, order=True)
class Fit:
    """What identifies a fitted calibrator within a study."""

    group: str
    set: str
    calibrator: str
    seed: int | None
    fraction: float = 1.0


@dataclass(frozen=True)
class Request:
    """A request of an experiment: some repairs of one fit on one evaluation."""

    fit: Fit
    evaluation: str
    repairs: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One cell to compute, as it is sent to a worker."""

    fit: Fit
    spec: SetSpec
    facts: SetFacts
    requested: Requested
    folder: Path
    own: Imported | None = None

    @property
    def name(self) -> str:
        """The label in the progress bar."""
        return f"{self.fit.set}, {self.fit.calibrator}"

    def cost(self) -> float:
        """Return the relative duration of the fit."""
        rows, classes, key = (
            self.facts.rows * self.fit.fraction,
            self.facts.classes,
            self.fit.calibrator,
        )
        counted = key != UNCALIBRATED and self.own is None
        square = calibrator_class(key).square_work if counted else 0.0
        return rows * classes * (1.0 + square * classes)

    def stored(self) -> Cell | None:
        """Return the cell if everything requested of it is on disk."""
        return stored(self)

    def compute(self) -> Cell:
        """Compute the cell and store it."""
        return compute(self)

    def address(self) -> str:
        """Return the hash of everything that the cell depends on."""
        key = self.fit.calibrator
        params = self._params(key)
        parts = {
            "format": _FORMAT,
            "version": __version__,
            "rows": self.facts.digests["rows"],
            "seed": self.fit.seed,
            "fraction": self.fit.fraction,
            "calibrator": key,
            "params": params,
            "measures": list(METRICS),
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _params(self, key: str) -> dict[str, Any]:
        if self.own is not None:
            return {"class": self.own.path, **self.own.params}
        return {} if key == UNCALIBRATED else calibrator_class(key)().get_params()

    def path(self, suffix: str) -> Path:
        """Return the file of the cell with this suffix."""
        address = self.address()
        return self.folder / address[:2] / f"{address}{suffix}"


@dataclass(frozen=True)
class Cell:
    """The contents of a cell: metrics by evaluation and repair, and the warnings of the fit."""

    measures: dict[str, dict[str, Measured]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failure: str | None = None


def merge(requests: Iterable[Request]) -> dict[Fit, dict[str, tuple[str, ...]]]:
    """Join the requests of all experiments, so that each fit is made once.

    Examples
    --------
    >>> fit = Fit("g", "s", "vs", 0)
    >>> merge([Request(fit, "clean", ("direct",)), Request(fit, "clean", ("direct", "cord"))])
    {Fit(group='g', set='s', calibrator='vs', seed=0, fraction=1.0): {'clean': ('direct', 'cord')}}
    """
    merged: dict[Fit, dict[str, tuple[str, ...]]] = {}
    for request in requests:
        requested = merged.setdefault(request.fit, {})
        before = requested.get(request.evaluation, ())
        requested[request.evaluation] = tuple(dict.fromkeys((*before, *request.repairs)))
    return merged


def stored(task: Task) -> Cell | None:
    """Return the cell if everything requested of it is on disk."""
    by_digest, notes = _read_measures(task)
    missing = any(
        repair not in by_digest.get(task.facts.digests[evaluation], {})
        for evaluation, repairs in task.requested.items()
        for repair in repairs
    )
    return None if missing else _cell(task, by_digest, notes)


def compute(task: Task) -> Cell:
    """Fit the calibrator unless it is on disk, measure what is missing, and store it.

    A calibrator that fails on the data is a result of the study, not its end.
    """
    by_digest, notes = _read_measures(task)
    data = cached_set(task.spec)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _measure_missing(task, data, by_digest)
    except (ValueError, ImportError) as error:
        return Cell(failure=str(error))
    except Exception as error:  # imported classes may raise anything
        if task.own is None:
            raise
        return Cell(failure=f"{task.own.path} failed ({type(error).__name__}: {error})")
    notes = tuple(dict.fromkeys((*notes, *(str(warning.message) for warning in caught))))
    path = task.path(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"notes": notes, "measures": by_digest}))
    return _cell(task, by_digest, notes)


def _read_measures(task: Task) -> tuple[dict[str, dict[str, Measured]], tuple[str, ...]]:
    path = task.path(".json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        measures, notes = content["measures"], content["notes"]
    except FileNotFoundError:
        return {}, ()
    except (ValueError, LookupError, TypeError, RecursionError):
        measures = notes = None
    if not isinstance(measures, dict) or not isinstance(notes, list):
        raise InputError(str(path), "is not a cell of a study", "remove it to compute it again")
    return measures, tuple(notes)


def _cell(task: Task, by_digest: dict[str, dict[str, Measured]], notes: tuple[str, ...]) -> Cell:
    measures = {name: by_digest[task.facts.digests[name]] for name in task.requested}
    return Cell(measures, notes)


def _measure_missing(task: Task, data: SetData, by_digest: dict[str, dict[str, Measured]]) -> None:
    """Add the missing metrics to ``by_digest``; each output and each repair is made once."""
    fit = task.fit
    calibrator = None
    if fit.calibrator != UNCALIBRATED:
        calibrator = _fit_or_load(task, data)
    missing = {
        name: [
            repair
            for repair in repairs
            if repair not in by_digest.get(task.facts.digests[name], {})
        ]
        for name, repairs in task.requested.items()
    }
    repairs: dict[str, Any] = {}
    if any(repair != DIRECT for names in missing.values() for repair in names):
        rows = data.calibration(fit.seed, fit.fraction)
        original, prediction, direct = _outputs(calibrator, rows, data.kind)
        for name in dict.fromkeys(
            repair_name for names in missing.values() for repair_name in names
        ):
            if name != DIRECT:
                repair = make_repair(name, data.classes)
                repairs[name] = repair.fit(original, direct, prediction=prediction)
    for evaluation, names in missing.items():
        if not names:
            continue
        rows = data.evaluated(fit.seed, evaluation)
        original, prediction, direct = _outputs(calibrator, rows, data.kind)
        measures = by_digest.setdefault(task.facts.digests[evaluation], {})
        for name in names:
            output = direct
            if name != DIRECT:
                output = repairs[name].transform(original, direct, prediction=prediction)
            measures[name] = measure(
                name, output, rows.labels, original=original, prediction=prediction, direct=direct
            )


def _fit_or_load(task: Task, data: SetData) -> Any:
    if task.own is not None:  # a model file cannot hold it, so it is fitted again
        calibrator = adapted(task.own.make(), data.kind)
        rows = data.calibration(task.fit.seed, task.fit.fraction)
        return calibrator.fit(rows.scores, rows.labels)
    path = task.path(".safetensors")
    if path.is_file():
        stored_calibrator: Calibrator = load(path)
        return stored_calibrator
    rows = data.calibration(task.fit.seed, task.fit.fraction)
    calibrator = bind_features(make(task.fit.calibrator, input=data.kind), rows, data.kind)
    calibrator.fit(rows.scores, rows.labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(calibrator, path)
    return calibrator


def _outputs(
    calibrator: Any, rows: Rows, kind: Kind
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Return the original probabilities, the predictions and the direct probabilities."""
    original = original_probabilities(rows.scores, kind)
    prediction = rows.scores.argmax(axis=1)
    if calibrator is None:
        return original, prediction, original
    direct = bind_features(calibrator, rows, kind).predict_proba(rows.scores)
    return original, prediction, direct


SetKey = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Plan:
    """A study and the facts about its sets, from which experiments list the cells they need."""

    study: Study
    sets: Mapping[SetKey, SetFacts]

    def facts(self, spec: SetSpec) -> SetFacts:
        """Return what is known of a set."""
        return self.sets[spec.group, spec.name]

    def splits(self, spec: SetSpec) -> tuple[int | None, ...]:
        """Return the seeds of a set's splits, or None alone where the split is given."""
        if spec.paired:
            return (None,)
        return self.study.seeds if spec.seeds is None else spec.seeds

    def bases(self, spec: SetSpec) -> list[str]:
        """Return the bases that run on a set."""
        keys = self.study.calibrators if spec.calibrators is None else spec.calibrators
        return [key for key in keys if key not in self.left_out(spec)]

    def rivals(self, spec: SetSpec) -> list[str]:
        """Return the calibrators that keep predictions by construction and run on a set."""
        return [key for key in self.study.rivals if key not in self.left_out(spec)]

    def left_out(self, spec: SetSpec) -> dict[str, str]:
        """Return what does not run on a set, and why."""
        facts = self.facts(spec)
        named = spec.calibrators or ()
        every = dict.fromkeys((*self.study.calibrators, *self.study.rivals))
        keys = [key for key in every if key not in self.study.own]
        reasons = unsuited(keys, facts.classes, features=facts.features)
        reasons = {key: why for key, why in reasons.items() if key not in named}
        if spec.calibrators is not None:
            for key in self.study.calibrators:
                if key not in named:
                    reasons.setdefault(key, "the study file does not name it for this set")
        return reasons

    def requests(
        self,
        keys: Mapping[SetKey, Sequence[str]],
        repairs: tuple[str, ...],
        *,
        fractions: Sequence[float] = (1.0,),
        evaluations: Mapping[SetKey, Sequence[str]] | None = None,
    ) -> Iterator[Request]:
        """Yield the requests for these calibrators of each set, on every split."""
        for spec in self.study.sets:
            place = (spec.group, spec.name)
            names = (CLEAN,) if evaluations is None else evaluations.get(place, ())
            for seed in self.splits(spec):
                for key in keys.get(place, ()):
                    for fraction in fractions:
                        for name in names:
                            yield Request(Fit(*place, key, seed, fraction), name, repairs)

    def all_bases(self) -> dict[SetKey, list[str]]:
        """Return the bases of every set."""
        return {(spec.group, spec.name): self.bases(spec) for spec in self.study.sets}

    def uncalibrated(self) -> Iterator[Request]:
        """Yield the requests for the original probabilities."""
        yield from self.requests(dict.fromkeys(self.sets, (UNCALIBRATED,)), (DIRECT,))
