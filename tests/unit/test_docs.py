"""What the pages say and the source can confirm: links, calls, scopes, limits, settings, commands, words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airunner.cli.application import build_app
from airunner.codec.gen.job.v1 import job_pb2
from airunner.config.settings import setting_fields
from airunner.domain import limits
from airunner.domain.job import JOB_STATES, Outcome
from airunner.rpc.auth import METHOD_SCOPES, Scope

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
SERVICES = job_pb2.DESCRIPTOR.services_by_name
METHODS = [method.name for service in SERVICES.values() for method in service.methods]

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^[ ]*|\$ |\$\(|[;&|] |bin/|`)airunner ([a-z][\w-]*(?: [a-z][\w-]*)?)", re.MULTILINE)
COMMENT = re.compile(r"(?:^| )#.*$", re.MULTILINE)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_resolve(page: Path) -> None:
    assert [link for link in links(page.read_text()) if not resolves(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_exist(page: Path) -> None:
    assert [command for command in commands(page.read_text()) if not exists(command)] == []


def test_the_checks_of_this_file_can_fail() -> None:
    assert not resolves(ROOT / "README.md", "docs/nowhere.md")
    assert not resolves(ROOT / "README.md", "docs/api.md#no-such-heading")
    assert resolves(ROOT / "README.md", "docs/api.md#scopes")
    assert links("see [this](docs/api.md)") == ["docs/api.md"]
    assert list(commands("```sh\n$ airunner teleport --now\n```\n`airunner keys forge`")) == [
        "teleport",
        "keys forge",
    ]
    assert not exists("teleport")
    assert not exists("keys forge")
    assert exists("keys create")


def test_every_page_can_be_reached_from_the_readme() -> None:
    found, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in found:
            continue
        found.add(page)
        targets = (target_of(page, link) for link in links(page.read_text()))
        todo += [target for target in targets if target.suffix == ".md" and target.is_file()]
    assert sorted(set(PAGES) - found) == []


@pytest.mark.parametrize("method", METHODS)
def test_every_call_is_described(method: str) -> None:
    headings = [line for line in (DOCS / "api.md").read_text().splitlines() if line.startswith("### ")]
    assert any(re.search(rf"\b{method}\b", heading) for heading in headings)


def test_scopes_are_those_of_the_server() -> None:
    rows = dict(re.findall(r"^\| `([\w:]+)` \| (.*) \|$", section("api.md", "Scopes"), re.MULTILINE))
    said = {scope: set(re.findall(r"\b[A-Z]\w+", text)) for scope, text in rows.items()}
    known = {scope: {name for name, needed in METHOD_SCOPES.items() if needed is scope} for scope in Scope}
    assert said == {scope.value: names for scope, names in known.items()}


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("`visibility_timeout_seconds`", limits.DEFAULT_VISIBILITY_SECONDS),
        ("`visibility_timeout_seconds`", limits.MAX_VISIBILITY_SECONDS),
        ("`max_jobs`", limits.MAX_DEQUEUE_JOBS),
        ("`wait_seconds` of a dequeue", limits.DEFAULT_DEQUEUE_WAIT_SECONDS),
        ("`wait_seconds` of a dequeue", limits.MAX_DEQUEUE_WAIT_SECONDS),
        ("`more_queues`", limits.MAX_MORE_QUEUES),
        ("`wait_seconds` of UpdateJob", limits.MAX_UPDATE_WAIT_SECONDS),
        ("`wait_seconds` of UpdateJob", limits.MAX_GET_WAIT_SECONDS),
        ("`page`", limits.MAX_PAGE),
        ("`page`", limits.DEFAULT_PAGE_SIZE),
        ("`page`", limits.MAX_PAGE_SIZE),
        ("`delay_seconds`", limits.MAX_DELAY_SECONDS),
        ("`max_attempts`", limits.DEFAULT_MAX_ATTEMPTS),
        ("`max_attempts`", limits.MAX_ATTEMPTS),
        ("`timeout_seconds`", limits.MAX_TIMEOUT_SECONDS),
        ("entries", limits.MAX_BATCH_ENTRIES),
        ("`worker_id`", limits.MAX_NAME_BYTES),
        ("`job_params`", limits.MAX_PARAMS_BYTES // 1024),
        ("`output_json`", limits.MAX_RESULT_OUTPUT_BYTES // 1024),
        ("`error_message`", limits.MAX_ERROR_TEXT_BYTES // 1024),
        ("outputs in a batch", limits.MAX_BATCH_EVENTS),
        ("one event", limits.MAX_EVENT_BYTES // 1024),
    ],
)
def test_limits_are_those_of_the_contract(what: str, number: int) -> None:
    row = next(line for line in section("api.md", "Limits and defaults").splitlines() if what in line)
    assert f"{number:,}" in re.findall(r"[\d,]*\d", row)


def test_every_setting_is_described() -> None:
    said = re.findall(r"^\| `([\w.]+)` \|", section("configuration.md", "Every key"), re.MULTILINE)
    assert said == list(setting_fields())


def test_every_command_is_described() -> None:
    page = (DOCS / "cli.md").read_text()
    assert [name for name in command_names() if f"airunner {name}" not in page] == []


def test_the_tests_of_the_guarantees_exist() -> None:
    named = re.findall(r"`([\w/]*test_\w+\.py)`", (DOCS / "guarantees.md").read_text())
    assert named
    assert [name for name in named if not any((ROOT / "tests").rglob(Path(name).name))] == []


def test_every_promise_and_row_of_the_guarantees_names_a_test_that_exists() -> None:
    promises = re.findall(r"^\*\*(.+?)\.\*\* ", section("guarantees.md", "The promises"), re.MULTILINE)
    titles = ("What each store gives", "What happens when something dies")
    rows = [name for title in titles for name in first_cells(section("guarantees.md", title))]
    tested = section("guarantees.md", "How it is tested").partition("\n### What else")[0]
    named = dict(re.findall(r"^\| (.+?) \| (`.+`) \|$", tested, re.MULTILINE))
    assert len(promises) > 5
    assert sorted(named) == sorted([*promises, *rows])
    files = [name for tests in named.values() for name in re.findall(r"`(.+?)`", tests)]
    assert [name for name in files if not (ROOT / name).is_file()] == []


def first_cells(text: str) -> list[str]:
    """Return the first cell of every row of the tables in a text, but for their heads."""
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return [cell for cell in cells if cell != "What"]


def test_the_state_machine_names_every_state_and_outcome() -> None:
    page = (DOCS / "state-machine.md").read_text()
    assert [word.name for word in (*JOB_STATES, *Outcome) if word.name not in page] == []


def test_the_glossary_is_sorted_and_has_the_vocabulary() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)
    vocabulary = (
        "job, queue, attempt, task token, visibility timeout, dequeue, receive, complete, ack, release, "
        "dead-letter, event, batch, sequence, publish, stream, worker, consumer, handler, relay"
    )
    assert set(vocabulary.split(", ")) - set(terms) == set()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_pages_use_the_vocabulary(page: Path) -> None:
    prose = FENCE.sub("", page.read_text())
    assert (
        re.findall(r"\b(?:(?<!first[ -])leases?|leased|executions? id|task queue)\b", prose, re.IGNORECASE)
        == []
    )


def section(page: str, heading: str) -> str:
    _, found, rest = (DOCS / page).read_text().partition(f"\n## {heading}\n")
    assert found, f"{page} has no section {heading}"
    return rest.partition("\n## ")[0]


def links(text: str) -> list[str]:
    return [link for link in LINK.findall(FENCE.sub("", text)) if not re.match(r"[a-z]+:", link)]


def target_of(page: Path, link: str) -> Path:
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page


def resolves(page: Path, link: str) -> bool:
    target, anchor = target_of(page, link), link.partition("#")[2]
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[str]:
    """Yield the commands of blocks of code and of short pieces of it: one word, or two with a group."""
    pieces = [*FENCE.findall(text), *re.findall(r"`airunner [^`]+`", FENCE.sub("", text))]
    for piece in pieces:
        for command in COMMAND.findall(COMMENT.sub("", piece)):
            name, _, sub = command.partition(" ")
            yield command if sub and name in GROUPS else name


def exists(command: str) -> bool:
    name, _, sub = command.partition(" ")
    return name in command_names() and (not sub or sub in GROUPS[name])


def command_names() -> list[str]:
    return [name for name in build_app() if not name.startswith("-")]


def subcommands(name: str) -> set[str]:
    return {sub for sub in build_app()[name] if not sub.startswith("-")}


GROUPS = {name: found for name in command_names() if (found := subcommands(name))}
