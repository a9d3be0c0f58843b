"""Evaluation: audit, compare, check and monitor calibrators."""
