"""Which columns of a table are scores, and what stands beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cordcal._errors import InputError
from cordcal.files._places import Places, have_match, matching, told

LABEL_NAMES = ("labels", "label", "y", "y_true", "targets", "target", "true_label")
FEATURE_NAMES = ("features", "embeddings")
# Columns of a table that stand beside the scores rather than among them.
_BESIDE = {*LABEL_NAMES, "", "id", "index", "row", "decision", "decision_name", "prediction"}
_GROUP = re.compile(r"(original|direct|repaired|logits|probs|probabilities):(.*)", re.DOTALL)
# What a matrix of loose columns is called.
SCORES = "scores"

Sort = Literal["list", "float", "integer", "other"]
"""What the cells of a column are."""


def is_other_column(heading: str) -> bool:
    """Whether a heading is that of labels or identifiers rather than of scores."""
    return heading.lower() in _BESIDE


@dataclass(frozen=True)
class Grouping:
    """A table's columns sorted out.

    Attributes
    ----------
    matrices : dict of str to tuple of str
        The columns of each matrix; a column of lists is one of its own name.
    vectors : tuple of str
        The columns that belong to none.
    names : mapping of str to tuple of str
        The names of each matrix's columns, where the headings give them.
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
        return next((each for key, each in self.names.items() if key not in FEATURE_NAMES), None)


def grouped(
    sorts: Mapping[str, Sort], places: Places, where: str, *, named: bool = True
) -> Grouping:
    """Sort a table's columns out.

    Told columns are the scores, else those with the names of a model's classes.  Otherwise
    ``direct:cat`` belongs to a matrix called direct, and where no heading is written like that
    the numeric columns together are the scores.

    Parameters
    ----------
    sorts : mapping of str to str
        What each column holds.
    places : Places
        What the reader was told.
    where : str
        The file, for messages.
    named : bool
        Whether the headings are the file's own.

    Examples
    --------
    >>> sorts = {"id": "integer", "cat": "float", "dog": "float", "when": "other"}
    >>> grouped(sorts, Places(), "s.csv").matrices
    {'scores': ('cat', 'dog')}
    """
    lists = {heading: (heading,) for heading, sort in sorts.items() if sort == "list"}
    scores = _told_scores(sorts, places, where) or (
        _model_scores(sorts, places, where) if named else None
    )
    groups: dict[str, dict[str, str]] = {} if scores is None else {SCORES: scores}
    features = places.own_features
    if features is not None:
        found = matching(features, list(sorts), where)
        if not (len(found) == 1 and next(iter(found)) in lists):
            groups[FEATURE_NAMES[0]] = _numeric(found, sorts, where, "features")
    taken = {heading for group in groups.values() for heading in group} | places.beside
    if scores is None:
        groups |= _by_heading(sorts, taken, alone=not lists)
    ordered = groups
    if named:
        ordered = {name: _in_order(group, _order(name, places)) for name, group in groups.items()}
    gathered = {name: tuple(group) for name, group in ordered.items()}
    used = {heading for group in gathered.values() for heading in group} | lists.keys()
    return Grouping(
        matrices=lists | gathered,
        vectors=tuple(heading for heading in sorts if heading not in used),
        names=_names(ordered) if named else {},
        own_names=_names(groups) if named else {},
    )


def _names(groups: Mapping[str, dict[str, str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(group.values()) for name, group in groups.items()}


def _order(matrix: str, places: Places) -> tuple[str, ...] | None:
    """Return the names whose order the columns of a matrix are brought into."""
    if matrix in FEATURE_NAMES:
        return places.order.get(matrix)
    return places.classes or places.expected or places.class_names or places.order.get(matrix)


def _in_order(group: dict[str, str], names: tuple[str, ...] | None) -> dict[str, str]:
    """Return columns in the order of their names, where these are the same."""
    if names is None or set(names) != set(group.values()):
        return group  # the caller refuses conflicting names
    headings = {name: heading for heading, name in group.items()}
    return {headings[name]: name for name in names}


def _told_scores(sorts: Mapping[str, Sort], places: Places, where: str) -> dict[str, str] | None:
    patterns = places.columns
    if patterns is None and places.pattern is not None and places.key is None:
        patterns = places.pattern if have_match(places.pattern, list(sorts)) else None
    if patterns is None:
        return None
    scores = matching(patterns, list(sorts), where)
    headings: dict[str, str] = {}
    for heading, name in scores.items():
        if headings.setdefault(name, heading) != heading:
            raise InputError(
                where,
                f"has the columns {headings[name]!r} and {heading!r} for the class {name!r}",
                "name one column per class with {option}",
                option=("columns", "a,b,…"),
            )
    return _numeric(scores, sorts, where, "scores")


def _numeric(
    found: dict[str, str], sorts: Mapping[str, Sort], where: str, what: str
) -> dict[str, str]:
    for heading in found:
        if sorts[heading] not in ("float", "integer"):
            raise InputError(
                where,
                f"has no numbers in the column {heading!r}",
                f"name columns of numbers for the {what}",
            )
    return found


def _model_scores(sorts: Mapping[str, Sort], places: Places, where: str) -> dict[str, str] | None:
    """Return the columns that are called as a model's classes."""
    classes = places.classes
    if classes is None or places.key is not None:
        return None
    missing = [name for name in classes if sorts.get(name) not in ("float", "integer")]
    if not missing:
        wanted = set(classes)
        return {name: name for name in sorts if name in wanted}
    if len(missing) < len(classes) and any(not name.isdecimal() for name in classes):
        raise InputError(
            where,
            f"has no column of numbers for the class {missing[0]!r}",
            f"it has {told(list(sorts))}; name the columns with {{option}}",
            option=("columns", "a,b,…"),
        )
    return None


def _by_heading(
    sorts: Mapping[str, Sort], taken: set[str], *, alone: bool
) -> dict[str, dict[str, str]]:
    """Gather headings such as ``direct:cat``, or else the numbers that nothing else claims."""
    groups: dict[str, dict[str, str]] = {}
    loose: list[str] = []
    for heading, sort in sorts.items():
        if heading in taken or sort not in ("float", "integer"):
            continue
        grouped = _GROUP.fullmatch(heading)
        if grouped is not None:
            groups.setdefault(grouped[1], {})[heading] = grouped[2]
        elif heading.lower() not in _BESIDE:
            loose.append(heading)
    # Scores are not counts: among floating numbers an integer is an identifier or an age.
    floating = [heading for heading in loose if sorts[heading] == "float"]
    loose = floating or loose
    if groups or not alone or len(loose) < 2:  # one column of numbers is labels, not scores
        return groups
    return {SCORES: {heading: heading for heading in loose}}
