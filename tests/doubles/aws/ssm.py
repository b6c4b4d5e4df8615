"""The parameters of Systems Manager as strict as AWS, on an emulator that is not."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.calls import Refusal, answered, refused
from tests.doubles.aws.faults import FaultKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.faults import Fault
    from tests.doubles.aws.wire import AwsAnswer

    Send = Callable[[Call], Awaitable[AwsAnswer]]

AT_ONCE: Final = 10
"""How many parameters a page has, and a deletion names, at most."""
VALUE_BYTES: Final = 4096
"""Of a standard parameter."""
LEVELS: Final = 15
TAGS: Final = 50

_NAME: Final = re.compile(r"/?[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_FIRST_PAGE: Final = "the first page"


async def perform_ssm(call: Call, send: Send, befalling: Mapping[FaultKind, Fault]) -> AwsAnswer:
    """Perform a call, or refuse it. Encrypted values are unreadable unless their decryption was asked for."""
    if refusal := ssm_refusal(call):
        return refused(call, refusal)
    token = call.body.get("NextToken", "")
    if FaultKind.EMPTY_PAGE in befalling and call.operation == "GetParametersByPath":
        return answered({"Parameters": [], "NextToken": token or _FIRST_PAGE})
    if token == _FIRST_PAGE:
        call = call.with_body({name: value for name, value in call.body.items() if name != "NextToken"})
    answer = await send(call)
    is_read = call.operation.startswith("GetParameter") and answer.status == 200
    return _encrypted(answer) if is_read and not call.body.get("WithDecryption") else answer


def ssm_refusal(call: Call) -> Refusal | None:
    """Return why SSM refuses a call, beside what the emulator knows."""
    body = call.body
    if call.operation == "GetParametersByPath":
        return _listing_refusal(body)
    if call.operation in {"DeleteParameters", "GetParameters"}:
        if not 1 <= len(body["Names"]) <= AT_ONCE:
            return _invalid(f"names must have from 1 to {AT_ONCE} members")
        return _invalid("names must differ") if len(set(body["Names"])) < len(body["Names"]) else None
    return _put_refusal(body) if call.operation == "PutParameter" else None


def _listing_refusal(body: Mapping[str, Any]) -> Refusal | None:
    if not 1 <= body.get("MaxResults", AT_ONCE) <= AT_ONCE:
        return _invalid(f"maxResults must be from 1 to {AT_ONCE}")
    return None if body["Path"].startswith("/") else _invalid("The parameter path must begin with '/'")


def _put_refusal(body: Mapping[str, Any]) -> Refusal | None:
    name = body["Name"]
    if not _NAME.fullmatch(name) or name.lstrip("/").lower().startswith(("aws", "ssm")):
        return _invalid("Parameter name: not an allowed one")
    if name.count("/") > LEVELS:
        code = "HierarchyLevelLimitExceededException"
        return Refusal(code=code, message=f"A hierarchy has at most {LEVELS} levels.")
    if len(body["Value"].encode()) > VALUE_BYTES and body.get("Tier", "Standard") == "Standard":
        return _invalid(f"Standard tier parameters support a maximum value of {VALUE_BYTES} characters")
    if body.get("Tags") and body.get("Overwrite"):
        return _invalid("tags and overwrite can't be used together")
    return _invalid("too many tags") if len(body.get("Tags", ())) > TAGS else None


def _encrypted(answer: AwsAnswer) -> AwsAnswer:
    body = json.loads(answer.body)
    for parameter in (*body.get("Parameters", ()), *([body["Parameter"]] if "Parameter" in body else ())):
        if parameter["Type"] == "SecureString":
            digest = hashlib.sha256(parameter["Value"].encode()).digest()
            parameter["Value"] = base64.b64encode(digest).decode()
    return answer.with_json(body)


def _invalid(message: str) -> Refusal:
    return Refusal(code="ValidationException", message=message)
