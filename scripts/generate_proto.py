"""Generate the Python code of the contract in api/, or with --check tell whether it is current."""

from __future__ import annotations

import argparse
import filecmp
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
# protoc derives module names from the paths it is given, so it sees api/ as a folder of the package.
PACKAGE = "airunner/codec/gen"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if the code is out of date"
    )
    if not parser.parse_args().check:
        generate(SOURCE)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = differences(Path(folder) / PACKAGE, SOURCE / PACKAGE)
    if stale:
        sys.exit("generated code is out of date, run make proto: " + ", ".join(stale))


def generate(target: Path) -> None:
    """Write the packages and modules of every contract below api/ to the target folder."""
    protos = sorted(path.relative_to(ROOT / "api") for path in (ROOT / "api").rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PACKAGE}=api"]
    command += [f"--{kind}_out={target}" for kind in ("python", "pyi", "connectrpc")]
    command += ["--connectrpc_opt=protobuf=google", *(f"{PACKAGE}/{proto.as_posix()}" for proto in protos)]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=True)
    for proto in protos:
        for folder in [proto.parent, *proto.parent.parents]:
            (target / PACKAGE / folder / "__init__.py").touch()


def differences(generated: Path, committed: Path) -> list[str]:
    """Name the files that are missing, left over or different in the committed folder."""
    names = {path.relative_to(folder) for folder in (generated, committed) for path in folder.rglob("*.py*")}
    sources = sorted(name for name in names if name.suffix in {".py", ".pyi"})
    return [name.as_posix() for name in sources if not same(generated / name, committed / name)]


def same(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


if __name__ == "__main__":
    main()
