"""A study's data: the rows of each set, read and checked together, and how they are split."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Kind
from cordcal.files import Scores, read_scores
from cordcal.files.arrays import ArrayFile, open_arrays
from cordcal.files.disk import InputFile
from cordcal.files.sources import is_file
from cordcal_study.calarena import parts_of
from cordcal_study.specs import SetSpec

Matrix = npt.NDArray[np.floating]
Classes = npt.NDArray[np.int64]

# The name of a set's own evaluation rows, next to those of shifted files.
CLEAN = "clean"
_FEATURE_NAMES = ("features", "embeddings")
# With fewer calibration rows no calibrator can be fitted, whatever the fraction.
_FEWEST = 2


@dataclass(frozen=True, eq=False)
class Rows:
    """Scores of some rows, with their labels and, where there are any, features."""

    scores: Matrix
    labels: Classes
    features: Matrix | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: npt.NDArray[np.intp]) -> Rows:
        """Return some of the rows."""
        features = None if self.features is None else self.features[rows]
        return Rows(self.scores[rows], self.labels[rows], features)

    def digest(self) -> str:
        """Return a hash of the numbers."""
        digest = hashlib.sha256()
        for array in (self.scores, self.labels, self.features):
            if array is not None:
                digest.update(f"{array.shape}{array.dtype.str}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class SetFacts:
    """The facts about a set that a study keeps in memory without its rows."""

    kind: Kind
    classes: int
    rows: int
    evaluation_rows: int | None
    features: bool
    digests: Mapping[str, str]

    @property
    def halves(self) -> tuple[int, int]:
        """How many rows there are to fit on, and how many to evaluate on."""
        if self.evaluation_rows is not None:
            return self.rows, self.evaluation_rows
        return self.rows // 2, self.rows - self.rows // 2


@dataclass(frozen=True, eq=False)
class SetData:
    """The rows of one set: those to fit on, those to evaluate on, and how they are split."""

    kind: Kind
    rows: Rows
    evaluation: Rows | None
    shifted: dict[str, Rows]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.rows.scores.shape[1])

    def calibration(self, seed: int | None, fraction: float) -> Rows:
        """Return the rows to fit on; smaller fractions are subsets of larger ones."""
        if seed is None:
            # A given calibration file may be sorted by class; its subsets are drawn all the same.
            order = np.random.default_rng(0).permutation(len(self.rows))
        else:
            order = _halves(len(self.rows), seed)[0]
        count = max(_FEWEST, round(fraction * len(order)))
        return self.rows.take(np.sort(order[:count]))

    def evaluated(self, seed: int | None, name: str) -> Rows:
        """Return the rows to evaluate on."""
        if seed is None:
            assert self.evaluation is not None
            return self.evaluation
        rows = self.rows if name == CLEAN else self.shifted[name]
        return rows.take(np.sort(_halves(len(self.rows), seed)[1]))

    def drawn(self, seed: int, most: int, max_evaluation_rows: int) -> tuple[Rows, Rows]:
        """Return at most so many rows to fit on and to evaluate on, drawn with a seed."""
        whole = self.rows if self.evaluation is None else self.evaluation
        if self.evaluation is None:
            fitted, others = _halves(len(self.rows), seed)
        else:
            rng = np.random.default_rng(seed)
            fitted, others = rng.permutation(len(self.rows)), rng.permutation(len(whole))
        fit = self.rows.take(np.sort(fitted[:most]))
        return fit, whole.take(np.sort(others[:max_evaluation_rows]))

    def facts(self) -> SetFacts:
        """Return the facts about the set."""
        return SetFacts(
            self.kind,
            self.classes,
            len(self.rows),
            None if self.evaluation is None else len(self.evaluation),
            self.rows.features is not None and self.evaluation is None,
            self.digests(),
        )

    def digests(self) -> dict[str, str]:
        """Return hashes of the rows to fit on and of those of every evaluation."""
        own = self.rows.digest()
        digests = {CLEAN: own if self.evaluation is None else self.evaluation.digest()}
        digests |= {name: rows.digest() for name, rows in self.shifted.items()}
        return {"rows": f"{self.kind} {own}", **digests}


def _halves(rows: int, seed: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Split at random into equal halves: the same for all sets of one size."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[: rows // 2], order[rows // 2 :]


def load_set(spec: SetSpec) -> SetData:
    """Read all files of a set and check that they belong together."""
    if spec.experiment is not None:
        return _load_experiment(spec)
    scores = _read(spec, spec.file, None)
    kind = scores.kind
    if spec.scale != 1.0 and kind != "logits":
        raise ValueError(
            f"{spec.place}: scale multiplies logits, but {spec.file.name} has {kind}; "
            f"leave scale out"
        )
    rows = _rows(spec, spec.file, scores, spec.features)
    if len(rows) < 2 * _FEWEST:
        raise ValueError(f"{spec.place}: {spec.file.name} has {len(rows)} rows, too few to split")
    evaluation = None
    if spec.evaluation is not None:
        evaluation = _rows(spec, spec.evaluation, _read(spec, spec.evaluation, kind), None)
        _check_classes(spec, spec.evaluation, rows, evaluation)
    shifted = {}
    for shift in spec.shifted:
        there = _rows(spec, shift.file, _read(spec, shift.file, kind), None)
        _check_classes(spec, shift.file, rows, there)
        if len(there) != len(rows) * shift.parts:
            stacked = "" if shift.parts == 1 else f" × {shift.parts} severities"
            raise ValueError(
                f"{spec.place}: {shift.file.name} has {len(there)} rows but {spec.file.name} has "
                f"{len(rows)}{stacked}; a shifted file has the same rows in the same order"
            )
        own = np.arange(len(rows)) + shift.part * len(rows)
        shifted[shift.name] = there.take(own)
    return SetData(kind, rows, evaluation, shifted)


# A file of hundreds of experiments is listed once; its arrays are read when needed.
@lru_cache(maxsize=1)
def open_array_file(path: Path) -> ArrayFile:
    """Open a file of arrays."""
    file = open_arrays(InputFile.from_path(path))
    if file is None:
        raise ValueError(f"{path} is not a file of arrays; store them as npz or HDF5")
    return file


def _load_experiment(spec: SetSpec) -> SetData:
    assert spec.experiment is not None
    try:
        parts = parts_of(open_array_file(spec.file), spec.experiment)
    except ValueError as error:
        raise ValueError(f"{spec.place}: {error}") from None
    rows, evaluation = (_rows(spec, spec.file, part, None) for part in parts)
    _check_classes(spec, spec.file, rows, evaluation)
    return SetData(parts[0].kind, rows, evaluation, {})


# A worker goes through the cells of a set in turn; two sets bound its memory.
cached_set = lru_cache(maxsize=2)(load_set)


def _read(spec: SetSpec, file: Path, kind: Kind | None) -> Scores:
    try:
        apart = spec.labels is not None and is_file(spec.labels)
        return read_scores(
            file,
            columns=spec.key,
            labels=spec.labels if apart else None,
            labels_column=None if apart else spec.labels,
            input=spec.input or kind,
        )
    except ValueError as error:
        raise ValueError(f"{spec.place}: {error}") from None


def _rows(spec: SetSpec, file: Path, scores: Scores, features: Path | None) -> Rows:
    if scores.labels is None:
        raise ValueError(
            f"{spec.place}: {file.name} has no labels; store them with the scores, or name "
            f'the key, column or file that holds them with labels = "…"'
        )
    values = (
        scores.values if spec.scale == 1.0 else scores.values * scores.values.dtype.type(spec.scale)
    )
    feature_matrix = _own_features(spec, file) if features is None else _features(spec, features)
    if feature_matrix is not None and len(feature_matrix) != len(values):
        raise ValueError(
            f"{spec.place}: there are {len(feature_matrix)} rows of features but {file.name} has "
            f"{len(values)}; give each row its features"
        )
    return Rows(values, scores.labels, feature_matrix)


def _own_features(spec: SetSpec, file: Path) -> Matrix | None:
    """Return the features that are stored with the scores, if there are any."""
    arrays = None if spec.experiment is not None else open_arrays(InputFile.from_path(file))
    if arrays is None:
        return None
    name = next((name for name in _FEATURE_NAMES if name in arrays.matrices), None)
    return None if name is None else arrays.read(name)


def _features(spec: SetSpec, file: Path) -> Matrix:
    arrays = open_array_file(file)
    for name in (*_FEATURE_NAMES, *arrays.matrices):
        if name in arrays.matrices:
            return arrays.read(name)
    raise ValueError(f"{spec.place}: {file.name} has no matrix of features (rows × features)")


def _check_classes(spec: SetSpec, file: Path, rows: Rows, there: Rows) -> None:
    classes, other = rows.scores.shape[1], there.scores.shape[1]
    if classes != other:
        raise ValueError(
            f"{spec.place}: {spec.file.name} has {classes} classes but {file.name} has {other}; "
            f"pair files of the same classifier"
        )
