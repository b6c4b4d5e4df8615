"""The launcher of a local PostgreSQL: `python -m airunner.local.postgres.program BINARIES FOLDER`.

It writes a line to standard output once the server answers, and ends it when its standard input ends, which
the death of the parent brings about too. The server dies with the launcher, whatever kills that.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

PORT: Final = 5432
"""Only a part of the name of the socket."""
_NOBODY: Final = 65534
_PR_SET_PDEATHSIG: Final = 1
_STEP_SECONDS: Final = 0.01
_STOP_SECONDS: Final = 8
_STARTS: Final = 20
_PAUSE_SECONDS: Final = 0.25
_SETTINGS: Final = (
    *("listen_addresses=", "fsync=off", "full_page_writes=off"),
    *("max_connections=60", "shared_buffers=16MB", "autovacuum=off", "log_min_messages=fatal"),
)
_libc = ctypes.CDLL(None)


def main(binaries: Path, folder: Path) -> None:
    """Serve until standard input ends, or the server does."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if os.getuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
    with tempfile.TemporaryDirectory(prefix="airunner-pg-bin-") as copies:
        programs = readable(binaries, Path(copies))
        data = folder / "data"
        if not (data / "PG_VERSION").exists():
            run_initdb(programs, data)
        server = start(programs, data, folder)
        sys.stdout.write(f"{PORT}\n")
        sys.stdout.flush()
        wait(server)
        stop(server)


def readable(binaries: Path, copies: Path) -> Path:
    """Return the folder of the programs if nobody may read it, else that of a copy with its libraries."""
    if os.getuid() != 0 or can_be_entered(binaries):
        return binaries
    copies.chmod(0o755)
    installed = binaries.parent
    # Libraries of a wheel are beside its package, and are found from there.
    package = installed.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copies / libraries.name)
    shutil.copytree(installed, copies / package.name / installed.name, symlinks=True)
    return copies / package.name / installed.name / binaries.name


def can_be_entered(folder: Path) -> bool:
    """Return whether everybody may read a folder."""
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.resolve().parents))


def run_initdb(programs: Path, data: Path) -> None:
    """Make the files of a server without any database of ours."""
    subprocess.run(  # noqa: S603  a program that was looked for
        [
            *(str(programs / "initdb"), "--pgdata", str(data), "--username", "airunner"),
            *("--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        **as_nobody(),
    )


def start(programs: Path, data: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start the server, and return once it takes connections."""
    options = [argument for setting in _SETTINGS for argument in ("-c", setting)]
    command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), "-p", str(PORT), *options]
    for _ in range(_STARTS):
        server = subprocess.Popen(  # noqa: S603  as above
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **as_nobody(die_with_us=True)
        )
        if is_ready(server, data):
            return server
        # Processes of a server that was killed hold its memory for a moment.
        time.sleep(_PAUSE_SECONDS)
    sys.exit("PostgreSQL does not start; its reasons are above")


def is_ready(server: subprocess.Popen[bytes], data: Path) -> bool:
    """Return whether the server came up, once that is known."""
    while server.poll() is None:
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
        except OSError:
            lines = []
        if len(lines) > 7 and int(lines[0]) == server.pid and lines[7].strip() == "ready":
            return True
        time.sleep(_STEP_SECONDS)
    return False


def wait(server: subprocess.Popen[bytes]) -> None:
    """Return when standard input has ended or the server has, or a signal asks for that."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    while server.poll() is None:
        ready, _, _ = select.select([sys.stdin, reader], [], [])
        if sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096):
            return
        if reader in ready and {signal.SIGTERM, signal.SIGINT} & set(os.read(reader, 64)):
            return


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the server without waiting for its clients."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGQUIT)
        server.wait()


def as_nobody(*, die_with_us: bool = False) -> dict[str, Any]:
    """Return what makes a program nobody's, where we are root; no account is needed for that."""
    who: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    # After the change of user, which would forget it.
    return {**who, "cwd": "/", "preexec_fn": _die_with_parent if die_with_us else None}


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
