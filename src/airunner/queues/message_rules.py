"""What every message queue has in common: what it takes, how long it lets a message be held, dead letters."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import InvalidArgument, MessageTooLarge
from airunner.domain.limits import MAX_VISIBILITY_SECONDS

if TYPE_CHECKING:
    from airunner.domain.errors import PermanentFailure
    from airunner.queues.messages import Message, NewMessage

MAX_MESSAGE_BYTES: Final = 1024 * 1024
"""Of the body and the attributes together. A queue may take less."""
MAX_SEND_DELAY_SECONDS: Final = 900
MAX_HOLD_SECONDS: Final = MAX_VISIBILITY_SECONDS - 60
"""How long one receive may hold a message, all extensions and the delay of its release included.

SQS counts twelve hours from the receive, by its own clock, and refuses what goes beyond.
"""
REASON_ATTRIBUTE: Final = "reason"
"""The attribute of a dead letter that holds the code of its PermanentFailure."""
ERROR_ATTRIBUTE: Final = "error"
"""The attribute of a dead letter that holds the text of its PermanentFailure."""
ABANDONED: Final = "abandoned"
"""The code of a letter that SQS put aside by itself: each of its receives ended without a word."""
_MAX_ERROR_CHARACTERS: Final = 1_000
# What is no character of XML 1.0: SQS refuses it.
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_message(message: NewMessage) -> NewMessage:
    """Return a message if a queue may take it; InvalidArgument or MessageTooLarge if none ever will."""
    if not message.body:
        raise InvalidArgument("the body of a message must not be empty")
    texts = [message.body, *message.attributes, *message.attributes.values()]
    if any(map(_FORBIDDEN.search, texts)):
        raise InvalidArgument("a message must not hold control characters, surrogates or noncharacters")
    size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
    if size > MAX_MESSAGE_BYTES:
        raise MessageTooLarge(f"a message must have at most {MAX_MESSAGE_BYTES} bytes, not {size}")
    if not 0 <= message.delay_seconds <= MAX_SEND_DELAY_SECONDS:
        raise InvalidArgument(
            f"delay_seconds must be from 0 to {MAX_SEND_DELAY_SECONDS}, not {message.delay_seconds}"
        )
    return message


def hold_seconds(message: Message, wanted_seconds: float, now: int) -> int:
    """Return for how many whole seconds from now a receive may hold its message, of those that are wanted.

    The result is 0 or less once MAX_HOLD_SECONDS have passed since the receive.
    """
    return min(math.ceil(wanted_seconds), (message.received_at - now) // 1000 + MAX_HOLD_SECONDS)


def dead_letter_attributes(message: Message, failure: PermanentFailure) -> dict[str, str]:
    """Return the attributes of a dead letter: those of the message, and the reason."""
    return {
        **message.attributes,
        REASON_ATTRIBUTE: _sendable(failure.code),
        ERROR_ATTRIBUTE: _sendable(str(failure)),
    }


def _sendable(text: str) -> str:
    """Return a text that can be an attribute: short, not empty, and of characters that SQS takes."""
    return _FORBIDDEN.sub("\ufffd", text[:_MAX_ERROR_CHARACTERS]) or "-"
