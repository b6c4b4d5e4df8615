"""The metadata endpoint of EC2, as it answers on a good day and on others; here it is on loopback."""

from __future__ import annotations

import pytest

from airunner.cli import exit_codes
from airunner.config import ConfigError, load_settings
from airunner.domain.errors import AirunnerError, DeadlineExceeded, NotFound, PermissionDenied, Unavailable
from airunner.fleet.runner import metadata as module
from airunner.fleet.runner.configuration import find_instance_id
from airunner.fleet.runner.metadata import InstanceMetadata, SpotWatch
from airunner.testing.clock import ManualClock
from tests.support.fleet import while_time_passes
from tests.support.metadata import NOTICE, MetadataEndpoint


async def asked_id(url: str) -> str:
    clock = ManualClock()
    async with InstanceMetadata(url, clock) as metadata:
        return await while_time_passes(clock, metadata.instance_id())


async def test_the_token_comes_first() -> None:
    with MetadataEndpoint() as endpoint:
        assert await asked_id(endpoint.url) == "i-0123456789abcdef0"
    assert endpoint.calls == ["PUT /latest/api/token", "GET /latest/meta-data/instance-id"]


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, NotFound), (401, PermissionDenied), (403, PermissionDenied), (500, Unavailable)],
)
async def test_what_it_refuses_is_told(status: int, error: type[AirunnerError]) -> None:
    with MetadataEndpoint(status=status) as endpoint, pytest.raises(error, match=f"answers {status}"):
        await asked_id(endpoint.url)


async def test_one_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.05)
    with MetadataEndpoint(hangs=True) as endpoint, pytest.raises(DeadlineExceeded, match="does not answer"):
        await asked_id(endpoint.url)


async def test_one_that_is_not_there() -> None:
    with MetadataEndpoint() as endpoint:
        pass
    with pytest.raises(Unavailable, match="cannot be reached"):
        await asked_id(endpoint.url)


@pytest.mark.parametrize("name", ["", "../other", "i-1/config", "<html>"])
async def test_an_id_that_is_none_becomes_no_name_of_a_parameter(name: str) -> None:
    with MetadataEndpoint(instance_id=name) as endpoint, pytest.raises(NotFound, match="names no instance"):
        await asked_id(endpoint.url)


@pytest.mark.parametrize("status", [200, 401, 404])
async def test_a_runner_that_cannot_learn_its_name_says_which_setting_is_missing(status: int) -> None:
    clock = ManualClock()
    with MetadataEndpoint("../x", status=status) as endpoint:
        settings = load_settings(environ={"AIRUNNER_FLEET__METADATA_URL": endpoint.url}).settings
        with pytest.raises(
            ConfigError, match=r"worker.instance_id: is not set .*, and the metadata end"
        ) as e:
            await while_time_passes(clock, find_instance_id(settings, clock))
    assert exit_codes.of_error(e.value) == 2


async def test_the_setting_counts_more_than_the_endpoint_and_is_checked() -> None:
    with MetadataEndpoint() as endpoint:
        environ = {"AIRUNNER_FLEET__METADATA_URL": endpoint.url, "AIRUNNER_INSTANCE_ID": "i-mine"}
        assert await find_instance_id(load_settings(environ=environ).settings, ManualClock()) == "i-mine"
        settings = load_settings(environ={**environ, "AIRUNNER_INSTANCE_ID": "../x"}).settings
        with pytest.raises(ConfigError, match=r"worker.instance_id: must be"):
            await find_instance_id(settings, ManualClock())
    assert not endpoint.calls


async def test_a_notice_is_told_once_and_tokens_are_replaced() -> None:
    notices: list[str] = []
    with MetadataEndpoint() as endpoint:
        async with InstanceMetadata(endpoint.url, ManualClock()) as metadata:
            watch = SpotWatch(metadata, lambda: notices.append("stop"))
            await watch.look()
            endpoint.forget_tokens()
            await watch.look()
            assert notices == []
            endpoint.notice = NOTICE
            await watch.look()
            await watch.look()
    assert notices == ["stop"]
    assert endpoint.calls.count("PUT /latest/api/token") == 2


async def test_a_watch_that_fails_says_so_once_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    notices: list[str] = []
    with MetadataEndpoint(status=401) as endpoint:
        async with InstanceMetadata(endpoint.url, ManualClock()) as metadata:
            watch = SpotWatch(metadata, lambda: notices.append("stop"))
            for _ in range(3):
                await watch.look()
            endpoint.status, endpoint.notice = 200, NOTICE
            await watch.look()
    assert notices == ["stop"]
    assert "".join(capsys.readouterr()).count("runner.metadata_unavailable") == 1
