"""Apply a model to files of any size: read, repair and write overlap, memory stays flat."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray, NumPyDType, Record
from cordcal.files.formats import encoder_for, write_probabilities
from cordcal.files.output import JournalEntry, Layout, OutputBlock, no_rows_left, resumable_output
from cordcal.files.passthrough import Passthrough, concat
from cordcal.files.scores import Batch, ScoreFile
from cordcal.files.sources import large_empty
from cordcal.pipeline.loop import (
    OnError,
    Progress,
    RowErrors,
    Rows,
    map_overlapped,
    original_and_prediction,
    read_batches,
)
from cordcal.repair.prediction_rule import PredictionRule, strictly_first

if TYPE_CHECKING:
    from cordcal.preserving import PreservingCalibrator
    from cordcal.repair import CORD, Lift

Encoded = TypeVar("Encoded")

# 1 MB of float64: the temporaries of a block stay in the cache.
_BLOCK_ENTRIES = 2**17


@dataclass(frozen=True)
class Applied(Record):
    """What `apply_model` did.

    Attributes
    ----------
    rows, classes : int
        Rows written, and classes.
    changed : int
        Rows in which the calibrator predicts another class; the repaired probabilities never do.
    skipped : dict of str to int
        How many rows were skipped, by reason.
    resumed : int
        Rows that an earlier run had written.
    """

    rows: int
    classes: int
    changed: int
    skipped: dict[str, int] = field(default_factory=dict)
    resumed: int = 0


class ModelApplication(ABC):
    """A model and the files it is applied to, some rows at a time.

    Attributes
    ----------
    model : PreservingCalibrator, CORD or Lift
        The fitted model.
    files : dict of str to ScoreFile
        The input files by the names of the arguments in errors.
    classes : int
        The number of classes.
    output_dtype : dtype
        The dtype of the repaired probabilities.
    """

    model: PreservingCalibrator | CORD | Lift
    files: dict[str, ScoreFile]
    classes: int
    output_dtype: NumPyDType

    def __init__(self, dtype: npt.DTypeLike | None, with_direct: bool, explain: bool) -> None:
        self.dtype, self.with_direct, self.explain = dtype, with_direct, explain

    @property
    def layout(self) -> Layout:
        """How the input has its scores: one column per class, or one array."""
        return "wide" if next(iter(self.files.values())).columns else "list"

    def passthrough(self, rows: Rows) -> Passthrough | None:
        """Return the columns of the input that are passed through, the first file's first."""
        first, *others = (batch.passthrough for batch in rows)
        if first is None:
            return None
        # The files may be one, of which each reads some columns.
        used = {column for file in self.files.values() for column in file.consumed}
        columns = first.without(used)
        for other in others:
            columns = columns if other is None else columns.merge(other.without(used))
        return columns

    @abstractmethod
    def apply(self, rows: Rows) -> tuple[OutputBlock, NumPyArray]:
        """Return the rows of the output, and the direct probabilities."""


class CalibratedRows(ModelApplication):
    """A calibrator with its repair, and a file of scores."""

    model: PreservingCalibrator

    def __init__(self, model: PreservingCalibrator, scores: ScoreFile, **options: Any) -> None:
        super().__init__(**options)
        # A label in a column that is passed through may be of a class the model does not know.
        self.files = {"scores": scores.without_labels()}
        self.model, self.classes = model, scores.classes
        # Half precision would be too coarse for probabilities.
        default = np.result_type(scores.dtype, np.float32)
        self.output_dtype = default if self.dtype is None else np.dtype(self.dtype)

    def apply(self, rows: Rows) -> tuple[OutputBlock, NumPyArray]:
        """Return the rows of the output, and the direct probabilities."""
        from cordcal._validation.scores import original_probabilities

        (batch,) = rows
        outputs = self.model.predict_both(batch.values, dtype=self.output_dtype)
        extra = {}
        if self.explain:
            original = original_probabilities(batch.values, self.model.calibrator_.input)
            extra = _explanation_columns(
                self.model.repair_.explain(original, outputs.direct, prediction=outputs.prediction)
            )
        probabilities = {"repaired": outputs.repaired}
        if self.with_direct:
            probabilities["direct"] = outputs.direct
        return OutputBlock(probabilities, outputs.prediction, extra), outputs.direct


class RepairedRows(ModelApplication):
    """A repair alone, and the files of the original and the direct probabilities."""

    model: CORD | Lift

    def __init__(
        self, repair: CORD | Lift, original: ScoreFile, direct: ScoreFile, **options: Any
    ) -> None:
        super().__init__(**options)
        self.model = repair
        self.files = {"original": original.without_labels(), "direct": direct.without_labels()}
        self.classes = direct.classes
        self.output_dtype = direct.dtype if self.dtype is None else np.dtype(self.dtype)

    def apply(self, rows: Rows) -> tuple[OutputBlock, NumPyArray]:
        """Return the rows of the output, and the direct probabilities."""
        first, second = rows
        kind = self.files["original"].kind
        original, prediction = original_and_prediction(first.values, kind)
        repaired = self.model.transform(
            original, second.values, prediction=prediction, dtype=self.output_dtype
        )
        extra = {}
        if self.explain:
            explanation = self.model.explain(original, second.values, prediction=prediction)
            extra = _explanation_columns(explanation)
        probabilities = {"repaired": repaired}
        if self.with_direct:
            probabilities["direct"] = second.values
        return OutputBlock(probabilities, prediction, extra), second.values


def _explanation_columns(explanation: Any) -> dict[str, NumPyArray]:
    """Return an explanation as columns; the prediction has its own already."""
    return {name: column for name, column in explanation.to_dict().items() if name != "prediction"}


@dataclass(frozen=True, eq=False)
class _AppliedBatch(Generic[Encoded]):
    """The output of one batch.

    ``position`` is the number of input rows that are done with it.
    """

    encoded: Encoded
    rows: int
    position: int
    changed: int
    skipped: Counter[str]


def _applied_batches(
    application: ModelApplication,
    encode: Callable[[OutputBlock], Encoded],
    *,
    start: int = 0,
    on_error: OnError,
    progress: Progress | None,
) -> Iterator[_AppliedBatch[Encoded]]:
    """Read, apply, check and encode all batches from a row on."""

    def work(box: list[Rows]) -> _AppliedBatch[Encoded]:
        batches = box.pop()  # the last reference, so that it is freed before encoding
        passthrough = application.passthrough(batches)
        batches = tuple(replace(batch, passthrough=None) for batch in batches)
        first, rows = batches[0].first, len(batches[0])
        errors = RowErrors(application.files, on_error)
        collected = _CollectedRows(rows, with_numbers=on_error == "skip")
        for start, stop in pairwise(_block_edges(*batches[0].values.shape)):
            accepted = errors.apply(
                tuple(batch.rows(start, stop) for batch in batches), application.apply
            )
            if accepted is not None:
                collected.add(accepted[0][0], *accepted[1], application.model.rule_)
            del accepted
        del batches
        block = collected.block(application)
        if passthrough is not None:
            if len(block) != rows:
                passthrough = passthrough.take(block.extra["row"] - first)
            _check_names(application, block, passthrough.names)
            block = replace(block, passthrough=passthrough)
        return _AppliedBatch(
            encode(block), len(block), first + rows, collected.changed, errors.counts
        )

    batches = read_batches(list(application.files.values()), start, progress)
    # Boxes, so that the worker can drop the last reference to a batch.
    boxes = map(lambda rows: [rows], batches)  # noqa: C417 - a comprehension holds the last one
    return map_overlapped(boxes, work)


def _block_edges(rows: int, classes: int) -> list[int]:
    """Cut a batch into blocks whose temporary arrays stay in the cache."""
    blocks = -(-rows * classes // _BLOCK_ENTRIES)
    edges: list[int] = np.linspace(0, rows, blocks + 1).astype(int).tolist()
    return edges


def _check_names(application: ModelApplication, block: OutputBlock, passed: Sequence[str]) -> None:
    """Refuse a passthrough column with the name of one of ours."""
    own = {"prediction", "prediction_name", *block.probabilities, *block.extra}
    groups = tuple(f"{kind}:" for kind in block.probabilities)
    for name in passed:
        if name in own or name.startswith(groups):
            raise InputError(
                next(iter(application.files.values())).path,
                f"has a column {name!r}, as the output would",
                "rename it, or omit the other columns with {option}",
                option=("passthrough", "False"),
            )


class _CollectedRows:
    """The rows of a batch, collected in arrays of the batch's size."""

    def __init__(self, rows: int, *, with_numbers: bool) -> None:
        self.capacity, self.with_numbers = rows, with_numbers
        self.filled = self.changed = 0
        self.columns: dict[str, NumPyArray] = {}
        self.probabilities: tuple[str, ...] = ()

    def add(
        self,
        batch: Batch,
        block: OutputBlock,
        direct: NumPyArray,
        rule: PredictionRule | None,
    ) -> None:
        _check_predictions(block, rule)
        columns = {**block.probabilities, "prediction": block.prediction, **block.extra}
        if self.with_numbers:
            columns["row"] = batch.numbers
        self.probabilities = tuple(block.probabilities)
        rows = slice(self.filled, self.filled + len(block))
        for name, column in columns.items():
            if name not in self.columns:
                self.columns[name] = large_empty((self.capacity, *column.shape[1:]), column.dtype)
            self.columns[name][rows] = column
        self.filled = rows.stop
        direct_prediction = direct.argmax(axis=1) if rule is None else rule.predict(direct)
        self.changed += int(np.count_nonzero(direct_prediction != block.prediction))

    def block(self, application: ModelApplication) -> OutputBlock:
        columns = {name: column[: self.filled] for name, column in self.columns.items()}
        if not columns:  # every row was refused
            none = np.empty(0, dtype=np.intp)
            probabilities = {
                "repaired": np.empty((0, application.classes), application.output_dtype)
            }
            return OutputBlock(probabilities, none, {"row": none})
        probabilities = {name: columns.pop(name) for name in self.probabilities}
        return OutputBlock(probabilities, columns.pop("prediction"), columns)


def _check_predictions(block: OutputBlock, rule: PredictionRule | None) -> None:
    """Refuse to write rows that are not probabilities, or have another prediction."""
    repaired = block.probabilities["repaired"]
    if rule is None:
        unchanged = bool((repaired.argmax(axis=1) == block.prediction).all())
    else:
        unchanged = bool(strictly_first(repaired, block.prediction, rule).all())
    # One sum finds NaN and infinity without an array of flags.
    if not unchanged or not np.isfinite(repaired.sum(dtype=np.float64)):
        raise InputError(
            "model",
            "gives repaired probabilities that do not keep the predictions",
            "fit it again; if that does not help, this is a bug of cordcal",
        )


def apply_model(
    application: ModelApplication,
    output: str | os.PathLike[str],
    *,
    class_names: Sequence[str] | None = None,
    on_error: OnError = "stop",
    resume: bool = False,
    overwrite: bool = True,
    spreadsheet: bool = False,
    layout: Layout | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Write the repaired probabilities of a file of any size.

    Reading, repairing and writing overlap; memory holds a few batches of 16 MiB.

    Parameters
    ----------
    application : CalibratedRows or RepairedRows
        The model and its input.
    output : path
        A file whose suffix selects the format; ``-`` is stdout.
    class_names : sequence of str, optional
        One name per column.
    on_error : {"stop", "skip"}
        What to do with an invalid row: stop with its file and number, or skip it, count it,
        and add a column ``row`` with the numbers of the others.
    resume : bool
        Continue a killed run of the same job; the file will be the same, byte for byte.
    overwrite : bool
        Whether a file of that name may be replaced.
    spreadsheet : bool
        In CSV, begin text that a spreadsheet would take for formulas with an apostrophe.
    layout : {"wide", "list"}, optional
        Probabilities as one column per class, or as one column of lists; by default as the
        input has its scores.  CSV has no lists, npy and npz files no columns.
    progress : callable, optional
        Called with the number of rows read, and of all rows.

    Returns
    -------
    applied : Applied
        Counts of what was done.
    """
    suffix = Path(output).suffix.lower() or ".csv"
    if on_error == "skip" and suffix == ".npy":
        raise InputError(
            str(output),
            "is an npy file, which cannot say which rows were skipped",
            "write a Parquet, Feather, JSONL or CSV file where rows are skipped",
        )
    for source in application.files.values():
        source.unify_parts(suffix)
    writing: dict[str, Any] = {"class_names": class_names, "spreadsheet": spreadsheet}
    if str(output) == "-" or suffix == ".npz":
        block, applied = apply_in_memory(application, output, on_error=on_error, progress=progress)
        write_probabilities(
            output,
            block.probabilities,
            block.prediction,
            extra=block.extra,
            passthrough=block.passthrough,
            overwrite=overwrite,
            **writing,
        )
        return applied
    chosen = layout or application.layout
    encoder = encoder_for(output, layout=chosen, **writing)
    job = _describe_job(application, class_names, on_error, spreadsheet, chosen)
    with resumable_output(output, encoder, job, resume=resume, overwrite=overwrite) as file:
        resumed = file.rows
        for batch in _applied_batches(
            application,
            encoder.encode,
            start=file.position,
            on_error=on_error,
            progress=progress,
        ):
            file.append(
                batch.encoded,
                position=batch.position,
                changed=batch.changed,
                skipped=batch.skipped,
            )
            del batch
    return sum_counts(file.records, application.classes, resumed)


def apply_in_memory(
    application: ModelApplication,
    output: str | os.PathLike[str],
    *,
    on_error: OnError = "stop",
    progress: Progress | None = None,
) -> tuple[OutputBlock, Applied]:
    """Return the repaired probabilities of all rows, and what was done.

    Parameters
    ----------
    application : CalibratedRows or RepairedRows
        The model and its input.
    output : path
        The output, for the error that no row is left for it.
    on_error, progress
        As for `apply_model`.

    Returns
    -------
    block : OutputBlock
        The rows; ``extra`` has their numbers under ``"row"`` where some may be skipped.
    applied : Applied
        Counts of what was done.
    """
    batches = list(
        _applied_batches(application, lambda block: block, on_error=on_error, progress=progress)
    )
    blocks = [batch.encoded for batch in batches if batch.rows]
    if not blocks:
        raise no_rows_left(output, (batch.skipped for batch in batches))

    def concat_columns(columns: Iterable[Mapping[str, Any]]) -> dict[str, NumPyArray]:
        listed = list(columns)
        return {name: np.concatenate([part[name] for part in listed]) for name in listed[0]}

    whole = OutputBlock(
        concat_columns(block.probabilities for block in blocks),
        np.concatenate([block.prediction for block in blocks]),
        concat_columns(block.extra for block in blocks),
        concat([block.passthrough for block in blocks]),
    )
    records = [
        {"rows": batch.rows, "changed": batch.changed, "skipped": batch.skipped}
        for batch in batches
    ]
    return whole, sum_counts(records, application.classes, 0)


def sum_counts(records: list[JournalEntry], classes: int, resumed: int) -> Applied:
    """Return the totals of the records of batches or parts."""
    skipped: Counter[str] = Counter()
    for record in records:
        skipped.update(record["skipped"])
    rows, changed = (sum(record[name] for record in records) for name in ("rows", "changed"))
    return Applied(rows, classes, changed, dict(sorted(skipped.items())), resumed)


def describe_model(model: PreservingCalibrator | CORD | Lift) -> dict[str, str]:
    """Return what distinguishes a model from every other one, and the version that applies it."""
    from cordcal._version import __version__

    arrays, meta = model._state()
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + array.tobytes())
    return {"version of cordcal": __version__, "model": digest.hexdigest()}


def _describe_job(
    application: ModelApplication,
    class_names: Sequence[str] | None,
    on_error: OnError,
    spreadsheet: bool,
    layout: Layout,
) -> JournalEntry:
    """Return all that the output depends on."""
    return {
        **describe_model(application.model),
        "input": {name: _describe_input(file) for name, file in application.files.items()},
        "set of options": [
            str(application.output_dtype),
            application.with_direct,
            application.explain,
            on_error,
            spreadsheet,
            layout,
            None if class_names is None else list(class_names),
        ],
    }


def _describe_input(file: ScoreFile) -> JournalEntry:
    return {
        "key": file.key,
        "kind": file.kind,
        "columns": file.consumed,
        "passthrough": file.with_passthrough,
        "files": file.identity,
    }
