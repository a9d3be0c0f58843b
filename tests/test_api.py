"""The public surface is frozen: a change to it is made on purpose, and shows in a diff."""

from __future__ import annotations

import pytest

import cordcal
from surface import FROZEN, surface


def test_names_of_the_package() -> None:
    assert dir(cordcal) == sorted(cordcal.__all__)


def test_surface_is_the_frozen_one() -> None:
    for extra in ("onnx", "torch"):
        pytest.importorskip(extra)
    frozen = FROZEN.read_text("utf-8").splitlines()
    assert list(surface()) == frozen, "if this is meant, run: python tests/surface.py"
