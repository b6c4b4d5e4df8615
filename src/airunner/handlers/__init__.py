"""Python functions as jobs.

    from airunner.handlers import Context, PermanentFailure, handler

    @handler("resize")
    def resize(payload: dict, ctx: Context) -> dict:
        print("this line is watched live")
        return {"width": payload["width"]}

A worker finds them with `airunner worker --handlers MODULE|PATH`.
"""

from airunner.domain.errors import JobProcessingError, PermanentFailure
from airunner.handlers.arguments import HandlerError
from airunner.handlers.context import Context
from airunner.handlers.registry import handler

__all__ = ["Context", "HandlerError", "JobProcessingError", "PermanentFailure", "handler"]
