"""What a user passes is checked here once and becomes small typed values."""

from __future__ import annotations
