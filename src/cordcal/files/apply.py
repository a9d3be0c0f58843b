"""Apply a model to files of any size: read, predict, check every vector, write.

An output appears complete or not at all.  Parts of an input become one output each, here or on a
cluster; a file in the output folder lists the finished ones with digests of their inputs, so that a
later run makes only the others.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal._errors import ClusterFailure, InputError, Interrupted
from cordcal._numeric.arrays import row_digests
from cordcal._numeric.types import NumPyArray, NumPyDType, Record
from cordcal._validation.labels import group_names
from cordcal.files.context import FileContext, count_unknown, errors_of_scores
from cordcal.files.disk import large_empty, open_locked, replacing, write_to_stdout
from cordcal.files.loop import (
    OnError,
    Open,
    Progress,
    RowErrors,
    Rows,
    Run,
    map_overlapped,
    original_and_prediction,
    pair_parts,
    read_batches,
    run_locally,
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
    from cordcal.preserving import Outputs

FINISHED = "_cordcal.jsonl"
"""The file in an output folder that lists its finished parts."""

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

    def check_not_all_skipped(self, name: str) -> None:
        """Refuse an output without rows because all of an input were skipped."""
        if self.skipped and not self.rows:
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in self.skipped.items())
            reason = f"has no row that can be written ({reasons})"
            raise InputError(name, reason, "fix the rows, or pass others")


@dataclass(frozen=True)
class ApplyOptions(OutputFormat):
    """What `apply` computes, and how it is written.

    Attributes
    ----------
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
    groups : str or None
        The key or column of each row's group, for a certificate by group.
    """

    dtype: str | None = None
    decimals: int | None = None
    with_direct: bool = False
    explain: bool = False
    passthrough: bool = True
    keep_scores: bool = False
    on_error: OnError = "stop"
    audit: float | None = None
    groups: str | None = None


# The model and its rows.


class ModelApplication:
    """A model and the files it is applied to, some rows at a time.

    Parameters
    ----------
    model : PreservingCalibrator, CORD or Lift
        The fitted model.
    files : sequence of ScoreFile
        The file of the scores, or, for a repair alone, those of the original and the direct
        probabilities.
    options : ApplyOptions
        What to compute and write.
    context : FileContext, optional
        The columns next to the scores that the model needs.

    Attributes
    ----------
    files : dict of str to ScoreFile
        The input files by the names of the arguments in errors.
    dtype : dtype
        The dtype of the repaired probabilities.
    """

    def __init__(
        self,
        model: Any,
        files: Sequence[ScoreFile],
        options: ApplyOptions,
        context: FileContext | None = None,
    ) -> None:
        self.model, self.options, self.context = model, options, context
        if context is not None and context.opinion is not None:
            context.opinion.load()  # before several threads would
        dtype = files[-1].dtype
        names = ["original", "direct"]
        if len(files) == 1:
            names = ["scores"]
            dtype = np.result_type(dtype, np.float32)  # half precision is too coarse for these
        # Labels are not needed, and a column that is copied may be of an unknown class.
        unlabelled = (file.without_labels() for file in files)
        self.files = dict(zip(names, unlabelled, strict=True))
        self.dtype: NumPyDType = np.dtype(options.dtype or dtype)

    def apply(self, rows: Rows) -> tuple[OutputRows, Applied]:
        """Return the probabilities of some rows, which keep the predictions, and the counts."""
        return self._calibrate(*rows) if len(rows) == 1 else self._repair(*rows)

    def _calibrate(self, batch: Batch) -> tuple[OutputRows, Applied]:
        """Apply a calibrator with its repair."""
        context = None
        if self.context is not None:
            kind = self.model.calibrator_.input
            context = self.context.of(batch.context, batch.values.shape, kind)
        with errors_of_scores(context):
            outputs = self.model.predict_both(batch.values, context=context, dtype=self.dtype)
        extra, uncertified = self._act_columns(batch, outputs, context)
        if self.options.explain:
            extra |= _explained(self.model.explain(batch.values, context=context))
        counts = {"unknown": count_unknown(context or {}), "uncertified": uncertified}
        pair = outputs.repaired, outputs.direct
        return self._checked(*pair, outputs.prediction, batch.numbers, extra, counts)

    def _repair(self, first: Batch, second: Batch) -> tuple[OutputRows, Applied]:
        """Apply a repair alone."""
        original, prediction = original_and_prediction(first.values, self.files["original"].kind)
        pair = original, second.values
        repaired = self.model.transform(*pair, prediction=prediction, dtype=self.dtype)
        extra = {}
        if self.options.explain:
            extra = _explained(self.model.explain(*pair, prediction=prediction))
        return self._checked(repaired, second.values, prediction, first.numbers, extra, {})

    def _act_columns(
        self, batch: Batch, outputs: Outputs, context: Mapping[str, NumPyArray] | None
    ) -> tuple[dict[str, NumPyArray], int]:
        """Return which predictions to act on, and how many rows are of no certified group."""
        certificate, groups, uncertified = self.model.certificate_, None, 0
        if certificate is None or (certificate.by == "group" and self.options.groups is None):
            return {}, 0
        if self.options.groups is not None:
            groups = group_names(batch.context[self.options.groups], len(batch))
            certified = [part.name for part in certificate.parts]
            uncertified = int(np.isin(groups, certified, invert=True).sum())
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
            columns["audit"] = act & drawn
        return columns, uncertified

    def _checked(
        self,
        repaired: NumPyArray,
        direct: NumPyArray,
        prediction: npt.NDArray[np.integer[Any]],
        numbers: npt.NDArray[np.intp],
        extra: Mapping[str, NumPyArray],
        counts: Mapping[str, Any],
    ) -> tuple[OutputRows, Applied]:
        """Return the probabilities with the decimals that were asked for, checked and counted."""
        rule = self.model.rule_
        if self.options.decimals is not None:
            decimals = check_decimals(self.options.decimals, self.dtype)
            weights = None if rule is None else rule.weights
            repaired = round_to_decimals(repaired, prediction, decimals, weights)
        _check_predictions(repaired, prediction, rule)
        own = direct.argmax(axis=1) if rule is None else rule.predict(direct)
        changed = int(np.count_nonzero(own != prediction))
        matrices = {"repaired": repaired.T}
        if self.options.with_direct:
            matrices["direct"] = direct.T
        confidence = np.take_along_axis(repaired, prediction[:, None], axis=1)[:, 0]
        vectors = {"prediction": prediction, "confidence": confidence, **extra}
        if self.options.on_error == "skip":
            vectors["row"] = numbers
        applied = Applied(len(prediction), self.model.n_classes_, changed, **counts)
        return OutputRows(vectors, matrices), applied


def _explained(explanation: Any) -> dict[str, NumPyArray]:
    """Return an explanation as columns; the prediction has its own already."""
    return {name: column for name, column in explanation.to_dict().items() if name != "prediction"}


def _mixed(digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the digests with evenly distributed bits (the finaliser of SplitMix64)."""
    mixed = (digests ^ (digests >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


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
    work : ModelApplication
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
    name = " and ".join(source.name for source in work.files.values())
    if str(output) == "-":
        buffer = io.BytesIO()
        applied = _write_rows(work, suffix, buffer, progress)
        applied.check_not_all_skipped(name)
        write_to_stdout([buffer.getbuffer()])
        return applied
    with replacing(output, overwrite=overwrite) as temporary, temporary.open("w+b") as file:
        applied = _write_rows(work, suffix, file, progress)
        if not allow_none:
            applied.check_not_all_skipped(name)
        return applied


def _write_rows(
    work: ModelApplication, suffix: str, file: BinaryIO, progress: Progress | None
) -> Applied:
    options = work.options
    if options.passthrough and suffix in TABLE_SUFFIXES:
        # A JSONL row keeps the keys that it has; other formats have the same columns throughout.
        work.files = {
            name: source.with_others(
                unify=suffix != ".jsonl" or source.format != "jsonl",
                keep_scores=options.keep_scores,
            )
            for name, source in work.files.items()
        }
    writer = open_writer(suffix, file, options)
    applied: list[Applied] = []
    try:
        for encoded, counts in _applied_batches(work, writer, progress):
            if counts.rows or not applied:
                writer.write(encoded)
            applied.append(counts)
            del encoded
        if not applied:
            writer.write(writer.encode(_no_rows(work)))
        writer.close()
    except BaseException:
        with suppress(Exception):  # the file is removed
            writer.close()
        raise
    return Applied.total(work.model.n_classes_, applied)


def _no_rows(work: ModelApplication) -> OutputRows:
    """Return the columns of an output without rows: those of a uniform row, cut off."""
    names = [] if work.context is None else [*work.context.to_read]
    if work.options.groups is not None:
        names.append(work.options.groups)
    classes = work.model.n_classes_
    is_logits = len(work.files) == 1 and work.model.score_kind() == "logits"
    batch = Batch(
        values=np.full((1, classes), 0.0 if is_logits else 1.0 / classes),
        numbers=np.arange(1),
        context=dict.fromkeys(names, np.array([""])),
    )
    rows, _ = work.apply(tuple(batch for _ in work.files))
    return OutputRows(
        {name: vector[:0] for name, vector in rows.vectors.items()},
        {name: matrix[:, :0] for name, matrix in rows.matrices.items()},
        next(iter(work.files.values())).empty_others(),
    )


def _applied_batches(
    work: ModelApplication, writer: Writer, progress: Progress | None
) -> Iterator[tuple[Any, Applied]]:
    """Read, apply, check and encode all batches."""

    def apply_batch(box: list[Rows]) -> tuple[Any, Applied]:
        batches = box.pop()  # the last reference, so that it is freed before encoding
        others = _other_columns(work, batches)
        batches = tuple(replace(batch, others=None) for batch in batches)
        first, shape = batches[0].first, batches[0].values.shape
        errors = RowErrors(work.files, work.options.on_error)
        output, counts = _Output(len(batches[0])), []
        for start, stop in pairwise(_block_edges(*shape)):
            block = tuple(batch.take(slice(start, stop)) for batch in batches)
            accepted = errors.apply(block, work.apply)
            if accepted is not None:
                output.add(accepted[0])
                counts.append(accepted[1])
            del accepted, block
        del batches
        counts.append(Applied(0, work.model.n_classes_, 0, errors.counts))
        written = output.rows() if output.filled else _no_rows(work)
        if others is not None and output.filled != shape[0]:
            others = others.take(written.vectors["row"] - first)
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

    def add(self, block: OutputRows) -> None:
        """Append a block of rows."""
        stop = self.filled + len(block)
        for name, matrix in block.matrices.items():
            if name not in self._matrices:
                shape = matrix.shape[0], self._capacity
                self._matrices[name] = large_empty(shape, matrix.dtype)
            self._matrices[name][:, self.filled : stop] = matrix
        self.filled = stop
        self._vectors.append(block.vectors)

    def rows(self) -> OutputRows:
        """Return the rows."""
        return OutputRows(
            {
                name: np.concatenate([block[name] for block in self._vectors])
                for name in self._vectors[0]
            },
            {name: matrix[:, : self.filled] for name, matrix in self._matrices.items()},
        )


# One output for each part, and a list of the finished parts.


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
        work = ModelApplication(self.model, files, self.options, self.context)
        applied = apply_model(work, output, allow_none=True)
        return {"input": digest, "bytes": os.path.getsize(output), "applied": applied.to_dict()}


def input_digest(paths: Sequence[str]) -> str:
    """Return a digest of the contents of files."""
    whole = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def apply_parts(
    work: ModelApplication,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    run: Run = run_locally,
) -> Applied:
    """Write the repaired probabilities of each part to a file of the same name in a folder.

    Parameters
    ----------
    work : ModelApplication
        The model and its input, whose parts have the names of their outputs.
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
    files = list(work.files.values())
    readers = tuple(file.opener for file in files)
    part_work = PartWork(work.model, readers, work.options, work.context)
    names, inputs = pair_parts(files)
    for name in names:
        if Path(name).suffix.lower() not in SUFFIXES:
            raise InputError(
                name,
                "has a format in which probabilities cannot be written",
                f"name an output file with one of the suffixes {', '.join(SUFFIXES)}",
            )
    target = Path(folder)
    job = describe_job(part_work)
    with _open_finished(target, names, may_exist=resume or overwrite) as file:
        stored = _read_finished(file, target, job) if resume else {}
        finished = {
            name: stored[name]
            for name, paths in zip(names, inputs, strict=True)
            if name in stored and stored[name]["input"] == input_digest(paths)
        }
        file.seek(0)
        file.truncate()
        for name, part in finished.items():
            _note_finished(file, job, name, part)
        resumed = sum(part["applied"]["rows"] for part in finished.values())
        remaining = [at for at, name in enumerate(names) if name not in finished]
        # Workers may run in another folder.
        items = [(inputs[at], os.path.abspath(target / names[at])) for at in remaining]
        try:
            for at, done in zip(remaining, run(part_work, items), strict=True):
                finished[names[at]] = done
                _note_finished(file, job, names[at], done)
        except (KeyboardInterrupt, ClusterFailure) as error:
            progress = f"{len(finished)} of {len(names)} parts are complete in {folder}"
            hint = "the same command with {option} makes the others"
            option = ("resume", "True")
            if isinstance(error, ClusterFailure):
                reason = f"{error.reason}; {progress}"
                raise ClusterFailure(error.argument, reason, hint, option=option) from error
            raise Interrupted(progress, hint, option=option) from error
    counted = [Applied(**part["applied"]) for part in finished.values()]
    applied = replace(Applied.total(work.model.n_classes_, counted), resumed=resumed)
    applied.check_not_all_skipped(str(folder))
    return applied


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


@contextmanager
def _open_finished(folder: Path, names: Sequence[str], *, may_exist: bool) -> Iterator[BinaryIO]:
    """Open the list of finished parts, which no other process may write meanwhile."""
    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), "is a file", "name a folder for the parts")
    existing = _existing_files(folder)
    foreign = sorted(existing - {*names})
    if foreign:
        raise InputError(
            str(folder), f"contains other files ({foreign[0]})", "name a new or an empty folder"
        )
    if existing and not may_exist:
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
        yield file


def _note_finished(file: BinaryIO, job: str, name: str, done: dict[str, Any]) -> None:
    """Append a part to the list of finished ones."""
    file.write(json.dumps({"part": name, "job": job, **done}).encode() + b"\n")
    file.flush()


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
            complete = "input" in part and Applied(**part["applied"]).rows >= 0
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # the line of a killed run may be cut
        target = folder / name
        if complete and own_job == job and target.is_file() and target.stat().st_size == size:
            parts[name] = part
        else:
            parts.pop(name, None)
    return parts
