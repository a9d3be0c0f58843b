"""Standings: win rates, ranks and means over a league, with intervals over sources.

Sets of one source share their images or texts, so they are no independent evidence.  Rounds
are averaged within their set, sets within their source, and sources count the same; what is
resampled is sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordcal_study.league.rounds import Report
from cordcal_study.tidy import Result

Array = npt.NDArray[np.float64]

RESAMPLES = 10_000
_LEVEL = 0.95
_TAILS = ((1.0 - _LEVEL) / 2.0, (1.0 + _LEVEL) / 2.0)
# Resampling fewer sources than these says little about others: then there is no interval.
FEWEST = 5
# Columns of a block: bounds the resampled values to some 40 megabytes.
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Interval:
    """Means over sources with percentile intervals; of few sources there is no interval."""

    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Losses:
    """One measure of every report in every round; not a number where it did not play.

    Attributes
    ----------
    reports : tuple of Report
        The columns.
    values : ndarray of shape (rounds, reports)
        The measure.
    sets, sources : tuple of str
        The set and the source of each round.
    """

    reports: tuple[Report, ...]
    values: Array
    sets: tuple[str, ...]
    sources: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[Result], measure: str) -> Losses:
        """Sort the values of one measure into a table."""
        chosen = [each for each in results if each.measure == measure]
        rounds = {each.round: (f"{each.group}, {each.set}", each.source) for each in chosen}
        reports = tuple(dict.fromkeys(Report(each.calibrator, each.repair) for each in chosen))
        line = {name: place for place, name in enumerate(rounds)}
        column = {name: place for place, name in enumerate(reports)}
        values = np.full((len(rounds), len(reports)), np.nan)
        for each in chosen:
            values[line[each.round], column[Report(each.calibrator, each.repair)]] = each.value
        sets, sources = zip(*rounds.values(), strict=True) if rounds else ((), ())
        return cls(reports, values, sets, sources)

    def among(self, reports: Sequence[Report]) -> Losses:
        """Return the columns of some reports."""
        columns = [self.reports.index(report) for report in reports]
        return Losses(tuple(reports), self.values[:, columns], self.sets, self.sources)

    def where(self, keep: Callable[[int], bool]) -> Losses:
        """Return the rounds whose place is to be kept."""
        lines = [place for place in range(len(self.values)) if keep(place)]
        return Losses(
            self.reports,
            self.values[lines],
            tuple(self.sets[place] for place in lines),
            tuple(self.sources[place] for place in lines),
        )

    def over_sources(self, values: Array) -> Array:
        """Average what is known of each round, over rounds of a set, then sets of a source."""
        sets = list(dict.fromkeys(zip(self.sources, self.sets, strict=True)))
        place = {pair: index for index, pair in enumerate(sets)}
        of_round = [place[pair] for pair in zip(self.sources, self.sets, strict=True)]
        by_set = _means(values, np.array(of_round, dtype=np.intp), len(sets))
        sources = {source: index for index, source in enumerate(dict.fromkeys(self.sources))}
        of_set = np.array([sources[source] for source, _ in sets], dtype=np.intp)
        return _means(by_set, of_set, len(sources))


def _means(values: Array, group: npt.NDArray[np.intp], count: int) -> Array:
    """Return the means of the known values of each group; not a number where none is known."""
    shape = (count, *values.shape[1:])
    total, known = np.zeros(shape), np.zeros(shape)
    there = ~np.isnan(values)
    np.add.at(total, group, np.where(there, values, 0.0))
    np.add.at(known, group, there)
    return np.divide(total, known, out=np.full(shape, np.nan), where=known > 0)


def interval(by_source: Array, seed: int = 0) -> Interval:
    """Average over sources, and resample them.

    Examples
    --------
    >>> found = interval(np.array([[0.0], [1.0], [0.0], [1.0], [0.5]]))
    >>> found.mean, found.low, found.high
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
    several = np.flatnonzero(counts >= FEWEST)
    for start in range(0, len(several), _BLOCK):
        at = several[start : start + _BLOCK]
        total, drawn = chosen @ filled[:, at], chosen @ known[:, at]
        with np.errstate(invalid="ignore"):
            means = total / drawn
        # A resample without a source that knows the value says nothing about it.
        sure = (drawn > 0).all(axis=0)
        if sure.any():
            low[at[sure]], high[at[sure]] = np.quantile(means[:, sure], _TAILS, axis=0)
        for place in np.flatnonzero(~sure):
            there = means[drawn[:, place] > 0, place]
            low[at[place]], high[at[place]] = np.quantile(there, _TAILS)
    shape = by_source.shape[1:]
    return Interval(mean.reshape(shape), low.reshape(shape), high.reshape(shape))


def duels(losses: Losses) -> Array:
    """Return, by source, how often each report has a lower loss than each other; ties are half.

    Examples
    --------
    >>> a, b = Report("a"), Report("b")
    >>> duels(Losses((a, b), np.array([[0.1, 0.2], [0.3, 0.3]]), ("s", "s"), ("x", "x")))[0, 0, 1]
    np.float64(0.75)
    """
    first, second = losses.values[:, :, None], losses.values[:, None, :]
    won = (first < second) + 0.5 * (first == second)
    won[np.isnan(first) | np.isnan(second)] = np.nan
    own = np.arange(len(losses.reports))
    won[:, own, own] = np.nan
    return losses.over_sources(won)


def win_rates(losses: Losses) -> Array:
    """Return, by source, the share of the others that each report beats, each counted the same."""
    found = duels(losses)
    known = ~np.isnan(found)
    counts = known.sum(axis=2)
    total = np.where(known, found, 0.0).sum(axis=2)
    rates: Array = np.divide(total, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    return rates


def ranked(losses: Losses, least: float = 0.8) -> Losses:
    """Return the rounds and reports that ranks can be told of: every report in every round.

    Reports that played in fewer than ``least`` of the sets are left out, then rounds in which
    one of the others did not play.
    """
    sets = np.array(losses.sets)
    names = list(dict.fromkeys(losses.sets))
    there = ~np.isnan(losses.values)
    share = np.mean([there[sets == name].any(axis=0) for name in names], axis=0)
    kept = losses.among(
        [each for each, part in zip(losses.reports, share, strict=True) if part >= least]
    )
    whole = np.asarray(~np.isnan(kept.values).any(axis=1))
    return kept.where(lambda place: bool(whole[place]))


def ranks(losses: Losses) -> Array:
    """Return, by source, the mean rank of each report; the lowest loss is first, ties share.

    Examples
    --------
    >>> a, b, c = Report("a"), Report("b"), Report("c")
    >>> ranks(Losses((a, b, c), np.array([[0.1, 0.2, 0.2]]), ("s",), ("x",)))
    array([[1. , 2.5, 2.5]])
    """
    beaten = np.nansum(duels(losses), axis=2)
    return np.asarray(len(losses.reports) - beaten)


def critical_difference(reports: int, sources: int, level: float = _LEVEL) -> float:
    """Return by how much mean ranks must differ to be told apart (Nemenyi, Demšar 2006).

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(level, reports, math.inf)) / math.sqrt(2.0)
    return quantile * math.sqrt(reports * (reports + 1) / (6.0 * sources))
