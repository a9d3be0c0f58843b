"""The code in Markdown pages: find it, and run it as the page's reader would."""

from __future__ import annotations

import doctest
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language, in order."""
    return [code for result, code in _FENCE.findall(path.read_text("utf-8")) if result == language]


def run_examples(path: Path, names: Mapping[str, Any] | None = None) -> int:
    """Run a page's ``>>>`` examples in one namespace; return how many there were."""
    text = "\n".join(blocks(path, "python"))
    test = doctest.DocTestParser().get_doctest(text, dict(names or {}), path.name, str(path), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=report.append)
    assert not result.failed, "".join(report)
    return result.attempted
