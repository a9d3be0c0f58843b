"""Answers as a table of scores: read them once, and write calibrated ones back to their lines."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Record
from cordcal.files.columns import shared_prefix
from cordcal.files.disk import replacing, write_to_stdout
from cordcal.llm._questions import (
    MIN_PROBABILITY,
    Missing,
    Normalize,
    Question,
    ReadOptions,
    read_question,
)
from cordcal.llm.layouts import (
    LETTERS,
    METRICS,
    TOKEN_FORMS,
    Json,
    TokenForm,
    as_number,
    is_harness_sample,
    option_letters,
)
from cordcal.llm.sources import (
    Joined,
    JsonLines,
    Source,
    SourceLine,
    group_in,
    id_field,
    identify,
    list_ids,
    no_id,
    read_side_lines,
    read_source,
    without_collection,
)

if TYPE_CHECKING:
    from cordcal.files.scores import Scores

OTHER = "other"
# The columns of a table share this, by which every command recognises the scores.
PREFIX = "logprob_"
# Forms of tokens to keep: more than the tokens that models answer with.
_MAX_FORMS = 2**14


@dataclass(frozen=True)
class AnswersSummary(Record):
    """What answers contain, and what reading them had to decide.

    Attributes
    ----------
    n : int
        Questions.
    n_failed : int
        Lines of a Batch API whose request failed; they are not in the table.
    n_emitted_other : int
        Questions where the model gave the token of another option than the likeliest one.
    n_emitted_none : int
        Questions where the token that the model gave is not an option.
    n_incomplete : int
        Questions whose list of tokens lacks an option.
    max_unlisted, mean_unlisted : float
        The probability of tokens that are not listed: the largest, and the mean.
    mean_other_tokens : float
        The mean probability of listed tokens that are not options.
    n_merged : int
        Questions where several tokens mean one option.
    n_rescaled : int
        Questions whose stated probabilities do not sum to one.
    n_tied : int
        Questions whose first two options are equally likely; the earlier one is the prediction.
    n_unlabelled : int
        Questions that do not say which option is right.
    metrics : mapping of str to float
        The means of the metrics of lm-evaluation-harness in its samples, such as ``acc``.
    n_contradicting : int
        Questions whose metric in the file does not agree with the prediction and the right
        answer that were read.
    unanswered : tuple of str
        Identifiers of the labels file that no answer has.
    """

    n: int
    n_failed: int
    n_emitted_other: int
    n_emitted_none: int
    n_incomplete: int
    max_unlisted: float
    mean_unlisted: float
    mean_other_tokens: float
    n_merged: int
    n_rescaled: int
    n_tied: int
    n_unlabelled: int
    metrics: Mapping[str, float]
    n_contradicting: int
    unanswered: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return one sentence for each thing that was counted."""
        texts = [f"{self.n:,} question{'' if self.n == 1 else 's'}"]
        if self.n_incomplete:
            texts.append(
                f"{self.n_incomplete:,} do not list every option (unlisted probability: "
                f"{100 * self.mean_unlisted:.2f} % on average, at most "
                f"{100 * self.max_unlisted:.2f} %)"
            )
        if self.mean_other_tokens:
            texts.append(f"{100 * self.mean_other_tokens:.2f} % is on tokens that are not options")
        for count, description in (
            (self.n_failed, "omitted, because their request failed"),
            (
                self.n_emitted_other,
                "where the model gave another option than the likeliest one, "
                "which is the prediction here",
            ),
            (self.n_emitted_none, "where the model gave a token that is not an option"),
            (self.n_merged, "with several spellings of an option added up"),
            (self.n_rescaled, "with probabilities that do not sum to one, rescaled"),
            (self.n_tied, "with a tie, decided for the earlier option"),
            (self.n_contradicting, "whose own metric disagrees with what was read: check labels"),
        ):
            if count:
                texts.append(f"{count:,} {description}")
        if 0 < self.n_unlabelled < self.n:  # a file without any labels is nothing unusual
            texts.append(f"{self.n_unlabelled:,} without the right option")
        if self.unanswered:
            texts.append(f"no answer for {list_ids(self.unanswered)} of the labels file")
        return texts

    def __str__(self) -> str:
        return "; ".join(self.lines())


@dataclass(frozen=True, eq=False)
class Answers:
    """Questions with the log-probabilities of their options, one row each.

    pandas, polars and Arrow read it as a table: ``pyarrow.table(answers)``.  Its columns are
    ``id``, ``logprob_`` and the option for each option, and where known ``label``, ``group`` and
    ``emitted``.

    Attributes
    ----------
    ids : tuple of str
        The identifiers, all different.
    scores : ndarray of shape (n, K)
        Log-probabilities (``input="logits"``); −inf where a question has fewer options.  The
        prediction is the largest, after the spellings of an option are added up.
    class_names : tuple of str
        The columns: the options if all questions share them, otherwise letters; then ``other``
        if that was requested.
    labels : ndarray of int or None
        The right options, −1 where a question does not say; None if none does.
    groups : tuple of str or None
        The task or subject of each question, if known.
    emitted : tuple of str or None
        The token that the model gave, in replies of APIs.
    options : tuple of tuple of str
        The texts of the options of each question.
    summary : AnswersSummary
        What the files contain, and what reading them had to decide.
    skipped : mapping of str to int
        The reasons of lines that were skipped, and their number.
    """

    ids: tuple[str, ...]
    scores: npt.NDArray[np.float64]
    class_names: tuple[str, ...]
    labels: npt.NDArray[np.intp] | None
    groups: tuple[str | None, ...] | None
    emitted: tuple[str | None, ...] | None
    options: tuple[tuple[str, ...], ...]
    summary: AnswersSummary
    skipped: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.ids)

    def to_columns(self) -> dict[str, Any]:
        """Return the columns of the table by name."""
        columns: dict[str, Any] = {"id": self.ids}
        for name, column in zip(self.class_names, self.scores.T, strict=True):
            columns[PREFIX + name] = np.ascontiguousarray(column)
        if self.labels is not None:
            columns["label"] = [
                None if label < 0 else self.class_names[label] for label in self.labels.tolist()
            ]
        if self.groups is not None:
            columns["group"] = self.groups
        if self.emitted is not None:
            columns["emitted"] = self.emitted
        return columns

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as Arrow's stream, which data frame libraries read."""
        from cordcal.files.writers import as_table

        return as_table(self.to_columns()).__arrow_c_stream__(requested_schema)

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the table: Parquet, Feather, CSV or JSONL, by the suffix.

        Parquet and Feather files store that their scores are log-probabilities; in the others
        readers recognise them.  JSONL cannot hold the −inf of questions with fewer options.

        Parameters
        ----------
        path : path
            The output.
        overwrite : bool
            Whether an existing file may be replaced.
        """
        from cordcal.files.writers import write_table

        write_table(path, self.to_columns(), kind="logits", overwrite=overwrite)


@without_collection()
def read_answers(
    *sources: str | os.PathLike[str],
    options: str | Sequence[str] | None = None,
    labels: str | os.PathLike[str] | Mapping[str, object] | None = None,
    labels_column: str | None = None,
    groups: str | os.PathLike[str] | None = None,
    groups_column: str | None = None,
    join: str | None = None,
    missing: Missing = "even",
    variants: TokenForm | Literal["loose", "spaces", "exact"] = "loose",
    normalize: Normalize = "none",
    on_error: Literal["stop", "skip"] = "stop",
) -> Answers:
    """Read a language model's answers to multiple-choice questions as a table of scores.

    Every line is one question.  Supported are replies of chat and completion APIs with their top
    log-probabilities, also as lines of a Batch API; samples of lm-evaluation-harness
    (``--log_samples``); logs of Inspect (``.eval`` or JSON); mappings of options to
    log-probabilities (``"logprobs"``); and stated probability vectors (``"probabilities"``), also
    of vLLM's ``/classify``.  The question's options (``"options"`` or
    ``"choices"``) and its right answer may be on the same line.

    Labels and groups of other files are matched by identifier, so the order of lines does not
    matter in any file.  Requests of a Batch API that failed are omitted and counted; an
    identifier that occurs twice is refused.

    Parameters
    ----------
    *sources : path
        JSONL files or logs, folders of them, or patterns: ``"out/samples_mmlu_*.jsonl"``; ``-``
        reads stdin.
    options : str or sequence of str, optional
        The options of all questions, if the lines do not list them: ``"ABCD"`` or
        ``"yes,no"``.
    labels : path or mapping, optional
        A JSONL or CSV file with the right answer of each identifier, or a mapping of
        identifiers to answers.
    labels_column : str, optional
        The field of the right answer: an index from 0, a letter, or an option's text.  By
        default detected by name.
    groups : path, optional
        A JSONL or CSV file with the group of each identifier.
    groups_column : str, optional
        The field of the group, in that file or else in the lines or the labels file.  By default
        ``group``, ``subject`` or ``task``, and for lm-evaluation-harness the task in the name of
        the file.
    join : str, optional
        The field of the identifier in all files.  By default the first of ``custom_id``,
        ``doc_id``, ``question_id`` and ``id`` that all have.  Where no line has one, questions
        are numbered within their file.
    missing : {"even", "other", "refuse"}
        What to do with options that the top log-probabilities do not list: ``"even"`` splits
        the unlisted probability evenly among them, each below the least likely listed token;
        ``"other"`` puts it into a column of its own, together with tokens that are not
        options; ``"refuse"`` refuses the line.
    variants : {"loose", "spaces", "exact"} or callable
        Which spellings of a token count as one, so that their probabilities are added up.
        ``"loose"`` ignores spaces, brackets, punctuation and case, ``"spaces"`` only spaces.
    normalize : {"none", "characters", "bytes", "tokens"}
        Divide the log-likelihood of each option by its length.  The scores that are calibrated
        and the prediction that is kept are those after the division: ``"none"`` is ``acc`` of
        lm-evaluation-harness, ``"characters"`` is ``acc_norm``.
    on_error : {"stop", "skip"}
        What to do with invalid lines: stop with the number of the first, or skip them.

    Returns
    -------
    answers : Answers
        The table, and a summary.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "answers.jsonl"
    >>> _ = path.write_text('''{"id": 1, "logprobs": {"B": -0.2, "A": -1.8}, "answer": "B"}
    ... {"id": 2, "logprobs": {"A": -0.4, "B": -1.2}, "answer": "B"}''')
    >>> answers = read_answers(path)
    >>> list(answers.to_columns()), answers.labels.tolist()
    (['id', 'logprob_A', 'logprob_B', 'label'], [1, 1])
    >>> answers.scores
    array([[-1.8, -0.2],
           [-0.4, -1.2]])
    >>> folder.cleanup()
    """
    for name, value, choices in (
        ("missing", missing, get_args(Missing)),
        ("normalize", normalize, get_args(Normalize)),
        ("on_error", on_error, ("stop", "skip")),
    ):
        if value not in choices:
            raise InputError(name, f"is {value!r}", f"pass one of {', '.join(choices)}")
    form = TOKEN_FORMS.get(variants) if isinstance(variants, str) else variants
    if form is None:
        raise InputError(
            "variants", f"is {variants!r}", f"pass one of {', '.join(TOKEN_FORMS)}, or a function"
        )
    form = lru_cache(_MAX_FORMS)(form)
    named_options = None if options is None else parse_options(options)
    source = read_source(sources)
    label_lines = None if labels is None or isinstance(labels, Mapping) else read_side_lines(labels)
    group_lines = label_lines  # often one file has both
    if groups != labels:
        group_lines = None if groups is None else read_side_lines(groups)
    field = id_field(source, [side for side in (label_lines, group_lines) if side], join)
    if isinstance(labels, Mapping):
        field = field or "id"
        entries: list[Json] = [{field: key, "answer": value} for key, value in labels.items()]
        label_lines = JsonLines("labels", dict(enumerate(entries)), {})
    ids = identify(source, field)
    gold, group_file = (
        None if side is None else Joined(side, field or "id", source, ids)
        for side in (label_lines, group_lines)
    )
    questions: dict[int, Question] = {}
    groups_read: dict[int, str | None] = {}
    errors = list(source.errors)
    for at, line in enumerate(source.lines):
        read = ReadOptions(
            path=line.path,
            row=line.row,
            options=named_options,
            labels_column=labels_column,
            missing=missing,
            form=form,
            normalize=normalize,
            labels_path=None if gold is None else gold.path,
        )
        try:
            if at not in ids:
                raise no_id(line, field or "id")
            gold_line = None if gold is None else gold.line(at)
            if gold is not None and gold_line is None:
                raise gold.missing(line, at, "label")
            group = _find_group(line, at, gold_line, group_file, groups_column)
            questions[at] = read_question(line.line, read, gold_line)
            groups_read[at] = group
        except InputError as error:
            if not error.rows.size:
                raise
            errors.append(error)
    if errors and on_error == "stop":
        raise errors[0]
    if not questions:
        _refuse_empty(source, errors)
    return _collect(
        source,
        ids,
        questions,
        groups_read,
        Counter(error.reason for error in errors),
        form,
        has_other=missing == "other",
        unanswered=() if gold is None else gold.unanswered(),
    )


def _find_group(
    line: SourceLine,
    at: int,
    gold: Json | None,
    file: Joined | None,
    column: str | None,
) -> str | None:
    """Return the group of a question: of the file of groups, or else of the lines."""
    if file is not None:
        partner = file.line(at)
        group = None if partner is None else group_in(partner, column)
        if group is None:
            raise file.missing(line, at, column or "group")
        return group
    if column is None:
        return line.group()
    group = group_in(line.line, column) or (None if gold is None else group_in(gold, column))
    if group is None:
        raise line.error(f"has no {column}", "name the field of the groups")
    return group


def _refuse_empty(source: Source, errors: Sequence[InputError]) -> None:
    if not errors:
        raise InputError(
            source.name,
            f"has no reply: all {len(source.failed):,} requests failed",
            "send them again",
        )
    first = errors[0]
    reason = first.reason if first.detail is None else first.detail
    raise InputError(
        first.argument, f"has no valid line: the first {reason}", first.hint, option=first.option
    )


def parse_options(options: str | Sequence[str]) -> tuple[str, ...]:
    """Return the options of all questions; a text is ``ABCD`` or has commas between them.

    Examples
    --------
    >>> parse_options("ABCD"), parse_options("yes, no"), parse_options(["yes", "no"])
    (('A', 'B', 'C', 'D'), ('yes', 'no'), ('yes', 'no'))
    """
    if isinstance(options, str):
        if (
            options.isascii() and options.isalnum() and options == options.upper()
        ) or LETTERS.lower().startswith(options):
            parts = list(options)
        else:
            parts = [part.strip() for part in options.split(",")]
    else:
        parts = list(options)
    if len(parts) < 2 or "" in parts or len(set(parts)) < len(parts):
        raise InputError(
            "options",
            f"is {options!r}",
            "name two or more different options, as in ABCD or yes,no",
        )
    return tuple(parts)


def _collect(
    source: Source,
    ids: Mapping[int, str],
    questions: Mapping[int, Question],
    groups: Mapping[int, str | None],
    skipped: Mapping[str, int],
    form: TokenForm,
    *,
    has_other: bool,
    unanswered: tuple[str, ...],
) -> Answers:
    """Put the questions together, by their positions in the source."""
    rows = list(questions.values())
    options = tuple(question.options for question in rows)
    names = _column_names(options, form)
    scores = np.full((len(rows), len(names)), -math.inf)
    for index, question in enumerate(rows):
        scores[index, : len(question.scores)] = question.scores
    if has_other:
        rest = [question.unlisted + question.other_tokens for question in rows]
        scores = np.column_stack([scores, np.log(np.maximum(rest, MIN_PROBABILITY))])
    labels = [-1 if question.label is None else question.label for question in rows]
    emitted = tuple(question.emitted for question in rows)
    known_groups = tuple(groups[at] for at in questions)
    lines = [source.lines[at].line for at in questions]
    return Answers(
        ids=tuple(ids[at] for at in questions),
        scores=scores,
        class_names=(*names, OTHER) if has_other else names,
        labels=None if set(labels) == {-1} else np.array(labels, dtype=np.intp),
        groups=None if set(known_groups) == {None} else known_groups,
        emitted=None if set(emitted) == {None} else emitted,
        options=options,
        summary=_summarize(rows, scores, lines, len(source.failed), unanswered),
        skipped=skipped,
    )


def _column_names(options: Sequence[tuple[str, ...]], form: TokenForm) -> tuple[str, ...]:
    """Return the names of the columns: the options if all questions share them, or letters."""
    kinds = set(options)
    forms = {tuple(map(form, kind)) for kind in kinds}
    are_shared = len(kinds) == 1 or (len(forms) == 1 and len(set(*forms)) == len(*forms))
    if are_shared:
        # Of the spellings in all lines the first in order, so that the order of lines does not
        # matter.
        names = tuple(min(map(str.strip, spellings)) for spellings in zip(*kinds, strict=True))
        # Were there a shared beginning, as of "not good" and "not bad", it would be taken for
        # the prefix.
        columns = [PREFIX + name for name in names]
        if len(set(names)) == len(names) and shared_prefix(columns) == PREFIX:
            return names
    return option_letters(max(map(len, options)))


def _summarize(
    questions: Sequence[Question],
    scores: npt.NDArray[np.float64],
    lines: Sequence[Json],
    failed: int,
    unanswered: tuple[str, ...],
) -> AnswersSummary:
    top = np.sort(scores, axis=1)[:, -2:]
    count = len(questions)
    samples = [line for line in lines if is_harness_sample(line)]
    metrics = {}
    for name in METRICS.values():
        values = [as_number(line.get(name)) for line in samples]
        present = [value for value in values if value is not None]
        if present:
            metrics[name] = math.fsum(present) / len(present)
    emitting = [question for question in questions if question.emitted is not None]
    return AnswersSummary(
        n=count,
        n_failed=failed,
        n_emitted_other=sum(
            question.emitted_option not in (None, question.prediction) for question in emitting
        ),
        n_emitted_none=sum(question.emitted_option is None for question in emitting),
        n_incomplete=sum(question.is_incomplete for question in questions),
        max_unlisted=max(question.unlisted for question in questions),
        mean_unlisted=math.fsum(question.unlisted for question in questions) / count,
        mean_other_tokens=math.fsum(question.other_tokens for question in questions) / count,
        n_merged=sum(question.is_merged for question in questions),
        n_rescaled=sum(question.is_rescaled for question in questions),
        n_tied=int(np.count_nonzero(top[:, 0] == top[:, 1])),
        n_unlabelled=sum(question.label is None for question in questions),
        metrics=metrics,
        n_contradicting=sum(question.contradicts_metric for question in questions),
        unanswered=unanswered,
    )


# Calibrated answers ------------------------------------------------------------------------------

# The columns that a model with a certificate adds.
_FLAGS = ("act", "audit")


@dataclass(frozen=True)
class WrittenAnswers(Record):
    """What `write_answers` wrote.

    Attributes
    ----------
    n : int
        Lines.
    n_unmatched : int
        Lines without calibrated probabilities, written as they were: their request failed, or
        the table has no such identifier.
    n_omitted : int
        Lines that are not JSON objects.
    added : tuple of str
        The fields that were added.
    """

    n: int
    n_unmatched: int
    n_omitted: int
    added: tuple[str, ...]


@without_collection()
def write_answers(
    path: str | os.PathLike[str],
    *sources: str | os.PathLike[str],
    calibrated: str | os.PathLike[str],
    join: str | None = None,
    on_error: Literal["stop", "skip"] = "stop",
    overwrite: bool = True,
) -> WrittenAnswers:
    r"""Write the lines of answers with their calibrated probabilities added.

    Every line gets ``calibrated``, the probability of each option by its name in the table,
    ``prediction`` and ``confidence``, and ``act`` and ``audit`` where the table has these columns.
    Lines are matched with the rows of the table by identifier.

    Parameters
    ----------
    path : path or "-"
        A JSONL file; ``-`` is stdout.
    *sources : path
        The files, folders or patterns that `read_answers` read.
    calibrated : path
        A table that ``cordcal apply`` wrote from the table of these answers, with its ``id``.
    join : str, optional
        The field of the identifier, as for `read_answers`.
    on_error : {"stop", "skip"}
        What to do with lines that are not JSON objects: stop at the first, or omit them.
    overwrite : bool
        Whether an existing file may be replaced.

    Returns
    -------
    written : WrittenAnswers
        How many lines were written, have no row in the table, or were omitted.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, table, output = (Path(folder.name) / n for n in ("a.jsonl", "r.csv", "b.jsonl"))
    >>> _ = source.write_text('{"id": "q1", "logprobs": {"A": -0.4, "B": -1.2}}')
    >>> _ = table.write_text("id,prediction,confidence,p_A,p_B\nq1,0,.75,.75,.25")
    >>> write_answers(output, source, calibrated=table).n
    1
    >>> json.loads(output.read_text())["calibrated"]
    {'A': 0.75, 'B': 0.25}
    >>> folder.cleanup()
    """
    rows = _read_calibrated(os.fspath(calibrated))
    source = read_source(sources)
    if source.errors and on_error == "stop":
        raise source.errors[0]
    ids = identify(source, id_field(source, [], join))
    matched = {at: rows[key] for at, key in ids.items() if key in rows}
    if not matched:
        raise InputError(
            os.fspath(calibrated),
            f"has no row for a line of {source.name}",
            "pass the table that was made from these answers, with its column 'id'",
        )
    for at in matched:
        line = source.lines[at]
        taken = next((name for name in matched[at] if name in line.line), None)
        if taken is not None:
            raise line.error(f"has a field {taken!r}, as the output would", "rename it")
    if len(matched) < len(rows):
        present = set(ids.values())
        absent = [key for key in rows if key not in present]
        raise InputError(
            os.fspath(calibrated),
            f"has the id {list_ids(absent)}, which no line of {source.name} has",
            "pass all sources of the table",
        )
    lines: list[Json] = [
        {**line.line, **matched.get(at, {})} for at, line in enumerate(source.lines)
    ]
    lines += [line.line for line in source.failed]

    def encoded() -> Iterator[bytes]:
        for line in lines:
            yield (json.dumps(line, ensure_ascii=False) + "\n").encode()

    if str(path) == "-":
        write_to_stdout(encoded())
    else:
        with replacing(path, overwrite=overwrite) as temporary, temporary.open("wb") as file:
            file.writelines(encoded())
    added = tuple(next(iter(matched.values())))
    return WrittenAnswers(len(lines), len(lines) - len(matched), len(source.errors), added)


def _read_calibrated(path: str) -> dict[str, Json]:
    """Return what each row of a table that `apply` wrote adds to its line, by identifier."""
    from cordcal.files.scores import read_scores
    from cordcal.files.sources import read_vector

    scores = read_scores(path, role="repaired", input="probabilities")
    names = scores.class_names or tuple(map(str, range(scores.values.shape[1])))
    ids = list(map(str, read_vector(path, "id").tolist()))
    predictions = _read_predictions(path, scores, names)
    flags = _read_flags(path)
    rows: dict[str, Json] = {}
    columns = zip(ids, scores.values.tolist(), predictions, strict=True)
    for row, (key, vector, prediction) in enumerate(columns):
        if key in rows:
            raise InputError(path, f"has the id {key!r} twice", "keep one row per question")
        rows[key] = {
            "calibrated": dict(zip(names, vector, strict=True)),
            "prediction": names[prediction],
            "confidence": vector[prediction],
            **{name: flag[row] for name, flag in flags.items()},
        }
    return rows


def _read_flags(path: str) -> dict[str, list[bool]]:
    """Return which rows to act on, and which of these are audited, if a table says so."""
    from cordcal.files.sources import open_source, parse_labels, read_vector

    source = open_source(path)
    flags = {}
    for name in _FLAGS:
        if name in source.names:
            values = parse_labels(read_vector(path, name))
            if values.dtype.kind != "b":
                raise InputError(
                    path,
                    f"has a column {name!r} that is not true or false",
                    "rename it, or apply a model with a certificate",
                )
            flags[name] = values.tolist()
    return flags


def _read_predictions(path: str, scores: Scores, names: Sequence[str]) -> list[int]:
    """Return the predictions in a table; a rule may predict another class than the likeliest."""
    from cordcal.files.sources import read_vector

    predictions = np.asarray(read_vector(path, "prediction"), dtype=np.float64).astype(int)
    if not ((predictions >= 0) & (predictions < len(names))).all():
        raise InputError(path, "has a prediction that is not a class", "apply the model again")
    return list(map(int, predictions))
