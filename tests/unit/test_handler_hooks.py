"""What handlers of the generation queue bring along: their hooks, and the images that they return."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from airunner.generation.verdict import GenerationFailure, Success, judge_error, read_success
from airunner.handlers import HandlerError, PermanentFailure, handler
from airunner.handlers.arguments import result_json
from airunner.handlers.images import Image, Images
from airunner.handlers.loading import load_handlers

MODULE = """
from airunner import handler


async def on_success(connection, session, result): ...
async def compensate(connection, session, failure): ...
async def other(connection, session, failure): ...


@handler("plain")
def plain(): ...


@handler("special", compensate=other)
def special(): ...
"""


def test_hooks_are_those_of_the_handler_and_else_those_of_its_module(tmp_path: Path) -> None:
    (tmp_path / "module_of_hooks.py").write_text(MODULE)
    found = load_handlers([str(tmp_path / "module_of_hooks.py")])
    names = {
        name: (found[name].hooks.on_success.__name__, found[name].hooks.compensate.__name__)  # type: ignore[union-attr]
        for name in found
    }
    assert names == {"plain": ("on_success", "compensate"), "special": ("on_success", "other")}


def test_a_hook_that_is_not_async_is_no_hook() -> None:
    def refund(connection: Any, session: Any, failure: Any) -> None: ...

    with pytest.raises(HandlerError, match="compensate must be an async function"):
        handler("paint", compensate=refund)  # type: ignore[arg-type]  # that is the point


def test_images_come_through_json_as_they_were() -> None:
    images = [Image.of("a.png", "image/png", b"1"), Image.of("b.png", "image/png", b"22")]
    read = read_success(result_json(Images(images)))
    assert isinstance(read, Success)
    assert read.images is not None
    assert list(read.images) == images
    assert images[1].sha256 == hashlib.sha256(b"22").hexdigest()


@pytest.mark.parametrize(
    "wrong",
    [{"location": 1}, {"content_type": b"image/png"}, {"byte_count": 1.5}, {"sha256": ["0"] * 64}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_image_of_other_types_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    values = {"location": "a.png", "content_type": "image/png", "byte_count": 1, "sha256": "0" * 64}
    with pytest.raises(TypeError, match=next(iter(wrong))):
        Image(**{**values, **wrong})
    with pytest.raises(ValueError, match="no images"):
        Images.from_json({"airunner.images": [{**values, **wrong}]})


@pytest.mark.parametrize("result", [None, 1, "text", [1], {"a": 1}, {"airunner.images": [], "more": 1}])
def test_any_other_value_is_the_result(result: object) -> None:
    read = read_success(result_json(result))
    assert isinstance(read, Success)
    assert (read.images, read.result) == (None, result)


@pytest.mark.parametrize(
    "result",
    ['{"airunner.images": [1]}', '{"airunner.images": 1}', '{"airunner.images": [{"a": ""}]}'],
)
def test_images_that_are_none_are_a_failure(result: str) -> None:
    read = read_success(result)
    assert isinstance(read, GenerationFailure)
    assert read.code == "invalid_result"


@pytest.mark.parametrize(
    ("error", "is_last_try", "code"),
    [
        (OSError("away"), False, None),
        (OSError("away"), True, "exhausted"),
        (PermanentFailure("nsfw"), False, "nsfw"),
        (RuntimeError("DLQ:too_large: 9 MB"), False, "too_large"),
        (PermanentFailure("a b\x00" * 100), True, ("a_b_" * 100)[:64]),
    ],
)
def test_what_an_error_means(error: Exception, is_last_try: bool, code: str | None) -> None:
    failure = judge_error(error, is_last_try=is_last_try)
    assert (failure.code if failure else None) == code
