"""The demo of the generation queue: `make generation-demo` runs examples/generation with all that it needs.

It starts PostgreSQL, an emulated SQS, a server, a relay, a worker, a provider and the application, orders
three pictures as its page would, and shows how long each hop took. With --serve it stays until Ctrl-C, so
that somebody can open the page.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from airunner.cli.signals import on_shutdown_signals
from airunner.domain.errors import AirunnerError
from airunner.local.generation_stack import GenerationStack

if TYPE_CHECKING:
    from airunner.local.children import ChildProcess

EXAMPLE: Final = Path(__file__).resolve().parents[1] / "examples" / "generation"
HANDLERS: Final = "pictures.handlers"
LIMIT_SECONDS: Final = 300
ORDER_SECONDS: Final = 120
CREDITS: Final = 10
HOPS: Final = ("order", "outbox", "queue", "handler", "page")
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An order of the demo, and what must come of it."""

    prompt: str
    state: str = "captured"
    tries: int = 1


ORDERS: Final = (
    Wanted(prompt="a lighthouse at dawn"),
    Wanted(prompt="[busy] green hills", tries=2),
    Wanted(prompt="[refused] a banknote", state="refunded"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What runs, and where."""

    page: str
    server: str
    provider: str
    api_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One order, as the page and the server tell of it."""

    picture: dict[str, str]
    session: dict[str, Any]
    instants: tuple[float, ...]
    """When it was ordered, enqueued, sent, begun, judged and heard of, in Unix seconds."""

    @property
    def hops(self) -> list[str]:
        """How long each hop took, in milliseconds."""
        pairs = zip(self.instants, self.instants[1:], strict=False)
        return [f"{max(0, 1000 * (after - before)):,.0f}" for before, after in pairs]

    def problems(self, wanted: Wanted) -> list[str]:
        """Return a sentence for all that is not as it must be."""
        facts = {
            "state": (self.picture["state"], wanted.state),
            "tries": (self.session["attempts"], wanted.tries),
            "number of images": (len(self.session["images"]), 1 if wanted.state == "captured" else 0),
        }
        problems = [
            f"{wanted.prompt}: its {what} is {got!r}, not {expected!r}"
            for what, (got, expected) in facts.items()
            if got != expected
        ]
        return problems + [
            f"{image['location']} is not what the worker wrote"
            for image in self.session["images"]
            if hashlib.sha256(Path(image["location"]).read_bytes()).hexdigest() != image["sha256"]
        ]


def main() -> int:
    """Run the demo; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, default=Path(".airunner/generation-demo"), metavar="FOLDER")
    parser.add_argument("--serve", action="store_true", help="stay until Ctrl-C, for a browser")
    options = parser.parse_args()
    return asyncio.run(run(Console(highlight=False), options.pictures.resolve(), serve=options.serve))


async def run(console: Console, pictures: Path, *, serve: bool) -> int:
    """Start everything, do what is to be shown, and end everything."""
    with tempfile.TemporaryDirectory(prefix="airunner-generation-demo-") as folder:
        variables = {"PYTHONPATH": str(EXAMPLE), "PICTURES_STORAGE": str(pictures)}
        stack = GenerationStack(Path(folder), variables)
        if task := asyncio.current_task():
            on_shutdown_signals(task.cancel, stack.kill)
        try:
            async with stack:
                async with asyncio.timeout(LIMIT_SECONDS):
                    site = await start(console, stack)
                    code = await play(console, site)
                if serve and not code:
                    await stay(console, site)
                return code
        except TimeoutError:
            return complain(f"the demo did not come to its end within {LIMIT_SECONDS} s")
        except (AirunnerError, aiohttp.ClientError) as error:
            return complain(str(error))
        except asyncio.CancelledError:
            return INTERRUPTED


async def start(console: Console, stack: GenerationStack) -> Site:
    """Start all that there is, and say so."""
    console.print("[bold]generation demo[/]: from a transaction to a picture in a page\n")
    provider = await stack.start(
        "--port",
        "0",
        awaited="mock provider on",
        module="pictures.mock_provider",
        environment=stack.environment,
    )
    await stack.prepare()
    tell(console, "postgres", stack.postgres.pid, "database shop, with the schema of the outbox")
    tell(console, "sqs", stack.emulator.pid, f"emulated on {stack.emulator.url}")
    provider_url = await provider.ready()
    tell(console, "provider", provider.pid, f"{provider_url}, which refuses and stumbles on request")
    stack.environment["PROVIDER_URL"] = provider_url
    await stack.run(purpose="the tables of the application", module="pictures.database")
    server, relay, worker = await stack.start_services(HANDLERS)
    server_url = await server.ready()
    tell(console, "server", server.pid, f"{server_url}, service generations")
    tell(console, "relay", relay.pid, "moves committed rows to SQS")
    tell(console, "worker", worker.pid, f"handlers of {HANDLERS}")
    app = await start_application(stack, server_url)
    page = await app.ready()
    tell(console, "page", app.pid, f"{page}\n")
    return Site(page=page, server=server_url, provider=provider_url, api_key=stack.api_key)


async def start_application(stack: GenerationStack, server_url: str) -> ChildProcess:
    """Return the application, which is not ready yet."""
    known = {"AIRUNNER_SERVER": server_url, "AIRUNNER_API_KEY": stack.api_key}
    return await stack.start(
        *("--listen", "127.0.0.1:0"),
        awaited="pictures on",
        module="pictures.app",
        environment={**stack.environment, **known},
    )


async def play(console: Console, site: Site) -> int:
    """Order the pictures, show what came of them, and return the exit code."""
    timeout = aiohttp.ClientTimeout(total=ORDER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follow(http, site, wanted)) for wanted in ORDERS]
        seen = [task.result() for task in following]
        left = (await fetch(http, f"{site.page}/pictures"))["credits"]
        usage = await fetch(http, site.provider)
    show(console, seen)
    paid = sum(one.picture["state"] == "captured" for one in seen)
    console.print(f"  {left} of {CREDITS} credits are left: {paid} were captured, one was refunded.")
    console.print(
        f"  The provider was asked {usage['requests']} times and painted {usage['pictures']} pictures.\n"
    )
    problems = [text for wanted, one in zip(ORDERS, seen, strict=True) for text in one.problems(wanted)]
    if (left, usage) != (CREDITS - paid, {"requests": 4, "pictures": paid}):
        problems.append("credits, requests and pictures are not what they must be")
    for problem in problems:
        complain(problem)
    return bool(problems)


async def stay(console: Console, site: Site) -> None:
    """Let people use the page until they press Ctrl-C, which is a good end."""
    console.print(f"  Open [bold]{site.page}[/] and order some yourself; Ctrl-C ends it.")
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def follow(http: aiohttp.ClientSession, site: Site, wanted: Wanted) -> Seen:
    """Order a picture and hear of it as the page does."""
    ordered_at, picture_id = time.time(), str(uuid.uuid4())
    body = {"id": picture_id, "prompt": wanted.prompt}
    async with http.post(f"{site.page}/pictures", json=body, raise_for_status=True):
        pass
    async with http.get(f"{site.page}/pictures/{picture_id}/events", raise_for_status=True) as stream:
        heard_at = ordered_at
        async for line in stream.content:
            if line.startswith((b"event: done", b"event: failed")):
                heard_at = time.time()
    key = {"authorization": f"Bearer {site.api_key}"}
    session = await fetch(http, f"{site.server}/v1/generations/{picture_id}", headers=key)
    told = (await fetch(http, f"{site.page}/pictures"))["pictures"]
    between = (datetime.fromisoformat(step["at"]).timestamp() for step in session["timeline"])
    return Seen(
        picture=next(one for one in told if one["id"] == picture_id),
        session=session,
        instants=(ordered_at, *between, heard_at),
    )


async def fetch(http: aiohttp.ClientSession, url: str, **options: Any) -> dict[str, Any]:
    """Return an answer in JSON."""
    async with http.get(url, raise_for_status=True, **options) as answer:
        found: dict[str, Any] = json.loads(await answer.read())
        return found


def show(console: Console, seen: list[Seen]) -> None:
    """Show the hops of each order, the pictures, and why one was not painted."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(" picture", no_wrap=True)
    for column in ("end", "tries", *HOPS):
        table.add_column(column, justify="left" if column == "end" else "right", no_wrap=True)
    for one in seen:
        prompt, state = escape(one.picture["prompt"]), one.picture["state"]
        table.add_row(f" {prompt}", state, str(one.session["attempts"]), *one.hops)
    console.print(table)
    console.print("  Milliseconds of each hop: order to commit, outbox to SQS, queue to handler,")
    console.print("  handler to verdict, verdict to page.\n")
    for one in seen:
        for image in one.session["images"]:
            console.print(f"  {image['location']}", soft_wrap=True)
            console.print(f"  {image['byte_count']:,} bytes, SHA-256 {image['sha256']}", soft_wrap=True)
        if code := one.session["code"]:
            console.print(f"  {escape(one.picture['prompt'])}: {code}, {escape(one.picture['reason'])}")
    console.print()


def tell(console: Console, name: str, pid: int, text: str) -> None:
    """Say that something runs."""
    console.print(f"  [bold]{name:<9}[/] pid {pid:<7} {text}", soft_wrap=True)


def complain(text: str) -> int:
    """Say what is wrong; return the exit code for that."""
    print(f"generation demo: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
