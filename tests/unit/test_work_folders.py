"""Work folders: gone after their attempt, swept when their worker died, left alone while it lives."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.worker.process.work_folders import WorkFolders
from tests.support.unprivileged import folder_of_nobody, through_nobody

ROOT = Path(__file__).resolve().parents[2]
# A worker in small, which says what folder it made and waits.
OWNER = """
import sys
from pathlib import Path
from airunner.worker.process.work_folders import WorkFolders
folder = WorkFolders(Path(sys.argv[1])).make()
(folder.path / "file").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""
# A read-only tree as Go leaves it, removed by somebody to whom permissions matter.
READ_ONLY = """
import os, sys
from pathlib import Path
from airunner.worker.process.work_folders import WorkFolders
folders = WorkFolders(Path(sys.argv[1]))
folder = folders.make()
(folder.path / "mod" / "deep").mkdir(parents=True)
(folder.path / "mod" / "deep" / "file").write_text("x")
(folder.path / "link").symlink_to("/")
for part in ("mod/deep/file", "mod/deep", "mod", "."):
    (folder.path / part).chmod(0o000 if part == "mod/deep" else 0o555)
folders.remove(folder)
print(os.getuid(), os.listdir(sys.argv[1]))
"""


def test_a_folder_and_its_lock_are_there_for_one_attempt(tmp_path: Path) -> None:
    folders = WorkFolders(tmp_path)
    first, second = folders.make(), folders.make()
    assert first.path.parent == tmp_path
    assert first.path.stat().st_mode & 0o777 == 0o700
    (first.path / "file").write_text("x")
    assert folders.sweep() == []
    assert {path.name for path in tmp_path.iterdir()} >= {first.path.name, second.path.name}
    folders.remove(first)
    folders.remove(second)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_worker_left_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    with owner(tmp_path) as living, owner(tmp_path) as killed:
        assert living.stdout
        assert killed.stdout
        kept = Path(living.stdout.readline().decode().strip())
        left = Path(killed.stdout.readline().decode().strip())
        (tmp_path / "airunner-of-somebody-else").mkdir()
        assert WorkFolders(tmp_path).sweep() == []
        killed.kill()
        killed.wait()

        assert WorkFolders(tmp_path).sweep() == [left]

        names = {"airunner-of-somebody-else", kept.name, f"{kept.name}.lock"}
        assert {path.name for path in tmp_path.iterdir()} == names
        assert (kept / "file").read_text() == "x"
        living.kill()


def owner(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", OWNER, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_read_only_tree_is_removed(tmp_path: Path) -> None:
    folder = folder_of_nobody(tmp_path / "work")
    command = [*through_nobody(), sys.executable, "-c", READ_ONLY, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    uid, listing = done.stdout.split(maxsplit=1)
    assert (uid != b"0", listing.strip()) == (True, b"[]")


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    for number, name in enumerate(("none", "link", "folder", "fifo")):
        lock = tmp_path / f"airunner-{number:016x}.lock"
        (tmp_path / f"airunner-{number:016x}").mkdir()
        match name:
            case "link":
                lock.symlink_to(tmp_path / "airunner-0000000000000000.lock")
            case "folder":
                lock.mkdir()
            case "fifo":
                os.mkfifo(lock)
    (tmp_path / "airunner-short.lock").touch()
    before = sorted(tmp_path.iterdir())
    assert WorkFolders(tmp_path).sweep() == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_that_is_not_there_is_swept_at_once_and_gives_no_folder(tmp_path: Path) -> None:
    folders = WorkFolders(tmp_path / "missing")
    assert folders.sweep() == []
    with pytest.raises(FileNotFoundError):
        folders.make()


def test_what_cannot_be_removed_is_counted_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = WorkFolders(tmp_path)
    folder = folders.make()
    before = telemetry.folders_not_removed.read().get((), 0)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with capture_logs() as logged:
        folders.remove(folder)
        assert folders.sweep() == []
    assert [entry["event"] for entry in logged] == ["work_folder.not_removed"]
    assert telemetry.folders_not_removed.read()[()] - before == 2
    monkeypatch.undo()
    assert folders.sweep() == [folder.path]
    assert list(tmp_path.iterdir()) == []


def test_without_locks_there_are_folders_and_nobody_sweeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    folders = WorkFolders(tmp_path)
    folder = folders.make()
    assert folders.sweep() == []
    assert list(tmp_path.iterdir()) == [folder.path]
    folders.remove(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_sweeper_that_takes_the_lock_of_a_folder_to_be_is_given_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, opened, taken = WorkFolders(tmp_path), os.open, list[Path]()

    def open_and_be_swept(path: Path, flags: int, *mode: int) -> int:
        descriptor = opened(path, flags, *mode)
        if flags & os.O_CREAT and len(taken) < 2:
            taken.append(path)
            folders.sweep()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_be_swept)
    folder = folders.make()
    monkeypatch.undo()
    assert len(taken) == 2
    assert {path.name for path in tmp_path.iterdir()} == {folder.path.name, folder.lock_path.name}
    folders.remove(folder)
    assert list(tmp_path.iterdir()) == []
