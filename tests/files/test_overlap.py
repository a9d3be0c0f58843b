"""Work on several threads: its results in order, and its warnings under the user's filters."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.files import open_scores
from cordcal.files.apply import ApplyOptions, ModelApplication, apply_model
from cordcal.files.loop import map_overlapped
from internals import warn


def odd(item: int) -> int:
    warn(f"row {item} is odd")
    return item


def test_each_warning_comes_once_and_in_the_callers_thread() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert list(map_overlapped(range(50), odd, workers=4)) == list(range(50))
    assert [str(warning.message) for warning in caught] == ["row 0 is odd"]
    assert caught[0].filename == __file__


def test_filters_of_the_user_hold() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = map_overlapped(range(50), odd, workers=4)
        with pytest.raises(UserWarning, match="is odd"):
            next(results)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="row .* is odd")
        assert len(list(map_overlapped(range(50), odd, workers=4))) == 50
    assert caught == []


def test_what_the_reader_warns_of() -> None:
    with pytest.warns(UserWarning, match="is odd"):
        assert list(map_overlapped(map(odd, range(5)), abs)) == list(range(5))


def test_filters_and_hooks_of_the_process_are_not_touched() -> None:
    """Other threads warn while the work goes on: nothing of theirs is held back."""
    started, ended = threading.Event(), threading.Event()

    def work(item: int) -> int:
        started.set()
        assert ended.wait(10)
        return odd(item)

    def consume() -> None:
        list(map_overlapped(range(2), work, workers=2))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = warnings.showwarning, list(warnings.filters)
        thread = threading.Thread(target=consume)
        thread.start()
        assert started.wait(10)
        assert (warnings.showwarning, list(warnings.filters)) == state
        warnings.warn("of somebody else", DeprecationWarning, stacklevel=1)
        ended.set()
        thread.join()
    assert [str(warning.message) for warning in caught] == ["of somebody else", "row 0 is odd"]


@pytest.fixture
def inexact(tmp_path: Path, batch_bytes: Callable[[int], None]) -> ModelApplication:
    """Reports of many batches whose sums are off a little."""
    batch_bytes(4096)
    rng = np.random.default_rng(0)
    for name in ("p", "q"):
        report = rng.dirichlet(np.ones(4), 2000)
        np.save(tmp_path / f"{name}.npy", report * (1 + 1e-4 * rng.random((2000, 1))))
    p, q = (np.load(tmp_path / f"{name}.npy") for name in ("p", "q"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cord = cordcal.CORD().fit(p, q)
    files = [open_scores(tmp_path / f"{n}.npy", input="probabilities") for n in ("p", "q")]
    return ModelApplication(cord, files, ApplyOptions())


def test_apply_warns_once_a_report(inexact: ModelApplication, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert apply_model(inexact, tmp_path / "out.csv").rows == 2000
    assert sorted(str(warning.message).split(":")[0] for warning in caught) == [
        "direct",
        "original",
    ]


def test_a_warning_made_an_error_stops_apply(inexact: ModelApplication, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="sum to one"):
            apply_model(inexact, tmp_path / "out.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.npy", "q.npy"]


def test_a_warning_that_is_ignored(inexact: ModelApplication, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        apply_model(inexact, tmp_path / "out.csv")
    assert caught == []
