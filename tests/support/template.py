"""Reads the CloudFormation template as plain data, its short tags as the functions they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PATH = Path(__file__).parents[2] / "infra" / "airunner.yaml"


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


def load_template() -> dict[str, Any]:
    """Return the template."""
    loaded: dict[str, Any] = yaml.load(PATH.read_text(), Loader=_Loader)  # noqa: S506 - a SafeLoader
    return loaded


def resources(kind: str) -> dict[str, Any]:
    """Return the properties of all resources of a type, by their logical ids."""
    found = load_template()["Resources"].items()
    return {name: each.get("Properties", {}) for name, each in found if each["Type"] == kind}
