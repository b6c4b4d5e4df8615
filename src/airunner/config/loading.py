"""Lays the layers over each other and validates the result."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from airunner.config.concealed import own_variables
from airunner.config.errors import did_you_mean
from airunner.config.layers import (
    CREDENTIAL_VARIABLES,
    DATABASE_VARIABLES,
    DIAG_VARIABLES,
    FOREIGN_VARIABLES,
    PREFIX,
    Layer,
    Origin,
    credential_layer,
    database_layer,
    diag_layer,
    file_layer,
    flag_layer,
    foreign_layer,
    known_variables,
    read_dotenv,
    variable_layer,
)
from airunner.config.plain import read_plainly
from airunner.config.settings import Settings, secret_paths, setting_fields, value_at
from airunner.config.values import Secret

DEFAULT_FILE = "airunner.yaml"
DEFAULT_ORIGIN: Origin = "default"
DOTENV_FILE = ".env"
TRUST_VARIABLE = f"{PREFIX}TRUST_FOLDER"
_YES = frozenset({"1", "true", "yes", "on"})
_IN_DOTENV = f" ({DOTENV_FILE})"
_OTLP_HEADERS = re.compile(r"OTEL_EXPORTER_OTLP_(\w+_)?HEADERS")
_FILE_ORIGIN = re.compile(r"file (?P<name>.*?)(, key .*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in effect, where each came from, and the `AIRUNNER_` variables that nobody reads.

    `from_folder` names the settings that come from files which merely lie in the current folder; none do when
    the environment says that the folder is trusted.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    unknown_variables: tuple[str, ...] = ()
    from_folder: frozenset[str] = frozenset()

    @property
    def warnings(self) -> list[str]:
        """A ready text for each unknown variable, with the nearest known name."""
        known = {name.removeprefix(PREFIX): name for name in known_variables()}
        return [
            f"unknown variable {name} is ignored{did_you_mean(name.removeprefix(PREFIX), known)}"
            for name in self.unknown_variables
        ]

    def file_of(self, path: str) -> Path | None:
        """Return the file that a setting came from, as it was named; None if it came from elsewhere."""
        origin = self.origins[path]
        if origin.endswith(_IN_DOTENV):
            return Path(DOTENV_FILE)
        found = _FILE_ORIGIN.fullmatch(origin)
        return Path(found["name"]) if found else None


def load_settings(
    *,
    config_file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    with_database: bool | None = False,
    with_diag: bool = False,
    above: Layer | None = None,
) -> Loaded:
    """Settings from, lowest to highest: defaults, YAML file, `.env`, environment, flags; else ConfigError.

    The variables that other programs read too (`AWS_REGION`) stand right above the defaults.
    A `config_file` must exist; without one, `airunner.yaml` in `cwd` is read if it is there.
    With `with_database`, `DATABASE_URL` is one of them; with None, where the services or settings name
    generation. With `with_diag`, the `INTEGRATION_` variables of test suites are read too.
    `flags` maps dotted paths to values; None is a flag that was not given. Nothing is kept between calls.
    `above` counts more than all of them, and its values are never shown.
    """
    folder = Path.cwd() if cwd is None else cwd
    environment = own_variables() if environ is None else dict(environ)
    dotenv = read_dotenv(folder / DOTENV_FILE)
    # A real variable hides the one of the file even when it is empty: that is how to switch one off.
    from_dotenv = {name: text for name, text in dotenv.items() if name not in environment}
    layers = [
        foreign_layer(from_dotenv, _IN_DOTENV),
        foreign_layer(environment),
        diag_layer(from_dotenv if with_diag else {}, _IN_DOTENV, from_folder=True),
        diag_layer(environment if with_diag else {}),
        _chosen_file(folder, config_file),
        variable_layer(from_dotenv, _IN_DOTENV, from_folder=True),
        variable_layer(environment),
        flag_layer(flags or {}),
        above or {},
    ]
    merged = _merged(layers)
    credentials = credential_layer(dotenv, environment, _IN_DOTENV)
    if not merged.keys() & {*CREDENTIAL_VARIABLES.values()}:
        merged |= credentials
    if _names_generation(merged) if with_database is None else with_database:
        # Lowest of all, as other programs' variables are.
        merged = _merged([database_layer(from_dotenv, _IN_DOTENV), database_layer(environment), merged])
    found = frozenset(path for path, given in merged.items() if given.from_folder)
    # The folder cannot vouch for itself, so its own file is not asked.
    trusted = environment.get(TRUST_VARIABLE, "").lower() in _YES
    unknown = _unknown({*environment.keys() - {TRUST_VARIABLE}, *from_dotenv})
    loaded = _validated(merged, unknown, hidden=frozenset(above or ()))
    return replace(loaded, from_folder=frozenset() if trusted else found)


def process_environment() -> dict[str, str]:
    """The environment of this process: for those that it starts, and for secrets given by name."""
    return dict(os.environ)


def environment_for_jobs(settings: Settings | None = None) -> dict[str, str]:
    """The environment that jobs inherit: without airunner's own variables and without headers for OTLP.

    Both are the worker's own, and may be secret. So is another program's variable that fills a secret
    setting; without settings, each that might.
    """
    filled = {
        name
        for name, path in DATABASE_VARIABLES.items()
        if settings is None or _is_filled_by(os.environ.get(name, ""), value_at(settings, path))
    }
    return {
        name: text
        for name, text in environment_for_children().items()
        if name not in filled and not _OTLP_HEADERS.fullmatch(name)
    }


def environment_for_children() -> dict[str, str]:
    """The environment of programs of ours that have their own settings: without airunner's variables."""
    return {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}


def environment_without_settings() -> dict[str, str]:
    """The same without other programs' variables that are settings here, for children that nobody configured.

    They, and those of the SDK of AWS, may be set for other purposes: `START_GEN_WORKER`, `DATABASE_URL`.
    """
    foreign = {*FOREIGN_VARIABLES, *DATABASE_VARIABLES, *DIAG_VARIABLES}
    return {
        name: text
        for name, text in environment_for_children().items()
        if name not in foreign and not name.startswith("AWS_")
    }


def _is_filled_by(text: str, value: object) -> bool:
    return isinstance(value, Secret) and value.get_secret_value() == text


def _names_generation(given: Layer) -> bool:
    """Return whether a server has to do with generation, by its services or by its settings."""
    services = given.get("services")
    named = services is not None and "generation" in str(services.value)
    return named or any(path.startswith("generation.") or path == "outbox.start_relay" for path in given)


def _chosen_file(folder: Path, config_file: Path | None) -> Layer:
    if config_file is not None:
        return file_layer(folder / config_file, str(config_file))
    default = folder / DEFAULT_FILE
    return file_layer(default, DEFAULT_FILE, from_folder=True) if default.exists() else {}


def _merged(layers: list[Layer]) -> Layer:
    merged: Layer = {}
    for layer in layers:
        merged.update(layer)
    return merged


def _validated(given: Layer, unknown_variables: tuple[str, ...], *, hidden: frozenset[str]) -> Loaded:
    origins = {path: given[path].origin if path in given else DEFAULT_ORIGIN for path in setting_fields()}
    nested = _nested(given)
    settings = read_plainly(Settings, nested)
    if settings is None:
        # Imported here, since most settings are plainly right.
        from airunner.config.judging import judge

        settings = judge(Settings, nested, origins, secret_paths() | hidden)
    return Loaded(settings=settings, origins=MappingProxyType(origins), unknown_variables=unknown_variables)


def _nested(layer: Layer) -> dict[str, object]:
    root: dict[str, object] = {}
    for path, given in layer.items():
        *sections, name = path.split(".")
        place = root
        for section in sections:
            place = place.setdefault(section, {})  # type: ignore[assignment]  # only leaves hold other values
        place[name] = given.value
    return root


def _unknown(names: set[str]) -> tuple[str, ...]:
    known = known_variables()
    return tuple(sorted(name for name in names if name.startswith(PREFIX) and name not in known))
