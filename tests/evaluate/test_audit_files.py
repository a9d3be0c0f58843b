"""Audits and repairs of files: the numbers of the same rows in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax

import cordcal
from cordcal.cli import main
from cordcal.evaluate.audit_files import audit_files, construct_from_files
from cordcal.evaluate.baseline import Fingerprint
from cordcal.evaluate.pictures import pictures_of
from cordcal.files import open_scores
from cordcal.metrics.base import ProbabilityMatrix
from cordcal.metrics.registry import measure_probabilities
from cordcal.preserving import Outputs
from errors import refused

ROWS, CLASSES = 3000, 6


@pytest.fixture
def pair(tmp_path: Path, batch_bytes: Callable[[int], None]) -> tuple[np.ndarray, np.ndarray]:
    batch_bytes(256 * CLASSES * 8)
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=ROWS)
    logits = 2.0 * np.eye(CLASSES)[labels] + rng.normal(size=(ROWS, CLASSES))
    direct = cordcal.calibrators.make("irova").fit(logits, labels).predict_proba(logits)
    np.save(tmp_path / "z.npy", logits)
    np.save(tmp_path / "q.npy", direct)
    np.save(tmp_path / "y.npy", labels)
    return logits, direct


def opened(folder: Path) -> tuple[object, object]:
    first = open_scores(folder / "z.npy", labels=str(folder / "y.npy"), input="logits")
    return first, open_scores(folder / "q.npy", input="probabilities")


def test_clusters_count_as_one_row(
    tmp_path: Path, pair: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    logits, direct = pair
    labels = np.load(tmp_path / "y.npy")
    original = softmax(logits, axis=1)
    rows = np.repeat(np.arange(300), 8)
    arguments = (original[rows], direct[rows], labels[rows])
    once = cordcal.audit(original[:300], direct[:300], labels[:300], resamples=200)
    alone = cordcal.audit(*arguments, resamples=200)
    clustered = cordcal.audit(*arguments, clusters=rows, resamples=200)

    def width(audit: cordcal.Audit) -> float:
        nll = next(entry for entry in audit.measures if entry.measure == "nll")
        assert nll.low is not None
        assert nll.high is not None
        return nll.high - nll.low

    assert width(alone) < 0.6 * width(once)
    assert_allclose(width(clustered), width(once), rtol=0.3)
    bounds = [
        {rate.threshold: rate.bound for rate in audit.certified} for audit in (alone, clustered)
    ]
    assert all(bounds[1][threshold] > bound for threshold, bound in bounds[0].items())

    # A file whose first row is skipped: clusters are those of the rows that are left.
    original[0] = np.nan
    np.savez(tmp_path / "p.npz", probs=original[rows], labels=labels[rows], user=rows)
    np.save(tmp_path / "q.npy", direct[rows])
    files = ("--original", str(tmp_path / "p.npz"), "--direct", str(tmp_path / "q.npy"))
    options = ("--on-error", "skip", "--json", "--cluster-column", "user")
    assert main(("audit", *files, *options)) == 0
    result = json.loads(capsys.readouterr().out)
    rest = rows[8:]
    expected = cordcal.audit(original[rest], direct[rest], labels[rest], clusters=rest)
    assert result["certified"] == [rate.to_dict() for rate in expected.certified]


def test_the_audit_is_that_in_memory(tmp_path: Path, pair: tuple[np.ndarray, np.ndarray]) -> None:
    logits, direct = pair
    labels = np.load(tmp_path / "y.npy")
    expected = cordcal.audit(
        softmax(logits, axis=1),
        direct,
        labels,
        prediction=logits.argmax(axis=1),
        resamples=20,
    ).to_dict()
    audited = audit_files(*opened(tmp_path), resamples=20)  # type: ignore[arg-type]
    result = audited.audit.to_dict()
    assert not audited.skipped
    columns = (direct, logits.argmax(axis=1), labels, np.full(ROWS, -1))  # no weights
    assert audited.fingerprint == str(Fingerprint.of(softmax(logits, axis=1), *columns))
    for name in (
        "n",
        "changes",
        "topk_changes",
        "by_class",
        "by_confidence",
        "rows",
        "eta",
        "warnings",
    ):
        assert result[name] == expected[name], name
    for one, other in zip(result["measures"], expected["measures"], strict=True):
        for key in ("original", "direct", "repaired"):
            assert one[key] == pytest.approx(other[key], abs=1e-12)
    for name, bins in result["reliability"].items():
        assert bins["count"] == expected["reliability"][name]["count"]


def test_the_pictures_are_those_in_memory(
    tmp_path: Path, pair: tuple[np.ndarray, np.ndarray]
) -> None:
    logits, direct = pair
    labels = np.load(tmp_path / "y.npy")
    original, prediction = softmax(logits, axis=1), logits.argmax(axis=1)
    repaired = (
        cordcal.CORD()
        .fit(original, direct, prediction=prediction)
        .transform(original, direct, prediction=prediction)
    )
    audited = audit_files(*opened(tmp_path), resamples=2)  # type: ignore[arg-type]
    names = [str(index) for index in range(direct.shape[1])]
    reports = {"original": original, "direct": direct, "repaired": repaired}
    measured = {
        name: measure_probabilities(ProbabilityMatrix.from_array(values, name), labels, None)
        for name, values in reports.items()
    }
    expected = pictures_of(
        original, Outputs(direct, repaired, prediction), names, measured, labels=labels
    ).to_dict()
    result = audited.pictures.to_dict()
    for part in ("histogram", "moves", "groups", "rows"):
        assert result[part] == expected[part]
    # Sums over blocks round elsewhere.
    for part in ("reliability", "selection", "classes"):
        assert_allclose(flat(result[part]), flat(expected[part]), rtol=1e-9, atol=1e-12)


def flat(value: object) -> list[float]:
    """Return the numbers of nested results, in their order."""
    if isinstance(value, dict):
        return [number for entry in value.values() for number in flat(entry)]
    if isinstance(value, list | tuple):
        return [number for entry in value for number in flat(entry)]
    return [float(value)] if isinstance(value, int | float) else []


def test_a_repair_fitted_on_these_rows_is_noticed(
    tmp_path: Path, pair: tuple[np.ndarray, np.ndarray]
) -> None:
    first, second = opened(tmp_path)
    cord = cordcal.CORD()
    construct_from_files(cord, first, second)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="the rows that repair was fitted on"):
        audit_files(first, second, repair=cord, resamples=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("preserve", ["1", "3"])
def test_the_repair_is_that_in_memory(
    tmp_path: Path, pair: tuple[np.ndarray, np.ndarray], preserve: str
) -> None:
    logits, direct = pair
    files = ["--original", tmp_path / "z.npy", "--direct", tmp_path / "q.npy"]
    output = tmp_path / "cord.safetensors"
    options = ["--input", "logits", "--preserve", preserve, "--output", output]
    assert main(["fit", *map(str, files), *map(str, options)]) == 0
    expected = cordcal.CORD(int(preserve)).fit(
        softmax(logits, axis=1), direct, prediction=logits.argmax(axis=1)
    )
    assert cordcal.load(output).construction_ == expected.construction_


def test_bad_rows(
    tmp_path: Path, pair: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture
) -> None:
    _, direct = pair
    direct[1234] *= 0.5
    direct[2000, 1] = np.nan
    np.save(tmp_path / "q.npy", direct)
    first, second = opened(tmp_path)
    with refused(f"{tmp_path / 'q.npy'} (array)", rows=[1234], naming="0.5"):
        audit_files(first, second)  # type: ignore[arg-type]
    with refused(f"{tmp_path / 'q.npy'} (array)", rows=[1234], naming="0.5"):
        construct_from_files(cordcal.CORD(), first, second)  # type: ignore[arg-type]
    audited = audit_files(first, second, on_error="skip", resamples=2)  # type: ignore[arg-type]
    result = audited.audit
    assert audited.skipped == {"does not sum to 1": 1, "contains NaN": 1}
    assert result.n == ROWS - 2
    before = first.batches().__next__().values  # type: ignore[attr-defined]
    assert len(before) < ROWS
    for row in result.rows:  # numbered as in the file
        assert np.argmax(direct[row.row]) == int(row.direct_prediction)

    arguments = ["audit", "--original", str(tmp_path / "z.npy"), "--direct"]
    arguments += [str(tmp_path / "q.npy"), "--input", "logits", "--on-error"]
    page = tmp_path / "audit.html"
    assert main([*arguments, "skip", "--report", str(page)]) == 0
    assert "skipped 1 row: does not sum to 1" in capsys.readouterr().err
    assert f"{ROWS - 2:,}" in page.read_text()
    assert main([*arguments, "stop"]) == 2
    assert "row 1234 sums to 0.5" in capsys.readouterr().err


def test_files_of_different_lengths(
    tmp_path: Path, pair: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture
) -> None:
    np.save(tmp_path / "q.npy", pair[1][:-1])
    arguments = ["--original", str(tmp_path / "z.npy"), "--direct", str(tmp_path / "q.npy")]
    for command in (["audit"], ["fit", "--output", str(tmp_path / "c.safetensors")]):
        assert main([*command, *arguments]) == 2
        assert "both must hold the same rows and classes" in capsys.readouterr().err
    assert not (tmp_path / "c.safetensors").exists()
