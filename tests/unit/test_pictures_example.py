"""The parts of examples/generation that need no database: painting, provider, storage."""

from __future__ import annotations

import asyncio
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from airunner import PermanentFailure
from pictures import painting, provider
from pictures.mock_provider import Handler, Ledger
from pictures.provider import HttpProvider, MockProvider, ProviderFailed, provider_of
from pictures.storage import FolderStorage, S3Storage, storage_at

KEY = "0f8fad5b-d9cb-469f-a165-70867728950e"


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """What the mock provider counts in this test alone."""
    monkeypatch.setattr(Handler, "ledger", Ledger())
    return Handler.ledger


@pytest.fixture
def mock_url(ledger: Ledger) -> Iterator[str]:
    with serving(Handler) as url:
        yield url


def answering(status: int, body: bytes, **headers: str) -> type[BaseHTTPRequestHandler]:
    """Return a provider that always says the same."""

    class Scripted(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class has it
            pass

    return Scripted


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = len(painting.PNG_SIGNATURE)
    while position < len(png):
        (length,) = struct.unpack_from(">I", png, position)
        kind, data = png[position + 4 : position + 8], png[position + 8 : position + 8 + length]
        assert struct.unpack_from(">I", png, position + 8 + length) == (zlib.crc32(kind + data),)
        yield kind, data
        position += length + 12


def test_a_painting_is_a_png_and_always_the_same() -> None:
    png = painting.paint("a lighthouse \ud800")
    assert png.startswith(painting.PNG_SIGNATURE)
    found = dict(chunks(png))
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack_from(">II", found[b"IHDR"]) == (painting.WIDTH, painting.HEIGHT)
    assert len(zlib.decompress(found[b"IDAT"])) == painting.HEIGHT * (1 + 3 * painting.WIDTH)
    assert png == painting.paint("a lighthouse \ud800") != painting.paint("a boat")


async def test_a_key_is_painted_and_paid_for_once(mock_url: str, ledger: Ledger) -> None:
    asked = HttpProvider(mock_url)
    pictures = [await asked.paint("a boat", idempotency_key=KEY) for _ in range(2)]
    assert pictures == [painting.paint("a boat")] * 2
    assert (ledger.requests, len(ledger.pictures)) == (2, 1)


async def test_what_the_provider_refuses_is_permanent_and_what_fails_is_not(mock_url: str) -> None:
    asked = HttpProvider(mock_url)
    with pytest.raises(PermanentFailure, match="does not paint this") as refused:
        await asked.paint("[refused] a banknote", idempotency_key=KEY)
    assert refused.value.code == "content_policy"
    with pytest.raises(ProviderFailed, match="HTTP 503"):
        await asked.paint("[busy] hills", idempotency_key="busy")
    assert await asked.paint("[busy] hills", idempotency_key="busy")


async def test_a_provider_that_is_too_slow_or_away_is_asked_again_later(mock_url: str) -> None:
    with pytest.raises(ProviderFailed, match=r"no answer within 0\.1 s"):
        await HttpProvider(mock_url, deadline_seconds=0.1).paint("[slow] clouds", idempotency_key=KEY)
    with serving(Handler) as url:
        pass
    with pytest.raises(ProviderFailed, match="the connection failed"):
        await HttpProvider(url).paint("clouds", idempotency_key=KEY)


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (422, b"not JSON", PermanentFailure),
        (404, b'["nothing"]', PermanentFailure),
        (429, b"{}", ProviderFailed),
        (401, b"{}", ProviderFailed),
        (307, b"", ProviderFailed),
        (200, b"<p>a page</p>", ProviderFailed),
        (200, painting.PNG_SIGNATURE + b"x" * 1000, ProviderFailed),
    ],
)
async def test_odd_answers(
    status: int, body: bytes, failure: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "MAX_PICTURE_BYTES", 1000)
    with serving(answering(status, body, location="http://127.0.0.1:9/")) as url, pytest.raises(failure):
        await HttpProvider(url).paint("a boat", idempotency_key=KEY)


async def test_variables_name_the_provider() -> None:
    mock = provider_of({"INTEGRATION_USE_MOCK": "true", "PROVIDER_URL": "http://provider"})
    assert isinstance(mock, MockProvider)
    assert await mock.paint("a boat", idempotency_key=KEY) == painting.paint("a boat")
    named = provider_of({"PROVIDER_URL": "http://provider", "PROVIDER_DEADLINE_SECONDS": "7"})
    assert named == HttpProvider("http://provider", 7.0)
    with pytest.raises(ValueError, match="INTEGRATION_USE_MOCK"):
        provider_of({"INTEGRATION_USE_MOCK": "false"})


async def test_a_folder_keeps_pictures_whole_however_often_they_are_put(tmp_path: Path) -> None:
    storage = storage_at(str(tmp_path / "kept"))
    assert isinstance(storage, FolderStorage)
    await asyncio.gather(*(storage.put("a.png", b"x" * 100_000) for _ in range(5)))
    location = await storage.put("a.png", b"the last")
    assert (Path(location).read_bytes(), await storage.get("a.png")) == (b"the last", b"the last")
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["a.png"]
    with pytest.raises(FileNotFoundError):
        await storage.get("b.png")


def test_a_bucket_is_named_as_people_write_it() -> None:
    assert storage_at("s3://shop") == S3Storage("shop")
    assert (
        storage_at("s3://shop/pictures/")
        == storage_at("s3://shop/pictures")
        == S3Storage("shop", "pictures/")
    )
