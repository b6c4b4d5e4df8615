"""Who paints: a service behind HTTP, or, in mock mode, this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import aiohttp

from airunner import PermanentFailure
from pictures import painting

MAX_PICTURE_BYTES: Final = 20 * 1024 * 1024
# Of the answers that blame the request, those that another try may change: a key of ours that is mended soon,
# a slow line, a limit of requests.
TRIED_AGAIN: Final = frozenset({401, 403, 408, 425, 429})


class ProviderFailed(Exception):
    """The provider did not paint this time; another try may help."""


class Provider(Protocol):
    """Paints pictures."""

    async def paint(self, prompt: str, *, idempotency_key: str) -> bytes:
        """Return a PNG. However often a key is sent, it is painted and paid for once.

        PermanentFailure if this prompt is never painted; any other error may be tried again.
        """


@dataclass(frozen=True, slots=True)
class HttpProvider:
    """A provider that takes `{"prompt": ...}` and answers with the picture, or with `code` and `message`."""

    url: str
    deadline_seconds: float = 60.0
    """For all of a call, the picture included."""

    async def paint(self, prompt: str, *, idempotency_key: str) -> bytes:
        """Ask once: the queue knows when to ask again."""
        timeout = aiohttp.ClientTimeout(total=self.deadline_seconds)
        headers = {"Idempotency-Key": idempotency_key}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.post(
                    self.url, json={"prompt": prompt}, headers=headers, allow_redirects=False
                ) as answer,
            ):
                return await _read_picture(answer)
        except TimeoutError:
            raise ProviderFailed(f"no answer within {self.deadline_seconds:g} s") from None
        except aiohttp.ClientError as error:
            raise ProviderFailed(f"the connection failed: {type(error).__name__}") from error


class MockProvider:
    """Paints in this process, at once and for nothing."""

    async def paint(self, prompt: str, *, idempotency_key: str) -> bytes:  # noqa: ARG002  nothing to pay twice
        """Return a picture of the prompt."""
        return await asyncio.to_thread(painting.paint, prompt)


def provider_of(environment: Mapping[str, str]) -> Provider:
    """Return the provider that the variables of a process name."""
    if environment.get("INTEGRATION_USE_MOCK", "").lower() in {"1", "true", "yes"}:
        return MockProvider()
    if not (url := environment.get("PROVIDER_URL")):
        raise ValueError("set PROVIDER_URL, or INTEGRATION_USE_MOCK=true")
    return HttpProvider(url, float(environment.get("PROVIDER_DEADLINE_SECONDS", "60")))


async def _read_picture(answer: aiohttp.ClientResponse) -> bytes:
    if 400 <= answer.status < 500 and answer.status not in TRIED_AGAIN:
        raise await _refusal(answer)
    if answer.status != 200:
        raise ProviderFailed(f"the answer was HTTP {answer.status}")
    picture = await _read_at_most(answer, MAX_PICTURE_BYTES)
    if not picture.startswith(painting.PNG_SIGNATURE):
        raise ProviderFailed("the answer was no PNG")
    return picture


async def _refusal(answer: aiohttp.ClientResponse) -> PermanentFailure:
    """Return why a prompt is not painted, in the provider's words if it has any."""
    try:
        told = await answer.json()
        return PermanentFailure(str(told["code"]), str(told["message"]))
    except (aiohttp.ClientError, ValueError, LookupError, TypeError):
        return PermanentFailure("refused", f"the answer was HTTP {answer.status}")


async def _read_at_most(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > limit:
            raise ProviderFailed(f"the picture has more than {limit} bytes")
    return bytes(content)
