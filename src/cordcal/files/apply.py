"""Apply a model to files of any size: read, predict, check every vector, write.

An output appears complete or not at all.  A folder is written part by part: one file in it lists
the finished parts with digests of their inputs, so that a later run makes only the others.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import ClusterFailure, InputError, Interrupted
from cordcal._numeric.arrays import row_digests
from cordcal._numeric.types import NumPyArray, NumPyDType, Record
from cordcal._validation.labels import group_names
from cordcal.files.context import FileContext, count_unknown, errors_of_scores
from cordcal.files.disk import (
    large_empty,
    open_locked,
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
    SUFFIXES,
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

Item = TypeVar("Item")
Result = TypeVar("Result")
Open = Callable[[str], ScoreFile]
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each item, on any machine, and yields the results in order."""

# 1 MB of float64: the temporaries of a block stay in the cache.
_BLOCK_ENTRIES = 2**17
FINISHED = "_cordcal.jsonl"
"""The file in an output folder that lists its finished parts."""


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
        """Return the probabilities of some rows."""

    def rounded(self, repaired: NumPyArray, prediction: npt.NDArray[np.integer[Any]]) -> NumPyArray:
        """Return the probabilities with the decimals that were asked for."""
        if self.options.decimals is None:
            return repaired
        decimals = check_decimals(self.options.decimals, self.dtype)
        rule = self.model.rule_
        weights = None if rule is None else rule.weights
        return round_to_decimals(repaired, prediction, decimals, weights)


@dataclass(frozen=True, eq=False)
class _Computed:
    """Probabilities of a block of rows, and the predictions they keep."""

    repaired: NumPyArray
    direct: NumPyArray
    prediction: npt.NDArray[np.integer[Any]]
    extra: Mapping[str, NumPyArray]
    unknown: Mapping[str, int] = field(default_factory=dict)
    uncertified: int = 0


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
        extra = self._act_columns(batch, outputs, groups)
        if self.options.explain:
            explanation = self.model.explain(batch.values, context=context)
            extra.update(_explanation_columns(explanation))
        repaired = self.rounded(outputs.repaired, outputs.prediction)
        unknown = count_unknown(context or {})
        uncertified = self._count_uncertified(groups)
        return _Computed(repaired, outputs.direct, outputs.prediction, extra, unknown, uncertified)

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
        self, batch: Batch, outputs: Outputs, groups: NumPyArray | None
    ) -> dict[str, NumPyArray]:
        """Return which predictions to act on, if the model has a certificate."""
        certificate = self.model.certificate_
        if certificate is None or (certificate.by == "group" and groups is None):
            return {}
        mass = outputs.repaired[np.arange(len(outputs.prediction)), outputs.prediction]
        columns = {"act": certificate.accepts_confidence(mass, outputs.prediction, groups)}
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
        return _Computed(self.rounded(repaired, prediction), second.values, prediction, extra)


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
        raise _all_skipped_error(
            " and ".join(source.name for source in work.files.values()), applied.skipped
        )


def _all_skipped_error(name: str, skipped: Mapping[str, int]) -> InputError:
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
    rows = changed = 0
    skipped: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    uncertified = 0
    is_begun = False
    for batch in _applied_batches(work, writer, progress):
        skipped += batch.skipped
        unknown += batch.unknown
        uncertified += batch.uncertified
        changed += batch.changed
        rows += batch.rows
        if batch.rows or not is_begun:
            writer.write(batch.encoded)
            is_begun = True
        del batch
    if not is_begun:
        writer.write(writer.encode(_no_rows(work)))
    writer.close()
    return Applied(
        rows,
        work.model.n_classes_,
        changed,
        dict(sorted(skipped.items())),
        unknown=dict(sorted(unknown.items())),
        uncertified=uncertified,
    )


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
    collected = _CollectedRows(work, 1)
    batches = tuple(Batch(0, uniform, context=empty) for _ in work.files)
    collected.add(batches[0], work.apply(batches), work.model.rule_)
    collected.filled = 0
    others = None
    if any(source.passthrough for source in work.files.values()):
        others = next(iter(work.files.values())).empty_others()
    return replace(collected.rows(), others=others)


@dataclass(frozen=True, eq=False)
class _AppliedBatch:
    """The encoded output of one batch, and what is counted of it."""

    encoded: Any
    rows: int
    changed: int
    skipped: Counter[str]
    unknown: Counter[str]
    uncertified: int


def _applied_batches(
    work: ModelApplication, writer: Writer, progress: Progress | None
) -> Iterator[_AppliedBatch]:
    """Read, apply, check and encode all batches."""
    options = work.options

    def apply_batch(box: list[Rows]) -> _AppliedBatch:
        batches = box.pop()  # the last reference, so that it is freed before encoding
        others = _other_columns(work, batches)
        first, rows = batches[0].first, len(batches[0])
        errors = RowErrors(work.files, options.on_error)
        collected = _CollectedRows(work, rows)
        for start, stop in pairwise(_block_edges(*batches[0].values.shape)):
            accepted = errors.apply(tuple(batch.rows(start, stop) for batch in batches), work.apply)
            if accepted is not None:
                collected.add(accepted[0][0], accepted[1], work.model.rule_)
            del accepted
        del batches
        if others is not None and collected.filled != rows:
            others = others.take(collected.numbers - first) if collected.filled else others[:0]
        encoded = writer.encode(replace(collected.rows(), others=others))
        return _AppliedBatch(
            encoded,
            collected.filled,
            collected.changed,
            errors.counts,
            collected.unknown,
            collected.uncertified,
        )

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


class _CollectedRows:
    """The output rows of a batch, class by class, collected in arrays of the batch's size."""

    def __init__(self, work: ModelApplication, rows: int) -> None:
        self._work, self._capacity = work, rows
        self.filled = self.changed = self.uncertified = 0
        self.unknown: Counter[str] = Counter()
        self._matrices: dict[str, NumPyArray] = {}
        self._vectors: dict[str, NumPyArray] = {}

    @property
    def numbers(self) -> npt.NDArray[np.intp]:
        """The numbers of the rows in the input."""
        return self._vectors["row"][: self.filled]

    def add(self, batch: Batch, block: _Computed, rule: PredictionRule | None) -> None:
        """Check and append a block."""
        _check_predictions(block, rule)
        self.unknown.update(block.unknown)
        self.uncertified += block.uncertified
        stop = self.filled + len(block.prediction)
        matrices = {"repaired": block.repaired}
        if self._work.options.with_direct:
            matrices["direct"] = block.direct
        for name, matrix in matrices.items():
            if name not in self._matrices:
                shape = (matrix.shape[1], self._capacity)
                self._matrices[name] = large_empty(shape, matrix.dtype)
            self._matrices[name][:, self.filled : stop] = matrix.T
        confidence = np.take_along_axis(block.repaired, block.prediction[:, None], axis=1)[:, 0]
        vectors = {"prediction": block.prediction, "confidence": confidence, **block.extra}
        if self._work.options.on_error == "skip":
            vectors["row"] = batch.numbers
        for name, vector in vectors.items():
            if name not in self._vectors:
                self._vectors[name] = np.empty(self._capacity, vector.dtype)
            self._vectors[name][self.filled : stop] = vector
        self.filled = stop
        direct = block.direct.argmax(axis=1) if rule is None else rule.predict(block.direct)
        self.changed += int(np.count_nonzero(direct != block.prediction))

    def rows(self) -> OutputRows:
        """Return the rows."""
        if not self._matrices:  # every row was refused
            return _no_rows(self._work)
        vectors = {name: vector[: self.filled] for name, vector in self._vectors.items()}
        matrices = {name: matrix[:, : self.filled] for name, matrix in self._matrices.items()}
        prediction, confidence = vectors.pop("prediction"), vectors.pop("confidence")
        return OutputRows(prediction, confidence, matrices, vectors)


def _check_predictions(block: _Computed, rule: PredictionRule | None) -> None:
    """Refuse to write rows that are not probabilities, or have another prediction."""
    if rule is None:
        unchanged = bool((block.repaired.argmax(axis=1) == block.prediction).all())
    else:
        unchanged = bool(strictly_first(block.repaired, block.prediction, rule).all())
    # One sum finds NaN and infinity without an array of flags.
    if not unchanged or not np.isfinite(block.repaired.sum(dtype=np.float64)):
        raise InputError(
            "model",
            "gives repaired probabilities that do not keep the predictions",
            "fit it again; if that does not help, this is a bug of cordcal",
        )


# Folders.


def run_locally(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Run the work in this process, one item after the other."""
    return map(function, items)


def pair_parts(files: Sequence[ScoreFile]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the names of the parts, and the files of each as absolute paths."""
    parts = [file.parts.files for file in files]
    names = [file.parts.relative for file in files]
    if any(other != names[0] for other in names[1:]) and max(map(len, names)) > 1:
        raise InputError(
            files[0].path,
            f"and {files[1].path} have parts with different names",
            "give the parts of the same rows the same names",
        )
    return names[0], [tuple(map(os.path.abspath, paths)) for paths in zip(*parts, strict=True)]


@dataclass(frozen=True)
class PartWork:
    """How to repair one part: everything that a process on another machine needs.

    Attributes
    ----------
    model : PreservingCalibrator, CORD or Lift
        The fitted model.
    readers : tuple of callable
        Open a part of the scores, or of the original and the direct probabilities.
    options : ApplyOptions
        What to compute and write.
    context : FileContext or None
        The columns next to the scores that the model needs.
    """

    model: Any
    readers: tuple[Open, ...]
    options: ApplyOptions
    context: FileContext | None = None

    def __call__(self, part: tuple[tuple[str, ...], str]) -> dict[str, Any]:
        """Repair a part, given as its inputs and its output, and describe what was done."""
        paths, output = part
        digest = input_digest(paths)
        files = [reader(path) for reader, path in zip(self.readers, paths, strict=True)]
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        work = application(self.model, files, self.options, self.context)
        applied = apply_model(work, output, allow_none=True)
        return {"input": digest, "bytes": os.path.getsize(output), **applied.to_dict()}


def input_digest(paths: Sequence[str]) -> str:
    """Return a digest of the contents of files."""
    whole = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def apply_parts(
    work: PartWork,
    names: Sequence[str],
    inputs: Sequence[tuple[str, ...]],
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    run: Run = run_locally,
) -> Applied:
    """Write the repaired probabilities of each part to a file of the same name in a folder.

    Parameters
    ----------
    work : PartWork
        How to repair a part.
    names : sequence of str
        The name of each part in the folder.
    inputs : sequence of tuple of str
        The files of each part.
    folder : path
        The folder of the outputs.
    resume : bool
        Keep the parts that an earlier run has written from the same input, model and options.
    overwrite : bool
        Whether existing parts may be replaced.
    run : callable
        Runs the work; by default in this process, one part after the other.

    Returns
    -------
    applied : Applied
        Counts over all parts.
    """
    for name in names:
        if Path(name).suffix.lower() not in SUFFIXES:
            raise InputError(
                name,
                "has a format in which probabilities cannot be written",
                f"name an output file with one of the suffixes {', '.join(SUFFIXES)}",
            )
    target = Path(folder)
    job = describe_job(work)
    with _finished_parts(target, names, job, resume=resume, overwrite=overwrite) as finished:
        for name, paths in zip(names, inputs, strict=True):
            if name in finished.parts and finished.parts[name]["input"] != input_digest(paths):
                del finished.parts[name]
        resumed = sum(part["rows"] for part in finished.parts.values())
        remaining = [at for at, name in enumerate(names) if name not in finished.parts]
        # Workers may run in another folder.
        items = [(inputs[at], os.path.abspath(target / names[at])) for at in remaining]
        try:
            for at, done in zip(remaining, run(work, items), strict=True):
                finished.add(names[at], done)
        except (KeyboardInterrupt, ClusterFailure) as error:
            progress = f"{len(finished.parts)} of {len(names)} parts are complete in {folder}"
            hint = "the same command with {option} makes the others"
            option = ("resume", "True")
            if isinstance(error, ClusterFailure):
                reason = f"{error.reason}; {progress}"
                raise ClusterFailure(error.argument, reason, hint, option=option) from error
            raise Interrupted(progress, hint, option=option) from error
    skipped: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for part in finished.parts.values():
        skipped.update(part["skipped"])
        unknown.update(part["unknown"])
    rows, changed, uncertified = (
        sum(part[what] for part in finished.parts.values())
        for what in ("rows", "changed", "uncertified")
    )
    if not rows and skipped:
        raise _all_skipped_error(str(folder), skipped)
    counts = dict(sorted(skipped.items())), resumed, dict(sorted(unknown.items())), uncertified
    return Applied(rows, work.model.n_classes_, changed, *counts)


def describe_job(work: PartWork) -> str:
    """Return a digest of all that an output depends on except its input."""
    from cordcal._version import __version__

    arrays, meta = work.model.to_state()
    reading = [repr(getattr(reader, "keywords", None)) for reader in work.readers]
    facts = [__version__, meta, asdict(work.options), reading]
    if work.context is not None:
        opinion = work.context.opinion
        facts += [dict(work.context.columns), dict(work.context.unknown)]
        facts += [] if opinion is None else [opinion.id_column, input_digest(opinion.paths)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


class _FinishedParts:
    """The finished parts of a folder, in memory and in a file of it."""

    def __init__(self, file: BinaryIO, job: str, parts: dict[str, dict[str, Any]]) -> None:
        self._file, self._job, self.parts = file, job, parts

    def add(self, name: str, done: dict[str, Any]) -> None:
        self.parts[name] = done
        self._file.write(json.dumps({"part": name, "job": self._job, **done}).encode() + b"\n")
        self._file.flush()


@contextmanager
def _finished_parts(
    folder: Path, names: Sequence[str], job: str, *, resume: bool, overwrite: bool
) -> Iterator[_FinishedParts]:
    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), "is a file", "name a folder for the parts")
    existing = _existing_files(folder)
    foreign = sorted(existing - {*names})
    if foreign:
        raise InputError(
            str(folder), f"contains other files ({foreign[0]})", "name a new or an empty folder"
        )
    if existing and not (overwrite or resume):
        raise InputError(
            str(folder),
            f"already contains {len(existing):,} parts",
            "pass {option} to keep those that are up to date",
            option=("resume", "True"),
        )
    folder.mkdir(parents=True, exist_ok=True)
    handle = open_locked(folder / FINISHED)
    if handle is None:
        raise InputError(str(folder), "is being written by another process", "wait for it")
    with os.fdopen(handle, "r+b") as file:
        parts = _read_finished(file, folder, job) if resume else {}
        parts = {name: part for name, part in parts.items() if name in set(names)}
        file.seek(0)
        file.truncate()
        finished = _FinishedParts(file, job, {})
        for name, part in parts.items():
            finished.add(name, part)
        yield finished


def _existing_files(folder: Path) -> set[str]:
    """Return the files of a folder that a reader would take for parts."""
    if not folder.is_dir():
        return set()
    relative = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return {
        str(path)
        for path in relative
        if not any(name.startswith((".", "_")) for name in path.parts)
    }


def _read_finished(file: BinaryIO, folder: Path, job: str) -> dict[str, dict[str, Any]]:
    """Return the parts that runs of the same job have finished and that are still there."""
    parts: dict[str, dict[str, Any]] = {}
    for line in file.read().splitlines(keepends=True):
        try:
            part = json.loads(line)
            name, own_job, size = part.pop("part"), part.pop("job"), part["bytes"]
            counts = {"rows", "changed", "skipped", "unknown", "uncertified"}
            complete = {"input", *counts} <= part.keys()
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # the line of a killed run may be cut
        target = folder / name
        if complete and own_job == job and target.is_file() and target.stat().st_size == size:
            parts[name] = part
        else:
            parts.pop(name, None)
    return parts
