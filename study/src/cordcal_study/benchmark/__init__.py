"""The benchmark: every calibrator on every set, on the same rows, and their comparison."""
