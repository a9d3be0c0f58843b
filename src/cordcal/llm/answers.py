"""Answers as scores and labels: read them, match two files of them, write repaired ones."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Record
from cordcal.files.disk import replacing, write_to_stdout
from cordcal.llm._questions import (
    MIN_PROBABILITY,
    LabelUse,
    Missing,
    Normalize,
    Question,
    ReadOptions,
    read_question,
)
from cordcal.llm.layouts import (
    ID_FIELDS,
    LETTERS,
    METRICS,
    TOKEN_FORMS,
    Json,
    JsonLines,
    TokenForm,
    as_number,
    find_field,
    find_id,
    identifies,
    is_harness_sample,
    join_labels,
    list_ids,
    option_letters,
    read_json_lines,
    unique_ids,
)

OTHER = "other"


@dataclass(frozen=True)
class AnswersSummary(Record):
    """What a file of answers contains, and what reading it had to decide.

    Attributes
    ----------
    n : int
        Questions.
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

    def __str__(self) -> str:
        parts = [f"{self.n:,} questions"]
        if self.n_incomplete:
            parts.append(
                f"{self.n_incomplete:,} do not list every option (unlisted probability: "
                f"{100 * self.mean_unlisted:.2f} % on average, at most "
                f"{100 * self.max_unlisted:.2f} %)"
            )
        if self.mean_other_tokens:
            parts.append(f"{100 * self.mean_other_tokens:.2f} % is on tokens that are not options")
        for count, description in (
            (self.n_merged, "with several spellings of an option added up"),
            (self.n_rescaled, "with probabilities that do not sum to one, rescaled"),
            (self.n_tied, "with a tie, decided for the earlier option"),
            (self.n_contradicting, "whose own metric disagrees with what was read: check labels"),
        ):
            if count:
                parts.append(f"{count:,} {description}")
        if 0 < self.n_unlabelled < self.n:  # a file without any labels is nothing unusual
            parts.append(f"{self.n_unlabelled:,} without the right option")
        if self.unanswered:
            parts.append(f"no answer for {list_ids(self.unanswered)} of the labels file")
        return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class Answers:
    """Questions with their options' log-probabilities, ready for a calibrator.

    Attributes
    ----------
    path : str
        The file, as messages name it.
    scores : ndarray of shape (n, K)
        Log-probabilities (``input="logits"``); −inf where a question has fewer options.
    labels : ndarray of int or None
        The right options, if every line has one.
    class_names : tuple of str
        The columns: the options if all questions share them, otherwise letters; then ``other``
        if that was requested.
    options : tuple of tuple of str
        The options of each question.
    has_other : bool
        Whether the last column is everything that is not an option.
    summary : AnswersSummary
        What the file contains, and what reading it had to decide.
    lines : tuple of mapping
        The lines as they were read.
    rows : ndarray of int
        The number of each question in the file, from 0; empty lines do not count.
    skipped : mapping of int to str
        The numbers of the lines that were skipped, and why.
    """

    path: str
    scores: npt.NDArray[np.float64]
    labels: npt.NDArray[np.intp] | None
    class_names: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    has_other: bool
    summary: AnswersSummary
    lines: tuple[Json, ...]
    rows: npt.NDArray[np.intp]
    skipped: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.options)

    def select(self, questions: npt.NDArray[np.intp]) -> Answers:
        """Return some questions by position, in this order; the summary stays that of all."""
        options = tuple(self.options[index] for index in questions)
        names = _column_names(options)
        columns = [*range(len(names)), -1] if self.has_other else [*range(len(names))]
        return replace(
            self,
            scores=self.scores[questions][:, columns],
            labels=None if self.labels is None else self.labels[questions],
            class_names=(*names, OTHER) if self.has_other else names,
            options=options,
            lines=tuple(self.lines[index] for index in questions),
            rows=self.rows[questions],
        )


def read_answers(
    path: str | os.PathLike[str],
    *,
    options: str | Sequence[str] | None = None,
    labels: str | os.PathLike[str] | Mapping[str, object] | None = None,
    join: str | None = None,
    labels_column: str | None = None,
    label_use: LabelUse = "optional",
    key: str | None = None,
    missing: Missing = "even",
    variants: TokenForm | Literal["loose", "spaces", "exact"] = "loose",
    normalize: Normalize = "none",
    on_error: Literal["stop", "skip"] = "stop",
) -> Answers:
    """Read a language model's answers from a JSONL file.

    Every line is one question.  Supported are replies of chat and completion APIs with their top
    log-probabilities, also as lines of a Batch API; samples of lm-evaluation-harness
    (``--log_samples``); mappings of options to log-probabilities (``"logprobs"``); and stated
    probability vectors (``"probabilities"``).  The question's options (``"options"`` or
    ``"choices"``) and its right answer may be on the same line.

    Parameters
    ----------
    path : path or "-"
        The file; ``-`` reads stdin.
    options : str or sequence of str, optional
        The options of all questions, if the lines do not list them: ``"ABCD"`` or
        ``"yes,no"``.
    labels : path or mapping, optional
        A JSONL or CSV file with the right answer of each identifier, or a mapping of
        identifiers to answers.  The order does not matter.
    join : str, optional
        The field of the identifier in both files.  By default the first of ``custom_id``,
        ``doc_id``, ``question_id`` and ``id`` that both have.
    labels_column : str, optional
        The field of the right answer: an index from 0, a letter, or an option's text.  By
        default detected by name.
    label_use : {"optional", "required", "ignored"}
        Whether lines may, must or need not have a right answer; ``"ignored"`` does not read it.
    key : str, optional
        The field of a probability vector, such as ``"repaired"`` in files that `write_answers`
        wrote.  By default the fields of APIs.
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
        lm-evaluation-harness, ``"characters"`` is ``acc_norm``.  Probabilities under ``key`` are
        never divided.
    on_error : {"stop", "skip"}
        What to do with invalid lines: stop with the number of the first, or skip them.

    Returns
    -------
    answers : Answers
        Scores, labels, names, and a summary.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "answers.jsonl"
    >>> _ = path.write_text('''{"logprobs": {"B": -0.2, "A": -1.8}, "answer": "B"}
    ... {"logprobs": {"A": -0.4, "B": -1.2}, "answer": "B"}''')
    >>> answers = read_answers(path)
    >>> answers.class_names, answers.labels.tolist()
    (('A', 'B'), [1, 1])
    >>> answers.scores
    array([[-1.8, -0.2],
           [-0.4, -1.2]])
    >>> folder.cleanup()
    """
    for name, value, choices in (
        ("missing", missing, get_args(Missing)),
        ("normalize", normalize, get_args(Normalize)),
        ("label_use", label_use, get_args(LabelUse)),
        ("on_error", on_error, ("stop", "skip")),
    ):
        if value not in choices:
            raise InputError(name, f"is {value!r}", f"pass one of {', '.join(choices)}")
    form = TOKEN_FORMS.get(variants) if isinstance(variants, str) else variants
    if form is None:
        raise InputError(
            "variants", f"is {variants!r}", f"pass one of {', '.join(TOKEN_FORMS)}, or a function"
        )
    named_options = None if options is None else parse_options(options)
    file = read_json_lines(path)
    skipped = dict(file.errors)
    gold = None if labels is None else join_labels(file, labels, join)
    if gold is not None:
        skipped |= gold.errors
    read = ReadOptions(
        path=file.path,
        options=named_options,
        labels_column=labels_column,
        key=key,
        missing=missing,
        form=form,
        normalize=normalize,
        label_use=label_use,
        labels_path=None if gold is None else gold.path,
    )
    questions: dict[int, Question] = {}
    for row, line in file.lines.items():
        if row in skipped:
            continue
        try:
            gold_line = None if gold is None else gold.lines[row]
            questions[row] = read_question(line, row, read, gold_line)
        except InputError as error:
            if not error.rows.size:
                raise
            skipped[row] = error
    if skipped and on_error == "stop":
        raise skipped[min(skipped)]
    if not questions:
        first = skipped[min(skipped)]
        reason = first.reason if first.detail is None else first.detail
        raise InputError(
            file.path, f"has no valid line: the first {reason}", first.hint, option=first.option
        )
    answers = _collect(file, questions, skipped, has_other=missing == "other")
    unanswered = () if gold is None else gold.unanswered
    return replace(answers, summary=replace(answers.summary, unanswered=unanswered))


def read_field(path: str | os.PathLike[str], name: str) -> list[object]:
    """Return a field of every line, or of the harness's document in it; None if it has none."""
    file = read_json_lines(path)
    rows = range(len(file.lines) + len(file.errors))
    return [find_field(file.lines[row], name) if row in file.lines else None for row in rows]


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
    file: JsonLines,
    questions: Mapping[int, Question],
    skipped: Mapping[int, InputError],
    *,
    has_other: bool,
) -> Answers:
    """Put the questions together, by their numbers in the file."""
    options = tuple(question.options for question in questions.values())
    names = _column_names(options)
    scores = np.full((len(questions), len(names)), -math.inf)
    for index, question in enumerate(questions.values()):
        scores[index, : len(question.scores)] = question.scores
    if has_other:
        rest = [question.unlisted + question.other_tokens for question in questions.values()]
        scores = np.column_stack([scores, np.log(np.maximum(rest, MIN_PROBABILITY))])
    labels = [question.label for question in questions.values()]
    lines = tuple(file.lines[row] for row in questions)
    return Answers(
        path=file.path,
        scores=scores,
        labels=None if None in labels else np.array(labels, dtype=np.intp),
        class_names=(*names, OTHER) if has_other else names,
        options=options,
        has_other=has_other,
        summary=_summarize(list(questions.values()), scores, lines),
        lines=lines,
        rows=np.array(list(questions), dtype=np.intp),
        skipped={row: error.reason for row, error in sorted(skipped.items())},
    )


def _column_names(options: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of the columns: the options if all questions share them, or letters."""
    first = options[0]
    if all(question == first for question in options) and len(set(first)) == len(first):
        return first
    return option_letters(max(map(len, options)))


def _summarize(
    questions: Sequence[Question], scores: npt.NDArray[np.float64], lines: Sequence[Json]
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
    return AnswersSummary(
        n=count,
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
        unanswered=(),
    )


@dataclass(frozen=True)
class QuestionMatch:
    """Which questions two files share.

    Attributes
    ----------
    by : str or None
        The field that identifies questions; None if only their position does.
    first, second : ndarray of int
        Positions of the shared questions in either file, in the order of the second.
    only_first, only_second : tuple of str
        The identifiers of the other questions.
    """

    by: str | None
    first: npt.NDArray[np.intp]
    second: npt.NDArray[np.intp]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    def error(self, path: str, other: str, ids: tuple[str, ...]) -> InputError:
        """Return the error that one file has questions that the other has not."""
        return InputError(
            path,
            f"has {self.by or 'row'} {list_ids(ids)}, which {other} does not have, or only in an "
            f"invalid line",
            "pass two files of the same questions",
        )


def match_questions(first: Answers, second: Answers, *, join: str | None = None) -> QuestionMatch:
    """Match the questions of two files: by identifier, by the field ``row``, or by position.

    Parameters
    ----------
    first, second : Answers
        Two files of answers to the same questions.  If ``second`` was written with skipped lines,
        its field ``row`` is the number of each line in ``first``.
    join : str, optional
        The field of the identifier.  By default ``custom_id``, ``doc_id``, ``question_id`` or
        ``id`` if it is there in all lines and different in each.

    Returns
    -------
    match : QuestionMatch
        The shared questions.
    """
    if join is not None:
        files = (
            JsonLines(
                answers.path, dict(zip(answers.rows.tolist(), answers.lines, strict=True)), {}
            )
            for answers in (first, second)
        )
        for file in files:
            unique_ids(file, join)
        by: str | None = join
    else:
        both = (first.lines, second.lines)
        shared_fields = (
            field for field in ID_FIELDS if all(identifies(field, lines) for lines in both)
        )
        by = next(shared_fields, None)
    if by is not None:
        keys = [[str(find_id(line, by)) for line in answers.lines] for answers in (first, second)]
    elif all(isinstance(line.get("row"), int) for line in second.lines):
        by = "row"
        keys = [
            [str(row) for row in first.rows.tolist()],
            [str(line["row"]) for line in second.lines],
        ]
    else:
        totals = [len(answers) + len(answers.skipped) for answers in (first, second)]
        if totals[0] != totals[1]:
            raise InputError(
                first.path,
                f"has {totals[0]:,} lines but {second.path} has {totals[1]:,}",
                "both must have the same questions; {option} matches them by a field",
                option=("join", "id"),
            )
        keys = [list(map(str, answers.rows.tolist())) for answers in (first, second)]
    positions = {key: index for index, key in enumerate(keys[0])}
    shared = [(positions[key], index) for index, key in enumerate(keys[1]) if key in positions]
    if not shared:
        raise InputError(
            first.path,
            f"and {second.path} have no valid line in common",
            "pass two files of the same questions",
        )
    pairs = np.array(shared, dtype=np.intp)
    in_second = set(keys[1])
    return QuestionMatch(
        by=by,
        first=pairs[:, 0],
        second=pairs[:, 1],
        only_first=tuple(key for key in keys[0] if key not in in_second),
        only_second=tuple(key for key in keys[1] if key not in positions),
    )


# The sums of float32 probabilities are about this close to one.
_SUM_TOLERANCE = 1e-6
Columns = Mapping[str, Sequence[object]]


def write_answers(
    path: str | os.PathLike[str],
    answers: Answers,
    probabilities: Mapping[str, npt.NDArray[np.floating]],
    *,
    extra: Mapping[str, npt.ArrayLike | Sequence[object]] | None = None,
    overwrite: bool = True,
) -> None:
    """Write the lines as they were read, with probabilities of their options added.

    Parameters
    ----------
    path : path or "-"
        A JSONL file; ``-`` is stdout.
    answers : Answers
        The result of `read_answers`.
    probabilities : mapping of str to ndarray of shape (n, K)
        The fields to add to each line, such as
        ``{"repaired": model.predict_proba(answers.scores)}``: a mapping of the question's own
        options to probabilities.  The probability of columns that a question does not have is
        shared among its own options in proportion.
    extra : mapping of str to sequence, optional
        More fields to add, one value per line.
    overwrite : bool
        Whether an existing file may be replaced.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cordcal.llm import read_answers
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "answers.jsonl"
    >>> _ = path.write_text('{"id": "q1", "logprobs": {"A": -0.4, "B": -1.2}}')
    >>> answers = read_answers(path)
    >>> write_answers(path, answers, {"repaired": np.array([[0.75, 0.25]])})
    >>> print(path.read_text())
    {"id": "q1", "logprobs": {"A": -0.4, "B": -1.2}, "repaired": {"A": 0.75, "B": 0.25}}
    >>> folder.cleanup()
    """
    for name, matrix in probabilities.items():
        if np.shape(matrix) != answers.scores.shape:
            raise InputError(
                name,
                f"has shape {np.shape(matrix)} but the answers have {answers.scores.shape}",
                "pass probabilities of these answers",
            )
    columns = {name: np.asarray(values).tolist() for name, values in (extra or {}).items()}
    for row, line in zip(answers.rows.tolist(), answers.lines, strict=True):
        for name in columns:
            if name in line:
                raise InputError(
                    answers.path,
                    f"has a field {name!r}, as the output would",
                    "rename it",
                    rows=[row],
                )
    if str(path) == "-":
        write_to_stdout(line.encode() for line in _format_lines(answers, probabilities, columns))
        return
    with (
        replacing(path, overwrite=overwrite) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.writelines(_format_lines(answers, probabilities, columns))


def _format_lines(
    answers: Answers,
    probabilities: Mapping[str, npt.NDArray[np.floating]],
    columns: Columns,
) -> Iterator[str]:
    for index, line in enumerate(answers.lines):
        by_option = {
            name: _by_option(answers, index, matrix[index])
            for name, matrix in probabilities.items()
        }
        values = {name: column[index] for name, column in columns.items()}
        yield json.dumps({**line, **by_option, **values}, ensure_ascii=False) + "\n"


def _by_option(answers: Answers, index: int, vector: npt.NDArray[np.floating]) -> dict[str, float]:
    options: Sequence[str] = answers.options[index]
    if len(set(options)) < len(options):  # letters distinguish options with the same text
        options = option_letters(len(options))
    names = [*options, OTHER] if answers.has_other else options
    columns = [*range(len(options)), -1][: len(names)]
    return dict(zip(names, _rescale(vector[columns]).tolist(), strict=True))


def _rescale(vector: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return a question's part of a vector as probabilities, with the same largest entry.

    Some calibrators give columns that a question does not have a little probability.
    """
    part = vector.astype(np.float64)
    total = math.fsum(part)
    if abs(total - 1.0) <= _SUM_TOLERANCE or total <= 0.0:
        return part
    top = int(part.argmax())
    part /= total
    if np.count_nonzero(part == part[top]) > np.count_nonzero(vector == vector[top]):
        part[top] = np.nextafter(part[top], 1.0)  # the division rounded two entries to one value
    return part
