"""Files whose batches are cut into blocks of rows: the numbers of the same rows in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.files import open_scores
from cordcal.files.apply import ApplyOptions, ModelApplication, apply_model

ROWS, CLASSES = 20_000, 20  # one batch of 1.6 MB: four blocks, and two slices of Parquet


@pytest.mark.parametrize("name", ["s.parquet", "s.npy"])
def test_blocks_of_a_batch_and_rows_that_are_skipped(write: Callable[..., Path], name: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=ROWS)
    logits = (2.0 * np.eye(CLASSES)[labels] + rng.normal(size=(ROWS, CLASSES))).astype(np.float32)
    model = cordcal.PreservingCalibrator("vs").fit(logits[:2000], labels[:2000])
    expected = model.predict_proba(logits)
    bad = [5, 12_345, ROWS - 1]
    logits[bad, 3] = np.nan
    path = write(name, logits, group=ROWS)
    output = path.with_name("out.npz")
    scores = open_scores(path)
    assert [len(batch.values) for batch in scores] == [ROWS]
    job = ModelApplication(model, [scores], ApplyOptions(on_error="skip"))
    done = apply_model(job, output)
    assert (done.rows, sum(done.skipped.values())) == (ROWS - 3, 3)
    with np.load(output) as written:
        np.testing.assert_array_equal(written["row"], np.delete(np.arange(ROWS), bad))
        np.testing.assert_array_equal(written["repaired"], np.delete(expected, bad, axis=0))
