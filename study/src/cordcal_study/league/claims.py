"""Claims: what was written down before the run, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cordcal_study.league.fixtures import ALL, KEEPERS
from cordcal_study.league.rounds import ORIGINAL, Report
from cordcal_study.league.standings import Losses, duels, interval
from cordcal_study.specs import Claim
from cordcal_study.tidy import Result

Outcome = Literal["holds", "holds on average", "does not hold", "not decided"]


@dataclass(frozen=True)
class Duel:
    """How often a report wins against another one."""

    against: Report
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A claim, and every duel that it is about.

    It *holds* where the report wins more than half of every duel and no interval reaches
    one half, *holds on average* where an interval does (or there are too few sources for
    one), and *does not hold* where a duel is won no more than half the time.
    """

    claim: Claim
    duels: tuple[Duel, ...]

    @property
    def hardest(self) -> Duel | None:
        """The duel that is won least often."""
        return min(self.duels, key=lambda duel: duel.rate, default=None)

    @property
    def outcome(self) -> Outcome:
        """Whether the claim holds."""
        if self.hardest is None:
            return "not decided"
        if self.hardest.rate <= 0.5:
            return "does not hold"
        clear = all(duel.low > 0.5 for duel in self.duels)  # not a number is not above
        return "holds" if clear else "holds on average"


def keepers(results: Iterable[Result]) -> set[Report]:
    """Return the reports that changed no decision in any round."""
    most: dict[Report, float] = {}
    for each in results:
        if each.measure == "tpcr":
            report = Report(each.calibrator, each.repair)
            most[report] = max(most.get(report, 0.0), each.value)
    return {report for report, tpcr in most.items() if tpcr == 0.0}


def judge(claim: Claim, results: Sequence[Result]) -> Verdict:
    """Return the duels that a claim is about."""
    groups = set(claim.groups)
    inside = [each for each in results if not groups or each.group in groups]
    losses = Losses.of(inside, claim.measure)
    kept = keepers(inside)
    own = next((each for each in losses.reports if each.name == claim.report), None)
    if own is None:
        return Verdict(claim, ())
    others = [
        each
        for each in losses.reports
        if each not in (own, ORIGINAL)
        and (
            each.name in claim.against
            or ALL in claim.against
            or (KEEPERS in claim.against and each in kept)
        )
    ]
    return Verdict(claim, against(losses, own, others))


def against(losses: Losses, own: Report, others: Sequence[Report]) -> tuple[Duel, ...]:
    """Return the duels of one report with others that played in rounds of its own."""
    if not others:
        return ()
    found = interval(duels(losses.among([own, *others]))[:, 0, 1:])
    rows = zip(others, found.mean, found.low, found.high, strict=True)
    return tuple(
        Duel(other, float(rate), float(low), float(high))
        for other, rate, low, high in rows
        if not math.isnan(rate)
    )
