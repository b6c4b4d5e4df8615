"""What the model of AWS says in place of an answer."""

from __future__ import annotations

from typing import Any


class ModelError(Exception):
    """A call was refused; `more` is what the answer says beside the code."""

    def __init__(self, code: str, more: dict[str, Any] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.more = more or {}
