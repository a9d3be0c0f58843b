"""Answers of language models to multiple-choice questions: read them as scores, write them back."""

from cordcal.llm.answers import Answers, AnswersSummary, read_answers, write_answers
from cordcal.llm.inspection import inspect_answers

__all__ = ["Answers", "AnswersSummary", "inspect_answers", "read_answers", "write_answers"]
