"""airunner beside its peers: `make bench-peers`; with ARGS=--sweep, everybody is tuned first.

Without --sweep, the table is printed as Markdown, and the exit code says whether the promises are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import uvloop

from benchmarks.__main__ import HEADER, exit_code, line_of, show
from benchmarks.peers import comparison, contest, document
from benchmarks.peers.contenders import AIRUNNER, PEERS


async def main(arguments: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    if arguments.sweep:
        rounds = arguments.rounds or comparison.SWEEP_ROUNDS
        await contest.sweep(rounds, arguments.jobs, arguments.kinds, arguments.contenders)
        return 0
    parts = comparison.parts(arguments.rounds or comparison.ROUNDS, arguments.jobs)
    rows = await show({name: parts[name] for name in arguments.parts or parts})
    if arguments.write and arguments.parts:
        document.write_rows([line_of(row) for row in rows])
    elif arguments.write:
        document.write([HEADER, *map(line_of, rows)])
    return exit_code(rows)


def _arguments() -> argparse.Namespace:
    names = [contender.name for contender in (AIRUNNER, *PEERS)]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(comparison.parts(1, 1))}; all"
    )
    rounds = f"of each contender; {comparison.ROUNDS}, with --sweep {comparison.SWEEP_ROUNDS}"
    parser.add_argument("--rounds", type=int, help=rounds)
    parser.add_argument("--jobs", type=int, default=comparison.JOBS, help="of the slowest; %(default)s")
    written = "put the table, or the rows of some parts, into docs/performance.md"
    parser.add_argument("--write", action="store_true", help=written)
    parser.add_argument("--sweep", action="store_true", help="let everybody drain in each of its ways")
    parser.add_argument("--kinds", nargs="+", default=list(contest.KINDS), choices=contest.KINDS)
    parser.add_argument("--contenders", nargs="+", default=names, choices=names, help="whom to sweep")
    return parser.parse_args()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main(_arguments())))
