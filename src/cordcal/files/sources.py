"""Inputs: one file of named columns, some of its rows, and the files of a path as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import Kind, NumPyArray, NumPyDType
from cordcal.files.columns import (
    LABEL_NAMES,
    MISSING,
    SCORE_NAMES,
    ColumnSpec,
    ColumnType,
    ScoreColumns,
    TextOptions,
    choose_columns,
)
from cordcal.files.disk import InputFile, Parts, PathLike


class ColumnSlice(Protocol):
    """Some rows of one file."""

    def __len__(self) -> int: ...

    def matrix(self, columns: Sequence[str]) -> NumPyArray:
        """Return columns of numbers, or one that holds whole rows, as a matrix; null is NaN."""

    def numbers(self, name: str) -> NumPyArray:
        """Return a column of numbers."""

    def values(self, name: str) -> NumPyArray:
        """Return a column of words or numbers: of text, what is written there."""


class ColumnFile(ABC):
    """One file of named columns: a table, or arrays by name.

    Attributes
    ----------
    path, format : str
        The file and its format.
    """

    path: str
    format: str
    identifiers: Sequence[ColumnType] = ()
    """The types of columns that may identify rows."""

    @property
    @abstractmethod
    def types(self) -> Mapping[str, ColumnType]:
        """What each column holds; of text, judged by the first rows."""

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return list(self.types)

    @property
    def kind(self) -> Kind | None:
        """What the file states that its scores are."""
        return None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names that it stores next to the scores."""
        return None

    @property
    def has_rows(self) -> bool:
        """Whether there is a row."""
        return True

    @abstractmethod
    def listed(self) -> str:
        """Return what the file holds, for messages."""

    @abstractmethod
    def dtype(self, columns: Sequence[str]) -> NumPyDType:
        """Return the dtype of the scores in some columns."""

    @abstractmethod
    def width(self, columns: Sequence[str]) -> int | None:
        """Return the number of classes; None if only the rows show it."""

    @abstractmethod
    def count(self, columns: Sequence[str]) -> int | None:
        """Return the number of rows; None if it is not known before they are read."""

    @abstractmethod
    def slices(self, columns: Sequence[str] | None) -> Iterator[ColumnSlice]:
        """Yield some columns, or all of a table, in slices of rows."""


class Source:
    """The files of an input as one; columns are matched by name.

    Parameters
    ----------
    parts : Parts
        The files, and the folder below which they are.
    files : sequence of ColumnFile
        The same, opened.
    """

    is_table = False
    has_header = True
    """Whether the names of the columns come from the files."""

    def __init__(self, parts: Parts, files: Sequence[ColumnFile]) -> None:
        self.parts, self.files, self.format = parts, files, files[0].format
        self.paths = [file.path for file in files]
        self.path = self.paths[0] if parts.root is None else parts.name

    @cached_property
    def types(self) -> dict[str, ColumnType]:
        """What each column holds; the first file with rows decides."""
        types: dict[str, ColumnType] = {}
        is_decided = False
        for file in self.files:
            types = {**types, **file.types} if not is_decided else {**file.types, **types}
            is_decided = is_decided or file.has_rows
        return types

    @property
    def names(self) -> list[str]:
        """The columns of the first file, then those that only later ones have."""
        return list(dict.fromkeys(name for file in self.files for name in file.names))

    @property
    def kind(self) -> Kind | None:
        """What the files state that their scores are; None if they do not, or differ."""
        kinds = {file.kind for file in self.files}
        return kinds.pop() if len(kinds) == 1 else None

    def rows(self, columns: Sequence[str]) -> int | None:
        """Return the number of rows; None if it is not known before they are read."""
        counts = [file.count(columns) for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    def layout(self, spec: ColumnSpec, role: str, input: Kind | None) -> ScoreColumns | InputError:
        """Return the columns of the scores, or the error that they cannot be told."""
        if spec.chosen is not None:
            return spec.chosen
        claimed = {spec.labels_column, spec.weights_column, *spec.beside}
        claimed |= {name for _, name in spec.others}
        types = {name: kind for name, kind in self.types.items() if name not in claimed}

        def choose(types: Mapping[str, ColumnType]) -> ScoreColumns | InputError:
            return choose_columns(
                types,
                spec,
                self.path,
                role=role,
                input=input,
                has_header=self.has_header,
                label_values=lambda: self._label_words(spec),
                listed=self.files[0].listed(),
            )

        chosen = choose(types)
        if isinstance(chosen, InputError):
            for name in filter(self.types.get, spec.context):  # scores named as context?
                whole = choose({key: self.types[key] for key in (*types, name)})
                if isinstance(whole, ScoreColumns) and name in whole.columns:
                    return InputError(
                        self.path,
                        f"has scores in the column {name!r}, so that it cannot be context",
                        "leave it out of the context",
                    )
            # A column of one part alone may be the reason.
            numeric = [name for name, kind in types.items() if kind in ("float", "integer")]
            return self.difference(numeric) or chosen
        return self.difference(chosen.columns) or self._with_stored_names(chosen)

    def _with_stored_names(self, layout: ScoreColumns) -> ScoreColumns | InputError:
        first = self.files[0]
        names, width = first.class_names, first.width(layout.columns)
        if names is None or layout.class_names is not None:
            return layout
        if len(names) != width:
            return InputError(
                first.path,
                f"has {len(names)} class names but {layout.key} has {width} columns",
                "give each column one name",
            )
        return ScoreColumns(layout.key, layout.columns, names)

    def _label_words(self, spec: ColumnSpec) -> set[str]:
        """Return the distinct labels of the rows if they are words."""
        if spec.labels is not None:
            labels = parse_labels(read_vector(spec.labels, spec.labels_column, text=spec.text))
        else:
            name = self.label_column("", spec)
            if name is None or (self.has_type(name) and self.types.get(name) != "text"):
                return set()
            labels = parse_labels(self.column(name))
        words = set() if labels.dtype.kind in "iufb" else set(labels.tolist())
        return words - (set(MISSING) - set(self.names))

    def difference(self, columns: Sequence[str]) -> InputError | None:
        """Return the error that one file has some of the columns and another has not."""
        first, *others = [file for file in self.files if file.names] or self.files[:1]
        expected = set(columns) & set(first.names)
        for file in others:
            own = set(columns) & set(file.names)
            extra = [name for name in columns if name in own - expected]
            missing = [name for name in columns if name in expected - own]
            if extra or missing:
                has = f"has the column {extra[0]!r}" if extra else ""
                lacks = f"has no column {missing[0]!r}" if missing else ""
                return InputError(
                    file.path,
                    f"{' but '.join(filter(None, (has, lacks)))}, unlike {first.path}",
                    "give every part the same columns of scores",
                )
        return None

    def label_column(self, key: str, spec: ColumnSpec) -> str | None:
        """Return the column of the labels: that which the caller names, or which fits the key.

        cal_labels fits cal_logits, labels_cal fits probas_cal, labels fits scores.
        """
        if spec.labels is not None:
            return None
        if spec.labels_column is not None:
            return self.check_column(spec.labels_column, "labels")
        group, slash, own = key.rpartition("/")
        around = [own.split(name, 1) for name in SCORE_NAMES if name in own]
        # In a file with groups, labels in another group belong to another classifier.
        candidates = (
            f"{group}{slash}{before}{name}{behind}"
            for before, behind in (*around, ("", ""))
            for name in LABEL_NAMES
        )
        return next((name for name in candidates if self._is_vector(name)), None)

    def _is_vector(self, name: str) -> bool:
        return self.types.get(name, "list") != "list"

    def check_column(self, name: str, what: str) -> str:
        """Return the name of a column, or refuse one that the input does not have."""
        if self._is_vector(name):
            return name
        raise InputError(
            self.path,
            f"has no key or column called {name!r} for the {what}",
            f"it has {self.files[0].listed()}",
        )

    def may_identify(self, name: str) -> bool:
        """Whether every file has a word or a whole number of this name in each row."""
        filled = [file for file in self.files if file.names]
        return all(name in file.names and file.types[name] in file.identifiers for file in filled)

    def column(self, name: str) -> NumPyArray:
        """Return a column of all rows: of text, what is written there."""
        self.check_column(name, "rows")
        return join_vectors([rows.values(name) for _, rows in self.slices([name])])

    def has_type(self, name: str) -> bool:
        """Return whether the files say if a column is text: arrays always do."""
        return True

    def slices(self, columns: Sequence[str] | None) -> Iterator[tuple[int, ColumnSlice]]:
        """Yield the number of a file and a slice of its rows."""
        for at, file in enumerate(self.files):
            for rows in file.slices(columns):
                yield at, rows


def open_source(
    paths: PathLike | Sequence[PathLike],
    text: TextOptions = TextOptions(),  # noqa: B008 - it is frozen
) -> Source:
    """Open a file, or the files of a folder, a pattern or a list."""
    from cordcal.files.arrays import open_arrays

    parts = Parts.of(paths)
    files = [InputFile.from_path(part) for part in parts.files]
    arrays = [open_arrays(file) for file in files]
    opened = [file for file in arrays if file is not None]
    if len(opened) == len(files):
        return Source(parts, opened)
    if opened:
        other = next(file for file, array in zip(files, arrays, strict=True) if array is None)
        raise InputError(
            opened[0].path,
            f"is a {opened[0].format} file, unlike {other.name}",
            "pass files of one kind",
        )
    from cordcal.files.tables import Table, open_file

    return Table(parts, [open_file(file, text) for file in files])


def join_vectors(vectors: Sequence[NumPyArray]) -> NumPyArray:
    """Return one column of several slices; numbers next to words stay what they are."""
    if len({vector.dtype.kind in "OUS" for vector in vectors if len(vector)}) > 1:
        vectors = [vector.astype(object) for vector in vectors]
    return vectors[0] if len(vectors) == 1 else np.concatenate(vectors or [np.empty(0)])


def parse_labels(labels: NumPyArray) -> NumPyArray:
    """Return labels as numbers if all of them are, else as text.

    Examples
    --------
    >>> parse_labels(np.array(["0", "2", "1"], dtype=object))
    array([0., 2., 1.])
    >>> parse_labels(np.array(["cat", "2"], dtype=object))
    array(['cat', '2'], dtype='<U3')
    """
    if labels.dtype.kind in "iufb":
        return labels
    texts = ["" if label is None or label != label else str(label) for label in labels.tolist()]
    if set(texts) <= {"true", "false"}:  # truth values in JSON
        return np.array([text == "true" for text in texts])
    missing = {text for text in texts if text.strip() in MISSING}
    try:
        values = np.array([np.nan if text in missing else float(text) for text in texts])
    except ValueError:
        return np.array(texts, dtype=np.str_)
    is_plain = all("_" not in text and text.isascii() for text in texts)
    has_words = set(map(str.strip, texts)) > {""} and not np.isfinite(values).any()
    if not is_plain or has_words:
        return np.array(texts, dtype=np.str_)
    return values


def read_vector(
    path: str | Sequence[str],
    column: str | None = None,
    names: Sequence[str] = LABEL_NAMES,
    *,
    text: TextOptions = TextOptions(),  # noqa: B008 - it is frozen
) -> NumPyArray:
    """Return the labels, or another vector, of a file: words and numbers as they are written."""
    if isinstance(path, str) and not is_file(path):
        what = "labels_column" if names else "weights_column"
        hint = "a key or column of the scores' own file is named with {option}"
        raise InputError(path, "is not a file", hint, option=(what, path))
    source = open_source(path, text)
    if column is None:
        vectors = [name for name, kind in source.types.items() if kind != "list"]
        # pandas writes its index below an empty heading.
        headed = list(filter(None, vectors)) or vectors
        alone = headed[0] if len(headed) == 1 else None
        column = next((name for name in names if name in vectors), alone)
    if column is None:
        hint = f"it has {source.files[0].listed()}"
        raise InputError(source.path, "holds no vector of labels", hint)
    return source.column(column)


def check_length(length: int, where: str, what: str, rows: int) -> None:
    """Refuse a separate file that does not have one entry per row."""
    if length != rows:
        error = InputError(
            where,
            f"has {length} {what} but there are {rows} rows of scores",
            f"pass as many {what} as rows",
        )
        is_text = Path(where).suffix.lower() in (".csv", ".tsv", ".txt")
        # The first line may be a header, such as the 0 that pandas writes.
        raise error.with_option_hint("header", str(length > rows)) if is_text else error


def is_file(text: str) -> bool:
    """Whether a name of labels is that of a file rather than a key or column."""
    suffixes = (".txt", ".tsv", ".npz", ".npy", ".csv", ".jsonl", ".parquet", ".feather", ".arrow")
    more = (".h5", ".hdf5", ".pt", ".pth", ".gz", ".bz2", ".zst")
    return text == "-" or Path(text).exists() or Path(text).suffix.lower() in (*suffixes, *more)
