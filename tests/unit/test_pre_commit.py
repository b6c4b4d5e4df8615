"""The hooks before a commit: local ones only, and the same checks as `make check`."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_hooks_are_local_and_do_what_make_check_does() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in hooks)
    check = re.findall(r"^check: (.*?) *##", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
    assert [hook["entry"].split() for hook in hooks] == [["make", target] for target in check]
