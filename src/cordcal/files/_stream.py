"""Read score files in batches of rows, so that a file may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal, placed
from cordcal._door.labels import as_indices
from cordcal._door.reports import as_matrix
from cordcal._door.types import Kind
from cordcal.files import _scores
from cordcal.files._contents import Contents
from cordcal.files._kinds import check_whole_vectors
from cordcal.files._sources import Source, Span, open_source


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows of a file, in order.

    Attributes
    ----------
    first : int
        The number of the first row in the file, or that from which on rows are left out.
    values : ndarray of shape (rows, K)
        The scores as stored.
    labels : ndarray of int or None
        The labels as column indices.
    features : ndarray or None
        Penultimate features, where the file has them.
    kept : ndarray of int or None
        The numbers of the rows in the file, where some between them are left out.
    """

    first: int
    values: npt.NDArray[Any]
    labels: npt.NDArray[np.int64] | None = None
    features: npt.NDArray[Any] | None = None
    kept: npt.NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, start: int, stop: int) -> Batch:
        """Return some of the rows, counted within the batch."""
        batch = self._picked(slice(start, stop))
        return replace(batch, first=self.first + start)

    def where(self, keep: npt.NDArray[np.bool_]) -> Batch:
        """Return the rows that are flagged."""
        return replace(self._picked(keep), kept=self.numbers[keep])

    @property
    def numbers(self) -> npt.NDArray[np.intp]:
        """The number of each row in the file."""
        return np.arange(self.first, self.first + len(self)) if self.kept is None else self.kept

    def _picked(self, rows: slice | npt.NDArray[np.bool_]) -> Batch:
        columns = (self.values, self.labels, self.features, self.kept)
        picked = (None if column is None else column[rows] for column in columns)
        return Batch(self.first, *picked)  # type: ignore[arg-type]


class ScoreFile:
    """An open score file: what it holds, and its rows in batches.

    Made by `open_scores`; iterate over it as often as you like.

    Attributes
    ----------
    path, key : str
        The file, and the key or column of the scores.
    kind : str
        ``"logits"`` or ``"probabilities"``.
    rows, classes : int
        The shape of the scores.
    dtype : dtype
        Their dtype.
    class_names : tuple of str or None
        One name a column.
    spans : tuple of (int, int)
        First and last-plus-one row of every batch.
    """

    def __init__(
        self, source: Source, sample: Contents, key: str, kind: Kind, labels: str | None
    ) -> None:
        values = sample.matrices[key]
        self.path, self.key, self.kind = sample.path, key, kind
        self.class_names = sample.class_names
        self.spans = source.spans_of(key)
        self.rows, self.classes = self.spans[-1][1], int(values.shape[1])
        self.dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        self._source = source
        apart = labels is not None and _scores.is_file(labels)
        self._column = None if apart else labels
        self._beside = self._labels_of(labels) if labels is not None and apart else None

    @property
    def name(self) -> str:
        """The file and the key, for messages."""
        return f"{self.path} ({self.key})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes."""
        return self.rows, self.classes

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """Yield the batches, from number ``first`` on."""
        pieces = self._source.pieces(first, self.key)
        for start, stop in self.spans[first:]:
            # Nothing here may hold on to a batch while the next one is read.
            yield self._batch(next(pieces), start, stop)

    def along(self, spans: Sequence[Span]) -> Iterator[Batch]:
        """Yield batches of other spans of rows than the file's own."""
        own = next((at for at, span in enumerate(self.spans) if span[1] > spans[0][0]), 0)
        batches = self.batches(own)
        held: list[Batch] = []
        for start, stop in spans:
            while not held or held[-1].first + len(held[-1]) < stop:
                held.append(next(batches))
            parts = [
                batch.rows(max(start - batch.first, 0), min(stop - batch.first, len(batch)))
                for batch in held
            ]
            yield joined(parts)
            held = [batch for batch in held if batch.first + len(batch) > stop]

    def _batch(self, contents: Contents, start: int, stop: int) -> Batch:
        with placed(start):
            values = as_matrix(contents.matrices[self.key], self.name)
            found = _scores.labels_in(contents, self.key, self._column)
            if self._beside is not None:
                found = self._beside[start:stop]
            labels = None
            if found is not None:
                labels = as_indices(found, values.shape, self.class_names, self.path)
        if values.shape != (stop - start, self.classes):
            raise Refusal(
                self.name,
                f"has {values.shape[1]} entries, the first row {self.classes}",
                "pass whole vectors, one entry for each class in every row",
                rows=[start],
            )
        features = _scores.features_in(contents)
        return Batch(start, values.astype(self.dtype, copy=False), labels, features)

    def _labels_of(self, path: str) -> npt.NDArray[Any]:
        """Return the labels that a file of their own holds."""
        found = _scores.read_vector(path)
        if len(found) != self.rows:
            raise Refusal(
                path,
                f"has {len(found)} labels but {self.path} has {self.rows} rows of scores",
                "pass one label for each row",
            )
        return found


def open_scores(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    role: str = "scores",
    labels: str | None = None,
    input: Kind | None = None,
) -> ScoreFile:
    """Open a score file for reading in batches of at most 16 MiB.

    Parameters
    ----------
    path : path or "-"
        A Parquet or npy file of any size, or a npz or CSV file that fits in memory.
    key : str, optional
        The key (npz) or column (Parquet) of the scores; found by name where left out.
    role : str
        A name to prefer: ``"original"`` or ``"direct"``.
    labels : str, optional
        A file of labels, or the key or column of this file that holds them.
    input : {"logits", "probabilities"}, optional
        The kind, where the file's name for the scores or its first rows do not make it plain.

    Returns
    -------
    file : ScoreFile
        Iterate over it for `Batch` objects.  Values come as stored, not checked.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/scores.npy"
    >>> np.save(path, np.full((5, 4), 0.25))
    >>> scores = open_scores(path)
    >>> scores.shape, scores.kind, [len(batch) for batch in scores]
    ((5, 4), 'probabilities', [5])
    """
    column = None if labels is None or _scores.is_file(labels) else labels
    source = open_source(os.fspath(path), column)
    sample = source.sample()
    chosen = _scores.choose(sample, key, role, input)
    values = as_matrix(sample.matrices[chosen], f"{sample.path} ({chosen})")
    # Rows with a NaN are found when they are used; here they must not decide anything.
    sound = values[np.isfinite(values).all(axis=1)]
    if len(sound):
        check_whole_vectors(sound, f"{sample.path} ({chosen})")
    kind = input or (_scores.kind_of(chosen, sound) if len(sound) else "logits")
    names = sample.class_names
    if names is not None and len(names) != values.shape[1]:
        raise _scores.wrong_names(sample, chosen, values.shape[1])
    return ScoreFile(source, sample, chosen, kind, labels)


def joined(parts: list[Batch]) -> Batch:
    """Return consecutive batches as one."""
    if len(parts) == 1:
        return parts[0]

    def together(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    return Batch(parts[0].first, together("values"), together("labels"), together("features"))
