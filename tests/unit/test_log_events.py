"""What relays, generation workers and consumers log is in docs/operations.md, where its readers look."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("generation", "handlers", "outbox", "postgres", "queues")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def logged(tree: ast.Module) -> Iterator[str]:
    """Yield the events that a module logs, and those of its loops that fail."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = ast.unparse(node.func)
        texts = [
            inner.value
            for inner in ast.walk(node.args[0])
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
        ]
        if called.startswith("_log."):
            yield from texts
        elif called == "Periodic":
            given = [word.value for word in node.keywords if word.arg == "failure_event"]
            yield from [ast.literal_eval(value) for value in given] or [f"{text}_failed" for text in texts]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_event_is_documented(package: str) -> None:
    found = {
        event
        for file in (ROOT / "src" / "airunner" / package).rglob("*.py")
        for event in logged(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert found
    assert sorted(event for event in found if f"`{event}`" not in OPERATIONS) == []


@pytest.mark.parametrize(
    ("source", "events"),
    [
        ("_log.warning('a.b', error='c')", ["a.b"]),
        ("_log.warning('a.b' if is_away else 'a.c')", ["a.b", "a.c"]),
        ("Periodic('a.b', run, clock=clock)", ["a.b_failed"]),
        ("Periodic('a.b', run, failure_event='c.d')", ["c.d"]),
        ("print('a.b')", []),
    ],
)
def test_events_are_seen(source: str, events: list[str]) -> None:
    assert list(logged(ast.parse(source))) == events
