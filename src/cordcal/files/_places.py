"""Where the scores, the labels, the features and the weights of some rows are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from cordcal._errors import InputError
from cordcal._validation.names import are_default_names


@dataclass(frozen=True)
class Places:
    """What a reader was told of where things are; what it was not told it finds by name.

    Attributes
    ----------
    key : str or None
        The key or the list column of the scores.
    columns : tuple of str or None
        The columns of the scores, one a class: names, or patterns such as ``score_*``.
    labels, features, weights : str or None
        Files of their own; without one they lie in the scores' file.
    labels_column, weights_column : str or None
        The key or column in that file.
    features_columns : tuple of str or None
        The key, or the columns, in that file.
    class_names : tuple of str or None
        One name a column, where the file has none.
    classes : tuple of str or None
        The classes of a model: columns of these names are the scores, in this order.
    pattern : tuple of str or None
        Patterns of columns that a model was fitted on; used where a table has such columns.
    expected : tuple of str or None
        The classes that the scores must have, whichever columns they are; in this order.
    classes_in : str
        Who has these classes, for messages: a model or another file.
    order : mapping of str to tuple of str
        The names of each matrix's columns in the first of several parts, whose order is used.
    rest : bool
        Whether the other columns of a table are wanted too.
    words : bool
        Whether a table may hold words alone, as a file of labels or groups does.
    header : bool or None
        Whether the first line of a CSV file is a header; None where its entries decide.
    """

    key: str | None = None
    columns: tuple[str, ...] | None = None
    labels: str | None = None
    labels_column: str | None = None
    features: str | None = None
    features_columns: tuple[str, ...] | None = None
    weights: str | None = None
    weights_column: str | None = None
    class_names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    pattern: tuple[str, ...] | None = None
    expected: tuple[str, ...] | None = None
    classes_in: str = "the model"
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rest: bool = False
    words: bool = False
    header: bool | None = None

    @classmethod
    def of(
        cls,
        key: str | None,
        columns: str | Sequence[str] | None,
        labels: str | None,
        labels_column: str | None,
        features: str | None,
        features_columns: str | Sequence[str] | None,
        weights: str | None,
        weights_column: str | None,
    ) -> Places:
        """Return what a public function was told; columns may come in one string."""
        patterns, codes = as_patterns(columns), as_patterns(features_columns)
        return cls(key, patterns, labels, labels_column, features, codes, weights, weights_column)

    def named(
        self,
        names: Sequence[str] | None,
        classes: Sequence[str] | None,
        *,
        rest: bool = False,
        header: bool | None = None,
    ) -> Places:
        """Return the places with the names of the columns, and of a model's classes."""
        own, others = (None if each is None else tuple(each) for each in (names, classes))
        return replace(self, class_names=own, classes=others, rest=rest, header=header)

    @property
    def beside(self) -> set[str]:
        """The columns of the scores' own file that are told to be something else."""
        return {
            column
            for file, column in (
                (self.labels, self.labels_column),
                (self.weights, self.weights_column),
            )
            if file is None and column is not None
        }

    @property
    def required(self) -> tuple[str, ...] | None:
        """The classes that the scores must have; numbers alone are not binding names."""
        if self.classes is not None and not are_default_names(self.classes):
            return self.classes
        return self.expected

    @property
    def own_features(self) -> tuple[str, ...] | None:
        """The columns of the features, where these lie in the scores' own file."""
        return self.features_columns if self.features is None else None


def as_patterns(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names and patterns of columns; a string has commas between them."""
    if columns is None:
        return None
    given = columns.split(",") if isinstance(columns, str) else columns
    return tuple(each.strip() for each in given)


def matching(patterns: tuple[str, ...], headings: Sequence[str], where: str) -> dict[str, str]:
    """Return the columns that patterns stand for, and what each calls its class.

    A heading that is written out is meant itself; of a pattern with one star the class is
    what the star stands for.

    Examples
    --------
    >>> matching(("score_*",), ["id", "score_cat", "score_dog"], "s.csv")
    {'score_cat': 'cat', 'score_dog': 'dog'}
    """
    found: dict[str, str] = {}
    for pattern in patterns:
        if pattern in headings:
            found[pattern] = pattern
            continue
        fitting = [each for each in headings if fnmatchcase(each, pattern)]
        if not fitting:
            raise InputError(where, f"has no column {pattern!r}", f"it has {told(headings)}")
        found |= {each: _starred(each, pattern) for each in fitting}
    return found


def have_match(patterns: tuple[str, ...], headings: Sequence[str]) -> bool:
    """Whether some column is one that the patterns stand for."""
    return any(fnmatchcase(each, pattern) for pattern in patterns for each in headings)


def _starred(heading: str, pattern: str) -> str:
    before, star, behind = pattern.partition("*")
    if not star or re.search(r"[*?\[]", before + behind):
        return heading
    return heading[len(before) : len(heading) - len(behind)]


def told(names: Sequence[str], most: int = 12) -> str:
    """Name some columns in a sentence.

    Examples
    --------
    >>> told(["id", "cat", "dog"], most=2)
    'id, cat and 1 more'
    """
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown or "no columns"
