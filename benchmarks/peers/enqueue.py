"""Enqueue jobs at a peer: python -m benchmarks.peers.enqueue MODULE COUNT, in the peers' environment."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    importlib.import_module(sys.argv[1]).enqueue(int(sys.argv[2]))
