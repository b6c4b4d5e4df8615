"""airunner: run long jobs anywhere, watch every line of them live, and never lose one."""

from __future__ import annotations

__version__ = "0.1.0"
