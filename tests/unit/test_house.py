"""Rules of the source tree: the sizes of folders, one name for one thing, one loop for one purpose."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "airunner"
MAX_MODULES = 20
MAX_NEWCOMER_LINES = 1200
# One file for each of something that people keep adding.
ONE_FILE_EACH = {"cli/commands", "fleet/housekeeping"}
# Who may wait and try again by itself; all others call one of these.
LOOPS = {
    "domain/retry.py",
    "services/periodic.py",
    "queues/consumer.py",
    "worker/publishing/publisher.py",
    "client/monitor.py",
    "outbox/judging.py",  # waits for nothing: it says when a row is due again
    "generation/job_verdicts.py",  # waits for nothing: it says when a job is tried again
    "services/replicas/ringer.py",  # waits for nothing: it says when a server is rung again
}
# Names that stood for something once, and whose things have the word that an engineer would search for.
FORMER_CLASSES = {
    *("Sprint", "HandlerSprint", "Voice", "JobVoice", "Mailbox", "FollowUps", "Draft"),
    *("Drafter", "Platform", "PlatformRules", "Attention", "Follower", "Poller", "Sampler"),
    *("Tally", "Level", "Spread", "Verdict", "Evidence", "Surroundings", "Reason", "Kind"),
    *("Bounds", "Connection", "Request", "Answer"),
}
FORMER_NAMES = {
    *("sprint", "lane", "lanes", "voice", "unheard", "on_word", "mailbox", "portions"),
    *("each", "only", "follow_ups", "drafts", "platform", "attention", "follower", "poller"),
    *("counting", "measuring", "sampling", "evidence", "attempt_story", "words", "verdicts"),
    *("documents", "channels", "surroundings", "hasty", "patient", "glance_seconds"),
    *("uttered", "heed", "place", "asked", "said", "fresh", "alike", "own", "most"),
}
FORMER_MODULES = {
    *("entries", "drafts", "chunks", "platform", "attention", "follower", "poller", "counting", "measuring"),
    *(
        "sampling",
        "evidence",
        "attempt_story",
        "words",
        "verdicts",
        "documents",
        "channels",
        "portions",
        "sprint",
    ),
    *("mailbox", "handler_voice", "follow_ups"),
}


def sources(*folders: Path) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if "gen" not in file.parts:
                yield file, ast.parse(file.read_text(encoding="utf-8"))


def named(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield what a module names for others to read: classes, functions, parameters, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno
            yield from fields(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def fields(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for entry in node.body:
        targets = [entry.target] if isinstance(entry, ast.AnnAssign) else getattr(entry, "targets", [])
        yield from ((target.id, entry.lineno) for target in targets if isinstance(target, ast.Name))


def former(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the names that are no longer used for anything."""
    return [
        (name, line)
        for name, line in named(tree)
        if name.lstrip("_") in FORMER_NAMES or name.lstrip("_") in FORMER_CLASSES
    ]


def loops_by_itself(tree: ast.Module) -> list[int]:
    """Return the lines of pauses by a retry policy, and of endless loops that sleep."""
    found = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and calls(node, "delay")]
    endless = [node for node in ast.walk(tree) if isinstance(node, ast.While) and is_true(node.test)]
    found += [node.lineno for node in endless if any(calls(inner, "sleep") for inner in ast.walk(node))]
    return found


def backs_off_by_hand(tree: ast.Module) -> list[int]:
    """Return the lines of powers with a variable exponent: pauses that grow are a policy's."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow)
        and any(varies(inner) for inner in ast.walk(node.right))
    ]


def varies(node: ast.AST) -> bool:
    """Whether a node names something that is no constant."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return bool(name) and not name.isupper()


def calls(node: ast.AST, method: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method


def is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and test.value is True


def test_rooms_are_of_a_size_to_know_one_s_way_in() -> None:
    modules = Counter(file.parent.relative_to(PACKAGE).as_posix() for file, _ in sources(PACKAGE))
    assert {room for room, count in modules.items() if count > MAX_MODULES + 1} <= ONE_FILE_EACH


def test_a_class_name_stands_for_one_class() -> None:
    names = Counter(
        node.name for _, tree in sources(PACKAGE) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_nothing_has_its_former_name() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file, tree in sources(PACKAGE, ROOT / "tests")
        if file != Path(__file__)
        for name, line in former(tree)
    ]
    assert found == []


def test_no_module_has_its_former_name() -> None:
    found = [
        str(file.relative_to(ROOT))
        for file, _ in sources(PACKAGE, ROOT / "tests")
        if file.stem.removeprefix("test_") in FORMER_MODULES
    ]
    assert found == []


def test_who_waits_and_tries_again_is_known() -> None:
    found = [
        f"{name}:{line}"
        for file, tree in sources(PACKAGE)
        if (name := file.relative_to(PACKAGE).as_posix()) not in LOOPS
        for line in loops_by_itself(tree)
    ]
    assert found == []


def test_pauses_grow_by_the_policy_alone() -> None:
    found = [
        f"{name}:{line}"
        for file, tree in sources(PACKAGE)
        if (name := file.relative_to(PACKAGE).as_posix()) != "domain/retry.py"
        for line in backs_off_by_hand(tree)
    ]
    assert found == []


def test_the_newcomer_s_path_is_short() -> None:
    readme = (ROOT / "README.md").read_text()
    path = readme[readme.index("A newcomer's path") : readme.index("## License")]
    files = [ROOT / name for name in re.findall(r"\]\(([\w./]+)\)", path)]
    assert len(files) == 6
    assert sum(len(file.read_text().splitlines()) for file in files) < MAX_NEWCOMER_LINES


@pytest.mark.parametrize(
    "source",
    [
        "class Verdict: ...",
        "class Log:\n    place: str",
        "def tell(said): ...",
        "class Log:\n    def __init__(self): self._fresh = 1",
        "async def heed(): ...",
        "lambda own: own",
    ],
)
def test_a_former_name_is_seen(source: str) -> None:
    assert len(former(ast.parse(source))) == 1


@pytest.mark.parametrize(
    ("source", "loops"),
    [
        ("await clock.sleep(policy.delay(failures))", True),
        ("async def run():\n    while True:\n        await self._clock.sleep(1)", True),
        ("async def run():\n    while True:\n        await bell.wait()", False),
        ("async def run():\n    while waiting:\n        await clock.sleep(1)", False),
    ],
)
def test_a_loop_of_one_s_own_is_seen(source: str, loops: bool) -> None:
    assert bool(loops_by_itself(ast.parse(source, mode="exec"))) is loops


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        ("pause = min(2**failures, 30)", True),
        ("pause = 0.1 * 2 ** self.failures", True),
        ("pause = FACTOR ** (failures - 1)", True),
        ("LIMIT = 2**31 - 1", False),
        ("is_exact = number < 10**MAX_DIGITS", False),
        ("share = drawn / 2**32", False),
        ("mean = total**0.5", False),
    ],
)
def test_a_back_off_by_hand_is_seen(source: str, is_one: bool) -> None:
    assert bool(backs_off_by_hand(ast.parse(source))) is is_one
