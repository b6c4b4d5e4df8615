"""YAML files, read strictly: a repeated key is an error, and no error repeats what may be a secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from airunner.config.errors import ConfigError, reason


def read_yaml(path: Path, shown_as: str) -> Mapping[object, object]:
    """Return the tree of a file; an empty one is an empty tree."""
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"cannot read the configuration file {shown_as}: {reason(error)}"]) from None
    except yaml.YAMLError as error:
        problem = _yaml_problem(error)
    else:
        if tree is None:
            return {}
        if isinstance(tree, Mapping):
            return tree
        problem = "must be a mapping of keys to values"
    raise ConfigError([f"{shown_as}: {problem}"])


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Where and, when that cannot repeat a secret of the file, what."""
    mark = getattr(error, "problem_mark", None)
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    if isinstance(error, _RepeatedKeyError):
        return f"the key {error.key} is given twice, again{place}"
    what = f": {error.problem}" if isinstance(error, yaml.scanner.ScannerError) else ""
    return f"is not valid YAML{place}{what}"


class _RepeatedKeyError(yaml.MarkedYAMLError):
    """YAML forbids a repeated key; PyYAML alone would silently keep the last."""

    def __init__(self, node: yaml.ScalarNode) -> None:
        super().__init__(problem_mark=node.start_mark)
        self.key = node.value


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _RepeatedKeyError(key)
                seen.add(key.value)
        return super().construct_mapping(node, deep)
