"""The benchmark: every calibrator on every set, on the same rows, and what that says of each."""
