"""Apply a model to files of any size: read, repair and write overlap, memory stays flat."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal.files.encoding import Layout, OutputBlock
from cordcal.files.formats import encoder_for
from cordcal.files.memory import empty
from cordcal.files.output import Record, nothing_left, resumable_output
from cordcal.files.passthrough import Passthrough, concat
from cordcal.files.scores import Batch, ScoreFile
from cordcal.files.writing import write_probabilities
from cordcal.pipeline._overlap import overlapped
from cordcal.pipeline._pairs import Progress, batches_of, read_original
from cordcal.pipeline._refusals import OnError, Parts, Refusals

# 1 MB of float64: the temporaries of a block stay in the cache.
_BLOCK_ENTRIES = 2**17


@dataclass(frozen=True)
class Applied:
    """What `apply_model` did.

    Attributes
    ----------
    rows, classes : int
        Rows written, and classes.
    changed : int
        Rows whose direct report decides otherwise; the repaired one never does.
    skipped : dict of str to int
        How many rows were left out, by reason.
    resumed : int
        Rows that an earlier run had written already.
    """

    rows: int
    classes: int
    changed: int
    skipped: dict[str, int] = field(default_factory=dict)
    resumed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)


class Repairer(ABC):
    """A model and the files it is applied to, row block by row block."""

    def __init__(self, dtype: npt.DTypeLike | None, with_direct: bool, explain: bool) -> None:
        self.dtype, self.with_direct, self.explain = dtype, with_direct, explain

    @property
    def layout(self) -> Layout:
        """How the input has its scores: one column a class, or one array."""
        return "wide" if next(iter(self.files.values())).columns else "list"

    def rest(self, parts: Parts) -> Passthrough | None:
        """Return the columns of the input that are passed on, those of the first file first."""
        first, *others = (batch.rest for batch in parts)
        if first is None:
            return None
        # The files may be one, of which each reads some columns.
        taken = {column for file in self.files.values() for column in file.consumed}
        found = first.without(taken)
        for other in others:
            found = found if other is None else found.merge(other.without(taken))
        return found

    model: Any
    files: dict[str, ScoreFile]
    """The input files by the argument's name that errors call them."""
    classes: int
    dtypes: dict[str, np.dtype[Any]]
    """The dtype of each report."""

    def batches(self, start: int, progress: Progress | None = None) -> Iterator[Parts]:
        """Yield the same rows of every file."""
        return batches_of(list(self.files.values()), start, progress)

    @abstractmethod
    def reports(self, parts: Parts) -> tuple[OutputBlock, npt.NDArray[Any]]:
        """Return the output's rows, and the direct report."""


class CalibratedRows(Repairer):
    """A calibrator with its repair, and a file of scores."""

    def __init__(self, model: Any, scores: ScoreFile, **options: Any) -> None:
        super().__init__(**options)
        # A label in a column that is passed on may be of a class that the model does not know.
        self.files = {"scores": scores.without_labels()}
        self.model, self.classes = model, scores.classes
        self.dtypes = {"repaired": _output_dtype(self.dtype, scores.dtype)}

    def reports(self, parts: Parts) -> tuple[OutputBlock, npt.NDArray[Any]]:
        """Return the output's rows, and the direct report."""
        from cordcal._validation.scores import original_probabilities
        from cordcal.calibrators.registry import takes_features

        (batch,) = parts
        given = batch.values
        features = batch.features if takes_features(self.model.calibrator_) else None
        found = self.model.predict_both(given, dtype=self.dtypes["repaired"], features=features)
        extra = {}
        if self.explain:
            original = original_probabilities(given, self.model.calibrator_.input)
            explanation = self.model.repair_.explain(
                original, found.direct, decision=found.decision
            )
            extra = _columns(explanation)
        reports = {"repaired": found.repaired}
        if self.with_direct:
            reports["direct"] = found.direct
        return OutputBlock(reports, found.decision, extra), found.direct


class RepairedRows(Repairer):
    """A repair alone, and the files of the original and the direct reports."""

    def __init__(self, cord: Any, original: ScoreFile, direct: ScoreFile, **options: Any) -> None:
        super().__init__(**options)
        files = {"original": original, "direct": direct}
        self.model = cord
        self.files = {name: file.without_labels() for name, file in files.items()}
        self.classes = direct.classes
        wanted = direct.dtype if self.dtype is None else np.dtype(self.dtype)
        self.dtypes = {"repaired": wanted}

    def reports(self, parts: Parts) -> tuple[OutputBlock, npt.NDArray[Any]]:
        """Return the output's rows, and the direct report."""
        first, second = parts
        original, decision = read_original(first.values, self.files["original"].kind)
        pair = original, second.values
        repaired = self.model.transform(*pair, decision=decision, dtype=self.dtypes["repaired"])
        extra = _columns(self.model.explain(*pair, decision=decision)) if self.explain else {}
        reports = {"repaired": repaired}
        if self.with_direct:
            reports["direct"] = second.values
        return OutputBlock(reports, decision, extra), second.values


def _output_dtype(wanted: npt.DTypeLike | None, given: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to write: the scores' own, but float32 where that is half precision."""
    return np.result_type(given, np.float32) if wanted is None else np.dtype(wanted)


def _columns(explanation: Any) -> dict[str, Any]:
    """Return an explanation as columns; the decision has its own already."""
    return {name: column for name, column in explanation.to_dict().items() if name != "decision"}


@dataclass(frozen=True, eq=False)
class _Worked:
    """A batch's rows on their way to the output."""

    encoded: Any
    position: int
    changed: int
    skipped: Counter[str]


class _Worker:
    """Repairs and encodes one batch; called by several threads."""

    def __init__(
        self, repairer: Repairer, encode: Callable[[OutputBlock], Any], on_error: OnError
    ) -> None:
        self.repairer, self.encode, self.on_error = repairer, encode, on_error

    def __call__(self, hand: list[Parts]) -> _Worked:
        """Take a batch out of the hand that holds it, so that it is gone before it is encoded."""
        batches = hand.pop()
        rest = self.repairer.rest(batches)
        batches = tuple(replace(batch, rest=None) for batch in batches)
        rows, classes = batches[0].values.shape
        pieces = -(-rows * classes // _BLOCK_ENTRIES)
        edges = np.linspace(0, rows, pieces + 1).astype(int).tolist()
        refusals = Refusals(self.repairer.files, self.on_error)
        gathered = _Gathered(rows, with_rows=self.on_error == "skip")
        for start, stop in pairwise(edges):
            parts = tuple(batch.rows(start, stop) for batch in batches)
            found = refusals.around(parts, self.repairer.reports)
            if found is not None:
                gathered.add(found[0][0], *found[1])
            del found
        first = batches[0].first
        position = first + rows
        del batches, parts
        block = gathered.block(self.repairer)
        if rest is not None:
            kept = rest if len(block) == rows else rest.take(block.extra["row"] - first)
            self._check_names(block, kept.names)
            block = replace(block, rest=kept)
        return _Worked(self.encode(block), position, gathered.changed, refusals.counts)

    def _check_names(self, block: OutputBlock, passed: tuple[str, ...]) -> None:
        """Refuse a column that would stand in the output beside one of ours of its name."""
        own = {"decision", "decision_name", *block.reports, *block.extra}
        groups = tuple(f"{report}:" for report in block.reports)
        for name in passed:
            if name in own or name.startswith(groups):
                path = next(iter(self.repairer.files.values())).path
                raise InputError(
                    path,
                    f"has a column {name!r}, as the output would",
                    "rename it, or leave the other columns out with {option}",
                    option=("rest", "False"),
                )


class _Gathered:
    """The rows of a batch put together again, in arrays of the batch's size."""

    def __init__(self, rows: int, *, with_rows: bool) -> None:
        self.capacity, self.with_rows = rows, with_rows
        self.filled = self.changed = 0
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self.reports: tuple[str, ...] = ()

    def add(self, batch: Batch, block: OutputBlock, direct: npt.NDArray[Any]) -> None:
        _check_kept(block)
        columns = {**block.reports, "decision": block.decision, **block.extra}
        if self.with_rows:
            columns["row"] = batch.numbers
        self.reports = tuple(block.reports)
        at = slice(self.filled, self.filled + len(block))
        for name, column in columns.items():
            if name not in self.columns:
                self.columns[name] = empty((self.capacity, *column.shape[1:]), column.dtype)
            self.columns[name][at] = column
        self.filled = at.stop
        self.changed += int(np.count_nonzero(direct.argmax(axis=1) != block.decision))

    def block(self, repairer: Repairer) -> OutputBlock:
        found = {name: column[: self.filled] for name, column in self.columns.items()}
        if not found:  # every row was refused
            empty = np.empty((0, repairer.classes), repairer.dtypes["repaired"])
            none = np.empty(0, dtype=np.intp)
            return OutputBlock({"repaired": empty}, none, {"row": none})
        reports = {name: found.pop(name) for name in self.reports}
        return OutputBlock(reports, found.pop("decision"), found)


def _check_kept(block: OutputBlock) -> None:
    """Refuse to write what is no report, or keeps another decision: nothing is said unlooked."""
    repaired = block.reports["repaired"]
    # One sum finds NaN and infinity without an array of flags.
    if (
        not np.isfinite(repaired.sum(dtype=np.float64))
        or (repaired.argmax(axis=1) != block.decision).any()
    ):
        raise InputError(
            "model",
            "gives repaired reports that do not keep the decisions",
            "fit it again; if that does not help, this is a bug of cordcal",
        )


def apply_model(
    repairer: Repairer,
    output: str | os.PathLike[str],
    *,
    class_names: Any = None,
    on_error: OnError = "stop",
    resume: bool = False,
    overwrite: bool = True,
    spreadsheet: bool = False,
    layout: Layout | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Write the repaired reports of a file of any size.

    Reading, repairing and writing overlap; memory holds a few batches of 16 MiB.

    Parameters
    ----------
    repairer : CalibratedRows or RepairedRows
        The model and its input.
    output : path
        A Parquet, Feather, JSONL, CSV, npy or npz file, by its suffix; ``-`` is stdout.
    class_names : sequence of str, optional
        One name a column.
    on_error : {"stop", "skip"}
        What to do with a row that is refused: stop with its file and number, or leave it
        out, count it, and add a column ``row`` with the numbers of those that are kept.
    resume : bool
        Go on where a killed run of the same job stopped; the file will be the same, byte
        for byte.
    overwrite : bool
        Whether a file of that name may be replaced.
    spreadsheet : bool
        In CSV, begin words that a spreadsheet would take for formulas with an apostrophe.
    layout : {"wide", "list"}, optional
        Reports as one column a class, or as one column of lists; by default as the input has
        its scores.  CSV has no lists, npy and npz files no columns.
    progress : callable, optional
        Told how many rows were read, of how many.

    Returns
    -------
    applied : Applied
        Counts of what was done.
    """
    if on_error == "skip" and Path(output).suffix.lower() == ".npy":
        raise InputError(
            str(output),
            "is a npy file, which cannot say which rows were left out",
            "write a Parquet, Feather, JSONL or CSV file where rows are skipped",
        )
    for source in repairer.files.values():
        source.go_into(Path(output).suffix.lower() or ".csv")
    if str(output) == "-" or Path(output).suffix.lower() == ".npz":
        return _apply_at_once(
            repairer,
            output,
            on_error,
            progress,
            class_names=class_names,
            overwrite=overwrite,
            spreadsheet=spreadsheet,
        )
    chosen = layout or repairer.layout
    encoder = encoder_for(output, class_names, spreadsheet=spreadsheet, layout=chosen)
    work = _Worker(repairer, encoder.encode, on_error)
    job = _job(repairer, class_names, on_error, spreadsheet, chosen)
    with resumable_output(output, encoder, job, resume=resume, overwrite=overwrite) as file:
        resumed = file.rows
        for done in overlapped(_hands(repairer.batches(file.position, progress)), work):
            file.append(
                done.encoded, position=done.position, changed=done.changed, skipped=done.skipped
            )
            del done
    return _summary(file.records, repairer.classes, resumed)


def _hands(batches: Iterator[Parts]) -> Iterator[list[Parts]]:
    """Wrap each batch so that whoever takes it is the only one who holds it."""
    return map(lambda parts: [parts], batches)  # noqa: C417 - a comprehension holds the last one


def _apply_at_once(
    repairer: Repairer,
    output: str | os.PathLike[str],
    on_error: OnError,
    progress: Progress | None,
    **options: Any,
) -> Applied:
    """Write what cannot grow: a npz archive, or lines to stdout."""
    block, done = report_at_once(repairer, output, on_error=on_error, progress=progress)
    write_probabilities(
        output, block.reports, block.decision, extra=block.extra, rest=block.rest, **options
    )
    return done


def report_at_once(
    repairer: Repairer,
    output: str | os.PathLike[str],
    *,
    on_error: OnError = "stop",
    progress: Progress | None = None,
) -> tuple[OutputBlock, Applied]:
    """Return the reports of all rows in memory, and what was done.

    Parameters
    ----------
    repairer : CalibratedRows or RepairedRows
        The model and its input.
    output : path
        What errors call that which nothing is left for.
    on_error, progress
        As for `apply_model`.

    Returns
    -------
    block : OutputBlock
        The rows; ``extra`` has their numbers under ``"row"`` where some may be skipped.
    applied : Applied
        Counts of what was done.
    """
    work = _Worker(repairer, lambda block: block, on_error)
    done = list(overlapped(_hands(repairer.batches(0, progress)), work))
    blocks = [each.encoded for each in done if len(each.encoded)]
    if not blocks:
        raise nothing_left(output, (each.skipped for each in done))

    def together(columns: Iterable[Mapping[str, Any]]) -> dict[str, npt.NDArray[Any]]:
        parts = list(columns)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    whole = OutputBlock(
        together(block.reports for block in blocks),
        np.concatenate([block.decision for block in blocks]),
        together(block.extra for block in blocks),
        concat([block.rest for block in blocks]),
    )
    records = [
        {"rows": len(each.encoded), "changed": each.changed, "skipped": each.skipped}
        for each in done
    ]
    return whole, _summary(records, repairer.classes, 0)


def _summary(records: list[Record], classes: int, there: int) -> Applied:
    skipped: Counter[str] = Counter()
    for record in records:
        skipped.update(record["skipped"])
    rows, changed = (sum(record[name] for record in records) for name in ("rows", "changed"))
    return Applied(rows, classes, changed, dict(sorted(skipped.items())), there)


def described_model(model: Any) -> dict[str, Any]:
    """Return what tells a model from every other one, and the version that applies it."""
    from cordcal._version import __version__

    held, meta = model._state()
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name, array in sorted(held.items()):
        digest.update(name.encode() + array.tobytes())
    return {"version of cordcal": __version__, "model": digest.hexdigest()}


def _job(
    repairer: Repairer, class_names: Any, on_error: OnError, spreadsheet: bool, layout: Layout
) -> dict[str, Any]:
    """Return all that the output depends on."""
    return {
        **described_model(repairer.model),
        "input": {name: _identity(file) for name, file in repairer.files.items()},
        "set of options": [
            str(repairer.dtypes["repaired"]),
            repairer.with_direct,
            repairer.explain,
            on_error,
            spreadsheet,
            layout,
            None if class_names is None else list(class_names),
        ],
    }


def _identity(file: ScoreFile) -> Mapping[str, Any]:
    return {
        "key": file.key,
        "kind": file.kind,
        "columns": file.consumed,
        "rest": file.with_rest,
        "files": file.identity,
    }
