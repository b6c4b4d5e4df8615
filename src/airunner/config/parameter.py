"""The settings of a runner that come from a parameter: a small part of the tree, as JSON.

Whoever writes the parameter decides which server a machine works for, under which key and on which queues,
and nothing else. No problem that is told repeats a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NoReturn

from airunner.config.errors import ConfigError
from airunner.config.layers import Given, Layer

PARAMETER_KEYS: Final = ("client.server", "client.api_key", "worker.queues")
"""What a parameter may hold."""
_REQUIRED: Final = ("client.server", "worker.queues")
_SHOWN_CHARACTERS: Final = 40


def parameter_layer(text: str, name: str) -> Layer:
    """Return the settings of a parameter by its text and name; ConfigError names a key that is wrong."""
    problems: list[str] = []
    leaves = dict(_leaves(_parsed(text, name), problems))
    problems += [f"{path} is missing" for path in _REQUIRED if path not in leaves and not problems]
    if problems:
        raise ConfigError([f"parameter {name}: {problem}" for problem in problems])
    return {path: Given(value=value, origin=f"parameter {name}") for path, value in leaves.items()}


def parameter_text(server: tuple[str, ...], api_key: str, queues: tuple[str, ...]) -> str:
    """Return the text of a parameter; without a key for servers that want none."""
    client = {"server": list(server), **({"api_key": api_key} if api_key else {})}
    return json.dumps({"client": client, "worker": {"queues": list(queues)}})


def _parsed(text: str, name: str) -> dict[str, object]:
    problem = "is no JSON object"
    try:
        tree = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        problem = f"is not JSON at line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError) as error:
        problem = str(error) if isinstance(error, _NotOurs) else "is not JSON"
    else:
        if isinstance(tree, dict):
            return tree
    # Raised out here so that it has no context: the error of the parser holds the text, secrets included.
    raise ConfigError([f"parameter {name}: {problem}"])


def _leaves(tree: dict[str, object], problems: list[str]) -> Iterator[tuple[str, object]]:
    sections = {path.partition(".")[0] for path in PARAMETER_KEYS}
    for section, part in tree.items():
        if section not in sections:
            problems.append(_unknown(section))
        elif not isinstance(part, dict):
            problems.append(f"{section} must be a section with keys of its own")
        else:
            for key, value in part.items():
                if f"{section}.{key}" in PARAMETER_KEYS:
                    yield f"{section}.{key}", value
                else:
                    problems.append(_unknown(f"{section}.{key}"))


def _unknown(path: str) -> str:
    return f"unknown key {_shown(path)}; it may have {', '.join(PARAMETER_KEYS)}"


def _shown(key: str) -> str:
    text = key if key.isprintable() else repr(key)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class _NotOurs(ValueError):
    """Something that JSON of ours does not have."""


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise _NotOurs(f"the key {_shown(key)} is given twice")
    return dict(pairs)


def _no_constant(_: str) -> NoReturn:
    raise _NotOurs("is not JSON")
