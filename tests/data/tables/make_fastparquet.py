"""Write a table with fastparquet, read in tests/files/test_other_writers.py."""

from pathlib import Path

import fastparquet
import numpy as np
import pandas as pd

ROWS = 24
scores = np.random.default_rng(1).normal(size=(ROWS, 3)).round(6)
frame = pd.DataFrame(scores, columns=["p_ant", "p_bee", "p_cat"])
frame["id"] = [f"{row:03d}" for row in range(ROWS)]
frame["note"] = ['say "hi",\nthere\r', "ä→ß", "", None] * (ROWS // 4)
frame["day"] = pd.date_range("2026-11-01", periods=ROWS, unit="us")
frame["count"] = np.arange(ROWS) + 2**53 + 1
frame["kind"] = pd.Categorical(["a", "b"] * (ROWS // 2))
frame["maybe"] = pd.array([None, 1] * (ROWS // 2), dtype="Int64")
fastparquet.write(
    Path(__file__).with_name("fastparquet.parquet"), frame, row_group_offsets=10, compression="GZIP"
)
