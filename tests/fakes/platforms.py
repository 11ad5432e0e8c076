"""Another system for the modules of tfk8s: macOS or Windows, on Linux.

The modules of tfk8s see `sys.platform` of that system, and neither the modules nor the names of modules that Python has
there not. typeshed, which mypy brings, says which these are. Other packages see this machine, as it is.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.util
import os
import select
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

SYSTEMS = ("darwin", "win32")
_MODULES = (
    "fcntl", "grp", "mmap", "os", "posix", "pty", "pwd", "resource", "select", "selectors", "signal", "socket",
    "subprocess", "syslog", "tempfile", "termios", "threading", "time", "tty",
)  # fmt: skip
_VERSION = (3, 11)  # the oldest Python that tfk8s allows


def absent(module: str, system: str) -> set[str]:
    """Return the names that a module of the standard library has on Linux, and not on another system."""
    return set(_names(module, "linux")) - set(_names(module, system))


def read_stubs() -> None:
    """Read what typeshed says of all systems, so that forks of this process need not."""
    for module in _MODULES:
        for system in ("linux", *SYSTEMS):
            _names(module, system)


@functools.cache
def _names(module: str, system: str) -> frozenset[str]:
    folder = Path(importlib.util.find_spec("mypy").submodule_search_locations[0], "typeshed/stdlib")  # type: ignore
    if module == "_typeshed":
        return frozenset()
    paths = [folder / f"{module}.pyi", folder / module / "__init__.pyi"]
    return frozenset(_defined(_parsed(next(path for path in paths if path.exists())).body, system))


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _defined(body: Iterable[ast.stmt], system: str) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.If():
                yield from _defined(statement.body if _holds(statement.test, system) else statement.orelse, system)
            case ast.Assert() if not _holds(statement.test, system):
                return
            case ast.FunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.AnnAssign(target=ast.Name()):
                yield statement.target.id
            case ast.Assign(targets=[ast.Name() as target]):
                yield target.id
            case ast.ImportFrom(module=module, names=names) if any(name.name == "*" for name in names) and module:
                yield from _names(module, system)
            case ast.ImportFrom(names=names):
                yield from (name.name for name in names if name.asname)  # a stub exports no other imports


def _holds(test: ast.expr, system: str) -> bool:
    sys_then = type("sys", (), {"platform": system, "version_info": _VERSION})
    code = compile(ast.Expression(test), "typeshed", "eval")
    return bool(eval(code, {"sys": sys_then, "TYPE_CHECKING": False}))  # noqa: S307 - conditions of mypy's own stubs


def _trimmed(module: ModuleType, without: set[str], instead: dict[str, Any]) -> ModuleType:
    """Return a copy of a module without some names, and with others."""
    copy = ModuleType(module.__name__)
    copy.__dict__.update({name: value for name, value in vars(module).items() if name not in without} | instead)
    return copy


class _Sys(ModuleType):
    """`sys` with another platform. Its other attributes change while a program runs."""

    def __init__(self, system: str) -> None:
        super().__init__("sys")
        self.__dict__["platform"] = system

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(sys, name, value)


def _select_sockets(*lists: Any) -> Any:
    """Do as Windows does: refuse all descriptors but those of sockets."""
    for descriptor in (item for part in lists[:3] for item in part):
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            raise OSError(10038, "an operation was attempted on something that is not a socket")
    return select.select(*lists)


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        if settings.get("preexec_fn") is not None or settings.get("pass_fds"):
            raise ValueError("preexec_fn and pass_fds are not supported on Windows platforms")
        super().__init__(*arguments, **settings)


def enter(system: str) -> None:
    """Have all modules of tfk8s that are imported from now on see another system."""
    instead: dict[str, dict[str, Any]] = {}
    if system == "win32":
        instead = {
            "select": {"select": _select_sockets},
            "socket": {"SO_EXCLUSIVEADDRUSE": socket.SO_REUSEADDR},
            "subprocess": {"Popen": _Popen},
        }
    modules: dict[str, ModuleType | None] = {"sys": _Sys(system)}
    for name in _MODULES:
        here = __import__(name)
        modules[name] = _trimmed(here, absent(name, system), instead.get(name, {})) if _names(name, system) else None
    original = builtins.__import__

    def import_there(name: str, importer: Any = None, *details: Any, **named: Any) -> Any:
        package = (importer or {}).get("__name__", "").partition(".")[0] if not named else ""
        if package != "tfk8s" or name not in modules:
            return original(name, importer, *details, **named)
        if (module := modules[name]) is None:
            raise ModuleNotFoundError(f"No module named '{name}' here", name=name)
        return module

    builtins.__import__ = import_there
