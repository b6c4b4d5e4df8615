"""What dead workers left behind is found and removed; what a live one uses is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from airunner.worker.publishing.spool import Spool
from airunner.worker.publishing.spool_folder import Leftover, SpoolFolder
from tests.support.spools import JOB_ID, batches, single_file

# A process that writes two blocks, of 3 and 1 batches, and dies with them.
_DYING = """
import os, sys
from pathlib import Path
from airunner.worker.publishing.spool import Spool
from airunner.worker.publishing.spool_folder import SpoolFolder
from tests.support.spools import batches
spool = Spool(SpoolFolder(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
spool.write(batches(4)[:3], 1)
spool.write(batches(4)[3:], 1)
os.kill(os.getpid(), 9)
"""


def die_with_a_spool(folder: Path, job_id: str = JOB_ID, attempt: int = 2) -> None:
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", _DYING, str(folder), job_id, str(attempt)], cwd=root, check=False)
    assert list(folder.iterdir())


def test_what_a_killed_process_left_is_told_and_removed(tmp_path: Path) -> None:
    die_with_a_spool(tmp_path)
    size = single_file(tmp_path).stat().st_size
    folder = SpoolFolder(tmp_path)
    assert folder.sweep() == [Leftover(job_id=JOB_ID, attempt=2, events=20, size_bytes=size)]
    assert list(tmp_path.iterdir()) == []
    assert folder.sweep() == []


def test_a_damaged_leftover_is_removed_too(tmp_path: Path) -> None:
    die_with_a_spool(tmp_path, job_id="a/b")
    file = single_file(tmp_path)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert SpoolFolder(tmp_path).sweep() == [
        Leftover(job_id="a/b", attempt=2, events=15, size_bytes=len(content))
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_use_is_left_alone(tmp_path: Path) -> None:
    folder = SpoolFolder(tmp_path)
    used = Spool(folder, JOB_ID, 1)
    used.write(batches(2), 1)
    die_with_a_spool(tmp_path)
    assert [leftover.attempt for leftover in folder.sweep()] == [2]
    assert used.read() == batches(2)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "a.1.spool").mkdir()
    (tmp_path / "b.1.spool").symlink_to("notes.txt")
    os.mkfifo(tmp_path / "c.1.spool")
    before = sorted(tmp_path.iterdir())
    assert SpoolFolder(tmp_path).sweep() == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_not_there_has_nothing_and_is_not_made(tmp_path: Path) -> None:
    assert SpoolFolder(tmp_path / "none").sweep() == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_may_write_to_is_not_swept(tmp_path: Path) -> None:
    die_with_a_spool(tmp_path)
    tmp_path.chmod(0o770)
    with pytest.raises(PermissionError, match="others may write"):
        SpoolFolder(tmp_path).sweep()
    assert list(tmp_path.iterdir())


def test_a_new_file_that_a_sweeper_took_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SpoolFolder(tmp_path)
    opened = os.open

    def open_and_be_swept(path: str, flags: int, *args: int, **options: int) -> int:
        descriptor = opened(path, flags, *args, **options)
        if flags & os.O_EXCL:
            monkeypatch.undo()
            assert len(folder.sweep()) == 1
        return descriptor

    monkeypatch.setattr(os, "open", open_and_be_swept)
    spool = Spool(folder, JOB_ID, 1)
    assert not spool.write(batches(1), 1)
    assert spool.write(batches(1), 1)
    assert spool.read() == batches(1)


def test_without_a_path_it_is_a_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert SpoolFolder().path == tmp_path / f"airunner-spool-{os.getuid()}"
