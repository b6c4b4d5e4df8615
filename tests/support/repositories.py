"""Real git repositories in folders, for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.programs import program

PATH = {"PATH": os.defpath}


class GitRepository:
    """A repository with a branch `main`, whose commits the test makes."""

    def __init__(self, folder: Path) -> None:
        program("git")
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def commit(self, **files: str) -> str:
        """Commit files, by the stems of their names; return the commit's name."""
        for name, text in files.items():
            (self.folder / f"{name}.txt").write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", f"with {', '.join(files)}")
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.folder,
            env={**PATH, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()
