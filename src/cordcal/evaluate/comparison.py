"""The result of a comparison: every metric of every calibrator, and its interpretation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal._validation.caveats import Caveat
from cordcal.evaluate import recommendation
from cordcal.evaluate.need import LikelihoodRatio, describe_need, describe_tests
from cordcal.evaluate.pictures import lists_that_fit
from cordcal.evaluate.results.calibrators import Entry
from cordcal.evaluate.results.recommendation import DEFAULT, Recommendation
from cordcal.evaluate.results.report import Best, ReportData, SuggestedCommand
from cordcal.evaluate.results.values import ORIGINAL, Interval, Json, Measures, Output
from cordcal.evaluate.statistics import Replicates, interval_of, shifted_interval
from cordcal.metrics import METRICS
from cordcal.report import tables

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType


@dataclass(frozen=True, eq=False)
class Comparison:
    """Calibrators compared on one data set; index it by key.

    Attributes
    ----------
    entries : tuple of Entry
        One per calibrator, in the order of the arguments.
    uncalibrated : mapping of str to float
        The metrics of the classifier's own probabilities.
    left_out : mapping of str to str
        Calibrators that were not run, and why.
    n_calibration, n_evaluation, n_classes : int
        Sizes of the data; rows are those of one split.
    class_names : tuple of str or None
        One name per column.
    input, splits, seed, preserve
        The arguments of `compare`.
    fingerprint : str
        Equal if two comparisons used the same rows: a hash of the scores, labels and
        groups of every split, and of ``input``, ``preserve`` and ``seed``.  Calibrators and
        names are not part of it.
    seconds : float
        Time the comparison took.
    data_caveats : tuple of Caveat
        Reasons to doubt the rows and labels.
    needed : tuple of LikelihoodRatio
        Tests of whether calibration is needed at all.
    resampled : mapping of output to mapping of str to ndarray
        By key and output, each metric's value in every resample of the rows.
    act : mapping of output to tuple of float
        The share of predictions that may act at a certified error of 1, 2, 5 and 10 %: half of the
        evaluation rows certify, the others are counted.
    """

    entries: tuple[Entry, ...]
    uncalibrated: Measures
    left_out: Mapping[str, str]
    n_calibration: int
    n_evaluation: int
    n_classes: int
    class_names: tuple[str, ...] | None
    input: Kind
    splits: int
    seed: int
    preserve: int | str
    fingerprint: str
    seconds: float
    data_caveats: tuple[Caveat, ...]
    needed: tuple[LikelihoodRatio, ...]
    resampled: Mapping[Output, Replicates] = field(repr=False)
    act: Mapping[Output, tuple[float, ...]] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Entry:
        for entry in self.entries:
            if entry.key == key:
                return entry
        raise KeyError(f"{key!r} was not compared; there are {', '.join(self.keys())}")

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def keys(self) -> list[str]:
        """Return the keys of the calibrators compared."""
        return [entry.key for entry in self.entries]

    def measures(self, key: str, output: str | None = None) -> Measures:
        """Return the metrics of one output.

        Parameters
        ----------
        key : str
            A calibrator's key, or ``"uncalibrated"``.
        output : {"direct", "repaired", "lift"}, optional
            By default the repaired probabilities.  ``"lift"`` exists if the entry's ``lift`` is
            not None; ``"uncalibrated"`` has only ``"original"``.

        Returns
        -------
        measures : mapping of str to float
            By the metrics' names.
        """
        if key == ORIGINAL[0]:
            outputs = {ORIGINAL[1]: self.uncalibrated}
        else:
            entry = self[key]
            outputs = {"repaired": entry.repaired, "direct": entry.direct}
            if entry.lift is not None:
                outputs["lift"] = entry.lift
        if output is None:
            return next(iter(outputs.values()))
        if output not in outputs:
            raise InputError(
                "output",
                f"is {output!r}, which {key!r} does not have",
                f"use {' or '.join(map(repr, outputs))}",
            )
        return outputs[output]

    def difference(self, first: Output, second: Output, measure: str) -> Interval:
        """Return how two outputs differ by a metric, first minus second, paired by rows.

        Parameters
        ----------
        first, second : tuple of str
            Key and output, such as ``("svs", "repaired")``.
        measure : str
            A metric that is resampled: any except classwise ECE.
        """
        drawn = [self.replicates(*output, measure) for output in (first, second)]
        if drawn[0] is None or drawn[1] is None:
            resampled = ", ".join(self.resampled[ORIGINAL])
            raise InputError(
                "measure", f"is {measure!r}, which is not resampled", f"use one of {resampled}"
            )
        estimate = self.measures(*first)[measure] - self.measures(*second)[measure]
        return interval_of(estimate, drawn[0] - drawn[1])

    def replicates(self, key: str, output: str, measure: str) -> npt.NDArray[np.float64] | None:
        """Return a metric's bootstrap replicates; None if it is not resampled."""
        if measure not in self.measures(key, output):
            known = ", ".join(self.uncalibrated)
            raise InputError("measure", f"is {measure!r}", f"use one of {known}")
        if key != ORIGINAL[0] and self[key].keeps_predictions:
            output = "direct"  # nothing was repaired
        return self.resampled[key, output].get(measure)

    @property
    def best(self) -> dict[str, Best]:
        """The best output by each metric, among those that keep every prediction.

        Accuracy is omitted: all of these have the classifier's accuracy.
        """
        best = {}
        for measure in self.uncalibrated:
            if measure != "accuracy":
                choose = min if METRICS[measure].lower_is_better else max
                key, output = choose(
                    self.preserving(), key=lambda pair: self.measures(*pair)[measure]
                )
                best[measure] = Best(key, output, self.measures(key, output)[measure])
        return best

    def preserving(self) -> list[Output]:
        """Return the outputs that keep every prediction, the uncalibrated one first."""
        return [ORIGINAL, *((entry.key, output) for entry in self for output in entry.preserving)]

    def outputs(self) -> list[Output]:
        """Return all outputs, the uncalibrated one first."""
        return [ORIGINAL, *((entry.key, output) for entry in self for output in entry.outputs)]

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Reasons to doubt the result."""
        if any(caveat.blocks_advice for caveat in self.data_caveats):
            return self.data_caveats
        return (*self.data_caveats, *self._indistinct)

    @cached_property
    def _indistinct(self) -> list[Caveat]:
        return recommendation.indistinct(self)

    @cached_property
    def recommendation(self) -> Recommendation:
        """Which calibrator and output to deploy, and why."""
        return recommendation.recommend(self)

    def interpret(self) -> str:
        """Return the recommendation and what else the rows show, one statement per line."""
        advice = self.recommendation
        caveats = [] if advice.key is None else [caveat.with_full_stop for caveat in self.caveats]
        return "\n".join([*caveats, str(advice), *recommendation.sentences(self)])

    def next_step(
        self,
        *scores: str,
        new: str | None = None,
        model: str = "model.safetensors",
        options: Mapping[str, str] | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> SuggestedCommand | None:
        """Return commands that fit and apply the recommendation; None if there is nothing to fit.

        Parameters
        ----------
        *scores : str
            Paths of the calibration scores, by default ``scores.npz``.
        new, model : str
            Paths of the new rows (by default ``new`` with the suffix of ``scores``), and of the
            model file.
        options : mapping of str to str
            Options that the command needs to read the scores, and their values; empty for flags.
        arguments : mapping of str to object
            The same as arguments of `cordcal.files.read_scores`.
        """
        paths = scores or ("scores.npz",)
        return recommendation.next_step(self, paths, new, model, options, arguments)

    def report_data(self) -> ReportData:
        """Return what every renderer shows: console, report, Markdown, LaTeX and data frame."""
        return self._report_data

    @cached_property
    def _report_data(self) -> ReportData:
        focus, default = self._focus(), DEFAULT
        return ReportData(
            n_calibration=self.n_calibration,
            n_evaluation=self.n_evaluation,
            n_classes=self.n_classes,
            class_names=self.class_names,
            settings={name: str(value) for name, value in self._settings().items()},
            fingerprint=self.fingerprint,
            uncalibrated=self.uncalibrated,
            calibrators=self.entries,
            headline=f"{self.recommendation.headline}.",
            reading=tuple(recommendation.sentences(self)),
            caveats=self.caveats,
            focus=focus,
            listed=frozenset(self._with_class_list(focus)),
            intervals={output: self._intervals(output) for output in self.outputs()},
            best=self.best,
            advice=self.recommendation,
            default=default if default in self.preserving() else None,
            need=describe_need(self.needed),
            need_tests=tuple(describe_tests(self.needed)),
            left_out=self.left_out,
            next_step=self.next_step(),
            act=self.act,
        )

    def _settings(self) -> dict[str, str | int]:
        return {
            "input": self.input,
            "splits": self.splits,
            "seed": self.seed,
            "preserve": self.preserve,
        }

    def _intervals(self, output: Output) -> dict[str, tuple[float, float]]:
        """Return the 95 % intervals of an output's metrics, of those that are resampled."""
        drawn = {metric: self.replicates(*output, metric) for metric in self.uncalibrated}
        measures = self.measures(*output)
        return {
            metric: shifted_interval(measures[metric], values)
            for metric, values in drawn.items()
            if values is not None
        }

    def to_dict(self) -> Json:
        """Return everything as plain Python values, including the figures' data."""
        data = self.report_data()
        return {
            "n_calibration": self.n_calibration,
            "n_evaluation": self.n_evaluation,
            "n_classes": self.n_classes,
            "class_names": None if self.class_names is None else list(self.class_names),
            "settings": self._settings(),
            "fingerprint": self.fingerprint,
            "seconds": self.seconds,
            "uncalibrated": dict(self.uncalibrated),
            "act": {" ".join(output): list(shares) for output, shares in self.act.items()},
            "calibrators": [entry.to_dict(every_class=entry.key in data.listed) for entry in self],
            "focus": data.focus,
            "needed": [test.to_dict() for test in self.needed],
            "need": data.need,
            "left_out": dict(self.left_out),
            "best": {measure: best.to_dict() for measure, best in self.best.items()},
            "caveats": [caveat.to_dict() for caveat in self.caveats],
            "recommendation": self.recommendation.to_dict(),
            "reading": list(data.reading),
            "next_step": None if data.next_step is None else data.next_step.to_dict(),
        }

    def _focus(self) -> str | None:
        """Return the calibrator to show first: the recommended one, or the best by NLL."""
        recommended = self.recommendation.key
        if recommended in self.keys():
            return recommended
        best = min(self.entries, key=lambda entry: entry.repaired["nll"], default=None)
        return None if best is None else best.key

    def _with_class_list(self, focus: str | None) -> list[str]:
        """Return the calibrators that a page lists with every class: the first, the best by NLL."""

        def rank(entry: Entry) -> tuple[bool, float]:
            lowest = min(entry.measures(output)["nll"] for output in entry.preserving)
            return entry.key != focus, lowest

        outputs = {entry.key: len(entry.outputs) for entry in sorted(self.entries, key=rank)}
        return lists_that_fit(outputs, self.n_classes)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas data frame with one row per output.

        Every metric has three columns, ``nll``, ``nll_low`` and ``nll_high``: its value and
        its 95 % bootstrap interval, corrected for the bias of the resamples (binned errors
        have one).  A calibrator that needs no repair has one row.
        """
        return tables.frame_of(self.report_data())

    def to_markdown(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as a Markdown table.

        Parameters
        ----------
        measures : sequence of str, optional
            Which metrics to show; by default accuracy and the leading ones.
        intervals : bool
            Show each value with its 95 % bootstrap interval.
        """
        return tables.markdown(self._table(measures, intervals))

    def to_latex(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as a LaTeX table, for the packages booktabs and amssymb.

        Parameters
        ----------
        measures, intervals
            As for `to_markdown`.
        """
        return tables.latex(self._table(measures, intervals))

    def to_html(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as an HTML table; `cordcal.report.write_html` writes a report.

        Parameters
        ----------
        measures, intervals
            As for `to_markdown`.
        """
        return tables.html(self._table(measures, intervals))

    def _table(self, measures: Sequence[str] | None, intervals: bool) -> tables.Table:
        return tables.table_of(self.report_data(), measures, intervals=intervals)

    def _repr_html_(self) -> str:
        return tables.notebook_html(self.report_data())

    def __rich__(self) -> RenderableType:
        from cordcal.report.terminal import comparison_view

        return comparison_view(self.report_data())

    def __repr__(self) -> str:
        return (
            f"Comparison of {len(self)} calibrators on {self.n_evaluation:,} rows × "
            f"{self.n_classes} classes. {self.recommendation.headline}"
        )
