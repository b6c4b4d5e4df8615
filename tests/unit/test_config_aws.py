"""The settings of a store on AWS: every way to write them, names of other programs, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airunner.app import build_signer
from airunner.aws import clients
from airunner.aws.connect import build_aws, find_region
from airunner.config import ConfigError, Loaded, StoreType, describe, load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import InvalidArgument
from airunner.stores.aws.layout import Layout

PLACE = "https://sqs.us-west-2.amazonaws.com/123456789"
# As the first specification has it.
SPECIFIED = f"""
store:
  type: sqs
  aws:
    region: us-west-2
  sqs:
    queues:
      default: {PLACE}/airunner-prod-default
      priority: {PLACE}/airunner-prod-priority
    default_visibility_timeout_seconds: 300
  dynamodb:
    jobs_table: airunner_jobs
    events_table: airunner_job_events
    events_ttl_days: 30
"""


def load(folder: Path, yaml: str = "", *, dotenv: str = "", **environ: str) -> Loaded:
    (folder / "airunner.yaml").write_text(yaml)
    (folder / ".env").write_text(dotenv)
    return load_settings(environ=environ, cwd=folder)


def refusal(folder: Path, yaml: str = "", **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, yaml, **environ)
    return str(caught.value)


def test_the_specified_file_loads_as_it_is(tmp_path: Path) -> None:
    loaded = load(tmp_path, SPECIFIED)
    settings = loaded.settings
    assert settings.store.type is StoreType.AWS
    assert settings.store.aws.region == "us-west-2"
    assert settings.store.sqs.queues == {
        "default": f"{PLACE}/airunner-prod-default",
        "priority": f"{PLACE}/airunner-prod-priority",
    }
    assert settings.defaults.visibility_timeout_seconds == 300
    assert settings.store.event_retention_days == 30
    assert loaded.unknown_variables == ()


@pytest.mark.parametrize("name", ["aws", "sqs"])
def test_sqs_is_the_old_name_of_aws(tmp_path: Path, name: str) -> None:
    given = [
        load(tmp_path, f"store: {{type: {name}}}"),
        load(tmp_path, AIRUNNER_STORE__TYPE=name),
        load_settings(cwd=tmp_path, environ={}, flags={"store.type": name}),
    ]
    assert [loaded.settings.store.type for loaded in given] == [StoreType.AWS] * 3
    lines = [line for loaded in given for line in describe(loaded) if line.path == "store.type"]
    assert [line.value_text for line in lines] == ["aws"] * 3


@pytest.mark.parametrize(
    ("alias", "path", "value"),
    [
        ("store: {sqs: {default_visibility_timeout_seconds: 77}}", "defaults.visibility_timeout_seconds", 77),
        ("store: {dynamodb: {events_ttl_days: 9}}", "store.event_retention_days", 9),
    ],
)
def test_second_places_of_one_setting(tmp_path: Path, alias: str, path: str, value: int) -> None:
    loaded = load(tmp_path, alias)
    section, _, name = path.partition(".")
    assert getattr(getattr(loaded.settings, section), name) == value
    assert loaded.origins[path].startswith("file airunner.yaml, key store.")


def test_second_places_have_variables_that_win_over_the_file(tmp_path: Path) -> None:
    loaded = load(tmp_path, "store: {event_retention_days: 4}", AIRUNNER_STORE__DYNAMODB__EVENTS_TTL_DAYS="9")
    assert loaded.settings.store.event_retention_days == 9
    assert loaded.unknown_variables == ()


def test_both_places_in_one_file_are_an_error(tmp_path: Path) -> None:
    text = refusal(tmp_path, "store: {event_retention_days: 4, dynamodb: {events_ttl_days: 9}}")
    assert "store.event_retention_days and store.dynamodb.events_ttl_days are one setting" in text


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("a,b", {"a": "", "b": ""}),
        ("a=http://h/1/a, b", {"a": "http://h/1/a", "b": ""}),
        ("a=https://h/1/a,b=https://h/1/b", {"a": "https://h/1/a", "b": "https://h/1/b"}),
    ],
)
def test_queues_from_a_variable(tmp_path: Path, text: str, queues: dict[str, str]) -> None:
    assert load(tmp_path, AIRUNNER_STORE__SQS__QUEUES=text).settings.store.sqs.queues == queues


@pytest.mark.parametrize("yaml", ["[a, b]", "{a: , b: ''}", "'a,b'"])
def test_queues_by_name_from_a_file(tmp_path: Path, yaml: str) -> None:
    queues = load(tmp_path, f"store: {{sqs: {{queues: {yaml}}}}}").settings.store.sqs.queues
    assert queues == {"a": "", "b": ""}


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        (
            "sqs: {queues: {a: 'ftp://x'}}",
            "store.sqs.queues: must be an http:// or https:// URL, not 'ftp://x'",
        ),
        ("sqs: {queues: [a b]}", "store.sqs.queues: must be a queue name"),
        ("sqs: {queues: [a, a]}", "store.sqs.queues: must not name the same entry twice"),
        ("sqs: {queues: []}", "store.sqs.queues: must have at least 1 item"),
        ("sqs: {queues: 5}", "store.sqs.queues: must be"),
        ("aws: {region: Frankfurt!}", "store.aws.region: must be the name of a region"),
        ("aws: {env: a b}", "store.aws.env: must be 1 to 20 letters"),
        ("aws: {endpoint_url: here}", "store.aws.endpoint_url: must be an http:// or https:// URL"),
        ("dynamodb: {jobs_table: a}", "store.dynamodb.jobs_table: must be 3 to 255 letters"),
        ("s3: {bucket: Big_Bucket}", "store.s3.bucket: must be the name of a bucket"),
    ],
)
def test_what_aws_would_refuse_is_refused(tmp_path: Path, yaml: str, message: str) -> None:
    assert refusal(tmp_path, f"store: {{{yaml}}}").startswith(message)


@pytest.mark.parametrize("address", ["10.0.0.7:8080", "http://a/b", "https://u:p@a", "ftp://a", "http://a:0"])
def test_where_others_ring_is_the_address_of_a_server(tmp_path: Path, address: str) -> None:
    said = refusal(tmp_path, f"cluster: {{advertise: '{address}'}}")
    assert said.startswith("cluster.advertise: must be http:// or https://, a host and a port")


# Names of other programs


def test_variables_of_the_sdk_count_where_ours_say_nothing(tmp_path: Path) -> None:
    loaded = load(tmp_path, AWS_REGION="eu-west-1", AWS_ENDPOINT_URL="http://127.0.0.1:5000")
    assert loaded.settings.store.aws.region == "eu-west-1"
    assert loaded.settings.store.aws.endpoint_url == "http://127.0.0.1:5000"
    assert loaded.origins["store.aws.region"] == "environment AWS_REGION"


def test_variables_of_the_sdk_have_an_order(tmp_path: Path) -> None:
    both = load(tmp_path, AWS_DEFAULT_REGION="eu-west-1", AWS_REGION="eu-west-2")
    assert both.settings.store.aws.region == "eu-west-2"
    assert load(tmp_path, AWS_DEFAULT_REGION="eu-west-1").settings.store.aws.region == "eu-west-1"
    assert (
        load(tmp_path, AWS_DEFAULT_REGION="eu-west-1", AWS_REGION="").settings.store.aws.region == "eu-west-1"
    )


def test_every_place_of_ours_wins_over_the_variables_of_the_sdk(tmp_path: Path) -> None:
    ours = "store: {aws: {region: eu-north-1}}"
    assert load(tmp_path, ours, AWS_REGION="eu-west-1").settings.store.aws.region == "eu-north-1"
    named = load(tmp_path, AIRUNNER_STORE__AWS__REGION="eu-north-1", AWS_REGION="eu-west-1")
    assert named.origins["store.aws.region"] == "environment AIRUNNER_STORE__AWS__REGION"


def test_variables_of_the_sdk_may_stand_in_dotenv(tmp_path: Path) -> None:
    loaded = load(tmp_path, dotenv="AWS_REGION=eu-west-3\n")
    assert loaded.settings.store.aws.region == "eu-west-3"
    assert loaded.origins["store.aws.region"] == "environment AWS_REGION (.env)"
    above = load(tmp_path, dotenv="AWS_REGION=eu-west-3\n", AWS_DEFAULT_REGION="eu-west-1")
    assert above.settings.store.aws.region == "eu-west-1"


# What is built from them


def test_a_server_on_aws_needs_a_signing_key_and_makes_no_folder(tmp_path: Path) -> None:
    settings = load(tmp_path, SPECIFIED, AIRUNNER_DATA_DIR=str(tmp_path / "data")).settings
    with pytest.raises(ConfigError, match=r"token_keys: must be set with store\.type aws"):
        build_signer(settings)
    assert not (tmp_path / "data").exists()
    build_signer(load(tmp_path, SPECIFIED, AIRUNNER_TOKEN_KEYS="k" * 64).settings)
    with pytest.raises(ConfigError, match=r"token_keys: each must have at least 16 bytes"):
        build_signer(load(tmp_path, SPECIFIED, AIRUNNER_TOKEN_KEYS="k" * 64 + ",short").settings)


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The SDK's own file of profiles, and nothing else that it goes by."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "profiles"))
    clients._session.cache_clear()
    yield tmp_path / "profiles"
    clients._session.cache_clear()


def test_a_region_is_needed(tmp_path: Path, profiles: Path) -> None:
    profiles.write_text("[default]\noutput = json\n")
    with pytest.raises(
        ConfigError, match=r"store\.aws\.region: must be set, or AWS_REGION, or the region of"
    ):
        build_aws(load(tmp_path, "store: {type: sqs}").settings, SystemClock())


def test_the_region_of_a_profile_is_the_last_resort(
    tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.write_text("[default]\nregion = eu-west-1\n[profile work]\nregion = eu-north-1\n")
    settings = load(tmp_path, "store: {type: sqs}").settings
    assert find_region(settings) == "eu-west-1"
    clients._session.cache_clear()
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert find_region(settings) == "eu-north-1"
    assert find_region(load(tmp_path, SPECIFIED).settings) == "us-west-2"


def test_the_layout_has_the_names_of_the_settings(tmp_path: Path) -> None:
    yaml = """
    store:
      listing_shards: 4
      aws: {env: prod}
      sqs: {queues: [default, builds]}
      dynamodb: {jobs_table: j_t, events_table: e_t, streams: true}
      s3: {bucket: some-bucket}
    """
    layout = Layout.of(load(tmp_path, yaml).settings.store)
    assert layout == Layout(
        env="prod",
        queues={"default": "", "builds": ""},
        jobs_table="j_t",
        events_table="e_t",
        bucket="some-bucket",
        listing_shards=4,
        streams=True,
    )
    assert layout.queue_name("builds") == "airunner-prod-builds"
    assert layout.dead_letter_name("builds") == "airunner-prod-builds-dlq"


def test_a_queue_with_a_url_has_the_name_of_its_url(tmp_path: Path) -> None:
    layout = Layout.of(load(tmp_path, SPECIFIED).settings.store)
    assert layout.env == "dev"
    assert layout.dead_letter_name("default") == "airunner-prod-default-dlq"


def test_names_longer_than_sqs_allows_are_refused() -> None:
    layout = Layout(env="prod")
    assert len(layout.dead_letter_name("q" * 62)) == 80
    with pytest.raises(InvalidArgument, match="more than 80 characters"):
        layout.dead_letter_name("q" * 63)
