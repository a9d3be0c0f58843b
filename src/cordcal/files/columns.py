"""Which columns of a table are the scores, the labels and the weights.

Columns named like the model's classes, or like the labels' values, are the scores; else those of
a pattern; else the one column of lists; else columns of numbers that share a prefix.  Anything
else is refused with the patterns that would fit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Literal

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal._validation.names import are_default_names

LABEL_NAMES = ("labels", "label", "y", "y_true", "targets", "target", "true_label")
LOGIT_NAMES = ("logits", "logit")
PROBABILITY_NAMES = ("probabilities", "probs", "probas", "proba", "prob", "y_prob")
SCORE_NAMES = ("scores", *LOGIT_NAMES, *PROBABILITY_NAMES, "array")
MISSING = ("", "NA", "N/A", "#N/A", "NULL", "null", "None", "<NA>")
"""How other programs write a missing value in text."""
KIND = "cordcal.input"
"""The metadata of Parquet and Feather files that store what their scores are."""
OUTPUT = "repaired"
"""The key of probabilities that `apply` wrote."""

# Columns that are never scores: labels, predictions, confidences, identifiers.
_NOT_SCORES = {
    *LABEL_NAMES,
    *("", "index", "row", "rows", "fold", "split", "weight", "weights", "group", "groups"),
    *("prediction", "predictions", "prediction_name", "predicted", "pred", "preds", "y_pred"),
    *("y_hat", "yhat", "decision", "class", "classes", "confidence", "confidences", "conf"),
    *("score", "top_score", "max_prob", "entropy", "margin", "loss", "time", "timestamp", "date"),
}
_IDENTIFIER = re.compile(r"(?:.*[_ .-])?(?:id|ids|idx|uuid|uid|key)|.*Id", re.DOTALL)
# What may stand between a prefix and the name of a class.
_SEPARATORS = "_.:-/ |["

ColumnType = Literal["list", "integer list", "float", "integer", "text", "other"]
"""What a column holds; a list is a whole row of scores, as in a matrix."""
_LISTS = ("list", "integer list")


@dataclass(frozen=True)
class TextOptions:
    """How text files are read.

    Attributes
    ----------
    header : bool or None
        Whether the first line of a CSV file names the columns where that is not certain.
    decimal : str
        The decimal separator of numbers, ``"."`` or ``","``.
    encoding : str or None
        The encoding; by default UTF-8.
    """

    header: bool | None = None
    decimal: str = "."
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise InputError("decimal", f"is {self.decimal!r}", "write a point or a comma")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)  # refuses codecs of bytes, such as base64, too
            except (LookupError, UnicodeError):
                raise InputError(
                    "encoding", f"is {self.encoding!r}", "write utf-16, cp1252 or the like"
                ) from None


@dataclass(frozen=True)
class ScoreColumns:
    """The columns of the scores.

    Attributes
    ----------
    key : str
        What they are called together: a column of lists, `OUTPUT`, or ``"scores"``.
    columns : tuple of str
        The columns, in the order of the file; one if it holds lists.
    class_names : tuple of str or None
        The class of each; None if columns are only numbered, or lists.
    """

    key: str
    columns: tuple[str, ...]
    class_names: tuple[str, ...] | None = None

    @property
    def are_lists(self) -> bool:
        """Whether one column holds the scores as lists."""
        return self.columns == (self.key,)


@dataclass(frozen=True)
class ColumnSpec:
    """Where a reader finds scores, labels and weights; by default by name.

    Attributes
    ----------
    columns : tuple of str or None
        The columns of the scores, one per class: names, or patterns such as ``score_*``; or the one
        key or column that holds whole rows.
    labels, weights : str or None
        Separate files; None if they are in the file of the scores.
    labels_column, weights_column : str or None
        The key or column in that file.
    class_names : tuple of str or None
        One name per column, for files without names.
    classes : tuple of str or None
        The classes of a model or of another file, in the order that is used.
    classes_in : str
        What has these classes, for messages.
    kind : {"logits", "probabilities"} or None
        What that model was fitted on: rows that may be either are of this kind.
    pattern : tuple of str or None
        Patterns of the columns that a model was fitted on; used if a table has such columns.
    text : TextOptions
        How text files are read.
    chosen : ScoreColumns or None
        The columns of another part of the same table.
    context : tuple of str
        Other keys or columns to read with each row.
    groups : str or None
        The key or column of each row's group, read in the same way.
    ids : str or None
        The first column of identifiers that another file of the same rows has, too: they are
        compared.
    others : tuple of (str, str)
        Options and the columns that they name, which are not scores.
    """

    columns: tuple[str, ...] | None = None
    labels: str | None = None
    labels_column: str | None = None
    weights: str | None = None
    weights_column: str | None = None
    class_names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    classes_in: str = "the model"
    kind: Kind | None = None
    pattern: tuple[str, ...] | None = None
    text: TextOptions = TextOptions()
    chosen: ScoreColumns | None = None
    context: tuple[str, ...] = ()
    groups: str | None = None
    ids: str | None = None
    others: tuple[tuple[str, str], ...] = ()

    @property
    def beside(self) -> tuple[str, ...]:
        """The keys or columns to read next to the scores."""
        return tuple(dict.fromkeys([*self.context, *filter(None, (self.groups, self.ids))]))


def as_patterns(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return column names and patterns; a string is split at commas."""
    if columns is None:
        return None
    patterns = columns.split(",") if isinstance(columns, str) else columns
    return tuple(pattern.strip() for pattern in patterns)


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
    """Whether a heading names labels, predictions, confidences or identifiers.

    Examples
    --------
    >>> [is_other_column(name) for name in ("Label", "user_id", "y_pred", "p_cat", "age")]
    [True, True, True, False, False]
    """
    lower = heading.lower()
    return lower in _NOT_SCORES or is_identifier(heading)


def is_identifier(heading: str) -> bool:
    """Whether a heading names identifiers of rows.

    Examples
    --------
    >>> [is_identifier(name) for name in ("ID", "userId", "row_id", "idea")]
    [True, True, True, False]
    """
    return heading.lower() == "id" or _IDENTIFIER.fullmatch(heading) is not None


def is_number(cell: str) -> bool:
    """Whether a cell is a number; unlike `float`, 1_0 is not.

    Examples
    --------
    >>> is_number("1e-3"), is_number("1_0"), is_number("")
    (True, False, False)
    """
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and cell.isascii()


def matching(patterns: Sequence[str], headings: Sequence[str]) -> dict[str, str]:
    """Return the columns that match patterns, with the class name of each.

    A pattern that equals a heading matches it alone.  In a pattern with one star, the text that
    the star matches is the class name.

    Examples
    --------
    >>> matching(["score_*"], ["id", "score_cat", "score_dog"])
    {'score_cat': 'cat', 'score_dog': 'dog'}
    """
    classes: dict[str, str] = {}
    for pattern in patterns:
        if pattern in headings:
            classes[pattern] = pattern
        else:
            fitting = [heading for heading in headings if fnmatchcase(heading, pattern)]
            classes |= {heading: _text_at_star(heading, pattern) for heading in fitting}
    return classes


def _text_at_star(heading: str, pattern: str) -> str:
    before, star, behind = pattern.partition("*")
    if not star or re.search(r"[*?\[]", before + behind):
        return heading
    return heading[len(before) : len(heading) - len(behind)]


def choose_columns(
    types: Mapping[str, ColumnType],
    spec: ColumnSpec,
    where: str,
    *,
    role: str = "scores",
    input: Kind | None = None,
    has_header: bool = True,
    label_values: Callable[[], set[str]] = set,
    listed: str | None = None,
) -> ScoreColumns | InputError:
    """Return the columns of the scores, or the error that they cannot be told.

    Parameters
    ----------
    types : mapping of str to str
        What each column holds.
    spec : ColumnSpec
        What the caller says about them.
    where : str
        The file, for messages.
    role : str
        ``"scores"``, ``"original"``, ``"direct"`` or ``"repaired"``: which of several to prefer.
    input : {"logits", "probabilities"}, optional
        The kind of scores to prefer.
    has_header : bool
        Whether the names of the columns come from the file.
    label_values : callable
        Reads the distinct labels of the same table; empty if they are numbers.
    listed : str, optional
        What the file holds, for messages; by default the columns.

    Examples
    --------
    >>> types = {"id": "text", "p_cat": "float", "p_dog": "float", "label": "text"}
    >>> choose_columns(types, ColumnSpec(), "s.csv").class_names
    ('cat', 'dog')
    """
    listed = listed or list_names(list(types))
    if spec.columns is not None:
        return _named_columns(types, spec, where, listed)
    own = _output_columns(types, "direct" if role == "direct" else OUTPUT)
    if own is not None and role not in ("scores", "original"):
        return own
    written = set(_columns_of_apply(list(types)))
    others = {name: kind for name, kind in types.items() if name not in written}
    chosen = _by_name(others, spec, where, has_header)
    if chosen is None:
        chosen = _by_labels(others, label_values, where)
    if chosen is None:
        first = PROBABILITY_NAMES if input == "probabilities" else LOGIT_NAMES
        preferred = (role, *first, *SCORE_NAMES)
        chosen = _by_layout(others, preferred, where, has_header, listed)
    if isinstance(chosen, InputError) and own is not None:
        return own
    return chosen


def _named_columns(
    types: Mapping[str, ColumnType], spec: ColumnSpec, where: str, listed: str
) -> ScoreColumns | InputError:
    """Return the columns that the caller names, or the one that holds whole rows."""
    patterns = spec.columns or ()
    whole = ",".join(patterns)  # a key may contain a comma
    if types.get(whole) in _LISTS:
        return ScoreColumns(whole, (whole,))
    classes = matching(patterns, list(types))
    for pattern in patterns:
        if not matching([pattern], list(types)):
            return InputError(where, f"has no column {pattern!r}", f"it has {listed}")
    first = next(iter(classes))
    if len(classes) == 1 and types[first] in _LISTS:
        return ScoreColumns(first, (first,))
    seen: dict[str, str] = {}
    for heading, name in classes.items():
        if types[heading] not in ("float", "integer"):
            return InputError(
                where,
                f"has no numbers in the column {heading!r}",
                "name columns of numbers for the scores",
            )
        if seen.setdefault(name, heading) != heading:
            return InputError(
                where,
                f"has the columns {seen[name]!r} and {heading!r} for the class {name!r}",
                "name one column per class with {option}",
                option=("columns", "a,b,…"),
            )
    # p_cat and p_dog are the classes cat and dog of a model.
    known = _patterns_of(list(classes), spec.classes) if spec.classes else []
    if len(known) == 1 and len(classes) == len(spec.classes or ()):
        classes = matching(known, list(classes))
    return _scores(classes)


def _scores(classes: Mapping[str, str]) -> ScoreColumns:
    names = tuple(classes.values())
    return ScoreColumns("scores", tuple(classes), None if are_default_names(names) else names)


def _by_name(
    types: Mapping[str, ColumnType], spec: ColumnSpec, where: str, has_header: bool
) -> ScoreColumns | InputError | None:
    """Return columns named like the classes of a model or of another file."""
    headings = _numeric(types)
    if spec.pattern is not None:
        classes = matching(spec.pattern, headings)
        if classes:
            return _scores(classes)
        lists = [name for name in types if types[name] in _LISTS]
        keys = list(matching(spec.pattern, lists))
        if len(keys) == 1:
            return ScoreColumns(keys[0], (keys[0],))
    if spec.classes is None or not has_header:
        return None
    missing = [name for name in spec.classes if name not in headings]
    patterns = _patterns_of(headings, spec.classes)
    if not missing and patterns and not are_default_names(spec.classes):
        bare = ",".join(spec.classes) if len(spec.classes) <= 12 else "a,b,…"
        return InputError(
            where,
            f"has the classes of {spec.classes_in} as {patterns[0]} and by their bare names",
            f"choose with {{option}}, or '{patterns[0]}' instead",
            option=("columns", bare),
        )
    if not missing:
        names = set(spec.classes)
        chosen = {name: name for name in headings if name in names}
        return ScoreColumns("scores", tuple(chosen), tuple(chosen))
    if len(patterns) == 1:
        prefix = patterns[0].partition("*")[0]
        if all(name.isdecimal() for name in spec.classes):
            others = {name for name in _candidates(types) if name[len(prefix) :].isdecimal()}
        else:
            others = set(_candidates(types)) if prefix.endswith(tuple(_SEPARATORS)) else set()
        # A class that only the file has is one of them, so that it is refused.
        chosen = {
            heading: name
            for heading, name in matching(patterns, headings).items()
            if name in spec.classes or heading in others
        }
        return ScoreColumns("scores", tuple(chosen), tuple(chosen.values()))
    if len(patterns) > 1:
        return InputError(
            where,
            f"has the classes of {spec.classes_in} as {patterns[0]} and as {patterns[1]}",
            "choose with {option}",
            option=("columns", patterns[0]),
        )
    if len(missing) < len(spec.classes) and not are_default_names(spec.classes):
        return InputError(
            where,
            f"has no column of numbers for the class {missing[0]!r}, which {spec.classes_in} has",
            f"it has {list_names(list(types))}; name the columns with {{option}}",
            option=("columns", "a,b,…"),
        )
    return None


def _patterns_of(headings: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return the patterns that turn every class into one of the headings."""
    known, patterns = set(headings), []
    for heading in headings:
        start = heading.find(classes[0])
        while start >= 0:
            before, behind = heading[:start], heading[start + len(classes[0]) :]
            # 10, 11 and 12 are not the classes 0, 1 and 2 with a prefix.
            cuts_number = before[-1:].isdigit() or behind[:1].isdigit()
            fits = all(f"{before}{name}{behind}" in known for name in classes)
            if before + behind and fits and not (cuts_number and classes[0].isdigit()):
                patterns.append(f"{before}*{behind}")
            start = heading.find(classes[0], start + 1)
    return list(dict.fromkeys(patterns))


def _numeric(types: Mapping[str, ColumnType]) -> list[str]:
    return [name for name, kind in types.items() if kind in ("float", "integer")]


def _candidates(types: Mapping[str, ColumnType]) -> list[str]:
    """Return the columns of numbers that may be scores."""
    loose = [name for name in _numeric(types) if not is_other_column(name)]
    # Scores are not counts: among floating numbers an integer is an identifier or an age.
    return [name for name in loose if types[name] == "float"] or loose


def _by_labels(
    types: Mapping[str, ColumnType], label_values: Callable[[], set[str]], where: str
) -> ScoreColumns | InputError | None:
    """Return columns named like the values of the labels."""
    candidates = _candidates(types)
    if len(candidates) < 2:
        return None
    values = label_values()
    if not values or not values <= set(candidates):
        return None
    # A class without labelled rows is a column, too; an age is not.
    extra = [name for name in candidates if name not in values]
    if extra and len(values) > 1:
        named = ",".join(name for name in candidates if name in values)
        return InputError(
            where,
            f"has the columns {list_names(candidates)}, and no row is labelled {extra[0]!r}",
            "name the columns of the scores, as in {option}",
            option=("columns", named),
        )
    return _scores({name: name for name in candidates})


def _by_layout(
    types: Mapping[str, ColumnType],
    preferred: Sequence[str],
    where: str,
    has_header: bool,
    listed: str,
) -> ScoreColumns | InputError:
    """Return the one column of lists, numbered columns, or columns that share a prefix."""
    lists = [name for name, kind in types.items() if kind == "list"]
    keys = lists if len(lists) == 1 else [name for name in preferred if name in lists]
    if keys:
        return ScoreColumns(keys[0], (keys[0],))
    if lists:
        return InputError(
            where,
            f"holds several matrices of scores ({list_names(lists)})",
            "choose one, as in {option}",
            option=("columns", lists[0]),
        )
    numeric = _numeric(types)
    if not has_header:
        if len(numeric) == len(types) and len(numeric) > 1:
            return ScoreColumns("scores", tuple(numeric))
    else:
        numbered = [name for name in numeric if name.isdecimal()]
        if len(numbered) > 1 and are_default_names(sorted(numbered, key=int)):
            return _scores({name: name for name in numbered})
    candidates = _candidates(types)
    prefix = shared_prefix(candidates)
    if prefix is not None:
        return _scores({name: name.removeprefix(prefix) for name in candidates})
    return _unclear(candidates, where, listed)


def shared_prefix(names: Sequence[str]) -> str | None:
    """Return what names share before the class: text up to a separator, or before numbers.

    Examples
    --------
    >>> shared_prefix(["logit_ant", "logit_ape"]), shared_prefix(["p10", "p11"])
    ('logit_', 'p')
    >>> shared_prefix(["ant", "ape"]) is None
    True
    """
    if len(names) < 2:
        return None
    common = os.path.commonprefix(list(names)).rstrip("0123456789")  # noqa: RUF071 - as meant
    if common and all(name[len(common) :].isdecimal() for name in names):
        return common
    common = _until_separator(common)
    return common if common and common not in names else None


def _until_separator(name: str) -> str:
    return name[: max(name.rfind(mark) for mark in _SEPARATORS) + 1]


def _unclear(candidates: Sequence[str], where: str, listed: str) -> InputError:
    if len(candidates) < 2:
        return InputError(
            where,
            "holds no matrix of scores (rows × classes)",
            f"it has {listed}; name the columns of the scores with {{option}}",
            option=("columns", "a,b,…"),
        )
    groups: dict[str, list[str]] = {}
    for name in candidates:
        groups.setdefault(_until_separator(name) or name.rstrip("0123456789"), []).append(name)
    fitting = [f"{prefix}*" for prefix, names in groups.items() if len(names) > 1 and prefix]
    proposal = fitting[0] if fitting else ",".join(candidates)
    return InputError(
        where,
        f"has columns of numbers that may be scores or not ({list_names(candidates)})",
        "name those of the scores, as in {option}",
        option=("columns", proposal),
    )


# Columns that `apply` wrote.


def _columns_of_apply(headings: Sequence[str]) -> list[str]:
    """Return the columns that `apply` added to a table; none if it did not write it."""
    if "confidence" not in headings or "prediction" not in headings:
        return []
    start, end = headings.index("prediction"), headings.index("confidence")
    between = headings[start + 1 : end]
    is_own = start < end and between in ([], ["prediction_name"])
    return list(headings[start:]) if is_own else []


def _output_columns(types: Mapping[str, ColumnType], kind: str) -> ScoreColumns | None:
    """Return the probabilities that `apply` wrote: those after the confidence, or the direct."""
    written = _columns_of_apply(list(types))
    if not written:
        return None
    behind = [name for name in written[written.index("confidence") + 1 :] if types[name] == "float"]
    runs = [(prefix, list(run)) for prefix, run in groupby(behind, _first_part) if prefix]
    runs = [(prefix, run) for prefix, run in runs if len(run) > 1]
    if kind == "direct":
        runs.sort(key=lambda run: run[0] != "direct_")
    if not runs:
        return None
    prefix, columns = runs[0]
    return replace(_scores({name: name.removeprefix(prefix) for name in columns}), key=OUTPUT)


def _first_part(name: str) -> str:
    """Return a name up to its first separator; empty if it has none."""
    cut = next((at for at, mark in enumerate(name) if mark in _SEPARATORS), -1)
    return name[: cut + 1]
