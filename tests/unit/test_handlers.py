"""Handlers: how they are marked, found and called, and what they say to whom."""

# ruff: noqa: T201  what becomes of prints is what is tested

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from airunner.domain.errors import InvalidArgument, PermanentFailure
from airunner.handlers import Context, HandlerError, handler
from airunner.handlers.arguments import Arguments, result_json
from airunner.handlers.capture import captured, current_output
from airunner.handlers.loading import load_handlers
from airunner.handlers.registry import Registry


class RecordedLogs(logging.Handler):
    """A log handler that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class RememberedOutput:
    """An OutputSink that remembers."""

    def __init__(self) -> None:
        self.out = ""
        self.err = ""
        self.flushes = 0

    def write(self, text: str, *, is_stderr: bool) -> None:
        if is_stderr:
            self.err += text
        else:
            self.out += text

    def flush(self) -> None:
        self.flushes += 1

    def progress(self, done: int, total: int, message: str) -> None:
        self.out += f"<{done}/{total} {message}>"

    def room(self) -> None:
        return None

    def seal(self) -> None: ...


def context(output: RememberedOutput | None = None) -> Context:
    return Context(
        job_id="j", queue="q", attempt=1, environment={}, metadata={}, output=output or RememberedOutput()
    )


@dataclass
class Size:
    width: int
    height: int = 2


class Person(BaseModel):
    name: str


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("from airunner.handlers import handler\n" + text)
    return file


ONE = '@handler("one")\ndef one(payload):\n    return 1\n'
TWO = '@handler("two", "zwei")\nasync def two(payload, ctx):\n    return 2\n'


class TestLoading:
    def test_a_file(self, tmp_path: Path) -> None:
        found = load_handlers([str(write(tmp_path, "tools.py", ONE + TWO))])
        assert sorted(found) == ["one", "two", "zwei"]
        assert (found["one"].is_async, found["two"].is_async) == (False, True)

    def test_a_folder_whose_files_import_each_other(self, tmp_path: Path) -> None:
        write(tmp_path, "a.py", "import shared_bits\n" + ONE)
        write(tmp_path, "b.py", TWO)
        (tmp_path / "shared_bits.py").write_text("x = 1\n")
        write(tmp_path, "_draft.py", "raise RuntimeError('not to be loaded')\n")
        assert sorted(load_handlers([str(tmp_path)])) == ["one", "two", "zwei"]

    def test_a_package_with_what_is_below_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "__init__.py").write_text("")
        write(tmp_path, "shop/sales.py", ONE)
        write(tmp_path, "shop/deep/__init__.py", TWO)
        monkeypatch.chdir(tmp_path)
        assert sorted(load_handlers(["shop"])) == ["one", "two", "zwei"]
        assert sorted(load_handlers([str(tmp_path / "shop")])) == ["one", "two", "zwei"]

    @pytest.mark.parametrize(
        "names",
        [
            "job_names = ['Paint']",
            "jobNames = ['Paint']",
            "jobNames = ('Paint',)",
            "job_names = ['Paint']\njobNames = ('Paint',)",
        ],
    )
    def test_a_file_that_only_defines_handler_and_job_names(self, tmp_path: Path, names: str) -> None:
        (tmp_path / "plain.py").write_text(f"{names}\ndef handler(payload): return payload\n")
        assert load_handlers([str(tmp_path)])["PAINT"].function({"a": 1}) == {"a": 1}

    def test_a_file_named_like_a_module_of_python_hides_nothing(self, tmp_path: Path) -> None:
        import json

        load_handlers([str(write(tmp_path, "json.py", ONE))])
        assert sys.modules["json"] is json

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("raise ValueError('broken')\n", r"ValueError: broken \(.*tools.py, line 2\)"),
            ("def f(:\n", "SyntaxError"),
            ("x = 1\n", r"tools.py has no handler: mark a function with @handler\(\"name\"\), or define"),
            ("def handler(p): ...\n", r"tools.py has a function `handler`, but no list `job_names`"),
            ("jobNames = ['a']\n", "no function `handler`"),
            ("jobNames = 'abc'\ndef handler(p): ...\n", "list of names"),
            ("job_names = ['a']\njobNames = ['b']\ndef handler(p): ...\n", "both job_names and jobNames"),
            ("job_names = ['a']\njobNames = 3\ndef handler(p): ...\n", "jobNames must be a list"),
            ("job_names = ['a']\n", "no function `handler`"),
            ("job_names = 'abc'\ndef handler(p): ...\n", "list of names"),
            ("job_names = [' a']\ndef handler(p): ...\n", "without spaces"),
            ('@handler("x")\ndef f(a, b, c): ...\n', "payload, the context, or both"),
            ('@handler("x")\ndef f(a, *, key): ...\n', "key cannot be given"),
            ('@handler("x")\ndef f(a: Missing): ...\n', "Missing"),
            ('@handler("x")\ndef f(p): ...\n@handler("X")\ndef g(p): ...\n', "'X' is defined twice"),
        ],
    )
    def test_what_cannot_be_used_is_said_at_once(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(HandlerError, match=message):
            load_handlers([str(write(tmp_path, "tools.py", text))])

    def test_a_source_that_brings_nothing_new_says_so(self, tmp_path: Path) -> None:
        write(tmp_path, "tools.py", ONE)
        sys.path.insert(0, str(tmp_path))
        with pytest.raises(HandlerError, match="tools has no handler that is not loaded already"):
            load_handlers(["tools", "tools"])

    def test_one_name_in_two_files_names_both(self, tmp_path: Path) -> None:
        write(tmp_path, "a.py", ONE)
        write(tmp_path, "b.py", ONE)
        with pytest.raises(HandlerError, match=r"a\.py and in .*b\.py"):
            load_handlers([str(tmp_path)])

    @pytest.mark.parametrize("source", ["no_such_module", "no/such/file.py", "../nothing"])
    def test_what_is_not_there(self, source: str) -> None:
        with pytest.raises(HandlerError, match=r"no_such_module|no file or folder"):
            load_handlers([source])

    @pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 129, "a\x00b", "\u202ea"])
    def test_a_hostile_name_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidArgument):
            handler(name)

    def test_the_same_function_twice_is_one(self) -> None:
        registry = Registry()
        for _ in range(2):
            registry.add("n", len, "here")
        assert list(registry) == ["n"]


class TestArguments:
    @pytest.mark.parametrize(
        ("function", "payload", "expected"),
        [
            (lambda: "none", "", "none"),
            (lambda payload: payload, '{"a": [1]}', {"a": [1]}),
            (lambda payload: payload, "", {}),
            (lambda payload: payload, "3", 3),
            (lambda ctx: ctx.job_id, "", "j"),
            (lambda ctx, payload: (ctx.job_id, payload), "1", ("j", 1)),
            (lambda payload, ctx: (payload, ctx.job_id), "1", (1, "j")),
        ],
    )
    def test_what_a_function_is_called_with(
        self, function: Callable[..., Any], payload: str, expected: object
    ) -> None:
        assert function(*Arguments.of(function, "here").bind(payload, context())) == expected

    def test_typed_payloads(self) -> None:
        def area(size: Size, where: Context) -> int:
            return size.width * size.height + where.attempt

        def greet(person: Person) -> str:
            return person.name

        def total(numbers: list[int]) -> int:
            return sum(numbers)

        assert area(*Arguments.of(area, "").bind('{"width": 3}', context())) == 7
        assert greet(*Arguments.of(greet, "").bind('{"name": "Ada"}', context())) == "Ada"
        assert total(*Arguments.of(total, "").bind("[1, 2]", context())) == 3

    def test_a_payload_that_does_not_fit_fails_for_good_and_is_not_repeated(self) -> None:
        def area(size: Size) -> None: ...

        with pytest.raises(PermanentFailure, match=r"width: .*integer") as failure:
            Arguments.of(area, "").bind('{"width": "sesame"}', context())
        assert failure.value.code == "invalid_payload"
        assert "sesame" not in str(failure.value)

    def test_results(self) -> None:
        assert result_json(None) == ""
        assert result_json(Size(1)) == '{"width":1,"height":2}'
        assert result_json(Person(name="é")) == '{"name":"é"}'
        for value, message in ((object(), "no JSON form"), ("x" * 1024 * 1024, "bytes")):
            with pytest.raises(PermanentFailure, match=message):
                result_json(value)


class TestCapture:
    def test_prints_and_logs_go_to_the_output_of_their_handler(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first, second = RememberedOutput(), RememberedOutput()

        def write_line(output: RememberedOutput, line: str) -> None:
            current_output.set(output)
            print(line)
            print("oops", file=sys.stderr, flush=True)
            logging.getLogger("shop").info("logged %s", line)

        with captured():
            print("nobody")
            threads = [
                threading.Thread(target=copy_context().run, args=(write_line, output, line))
                for output, line in ((first, "a"), (second, "b"))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print("after")
        assert (first.out, first.err) == ("a\n", "oops\nINFO shop: logged a\n")
        assert (second.out, second.err) == ("b\n", "oops\nINFO shop: logged b\n")
        assert first.flushes == 1
        assert capsys.readouterr().out == "nobody\nafter\n"

    def test_a_stream_outlives_the_one_that_it_replaced(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with (tmp_path / "out").open("w", encoding="utf-8") as original, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", original)
            with captured():
                stream = sys.stdout
        # As when it is collected at last.
        stream.close()

    def test_a_logger_that_is_set_up_already_is_not_doubled(self) -> None:
        output = RememberedOutput()

        def log_once() -> None:
            current_output.set(output)
            logging.getLogger("shop").warning("once")

        root = logging.getLogger()
        with captured():
            configured = logging.StreamHandler()
            root.addHandler(configured)
            try:
                copy_context().run(log_once)
            finally:
                root.removeHandler(configured)
        assert output.err.count("once") == 1

    def test_who_waits_to_log_holds_up_nobody_else(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        class FullOutput(RememberedOutput):
            def write(self, text: str, *, is_stderr: bool) -> None:
                begun.set()
                assert go_on.wait(60)
                super().write(text, is_stderr=is_stderr)

        def log_to(output: RememberedOutput) -> None:
            current_output.set(output)
            logging.getLogger("shop").warning("sold out")

        full, other = FullOutput(), RememberedOutput()
        with captured():
            threads = [threading.Thread(target=log_to, args=(output,)) for output in (full, other)]
            threads[0].start()
            assert begun.wait(60)
            threads[1].start()
            threads[1].join(30)
            assert (other.err, full.err) == ("WARNING shop: sold out\n", "")
            go_on.set()
            threads[0].join(60)
        assert full.err == "WARNING shop: sold out\n"

    @pytest.mark.parametrize(
        "has_own", [False, True], ids=["left to the last resort", "a log handler of its own"]
    )
    def test_what_is_logged_outside_of_handlers_goes_where_it_went(
        self, monkeypatch: pytest.MonkeyPatch, *, has_own: bool
    ) -> None:
        last, own = RecordedLogs(), RecordedLogs()
        monkeypatch.setattr(logging, "lastResort", last)
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        logger = logging.getLogger("shop.outside")
        monkeypatch.setattr(logger, "handlers", [own] if has_own else [])
        last.setLevel(logging.WARNING)
        with captured():
            logger.info("all is well")
            logger.error("on fire")
        assert last.messages == ([] if has_own else ["on fire"])
        assert own.messages == (["all is well", "on fire"] if has_own else [])

    def test_a_thread_may_print_while_the_capture_ends(self) -> None:
        # In a process of its own, which dies of a stream that is freed while somebody prints to it. What is
        # freed is overwritten there, so that it dies each time.
        variables = {**os.environ, "PYTHONMALLOC": "debug"}
        command = [sys.executable, "-c", PRINTING_BEYOND_THE_CAPTURE]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "['x', '\\n']\n"), done.stderr


PRINTING_BEYOND_THE_CAPTURE = """
import threading
from airunner.handlers.capture import captured, current_output

begun, ended, written = threading.Event(), threading.Event(), []

class SlowOutput:
    def write(self, text, *, is_stderr):
        written.append(text)
        begun.set()
        assert ended.wait(60)

def chatter():
    current_output.set(SlowOutput())
    print("x")

with captured():
    printing = threading.Thread(target=chatter)
    printing.start()
    assert begun.wait(60)
ended.set()
printing.join()
print(written)
"""


class TestContext:
    def test_log_and_progress(self) -> None:
        output = RememberedOutput()
        ctx = context(output)
        ctx.log("saved", rows=3)
        ctx.progress(1, 4, "loading")
        assert output.out == "saved rows=3\n<1/4 loading>"
        with pytest.raises(ValueError, match="between 0 and its total"):
            ctx.progress(5, 4)
        with pytest.raises(ValueError, match="between 0 and its total"):
            ctx.progress(1, 2**63)
        with pytest.raises(TypeError, match="float"):
            ctx.progress(0.5, 1)  # type: ignore[arg-type]  # as a handler may that nobody checks
        with pytest.raises(TypeError, match="must be a text, not NoneType"):
            ctx.progress(1, 2, None)  # type: ignore[arg-type]

    def test_progress_is_something_that_can_be_sent(self) -> None:
        output = RememberedOutput()
        context(output).progress(True, 4, "half \ud800")
        assert output.out == "<1/4 half ?>"

    def test_waiting_ends_when_cancelled(self) -> None:
        ctx = context()
        assert not ctx.wait(0)
        waiting = threading.Thread(target=ctx.wait, args=(60,))
        waiting.start()
        ctx.stopped.set()
        waiting.join(10)
        assert not waiting.is_alive()
        assert ctx.cancelled
        assert ctx.wait(60)
