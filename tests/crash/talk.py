"""The job of the crash tests: it prints, and keeps its own account of what it printed.

talk.py FOLDER SEED LINES PAUSE [HOLD_AT FILE]: lines on both streams, a pause after each; before line HOLD_AT
it waits for a file to appear. The account is in FOLDER, JOB.ATTEMPT.stdout and .stderr, and is written first,
so that what was printed is always a beginning of it. JOB.ATTEMPT.pid tells who we are.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path


def main() -> None:
    """Print what the arguments ask for."""
    folder, seed, lines, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    hold_at, hold_file = (int(sys.argv[5]), sys.argv[6]) if len(sys.argv) > 5 else (-1, "")
    account = f"{folder}/{os.environ['AIRUNNER_JOB_ID']}.{os.environ['AIRUNNER_ATTEMPT']}"
    Path(f"{account}.pid").write_text(str(os.getpid()))
    chance = random.Random(seed)
    with (
        Path(f"{account}.stderr").open("wb", 0) as errors,
        Path(f"{account}.stdout").open("wb", 0) as outputs,
    ):
        for number in range(lines):
            while number == hold_at and not Path(hold_file).exists():
                time.sleep(0.02)
            is_error = chance.random() < 0.3
            text = b"%d %s\n" % (number, chance.randbytes(chance.randrange(60)).replace(b"\n", b"."))
            (errors if is_error else outputs).write(text)
            os.write(2 if is_error else 1, text)
            if pause:
                time.sleep(pause)


if __name__ == "__main__":
    main()
