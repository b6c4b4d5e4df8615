"""Reads CloudFormation templates as plain data, their short tags as the functions they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PATH = Path(__file__).parents[2] / "infra" / "airunner.yaml"
GENERATION_PATH = PATH.with_name("generation.yaml")
FLEET_PATH = PATH.with_name("fleet.yaml")


class _Loader(yaml.SafeLoader):
    """Knows the tags of CloudFormation."""


def _function(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: object = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        raise AssertionError(f"!{tag} of a mapping")
    return {tag if tag == "Ref" else f"Fn::{tag}": value}


_Loader.add_multi_constructor("!", _function)


def load_template(path: Path = PATH) -> dict[str, Any]:
    """Return a template."""
    loaded: dict[str, Any] = yaml.load(path.read_text(), Loader=_Loader)  # noqa: S506 - a SafeLoader
    return loaded


def resources(kind: str, path: Path = PATH) -> dict[str, Any]:
    """Return the properties of all resources of a type, by their logical ids."""
    found = load_template(path)["Resources"].items()
    return {name: each.get("Properties", {}) for name, each in found if each["Type"] == kind}
