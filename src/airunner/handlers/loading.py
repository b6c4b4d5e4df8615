"""Finding handlers in modules, packages, files and folders."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from airunner.domain.errors import InvalidArgument
from airunner.handlers.arguments import HandlerError
from airunner.handlers.registry import Hooks, Registry, handler, hooks_of, names_of

# Files are loaded under this name, so that a file called json.py hides no module of that name.
_NAMESPACE: Final = "airunner_handlers"
_SPELLINGS: Final = ("job_names", "jobNames")


def load_handlers(sources: Sequence[str]) -> Registry:
    """Return all handlers of the sources; HandlerError if one cannot be loaded or a name is there twice.

    A source is a module or package (with everything below it), a Python file, or a folder of them; a file
    whose name begins with an underscore is left out. A module may also just define `handler`, a function,
    and `job_names`, which may be spelled `jobNames` too.
    """
    registry = Registry()
    for source in sources:
        before, modules = len(registry), list[ModuleType]()
        for module in _modules(source):
            _register(registry, module)
            modules.append(module)
        if len(registry) == before:
            raise HandlerError(_why_none(source, modules))
    return registry


def _modules(source: str) -> Iterator[ModuleType]:
    path = Path(source)
    if path.is_dir() and (path / "__init__.py").is_file():
        _make_importable(path.resolve().parent)
        yield from _package(path.resolve().name)
    elif path.is_dir():
        _make_importable(path)
        for file in sorted(path.glob("[!_]*.py")):
            yield _file(file)
    elif path.suffix == ".py" or len(path.parts) > 1:
        if not path.is_file():
            raise HandlerError(f"{source} is no file or folder")
        _make_importable(path.parent)
        yield _file(path)
    else:
        _make_importable(Path())
        yield from _package(source)


def _make_importable(folder: Path) -> None:
    """Let modules in a folder import each other, as Python does for a script in it."""
    if (text := str(folder.resolve())) not in sys.path:
        sys.path.insert(0, text)


def _package(name: str) -> Iterator[ModuleType]:
    module = _import(name)
    yield module
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
        if not found.name.rpartition(".")[2].startswith("_"):
            yield _import(found.name)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise HandlerError(f"cannot import {name}: {_what_went_wrong(error)}") from error


def _file(path: Path) -> ModuleType:
    name = f"{_NAMESPACE}.{path.resolve().parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise HandlerError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pydantic look up their own module to read annotations.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HandlerError(f"cannot load {path}: {_what_went_wrong(error)}") from error
    return module


def _register(registry: Registry, module: ModuleType) -> None:
    source = getattr(module, "__file__", None) or module.__name__
    hooks = Hooks(
        on_success=getattr(module, "on_success", None), compensate=getattr(module, "compensate", None)
    )
    try:
        for value in list(vars(module).values()):
            for name in names_of(value):
                registry.add(name, value, source, hooks_of(value).over(hooks))
        names = _plain_names(module, source)
        if names:
            _register_plain(registry, module, names, source, hooks)
    except InvalidArgument as error:
        raise HandlerError(f"{source}: {error.text}") from None


def _plain_names(module: ModuleType, source: str) -> tuple[str, ...]:
    """Return the names that a module gives its function `handler`; none if it has no list of them."""
    found = {
        spelling: names for spelling in _SPELLINGS if (names := getattr(module, spelling, None)) is not None
    }
    for spelling, names in found.items():
        if (
            not isinstance(names, (list, tuple))
            or not names
            or not all(isinstance(name, str) for name in names)
        ):
            raise HandlerError(f"{source}: {spelling} must be a list of names")
    distinct = set(map(tuple, found.values()))
    if len(distinct) > 1:
        raise HandlerError(f"{source} has both job_names and jobNames, and they differ: keep one of them")
    return distinct.pop() if distinct else ()


def _plain_function(module: ModuleType) -> Callable[..., object] | None:
    """Return the function `handler` that a module defines, which is not our decorator."""
    function = getattr(module, "handler", None)
    return function if callable(function) and function is not handler else None


def _register_plain(
    registry: Registry, module: ModuleType, names: Sequence[str], source: str, hooks: Hooks
) -> None:
    function = _plain_function(module)
    if function is None:
        raise HandlerError(f"{source} has job_names, but no function `handler`")
    for name in names:
        registry.add(name, function, source, hooks)


def _why_none(source: str, modules: Sequence[ModuleType]) -> str:
    """Return why modules brought no handler, and what they lack."""
    for module in modules:
        if _plain_names(module, source) or any(map(names_of, vars(module).values())):
            return f"{source} has no handler that is not loaded already"
    for module in modules:
        if _plain_function(module):
            file = getattr(module, "__file__", None) or module.__name__
            return f"{file} has a function `handler`, but no list `job_names` that says which jobs it is for"
    return (
        f'{source} has no handler: mark a function with @handler("name"), '
        "or define a function `handler` and a list `job_names`"
    )


def _what_went_wrong(error: Exception) -> str:
    """Return the error and the last line of the user's own code that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    location = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {error}{location}"
