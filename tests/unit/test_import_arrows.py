"""The direction of imports, read from the source: each layer knows only the layers below it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "airunner"
GENERATED = PurePosixPath("codec/gen")

LAYERS = (
    {"domain"},
    {"codec"},
    {"aws", "postgres", "handlers"},
    {"stores", "queues"},
    {"services"},
    {"client", "reading"},
    {"rpc", "worker", "fleet", "outbox", "generation"},
    {"server", "local"},
    {"cli"},
)
RANK = {unit: rank for rank, units in enumerate(LAYERS) for unit in units}
# What users' tests import stands beside the server, and so does the package itself, which only names.
RANK_OF_OTHERS = RANK["server"]
LEAVES = {"config", "telemetry"}
# Neighbours in one layer do not know each other, but for these.
SIDEWAYS = {("client", "reading"), ("generation", "outbox"), ("fleet", "worker")}
# Some layers know less than what stands below them.
ONLY = {
    "client": {"domain", "codec", "handlers", "services.api", "reading"},
    "reading": {"domain", "codec", "services.api"},
}


def only_in(*files: str) -> Callable[[PurePosixPath], bool]:
    return lambda path: str(path) in files


def inside(*units: str) -> Callable[[PurePosixPath], bool]:
    return lambda path: unit_of(path) in units


# What may be used in some places only: dotted names, and where they are at home.
RESERVED: dict[tuple[str, ...], Callable[[PurePosixPath], bool]] = {
    ("os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv"): inside("config"),
    (
        "time.time",
        "time.time_ns",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    ): only_in("domain/clock.py"),
    ("connectrpc",): inside("rpc"),
    ("botocore", "aiobotocore", "boto3"): inside("aws"),
    ("asyncpg",): inside("postgres"),
    ("google.protobuf",): inside("codec"),
    ("airunner.codec.gen.job.v1.job_pb2",): inside("codec", "testing"),
    ("airunner.codec.gen.job.v1.job_connect",): only_in("rpc/application.py"),
    ("airunner.stores.memory", "airunner.stores.sqlite", "airunner.stores.aws"): (
        lambda path: unit_of(path) in {"stores", "testing", "app"}
    ),
}
# Concrete stores know themselves; the registry alone knows all of them.
CONCRETE_STORES = ("stores.memory", "stores.sqlite", "stores.aws")
# Of the wire's messages, these may name the types, for annotations alone.
ANNOTATES_MESSAGES = {"rpc", "client"}


def test_imports_point_one_way() -> None:
    problems = [
        problem
        for file in sorted(PACKAGE.rglob("*.py"))
        for problem in violations(PurePosixPath(file.relative_to(PACKAGE)), file.read_text(encoding="utf-8"))
    ]
    assert problems == []


def test_the_checker_sees_the_package() -> None:
    assert (PACKAGE / "domain").is_dir()
    assert "airunner.domain.job" in {
        name for name, *_ in imported("from airunner.domain import job", PurePosixPath("app.py"))
    }


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("domain/job.py", "import structlog"),
        ("domain/job.py", "from airunner.codec import mapping"),
        ("domain/job.py", "from airunner import config"),
        ("domain/job.py", "from airunner import __version__"),
        ("codec/mapping.py", "import airunner.stores.memory"),
        ("stores/sqlite/store.py", "from airunner.queues import base"),
        ("stores/sqlite/store.py", "from airunner import app"),
        ("stores/memory.py", "from airunner.stores.aws.store import AwsStore"),
        ("aws/provision/queues.py", "from airunner.stores.aws.layout import Layout"),
        ("handlers/calls.py", "from airunner.queues.base import Delivery"),
        ("services/composition.py", "from airunner.stores.memory import MemoryStore"),
        ("server/asgi.py", "from airunner.stores.sqlite import SqliteStore"),
        ("services/jobs.py", "if TYPE_CHECKING:\n    from airunner.rpc.jobs import JobServiceEndpoint"),
        ("services/jobs.py", "def late():\n    import airunner.server.asgi"),
        ("services/jobs.py", "from ..rpc import errors"),
        ("client/monitor.py", "from airunner.rpc.jobs import JobServiceEndpoint"),
        ("client/monitor.py", "from airunner.services.jobs import JobService"),
        ("client/monitor.py", "from airunner.codec.gen.job.v1 import job_pb2 as pb"),
        ("client/monitor.py", "from airunner.codec.gen.job.v1.job_connect import JobServiceClient"),
        ("reading/proof.py", "from airunner.client import AsyncClient"),
        ("reading/why/facts.py", "from airunner.stores.base import JobStore"),
        ("worker/source.py", "from airunner.fleet.runner import Runner"),
        ("local/aws_stack.py", "from airunner.cli.printing import say"),
        ("server/asgi.py", "from airunner.app import build"),
        ("server/asgi.py", "from airunner.cli.main import main"),
        ("cli/dev.py", "from airunner.testing.fakes import FakeQueue"),
        ("config.py", "from airunner.stores.base import JobStore"),
        ("telemetry.py", "from airunner.codec import mapping"),
        ("testing/fakes.py", "from airunner.server.asgi import application"),
        ("app.py", "from airunner.cli.main import main"),
        ("surprise/thing.py", "from airunner.domain import job"),
        ("worker/process.py", "import os\nenvironment = dict(os.environ)"),
        ("worker/process.py", "from os import getenv as read\nread('HOME')"),
        ("services/jobs.py", "import time\nnow = time.time()"),
        ("services/jobs.py", "from time import time_ns\nnow = time_ns()"),
        ("services/jobs.py", "import datetime as dt\nnow = dt.datetime.now(dt.UTC)"),
        ("services/jobs.py", "from datetime import UTC, datetime\nclock = datetime.now"),
        ("codec/errors.py", "from connectrpc.code import Code"),
        ("rpc/jobs.py", "from airunner.codec.gen.job.v1 import job_pb2 as pb"),
        ("client/calls.py", "import connectrpc.code"),
        ("client/calls.py", "from connectrpc import code"),
        ("services/jobs.py", "from botocore.exceptions import ClientError"),
        ("outbox/relay.py", "import asyncpg"),
        ("postgres/pool.py", "from airunner.outbox.relay import Relay"),
        ("worker/source.py", "from airunner.outbox.relay import Relay"),
        ("worker/source.py", "from airunner.codec.gen.job.v1 import job_pb2"),
        ("services/events.py", "from google.protobuf.message import Message"),
    ],
)
def test_a_wrong_turn_is_reported(path: str, source: str) -> None:
    assert len(violations(PurePosixPath(path), source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("domain/clock.py", "import time\nfrom airunner.domain import errors\nnow = time.time()"),
        ("codec/gen/job/v1/job_connect.py", "from connectrpc.code import Code"),
        ("codec/mapping.py", "from google.protobuf import json_format\nfrom airunner import telemetry"),
        ("services/jobs.py", "import time\nfrom airunner.stores import base\nstart = time.monotonic()"),
        ("rpc/errors.py", "from connectrpc.code import Code"),
        ("client/monitor.py", "from airunner.codec.errors import from_wire"),
        ("client/monitor.py", "from airunner.reading.proof import LogProof"),
        ("client/monitor.py", "if TYPE_CHECKING:\n    from airunner.codec.gen.job.v1 import job_pb2 as pb"),
        ("client/wire_client.py", "from airunner.codec import methods"),
        ("worker/source.py", "from airunner.client.async_client import AsyncClient"),
        ("fleet/runner.py", "from airunner.worker.worker import Worker"),
        ("stores/registry.py", "from airunner.stores.memory import MemoryStore"),
        ("stores/aws/store.py", "from airunner.stores.aws.rows import Rows"),
        ("aws/errors.py", "from botocore.exceptions import ClientError"),
        ("queues/sqs.py", "from airunner.aws.sqs import send"),
        ("config.py", "import os\nfrom airunner.domain import errors\nhome = os.environ['HOME']"),
        ("config/loading.py", "from os import environ\nfrom airunner.config import settings"),
        ("testing/stack.py", "from airunner.app import build\nfrom airunner.client import Client"),
        ("app.py", "from airunner.server.asgi import application\nfrom airunner.stores.sqlite import Store"),
        ("cli/server.py", "from airunner import __version__, app\nfrom airunner.server import health"),
        ("__init__.py", "from airunner.client import AsyncClient"),
    ],
)
def test_the_right_way_is_accepted(path: str, source: str) -> None:
    assert violations(PurePosixPath(path), source) == []


def violations(path: PurePosixPath, source: str) -> list[str]:
    """Name each use of something that the module at this path, relative to the package, must not know."""
    if path.is_relative_to(GENERATED):
        return []
    unit = unit_of(path)
    if unit not in RANK and unit not in LEAVES | {"app", "testing", ""}:
        return [f"{path}: is in no known layer"]
    names = set(imported(source, path))
    wrong = {f"{path}:{line}: imports {name}" for name, line, _ in names if not may_import(path, name)}
    uses = {(name, line) for name, line, for_types in names if not (for_types and is_message(unit, name))}
    elsewhere = {(name, line) for name, line in used(source) if not is_within(name, "airunner")}
    for name, line in uses | elsewhere:
        for reserved, at_home in RESERVED.items():
            if any(is_within(name, entry) for entry in reserved) and not at_home(path):
                wrong.add(f"{path}:{line}: imports {name}")
    return sorted(wrong)


def unit_of(path: PurePosixPath) -> str:
    """Name the layer's unit: a folder of the package, a module at its top, or "" for the package itself."""
    unit = path.parts[0].removesuffix(".py")
    return {"__init__": "", "__main__": "cli"}.get(unit, unit)


def is_message(unit: str, name: str) -> bool:
    return unit in ANNOTATES_MESSAGES and is_within(name, "airunner.codec.gen")


def may_import(path: PurePosixPath, name: str) -> bool:
    """Whether the module may import the dotted name; names of other packages matter to domain only."""
    unit = unit_of(path)
    top, _, rest = name.partition(".")
    if top != "airunner":
        return unit != "domain" or top in sys.stdlib_module_names
    target = rest.partition(".")[0]
    if target == unit:
        return unit != "stores" or stays_in_its_store(path, rest)
    if target not in RANK and target not in LEAVES | {"app", "testing"}:
        return unit != "domain"  # an attribute of the package itself, such as its version
    if target == "app":
        return unit in {"cli", "testing"}
    if target == "testing":
        return False
    return knows(unit, target, rest)


def stays_in_its_store(path: PurePosixPath, target: str) -> bool:
    """Whether an import between stores leaves the other concrete ones alone."""
    if str(path) == "stores/registry.py":
        return True
    home = ".".join(path.with_suffix("").parts)
    return all(is_within(home, store) for store in CONCRETE_STORES if is_within(target, store))


def knows(unit: str, target: str, rest: str) -> bool:
    if unit in LEAVES:
        return target == "domain"
    if unit == "app":
        return target != "cli"
    if target in LEAVES:
        return unit != "domain"
    if unit in ONLY:
        return any(is_within(rest, entry) for entry in ONLY[unit])
    return RANK[target] < RANK.get(unit, RANK_OF_OTHERS) or (unit, target) in SIDEWAYS


def imported(source: str, path: PurePosixPath) -> Iterator[tuple[str, int, bool]]:
    """Yield each imported dotted name with its line, and whether only type checkers import it."""
    package = ["airunner", *path.parent.parts]
    tree = ast.parse(source)
    checked = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        for_types = id(node) in checked
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parts, *([node.module] if node.module else [])])
            yield from ((name, node.lineno, for_types) for name in dotted(module, node))


def dotted(module: str, node: ast.ImportFrom) -> Iterator[str]:
    """Yield what an import names: a module, or what may be a module of a package."""
    if (
        is_within(module, "airunner")
        and module.count(".") > 1
        and not module.endswith((".v1", ".stores.aws"))
    ):
        yield module
    else:
        yield from (f"{module}.{alias.name}" for alias in node.names)


def used(source: str) -> Iterator[tuple[str, int]]:
    """Yield each dotted name that is read through an attribute, with import aliases resolved."""
    tree = ast.parse(source)
    meanings: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meanings |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            meanings |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            yield f"{meanings.get(first, first)}.{rest}", node.lineno


def is_within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")
