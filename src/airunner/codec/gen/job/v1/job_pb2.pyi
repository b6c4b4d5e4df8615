import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_SCHEDULED: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_COMPLETED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]

class ProcessType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROCESS_TYPE_UNSPECIFIED: _ClassVar[ProcessType]
    PROCESS_TYPE_PIPE: _ClassVar[ProcessType]
    PROCESS_TYPE_PTY: _ClassVar[ProcessType]

class StreamType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_TYPE_UNSPECIFIED: _ClassVar[StreamType]
    STREAM_TYPE_STDOUT: _ClassVar[StreamType]
    STREAM_TYPE_STDERR: _ClassVar[StreamType]

class EventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_TYPE_UNSPECIFIED: _ClassVar[EventType]
    EVENT_TYPE_OUTPUT_DATA: _ClassVar[EventType]
    EVENT_TYPE_OUTPUT_BATCH: _ClassVar[EventType]
    EVENT_TYPE_PROCESS_START: _ClassVar[EventType]
    EVENT_TYPE_PROCESS_END: _ClassVar[EventType]
    EVENT_TYPE_PROCESS_ERROR: _ClassVar[EventType]
    EVENT_TYPE_GAP: _ClassVar[EventType]
    EVENT_TYPE_PROGRESS: _ClassVar[EventType]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_SUCCESS: _ClassVar[Outcome]
    OUTCOME_FAILURE: _ClassVar[Outcome]
    OUTCOME_TIMEOUT: _ClassVar[Outcome]
    OUTCOME_INTERRUPTED: _ClassVar[Outcome]
    OUTCOME_CANCELLED: _ClassVar[Outcome]
    OUTCOME_LOST: _ClassVar[Outcome]

class BatchEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BATCH_ENCODING_UNSPECIFIED: _ClassVar[BatchEncoding]
    BATCH_ENCODING_ZSTD: _ClassVar[BatchEncoding]

class DeadLetterReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEAD_LETTER_REASON_UNSPECIFIED: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_UNREADABLE: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_JOB_NOT_FOUND: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_JOB_ENDED: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_JOB_OPEN: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_VERDICT: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_NO_VERDICT: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_MESSAGE: _ClassVar[DeadLetterReason]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_SCHEDULED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_COMPLETED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
PROCESS_TYPE_UNSPECIFIED: ProcessType
PROCESS_TYPE_PIPE: ProcessType
PROCESS_TYPE_PTY: ProcessType
STREAM_TYPE_UNSPECIFIED: StreamType
STREAM_TYPE_STDOUT: StreamType
STREAM_TYPE_STDERR: StreamType
EVENT_TYPE_UNSPECIFIED: EventType
EVENT_TYPE_OUTPUT_DATA: EventType
EVENT_TYPE_OUTPUT_BATCH: EventType
EVENT_TYPE_PROCESS_START: EventType
EVENT_TYPE_PROCESS_END: EventType
EVENT_TYPE_PROCESS_ERROR: EventType
EVENT_TYPE_GAP: EventType
EVENT_TYPE_PROGRESS: EventType
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_SUCCESS: Outcome
OUTCOME_FAILURE: Outcome
OUTCOME_TIMEOUT: Outcome
OUTCOME_INTERRUPTED: Outcome
OUTCOME_CANCELLED: Outcome
OUTCOME_LOST: Outcome
BATCH_ENCODING_UNSPECIFIED: BatchEncoding
BATCH_ENCODING_ZSTD: BatchEncoding
DEAD_LETTER_REASON_UNSPECIFIED: DeadLetterReason
DEAD_LETTER_REASON_UNREADABLE: DeadLetterReason
DEAD_LETTER_REASON_JOB_NOT_FOUND: DeadLetterReason
DEAD_LETTER_REASON_JOB_ENDED: DeadLetterReason
DEAD_LETTER_REASON_JOB_OPEN: DeadLetterReason
DEAD_LETTER_REASON_VERDICT: DeadLetterReason
DEAD_LETTER_REASON_NO_VERDICT: DeadLetterReason
DEAD_LETTER_REASON_MESSAGE: DeadLetterReason

class Job(_message.Message):
    __slots__ = ("job_id", "state", "created_at", "updated_at", "job_params", "execution_config", "queue", "attempt", "max_attempts", "request_id", "result", "visible_until", "worker_id", "instance_id", "retried_from", "cancel_requested", "due_at", "handed_back", "last_sequence", "last_error", "job_params_url", "result_url", "abridged", "visibility_timeout_seconds", "silent_attempts", "cancelled_by", "cancelled_at")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    JOB_PARAMS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_CONFIG_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FROM_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    HANDED_BACK_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    JOB_PARAMS_URL_FIELD_NUMBER: _ClassVar[int]
    RESULT_URL_FIELD_NUMBER: _ClassVar[int]
    ABRIDGED_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SILENT_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_BY_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_AT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    state: JobState
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    job_params: JobParams
    execution_config: ExecutionConfig
    queue: str
    attempt: int
    max_attempts: int
    request_id: str
    result: JobResult
    visible_until: _timestamp_pb2.Timestamp
    worker_id: str
    instance_id: str
    retried_from: str
    cancel_requested: bool
    due_at: _timestamp_pb2.Timestamp
    handed_back: int
    last_sequence: int
    last_error: str
    job_params_url: str
    result_url: str
    abridged: bool
    visibility_timeout_seconds: int
    silent_attempts: int
    cancelled_by: str
    cancelled_at: _timestamp_pb2.Timestamp
    def __init__(self, job_id: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., job_params: _Optional[_Union[JobParams, _Mapping]] = ..., execution_config: _Optional[_Union[ExecutionConfig, _Mapping]] = ..., queue: _Optional[str] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., request_id: _Optional[str] = ..., result: _Optional[_Union[JobResult, _Mapping]] = ..., visible_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., worker_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., retried_from: _Optional[str] = ..., cancel_requested: _Optional[bool] = ..., due_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., handed_back: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_error: _Optional[str] = ..., job_params_url: _Optional[str] = ..., result_url: _Optional[str] = ..., abridged: _Optional[bool] = ..., visibility_timeout_seconds: _Optional[int] = ..., silent_attempts: _Optional[int] = ..., cancelled_by: _Optional[str] = ..., cancelled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class JobParams(_message.Message):
    __slots__ = ("repository_url", "commit", "branch", "environment", "metadata", "owner", "command", "args", "process_type", "timeout_seconds", "working_directory", "secret_names", "handler", "payload_json")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_URL_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_TYPE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SECRET_NAMES_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    repository_url: str
    commit: str
    branch: str
    environment: _containers.ScalarMap[str, str]
    metadata: _containers.ScalarMap[str, str]
    owner: str
    command: str
    args: _containers.RepeatedScalarFieldContainer[str]
    process_type: ProcessType
    timeout_seconds: int
    working_directory: str
    secret_names: _containers.RepeatedScalarFieldContainer[str]
    handler: str
    payload_json: str
    def __init__(self, repository_url: _Optional[str] = ..., commit: _Optional[str] = ..., branch: _Optional[str] = ..., environment: _Optional[_Mapping[str, str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., owner: _Optional[str] = ..., command: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., process_type: _Optional[_Union[ProcessType, str]] = ..., timeout_seconds: _Optional[int] = ..., working_directory: _Optional[str] = ..., secret_names: _Optional[_Iterable[str]] = ..., handler: _Optional[str] = ..., payload_json: _Optional[str] = ...) -> None: ...

class ExecutionConfig(_message.Message):
    __slots__ = ("batching", "heartbeat_interval_seconds")
    BATCHING_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    batching: BatchingConfig
    heartbeat_interval_seconds: int
    def __init__(self, batching: _Optional[_Union[BatchingConfig, _Mapping]] = ..., heartbeat_interval_seconds: _Optional[int] = ...) -> None: ...

class BatchingConfig(_message.Message):
    __slots__ = ("flush_interval_seconds", "max_batch_size", "max_batch_bytes", "playback_interval_millis", "adaptive")
    FLUSH_INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    PLAYBACK_INTERVAL_MILLIS_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_FIELD_NUMBER: _ClassVar[int]
    flush_interval_seconds: int
    max_batch_size: int
    max_batch_bytes: int
    playback_interval_millis: int
    adaptive: bool
    def __init__(self, flush_interval_seconds: _Optional[int] = ..., max_batch_size: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., playback_interval_millis: _Optional[int] = ..., adaptive: _Optional[bool] = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ("job_id", "success", "exit_code", "error_message", "started_at", "completed_at", "outcome", "output_json", "final_sequence", "output_sha256")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    FINAL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SHA256_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    success: bool
    exit_code: int
    error_message: str
    started_at: _timestamp_pb2.Timestamp
    completed_at: _timestamp_pb2.Timestamp
    outcome: Outcome
    output_json: str
    final_sequence: int
    output_sha256: bytes
    def __init__(self, job_id: _Optional[str] = ..., success: _Optional[bool] = ..., exit_code: _Optional[int] = ..., error_message: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., output_json: _Optional[str] = ..., final_sequence: _Optional[int] = ..., output_sha256: _Optional[bytes] = ...) -> None: ...

class EnqueueJobRequest(_message.Message):
    __slots__ = ("request_id", "queue", "job_params", "delay_seconds", "max_attempts", "execution_config")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    JOB_PARAMS_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_CONFIG_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    queue: str
    job_params: JobParams
    delay_seconds: int
    max_attempts: int
    execution_config: ExecutionConfig
    def __init__(self, request_id: _Optional[str] = ..., queue: _Optional[str] = ..., job_params: _Optional[_Union[JobParams, _Mapping]] = ..., delay_seconds: _Optional[int] = ..., max_attempts: _Optional[int] = ..., execution_config: _Optional[_Union[ExecutionConfig, _Mapping]] = ...) -> None: ...

class EnqueueJobResponse(_message.Message):
    __slots__ = ("job_id", "created_at", "state")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    created_at: _timestamp_pb2.Timestamp
    state: JobState
    def __init__(self, job_id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[JobState, str]] = ...) -> None: ...

class EnqueueJobsRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[EnqueueJobRequest]
    def __init__(self, jobs: _Optional[_Iterable[_Union[EnqueueJobRequest, _Mapping]]] = ...) -> None: ...

class EnqueueJobsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[EnqueueJobOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[EnqueueJobOutcome, _Mapping]]] = ...) -> None: ...

class EnqueueJobOutcome(_message.Message):
    __slots__ = ("job", "error")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    job: EnqueueJobResponse
    error: EntryError
    def __init__(self, job: _Optional[_Union[EnqueueJobResponse, _Mapping]] = ..., error: _Optional[_Union[EntryError, _Mapping]] = ...) -> None: ...

class EntryError(_message.Message):
    __slots__ = ("code", "message", "expected_sequence", "retry_info", "invalid_task_token")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RETRY_INFO_FIELD_NUMBER: _ClassVar[int]
    INVALID_TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    expected_sequence: int
    retry_info: RetryInfo
    invalid_task_token: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., expected_sequence: _Optional[int] = ..., retry_info: _Optional[_Union[RetryInfo, _Mapping]] = ..., invalid_task_token: _Optional[bool] = ...) -> None: ...

class RetryInfo(_message.Message):
    __slots__ = ("retry_delay",)
    RETRY_DELAY_FIELD_NUMBER: _ClassVar[int]
    retry_delay: _duration_pb2.Duration
    def __init__(self, retry_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SequenceMismatch(_message.Message):
    __slots__ = ("expected_sequence",)
    EXPECTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    expected_sequence: int
    def __init__(self, expected_sequence: _Optional[int] = ...) -> None: ...

class InvalidTaskToken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DequeueJobRequest(_message.Message):
    __slots__ = ("queue", "max_jobs", "visibility_timeout_seconds", "wait_seconds", "worker_id", "instance_id", "more_queues", "first_lease_seconds", "abilities")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_JOBS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MORE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    FIRST_LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ABILITIES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    max_jobs: int
    visibility_timeout_seconds: int
    wait_seconds: int
    worker_id: str
    instance_id: str
    more_queues: _containers.RepeatedScalarFieldContainer[str]
    first_lease_seconds: int
    abilities: Abilities
    def __init__(self, queue: _Optional[str] = ..., max_jobs: _Optional[int] = ..., visibility_timeout_seconds: _Optional[int] = ..., wait_seconds: _Optional[int] = ..., worker_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., more_queues: _Optional[_Iterable[str]] = ..., first_lease_seconds: _Optional[int] = ..., abilities: _Optional[_Union[Abilities, _Mapping]] = ...) -> None: ...

class DequeueJobResponse(_message.Message):
    __slots__ = ("job", "task_token", "termination_token")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: Job
    task_token: str
    termination_token: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., task_token: _Optional[str] = ..., termination_token: _Optional[str] = ...) -> None: ...

class DequeueJobsRequest(_message.Message):
    __slots__ = ("queue", "max_jobs", "visibility_timeout_seconds", "wait_seconds", "worker_id", "instance_id", "more_queues", "first_lease_seconds", "abilities")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_JOBS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MORE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    FIRST_LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ABILITIES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    max_jobs: int
    visibility_timeout_seconds: int
    wait_seconds: int
    worker_id: str
    instance_id: str
    more_queues: _containers.RepeatedScalarFieldContainer[str]
    first_lease_seconds: int
    abilities: Abilities
    def __init__(self, queue: _Optional[str] = ..., max_jobs: _Optional[int] = ..., visibility_timeout_seconds: _Optional[int] = ..., wait_seconds: _Optional[int] = ..., worker_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., more_queues: _Optional[_Iterable[str]] = ..., first_lease_seconds: _Optional[int] = ..., abilities: _Optional[_Union[Abilities, _Mapping]] = ...) -> None: ...

class Abilities(_message.Message):
    __slots__ = ("handlers", "commands")
    HANDLERS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    handlers: _containers.RepeatedScalarFieldContainer[str]
    commands: bool
    def __init__(self, handlers: _Optional[_Iterable[str]] = ..., commands: _Optional[bool] = ...) -> None: ...

class DequeueJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[DequeueJobResponse]
    def __init__(self, jobs: _Optional[_Iterable[_Union[DequeueJobResponse, _Mapping]]] = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("queue", "task_token", "visibility_timeout_seconds", "wait_seconds", "watched")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    queue: str
    task_token: str
    visibility_timeout_seconds: int
    wait_seconds: int
    watched: bool
    def __init__(self, queue: _Optional[str] = ..., task_token: _Optional[str] = ..., visibility_timeout_seconds: _Optional[int] = ..., wait_seconds: _Optional[int] = ..., watched: _Optional[bool] = ...) -> None: ...

class UpdateJobResponse(_message.Message):
    __slots__ = ("cancel_requested", "watched", "visible_until")
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    cancel_requested: bool
    watched: bool
    visible_until: _timestamp_pb2.Timestamp
    def __init__(self, cancel_requested: _Optional[bool] = ..., watched: _Optional[bool] = ..., visible_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CompleteJobRequest(_message.Message):
    __slots__ = ("task_token", "job_result", "events")
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    JOB_RESULT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    task_token: str
    job_result: JobResult
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    def __init__(self, task_token: _Optional[str] = ..., job_result: _Optional[_Union[JobResult, _Mapping]] = ..., events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ...) -> None: ...

class CompleteJobResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: JobState
    def __init__(self, state: _Optional[_Union[JobState, str]] = ...) -> None: ...

class CompleteJobsRequest(_message.Message):
    __slots__ = ("completions",)
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    completions: _containers.RepeatedCompositeFieldContainer[CompleteJobRequest]
    def __init__(self, completions: _Optional[_Iterable[_Union[CompleteJobRequest, _Mapping]]] = ...) -> None: ...

class CompleteJobsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[CompleteJobOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[CompleteJobOutcome, _Mapping]]] = ...) -> None: ...

class CompleteJobOutcome(_message.Message):
    __slots__ = ("completed", "error")
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    completed: CompleteJobResponse
    error: EntryError
    def __init__(self, completed: _Optional[_Union[CompleteJobResponse, _Mapping]] = ..., error: _Optional[_Union[EntryError, _Mapping]] = ...) -> None: ...

class ReleaseJobRequest(_message.Message):
    __slots__ = ("task_token", "delay_seconds", "unstarted", "events", "error_message")
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNSTARTED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    task_token: str
    delay_seconds: int
    unstarted: bool
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    error_message: str
    def __init__(self, task_token: _Optional[str] = ..., delay_seconds: _Optional[int] = ..., unstarted: _Optional[bool] = ..., events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ..., error_message: _Optional[str] = ...) -> None: ...

class ReleaseJobResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: JobState
    def __init__(self, state: _Optional[_Union[JobState, str]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id", "wait_seconds", "want_payload_urls", "abridge")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WANT_PAYLOAD_URLS_FIELD_NUMBER: _ClassVar[int]
    ABRIDGE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    wait_seconds: int
    want_payload_urls: bool
    abridge: bool
    def __init__(self, job_id: _Optional[str] = ..., wait_seconds: _Optional[int] = ..., want_payload_urls: _Optional[bool] = ..., abridge: _Optional[bool] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("queue", "state", "page", "page_size", "cursor")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    queue: str
    state: JobState
    page: int
    page_size: int
    cursor: str
    def __init__(self, queue: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., page: _Optional[int] = ..., page_size: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "last_page", "next_cursor")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LAST_PAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    last_page: int
    next_cursor: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., last_page: _Optional[int] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class RetryJobRequest(_message.Message):
    __slots__ = ("job_id", "request_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    request_id: str
    def __init__(self, job_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class RetryJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("page_size", "cursor")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    cursor: str
    def __init__(self, page_size: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_cursor")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    next_cursor: str
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "paused", "scheduled", "running", "oldest_scheduled_at", "paused_by", "paused_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_SCHEDULED_AT_FIELD_NUMBER: _ClassVar[int]
    PAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    PAUSED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    paused: bool
    scheduled: int
    running: int
    oldest_scheduled_at: _timestamp_pb2.Timestamp
    paused_by: str
    paused_at: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., paused: _Optional[bool] = ..., scheduled: _Optional[int] = ..., running: _Optional[int] = ..., oldest_scheduled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., paused_by: _Optional[str] = ..., paused_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PauseQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PauseQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class ResumeQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ("page_size", "cursor")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    cursor: str
    def __init__(self, page_size: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers", "next_cursor")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    next_cursor: str
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("worker_id", "instance_id", "queues", "last_seen_at", "job_ids", "abilities", "more_handlers")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    ABILITIES_FIELD_NUMBER: _ClassVar[int]
    MORE_HANDLERS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    instance_id: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    last_seen_at: _timestamp_pb2.Timestamp
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    abilities: Abilities
    more_handlers: int
    def __init__(self, worker_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., last_seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., job_ids: _Optional[_Iterable[str]] = ..., abilities: _Optional[_Union[Abilities, _Mapping]] = ..., more_handlers: _Optional[int] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("sequence", "timestamp", "event_type", "output_data", "output_batch", "process_start", "process_end", "process_error", "gap", "progress", "attempt", "cursor")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DATA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BATCH_FIELD_NUMBER: _ClassVar[int]
    PROCESS_START_FIELD_NUMBER: _ClassVar[int]
    PROCESS_END_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ERROR_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    timestamp: _timestamp_pb2.Timestamp
    event_type: EventType
    output_data: OutputEvent
    output_batch: OutputBatchEvent
    process_start: ProcessStartEvent
    process_end: ProcessEndEvent
    process_error: ProcessErrorEvent
    gap: GapEvent
    progress: ProgressEvent
    attempt: int
    cursor: str
    def __init__(self, sequence: _Optional[int] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event_type: _Optional[_Union[EventType, str]] = ..., output_data: _Optional[_Union[OutputEvent, _Mapping]] = ..., output_batch: _Optional[_Union[OutputBatchEvent, _Mapping]] = ..., process_start: _Optional[_Union[ProcessStartEvent, _Mapping]] = ..., process_end: _Optional[_Union[ProcessEndEvent, _Mapping]] = ..., process_error: _Optional[_Union[ProcessErrorEvent, _Mapping]] = ..., gap: _Optional[_Union[GapEvent, _Mapping]] = ..., progress: _Optional[_Union[ProgressEvent, _Mapping]] = ..., attempt: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class OutputEvent(_message.Message):
    __slots__ = ("output", "stream")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    output: bytes
    stream: StreamType
    def __init__(self, output: _Optional[bytes] = ..., stream: _Optional[_Union[StreamType, str]] = ...) -> None: ...

class OutputBatchEvent(_message.Message):
    __slots__ = ("outputs", "start_sequence", "end_sequence", "timestamps", "playback_interval_millis", "encoding", "packed", "unpacked_bytes")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    END_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    PLAYBACK_INTERVAL_MILLIS_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    UNPACKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[OutputItem]
    start_sequence: int
    end_sequence: int
    timestamps: _containers.RepeatedScalarFieldContainer[int]
    playback_interval_millis: int
    encoding: BatchEncoding
    packed: bytes
    unpacked_bytes: int
    def __init__(self, outputs: _Optional[_Iterable[_Union[OutputItem, _Mapping]]] = ..., start_sequence: _Optional[int] = ..., end_sequence: _Optional[int] = ..., timestamps: _Optional[_Iterable[int]] = ..., playback_interval_millis: _Optional[int] = ..., encoding: _Optional[_Union[BatchEncoding, str]] = ..., packed: _Optional[bytes] = ..., unpacked_bytes: _Optional[int] = ...) -> None: ...

class OutputItem(_message.Message):
    __slots__ = ("output", "stream")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    output: bytes
    stream: StreamType
    def __init__(self, output: _Optional[bytes] = ..., stream: _Optional[_Union[StreamType, str]] = ...) -> None: ...

class ProcessStartEvent(_message.Message):
    __slots__ = ("pid", "started_at", "worker_id")
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    pid: int
    started_at: _timestamp_pb2.Timestamp
    worker_id: str
    def __init__(self, pid: _Optional[int] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., worker_id: _Optional[str] = ...) -> None: ...

class ProcessEndEvent(_message.Message):
    __slots__ = ("pid", "exit_code", "run_duration", "event_count", "output_sha256")
    PID_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    RUN_DURATION_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SHA256_FIELD_NUMBER: _ClassVar[int]
    pid: int
    exit_code: int
    run_duration: _duration_pb2.Duration
    event_count: int
    output_sha256: bytes
    def __init__(self, pid: _Optional[int] = ..., exit_code: _Optional[int] = ..., run_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., event_count: _Optional[int] = ..., output_sha256: _Optional[bytes] = ...) -> None: ...

class ProcessErrorEvent(_message.Message):
    __slots__ = ("error_message",)
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_message: str
    def __init__(self, error_message: _Optional[str] = ...) -> None: ...

class GapEvent(_message.Message):
    __slots__ = ("first_sequence", "last_sequence", "reason")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    last_sequence: int
    reason: str
    def __init__(self, first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ProgressEvent(_message.Message):
    __slots__ = ("done", "total", "message")
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    done: int
    total: int
    message: str
    def __init__(self, done: _Optional[int] = ..., total: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class StreamJobEventsRequest(_message.Message):
    __slots__ = ("job_id", "from_sequence", "from_timestamp", "event_filter", "attempt", "cursor", "no_follow")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FROM_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    EVENT_FILTER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    NO_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    from_sequence: int
    from_timestamp: int
    event_filter: _containers.RepeatedScalarFieldContainer[EventType]
    attempt: int
    cursor: str
    no_follow: bool
    def __init__(self, job_id: _Optional[str] = ..., from_sequence: _Optional[int] = ..., from_timestamp: _Optional[int] = ..., event_filter: _Optional[_Iterable[_Union[EventType, str]]] = ..., attempt: _Optional[int] = ..., cursor: _Optional[str] = ..., no_follow: _Optional[bool] = ...) -> None: ...

class StreamJobEventsResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: JobEvent
    def __init__(self, event: _Optional[_Union[JobEvent, _Mapping]] = ...) -> None: ...

class StreamJobEventBatchesRequest(_message.Message):
    __slots__ = ("job_id", "from_sequence", "from_timestamp", "event_filter", "attempt", "cursor", "no_follow", "accept_encodings")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FROM_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    EVENT_FILTER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    NO_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    from_sequence: int
    from_timestamp: int
    event_filter: _containers.RepeatedScalarFieldContainer[EventType]
    attempt: int
    cursor: str
    no_follow: bool
    accept_encodings: _containers.RepeatedScalarFieldContainer[BatchEncoding]
    def __init__(self, job_id: _Optional[str] = ..., from_sequence: _Optional[int] = ..., from_timestamp: _Optional[int] = ..., event_filter: _Optional[_Iterable[_Union[EventType, str]]] = ..., attempt: _Optional[int] = ..., cursor: _Optional[str] = ..., no_follow: _Optional[bool] = ..., accept_encodings: _Optional[_Iterable[_Union[BatchEncoding, str]]] = ...) -> None: ...

class StreamJobEventBatchesResponse(_message.Message):
    __slots__ = ("attempt", "first_sequence", "last_sequence", "event", "cursor")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    first_sequence: int
    last_sequence: int
    event: bytes
    cursor: str
    def __init__(self, attempt: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., event: _Optional[bytes] = ..., cursor: _Optional[str] = ...) -> None: ...

class PublishJobEventsRequest(_message.Message):
    __slots__ = ("task_token", "events")
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    task_token: str
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    def __init__(self, task_token: _Optional[str] = ..., events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ...) -> None: ...

class PublishJobEventsResponse(_message.Message):
    __slots__ = ("next_sequence", "cancel_requested", "watched")
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    next_sequence: int
    cancel_requested: bool
    watched: bool
    def __init__(self, next_sequence: _Optional[int] = ..., cancel_requested: _Optional[bool] = ..., watched: _Optional[bool] = ...) -> None: ...

class PublishJobEventBatchRequest(_message.Message):
    __slots__ = ("task_token", "events")
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    task_token: str
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    def __init__(self, task_token: _Optional[str] = ..., events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ...) -> None: ...

class PublishJobEventBatchResponse(_message.Message):
    __slots__ = ("next_sequence", "cancel_requested", "watched")
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    next_sequence: int
    cancel_requested: bool
    watched: bool
    def __init__(self, next_sequence: _Optional[int] = ..., cancel_requested: _Optional[bool] = ..., watched: _Optional[bool] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("message_id", "reason", "job_id", "sent_at", "redrives", "body", "body_cut", "code")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    REDRIVES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_CUT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    reason: DeadLetterReason
    job_id: str
    sent_at: _timestamp_pb2.Timestamp
    redrives: int
    body: str
    body_cut: bool
    code: str
    def __init__(self, message_id: _Optional[str] = ..., reason: _Optional[_Union[DeadLetterReason, str]] = ..., job_id: _Optional[str] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., redrives: _Optional[int] = ..., body: _Optional[str] = ..., body_cut: _Optional[bool] = ..., code: _Optional[str] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("queue", "max_messages", "code")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    max_messages: int
    code: str
    def __init__(self, queue: _Optional[str] = ..., max_messages: _Optional[int] = ..., code: _Optional[str] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("dead_letters", "approximate_total")
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    APPROXIMATE_TOTAL_FIELD_NUMBER: _ClassVar[int]
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    approximate_total: int
    def __init__(self, dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., approximate_total: _Optional[int] = ...) -> None: ...

class RedriveDeadLettersRequest(_message.Message):
    __slots__ = ("queue", "max_messages", "all", "dry_run", "code")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    max_messages: int
    all: bool
    dry_run: bool
    code: str
    def __init__(self, queue: _Optional[str] = ..., max_messages: _Optional[int] = ..., all: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., code: _Optional[str] = ...) -> None: ...

class RedriveDeadLettersResponse(_message.Message):
    __slots__ = ("redriven", "left")
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    redriven: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    left: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    def __init__(self, redriven: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., left: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ...) -> None: ...

class PurgeDeadLettersRequest(_message.Message):
    __slots__ = ("queue", "max_messages", "dry_run", "code")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    max_messages: int
    dry_run: bool
    code: str
    def __init__(self, queue: _Optional[str] = ..., max_messages: _Optional[int] = ..., dry_run: _Optional[bool] = ..., code: _Optional[str] = ...) -> None: ...

class PurgeDeadLettersResponse(_message.Message):
    __slots__ = ("purged",)
    PURGED_FIELD_NUMBER: _ClassVar[int]
    purged: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    def __init__(self, purged: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "value", "configured", "is_set", "allowed", "changes", "unread_reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    IS_SET_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    UNREAD_REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    configured: str
    is_set: bool
    allowed: str
    changes: _containers.RepeatedCompositeFieldContainer[SettingChange]
    unread_reason: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., configured: _Optional[str] = ..., is_set: _Optional[bool] = ..., allowed: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ..., unread_reason: _Optional[str] = ...) -> None: ...

class SettingChange(_message.Message):
    __slots__ = ("value", "old_value", "changed_by", "changed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OLD_VALUE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_BY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    value: str
    old_value: str
    changed_by: str
    changed_at: _timestamp_pb2.Timestamp
    def __init__(self, value: _Optional[str] = ..., old_value: _Optional[str] = ..., changed_by: _Optional[str] = ..., changed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListSettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSettingsResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class SetSettingRequest(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class SetSettingResponse(_message.Message):
    __slots__ = ("setting",)
    SETTING_FIELD_NUMBER: _ClassVar[int]
    setting: Setting
    def __init__(self, setting: _Optional[_Union[Setting, _Mapping]] = ...) -> None: ...

class UnsetSettingRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnsetSettingResponse(_message.Message):
    __slots__ = ("setting",)
    SETTING_FIELD_NUMBER: _ClassVar[int]
    setting: Setting
    def __init__(self, setting: _Optional[_Union[Setting, _Mapping]] = ...) -> None: ...

class ListHousekeepingRunsRequest(_message.Message):
    __slots__ = ("max_runs",)
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    max_runs: int
    def __init__(self, max_runs: _Optional[int] = ...) -> None: ...

class ListHousekeepingRunsResponse(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[HousekeepingRun]
    def __init__(self, runs: _Optional[_Iterable[_Union[HousekeepingRun, _Mapping]]] = ...) -> None: ...

class HousekeepingRun(_message.Message):
    __slots__ = ("slot", "task_type", "started_at", "ended_at", "outcome", "dry_run", "text", "listed", "changed", "actions", "actions_left_out")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    slot: str
    task_type: str
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    outcome: str
    dry_run: bool
    text: str
    listed: int
    changed: int
    actions: _containers.RepeatedCompositeFieldContainer[HousekeepingAction]
    actions_left_out: int
    def __init__(self, slot: _Optional[str] = ..., task_type: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., outcome: _Optional[str] = ..., dry_run: _Optional[bool] = ..., text: _Optional[str] = ..., listed: _Optional[int] = ..., changed: _Optional[int] = ..., actions: _Optional[_Iterable[_Union[HousekeepingAction, _Mapping]]] = ..., actions_left_out: _Optional[int] = ...) -> None: ...

class HousekeepingAction(_message.Message):
    __slots__ = ("kind", "target", "why", "seen", "at")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    target: str
    why: str
    seen: str
    at: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[str] = ..., target: _Optional[str] = ..., why: _Optional[str] = ..., seen: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetPoolReportRequest(_message.Message):
    __slots__ = ("max_audits",)
    MAX_AUDITS_FIELD_NUMBER: _ClassVar[int]
    max_audits: int
    def __init__(self, max_audits: _Optional[int] = ...) -> None: ...

class GetPoolReportResponse(_message.Message):
    __slots__ = ("pools", "audits")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    AUDITS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    audits: _containers.RepeatedCompositeFieldContainer[FleetAudit]
    def __init__(self, pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., audits: _Optional[_Iterable[_Union[FleetAudit, _Mapping]]] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("name", "instance_type", "desired_running", "desired_stopped")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DESIRED_RUNNING_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STOPPED_FIELD_NUMBER: _ClassVar[int]
    name: str
    instance_type: str
    desired_running: int
    desired_stopped: int
    def __init__(self, name: _Optional[str] = ..., instance_type: _Optional[str] = ..., desired_running: _Optional[int] = ..., desired_stopped: _Optional[int] = ...) -> None: ...

class FleetAudit(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[PoolAudit]
    def __init__(self, pools: _Optional[_Iterable[_Union[PoolAudit, _Mapping]]] = ...) -> None: ...

class PoolAudit(_message.Message):
    __slots__ = ("pool", "audited_at", "running", "stopped", "idle", "seconds", "compute_cost_usd", "idle_cost_usd")
    POOL_FIELD_NUMBER: _ClassVar[int]
    AUDITED_AT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_COST_USD_FIELD_NUMBER: _ClassVar[int]
    IDLE_COST_USD_FIELD_NUMBER: _ClassVar[int]
    pool: str
    audited_at: _timestamp_pb2.Timestamp
    running: int
    stopped: int
    idle: int
    seconds: float
    compute_cost_usd: float
    idle_cost_usd: float
    def __init__(self, pool: _Optional[str] = ..., audited_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., running: _Optional[int] = ..., stopped: _Optional[int] = ..., idle: _Optional[int] = ..., seconds: _Optional[float] = ..., compute_cost_usd: _Optional[float] = ..., idle_cost_usd: _Optional[float] = ...) -> None: ...

class RunHousekeepingRequest(_message.Message):
    __slots__ = ("task_type", "dry_run", "limit")
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    task_type: str
    dry_run: bool
    limit: int
    def __init__(self, task_type: _Optional[str] = ..., dry_run: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class RunHousekeepingResponse(_message.Message):
    __slots__ = ("slot",)
    SLOT_FIELD_NUMBER: _ClassVar[int]
    slot: str
    def __init__(self, slot: _Optional[str] = ...) -> None: ...
