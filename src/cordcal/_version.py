"""The version, below every floor: pyproject.toml and all rooms read it here."""

from __future__ import annotations

__version__ = "0.1.0"
