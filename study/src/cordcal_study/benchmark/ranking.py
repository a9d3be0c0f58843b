"""Comparisons of outputs over a benchmark: win rates, ranks and means, and claims about them.

Sets of one source share their images or texts, so they are not independent. Trials are averaged
within their set and sets within their source; every source counts the same, and intervals
resample sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cordcal_study.benchmark.trials import ALL, ORIGINAL, PRESERVING, Output
from cordcal_study.specs import Claim
from cordcal_study.tidy import Result

Array = npt.NDArray[np.float64]

RESAMPLES = 10_000
_LEVEL = 0.95
_TAILS = ((1.0 - _LEVEL) / 2.0, (1.0 + _LEVEL) / 2.0)
# With fewer sources there is no interval: resampling them says little about others.
MIN_SOURCES = 5
# Columns of a block: bounds the resampled values to some 40 megabytes.
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Interval:
    """Means over sources with percentile intervals, which are NaN with few sources."""

    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Losses:
    """One measure of every output in every trial; NaN where it did not run.

    Attributes
    ----------
    outputs : tuple of Output
        The columns.
    values : ndarray of shape (trials, outputs)
        The measure.
    sets, sources : tuple of str
        The set and the source of each trial.
    """

    outputs: tuple[Output, ...]
    values: Array
    sets: tuple[str, ...]
    sources: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[Result], measure: str) -> Losses:
        """Sort the values of one measure into a table."""
        chosen = [result for result in results if result.measure == measure]
        trials = {
            result.trial: (f"{result.group}, {result.set}", result.source) for result in chosen
        }
        outputs = tuple(
            dict.fromkeys(Output(result.calibrator, result.repair) for result in chosen)
        )
        line = {name: place for place, name in enumerate(trials)}
        column = {name: place for place, name in enumerate(outputs)}
        values = np.full((len(trials), len(outputs)), np.nan)
        for result in chosen:
            values[line[result.trial], column[Output(result.calibrator, result.repair)]] = (
                result.value
            )
        sets, sources = zip(*trials.values(), strict=True) if trials else ((), ())
        return cls(outputs, values, sets, sources)

    def among(self, outputs: Sequence[Output]) -> Losses:
        """Return the columns of some outputs."""
        columns = [self.outputs.index(output) for output in outputs]
        return Losses(tuple(outputs), self.values[:, columns], self.sets, self.sources)

    def where(self, keep: Callable[[int], bool]) -> Losses:
        """Return the trials at the places for which ``keep`` is true."""
        lines = [place for place in range(len(self.values)) if keep(place)]
        return Losses(
            self.outputs,
            self.values[lines],
            tuple(self.sets[place] for place in lines),
            tuple(self.sources[place] for place in lines),
        )

    def over_sources(self, values: Array) -> Array:
        """Average what is known of each trial, over trials of a set, then sets of a source."""
        sets = list(dict.fromkeys(zip(self.sources, self.sets, strict=True)))
        place = {pair: index for index, pair in enumerate(sets)}
        of_round = [place[pair] for pair in zip(self.sources, self.sets, strict=True)]
        by_set = _means(values, np.array(of_round, dtype=np.intp), len(sets))
        sources = {source: index for index, source in enumerate(dict.fromkeys(self.sources))}
        of_set = np.array([sources[source] for source, _ in sets], dtype=np.intp)
        return _means(by_set, of_set, len(sources))


def _means(values: Array, group: npt.NDArray[np.intp], count: int) -> Array:
    """Return the means of each group over the values that are not NaN."""
    shape = (count, *values.shape[1:])
    total, known = np.zeros(shape), np.zeros(shape)
    finite = ~np.isnan(values)
    np.add.at(total, group, np.where(finite, values, 0.0))
    np.add.at(known, group, finite)
    return np.divide(total, known, out=np.full(shape, np.nan), where=known > 0)


def interval(by_source: Array, seed: int = 0) -> Interval:
    """Average over sources, and resample them.

    Examples
    --------
    >>> result = interval(np.array([[0.0], [1.0], [0.0], [1.0], [0.5]]))
    >>> result.mean, result.low, result.high
    (array([0.5]), array([0.1]), array([0.9]))
    """
    flat = by_source.reshape(len(by_source), -1)
    known = ~np.isnan(flat)
    filled = np.where(known, flat, 0.0)
    counts = known.sum(axis=0)
    mean = np.divide(
        filled.sum(axis=0), counts, out=np.full(flat.shape[1], np.nan), where=counts > 0
    )
    low, high = np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    chosen = np.random.default_rng(seed).multinomial(
        len(flat), np.full(len(flat), 1.0 / len(flat)), RESAMPLES
    )
    several = np.flatnonzero(counts >= MIN_SOURCES)
    for start in range(0, len(several), _BLOCK):
        at = several[start : start + _BLOCK]
        total, drawn = chosen @ filled[:, at], chosen @ known[:, at]
        with np.errstate(invalid="ignore"):
            means = total / drawn
        # A resample may have no source with a value.
        sure = (drawn > 0).all(axis=0)
        if sure.any():
            low[at[sure]], high[at[sure]] = np.quantile(means[:, sure], _TAILS, axis=0)
        for place in np.flatnonzero(~sure):
            some = means[drawn[:, place] > 0, place]
            low[at[place]], high[at[place]] = np.quantile(some, _TAILS)
    shape = by_source.shape[1:]
    return Interval(mean.reshape(shape), low.reshape(shape), high.reshape(shape))


def win_matrix(losses: Losses) -> Array:
    """Return, per source, how often each output has a lower loss than each other; ties count half.

    Examples
    --------
    >>> a, b = Output("a"), Output("b")
    >>> losses = Losses((a, b), np.array([[0.1, 0.2], [0.3, 0.3]]), ("s", "s"), ("x", "x"))
    >>> win_matrix(losses)[0, 0, 1]
    np.float64(0.75)
    """
    first, second = losses.values[:, :, None], losses.values[:, None, :]
    won = (first < second) + 0.5 * (first == second)
    won[np.isnan(first) | np.isnan(second)] = np.nan
    own = np.arange(len(losses.outputs))
    won[:, own, own] = np.nan
    return losses.over_sources(won)


def win_rates(losses: Losses) -> Array:
    """Return, by source, the share of the others that each output beats, each counted the same."""
    wins = win_matrix(losses)
    known = ~np.isnan(wins)
    counts = known.sum(axis=2)
    total = np.where(known, wins, 0.0).sum(axis=2)
    rates: Array = np.divide(total, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    return rates


def ranked(losses: Losses, least: float = 0.8) -> Losses:
    """Return the outputs and trials for which ranks are defined: every output in every trial.

    Outputs of fewer than ``least`` of the sets are left out, then trials in which one of the
    others did not run.
    """
    sets = np.array(losses.sets)
    names = list(dict.fromkeys(losses.sets))
    ran = ~np.isnan(losses.values)
    share = np.mean([ran[sets == name].any(axis=0) for name in names], axis=0)
    common = losses.among(
        [output for output, part in zip(losses.outputs, share, strict=True) if part >= least]
    )
    complete = np.asarray(~np.isnan(common.values).any(axis=1))
    return common.where(lambda place: bool(complete[place]))


def ranks(losses: Losses) -> Array:
    """Return, by source, the mean rank of each output; the lowest loss is first, ties share.

    Examples
    --------
    >>> a, b, c = Output("a"), Output("b"), Output("c")
    >>> ranks(Losses((a, b, c), np.array([[0.1, 0.2, 0.2]]), ("s",), ("x",)))
    array([[1. , 2.5, 2.5]])
    """
    beaten = np.nansum(win_matrix(losses), axis=2)
    return np.asarray(len(losses.outputs) - beaten)


def critical_difference(outputs: int, sources: int, level: float = _LEVEL) -> float:
    """Return the smallest significant difference of mean ranks (Nemenyi, Demšar 2006).

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(level, outputs, math.inf)) / math.sqrt(2.0)
    return quantile * math.sqrt(outputs * (outputs + 1) / (6.0 * sources))


Outcome = Literal["holds", "holds on average", "does not hold", "not decided"]


@dataclass(frozen=True)
class Comparison:
    """How often an output has a lower loss than another one."""

    against: Output
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A claim and the comparisons that decide it.

    It *holds* if the output wins more than half of the time against each other output and no
    interval contains one half, *holds on average* if an interval does (or there are too few
    sources for one), and *does not hold* if it wins at most half of the time against another.
    """

    claim: Claim
    comparisons: tuple[Comparison, ...]

    @property
    def hardest(self) -> Comparison | None:
        """The comparison with the lowest win rate."""
        return min(self.comparisons, key=lambda comparison: comparison.rate, default=None)

    @property
    def outcome(self) -> Outcome:
        """Whether the claim holds."""
        if self.hardest is None:
            return "not decided"
        if self.hardest.rate <= 0.5:
            return "does not hold"
        clear = all(comparison.low > 0.5 for comparison in self.comparisons)  # NaN is not above
        return "holds" if clear else "holds on average"


def preserving(results: Iterable[Result]) -> set[Output]:
    """Return the outputs that changed no prediction in any trial."""
    most: dict[Output, float] = {}
    for result in results:
        if result.measure == "tpcr":
            output = Output(result.calibrator, result.repair)
            most[output] = max(most.get(output, 0.0), result.value)
    return {output for output, tpcr in most.items() if tpcr == 0.0}


def judge(claim: Claim, results: Sequence[Result]) -> Verdict:
    """Compare the outputs that a claim is about."""
    groups = set(claim.groups)
    inside = [result for result in results if not groups or result.group in groups]
    losses = Losses.of(inside, claim.metric)
    unchanged = preserving(inside)
    own = next((output for output in losses.outputs if output.name == claim.output), None)
    if own is None:
        return Verdict(claim, ())
    others = [
        output
        for output in losses.outputs
        if output not in (own, ORIGINAL)
        and (
            output.name in claim.against
            or ALL in claim.against
            or (PRESERVING in claim.against and output in unchanged)
        )
    ]
    return Verdict(claim, compare_with(losses, own, others))


def compare_with(losses: Losses, own: Output, others: Sequence[Output]) -> tuple[Comparison, ...]:
    """Compare one output with others, in the trials that have both."""
    if not others:
        return ()
    rates = interval(win_matrix(losses.among([own, *others]))[:, 0, 1:])
    rows = zip(others, rates.mean, rates.low, rates.high, strict=True)
    return tuple(
        Comparison(other, float(rate), float(low), float(high))
        for other, rate, low, high in rows
        if not math.isnan(rate)
    )
