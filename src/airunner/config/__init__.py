"""The one Settings tree, filled from defaults, a YAML file, the environment and flags.

`load_settings` is the only entry to settings, and `process_environment` to the rest of the environment;
nothing else in airunner reads a configuration file or `os.environ`.
"""

from __future__ import annotations

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
