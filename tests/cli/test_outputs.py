"""What a command writes: never over a file that came meanwhile, and nothing on a full disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from cordcal.files import disk

TS = ("--calibrator", "ts")


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "p.npz", probs=softmax(logits, axis=1), labels=labels)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "s.npz", *TS, "--output", "out"),
        ("compare", "s.npz", *TS, "--report", "out"),
        ("audit", "--original", "p.npz", "--direct", "p.npz", "--report", "out"),
        ("check", "p.npz", "--max", "nll=9", "--report", "out.xml"),
        ("export", "m.safetensors", "out"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_second_writer_is_safe(
    call, folder: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if arguments[0] == "export":
        pytest.importorskip("onnxruntime")
        assert call("fit", "s.npz", *TS, "--output", "m.safetensors")[0] == 0
    out, publish = folder / arguments[-1], disk.publish

    def late(*passed: object, **options: object) -> None:
        out.write_text("theirs")
        publish(*passed, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(disk, "publish", late)
    code, _, errors = call(*arguments)
    assert f"{out.name} exists already; pass --force to replace it" in errors
    assert code == 2
    assert out.read_text() == "theirs"
    assert call(*arguments, "--force")[0] == 0
    assert out.read_bytes() != b"theirs"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


# No file grows beyond 256 bytes; scores are read all the same.  The process limits itself, because
# code between fork and exec must not run where JAX has started threads.
FULL_DISK = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
runpy.run_module("cordcal", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_fit_on_a_full_disk(run, folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    done = run("fit", "s.npz", *TS, "--output", "m.safetensors", code=FULL_DISK)
    assert done.returncode == 2
    *_, last = done.stderr.splitlines()
    assert last.startswith("cordcal: ")
    assert last.endswith("m.safetensors does not fit: it exceeds the size limit for files")
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "suffix"),
    [
        (("compare", "s.npz", *TS, "--report", "out.pdf"), ".html"),
        (("compare", "s.npz", *TS, "--report", "out.json"), ".html"),
        (("audit", "--original", "p.npz", "--direct", "p.npz", "--report", "out.md"), ".html"),
        (("demo", "--report", "out.png"), ".html"),
        (("check", "p.npz", "--max", "nll=9", "--report", "out.md"), ".html"),
        (("check", "p.npz", "--max", "nll=9", "--output", "out.toml"), ".baseline"),
        (("export", "m.safetensors", "out.safetensors"), ".onnx"),
        (("fit", "s.npz", *TS, "--output", "out.onnx"), ".safetensors"),
        (("fit", "s.npz", *TS, "--output", "out.npz"), ".safetensors"),
        (("fit", "--original", "p.npz", "--direct", "p.npz", "--output", "o.pt"), ".safetensors"),
        (("apply", "m.safetensors", "s.npz", "--output", "out.xlsx"), ".csv"),
    ],
    ids=lambda case: case if isinstance(case, str) else f"{case[0]} {case[-1]}",
)
def test_a_suffix_says_what_is_written(
    call, folder: Path, arguments: tuple[str, ...], suffix: str
) -> None:
    assert call("fit", "s.npz", *TS, "--output", "m.safetensors")[0] == 0
    before = sorted(folder.iterdir())
    code, out, _ = call(*arguments, "--json")
    problem = json.loads(out)["error"]
    assert (code, problem["argument"]) == (2, arguments[-1])
    assert repr(Path(arguments[-1]).suffix) in problem["reason"]
    assert suffix in problem["hint"]
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["r.HTM", "report", "run-1.2"])
def test_a_report_of_any_other_name(call, folder: Path, name: str) -> None:
    assert call("compare", "s.npz", *TS, "--report", name)[0] == 0
    assert (folder / name).read_text(encoding="utf-8").startswith("<!doctype html>")
