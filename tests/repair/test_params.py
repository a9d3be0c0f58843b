"""Parameters by name: scikit-learn's tools work on repairs that do not import it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from cordcal.repair import CORD


@pytest.mark.parametrize(
    "repair",
    [
        CORD(),
        CORD("ranking", threads=2),
    ],
)
def test_a_clone_has_the_parameters_and_no_fit(repair: CORD) -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 50))
    copy = clone(repair.fit(*rows))
    assert copy is not repair
    assert copy.get_params() == repair.get_params()
    assert not hasattr(copy, "eta_")


def test_a_parameter_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense is not a parameter of CORD; it has: preserve"):
        CORD().set_params(nonsense=1)
