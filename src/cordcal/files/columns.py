"""Which columns of a table are the scores, the labels and the weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal

from cordcal._errors import InputError
from cordcal._validation.names import are_default_names

LABEL_NAMES = ("labels", "label", "y", "y_true", "targets", "target", "true_label")
FEATURE_NAMES = ("features", "embeddings")
# Columns of a table that are not scores.
_NOT_SCORES = {*LABEL_NAMES, "", "id", "index", "row", "prediction", "prediction_name"}
_GROUP = re.compile(r"(original|direct|repaired|logits|probs|probabilities):(.*)", re.DOTALL)
# Name of the matrix of numeric columns without a common prefix.
SCORES = "scores"

ColumnType = Literal["list", "float", "integer", "other"]
"""The type of a column."""


@dataclass(frozen=True)
class ColumnSpec:
    """Where a reader finds scores, labels and weights; by default by name.

    Attributes
    ----------
    key : str or None
        The key or the list column of the scores.
    columns : tuple of str or None
        The columns of the scores, one per class: names, or patterns such as ``score_*``.
    labels, weights : str or None
        Separate files; None if they are in the file of the scores.
    labels_column, weights_column : str or None
        The key or column in that file.
    class_names : tuple of str or None
        One name per column, for files without names.
    classes : tuple of str or None
        The classes of a model: columns of these names are the scores, in this order.
    pattern : tuple of str or None
        Patterns of the columns that a model was fitted on; used if a table has such columns.
    expected : tuple of str or None
        The classes that the scores must have, in this order.
    classes_in : str
        What has these classes, for messages: a model or another file.
    order : mapping of str to tuple of str
        The column names of each matrix in the first of several parts, whose order is used.
    passthrough : bool
        Whether to read the other columns of a table, too.
    words : bool
        Whether a table may have text columns only, as a file of labels or groups does.
    header : bool or None
        Whether the first line of a CSV file is a header; None to detect it.
    """

    key: str | None = None
    columns: tuple[str, ...] | None = None
    labels: str | None = None
    labels_column: str | None = None
    weights: str | None = None
    weights_column: str | None = None
    class_names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    pattern: tuple[str, ...] | None = None
    expected: tuple[str, ...] | None = None
    classes_in: str = "the model"
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    passthrough: bool = False
    words: bool = False
    header: bool | None = None

    @classmethod
    def of(
        cls,
        key: str | None,
        columns: str | Sequence[str] | None,
        labels: str | None,
        labels_column: str | None,
        weights: str | None,
        weights_column: str | None,
    ) -> ColumnSpec:
        """Make a spec from the arguments of a public function."""
        return cls(
            key,
            as_patterns(columns),
            labels,
            labels_column,
            weights=weights,
            weights_column=weights_column,
        )

    def named(
        self,
        names: Sequence[str] | None,
        classes: Sequence[str] | None,
        *,
        passthrough: bool = False,
        header: bool | None = None,
    ) -> ColumnSpec:
        """Return the spec with the names of the columns, and of a model's classes."""
        own, others = (None if values is None else tuple(values) for values in (names, classes))
        return replace(
            self, class_names=own, classes=others, passthrough=passthrough, header=header
        )

    @property
    def claimed_columns(self) -> set[str]:
        """The columns of the scores' own file that hold labels or weights."""
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
        """The classes that the scores must have; default names (numbers) do not bind."""
        if self.classes is not None and not are_default_names(self.classes):
            return self.classes
        return self.expected


def as_patterns(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return column names and patterns; a string is split at commas."""
    if columns is None:
        return None
    patterns = columns.split(",") if isinstance(columns, str) else columns
    return tuple(pattern.strip() for pattern in patterns)


def matching(patterns: tuple[str, ...], headings: Sequence[str], where: str) -> dict[str, str]:
    """Return the columns that match patterns, with the class name of each.

    A pattern that equals a heading matches it alone.  In a pattern with one star, the text that
    the star matches is the class name.

    Examples
    --------
    >>> matching(("score_*",), ["id", "score_cat", "score_dog"], "s.csv")
    {'score_cat': 'cat', 'score_dog': 'dog'}
    """
    classes: dict[str, str] = {}
    for pattern in patterns:
        if pattern in headings:
            classes[pattern] = pattern
            continue
        fitting = [heading for heading in headings if fnmatchcase(heading, pattern)]
        if not fitting:
            raise InputError(where, f"has no column {pattern!r}", f"it has {list_names(headings)}")
        classes |= {heading: _text_at_star(heading, pattern) for heading in fitting}
    return classes


def have_match(patterns: tuple[str, ...], headings: Sequence[str]) -> bool:
    """Whether some column matches one of the patterns."""
    return any(fnmatchcase(heading, pattern) for pattern in patterns for heading in headings)


def _text_at_star(heading: str, pattern: str) -> str:
    before, star, behind = pattern.partition("*")
    if not star or re.search(r"[*?\[]", before + behind):
        return heading
    return heading[len(before) : len(heading) - len(behind)]


def list_names(names: Sequence[str], max_names: int = 12) -> str:
    """Join names for a sentence; long lists are shortened.

    Examples
    --------
    >>> list_names(["id", "cat", "dog"], max_names=2)
    'id, cat and 1 more'
    """
    shown = ", ".join(names[:max_names])
    more = len(names) - max_names
    return f"{shown} and {more} more" if more > 0 else shown or "no columns"


def is_other_column(heading: str) -> bool:
    """Whether a heading names labels or identifiers rather than scores."""
    return heading.lower() in _NOT_SCORES


@dataclass(frozen=True)
class Grouping:
    """The columns of a table, grouped into matrices and vectors.

    Attributes
    ----------
    matrices : dict of str to tuple of str
        The columns of each matrix; a column of lists is a matrix by itself.
    vectors : tuple of str
        The columns that belong to no matrix.
    names : mapping of str to tuple of str
        The names of the columns of each matrix, from their headings.
    own_names : mapping of str to tuple of str
        The same in the order of the file.
    """

    matrices: Mapping[str, tuple[str, ...]]
    vectors: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    own_names: Mapping[str, tuple[str, ...]]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The classes of the first matrix of scores."""
        return next((names for key, names in self.names.items() if key not in FEATURE_NAMES), None)


def grouped(
    column_types: Mapping[str, ColumnType], spec: ColumnSpec, where: str, *, named: bool = True
) -> Grouping:
    """Group the columns of a table into matrices and vectors.

    The scores are the columns that the spec names, else those with the names of a model's
    classes.  Otherwise ``direct:cat`` belongs to a matrix called direct; without such headings
    all numeric columns together are the scores.

    Parameters
    ----------
    column_types : mapping of str to str
        The type of each column.
    spec : ColumnSpec
        Where the reader should look.
    where : str
        The file, for messages.
    named : bool
        Whether the headings come from the file.

    Examples
    --------
    >>> column_types = {"id": "integer", "cat": "float", "dog": "float", "when": "other"}
    >>> grouped(column_types, ColumnSpec(), "s.csv").matrices
    {'scores': ('cat', 'dog')}
    """
    lists = {
        heading: (heading,)
        for heading, column_type in column_types.items()
        if column_type == "list"
    }
    scores = _named_scores(column_types, spec, where) or (
        _model_scores(column_types, spec, where) if named else None
    )
    groups: dict[str, dict[str, str]] = {} if scores is None else {SCORES: scores}
    used = {heading for group in groups.values() for heading in group} | spec.claimed_columns
    if scores is None:
        groups |= _by_heading(column_types, used, alone=not lists)
    ordered = groups
    if named:
        ordered = {name: _in_order(group, _order(name, spec)) for name, group in groups.items()}
    matrices = {name: tuple(group) for name, group in ordered.items()}
    used = {heading for group in matrices.values() for heading in group} | lists.keys()
    return Grouping(
        matrices=lists | matrices,
        vectors=tuple(heading for heading in column_types if heading not in used),
        names=_names(ordered) if named else {},
        own_names=_names(groups) if named else {},
    )


def _names(groups: Mapping[str, dict[str, str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(group.values()) for name, group in groups.items()}


def _order(matrix: str, spec: ColumnSpec) -> tuple[str, ...] | None:
    """Return the names that define the order of a matrix's columns."""
    if matrix in FEATURE_NAMES:
        return spec.order.get(matrix)
    return spec.classes or spec.expected or spec.class_names or spec.order.get(matrix)


def _in_order(group: dict[str, str], names: tuple[str, ...] | None) -> dict[str, str]:
    """Return columns in the order of ``names``, if they are the same names."""
    if names is None or set(names) != set(group.values()):
        return group  # the caller refuses conflicting names
    headings = {name: heading for heading, name in group.items()}
    return {headings[name]: name for name in names}


def _named_scores(
    column_types: Mapping[str, ColumnType], spec: ColumnSpec, where: str
) -> dict[str, str] | None:
    patterns = spec.columns
    if patterns is None and spec.pattern is not None and spec.key is None:
        patterns = spec.pattern if have_match(spec.pattern, list(column_types)) else None
    if patterns is None:
        return None
    scores = matching(patterns, list(column_types), where)
    headings: dict[str, str] = {}
    for heading, name in scores.items():
        if headings.setdefault(name, heading) != heading:
            raise InputError(
                where,
                f"has the columns {headings[name]!r} and {heading!r} for the class {name!r}",
                "name one column per class with {option}",
                option=("columns", "a,b,…"),
            )
    return _numeric(scores, column_types, where, "scores")


def _numeric(
    columns: dict[str, str], column_types: Mapping[str, ColumnType], where: str, what: str
) -> dict[str, str]:
    for heading in columns:
        if column_types[heading] not in ("float", "integer"):
            raise InputError(
                where,
                f"has no numbers in the column {heading!r}",
                f"name columns of numbers for the {what}",
            )
    return columns


def _model_scores(
    column_types: Mapping[str, ColumnType], spec: ColumnSpec, where: str
) -> dict[str, str] | None:
    """Return the columns that have the names of a model's classes."""
    classes = spec.classes
    if classes is None or spec.key is not None:
        return None
    missing = [name for name in classes if column_types.get(name) not in ("float", "integer")]
    if not missing:
        names = set(classes)
        return {name: name for name in column_types if name in names}
    if len(missing) < len(classes) and any(not name.isdecimal() for name in classes):
        raise InputError(
            where,
            f"has no column of numbers for the class {missing[0]!r}",
            f"it has {list_names(list(column_types))}; name the columns with {{option}}",
            option=("columns", "a,b,…"),
        )
    return None


def _by_heading(
    column_types: Mapping[str, ColumnType], used: set[str], *, alone: bool
) -> dict[str, dict[str, str]]:
    """Group headings such as ``direct:cat``; without any, the remaining numeric columns."""
    groups: dict[str, dict[str, str]] = {}
    loose: list[str] = []
    for heading, column_type in column_types.items():
        if heading in used or column_type not in ("float", "integer"):
            continue
        grouped = _GROUP.fullmatch(heading)
        if grouped is not None:
            groups.setdefault(grouped[1], {})[heading] = grouped[2]
        elif heading.lower() not in _NOT_SCORES:
            loose.append(heading)
    # Scores are not counts: among floating numbers an integer is an identifier or an age.
    floating = [heading for heading in loose if column_types[heading] == "float"]
    loose = floating or loose
    if groups or not alone or len(loose) < 2:  # one column of numbers is labels, not scores
        return groups
    return {SCORES: {heading: heading for heading in loose}}
