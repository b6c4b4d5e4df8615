"""The way from a store to the model: calls of AWS with their tries as always, on clients of our own."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import ClientError

from airunner.aws.calls import Aws, AwsOptions
from tests.doubles.aws.model.errors import ModelError

if TYPE_CHECKING:
    from airunner.domain.clock import Clock

Method = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


class ModelAws(Aws):
    """Calls of AWS whose SDK clients are models; each takes `latency_seconds` of the loop's time."""

    def __init__(self, models: dict[str, Any], clock: Clock, *, latency_seconds: float = 0.005) -> None:
        super().__init__(AwsOptions(region="nowhere"), clock=clock)
        self._models = models
        self._latency_seconds = latency_seconds
        self.counts: Counter[str] = Counter()
        """The calls of each operation, each try of its own."""

    async def __aenter__(self) -> Self:
        self._clients = {name: ModelClient(model, self) for name, model in self._models.items()}
        return self

    async def perform(self, method: Callable[..., Any], name: str, arguments: dict[str, Any]) -> Any:
        """Perform a call of a model as the SDK would."""
        self.counts[name] += 1
        await asyncio.sleep(self._latency_seconds)
        try:
            answer = method(arguments)
            return await answer if inspect.isawaitable(answer) else answer
        except ModelError as error:
            reply: Any = {
                "Error": {"Code": error.code, "Message": ""},
                "ResponseMetadata": {"HTTPStatusCode": 400},
                **error.more,
            }
            raise ClientError(reply, name) from None


class ModelClient:
    """A client of the SDK, as far as `Aws` looks at one: its methods are those of a model."""

    def __init__(self, model: Any, aws: ModelAws) -> None:
        self._model = model
        self._aws = aws

    def __getattr__(self, name: str) -> Method:
        method = getattr(self._model, name)

        async def call(**arguments: Any) -> dict[str, Any]:
            answer: dict[str, Any] = await self._aws.perform(method, name, arguments)
            return answer

        return call
