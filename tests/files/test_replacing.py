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


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    with refused(str(path), option="overwrite"):
        write(path, overwrite=False)
    assert path.read_text() == "mine"
    write(path)
    assert path.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_meanwhile(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
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
        write(path, overwrite=False)
    assert path.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_new_name_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "link")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError()), raising=False)
    write(tmp_path / "out", overwrite=False)
    assert (tmp_path / "out").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_rights_stay_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "real"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "link", "real"]


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with refused(str(path)):
        write(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    with refused("/dev/null"):
        write(Path("/dev/null"))


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
