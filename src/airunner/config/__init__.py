"""The one Settings tree, filled from defaults, a YAML file, the environment and flags.

`load_settings` is the only entry to settings, and `process_environment` to the rest of the environment;
nothing else in airunner reads a configuration file or `os.environ`.

Each name is imported from its home when it is first used: a client command loads nothing that shows or hides
settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from airunner.config.concealed import environment_handing_over, exposed_secrets, take_over_secrets
    from airunner.config.descriptor_limit import descriptor_limit_for_jobs, raise_descriptor_limit
    from airunner.config.display import SettingLine, describe, hide_credentials, to_jsonable
    from airunner.config.errors import ConfigError
    from airunner.config.layers import AWS_CREDENTIALS, Layer, Origin
    from airunner.config.loading import (
        Loaded,
        environment_for_children,
        environment_for_jobs,
        environment_without_settings,
        load_settings,
        process_environment,
    )
    from airunner.config.parameter import parameter_layer, parameter_text
    from airunner.config.settings import (
        AwsSettings,
        BatchingSettings,
        ClientSettings,
        ClusterSettings,
        DynamodbSettings,
        ExecutionSettings,
        FleetPart,
        FleetSettings,
        LimitSettings,
        LogFormat,
        LogLevel,
        QueueDefaults,
        S3Settings,
        ServerSettings,
        ServiceName,
        Settings,
        SqsSettings,
        StoreSettings,
        StoreType,
        TlsSettings,
        WorkerSettings,
    )
    from airunner.config.trust import check_handler_origins, check_key_destination
    from airunner.config.values import ListenAddress, Secret

__all__ = [
    "AWS_CREDENTIALS",
    "AwsSettings",
    "BatchingSettings",
    "ClientSettings",
    "ClusterSettings",
    "ConfigError",
    "DynamodbSettings",
    "ExecutionSettings",
    "FleetPart",
    "FleetSettings",
    "Layer",
    "LimitSettings",
    "ListenAddress",
    "Loaded",
    "LogFormat",
    "LogLevel",
    "Origin",
    "QueueDefaults",
    "S3Settings",
    "Secret",
    "ServerSettings",
    "ServiceName",
    "SettingLine",
    "Settings",
    "SqsSettings",
    "StoreSettings",
    "StoreType",
    "TlsSettings",
    "WorkerSettings",
    "check_handler_origins",
    "check_key_destination",
    "describe",
    "descriptor_limit_for_jobs",
    "environment_for_children",
    "environment_for_jobs",
    "environment_handing_over",
    "environment_without_settings",
    "exposed_secrets",
    "hide_credentials",
    "load_settings",
    "parameter_layer",
    "parameter_text",
    "process_environment",
    "raise_descriptor_limit",
    "take_over_secrets",
    "to_jsonable",
]

_HOMES = {
    "airunner.config.concealed": ("environment_handing_over", "exposed_secrets", "take_over_secrets"),
    "airunner.config.descriptor_limit": ("descriptor_limit_for_jobs", "raise_descriptor_limit"),
    "airunner.config.display": ("SettingLine", "describe", "hide_credentials", "to_jsonable"),
    "airunner.config.errors": ("ConfigError",),
    "airunner.config.layers": ("AWS_CREDENTIALS", "Layer", "Origin"),
    "airunner.config.loading": (
        "Loaded",
        "environment_for_children",
        "environment_for_jobs",
        "environment_without_settings",
        "load_settings",
        "process_environment",
    ),
    "airunner.config.parameter": ("parameter_layer", "parameter_text"),
    "airunner.config.settings": (
        "AwsSettings",
        "BatchingSettings",
        "ClientSettings",
        "ClusterSettings",
        "DynamodbSettings",
        "ExecutionSettings",
        "FleetPart",
        "FleetSettings",
        "LimitSettings",
        "LogFormat",
        "LogLevel",
        "QueueDefaults",
        "S3Settings",
        "ServerSettings",
        "ServiceName",
        "Settings",
        "SqsSettings",
        "StoreSettings",
        "StoreType",
        "TlsSettings",
        "WorkerSettings",
    ),
    "airunner.config.trust": ("check_handler_origins", "check_key_destination"),
    "airunner.config.values": ("ListenAddress", "Secret"),
}

# Hidden from type checkers, which would take every name for one that exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name from its home, and keep it."""
        from airunner.domain import import_late

        found = globals()[name] = import_late(__name__, name, _HOMES)
        return found
