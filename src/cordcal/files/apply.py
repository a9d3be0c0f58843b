"""Apply a model to files of any size: read, predict, check every vector, write.

An output appears complete or not at all.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_digests
from cordcal._numeric.types import NumPyArray, NumPyDType, Record
from cordcal._validation.labels import group_names
from cordcal.files.context import FileContext, count_unknown, errors_of_scores
from cordcal.files.disk import (
    large_empty,
    replacing,
    write_to_stdout,
)
from cordcal.files.loop import (
    OnError,
    Progress,
    RowErrors,
    Rows,
    map_overlapped,
    original_and_prediction,
    read_batches,
)
from cordcal.files.output import (
    TABLE_SUFFIXES,
    OutputFormat,
    OutputRows,
    Writer,
    open_writer,
    output_suffix,
)
from cordcal.files.scores import Batch, ScoreFile
from cordcal.repair.decimals import check_decimals, round_to_decimals
from cordcal.repair.prediction_rule import PredictionRule, strictly_first

if TYPE_CHECKING:
    from cordcal.preserving import Outputs, PreservingCalibrator
    from cordcal.repair import CORD, Lift

# 1 MB of float64: the temporaries of a block stay in the cache.
_BLOCK_ENTRIES = 2**17


@dataclass(frozen=True)
class Applied(Record):
    """What `apply_model` or `apply_parts` did.

    Attributes
    ----------
    rows, classes : int
        Rows written, and classes.
    changed : int
        Rows in which the calibrator predicts another class; the repaired probabilities never do.
    skipped : dict of str to int
        How many rows were skipped, by reason.
    resumed : int
        Rows of parts that an earlier run had finished.
    unknown : dict of str to int
        In how many rows each column of the context is unknown.
    uncertified : int
        Rows whose group is empty or was not certified, which never act.
    """

    rows: int
    classes: int
    changed: int
    skipped: dict[str, int] = field(default_factory=dict)
    resumed: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    uncertified: int = 0

    @classmethod
    def total(cls, classes: int, parts: Iterable[Applied]) -> Applied:
        """Return the counts over several parts."""
        rows = changed = resumed = uncertified = 0
        skipped: Counter[str] = Counter()
        unknown: Counter[str] = Counter()
        for part in parts:
            rows, changed = rows + part.rows, changed + part.changed
            resumed, uncertified = resumed + part.resumed, uncertified + part.uncertified
            skipped.update(part.skipped)
            unknown.update(part.unknown)
        counts = dict(sorted(skipped.items())), resumed, dict(sorted(unknown.items())), uncertified
        return cls(rows, classes, changed, *counts)


@dataclass(frozen=True)
class ApplyOptions:
    """What `apply` computes and writes.

    Attributes
    ----------
    class_names : tuple of str or None
        One name per class.
    names : str
        The name of a column of probabilities; ``{class}`` stands for the class.
    dtype : str or None
        The dtype of the probabilities; by default that of the scores, at least float32.
    decimals : int or None
        Round the probabilities for display; they sum to one and keep the predictions.
    with_direct : bool
        Write the direct probabilities, too, as ``direct_{class}``.
    explain : bool
        Add columns that explain each row's repair.
    passthrough, keep_scores : bool
        Copy the other columns of a table, and the scores.
    on_error : {"stop", "skip"}
        What to do with an invalid row: stop with its file and number, or skip it, count it,
        and add a column ``row`` with the numbers of the others.
    audit : float or None
        Add the column ``audit``: a random share of the rows to act on, for a person to label.
    spreadsheet : bool
        In CSV, begin text that a spreadsheet would take for formulas with an apostrophe.
    groups : str or None
        The key or column of each row's group, for a certificate by group.
    """

    class_names: tuple[str, ...] | None = None
    names: str = "p_{class}"
    dtype: str | None = None
    decimals: int | None = None
    with_direct: bool = False
    explain: bool = False
    passthrough: bool = True
    keep_scores: bool = False
    on_error: OnError = "stop"
    spreadsheet: bool = False
    audit: float | None = None
    groups: str | None = None


# The model and its rows.


class ModelApplication(ABC):
    """A model and the files it is applied to, some rows at a time.

    Attributes
    ----------
    model : PreservingCalibrator, CORD or Lift
        The fitted model.
    files : dict of str to ScoreFile
        The input files by the names of the arguments in errors.
    dtype : dtype
        The dtype of the repaired probabilities.
    context : FileContext or None
        The columns next to the scores that the model needs.
    """

    model: PreservingCalibrator | CORD | Lift
    files: dict[str, ScoreFile]
    dtype: NumPyDType
    context: FileContext | None = None

    def __init__(self, options: ApplyOptions) -> None:
        self.options = options

    @abstractmethod
    def apply(self, rows: Rows) -> _Computed:
        """Return the probabilities of some rows, which keep the predictions."""

    def _computed(
        self,
        repaired: NumPyArray,
        direct: NumPyArray,
        prediction: npt.NDArray[np.integer[Any]],
        extra: Mapping[str, NumPyArray],
        **counts: Any,
    ) -> _Computed:
        """Return the probabilities with the decimals that were asked for, checked and counted."""
        rule = self.model.rule_
        repaired = self._rounded(repaired, prediction)
        _check_predictions(repaired, prediction, rule)
        own = direct.argmax(axis=1) if rule is None else rule.predict(direct)
        changed = int(np.count_nonzero(own != prediction))
        matrices = {"repaired": repaired}
        if self.options.with_direct:
            matrices["direct"] = direct
        confidence = np.take_along_axis(repaired, prediction[:, None], axis=1)[:, 0]
        vectors = {"prediction": prediction, "confidence": confidence, **extra}
        applied = Applied(len(prediction), self.model.n_classes_, changed, **counts)
        return _Computed(matrices, vectors, applied)

    def _rounded(
        self, repaired: NumPyArray, prediction: npt.NDArray[np.integer[Any]]
    ) -> NumPyArray:
        if self.options.decimals is None:
            return repaired
        decimals = check_decimals(self.options.decimals, self.dtype)
        rule = self.model.rule_
        weights = None if rule is None else rule.weights
        return round_to_decimals(repaired, prediction, decimals, weights)


@dataclass(frozen=True, eq=False)
class _Computed:
    """A block of rows: probabilities, a value per row by name, and what was counted."""

    matrices: Mapping[str, NumPyArray]
    vectors: Mapping[str, NumPyArray]
    counts: Applied


class CalibratedRows(ModelApplication):
    """A calibrator with its repair, and a file of scores."""

    model: PreservingCalibrator

    def __init__(
        self,
        model: PreservingCalibrator,
        scores: ScoreFile,
        options: ApplyOptions,
        context: FileContext | None = None,
    ) -> None:
        super().__init__(options)
        self.context = context
        if context is not None and context.opinion is not None:
            context.opinion.load()  # before several threads would
        # A label in a column that is copied may be of a class the model does not know.
        self.files, self.model = {"scores": scores.without_labels()}, model
        # Half precision would be too coarse for probabilities.
        self.dtype = np.dtype(options.dtype or np.result_type(scores.dtype, np.float32))

    def apply(self, rows: Rows) -> _Computed:
        """Return the probabilities of some rows."""
        (batch,) = rows
        context = None
        if self.context is not None:
            kind = self.model.calibrator_.input
            context = self.context.of(batch.context, batch.values.shape, kind)
        with errors_of_scores(context):
            outputs = self.model.predict_both(batch.values, context=context, dtype=self.dtype)
        groups = self._group_names(batch)
        extra = self._act_columns(batch, outputs, groups, context)
        if self.options.explain:
            explanation = self.model.explain(batch.values, context=context)
            extra.update(_explanation_columns(explanation))
        return self._computed(
            outputs.repaired,
            outputs.direct,
            outputs.prediction,
            extra,
            unknown=count_unknown(context or {}),
            uncertified=self._count_uncertified(groups),
        )

    def _group_names(self, batch: Batch) -> NumPyArray | None:
        """Return the group of each row, if its column was named."""
        if self.options.groups is None:
            return None
        return group_names(batch.context[self.options.groups], len(batch))

    def _count_uncertified(self, groups: NumPyArray | None) -> int:
        """Count the rows whose group the certificate does not have."""
        certificate = self.model.certificate_
        if certificate is None or groups is None:
            return 0
        certified = [part.name for part in certificate.parts]
        return int(np.isin(groups, certified, invert=True).sum())

    def _act_columns(
        self,
        batch: Batch,
        outputs: Outputs,
        groups: NumPyArray | None,
        context: Mapping[str, NumPyArray] | None,
    ) -> dict[str, NumPyArray]:
        """Return which predictions to act on, if the model has a certificate."""
        certificate = self.model.certificate_
        if certificate is None or (certificate.by == "group" and groups is None):
            return {}
        if self.dtype.itemsize < 4:  # half precision rounds a confidence across its threshold
            act = self.model.accepts(batch.values, context=context, groups=groups)
        else:
            mass = outputs.repaired[np.arange(len(outputs.prediction)), outputs.prediction]
            act = certificate.accepts_confidence(mass, outputs.prediction, groups)
        columns = {"act": act}
        if self.options.audit is not None:
            # By scores and row numbers, so that batches do not decide which rows are drawn.
            rows = np.column_stack([batch.values, batch.numbers])
            drawn = _mixed(row_digests(rows, seed=1)) < self.options.audit * 2.0**64
            columns["audit"] = columns["act"] & drawn
        return columns


def _mixed(digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the digests with evenly distributed bits (the finaliser of SplitMix64)."""
    mixed = (digests ^ (digests >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


class RepairedRows(ModelApplication):
    """A repair alone, and the files of the original and the direct probabilities."""

    model: CORD | Lift

    def __init__(
        self, repair: CORD | Lift, original: ScoreFile, direct: ScoreFile, options: ApplyOptions
    ) -> None:
        super().__init__(options)
        self.model = repair
        self.files = {"original": original.without_labels(), "direct": direct.without_labels()}
        self.dtype = np.dtype(options.dtype or direct.dtype)

    def apply(self, rows: Rows) -> _Computed:
        """Return the probabilities of some rows."""
        first, second = rows
        original, prediction = original_and_prediction(first.values, self.files["original"].kind)
        repaired = self.model.transform(
            original, second.values, prediction=prediction, dtype=self.dtype
        )
        extra = {}
        if self.options.explain:
            explanation = self.model.explain(original, second.values, prediction=prediction)
            extra = _explanation_columns(explanation)
        return self._computed(repaired, second.values, prediction, extra)


def application(
    model: Any,
    files: Sequence[ScoreFile],
    options: ApplyOptions,
    context: FileContext | None = None,
) -> ModelApplication:
    """Return a model with its input: one file of scores, or two for a repair alone."""
    if len(files) == 1:
        return CalibratedRows(model, files[0], options, context)
    original, direct = files
    return RepairedRows(model, original, direct, options)


def _explanation_columns(explanation: Any) -> dict[str, NumPyArray]:
    """Return an explanation as columns; the prediction has its own already."""
    return {name: column for name, column in explanation.to_dict().items() if name != "prediction"}


# One output.


def apply_model(
    work: ModelApplication,
    output: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    allow_none: bool = False,
    progress: Progress | None = None,
) -> Applied:
    """Write the repaired probabilities of a file of any size to one file.

    Reading, repairing and writing overlap; memory holds a few batches of 16 MiB.

    Parameters
    ----------
    work : CalibratedRows or RepairedRows
        The model and its input.
    output : path
        A file whose suffix selects the format; ``-`` is stdout.
    overwrite : bool
        Whether a file of that name may be replaced.
    allow_none : bool
        Whether every row may be skipped.
    progress : callable, optional
        Called with the number of rows read, and of all rows if that is known.

    Returns
    -------
    applied : Applied
        Counts of what was done.
    """
    suffix = output_suffix(output)
    if work.options.on_error == "skip" and suffix == ".npy":
        raise InputError(
            str(output),
            "is an npy file, which cannot say which rows were skipped",
            "write a Parquet, Feather, JSONL or CSV file where rows are skipped",
        )
    if str(output) == "-":
        buffer = io.BytesIO()
        applied = _write_rows(work, suffix, buffer, progress)
        _check_not_none(work, applied)
        write_to_stdout([buffer.getbuffer()])
        return applied
    with replacing(output, overwrite=overwrite) as temporary, temporary.open("w+b") as file:
        applied = _write_rows(work, suffix, file, progress)
        if not allow_none:
            _check_not_none(work, applied)
        return applied


def _check_not_none(work: ModelApplication, applied: Applied) -> None:
    """Refuse an output without rows because all were skipped."""
    if not applied.rows and applied.skipped:
        raise all_skipped_error(
            " and ".join(source.name for source in work.files.values()), applied.skipped
        )


def all_skipped_error(name: str, skipped: Mapping[str, int]) -> InputError:
    """Return the error that no row could be written."""
    reasons = "; ".join(f"{count:,} {reason}" for reason, count in skipped.items())
    return InputError(
        name, f"has no row that can be written ({reasons})", "fix the rows, or pass others"
    )


def _write_rows(
    work: ModelApplication, suffix: str, file: BinaryIO, progress: Progress | None
) -> Applied:
    options = work.options
    format = OutputFormat(
        work.model.n_classes_, options.class_names, options.names, options.spreadsheet
    )
    if options.passthrough and suffix in TABLE_SUFFIXES:
        # A JSONL row keeps the keys that it has; other formats have the same columns throughout.
        work.files = {
            name: source.with_others(
                unify=suffix != ".jsonl" or source.format != "jsonl",
                keep_scores=options.keep_scores,
            )
            for name, source in work.files.items()
        }
    writer = open_writer(suffix, file, format)
    try:
        return _write_batches(work, writer, progress)
    except BaseException:
        with suppress(Exception):  # the file is removed
            writer.close()
        raise


def _write_batches(work: ModelApplication, writer: Writer, progress: Progress | None) -> Applied:
    applied: list[Applied] = []
    for encoded, counts in _applied_batches(work, writer, progress):
        if counts.rows or not applied:
            writer.write(encoded)
        applied.append(counts)
        del encoded
    if not applied:
        writer.write(writer.encode(_no_rows(work)))
    writer.close()
    return Applied.total(work.model.n_classes_, applied)


def _no_rows(work: ModelApplication) -> OutputRows:
    """Return the columns of an output without rows: those of a uniform row, cut off."""
    is_logits = False
    beside: list[str] = []
    if isinstance(work, CalibratedRows):
        is_logits = work.model.score_kind() == "logits"
        if work.context is not None:
            beside += work.context.to_read
        if work.options.groups is not None:
            beside.append(work.options.groups)
    empty = dict.fromkeys(beside, np.array([""]))
    classes = work.model.n_classes_
    uniform = np.full((1, classes), 0.0 if is_logits else 1.0 / classes)
    batch = Batch(values=uniform, numbers=np.arange(1), context=empty)
    batches = tuple(batch for _ in work.files)
    output = _Output(1)
    output.add(work.apply(batches), batches[0].numbers)
    others = next(iter(work.files.values())).empty_others()
    return replace(output.rows(work).first(0), others=others)


def _applied_batches(
    work: ModelApplication, writer: Writer, progress: Progress | None
) -> Iterator[tuple[Any, Applied]]:
    """Read, apply, check and encode all batches."""

    def apply_batch(box: list[Rows]) -> tuple[Any, Applied]:
        batches = box.pop()  # the last reference, so that it is freed before encoding
        others = _other_columns(work, batches)
        batches = tuple(replace(batch, others=None) for batch in batches)
        first, rows = batches[0].first, len(batches[0])
        errors = RowErrors(work.files, work.options.on_error)
        output = _Output(rows)
        for start, stop in pairwise(_block_edges(*batches[0].values.shape)):
            block = tuple(batch.take(slice(start, stop)) for batch in batches)
            accepted = errors.apply(block, work.apply)
            if accepted is not None:
                output.add(accepted[1], accepted[0][0].numbers)
            del accepted, block
        del batches
        if others is not None and output.filled != rows:
            others = others.take(output.numbers - first)
        counts = [*output.counts, Applied(0, work.model.n_classes_, 0, errors.counts)]
        written = output.rows(work) if output.filled else _no_rows(work)
        encoded = writer.encode(replace(written, others=others))
        return encoded, Applied.total(work.model.n_classes_, counts)

    # Boxes, so that the worker can drop the last reference to a batch.
    batches = read_batches(list(work.files.values()), progress)
    boxes = map(lambda rows: [rows], batches)  # noqa: C417 - a comprehension holds the last one
    return map_overlapped(boxes, apply_batch)


def _other_columns(work: ModelApplication, rows: Rows) -> Any:
    """Return the columns of the input that are copied, the first file's first."""
    tables = [batch.others for batch in rows if batch.others is not None]
    if not tables:
        return None
    first, *others = tables
    # The files may be one, of which each reads some columns.
    used = set()
    if not work.options.keep_scores:
        used = {column for file in work.files.values() for column in file.columns or (file.key,)}
    first = first.select([name for name in first.column_names if name not in used])
    for other in others:
        for name in other.column_names:
            if name not in used and name not in first.column_names:
                first = first.append_column(other.schema.field(name), other.column(name))
    return first


def _block_edges(rows: int, classes: int) -> list[int]:
    """Cut a batch into blocks whose temporary arrays stay in the cache."""
    blocks = -(-rows * classes // _BLOCK_ENTRIES)
    edges: list[int] = np.linspace(0, rows, blocks + 1).astype(int).tolist()
    return edges


class _Output:
    """The output of a batch, filled while each block is in the cache; class by class."""

    def __init__(self, rows: int) -> None:
        self._capacity, self.filled = rows, 0
        self._matrices: dict[str, NumPyArray] = {}
        self._vectors: list[Mapping[str, NumPyArray]] = []
        self._numbers = [np.empty(0, dtype=np.intp)]
        self.counts: list[Applied] = []

    @property
    def numbers(self) -> npt.NDArray[np.intp]:
        """The numbers of the rows in the input."""
        return np.concatenate(self._numbers)

    def add(self, block: _Computed, numbers: npt.NDArray[np.intp]) -> None:
        """Append a block of rows."""
        stop = self.filled + len(numbers)
        for name, matrix in block.matrices.items():
            if name not in self._matrices:
                shape = matrix.shape[1], self._capacity
                self._matrices[name] = large_empty(shape, matrix.dtype)
            self._matrices[name][:, self.filled : stop] = matrix.T
        self.filled = stop
        self._vectors.append(block.vectors)
        self._numbers.append(numbers)
        self.counts.append(block.counts)

    def rows(self, work: ModelApplication) -> OutputRows:
        """Return the rows."""
        matrices = {name: matrix[:, : self.filled] for name, matrix in self._matrices.items()}
        vectors = {
            name: np.concatenate([block[name] for block in self._vectors])
            for name in self._vectors[0]
        }
        if work.options.on_error == "skip":
            vectors["row"] = self.numbers
        return OutputRows(vectors.pop("prediction"), vectors.pop("confidence"), matrices, vectors)


def _check_predictions(
    repaired: NumPyArray,
    prediction: npt.NDArray[np.integer[Any]],
    rule: PredictionRule | None,
) -> None:
    """Refuse to write rows that are not probabilities, or have another prediction."""
    if rule is None:
        unchanged = bool((repaired.argmax(axis=1) == prediction).all())
    else:
        unchanged = bool(strictly_first(repaired, prediction, rule).all())
    # One sum finds NaN and infinity without an array of flags.
    if not unchanged or not np.isfinite(repaired.sum(dtype=np.float64)):
        raise InputError(
            "model",
            "gives repaired probabilities that do not keep the predictions",
            "fit it again; if that does not help, this is a bug of cordcal",
        )
