"""Validate what users pass: scores, probabilities, labels, names and weights."""

from __future__ import annotations
