"""Submit a job and watch it, in plain Python.

    python examples/monitor.py COMMAND [ARGS...]

The iterator reconnects and resumes by itself; it ends when the job does.
"""

from __future__ import annotations

import os
import sys

from airunner import Client, JobParams, Output, ProcessEnd, ProcessError

SERVER = os.environ.get("AIRUNNER_SERVER", "http://127.0.0.1:8080")


def main(command: str, *args: str) -> int:
    """Run a command as a job, print what it prints, and return its exit code."""
    with Client(SERVER) as client:
        job = client.enqueue(JobParams(command=command, args=args))
        for event in client.monitor(job.job_id):
            match event.data:
                case Output(output=output):
                    sys.stdout.buffer.write(output)
                    sys.stdout.flush()
                case ProcessError(error_message=message):
                    print(f"error: {message}", file=sys.stderr)
                case ProcessEnd(exit_code=exit_code):
                    print(f"process ended with {exit_code}", file=sys.stderr)
        result = client.get_job(job.job_id).result
        return result.exit_code if result else 1


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["echo", "hello"])))
