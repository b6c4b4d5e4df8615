"""The names that users import: fixed, explained, cheap, and enough for all that we print."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import airunner
from tests.support.plain_python import run_plain

ROOT = Path(__file__).resolve().parents[2]
SDK_PAGE = ROOT / "docs" / "sdk.md"
# Taking a name away breaks programs of others; adding one is a promise to keep it.
CLIENTS = {"AsyncClient", "Client", "ConnectionState", "StoredBatch", "StreamOptions"}
JOBS = {"Job", "JobParams", "JobResult", "JobState", "Outcome", "ProcessType"}
ASKING = {
    *("BatchingOverride", "EnqueueRequest", "Enqueued", "ExecutionOverride"),
    *("JobPage", "JobQuery", "QueueStats", "WorkerSeen"),
}
WORKERS = {"Abilities", "Batcher", "CompleteRequest", "DequeuedJob", "ReleaseRequest", "UpdateRequest"}
EVENTS = {
    *("Event", "EventType", "StreamType"),
    *("Gap", "Output", "OutputBatch", "ProcessEnd", "ProcessError", "ProcessStart", "Progress"),
}
READING = {"Coverage", "EventBuffer", "LogProof", "LogVerdict", "VerdictKind"}
HANDLERS = {"Context", "HandlerError", "JobProcessingError", "PermanentFailure", "handler"}
GENERATION = {"GenerationFailure", "GenerationSession", "Image", "Images"}
OUTBOX = {"enqueue_generation", "enqueue_generation_sync", "start_outbox_relay"}
ERRORS = {
    *("AirunnerError", "AlreadyExists", "DeadlineExceeded", "FailedPrecondition", "InternalError"),
    *("InvalidArgument", "NotFound", "PermissionDenied", "ResourceExhausted", "SequenceMismatch"),
    *("Unauthenticated", "Unavailable"),
}
NAMES = CLIENTS | JOBS | ASKING | WORKERS | EVENTS | READING | HANDLERS | GENERATION | OUTBOX | ERRORS
# Paths that the README or the pages printed once.
PRINTED_PATHS = (
    *(f"airunner.domain.event.{name}" for name in ("Event", "Output", "ProcessEnd", "ProcessError")),
    *("airunner.domain.job.JobParams", "airunner.domain.job.JobState"),
    *(f"airunner.client.{name}" for name in ("AsyncClient", "Client", "EventBuffer", "LogProof", "Coverage")),
    *(f"airunner.handlers.{name}" for name in ("Context", "HandlerError", "PermanentFailure", "handler")),
)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def path_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_these_are_the_public_names() -> None:
    assert set(airunner.__all__) == NAMES | {"__version__"}
    assert set(airunner.__all__) <= set(dir(airunner))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "src/airunner/__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    seen = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airunner")
        for alias in node.names
    }
    assert seen == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_name_is_there_with_a_docstring_and_a_row_in_the_page(name: str) -> None:
    found = getattr(airunner, name)
    # A dataclass without one gets its signature instead.
    assert found.__doc__
    assert not found.__doc__.startswith(f"{name}(")
    rows = re.findall(rf"^\| `{name}` \| (.+) \|$", SDK_PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 1


def test_the_page_names_nothing_else() -> None:
    _, _, tables = SDK_PAGE.read_text().partition("\n## All names\n")
    assert set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE)) == NAMES


@pytest.mark.parametrize("path", PRINTED_PATHS)
def test_paths_that_were_printed_lead_to_the_same_thing(path: str) -> None:
    home, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(home), name) is getattr(airunner, name)


def test_the_package_alone_loads_nothing() -> None:
    assert loaded_by("import airunner") == []


def test_values_load_no_client_and_a_client_no_server() -> None:
    values = loaded_by("from airunner import JobParams, Output, NotFound, LogProof, Batcher")
    assert not {"connectrpc", "google.protobuf", "asyncio", "pydantic"} & set(values)
    client = loaded_by("from airunner import AsyncClient, Client, EventBuffer")
    assert "google.protobuf" in client
    heavy = {"connectrpc", "pyqwest", "uvicorn", "starlette", "sqlite3", "cyclopts", "pydantic"}
    assert not heavy & set(client)


@pytest.mark.parametrize("package", ["airunner.app", "airunner.client"])
def test_packages_have_all_names_that_they_import_late(package: str) -> None:
    module = importlib.import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_what_builds_a_client_loads_nothing_that_builds_a_server() -> None:
    loaded = loaded_by("from airunner.app import build_client")
    assert {name for name in loaded if name.startswith("airunner.app.")} == {"airunner.app.workers"}


def test_enqueueing_loads_no_driver_but_the_application_s() -> None:
    loaded = loaded_by("from airunner import enqueue_generation, enqueue_generation_sync")
    assert not {"asyncpg", "pydantic", "asyncio", "botocore"} & set(loaded)


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="Klient"):
        _ = airunner.Klient  # type: ignore[attr-defined]  # that is what is tested


def test_a_name_is_looked_up_once() -> None:
    program = "import airunner; airunner.Output; print('Output' in vars(airunner))"
    printed = run_plain(program)
    assert printed == "True\n"


@pytest.mark.parametrize("page", PAGES, ids=path_id)
def test_code_on_pages_imports_only_what_is_public(page: Path) -> None:
    for code in PYTHON_BLOCK.findall(page.read_text()):
        assert list(private_imports(code)) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=path_id)
def test_examples_import_only_what_is_public(example: Path) -> None:
    assert list(private_imports(example.read_text())) == []


def test_a_private_import_is_seen() -> None:
    code = "import airunner.stores\nfrom airunner.domain.job import Job\nfrom airunner import Klient, Job"
    assert list(private_imports(code)) == ["airunner.stores", "airunner.domain.job", "airunner.Klient"]
    code = "import airunner\nfrom airunner import Job\nfrom airunner.testing.clock import ManualClock"
    assert list(private_imports(code)) == []


def private_imports(code: str) -> Iterator[str]:
    """Yield what a program imports of airunner that is neither one of its names nor in airunner.testing."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "airunner":
            modules = [f"airunner.{alias.name}" for alias in node.names if alias.name not in airunner.__all__]
        else:
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            if module.startswith("airunner.") and not f"{module}.".startswith("airunner.testing."):
                yield module


def loaded_by(statement: str) -> list[str]:
    """Return the modules that a statement loads in a new interpreter which has only imported typing."""
    program = (
        "import __future__, sys, typing\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print('\\n'.join(sorted(set(sys.modules) - before - {'airunner'})))"
    )
    printed = run_plain(program)
    return printed.split()
