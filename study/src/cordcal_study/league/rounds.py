"""Rounds: all calibrators on the rows of one set, split and size, computed once and kept.

A fit on all rows and its out-of-fold fits are made once: lift and blend share them.  A round
is addressed by what it is made of, as a cell is.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._validation.scores import CheckedScores
from cordcal._version import __version__
from cordcal.calibrators import calibrator_class, make
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.crossfit import FOLDS, FitCache, Folds, fit_calibrator, predict_calibrated
from cordcal.evaluate.constraint_cost import at_end
from cordcal.files import replacing
from cordcal.repair import CORD, Lift
from cordcal.repair.kernels import Stopwatch
from cordcal.repair.lift import Masses
from cordcal_study.cells import UNCALIBRATED
from cordcal_study.data import Rows, SetFacts, cached_set
from cordcal_study.repairs import CAPPED, CORDS, DIRECT, Measured, measure_plainly
from cordcal_study.specs import SetSpec

# Raised when what is measured, or how it is stored, changes between versions.
_FORMAT = 1
# A lift takes a fit for every fold beside that on all rows.
_FITS = FOLDS + 1

Matrix = npt.NDArray[np.float64]


class Report(NamedTuple):
    """A calibrator's report: its own, or as a repair makes it."""

    calibrator: str
    repair: str = DIRECT

    @property
    def name(self) -> str:
        """What a study file calls it.

        Examples
        --------
        >>> Report("sms").name, Report("blend", "lift").name
        ('sms', 'blend + lift')
        """
        return self.calibrator if self.repair == DIRECT else f"{self.calibrator} + {self.repair}"


ORIGINAL = Report(UNCALIBRATED)


@dataclass(frozen=True, order=True)
class Round:
    """What identifies a round within a study."""

    group: str
    set: str
    rows: str
    seed: int


@dataclass(frozen=True)
class Played:
    """What a round holds: the measures of every report, and who could not play."""

    measures: dict[Report, Measured] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundTask:
    """One round to compute, as it travels to a worker."""

    round: Round
    spec: SetSpec
    facts: SetFacts
    calibrators: tuple[str, ...]
    repairs: tuple[str, ...]
    most_rows: int
    most_evaluation: int
    folder: Path

    @property
    def name(self) -> str:
        """What progress shows."""
        return f"{self.round.set}, {self.round.rows} rows"

    def cost(self) -> float:
        """Return how long it takes, relatively."""
        rows, classes = min(self.most_rows, self.facts.halves[0]), self.facts.classes
        square = sum(calibrator_class(key).square_work for key in self.calibrators)
        return _FITS * rows * classes * (len(self.calibrators) + square * classes)

    def path(self) -> Path:
        """Return the file of the round: the content is its address."""
        parts = {
            "format": _FORMAT,
            "version": __version__,
            "rows": self.facts.digests["rows"],
            "evaluation": self.facts.digests["clean"],
            "seed": self.round.seed,
            "most": [self.most_rows, self.most_evaluation],
            "calibrators": {key: calibrator_class(key)().get_params() for key in self.calibrators},
            "repairs": self.repairs,
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        address = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self.folder / address[:2] / f"{address}.round.json"

    def stored(self) -> Played | None:
        """Return the round if it is on disk."""
        path = self.path()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            measures = {
                Report(*name.split("|")): held for name, held in content["measures"].items()
            }
            return Played(measures, dict(content["refused"]))
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            hint = "remove it, and it is computed anew"
            raise InputError(str(path), "is no round of a study", hint) from None

    def compute(self) -> Played:
        """Play the round and store it; a calibrator that refuses the rows is a result, too."""
        data = cached_set(self.spec)
        fit, evaluation = data.drawn(self.round.seed, self.most_rows, self.most_evaluation)
        played = _Table.of(fit, evaluation, data.kind).play(self.calibrators, self.repairs)
        content = {
            "measures": {"|".join(report): held for report, held in played.measures.items()},
            "refused": played.refused,
        }
        path = self.path()
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(content), encoding="utf-8")
        return played


@dataclass(frozen=True, eq=False)
class _Table:
    """The rows of a round, with what was fitted on them."""

    fit_cache: FitCache
    fit: CheckedScores
    original: CheckedScores
    calibration: Rows
    evaluation: Rows

    @classmethod
    def of(cls, calibration: Rows, evaluation: Rows, kind: Any) -> _Table:
        fit = CheckedScores.from_scores(calibration.scores, kind, fitting=True)
        labels = calibration.labels
        fit_cache = FitCache(fit, labels, None, Folds.of(fit.raw, labels, FOLDS, seed=0))
        return cls(
            fit_cache,
            fit,
            CheckedScores.from_scores(evaluation.scores, kind),
            calibration,
            evaluation,
        )

    def play(self, calibrators: tuple[str, ...], repairs: tuple[str, ...]) -> Played:
        """Measure every report of every calibrator."""
        original = self.original.probabilities
        measures = {ORIGINAL: self._measured(DIRECT, original, original)}
        refused: dict[str, str] = {}
        for key in calibrators:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what fits warn of, the other chapters tell
                    found = {
                        Report(key, repair): measured
                        for repair, measured in self._reports(key, repairs)
                    }
            except (ValueError, ArithmeticError, RuntimeError, ImportError) as error:
                refused[key] = str(error)
            else:
                measures |= found
        return Played(measures, refused)

    def _reports(self, key: str, repairs: tuple[str, ...]) -> Iterator[tuple[str, Measured]]:
        watch = Stopwatch()
        model = self._fitted(key)
        direct = predict_calibrated(model, self.original, self._features(key, self.evaluation))
        direct = np.asarray(direct, dtype=np.float64)
        seconds = model.seconds_ if isinstance(model, Blend) else watch.seconds()
        yield DIRECT, {**self._measured(DIRECT, direct, direct), "seconds": seconds}
        if calibrator_class(key).keeps_argmax:
            return
        rows = (self.fit.probabilities, predict_calibrated(model, self.fit))
        masses = self._masses(key, model)
        for repair in repairs:
            if repair == CORDS:
                tool: CORD | Lift = CORD(threads=1)._fit_rows(*rows, self.fit.decision, None)
            elif masses is None:
                continue
            else:
                lift = Lift("cap" if repair == CAPPED else "raise")
                labels = self.calibration.labels
                tool = lift._fit(*rows, labels, self.fit.decision, None, held_out=masses)
            at = self.original
            report = tool.transform(at.probabilities, direct, decision=at.decision)
            yield repair, self._measured(repair, report, direct)

    def _fitted(self, key: str) -> Any:
        if calibrator_class(key).needs_features:
            model = make(key, input=self.fit.kind)
            beside = self._features(key, self.calibration)
            return fit_calibrator(model, self.fit, self.calibration.labels, None, beside)
        if key == Blend.key:
            blend = Blend(input=self.fit.kind)
            blend._fit_from(self.fit_cache)
            return blend
        return self.fit_cache.fit(key).model

    def _masses(self, key: str, model: Any) -> Masses | None:
        """Return what models that had not seen the rows put on the decisions, if they could."""
        if isinstance(model, Blend):
            return model.held_out_.masses
        found, _ = self.fit_cache.candidate(key)
        return None if found is None else found.held_out.masses

    def _features(self, key: str, rows: Rows) -> Any:
        return rows.features if calibrator_class(key).needs_features else None

    def _measured(self, repair: str, report: Matrix, direct: Matrix) -> Measured:
        decision, labels = self.original.decision, self.evaluation.labels
        _, measured = measure_plainly(repair, report, labels, decision)
        if repair != DIRECT:
            measured |= _bound(report, direct, decision, labels)
        return measured


def _bound(report: Matrix, direct: Matrix, decision: Any, labels: Any) -> Mapping[str, float]:
    """Tell of the rows whose decision has the least mass that keeps it: they cannot say less."""
    there = at_end(direct, report, decision)
    share = float(there.mean())
    sure = report[np.arange(len(decision)), decision]
    right = (decision == labels).astype(np.float64)
    gap = float((sure - right)[there].mean()) if share else 0.0
    return {"at_bound": share, "bound_gap": gap, "gap": float((sure - right).mean())}
