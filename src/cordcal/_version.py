"""The version, which pyproject.toml and every package read here; it imports nothing."""

from __future__ import annotations

__version__ = "0.1.0"
