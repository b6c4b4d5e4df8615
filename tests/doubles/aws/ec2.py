"""EC2 as strict as AWS, in pages, and late with what it knows; on an emulator that is neither."""

from __future__ import annotations

import copy
import itertools
import secrets
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tests.doubles.aws.calls import Refusal, refused
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.wire import AwsAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.faults import Fault, Faults

    Send = Callable[[Call], Awaitable[AwsAnswer]]
    Page = list[ET.Element]

ACCOUNT: Final = "123456789012"
"""The account of the emulator: all instances are its own."""
FILTER_VALUES: Final = 200
"""How many values all filters of a call may have."""
PAGE_LIMITS: Final = (5, 1000)
IDS_AT_ONCE: Final = 1000

_SPACE: Final = "{http://ec2.amazonaws.com/doc/2016-11-15}"
_CHANGES: Final = frozenset({
    "CreateTags",
    "DeleteTags",
    "RunInstances",
    "StartInstances",
    "StopInstances",
    "TerminateInstances",
})  # fmt: skip
_ALL: Final = str(10**9)


class StrictEc2:
    """What EC2 knows beyond the emulator; shared by all proxies before one emulator."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._rest: dict[str, Page] = {}
        self._serial = 0
        self._images: list[tuple[int, Page]] = []
        self._crowd: dict[str, ET.Element] = {}

    def add_crowd(self, count: int, tags: Mapping[str, str], *, age_seconds: float = 0) -> list[str]:
        """Add running instances that this double alone knows; return their ids.

        The emulator takes seconds to describe a thousand. They are found by filters, and can be terminated.
        """
        made = [f"i-{secrets.token_hex(6)}{number:05x}" for number in range(count)]
        launched = datetime.now(UTC) - timedelta(seconds=age_seconds)
        self._crowd |= {instance_id: _element(instance_id, launched, tags) for instance_id in made}
        return made

    def catch_up(self) -> None:
        """Let every description know of every change so far."""
        self._images.clear()

    async def perform(
        self, call: Call, send: Send, faults: Faults, befalling: Mapping[FaultKind, Fault]
    ) -> AwsAnswer:
        """Perform a call, refuse it, or describe what was."""
        self._serial += 1
        if refusal := ec2_refusal(call) or self._token_refusal(call):
            return refused(call, refusal)
        if call.operation in _CHANGES and faults.has_lags:
            image = [*_instances(await send(_everything(call))), *map(copy.deepcopy, self._crowd.values())]
            self._images.append((self._serial, image))
        if call.operation == "DescribeInstances":
            return await self._describe(call, send, befalling)
        if call.operation == "TerminateInstances":
            return await self._terminate(call, send)
        return await send(call)

    async def _terminate(self, call: Call, send: Send) -> AwsAnswer:
        ids = numbered(call.body, "InstanceId.")
        elsewhere = [one for one in ids if one not in self._crowd]
        answer = _answer("TerminateInstancesResponse", "instancesSet")
        if elsewhere:
            form = {name: text for name, text in call.body.items() if not name.startswith("InstanceId.")}
            listed = {f"InstanceId.{number}": one for number, one in enumerate(elsewhere, 1)}
            answer = await send(call.with_form(form | listed))
        if answer.status == 200:
            for element in map(self._crowd.get, ids):
                if element is not None:
                    _set_state(element, "terminated")
        return answer

    async def _describe(self, call: Call, send: Send, befalling: Mapping[FaultKind, Fault]) -> AwsAnswer:
        token = call.body.get("NextToken", "")
        if FaultKind.EMPTY_PAGE in befalling:
            return _described([], token or self._keep(await self._found(call, send, befalling)))
        found = self._rest.pop(token) if token else await self._found(call, send, befalling)
        if isinstance(found, AwsAnswer):
            return found
        size = int(call.body.get("MaxResults", PAGE_LIMITS[1]))
        return _described(found[:size], self._keep(found[size:]) if found[size:] else "")

    def _keep(self, rest: Page | AwsAnswer) -> str:
        token = f"page-{next(self._tokens)}"
        self._rest[token] = [] if isinstance(rest, AwsAnswer) else rest
        return token

    async def _found(self, call: Call, send: Send, befalling: Mapping[FaultKind, Fault]) -> Page | AwsAnswer:
        """Return what a description is of, or why there is none."""
        if (lag := befalling.get(FaultKind.STALE_READ)) and (image := self._image(lag)) is not None:
            filters, wanted = filters_of(call.body), numbered(call.body, "InstanceId.")
            return [one for one in image if _fits(one, filters) and (not wanted or _id(one) in wanted)]
        form = {name: text for name, text in call.body.items() if name not in {"MaxResults", "NextToken"}}
        has_ids = any(name.startswith("InstanceId.") for name in form)
        answer = await send(call.with_form(form if has_ids else form | {"MaxResults": _ALL}))
        if answer.status != 200:
            return answer
        filters = filters_of(form)
        return [*_instances(answer), *(one for one in self._crowd.values() if _fits(one, filters))]

    def _image(self, lag: Fault) -> Page | None:
        """Return what a lagging description is of: what was before the first change that it does not know."""
        reaches_to = 0 if lag.requests is None else self._serial - lag.requests
        return next((image for serial, image in self._images if serial >= reaches_to), None)

    def _token_refusal(self, call: Call) -> Refusal | None:
        token = call.body.get("NextToken", "") if call.operation == "DescribeInstances" else ""
        if token and token not in self._rest:
            return Refusal(code="InvalidNextToken", message="The token is not of this description.")
        return None


def ec2_refusal(call: Call) -> Refusal | None:
    """Return why EC2 refuses a call, beside what the emulator knows."""
    ids = numbered(call.body, "InstanceId.")
    if call.operation in {"DescribeInstances", "TerminateInstances"}:
        if bad := next((one for one in ids if not _is_well_formed(one)), ""):
            return Refusal(code="InvalidInstanceID.Malformed", message=f'Invalid id: "{bad}"')
        if len(ids) > IDS_AT_ONCE:
            return Refusal(code="InvalidParameterValue", message="Too many instance ids.")
    if call.operation == "TerminateInstances" and not ids:
        return Refusal(code="MissingParameter", message="The request must contain InstanceId.")
    return _description_refusal(call.body, ids) if call.operation == "DescribeInstances" else None


def filters_of(form: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the filters of a call: by name, the values of which one must fit."""
    count = sum(name.startswith("Filter.") and name.endswith(".Name") for name in form)
    return {form[f"Filter.{n}.Name"]: numbered(form, f"Filter.{n}.Value.") for n in range(1, count + 1)}


def numbered(form: Mapping[str, str], prefix: str) -> list[str]:
    """Return the values of a list in a form."""
    return [text for name, text in form.items() if name.startswith(prefix)]


def _description_refusal(form: Mapping[str, str], ids: list[str]) -> Refusal | None:
    least, most = PAGE_LIMITS
    if "MaxResults" in form and ids:
        message = "The parameter instancesSet cannot be used with the parameter maxResults"
        return Refusal(code="InvalidParameterCombination", message=message)
    if not least <= int(form.get("MaxResults", most)) <= most:
        return Refusal(code="InvalidParameterValue", message=f"MaxResults must be from {least} to {most}.")
    filters = filters_of(form)
    if sum(map(len, filters.values())) > FILTER_VALUES:
        return Refusal(code="FilterLimitExceeded", message=f"The maximum is {FILTER_VALUES} filter values.")
    if unknown := next((name for name in filters if not _is_filter(name)), ""):
        return Refusal(code="InvalidParameterValue", message=f"The filter '{unknown}' is invalid")
    return None


def _is_filter(name: str) -> bool:
    """Return whether it is one of those filters that a lagging description knows."""
    return name in {"instance-id", "instance-state-name"} or name.startswith("tag:")


def _is_well_formed(instance_id: str) -> bool:
    digits = instance_id.removeprefix("i-")
    return len(digits) in {8, 17} and digits != instance_id and not set(digits) - set("0123456789abcdef")


def _everything(call: Call) -> Call:
    form = {"Action": "DescribeInstances", "Version": call.body["Version"], "MaxResults": _ALL}
    return call.with_form(form)


def _instances(answer: AwsAnswer) -> Page:
    root = ET.fromstring(answer.body)  # noqa: S314 - our own emulator wrote it
    path = f"{_SPACE}reservationSet/{_SPACE}item/{_SPACE}instancesSet/{_SPACE}item"
    return root.findall(path)


def _fits(instance: ET.Element, filters: Mapping[str, Iterable[str]]) -> bool:
    tags = {
        tag.findtext(f"{_SPACE}key"): tag.findtext(f"{_SPACE}value")
        for tag in instance.findall(f"{_SPACE}tagSet/{_SPACE}item")
    }
    has = {
        "instance-id": _id(instance),
        "instance-state-name": instance.findtext(f"{_SPACE}instanceState/{_SPACE}name"),
        **{f"tag:{key}": value for key, value in tags.items()},
    }
    return all((has.get(name) or "") in values for name, values in filters.items())


def _id(instance: ET.Element) -> str:
    return instance.findtext(f"{_SPACE}instanceId") or ""


def _element(instance_id: str, launched: datetime, tags: Mapping[str, str]) -> ET.Element:
    element = ET.Element(f"{_SPACE}item")
    texts = {"instanceId": instance_id, "instanceType": "m1.small", "launchTime": launched.isoformat()}
    for name, text in texts.items():
        ET.SubElement(element, f"{_SPACE}{name}").text = text
    ET.SubElement(ET.SubElement(element, f"{_SPACE}instanceState"), f"{_SPACE}name")
    tag_set = ET.SubElement(element, f"{_SPACE}tagSet")
    for key, value in tags.items():
        tag = ET.SubElement(tag_set, f"{_SPACE}item")
        ET.SubElement(tag, f"{_SPACE}key").text = key
        ET.SubElement(tag, f"{_SPACE}value").text = value
    _set_state(element, "running")
    return element


def _set_state(instance: ET.Element, state: str) -> None:
    name = instance.find(f"{_SPACE}instanceState/{_SPACE}name")
    assert name is not None
    name.text = state


def _described(page: Page, token: str) -> AwsAnswer:
    """Return the answer with a page: an instance is a reservation of its own."""
    reservations = []
    for instance in page:
        reservation = ET.Element(f"{_SPACE}item")
        ET.SubElement(reservation, f"{_SPACE}ownerId").text = ACCOUNT
        ET.SubElement(reservation, f"{_SPACE}instancesSet").append(instance)
        reservations.append(reservation)
    return _answer("DescribeInstancesResponse", "reservationSet", reservations, token)


def _answer(name: str, collection: str, items: Page | None = None, token: str = "") -> AwsAnswer:
    root = ET.Element(f"{_SPACE}{name}")
    ET.SubElement(root, f"{_SPACE}{collection}").extend(items or [])
    if token:
        ET.SubElement(root, f"{_SPACE}nextToken").text = token
    body = ET.tostring(root, default_namespace=_SPACE[1:-1])
    return AwsAnswer(headers={"content-type": "text/xml;charset=UTF-8"}, body=body)
