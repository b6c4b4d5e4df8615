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
TOP = len(LAYERS) - 1
LEAVES = {"config", "telemetry"}
# Neighbours in one layer do not know each other, but for these.
SIDEWAYS = {
    ("client", "airunner.reading"),  # what a monitor shows is proven and replayed by the same code
    ("generation", "airunner.outbox"),
    ("fleet", "airunner.worker"),
}
# Some layers know less than what is below them.
ONLY = {
    "client": (
        "airunner.domain",
        "airunner.codec",
        "airunner.handlers",
        "airunner.services.api",
        "airunner.reading",
    ),
    "reading": ("airunner.domain", "airunner.codec", "airunner.services.api"),
}


def is_aws_adapter(path: PurePosixPath) -> bool:
    return any(part.removesuffix(".py") in {"aws", "sqs"} or part.startswith("aws_") for part in path.parts)


def only_in(file: str) -> Callable[[PurePosixPath], bool]:
    return lambda path: str(path) == file


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
    ("connectrpc.code",): only_in("rpc/errors.py"),
    ("botocore", "aiobotocore", "boto3"): is_aws_adapter,
    ("google.protobuf",): inside("codec"),
    ("airunner.codec.gen",): inside("codec", "rpc", "client", "testing"),
}


def test_imports_point_one_way() -> None:
    problems = [
        problem
        for file in sorted(PACKAGE.rglob("*.py"))
        for problem in violations(PurePosixPath(file.relative_to(PACKAGE)), file.read_text(encoding="utf-8"))
    ]
    assert problems == []


def test_the_checker_sees_the_package() -> None:
    assert (PACKAGE / "domain").is_dir()
    assert "airunner.domain" in {
        name for name, _ in imported("from airunner.domain import job", PurePosixPath("app.py"))
    }


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("domain/job.py", "import structlog"),
        ("domain/job.py", "from airunner.codec import mapping"),
        ("domain/job.py", "from airunner import config"),
        ("domain/job.py", "from airunner import __version__"),
        ("codec/mapping.py", "import airunner.stores.memory"),
        ("stores/sqlite.py", "from airunner.queues import base"),
        ("stores/sqlite.py", "from airunner import app"),
        ("services/jobs.py", "if TYPE_CHECKING:\n    from airunner.rpc.jobs import JobHandlers"),
        ("services/jobs.py", "def late():\n    import airunner.server.asgi"),
        ("services/jobs.py", "from ..rpc import errors"),
        ("rpc/jobs.py", "from airunner.client import monitor"),
        ("client/monitor.py", "from airunner.rpc.jobs import JobHandlers"),
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
        ("rpc/jobs.py", "from connectrpc.code import Code"),
        ("rpc/jobs.py", "import connectrpc.code"),
        ("rpc/jobs.py", "from connectrpc import code"),
        ("services/jobs.py", "from botocore.exceptions import ClientError"),
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
        ("client/monitor.py", "from airunner.codec.errors import from_connect"),
        ("worker/source.py", "from airunner.client.aio import AsyncClient"),
        ("stores/aws/jobs.py", "from botocore.exceptions import ClientError"),
        ("queues/sqs.py", "import aiobotocore.session"),
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
    wrong = {f"{path}:{line}: imports {name}" for name, line in names if not may_import(unit, name)}
    for name, line in names | set(used(source)):
        for reserved, at_home in RESERVED.items():
            if any(is_within(name, entry) for entry in reserved) and not at_home(path):
                wrong.add(f"{path}:{line}: imports {name}")
    return sorted(wrong)


def unit_of(path: PurePosixPath) -> str:
    """Name the layer's unit: a folder of the package, a module at its top, or "" for the package itself."""
    unit = path.parts[0].removesuffix(".py")
    return {"__init__": "", "__main__": "cli"}.get(unit, unit)


def may_import(unit: str, name: str) -> bool:
    """Whether the unit may import the dotted name; names of other packages matter to domain only."""
    top, _, rest = name.partition(".")
    if top != "airunner":
        return unit != "domain" or top in sys.stdlib_module_names
    target = rest.partition(".")[0]
    if target == unit:
        return True
    if target not in RANK and target not in LEAVES | {"app", "testing"}:
        return unit != "domain"  # an attribute of the package itself, such as its version
    if target == "app":
        return unit in {"cli", "testing"}
    if target == "testing":
        return False
    return knows(unit, target) or any(unit == who and is_within(name, what) for who, what in SIDEWAYS)


def knows(unit: str, target: str) -> bool:
    if unit in LEAVES:
        return target == "domain"
    if unit == "app":
        return target != "cli"
    rank = RANK.get(unit, TOP)  # the package itself and testing stand where server and cli do
    return rank > 0 if target in LEAVES else RANK[target] < rank


def imported(source: str, path: PurePosixPath) -> Iterator[tuple[str, int]]:
    """Yield each imported dotted name with its line, those inside functions and conditions included."""
    package = ["airunner", *path.parent.parts]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parts, *([node.module] if node.module else [])])
            if module == "airunner" or not is_within(module, "airunner"):
                yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield module, node.lineno


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
