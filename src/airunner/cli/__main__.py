"""`python -m airunner.cli` is `airunner`."""

from __future__ import annotations

from airunner.cli.main import main

if __name__ == "__main__":
    main()
