"""Write the logs of this folder with Inspect (0.3.285) and its mock provider.

python write_logs.py FOLDER
"""

from __future__ import annotations

import math
import sys

import tiktoken
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelOutput,
    TopLogprob,
    get_model,
)
from inspect_ai.scorer import choice
from inspect_ai.solver import multiple_choice

QUESTIONS = {
    "capital": ("Capital of Iceland?", ["Oslo", "Reykjavík", "Paris"], "B", "geography"),
    "sum": ("2 + 2?", ["3", "5", "4"], "C", "arithmetic"),
    "sky": ("Colour of the sky?", ["blue", "green", "red"], "A", "nature"),
}
MASSES = [
    {"A": 0.2, "B": 0.7, "C": 0.05},
    {"A": 0.5, "B": 0.1, "C": 0.3},
    {"A": 0.6, "B": 0.2, "C": 0.1},
]


class Words:
    """Counts words instead of tokens, whose tables are on the network."""

    def encode(self, text: str, **_: object) -> list[str]:
        """Return the words."""
        return text.split()


def reply(masses: dict[str, float]) -> ModelOutput:
    """Return a reply that gives the likeliest letter."""
    given = max(masses, key=lambda name: masses[name])
    top = [
        TopLogprob(token=f" {name}", logprob=math.log(mass), bytes=list(f" {name}".encode()))
        for name, mass in masses.items()
    ]
    words = [
        Logprob(token=text, logprob=-0.01, top_logprobs=[TopLogprob(token=text, logprob=-0.01)])
        for text in ("ANSWER", ":")
    ]
    answer = Logprob(token=f" {given}", logprob=math.log(masses[given]), top_logprobs=top)
    return ModelOutput(
        model="mockllm",
        choices=[
            ChatCompletionChoice(
                message=ChatMessageAssistant(content=f"ANSWER: {given}", source="generate"),
                stop_reason="stop",
                logprobs=Logprobs(content=[*words, answer]),
            )
        ],
    )


tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: Words()
for format in ("eval", "json"):
    samples = [
        Sample(id=key, input=text, choices=options, target=right, metadata={"subject": subject})
        for key, (text, options, right, subject) in QUESTIONS.items()
    ]
    eval(
        Task(
            name="cordcal_choices",
            dataset=MemoryDataset(samples),
            solver=multiple_choice(),
            scorer=choice(),
            config=GenerateConfig(logprobs=True, top_logprobs=5, max_connections=1),
        ),
        model=get_model(
            "mockllm/model", custom_outputs=[reply(masses) for masses in MASSES], memoize=False
        ),
        log_dir=sys.argv[1],
        log_format=format,
        max_samples=1,
        display="none",
    )
