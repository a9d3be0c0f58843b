"""Inputs of scores: the files of a table or of arrays, and their rows in slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric.types import Kind, NumPyArray, NumPyDType
from cordcal._validation.names import class_order
from cordcal._validation.scores import as_matrix
from cordcal.files.arrays import ArrayFile, open_arrays
from cordcal.files.columns import (
    KIND,
    LABEL_NAMES,
    LOGIT_NAMES,
    MISSING,
    PROBABILITY_NAMES,
    SCORE_NAMES,
    ColumnSpec,
    ColumnType,
    ScoreColumns,
    TextOptions,
    choose_columns,
    list_names,
)
from cordcal.files.disk import InputFile, Parts, PathLike

if TYPE_CHECKING:
    import pyarrow

    from cordcal.files.tables import Table

# Arrays are read in slices of at most this size.
_SLICE_BYTES = 2**24


def open_source(
    paths: PathLike | Sequence[PathLike],
    text: TextOptions = TextOptions(),  # noqa: B008 - it is frozen
) -> TableSource | ArraySource:
    """Open a file, or the files of a folder, a pattern or a list."""
    parts = Parts.of(paths)
    files = [InputFile.from_path(part) for part in parts.files]
    name = files[0].name if parts.root is None else parts.name
    arrays = [open_arrays(file) for file in files]
    if all(opened is not None for opened in arrays):
        return ArraySource(name, parts, [opened for opened in arrays if opened is not None])
    from cordcal.files.tables import Table, open_file, partition_columns

    for file, opened in zip(files, arrays, strict=True):
        if opened is not None:
            raise InputError(
                file.name,
                f"is a {opened.format} file, unlike other parts",
                "pass files of one kind",
            )
    partitions = [partition_columns(relative) for relative in parts.relative]
    table = Table(name, [open_file(file, text) for file in files], partitions)
    return TableSource(table, parts, text)


class TableSource:
    """A table of one or more files.

    Attributes
    ----------
    path : str
        The file, folder or pattern, or what a list is called.
    paths : list of str
        Its files.
    parts : Parts
        The same, with the folder below which they are.
    """

    def __init__(self, table: Table, parts: Parts, text: TextOptions) -> None:
        self.table, self.parts, self.text = table, parts, text
        self.path, self.format = table.path, table.format
        self.paths = [file.path for file in table.files]

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return self.table.names

    def layout(self, spec: ColumnSpec, role: str, input: Kind | None) -> ScoreColumns | InputError:
        """Return the columns of the scores, or the error that they cannot be told."""
        if spec.chosen is not None:
            return spec.chosen

        def label_values() -> set[str]:
            name = self.label_column(spec)
            if name is None or kinds.get(name) != "text":
                return set()
            labels = parse_labels(self.vector(name))
            words = set() if labels.dtype.kind in "iufb" else set(labels.tolist())
            return words - (set(MISSING) - types.keys())

        kinds = self.table.column_types()
        types = dict(kinds)
        others = [name for _, name in spec.others]
        for claimed in (spec.labels_column, spec.weights_column, *spec.beside, *others):
            types.pop(claimed or "", None)

        def choose(types: dict[str, ColumnType]) -> ScoreColumns | InputError:
            return choose_columns(
                types,
                spec,
                self.path,
                role=role,
                has_header=self.table.has_header,
                label_values=label_values,
            )

        chosen = choose(types)
        if isinstance(chosen, InputError):  # perhaps because scores were named as context
            for name in filter(kinds.get, spec.context):
                whole = choose({key: kinds[key] for key in kinds if key in types or key == name})
                if isinstance(whole, ScoreColumns) and name in whole.columns:
                    return InputError(
                        self.path,
                        f"has scores in the column {name!r}, so that it cannot be context",
                        "leave it out of the context",
                    )
        if isinstance(chosen, InputError):  # a column of one part alone may be the reason
            numeric = [name for name, kind in types.items() if kind in ("float", "integer")]
            return self.table.difference(numeric) or chosen
        return self.table.difference(chosen.columns) or chosen

    @property
    def kind(self) -> Kind | None:
        """What the files store that their scores are; None if they do not, or differ."""
        stored = {(file.schema.metadata or {}).get(KIND.encode()) for file in self.table.files}
        if stored == {b"logits"}:
            return "logits"
        return "probabilities" if stored == {b"probabilities"} else None

    def label_column(self, spec: ColumnSpec) -> str | None:
        """Return the column of the labels in this table."""
        if spec.labels is not None:
            return None
        if spec.labels_column is not None:
            return self.check_column(spec.labels_column, "labels")
        return next((name for name in LABEL_NAMES if name in self.names), None)

    def check_column(self, name: str, what: str) -> str:
        """Return the name of a column, or refuse one that the table does not have."""
        if name not in self.names:
            raise InputError(
                self.path,
                f"has no key or column called {name!r} for the {what}",
                f"it has {list_names(list(self.names))}",
            )
        return name

    def vector(self, name: str) -> NumPyArray:
        """Return a column of all rows: of text, what is written there."""
        from cordcal.files.tables import concat_columns, text_vector

        self.check_column(name, "rows")
        vectors = [text_vector(table, name) for _, table in self.table.slices([name])]
        return concat_columns(vectors) if vectors else np.empty(0)


class ArraySource:
    """Files of arrays, one after the other; the attributes are those of `TableSource`."""

    def __init__(self, path: str, parts: Parts, files: Sequence[ArrayFile]) -> None:
        self.path, self.parts, self.files, self.format = path, parts, files, files[0].format
        self.paths = [file.path for file in files]
        self.kind: Kind | None = None

    @property
    def names(self) -> Sequence[str]:
        """The keys of the first file."""
        return list(self.files[0].shapes)

    def layout(self, spec: ColumnSpec, role: str, input: Kind | None) -> ScoreColumns | InputError:
        """Return the key of the scores, or the error that it cannot be told."""
        first = self.files[0]
        chosen = _choose_matrix(first, spec.key, role, input)
        if isinstance(chosen, InputError):
            return chosen
        for file in self.files[1:]:
            if chosen not in file.matrices:
                return InputError(
                    file.path,
                    f"has no {chosen!r}, as the parts before it have",
                    "pass parts of one kind",
                )
        names = first.class_names
        if names is not None and len(names) != first.shapes[chosen][1]:
            return InputError(
                first.path,
                f"has {len(names)} class names but {chosen} has {first.shapes[chosen][1]} columns",
                "give each column one name",
            )
        return ScoreColumns(chosen, (chosen,), names)

    def label_key(self, key: str, spec: ColumnSpec) -> str | None:
        """Return the key of the labels: the one that the caller names, or that which matches.

        cal_labels matches cal_logits, labels_cal matches probas_cal, labels matches scores.
        """
        vectors = self.files[0].vectors
        if spec.labels is not None:
            return None
        if spec.labels_column is not None:
            return self.check_key(spec.labels_column, "labels")
        group, slash, own = key.rpartition("/")
        around = [own.split(name, 1) for name in SCORE_NAMES if name in own]
        # In a file with groups, labels in another group belong to another classifier.
        for before, behind in (*around, ("", "")):
            for name in LABEL_NAMES:
                candidate = f"{group}{slash}{before}{name}{behind}"
                if candidate in vectors:
                    return candidate
        return None

    def check_key(self, name: str, what: str) -> str:
        """Return the name of a vector, or refuse one that a file does not have."""
        for file in self.files:
            if name not in file.vectors:
                raise InputError(
                    file.path,
                    f"has no key or column called {name!r} for the {what}",
                    f"it has {file.listed()}",
                )
        return name

    def vector(self, name: str) -> NumPyArray:
        """Return a vector of all rows."""
        self.check_key(name, "rows")
        return np.concatenate([file.read(name) for file in self.files])


def _choose_matrix(
    file: ArrayFile, key: str | None, role: str, input: Kind | None
) -> str | InputError:
    """Return the name of the matrix that holds the scores."""
    matrices = file.matrices
    if key is not None:
        if key in matrices:
            return key
        return InputError(file.path, f"has no matrix called {key!r}", f"it has {file.listed()}")
    if not matrices:
        return InputError(
            file.path, "holds no matrix of scores (rows × classes)", f"it has {file.listed()}"
        )
    first: tuple[str, ...] = PROBABILITY_NAMES if input == "probabilities" else LOGIT_NAMES
    for name in (role, *first, *SCORE_NAMES):
        if name in matrices:
            return name
    if len(matrices) == 1:
        return matrices[0]
    # `key` selects scores only, not original or direct probabilities.
    hint = "choose one, as in {option}" if role == "scores" else f"call the one to read {role!r}"
    return InputError(
        file.path,
        f"holds several matrices ({', '.join(matrices)})",
        hint,
        option=("key", matrices[0]),
    )


@dataclass(frozen=True, eq=False)
class Slice:
    """Some rows of one file: scores, and labels, weights, context and other columns if needed."""

    file: int
    values: NumPyArray
    labels: NumPyArray | None
    weights: NumPyArray | None
    others: pyarrow.Table | None
    context: Mapping[str, NumPyArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> Slice:
        """Return some of the rows."""
        if start == 0 and stop >= len(self):
            return self
        labels, weights = (
            None if vector is None else vector[start:stop] for vector in (self.labels, self.weights)
        )
        others = None if self.others is None else self.others.slice(start, stop - start)
        context = {name: vector[start:stop] for name, vector in self.context.items()}
        return Slice(self.file, self.values[start:stop], labels, weights, others, context)


class TableRows:
    """The rows of a table, in slices."""

    def __init__(
        self,
        source: TableSource,
        layout: ScoreColumns,
        own: tuple[str, ...] | None,
        names: tuple[str, ...] | None,
        context: tuple[str, ...],
    ) -> None:
        self.source, self.table, self.layout = source, source.table, layout
        self.context = context
        error = self.table.difference(layout.columns)
        if error is not None:
            raise error
        self.columns, self.order = list(layout.columns), None
        self._classes = dict(zip(layout.columns, own or (), strict=False))
        if own is not None and names is not None:
            order = class_order(own, names, source.path, "the classes")
            if layout.are_lists:
                self.order = order
            elif order is not None:
                self.columns = [layout.columns[at] for at in order]
        self.rows = self.table.rows
        self.width = None if layout.are_lists else len(layout.columns)
        self._others: list[str] | None = None
        self._keep_scores = False
        self.row_bytes = 1
        self.dtype = self._dtype()

    def _dtype(self) -> NumPyDType:
        import pyarrow as pa

        if self.table.is_text:
            return np.dtype(np.float64)
        dtypes = set()
        for file in self.table.files:
            for name in self.layout.columns:
                if name in file.schema.names:
                    kind = file.schema.field(name).type
                    kind = getattr(kind, "value_type", kind)
                    is_plain = pa.types.is_floating(kind) or pa.types.is_integer(kind)
                    dtypes.add(np.dtype(kind.to_pandas_dtype() if is_plain else np.float64))
        return np.result_type(*dtypes)

    def own_names(self, file: int) -> tuple[str, ...] | None:
        """Return the class names in the order of a file's columns."""
        if not self._classes:
            return None
        in_file = [name for name in self.table.files[file].schema.names if name in self._classes]
        return tuple(self._classes[name] for name in in_file)

    def part_rows(self) -> list[int]:
        """Return the number of rows of each file; those of text are read to be counted."""
        return [
            sum(map(len, file.slices(()))) if file.rows is None else file.rows
            for file in self.table.files
        ]

    def label_key(self, spec: ColumnSpec) -> str | None:
        """Return the name of the labels in the input itself, if it has any."""
        return self.source.label_column(spec)

    def check_key(self, name: str, what: str) -> str:
        """Return a name that the input has, or refuse it."""
        return self.source.check_column(name, what)

    def with_others(self, *, unify: bool, keep_scores: bool) -> TableRows:
        """Return the rows with the other columns of the table."""
        from cordcal.files.tables import size_of

        rows = copy(self)
        scores = () if keep_scores else self.layout.columns
        if unify:
            names = [name for name in self.table.names if name not in self.layout.columns]
            self.table.unify(names)
        rows._keep_scores = keep_scores
        rows._others = [name for name in self.table.names if name not in scores]
        sample = next((table for _, table in self.table.slices(None)), None)
        if sample is not None and len(sample):
            rows.row_bytes = max(1, size_of(sample) // len(sample))
        return rows

    def empty_others(self) -> pyarrow.Table:
        """Return the other columns without rows."""
        import pyarrow as pa

        fields = [
            file.schema.field(name)
            for name in self._others or ()
            for file in self.table.files
            if name in file.schema.names
        ]
        return pa.schema(list({field.name: field for field in fields}.values())).empty_table()

    def has_type(self, name: str) -> bool:
        """Return whether the files say if a column is text."""
        return self.table.has_type(name)

    def slices(self, labels: str | None, weights: str | None) -> Iterator[Slice]:
        """Yield the rows, with labels and weights if these are named."""
        from cordcal.files.tables import number_matrix, number_vector, text_vector

        decimal = self.source.text.decimal
        wanted = None
        if self._others is None:
            keys = [*self.columns, *filter(None, (labels, weights)), *self.context]
            wanted = list(dict.fromkeys(keys))
        done: dict[int, int] = {}
        for file, table in self.table.slices(wanted):
            path, first = self.source.paths[file], done.get(file, 0)
            done[file] = first + len(table)
            if not len(table):
                continue
            with renumber_rows(first):
                values = number_matrix(table, self.columns, path, decimal)
                truth = None if labels is None else parse_labels(text_vector(table, labels))
                weight = None if weights is None else number_vector(table, weights, path, decimal)
            if self.order is not None:
                values = values.take(self.order, axis=1)
            others = None
            if self._others is not None:
                scores = () if self._keep_scores else self.layout.columns
                others = table.select([name for name in table.column_names if name not in scores])
            context = {name: text_vector(table, name) for name in self.context}
            yield Slice(file, values, truth, weight, others, context)


class ArrayRows:
    """The rows of files of arrays, in slices."""

    def __init__(
        self,
        source: ArraySource,
        layout: ScoreColumns,
        own: tuple[str, ...] | None,
        names: tuple[str, ...] | None,
        spec: ColumnSpec,
    ) -> None:
        self.source, self.key, self.names = source, layout.key, names
        self.context = spec.beside
        self.row_bytes = 1
        self._own = [file.class_names or spec.class_names for file in source.files]
        self._orders: list[list[int] | None] = []
        for file, own_names in zip(source.files, self._own, strict=True):
            if (own_names is None) != (names is None):
                raise InputError(
                    file.path,
                    f"{'names' if names is None else 'does not name'} its classes, unlike "
                    f"{source.files[0].path}",
                    "name the classes in every part",
                )
            order = None
            if own_names is not None and names is not None:
                order = class_order(own_names, names, file.path, spec.classes_in)
            self._orders.append(order)
        shapes = [file.shapes[self.key] for file in source.files]
        self.rows: int | None = sum(shape[0] for shape in shapes)
        self.width = shapes[0][1]
        for file, shape in zip(source.files, shapes, strict=True):
            if shape[1] != self.width and shape[0]:
                raise InputError(
                    file.path,
                    f"has {shape[1]} columns of {self.key} but {source.files[0].path} has "
                    f"{self.width}",
                    "pass parts with the same classes",
                )

    @property
    def dtype(self) -> NumPyDType:
        """The dtype that holds every file's values."""
        return np.result_type(*(file.stored[self.key][1] for file in self.source.files))

    def own_names(self, file: int) -> tuple[str, ...] | None:
        """Return the class names in the order of a file's columns."""
        return self._own[file]

    def part_rows(self) -> list[int]:
        """Return the number of rows of each file."""
        return [file.shapes[self.key][0] for file in self.source.files]

    def label_key(self, spec: ColumnSpec) -> str | None:
        """Return the name of the labels in the input itself, if it has any."""
        return self.source.label_key(self.key, spec)

    def check_key(self, name: str, what: str) -> str:
        """Return a name that the input has, or refuse it."""
        return self.source.check_key(name, what)

    def has_type(self, name: str) -> bool:
        """Return whether the files say if a vector is text: arrays always do."""
        return True

    def slices(self, labels: str | None, weights: str | None) -> Iterator[Slice]:
        """Yield the rows, with labels and weights if these are named."""
        for at, file in enumerate(self.source.files):
            (rows, width), dtype = file.stored[self.key]
            in_memory = file.format in ("npz", "torch")
            size = rows if in_memory else max(1, _SLICE_BYTES // max(1, width * dtype.itemsize))
            others = ((key, f"entries of {key}") for key in self.context)
            for key, what in ((labels, "labels"), (weights, "weights"), *others):
                if key is not None:
                    check_length(file.shapes[key][0], file.path, what, rows)
            for start in range(0, rows, max(size, 1)):
                stop = min(start + size, rows)
                values = as_matrix(file.read(self.key, start, stop), f"{file.path} ({self.key})")
                order = self._orders[at]
                if order is not None:
                    # Not values[:, order], whose rows are not contiguous: sums round differently.
                    values = values.take(order, axis=1)
                truth, weight = (
                    None if key is None else file.read(key, start, stop)
                    for key in (labels, weights)
                )
                context = {name: file.read(name, start, stop) for name in self.context}
                yield Slice(at, values, truth, weight, None, context)


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
    texts = ["" if label is None else str(label) for label in labels.tolist()]
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
    if isinstance(source, ArraySource):
        vectors: Sequence[str] = source.files[0].vectors
        listed = source.files[0].listed()
    else:
        vectors, listed = source.names, list_names(list(source.names))
    for name in names if column is None else (column,):
        if name in vectors:
            return source.vector(name)
    # pandas writes its index below an empty heading.
    headed = [name for name in vectors if name] or list(vectors)
    if column is None and len(headed) == 1:
        return source.vector(headed[0])
    what = "vector of labels" if column is None else f"key or column called {column!r}"
    raise InputError(source.path, f"holds no {what}", f"it has {listed}")


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
