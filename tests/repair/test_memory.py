"""Views with gaps and outputs that overlap inputs: the same rows as from arrays of one's own."""

from __future__ import annotations

import numpy as np
import pytest
from cases import random_pair

from cordcal.repair import CORD

CASE = random_pair(240, 6, noise=2.0)


@pytest.mark.parametrize("preserve", [1, 3])
def test_predictions_may_be_a_column_of_a_table(preserve: int) -> None:
    prediction = CASE.direct.argmax(axis=1)
    column = np.stack([prediction, -prediction, prediction], axis=1)[:, 2]
    assert not column.flags.c_contiguous
    result = CORD(preserve).fit(CASE.original, CASE.direct, prediction=column)
    expected = CORD(preserve).fit(CASE.original, CASE.direct, prediction=prediction)
    assert result.construction_ == expected.construction_
    np.testing.assert_array_equal(
        result.transform(CASE.original, CASE.direct, prediction=column),
        expected.transform(CASE.original, CASE.direct, prediction=prediction),
    )


@pytest.mark.parametrize("which", ["original", "direct"])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_a_dense_output_may_overlap_an_input(which: str, shift: int) -> None:
    images = {
        name: np.moveaxis(getattr(CASE, name).reshape(10, 4, 6, 6), -1, 1)
        for name in ("original", "direct")
    }
    cord = CORD().fit(CASE.original, CASE.direct)
    expected = cord.transform(**images, axis=1)
    room = np.empty((10 + shift, *expected.shape[1:]))
    room[:10] = images[which]
    images[which] = room[:10]
    result = cord.transform(**images, axis=1, out=room[shift:])
    np.testing.assert_array_equal(result, expected)
