"""The kinds of store: each can be built by its name, and says what it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from airunner.app import (
    back_up_store,
    build_services,
    build_signer,
    build_store,
    locate_store,
    open_store_beside,
    restore_store,
)
from airunner.config import Secret, Settings, StoreType
from airunner.config.settings import AwsSettings, ClusterSettings, DynamodbSettings, StoreSettings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition
from airunner.stores.registry import STORES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def settings_of(kind: StoreType, folder: Path, *, streams: bool = False) -> Settings:
    store = StoreSettings(
        type=kind, aws=AwsSettings(region="eu-west-1"), dynamodb=DynamodbSettings(streams=streams)
    )
    return Settings(store=store, data_dir=folder)


def test_every_type_of_the_settings_has_its_kind() -> None:
    assert set(STORES) == set(StoreType)


@pytest.mark.parametrize("kind", StoreType)
def test_a_store_is_built_by_its_name_and_touches_nothing_before_it_is_opened(
    kind: StoreType, folder: Path
) -> None:
    store = build_store(settings_of(kind, folder), SystemClock())
    assert store.capabilities.durable == (kind is not StoreType.MEMORY)
    assert not folder.exists()


@pytest.mark.parametrize(("kind", "is_aws"), [(kind, kind is StoreType.AWS) for kind in StoreType])
def test_what_a_store_can_do_beyond_the_others(kind: StoreType, is_aws: bool, folder: Path) -> None:
    store = build_store(settings_of(kind, folder), SystemClock())
    abilities = (store.payload_links, store.dead_letters, store.shared)
    assert [ability is not None for ability in abilities] == [is_aws] * 3
    assert store.changes is None
    streaming = build_store(settings_of(kind, folder, streams=True), SystemClock())
    assert (streaming.changes is not None) == is_aws


@pytest.mark.parametrize(("kind", "can_ring"), [(kind, kind is StoreType.AWS) for kind in StoreType])
def test_servers_ring_each_other_where_they_share_a_store_and_say_where_they_are(
    kind: StoreType, can_ring: bool, folder: Path
) -> None:
    silent = settings_of(kind, folder).but(token_keys=(Secret("k" * 32),))
    told = silent.but(cluster=ClusterSettings(advertise="http://10.0.0.7:8080"))
    services = build_services(told, SystemClock())
    assert (services.ringer is not None, services.bells is not None) == (can_ring, can_ring)
    assert build_services(silent, SystemClock()).bells is None


def test_what_cannot_be_done_beside_a_server_is_said(folder: Path) -> None:
    with pytest.raises(FailedPrecondition, match="can only be reached inside its server"):
        open_store_beside(settings_of(StoreType.MEMORY, folder))
    with pytest.raises(FailedPrecondition, match="there is no database in"):
        open_store_beside(settings_of(StoreType.SQLITE, folder), must_exist=True)
    open_store_beside(settings_of(StoreType.SQLITE, folder))
    open_store_beside(settings_of(StoreType.AWS, folder), must_exist=True)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (StoreType.MEMORY, "cannot be copied"),
        (StoreType.SQLITE, "there is no database in"),
        (StoreType.AWS, "point-in-time recovery"),
    ],
)
def test_what_cannot_be_backed_up_is_said(kind: StoreType, reason: str, folder: Path) -> None:
    with pytest.raises(FailedPrecondition, match=reason):
        back_up_store(settings_of(kind, folder), folder / "copy.db")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (StoreType.MEMORY, "cannot be restored"),
        (StoreType.SQLITE, "there is no backup"),
        (StoreType.AWS, "restore is for the embedded store"),
    ],
)
def test_what_cannot_be_restored_is_said(kind: StoreType, reason: str, folder: Path) -> None:
    with pytest.raises(FailedPrecondition, match=reason):
        restore_store(settings_of(kind, folder), folder / "copy.db")
    assert not folder.exists()


@pytest.mark.parametrize("kind", StoreType)
def test_every_store_says_where_it_is(kind: StoreType, folder: Path) -> None:
    expected = {
        StoreType.MEMORY: "the memory of its server",
        StoreType.SQLITE: str(folder / "airunner.db"),
        StoreType.AWS: "table airunner_dev_jobs on AWS",
    }
    assert locate_store(settings_of(kind, folder)) == expected[kind]


@pytest.mark.parametrize(("kind", "kept"), [(StoreType.MEMORY, False), (StoreType.SQLITE, True)])
def test_a_signing_key_is_kept_where_jobs_are(kind: StoreType, kept: bool, folder: Path) -> None:
    build_signer(settings_of(kind, folder))
    assert (folder / "token.key").exists() == kept
