"""Evaluation: one pair of reports, many calibrators, many data sets."""
