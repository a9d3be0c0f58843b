"""Outputs are whole or absent, touch no other file, and replace only what they may."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cordcal.files import disk, replacing
from errors import refused

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="rights and links of POSIX")


def write(path: Path, text: str = "new", **options: bool) -> None:
    with replacing(path, **options) as temporary:
        temporary.write_text(text)


both = pytest.mark.parametrize("writer", [write])


@both
def test_a_name_that_is_taken(tmp_path: Path, writer: object) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    with refused(str(path), option="overwrite"):
        writer(path, overwrite=False)  # type: ignore[operator]
    assert path.read_text() == "mine"
    writer(path)  # type: ignore[operator]
    assert path.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@both
@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_meanwhile(
    tmp_path: Path, writer: object, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    publish = disk.publish

    def late(*arguments: object, **options: object) -> None:
        path.write_text("theirs")
        publish(*arguments, **options)  # type: ignore[arg-type]

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(disk, "publish", late)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with refused(str(path), option="overwrite"):
        writer(path, overwrite=False)  # type: ignore[operator]
    assert path.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@both
def test_a_new_name_without_links(
    tmp_path: Path, writer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "link")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError()), raising=False)
    writer(tmp_path / "out", overwrite=False)  # type: ignore[operator]
    assert (tmp_path / "out").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@both
def test_rights_stay_and_links_are_followed(tmp_path: Path, writer: object) -> None:
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "real"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    writer(link)  # type: ignore[operator]
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "link", "real"]


@both
def test_what_is_no_file_is_left_alone(tmp_path: Path, writer: object) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with refused(str(path)):
        writer(path)  # type: ignore[operator]
    assert stat.S_ISFIFO(path.stat().st_mode)
    with refused("/dev/null"):
        writer(Path("/dev/null"))  # type: ignore[operator]


@pytest.mark.parametrize("name", [".out.partial", ".out.journal"])
@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_planted_links_are_not_followed(tmp_path: Path, name: str, plant: object) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    plant(tmp_path / name, victim)  # type: ignore[operator]
    with refused(str(tmp_path / name)):
        grow(tmp_path / "out")
    assert victim.read_text() == "mine"


def test_a_writer_that_comes_late_does_not_touch_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first writer ends between the second one's opening of the journal and its lock."""
    locked, path = disk.try_lock, tmp_path / "out"
    first = output.resumable_output(path, Plain(), {}, resume=False)
    file = first.__enter__()
    file.append(Piece(b"first", 1), position=1, changed=0, skipped={})

    def late(handle: int) -> bool:
        monkeypatch.setattr(disk, "try_lock", locked)
        first.__exit__(None, None, None)
        return locked(handle)

    monkeypatch.setattr(disk, "try_lock", late)
    with refused(str(path), option="overwrite"):
        grow(path, "second", overwrite=False)
    assert path.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "journal",
    [b"\xff\n", b"[1]\n", b'{"a": 1}\n{}\n', b'{}\n{"end": "9"}\n', b"[" * 10**5 + b"\n"],
)
def test_a_journal_that_is_none(tmp_path: Path, journal: bytes) -> None:
    (tmp_path / ".out.journal").write_bytes(journal)
    with refused(str(tmp_path / ".out.journal"), naming="resume=True"):
        grow(tmp_path / "out", resume=True)


def test_what_a_killed_process_leaves_is_removed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from cordcal.files import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "out.npz"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, "-c", script, str(path)], check=False, env=environment)
    (orphan,) = tmp_path.iterdir()
    with replacing(path) as temporary:
        assert not orphan.exists()
        write(path, "meanwhile")  # another writer leaves what is in use
        assert temporary.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_a_new_file_has_usual_rights_and_the_umask_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            # Setting it, even for a moment, opens the files of other threads to everybody.
            patch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
            with replacing(tmp_path / "out") as temporary:
                temporary.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
