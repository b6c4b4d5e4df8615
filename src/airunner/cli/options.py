"""The options that commands share. What is not given stays None, so that the settings below it count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.config import Layer, Loaded, Settings

CONNECTION_GROUP = Group("Connection", sort_key=90)
AsJson = Annotated[
    bool, Parameter(name="--json", help="Print JSON: one object per line, with the version of its schema.")
]
DataDir = Annotated[str | None, Parameter(help="Folder of the store. Default: .airunner")]
ConfigFile = Annotated[
    Path | None,
    Parameter(name="--config", help="YAML file of settings. Default: airunner.yaml, if it exists"),
]
JobId = Annotated[str, Parameter(help="The id of the job.")]
LogLevel = Annotated[str | None, Parameter(help="debug, info, warning or error.")]
LogFormat = Annotated[str | None, Parameter(help="json, console or auto.")]
MetricsListen = Annotated[
    str | None, Parameter(help="HOST:PORT that serves /metrics and /healthz. Default: none")
]


@Parameter(name="*", group=CONNECTION_GROUP)
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How a client command reaches the servers."""

    server: str | None = None
    """URL of the server, or several with commas (AIRUNNER_SERVER). Default: http://127.0.0.1:8080"""
    api_key: str | None = None
    """API key. Prefer AIRUNNER_API_KEY: other users can see the arguments of a process."""
    ca_file: str | None = None
    """PEM file of the certificate authorities to trust instead of the system's (AIRUNNER_CA_FILE)."""
    config: Path | None = None
    """YAML file of settings. Default: airunner.yaml, if it exists"""

    def load(self, flags: Mapping[str, object] | None = None) -> Settings:
        """Return the settings in effect, with these options and `flags` above all else."""
        return self.load_with_origins(flags).settings

    def load_with_origins(
        self, flags: Mapping[str, object] | None = None, *, is_diag: bool = False
    ) -> Loaded:
        """Return the same with the origin of each; a key that would go astray is refused."""
        from airunner.config import check_key_destination

        options: dict[str, object] = {
            "client.server": self.server,
            "client.api_key": self.api_key,
            "client.ca_file": self.ca_file,
        }
        given = {**options, **(flags or {})}
        loaded = load(self.config, given, with_database=is_diag, with_diag=is_diag)
        check_key_destination(loaded, is_diag=is_diag)
        return loaded


ANY_SERVER = ConnectionOptions()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """Which outbox to use. Its address is secret: AIRUNNER_POSTGRES__DSN, else DATABASE_URL."""

    schema: str | None = None
    """Schema of the outbox. Default: airunner"""
    config: Path | None = None
    """YAML file of settings. Default: airunner.yaml, if it exists"""

    def load(self, flags: dict[str, object] | None = None) -> Settings:
        """Return the settings in effect."""
        return self.load_with_origins(flags).settings

    def load_with_origins(self, flags: dict[str, object] | None = None) -> Loaded:
        """Return the settings in effect, and where each is from."""
        given = {"postgres.schema": self.schema, **(flags or {})}
        return load(self.config, given, with_database=True)


DEFAULT_DATABASE = DatabaseOptions()


def load(
    config_file: Path | None,
    flags: Mapping[str, object],
    *,
    with_database: bool | None = False,
    with_diag: bool = False,
    above: Layer | None = None,
) -> Loaded:
    """Return the settings in effect, and say which variables nobody reads."""
    from airunner.cli.printing import say
    from airunner.config import load_settings

    loaded = load_settings(
        config_file=config_file,
        flags=flags,
        with_database=with_database,
        with_diag=with_diag,
        above=above,
    )
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    return loaded
