"""Numerics shared by all packages: arrays, expressions, exact sums, row sums and threads."""
