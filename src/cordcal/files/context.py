"""Context of rows in files: columns next to the scores, and a second opinion joined by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import Kind, NumPyArray, Vector
from cordcal._validation.context import context_argument, is_present
from cordcal._validation.scores import original_probabilities
from cordcal.files.columns import MISSING, ColumnSpec, TextOptions, is_number
from cordcal.files.disk import LIMIT, Parts, check_size
from cordcal.files.scores import Scores, open_with_spec

if TYPE_CHECKING:
    from cordcal.repair.context import FittedContext

OPINION = "second opinion"
"""The name of the column of a second opinion that is read from a file."""
# What an identifier and its place take in memory, about.
_ID_BYTES = 120


class SecondOpinion:
    """Another model's scores in a file, found by the identifiers of rows.

    It is read when the first row needs it, whole, and again on another machine.

    Parameters
    ----------
    path : path or list of paths
        The file, or several in any order.
    id_column : str
        The key or column of the identifiers, in this file and in that of the scores.
    classes : tuple of str or None
        The classes of the scores; columns are matched by name.
    text : TextOptions
        How text files are read.
    """

    def __init__(
        self,
        path: str | Sequence[str],
        id_column: str,
        classes: tuple[str, ...] | None,
        text: TextOptions,
    ) -> None:
        self.path, self.id_column, self.classes, self.text = path, id_column, classes, text

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_read"}

    def scores_of(self, ids: Sequence[str | None], kind: Kind) -> NumPyArray:
        """Return the scores of some rows, of a kind; NaN in rows that the file does not have."""
        scores, places = self._read
        at = np.array([-1 if row is None else places.get(row, -1) for row in ids], dtype=np.intp)
        values = np.full((len(at), scores.values.shape[1]), np.nan)
        present = at >= 0
        chosen = scores.values[at[present]]
        if scores.kind != kind and len(chosen):
            probabilities = original_probabilities(chosen, scores.kind)
            with np.errstate(divide="ignore"):
                chosen = probabilities if kind == "probabilities" else np.log(probabilities)
        values[present] = chosen
        return values

    def check_ids(self, ids: Sequence[str | None], path: str) -> None:
        """Refuse identifiers of which the file has none; ``path`` is the file that they are in."""
        _, places = self._read
        if any(row in places for row in ids):
            return
        own, known = next(filter(None, ids), None), next(iter(places), None)
        raise InputError(
            self.paths[0],
            f"has none of the ids of {path}: {self.id_column} is {known!r} here and {own!r} there, "
            "for example",
            "name the column of the same ids in both files with {option}",
            option=("id_column", "NAME"),
        )

    def load(self) -> None:
        """Read the file, if it was not read before."""
        self._read  # noqa: B018 - cached

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return Parts.of(self.path).files

    @cached_property
    def _read(self) -> tuple[Scores, dict[str, int]]:
        """The scores, and the row of each identifier."""
        spec = ColumnSpec(
            classes=self.classes,
            text=self.text,
            context=(self.id_column,),
            others=(("id_column", self.id_column),),
        )
        file = open_with_spec(self.path, spec)
        row_bytes = file.classes * file.dtype.itemsize + _ID_BYTES
        try:
            check_size(file.path, row_bytes * (file.rows or 0))
            scores = file.read()
        except InputError as error:
            if LIMIT not in error.hint:
                raise
            raise InputError(
                error.argument,
                error.reason,
                "a second opinion is joined by id in memory: apply the parts one by one, each "
                f"with the second opinion of its rows, or set {LIMIT} to more bytes",
            ) from None
        ids = as_texts(scores.context[self.id_column])
        places: dict[str, int] = {}
        for row, key in enumerate(ids):
            if key is None or key in places:
                raise InputError(
                    file.path,
                    f"has no {self.id_column}" if key is None else f"has the id {key!r} twice",
                    "give every row of the second opinion its own id",
                    rows=[row],
                )
            places[key] = row
        return scores, places


@dataclass(frozen=True)
class FileContext:
    """Which columns of a file are context, and the second opinion joined to its rows.

    Attributes
    ----------
    columns : mapping of str to bool or None
        The keys or columns, and whether a model has categories there; None if the values of all
        rows decide, as for a fit.
    opinion : SecondOpinion or None
        The second opinion.
    opinion_name : str
        Its name in the context.
    unknown : mapping of str to bool
        Columns of the model that the rows do not have, and whether each is a second opinion.
    decimal : str
        The decimal separator of numbers in text.
    """

    columns: Mapping[str, bool | None] = field(default_factory=dict)
    opinion: SecondOpinion | None = None
    opinion_name: str = OPINION
    unknown: Mapping[str, bool] = field(default_factory=dict)
    decimal: str = "."

    @property
    def to_read(self) -> tuple[str, ...]:
        """The keys or columns to read with each row."""
        joined = () if self.opinion is None else (self.opinion.id_column,)
        return tuple(dict.fromkeys([*self.columns, *joined]))

    def of(
        self, vectors: Mapping[str, NumPyArray], shape: tuple[int, ...], kind: Kind
    ) -> dict[str, NumPyArray]:
        """Return the context of rows whose columns were read, as `fit` and `predict_proba` take it.

        Parameters
        ----------
        vectors : mapping of str to ndarray
            The columns as they are written in the file.
        shape : tuple of int
            The shape of the scores.
        kind : {"logits", "probabilities"}
            What these scores are.
        """
        context = {
            name: self._column(name, vectors[name], categories)
            for name, categories in self.columns.items()
        }
        if self.opinion is not None:
            ids = as_texts(vectors[self.opinion.id_column])
            context[self.opinion_name] = self.opinion.scores_of(ids, kind)
        for name, is_opinion in self.unknown.items():
            context[name] = np.full(shape if is_opinion else shape[0], np.nan)
        return context

    def _column(self, name: str, vector: NumPyArray, categories: bool | None) -> NumPyArray:
        """Return floats with NaN, or text with None."""
        if vector.dtype.kind in "Mm":
            raise InputError(
                context_argument(name),
                "holds times",
                "store a number, such as days, or a category",
            )
        if categories:
            return np.array(as_texts(vector), dtype=object)
        numbers, words = _as_numbers(vector, self.decimal)
        if not words:
            return numbers
        if categories is None:
            return np.array(as_texts(vector), dtype=object)
        raise InputError(
            "scores",
            f"has text in the column {name!r}, in which fit had numbers",
            "write a number, or leave the cell empty",
            rows=words,
        )


def as_texts(vector: NumPyArray) -> list[str | None]:
    """Return what is written in each row, None where nothing is; whole numbers have no point.

    Examples
    --------
    >>> as_texts(np.array([1.0, np.nan])), as_texts(np.array(["a", "", "NA"]))
    (['1', None], ['a', None, None])
    """
    return [_text(value) for value in vector.tolist()]


def _text(value: object) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    return None if text in MISSING else text


def _as_numbers(vector: NumPyArray, decimal: str) -> tuple[Vector, list[int]]:
    """Return a column as numbers, NaN where nothing is, and the rows that are not numbers."""
    if vector.dtype.kind in "iuf":
        return vector.astype(np.float64), []
    numbers, words = np.full(len(vector), np.nan), []
    for row, written in enumerate(as_texts(vector)):
        if written is None:
            continue
        number = written.replace(decimal, ".")
        if is_number(number):
            numbers[row] = float(number)
        else:
            words.append(row)
    return numbers, words


def context_of_model(
    fitted: FittedContext,
    given: Sequence[str] | None,
    opinion: SecondOpinion | None,
    decimal: str,
) -> FileContext:
    """Return which columns to read for a model; only those that have an effect are needed.

    Parameters
    ----------
    fitted : FittedContext
        The context that the model was fitted with.
    given : sequence of str, optional
        The columns that the rows have; by default all that the model needs.
    opinion : SecondOpinion or None
        The second opinion of these rows, if there is one.
    decimal : str
        The decimal separator of numbers in text.
    """
    categories = {
        column.name: column.categories is not None
        for column in fitted.columns
        if not column.is_opinion
    }
    opinions = [column.name for column in fitted.columns if column.is_opinion]
    listed = ", ".join(fitted.names)
    foreign = [name for name in given or () if name not in fitted.names]
    if foreign:
        raise InputError(
            "--context-columns", f"has {foreign[0]!r}, but fit had {listed}", "name one of these"
        )
    if len(opinions) > 1:
        raise InputError(
            "--second-opinion",
            f"is one file, but the model has the second opinions {', '.join(opinions)}",
            "use it in Python: model.predict_proba(scores, context=frame)",
        )
    if opinions and opinion is None and given is None:
        raise InputError(
            "--second-opinion",
            "is missing: the model was fitted with one",
            "pass the file of the other model's scores, or name the columns that these rows have "
            "with --context-columns (none for no column at all)",
        )
    columns = {name: kind for name, kind in categories.items() if given is None or name in given}
    unknown = {name: False for name in categories if name not in columns}
    if opinion is None:
        unknown |= dict.fromkeys(opinions, True)
    return FileContext(
        columns, opinion if opinions else None, (*opinions, OPINION)[0], unknown, decimal
    )


@contextmanager
def errors_of_scores(context: Mapping[str, NumPyArray] | None) -> Iterator[None]:
    """Count errors in rows of the context as errors of these rows of the scores."""
    try:
        yield
    except InputError as error:
        for name in context or ():
            if error.argument == context_argument(name) and error.rows.size:
                reason = f"{error.reason} in the column {name!r}"
                raise InputError("scores", reason, error.hint, rows=error.rows) from None
        raise


def count_unknown(context: Mapping[str, NumPyArray]) -> dict[str, int]:
    """Return in how many rows each column is unknown, of those that are somewhere.

    Examples
    --------
    >>> count_unknown({"source": np.array(["pdf", None], dtype=object), "day": np.zeros(2)})
    {'source': 1}
    """
    counts = {name: int((~is_present(values)).sum()) for name, values in context.items()}
    return {name: count for name, count in counts.items() if count}
