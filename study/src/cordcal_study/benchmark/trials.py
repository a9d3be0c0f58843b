"""The trials of a benchmark and their schedule.

A trial runs all calibrators on the rows of one set, split and size. Each is fitted once on all
rows and once per fold; lift and blend share these fits. A trial is stored under a hash of
everything that it depends on, as a cell is, so that it is computed only once.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._validation.scores import CheckedScores
from cordcal._version import __version__
from cordcal.calibrators import calibrator_class, make
from cordcal.calibrators.adapters import fit_calibrator, predict_calibrated
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.crossfit import FOLDS, FitCache, Folds
from cordcal.evaluate.constraint_cost import lower_end
from cordcal.files.disk import write_text
from cordcal.repair import CORD, Lift
from cordcal.repair.lift import Masses
from cordcal_study.calibrators import NEED_FEATURES, bind_features, is_network, unsuited
from cordcal_study.cells import UNCALIBRATED, Plan
from cordcal_study.data import Rows, SetFacts, cached_set
from cordcal_study.repairs import CORDS, DIRECT, LIFT, LIKELY, Measured, measure_plainly
from cordcal_study.specs import Benchmark, SetSpec

# Raised when what is measured, or how it is stored, changes between versions.
_FORMAT = 1
# A lift needs a fit for every fold and one on all rows.
_FITS = FOLDS + 1

Matrix = npt.NDArray[np.float64]


class Output(NamedTuple):
    """The probabilities of a calibrator, direct or repaired."""

    calibrator: str
    repair: str = DIRECT

    @property
    def name(self) -> str:
        """The name in a study file.

        Examples
        --------
        >>> Output("sms").name, Output("blend", "lift").name
        ('sms', 'blend + lift')
        """
        return self.calibrator if self.repair == DIRECT else f"{self.calibrator} + {self.repair}"


ORIGINAL = Output(UNCALIBRATED)


@dataclass(frozen=True, order=True)
class Trial:
    """What identifies a trial within a study."""

    group: str
    set: str
    rows: str
    seed: int


@dataclass(frozen=True)
class TrialResult:
    """The metrics of every output of a trial, and why calibrators failed."""

    measures: dict[Output, Measured] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialTask:
    """One trial to compute, as it is sent to a worker."""

    trial: Trial
    spec: SetSpec
    facts: SetFacts
    calibrators: tuple[str, ...]
    repairs: tuple[str, ...]
    max_rows: int
    max_evaluation_rows: int
    folder: Path

    @property
    def name(self) -> str:
        """The label in the progress bar."""
        return f"{self.trial.set}, {self.trial.rows} rows"

    def cost(self) -> float:
        """Return the relative duration."""
        rows, classes = min(self.max_rows, self.facts.halves[0]), self.facts.classes
        square = sum(calibrator_class(key).square_work for key in self.calibrators)
        return _FITS * rows * classes * (len(self.calibrators) + square * classes)

    def path(self) -> Path:
        """Return the file of the trial, named by a hash of what the trial depends on."""
        parts = {
            "format": _FORMAT,
            "version": __version__,
            "rows": self.facts.digests["rows"],
            "evaluation": self.facts.digests["clean"],
            "seed": self.trial.seed,
            "most": [self.max_rows, self.max_evaluation_rows],
            "calibrators": {key: calibrator_class(key)().get_params() for key in self.calibrators},
            "repairs": self.repairs,
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        address = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self.folder / address[:2] / f"{address}.trial.json"

    def stored(self) -> TrialResult | None:
        """Return the trial if it is on disk."""
        path = self.path()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            measures = {
                Output(*name.split("|")): values for name, values in content["measures"].items()
            }
            return TrialResult(measures, dict(content["refused"]))
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            hint = "remove it to compute it again"
            raise InputError(str(path), "is not a trial of a study", hint) from None

    def compute(self) -> TrialResult:
        """Run the trial and store it; that a calibrator fails on the rows is a result too."""
        data = cached_set(self.spec)
        fit, evaluation = data.drawn(self.trial.seed, self.max_rows, self.max_evaluation_rows)
        result = _TrialRows.of(fit, evaluation, data.kind).run(self.calibrators, self.repairs)
        content = {
            "measures": {"|".join(output): values for output, values in result.measures.items()},
            "refused": result.refused,
        }
        path = self.path()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content))
        return result


@dataclass(frozen=True, eq=False)
class _TrialRows:
    """The rows of a trial and the fits on them."""

    fit_cache: FitCache
    fit: CheckedScores
    original: CheckedScores
    calibration: Rows
    evaluation: Rows

    @classmethod
    def of(cls, calibration: Rows, evaluation: Rows, kind: Any) -> _TrialRows:
        fit = CheckedScores.from_scores(calibration.scores, kind, fitting=True)
        labels = calibration.labels
        fit_cache = FitCache(fit, labels, None, Folds.of(fit.comparable(), labels, FOLDS, seed=0))
        return cls(
            fit_cache,
            fit,
            CheckedScores.from_scores(evaluation.scores, kind),
            calibration,
            evaluation,
        )

    def run(self, calibrators: tuple[str, ...], repairs: tuple[str, ...]) -> TrialResult:
        """Measure every output of every calibrator."""
        original = self.original.probabilities
        measures = {ORIGINAL: self._measured(DIRECT, original, original)}
        refused: dict[str, str] = {}
        for key in calibrators:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the other chapters list the warnings of fits
                    outputs = {
                        Output(key, repair): measured
                        for repair, measured in self._outputs(key, repairs)
                    }
            except (ValueError, ArithmeticError, RuntimeError, ImportError) as error:
                refused[key] = str(error)
            else:
                measures |= outputs
        return TrialResult(measures, refused)

    def _outputs(self, key: str, repairs: tuple[str, ...]) -> Iterator[tuple[str, Measured]]:
        started = perf_counter()
        model = self._fitted(key)
        bind_features(model, self.evaluation, self.fit.kind)
        direct = predict_calibrated(model, self.original)
        direct = np.asarray(direct, dtype=np.float64)
        seconds = model.seconds_ if isinstance(model, Blend) else perf_counter() - started
        yield DIRECT, {**self._measured(DIRECT, direct, direct), "seconds": seconds}
        if calibrator_class(key).keeps_argmax:
            return
        rows = (self.fit.probabilities, predict_calibrated(model, self.fit))
        masses = self._masses(key, model)
        for repair in repairs:
            if repair == CORDS:
                tool: CORD | Lift = CORD(threads=1).fit_checked(*rows, self.fit.prediction, None)
            elif masses is None:
                continue
            else:
                lift = Lift("likelihood" if repair == LIKELY else "confidence")
                labels = self.calibration.labels
                tool = lift.fit_checked(*rows, labels, self.fit.prediction, None, held_out=masses)
            at = self.original
            output = tool.transform(at.probabilities, direct, prediction=at.prediction)
            yield repair, self._measured(repair, output, direct)

    def _fitted(self, key: str) -> Any:
        if key in NEED_FEATURES:
            model = bind_features(make(key, input=self.fit.kind), self.calibration, self.fit.kind)
            return fit_calibrator(model, self.fit, self.calibration.labels, None)
        if key == Blend.key:
            blend = Blend(input=self.fit.kind)
            blend.fit_from(self.fit_cache)
            return blend
        return self.fit_cache.fit(key).model

    def _masses(self, key: str, model: Any) -> Masses | None:
        """Return the out-of-fold probabilities of the predicted classes, if there are any."""
        if isinstance(model, Blend):
            return model.held_out_.masses
        candidate, _ = self.fit_cache.candidate(key)
        return None if candidate is None else candidate.held_out.masses

    def _measured(self, repair: str, output: Matrix, direct: Matrix) -> Measured:
        prediction, labels = self.original.prediction, self.evaluation.labels
        _, measured = measure_plainly(repair, output, labels, prediction)
        if repair != DIRECT:
            measured |= measure_bound(output, direct, prediction, labels)
        return measured


# A repair stays slightly above the least mass, where two classes would tie.
_AT_END = 1e-9


def measure_bound(
    output: Matrix, direct: Matrix, prediction: Any, labels: Any
) -> Mapping[str, float]:
    """Measure the rows whose prediction has the least probability that keeps it on top."""
    sure = output[np.arange(len(prediction)), prediction]
    there = sure <= lower_end(direct, prediction)[2] + _AT_END
    share = float(there.mean())
    right = (prediction == labels).astype(np.float64)
    gap = float((sure - right)[there].mean()) if share else 0.0
    return {"at_bound": share, "bound_gap": gap, "gap": float((sure - right).mean())}


ALL, PRESERVING = "all", "preserving"


def left_out(plan: Plan, benchmark: Benchmark, spec: SetSpec) -> dict[str, str]:
    """Return the calibrators that do not run on a set, and why."""
    facts = plan.facts(spec)
    reasons = unsuited(benchmark.calibrators, facts.classes, features=facts.features)
    for key in benchmark.calibrators:
        limit = benchmark.max_classes.get(key)
        if limit is not None and facts.classes > limit:
            reasons.setdefault(key, f"takes too long beyond {limit} classes")
        if is_network(key) and not spec.networks:
            reasons.setdefault(key, "networks run only on sets with networks = true")
    return reasons


def schedule(plan: Plan, folder: Path) -> list[TrialTask]:
    """Return the schedule: all trials of a study's benchmark."""
    benchmark = plan.study.benchmark
    if benchmark is None:
        return []
    return [
        task
        for spec in plan.study.sets
        if spec.benchmark
        for task in _of_set(plan, benchmark, spec, folder)
    ]


def _of_set(plan: Plan, benchmark: Benchmark, spec: SetSpec, folder: Path) -> Iterator[TrialTask]:
    facts = plan.facts(spec)
    missing = left_out(plan, benchmark, spec)
    keys = tuple(key for key in benchmark.calibrators if key not in missing)
    repairs = (CORDS, LIFT, *((LIKELY,) if spec.group in plan.study.answers else ()))
    available, evaluated = facts.halves
    for rows in benchmark.rows:
        count = min(available, benchmark.max_rows) if isinstance(rows, str) else rows
        if isinstance(rows, int) and rows >= available:
            continue  # the same as "all"
        # With a given split and no rows drawn, every seed would give the same trial.
        fixed = spec.paired and count == available and evaluated <= benchmark.max_evaluation_rows
        for seed in benchmark.seeds[:1] if fixed else benchmark.seeds:
            yield TrialTask(
                Trial(spec.group, spec.name, str(rows), seed),
                spec,
                facts,
                keys,
                repairs,
                count,
                benchmark.max_evaluation_rows,
                folder,
            )


def possible_outputs(keys: tuple[str, ...]) -> list[str]:
    """Return the names of all outputs of a benchmark of these calibrators."""
    names = list(keys)
    for key in keys:
        if not calibrator_class(key).keeps_argmax:
            names += [f"{key} + {repair}" for repair in (CORDS, LIFT)]
    return names
