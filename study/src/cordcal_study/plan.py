"""Which cells a study is made of: sets, splits, the calibrators that each set allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cordcal.evaluate.compare import left_out_by
from cordcal_study.cells import UNCALIBRATED, Fit, Request
from cordcal_study.data import CLEAN, SetFacts
from cordcal_study.repairs import DIRECT
from cordcal_study.specs import SetSpec, Study

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
        reasons = left_out_by(keys, facts.classes, facts.features)
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
