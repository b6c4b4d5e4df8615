"""TypeScript of the examples as JavaScript, by the pinned esbuild."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.doubles.node_packages import NodePackageMissing, install, node_for
from tests.support.programs import unavailable

VERSION = "0.28.2"
FOLDER = Path(__file__).resolve().parents[2] / ".tools" / "esbuild"


@pytest.fixture(scope="session")
def browser_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client for browsers as a module of JavaScript; who asks is skipped where that cannot be made."""
    source = FOLDER.parents[1] / "examples" / "browser" / "client.ts"
    try:
        return strip_types(source, tmp_path_factory.mktemp("client") / "client.mjs")
    except NodePackageMissing as error:
        unavailable(str(error))


def strip_types(source: Path, target: Path, folder: Path = FOLDER) -> Path:
    """Write a module of TypeScript as JavaScript; raises NodePackageMissing."""
    node = node_for("esbuild")
    install(folder, "esbuild", VERSION)
    program = folder / "node_modules" / "esbuild" / "bin" / "esbuild"
    subprocess.run([node, program, source, f"--outfile={target}", "--log-level=error"], check=True)
    return target
