"""Exact sums and row sums: the numerics that repair and measures both stand on."""
