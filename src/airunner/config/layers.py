"""Reads each place a setting can come from into a flat layer: dotted path -> value and origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from airunner.config.errors import ConfigError, did_you_mean, reason
from airunner.config.settings import setting_fields

Origin: TypeAlias = str
PREFIX = "AIRUNNER_"
SHORT_VARIABLES = {
    "AIRUNNER_SERVER": "client.server",
    "AIRUNNER_EVENTS_SERVER": "client.events_server",
    "AIRUNNER_API_KEY": "client.api_key",
    "AIRUNNER_CA_FILE": "client.ca_file",
    "AIRUNNER_INSTANCE_ID": "worker.instance_id",
}
# Names of other programs. Machines set several at once: each yields to those after it, and all to our own.
FOREIGN_VARIABLES = {
    "AWS_DEFAULT_REGION": "store.aws.region",
    "AWS_REGION": "store.aws.region",
    "AWS_ENDPOINT_URL": "store.aws.endpoint_url",
    "AWS_ACCOUNT_ID": "store.aws.account_id",
    "SQS_MAIN_QUEUE_URL": "generation.queue_url",
    "SQS_DLQ_QUEUE_URL": "generation.dead_letter_url",
    "SQS_IDLE_DELAY_MS": "generation.idle_delay_millis",
    "START_GEN_WORKER": "generation.start_worker",
    "GEN_WORKER_CONCURRENCY": "generation.concurrency",
    "GEN_WORKER_SETTINGS_REFRESH_MS": "generation.settings_refresh_millis",
    "RUNS_FLEET_TERMINATION_QUEUE_URL": "fleet.termination_queue_url",
    "RUNS_FLEET_HOUSEKEEPING_QUEUE_URL": "fleet.housekeeping_queue_url",
    "RUNS_FLEET_JOBS_TABLE": "store.dynamodb.jobs_table",
}
# What the SDK reads by itself in the environment, and never in a file of the folder.
CREDENTIAL_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "store.aws.access_key_id",
    "AWS_SECRET_ACCESS_KEY": "store.aws.secret_access_key",
    "AWS_SESSION_TOKEN": "store.aws.session_token",
}
AWS_CREDENTIALS = frozenset({*CREDENTIAL_VARIABLES, "AWS_CONTAINER_AUTHORIZATION_TOKEN"})
"""The variables that prove to AWS who we are."""
PROFILE_VARIABLE = "AWS_PROFILE"
# One that many programs have: it means us only where a command is about the application's database.
DATABASE_VARIABLES = {"DATABASE_URL": "postgres.dsn"}
# Any program's tests may have such: they mean us only where a command is about them.
DIAG_VARIABLES = {
    "INTEGRATION_TEST_USER_ID": "diag.user_id",
    "INTEGRATION_BASE_URL": "diag.base_url",
    "INTEGRATION_TEST_JOB_TYPE": "diag.job_type",
    "INTEGRATION_TEST_OUTPUTS": "diag.outputs",
    "INTEGRATION_USE_MOCK": "diag.use_mock",
}
SHORT_FLAGS = {
    "store.type": "--store",
    "store.aws.endpoint_url": "--endpoint",
    "store.sqs.queues": "--queue",
    "tls.cert_file": "--tls-cert",
    "tls.key_file": "--tls-key",
    "worker.queues": "--queue",
    "worker.visibility_timeout_seconds": "--visibility-timeout",
}
EXECUTION = "execution."
EXECUTION_IN_STORE = "store.execution."
# Second places of single settings.
ALIASES = {
    "store.sqs.default_visibility_timeout_seconds": "defaults.visibility_timeout_seconds",
    "store.dynamodb.events_ttl_days": "store.event_retention_days",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value as it was given, before validation."""

    value: object
    origin: Origin
    # Whether it is from a file that merely lies in the current folder: nobody named it, it may be anybody's.
    from_folder: bool = False


Layer: TypeAlias = dict[str, Given]


def file_layer(path: Path, shown_as: str, *, from_folder: bool = False) -> Layer:
    """The settings of a YAML file. Unknown, repeated or misplaced keys are errors; an empty file is fine."""
    from airunner.config.yaml_file import read_yaml  # late: most commands read no file

    problems: list[str] = []
    leaves = dict(_leaves(read_yaml(path, shown_as), "", problems))
    if problems:
        raise ConfigError([f"{shown_as}: {problem}" for problem in problems])
    return _to_real_places({
        key: Given(value=value, origin=_file_origin(shown_as, key), from_folder=from_folder)
        for key, value in leaves.items()
    })  # fmt: skip


def variable_layer(variables: Mapping[str, str], suffix: str = "", *, from_folder: bool = False) -> Layer:
    """The settings among the variables; an empty variable counts as not set."""
    known = known_variables()
    layer: Layer = {}
    for name in sorted(name for name, text in variables.items() if name in known and text):
        path = known[name]
        if path in layer:
            raise ConfigError([f"{path}: is given twice, by {layer[path].origin} and {name}{suffix}"])
        origin = f"environment {name}{suffix}"
        layer[path] = Given(value=variables[name], origin=origin, from_folder=from_folder)
    return _to_real_places(layer)


def foreign_layer(variables: Mapping[str, str], suffix: str = "") -> Layer:
    """The settings among the variables of other programs; an empty variable counts as not set."""
    return _layer_of(FOREIGN_VARIABLES, variables, suffix)


def database_layer(variables: Mapping[str, str], suffix: str = "") -> Layer:
    """The address of the application's database, for whoever has to do with that."""
    return _layer_of(DATABASE_VARIABLES, variables, suffix)


def diag_layer(variables: Mapping[str, str], suffix: str = "", *, from_folder: bool = False) -> Layer:
    """What `airunner diag` sends, and to which server, by the names that test suites have for it."""
    return _layer_of(DIAG_VARIABLES, variables, suffix, from_folder=from_folder)


def credential_layer(dotenv: Mapping[str, str], environment: Mapping[str, str], suffix: str) -> Layer:
    """The credentials of AWS in `.env`: all of them or none, and none where the process has its own.

    A key of the environment, or a profile, is the SDK's to use; half of one and half of the other would be
    nobody's. The secret alone, or the key alone, is as good as nothing.
    """
    if {*CREDENTIAL_VARIABLES, PROFILE_VARIABLE} & environment.keys():
        return {}
    given = {path: name for name, path in CREDENTIAL_VARIABLES.items() if dotenv.get(name)}
    if not {"store.aws.access_key_id", "store.aws.secret_access_key"} <= given.keys():
        return {}
    return {
        path: Given(value=dotenv[name], origin=f"environment {name}{suffix}") for path, name in given.items()
    }


def flag_layer(flags: Mapping[str, object]) -> Layer:
    """The settings given on the command line, by dotted path; None means that the flag was not given."""
    known = {path: path for path in setting_fields()}
    unknown = [f"unknown setting {path}{did_you_mean(path, known)}" for path in flags if path not in known]
    if unknown:
        raise ConfigError(unknown)
    given = {path: value for path, value in flags.items() if value is not None}
    return {path: Given(value=value, origin=f"flag {flag_of(path)}") for path, value in given.items()}


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of a `.env` file, taken literally; no file is an empty one."""
    if not path.is_file():
        return {}
    from dotenv import dotenv_values  # late: most folders have no such file

    try:
        values = dotenv_values(path, interpolate=False, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"cannot read {path.name}: {reason(error)}"]) from None
    return {name: text for name, text in values.items() if text is not None}


@cache
def known_variables() -> Mapping[str, str]:
    """Variable name -> dotted path, short names included."""
    names = {variable_of(path): path for path in _known_paths()}
    return names | SHORT_VARIABLES


def variable_of(path: str) -> str:
    """The variable of one setting; `__` stands for the dot."""
    return PREFIX + path.replace(".", "__").upper()


def flag_of(path: str) -> str:
    """The flag of one setting as the command line spells it."""
    return SHORT_FLAGS.get(path, "--" + path.rpartition(".")[2].replace("_", "-"))


@cache
def _known_paths() -> tuple[str, ...]:
    real = tuple(setting_fields())
    return real + tuple(f"store.{path}" for path in real if path.startswith(EXECUTION)) + tuple(ALIASES)


def _layer_of(
    names: Mapping[str, str], variables: Mapping[str, str], suffix: str, *, from_folder: bool = False
) -> Layer:
    return {
        path: Given(value=variables[name], origin=f"environment {name}{suffix}", from_folder=from_folder)
        for name, path in names.items()
        if variables.get(name)
    }


def _is_section(path: str) -> bool:
    return any(known.startswith(f"{path}.") for known in _known_paths())


def _to_real_places(layer: Layer) -> Layer:
    """Moves what stands in a second place, `store.execution` above all; one layer may use one of the two."""
    for alias, real in ALIASES.items():
        if alias in layer and real in layer:
            raise ConfigError(
                [f"{real} and {alias} are one setting, but both are given: {layer[alias].origin}"]
            )
    layer = {ALIASES.get(key, key): given for key, given in layer.items()}
    aliased = [key for key in layer if key.startswith(EXECUTION_IN_STORE)]
    doubled = [key for key in layer if key.startswith(EXECUTION)]
    if aliased and doubled:
        both = " and ".join(f"{key} ({layer[key].origin})" for key in (doubled[0], aliased[0]))
        raise ConfigError([f"execution and store.execution are one section, but both are given: {both}"])
    return {key.removeprefix("store.") if key in aliased else key: given for key, given in layer.items()}


def _file_origin(shown_as: str, key: str) -> Origin:
    moved = key.startswith(EXECUTION_IN_STORE) or key in ALIASES
    return f"file {shown_as}, key {key}" if moved else f"file {shown_as}"


def _leaves(tree: Mapping[object, object], prefix: str, problems: list[str]) -> Iterator[tuple[str, object]]:
    """Flattens as far as the tree of settings goes, and collects what does not fit it."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if "." in str(key):
            problems.append(f"unknown key {path}: keys are nested, not dotted")
        elif path in _known_paths():
            yield path, value
        elif not _is_section(path):
            problems.append(f"unknown key {path}{_nearest_key(str(key), prefix)}")
        elif isinstance(value, Mapping):
            yield from _leaves(value, f"{path}.", problems)
        elif value is not None:
            problems.append(f"{path} must be a section with keys of its own, not a single value")


def _nearest_key(key: str, prefix: str) -> str:
    """A key that looks alike in the same section, else anywhere, else all keys of the section."""
    paths = [path for path in _known_paths() if path.startswith(prefix)]
    beside = {name: prefix + name for name in (path.removeprefix(prefix).partition(".")[0] for path in paths)}
    anywhere = {path.rpartition(".")[2]: path for path in reversed(_known_paths())}
    near = did_you_mean(key, beside) or did_you_mean(key, anywhere)
    return near or f"; valid keys there: {', '.join(beside)}"
