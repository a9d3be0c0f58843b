"""Answers of language models to multiple-choice questions: a table of scores, and back."""

from cordcal.llm.answers import Answers, AnswersSummary, WrittenAnswers, read_answers, write_answers
from cordcal.llm.inspection import inspect_answers

__all__ = [
    "Answers",
    "AnswersSummary",
    "WrittenAnswers",
    "inspect_answers",
    "read_answers",
    "write_answers",
]
