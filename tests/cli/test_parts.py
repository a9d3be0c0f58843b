"""Folders of parts, in and out, here and on a cluster: the rows of one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import cordcal

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("ant", "bee", "wasp")
EDGES = (0, 150, 150, 400)  # the second part has no rows


def write(folder: Path, matrix: np.ndarray, labels: np.ndarray) -> None:
    """Write a table whole, and in parts as a cluster would."""
    columns = {name: matrix[:, at] for at, name in enumerate(NAMES)}
    words = [NAMES[label] for label in labels]
    table = arrow.table({"id": range(len(labels)), **columns, "label": words})
    parquet.write_table(table, folder.with_suffix(".parquet"), row_group_size=90)
    (folder / "day=2").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    for at, name in enumerate(("a.parquet", "b.parquet", "day=2/a.parquet")):
        rows = table.slice(EDGES[at], EDGES[at + 1] - EDGES[at])
        parquet.write_table(rows, folder / name, row_group_size=90)


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray, call) -> Path:
    write(tmp_path / "s", logits, labels)
    write(tmp_path / "p", softmax(logits, axis=1), labels)
    write(tmp_path / "q", softmax(0.5 * logits + [0.0, 0.9, -0.4], axis=1), labels)
    fit = ("fit", "s.parquet", "--calibrator", "vs", "--output", "m.safetensors")
    assert call(*fit)[0] == 0
    assert call("fit", "--original", "p", "--direct", "q", "--output", "c.safetensors")[0] == 0
    return tmp_path


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="a cluster needs Dask")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


def table_of(path: Path) -> object:
    """Return a file, or what a reader of a folder sees."""
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    return arrow.concat_tables([parquet.read_table(file, partitioning=None) for file in files])


JOBS = {
    "calibrator": ("m.safetensors", "s"),
    "repair": ("c.safetensors", "--original", "p", "--direct", "q"),
}


@pytest.mark.parametrize("job", list(JOBS))
def test_parts_in_and_out(call, folder: Path, job: str) -> None:
    whole = [
        argument + ".parquet" if argument in ("s", "p", "q") else argument for argument in JOBS[job]
    ]
    assert call("apply", *whole, "--output", "whole.parquet")[0] == 0
    code, printed, errors = call("apply", *JOBS[job], "--output", "out", "--json")
    assert code == 0, errors
    assert json.loads(printed)["rows"] == 400
    assert table_of(folder / "out").equals(table_of(folder / "whole.parquet"))
    files = sorted(str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*.*"))
    assert files == ["_cordcal.jsonl", "a.parquet", "b.parquet", "day=2/a.parquet"]
    assert call("apply", *JOBS[job], "--output", "one.parquet")[0] == 0
    one = table_of(folder / "one.parquet")
    assert one["day"].to_pylist() == [None] * 150 + ["2"] * 250
    assert one.drop_columns(["day"]).equals(table_of(folder / "whole.parquet"))


@pytest.mark.parametrize("job", list(JOBS))
def test_on_a_cluster(call, folder: Path, scheduler: str, job: str) -> None:
    there = ("--scheduler", scheduler)
    assert call("apply", *JOBS[job], "--output", "here")[0] == 0
    code, _, errors = call("apply", *JOBS[job], "--output", "there", *there)
    assert code == 0, errors
    for name in ("a.parquet", "day=2/a.parquet"):
        assert (folder / "here" / name).read_bytes() == (folder / "there" / name).read_bytes()


@pytest.mark.parametrize("model", [(), ("--model", "c.safetensors")])
def test_an_audit_on_a_cluster(call, folder: Path, scheduler: str, model: tuple) -> None:
    weights = ("--weights", "id")
    pair = ("--original", "p", "--direct", "q", "--json", *model, *weights)
    whole = ("--original", "p.parquet", "--direct", "q.parquet", "--json", *model, *weights)
    result = [
        json.loads(call("audit", *arguments)[1])
        for arguments in (whole, pair, (*pair, "--scheduler", scheduler))
    ]
    assert result[0]["changes"]["n_changed"] > 0
    for output in result[1:]:
        assert output["changes"] == result[0]["changes"]
        for one, other in zip(output["measures"], result[0]["measures"], strict=True):
            assert one["measure"] == other["measure"]
            for report in ("original", "direct", "repaired"):
                # Blocks of other lengths are added up in another order.
                assert one[report] == pytest.approx(other[report], rel=1e-12)


def test_an_audit_on_a_cluster_keeps_clusters_of_rows_together(
    call, folder: Path, scheduler: str
) -> None:
    for name in ("p", "q"):
        for file in (folder / name).rglob("*.parquet"):
            table = parquet.read_table(file, partitioning=None)
            users = arrow.array([value % 40 for value in table["id"].to_pylist()])
            parquet.write_table(table.append_column("user", users), file)
    pair = ("--original", "p", "--direct", "q", "--json")
    apart, local, there = (
        json.loads(call("audit", *pair, *more)[1])["measures"]
        for more in (
            (),
            ("--cluster-column", "user"),
            ("--cluster-column", "user", "--scheduler", scheduler),
        )
    )
    for one, same, other in zip(there, local, apart, strict=True):
        assert one["low"] == (None if same["low"] is None else pytest.approx(same["low"]))
        assert one["low"] is None or one["low"] != other["low"] or one["measure"] == "accuracy"


def test_labels_and_weights_of_their_own_on_a_cluster(
    call, folder: Path, scheduler: str, labels: np.ndarray
) -> None:
    rng = np.random.default_rng(3)
    other = [NAMES[label] for label in rng.permutation(labels)]  # not those of the column
    np.save(folder / "y.npy", other)
    np.save(folder / "w.npy", rng.random(400))
    pair = ("--original", "p", "--direct", "q", "--json")
    own = ("--labels", "y.npy", "--weights", "w.npy")
    cluster = ("--scheduler", scheduler)
    local, there, column = (
        json.loads(call("audit", *pair, *more)[1]) for more in (own, (*own, *cluster), cluster)
    )
    assert there["changes"] == local["changes"]
    for one, same, others in zip(
        *(output["measures"] for output in (there, local, column)), strict=True
    ):
        assert one["repaired"] == pytest.approx(same["repaired"], rel=1e-12)
        assert one["original"] != others["original"]


@pytest.mark.parametrize("options", [(), ("--on-error", "skip")])
def test_a_new_class_passes_a_cluster(
    call, folder: Path, scheduler: str, logits: np.ndarray, options: tuple[str, ...]
) -> None:
    part = folder / "s" / "day=2" / "a.parquet"
    table = parquet.read_table(part, partitioning=None)
    words = ["hornet"] * len(table)
    at = table.column_names.index("label")
    parquet.write_table(table.set_column(at, "label", arrow.array(words)), part)
    apply = ("apply", "m.safetensors", "s", "--output", "out", "--scheduler", scheduler)
    code, _, errors = call(*apply, *options)
    assert code == 0, errors
    assert table_of(folder / "out" / "day=2")["label"].to_pylist() == words


def test_a_row_is_refused_on_a_cluster(
    call, folder: Path, scheduler: str, logits: np.ndarray
) -> None:
    table = parquet.read_table(folder / "s" / "day=2" / "a.parquet", partitioning=None)
    bad = table["ant"].to_numpy().copy()
    bad[7] = np.nan
    table = table.set_column(1, "ant", arrow.array(bad, from_pandas=False))
    parquet.write_table(table, folder / "s" / "day=2" / "a.parquet")
    apply = ("apply", "m.safetensors", "s", "--output", "out", "--scheduler", scheduler)
    code, _, errors = call(*apply)
    assert code == 2
    assert "a.parquet (scores): row 7 contains NaN" in errors
    code, _, errors = call(*apply, "--on-error", "skip", "--force")
    assert code == 0, errors
    assert "skipped 1 row: contains NaN" in errors


def spoil(path: Path) -> None:
    """Make every row of a part invalid."""
    table = parquet.read_table(path, partitioning=None)
    parquet.write_table(table.set_column(1, "ant", arrow.array([np.nan] * len(table))), path)


@pytest.mark.parametrize("job", list(JOBS))
def test_a_part_of_which_every_row_is_refused(call, folder: Path, job: str) -> None:
    apply = ("apply", *JOBS[job], "--output", "out", "--on-error", "skip")
    assert call(*apply)[0] == 0
    for name in ("s", "p"):
        spoil(folder / name / "a.parquet")  # the first, whose rows tell what the scores are
    code, _, errors = call(*apply, "--force")
    assert code == 0, errors
    assert "skipped 150 rows: contains NaN" in errors
    assert "out: 250 rows × 3 classes" in errors
    assert table_of(folder / "out").num_rows == 250  # and nothing of the run before
    for name in ("s", "p"):
        spoil(folder / name / "day=2" / "a.parquet")
    code, _, errors = call(*apply, "--force")
    assert code == 2
    assert "has no row that can be written (400 contains NaN)" in errors


def test_an_audit_of_a_part_of_which_every_row_is_refused(
    call, folder: Path, scheduler: str
) -> None:
    spoil(folder / "q" / "a.parquet")
    pair = ("--original", "p", "--direct", "q", "--json", "--on-error", "skip")
    result = [
        json.loads(call("audit", *pair, *more)[1]) for more in ((), ("--scheduler", scheduler))
    ]
    assert result[0]["changes"]["n"] == 250
    assert result[1]["changes"] == result[0]["changes"]


@pytest.fixture
def killed(call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Return a command that was killed when it had finished two of three parts."""
    from cordcal.files import apply as module

    note, done = module._note_finished, []

    def stop(*args) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(args)
        note(*args)

    apply = ("apply", "m.safetensors", "s", "--output", "out")
    with monkeypatch.context() as patch:
        patch.setattr(module, "_note_finished", stop)
        assert call(*apply)[0] == 130
    return apply


def test_a_rerun_of_parts_speaks_of_resume(call, killed: tuple[str, ...]) -> None:
    code, out, _ = call(*killed, "--json")
    problem = json.loads(out)["error"]
    assert (code, problem["argument"]) == (2, "out")
    assert "parts" in problem["reason"]
    assert "--resume" in problem["hint"]
    code, out, _ = call(*killed, "--json", "--resume")
    assert (code, json.loads(out)["resumed"]) == (0, 150)


def test_mistakes(call, folder: Path) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("mine")
    apply = ("apply", "m.safetensors", "s", "--output")
    assert call(*apply, "out")[0] == 0
    (folder / "file").write_text("mine")
    np.save(folder / "y.npy", np.zeros(399, int))
    for arguments, words in (
        ((*apply, "full"), "full contains other files (notes.txt); name a new or an empty folder"),
        ((*apply, "out"), "out already contains 3 parts; pass --resume to keep those"),
        ((*apply, "file"), "file is a file; name a folder for the parts"),
        (
            ("apply", "m.safetensors", "s.parquet", "--output", "out"),
            "out is a folder; name a file",
        ),
        (
            ("audit", "--original", "p", "--direct", "q", "--labels", "y.npy", "--scheduler", "x"),
            "y.npy has 399 labels but there are 400 rows of scores",
        ),
    ):
        code, _, errors = call(*arguments)
        assert code == 2
        assert words in errors
        assert "Traceback" not in errors
    assert call(*apply, "out", "--force")[0] == 0


def test_killed_and_resumed(call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cordcal.files import apply as module

    apply = ("apply", "m.safetensors", "s", "--output", "out")
    done = []

    def stop(*args: object) -> None:
        note(*args)
        done.append(args)
        if len(done) == 2:
            raise KeyboardInterrupt

    note = module._note_finished
    with monkeypatch.context() as patch:
        patch.setattr(module, "_note_finished", stop)
        code, _, errors = call(*apply)
    assert code == 130
    assert "interrupted; 2 of 3 parts are complete in" in errors
    assert "the same command with --resume makes the others" in errors
    first = (folder / "out" / "a.parquet").stat().st_mtime_ns
    code, printed, errors = call(*apply, "--resume", "--json")
    assert code == 0, errors
    assert (folder / "out" / "a.parquet").stat().st_mtime_ns == first
    result = json.loads(printed)
    assert (result["rows"], result["resumed"]) == (400, 150)
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == ["_cordcal.jsonl", "a.parquet", "b.parquet", "day=2"]
    model = cordcal.load(folder / "m.safetensors")
    assert model.n_classes_ == 3


def test_columns_in_another_order_on_a_cluster(call, folder: Path, scheduler: str) -> None:
    assert call("apply", "m.safetensors", "s", "--output", "ordered")[0] == 0
    audit = ("audit", "--original", "p", "--direct", "q", "--json")
    ordered = json.loads(call(*audit)[1])["changes"]
    for name in ("s", "q"):
        part = folder / name / "day=2" / "a.parquet"
        table = parquet.read_table(part, partitioning=None)
        parquet.write_table(table.select(["id", *NAMES[::-1], "label"]), part, row_group_size=90)
    there = ("--scheduler", scheduler)
    assert call("apply", "m.safetensors", "s", "--output", "there", *there)[0] == 0
    assert table_of(folder / "there").equals(table_of(folder / "ordered"))
    assert json.loads(call(*audit, *there)[1])["changes"] == ordered


def test_a_cluster_that_does_not_answer_is_named(
    call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="a cluster needs Dask")
    monkeypatch.setattr("cordcal.dask.cluster._CONNECT_TIMEOUT", 0.5)
    passed = ("apply", "m.safetensors", "s", "--output", "x", "--scheduler", "tcp://127.0.0.1:1")
    code, _, errors = call(*passed)
    assert code == 2
    assert "--scheduler is 'tcp://127.0.0.1:1', w" in errors
