"""The Settings tree: every key, its default and its rule. It knows nothing of files, variables or flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args, get_type_hints

from airunner.config.section import Section, SettingField, setting
from airunner.config.values import (
    AccountId,
    BucketName,
    CommaList,
    DistinctCommaList,
    EnvironmentName,
    FilePath,
    HourlyPrices,
    ListenAddress,
    MetricNamespace,
    OptionalDistinctCommaList,
    OutboxAddresses,
    ParameterPath,
    QueueAddresses,
    QueueName,
    RegionName,
    ReplicaUrl,
    SchemaName,
    Seconds,
    Secret,
    SecretKey,
    ServerUrl,
    TableName,
    WholeNumber,
)

MAX_VISIBILITY_SECONDS = 43_200
MAX_WAIT_SECONDS = 3_600
MAX_RETENTION_DAYS = 3_650
MAX_RUNTIME_MINUTES = 43_200
MAX_LISTING_SHARDS = 64


class StoreType(StrEnum):
    """The kinds of store; `sqs`, the name that `aws` once had, is still understood."""

    MEMORY = "memory"
    SQLITE = "sqlite"
    AWS = "aws"

    @classmethod
    def _missing_(cls, value: object) -> StoreType | None:
        return cls.AWS if value == "sqs" else None


class ServiceName(StrEnum):
    """The services that a server can offer."""

    JOBS = "jobs"
    EVENTS = "events"
    GENERATIONS = "generations"


class FleetPart(StrEnum):
    """What a fleet needs to have running, once or on several machines."""

    TERMINATION = "termination"
    HOUSEKEEPING = "housekeeping"
    SCHEDULE = "schedule"


class LogLevel(StrEnum):
    """The least severe messages that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line looks; AUTO is CONSOLE on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class TlsSettings(Section):
    """Certificate and key of the server; both or none."""

    cert_file: FilePath | None = None
    key_file: FilePath | None = None

    def check(self) -> None:
        """Raise ValueError for one without the other."""
        if (self.cert_file is None) != (self.key_file is None):
            missing = "cert_file" if self.cert_file is None else "key_file"
            raise ValueError(f"must have both cert_file and key_file, or none; {missing} is missing")


class ServerSettings(Section):
    """What the operator says about the way to the server."""

    behind_proxy: bool = False
    insecure_plaintext: bool = False


class AwsSettings(Section):
    """The account's side of a store on AWS. Without credentials, the SDK finds them where it always does."""

    account_id: AccountId = ""
    access_key_id: SecretKey | None = None
    secret_access_key: SecretKey | None = None
    session_token: SecretKey | None = None
    region: RegionName = ""
    endpoint_url: ServerUrl | None = None
    env: EnvironmentName = "dev"
    row_format: WholeNumber = setting(default=1, ge=1, le=2)

    def check(self) -> None:
        """Raise ValueError for a part of credentials."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("must have both access_key_id and secret_access_key, or none")
        if self.session_token and not self.access_key_id:
            raise ValueError("must have access_key_id and secret_access_key beside session_token")


class SqsSettings(Section):
    """The queues that exist: logical name -> URL; one without a URL is found by its name."""

    queues: QueueAddresses = setting(default={"default": ""})


class DynamodbSettings(Section):
    """The tables of jobs and events; one without a name has that of its environment."""

    jobs_table: TableName = ""
    events_table: TableName = ""
    streams: bool = False


class S3Settings(Section):
    """Where payloads go that are too large for a table; empty = they are refused."""

    bucket: BucketName = ""


class ClusterSettings(Section):
    """How other servers of the same store reach this one; without an address they look for its news."""

    advertise: ReplicaUrl | None = None


class StoreSettings(Section):
    """Where jobs and events are kept, how many and how long. The sections below are for type `aws`."""

    type: StoreType = StoreType.SQLITE
    max_queued_jobs_per_queue: WholeNumber = setting(default=0, ge=0)
    job_retention_days: WholeNumber = setting(default=7, ge=1, le=MAX_RETENTION_DAYS)
    event_retention_days: WholeNumber = setting(default=30, ge=1, le=MAX_RETENTION_DAYS)
    secrets_after_end: Literal["keep", "drop"] = "keep"
    purge_by: Literal["server", "housekeeping"] = "server"
    listing_shards: WholeNumber = setting(default=8, ge=1, le=MAX_LISTING_SHARDS)
    aws: AwsSettings = AwsSettings()
    sqs: SqsSettings = SqsSettings()
    dynamodb: DynamodbSettings = DynamodbSettings()
    s3: S3Settings = S3Settings()


class BatchingSettings(Section):
    """How workers gather output into batches; stamped on each job at enqueue."""

    flush_interval_seconds: WholeNumber = setting(default=2, ge=1, le=3_600)
    max_batch_size: WholeNumber = setting(default=50, ge=1, le=50)
    max_batch_bytes: WholeNumber = setting(default=262_144, ge=1_024, le=358_400)
    playback_interval_millis: WholeNumber = setting(default=50, ge=1, le=60_000)
    adaptive: bool = True


class ExecutionSettings(Section):
    """Defaults of the ExecutionConfig that each job carries."""

    batching: BatchingSettings = BatchingSettings()
    heartbeat_interval_seconds: WholeNumber = setting(default=30, ge=1, le=MAX_VISIBILITY_SECONDS)


class QueueDefaults(Section):
    """What a request that says nothing gets."""

    visibility_timeout_seconds: WholeNumber = setting(default=300, ge=1, le=MAX_VISIBILITY_SECONDS)
    max_attempts: WholeNumber = setting(default=3, ge=1, le=100)


class LimitSettings(Section):
    """Bounds of one server process; zero turns off what has a rate."""

    max_streams_per_job: WholeNumber = setting(default=10, ge=1)
    max_streams: WholeNumber = setting(default=5_000, ge=1)
    max_streams_per_principal: WholeNumber = setting(default=2_000, ge=1)
    max_waiting_calls: WholeNumber = setting(default=10_000, ge=1)
    max_waiting_writes: WholeNumber = setting(default=10_000, ge=1)
    max_queue_names: WholeNumber = setting(default=10_000, ge=1)
    max_body_bytes: WholeNumber = setting(default=268_435_456, ge=134_217_728)
    calls_per_second: WholeNumber = setting(default=5_000, ge=0)
    call_burst: WholeNumber = setting(default=20_000, ge=1)
    failed_keys_per_minute: WholeNumber = setting(default=20, ge=0)
    max_message_bytes: WholeNumber = setting(default=4_194_304, ge=1_024, le=67_108_864)
    maintenance_interval_seconds: Seconds = setting(default=30, gt=0, le=MAX_WAIT_SECONDS)
    shutdown_grace_seconds: Seconds = setting(default=5, ge=0, le=MAX_WAIT_SECONDS)


class PostgresSettings(Section):
    """The application's database, and the schema in it that is ours."""

    dsn: SecretKey | None = None
    listen_dsn: SecretKey | None = None
    schema: SchemaName = "airunner"

    @property
    def dsn_text(self) -> str:
        """The address itself; empty if there is none."""
        return _without_driver(self.dsn)

    @property
    def listen_dsn_text(self) -> str:
        """The address to listen at."""
        return _without_driver(self.listen_dsn) or self.dsn_text


class OutboxSettings(Section):
    """Where relays send the rows of the outbox."""

    sink: Literal["sqs", "jobs"] = "sqs"
    queues: OutboxAddresses = setting(default={})
    start_relay: bool = False
    metrics_listen: ListenAddress | None = None


class GenerationSettings(Section):
    """The message queue of generation, how its worker works, and how long its sessions stay."""

    queue_url: ServerUrl | None = None
    dead_letter_url: ServerUrl | None = None
    max_receive_count: WholeNumber = setting(default=5, ge=1, le=1_000)
    session_days: WholeNumber = setting(default=0, ge=0, le=MAX_RETENTION_DAYS)
    handlers: CommaList[str] = ()
    start_worker: bool = False
    concurrency: WholeNumber = setting(default=5, ge=1, le=10)
    settings_refresh_millis: WholeNumber = setting(default=30_000, ge=100, le=3_600_000)
    idle_delay_millis: WholeNumber = setting(default=0, ge=0, le=3_600_000)
    visibility_seconds: WholeNumber = setting(default=120, ge=10, le=MAX_VISIBILITY_SECONDS)
    handler_deadline_seconds: WholeNumber = setting(default=900, ge=1, le=39_600)
    retry_first_seconds: WholeNumber = setting(default=30, ge=1, le=900)
    retry_max_seconds: WholeNumber = setting(default=900, ge=1, le=MAX_VISIBILITY_SECONDS)
    drain_seconds: Seconds = setting(default=30, ge=0, le=MAX_VISIBILITY_SECONDS)
    metrics_listen: ListenAddress | None = None


class FleetSettings(Section):
    """What a fleet is called on AWS, which parts of it run in a server, and the rules of its processors."""

    table: TableName = ""
    pools_table: TableName = ""
    termination_queue_url: ServerUrl | None = None
    housekeeping_queue_url: ServerUrl | None = None
    parameter_prefix: ParameterPath = "/runs-fleet/runners"
    run: OptionalDistinctCommaList[FleetPart] = ()
    max_runtime_minutes: WholeNumber = setting(default=360, ge=1, le=MAX_RUNTIME_MINUTES)
    require_token: bool = True
    requeue_interrupted: bool = True
    prices: HourlyPrices = setting(default={})
    runner_api_key: SecretKey | None = None
    metadata_url: ServerUrl = "http://169.254.169.254"
    runner_wait_seconds: Seconds = setting(default=300, ge=0, le=86_400)
    cloudwatch_namespace: MetricNamespace = "RunsFleet"
    metrics_listen: ListenAddress | None = None

    @property
    def runner_api_key_text(self) -> str:
        """The key itself; empty if there is none."""
        return self.runner_api_key.get_secret_value() if self.runner_api_key else ""


class DiagSettings(Section):
    """What `airunner diag` sends, and to which server."""

    user_id: str = setting(default="", max_length=200)
    base_url: ServerUrl | None = None
    job_type: str = setting(default="airunner.ping", min_length=1, max_length=128)
    outputs: WholeNumber | None = setting(default=None, ge=1, le=1_000)
    use_mock: bool | None = None


class TelemetrySettings(Section):
    """Where a server sends its metrics besides; OTLP follows the OTEL_ variables."""

    cloudwatch_namespace: MetricNamespace = ""


class ClientSettings(Section):
    """How client commands and workers reach the servers."""

    server: DistinctCommaList[ServerUrl] = ("http://127.0.0.1:8080",)
    events_server: CommaList[ServerUrl] = ()
    api_key: SecretKey | None = None
    ca_file: FilePath | None = None
    timeout_seconds: Seconds = setting(default=30, gt=0, le=MAX_WAIT_SECONDS)

    @property
    def api_key_text(self) -> str:
        """The key itself; empty if there is none."""
        return self.api_key.get_secret_value() if self.api_key else ""


class WorkerSettings(Section):
    """What one worker serves, and how it stops. Empty ids are filled in when the worker starts."""

    queues: DistinctCommaList[QueueName] = ("default",)
    concurrency: WholeNumber = setting(default=1, ge=1, le=1_000)
    worker_id: str = ""
    instance_id: str = ""
    visibility_timeout_seconds: WholeNumber = setting(default=0, ge=0, le=MAX_VISIBILITY_SECONDS)
    grace_seconds: Seconds = setting(default=10, ge=0, le=MAX_WAIT_SECONDS)
    drain_seconds: Seconds = setting(default=30, ge=0, le=MAX_VISIBILITY_SECONDS)
    refused_token_seconds: Seconds = setting(default=60, ge=1, le=MAX_WAIT_SECONDS)
    handlers: CommaList[str] = ()
    handler_processes: WholeNumber = setting(default=0, ge=0, le=256)
    commands: bool = True
    work_dir: FilePath | None = None
    redact_names: CommaList[str] = ()
    git_allow_file: bool = False
    git_depth: WholeNumber = setting(default=1, ge=0, le=1_000_000)
    spool_dir: FilePath | None = None
    spool_max_bytes: WholeNumber = setting(default=1_073_741_824, ge=0)
    metrics_listen: ListenAddress | None = None


class Settings(Section):
    """Everything that can be set. Relative paths are relative to the current folder."""

    listen: ListenAddress = ListenAddress("127.0.0.1:8080")
    services: DistinctCommaList[ServiceName] = (ServiceName.JOBS, ServiceName.EVENTS)
    no_auth: bool = False
    data_dir: FilePath = Path(".airunner")
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.AUTO
    tls: TlsSettings = TlsSettings()
    server: ServerSettings = ServerSettings()
    cluster: ClusterSettings = ClusterSettings()
    store: StoreSettings = StoreSettings()
    execution: ExecutionSettings = ExecutionSettings()
    defaults: QueueDefaults = QueueDefaults()
    limits: LimitSettings = LimitSettings()
    token_keys: CommaList[SecretKey] = ()
    telemetry: TelemetrySettings = TelemetrySettings()
    client: ClientSettings = ClientSettings()
    worker: WorkerSettings = WorkerSettings()
    postgres: PostgresSettings = PostgresSettings()
    outbox: OutboxSettings = OutboxSettings()
    generation: GenerationSettings = GenerationSettings()
    fleet: FleetSettings = FleetSettings()
    diag: DiagSettings = DiagSettings()


@cache
def setting_fields() -> Mapping[str, SettingField]:
    """Every single setting by its dotted path, in the order of the tree."""
    return MappingProxyType(dict(_fields_below(Settings, "")))


@cache
def secret_paths() -> frozenset[str]:
    """The settings that are never shown."""
    return frozenset(_secrets_below(Settings, ""))


def value_at(settings: Settings, path: str) -> object:
    """The value of one setting by its dotted path."""
    value: object = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _without_driver(dsn: Secret | None) -> str:
    """Return an address as PostgreSQL has it: SQLAlchemy's name a driver before the colon."""
    return re.sub(r"^(postgres(?:ql)?)\+\w+:", r"\1:", dsn.get_secret_value()) if dsn else ""


def _fields_below(section: type[Section], prefix: str) -> Iterator[tuple[str, SettingField]]:
    for name, known in section.settings().items():
        if isinstance(known.default, Section):
            yield from _fields_below(type(known.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", known


def _secrets_below(section: type[Section], prefix: str) -> Iterator[str]:
    kinds = get_type_hints(section)
    for name, known in section.settings().items():
        if isinstance(known.default, Section):
            yield from _secrets_below(type(known.default), f"{prefix}{name}.")
        elif _holds_secret(kinds[name]):
            yield f"{prefix}{name}"


def _holds_secret(kind: object) -> bool:
    return kind is Secret or any(_holds_secret(part) for part in get_args(kind))
