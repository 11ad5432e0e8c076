"""Gives a fork an interpreter of its own, if its script sets a variable that has been read before the fork.

The fork server has imported TensorFlow. A script that sets TF_USE_LEGACY_KERAS before its own import would get half of
Keras 2 and half of Keras 3. The fork therefore replaces itself by a new interpreter, which runs the script from its
beginning: before the script runs if the source of the script sets the variable, else when the variable is set, as long
as the script has done nothing that a second run would repeat. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfk8s.task.programs import import_variables, set_variables

MODULE = "-m"  # of Python's command line
_LIBRARIES = ("tensorflow", "keras", "tf_keras")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

# Audit events (https://docs.python.org/3/library/audit_events.html) of what another run would do again.
_REPEATED = {
    "builtins.input", "os.chmod", "os.chown", "os.exec", "os.fork", "os.forkpty", "os.kill", "os.link", "os.mkdir",
    "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.system", "os.truncate", "os.utime",
    "shutil.rmtree", "socket.connect", "socket.sendto", "subprocess.Popen",
}  # fmt: skip


@dataclass
class _Restart:
    """The new interpreter that a fork can become.

    Attributes:
        command: the command of the new interpreter.
        environment: the whole environment of the new interpreter.
        at_import: the environment with which TensorFlow was imported.
        modules: the modules that were imported before the fork.
        script: the script that runs.
        has_acted: whether the script has done something that another run would do again.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    at_import: Mapping[str, str]
    modules: set[str] = field(default_factory=set)
    script: str = ""
    has_acted: bool = False


_fork: _Restart | None = None  # only while this process can still become a new interpreter


def can_become(command: Sequence[str], environment: Mapping[str, str], at_import: Mapping[str, str]) -> None:
    """Let this fork become a new interpreter later; the arguments are as in `_Restart`."""
    global _fork
    _fork = _Restart(command, environment, at_import)


def check_source(words: Sequence[str]) -> None:
    """Become a new interpreter if the source of a script sets a variable that TensorFlow has read. Else return.

    Args:
        words: the script and its arguments, or "-m", a module and its arguments.
    """
    if _fork is None:
        return
    file, folder = _source(words)
    for found in set_variables.find(file, folder, import_variables.changes_import):
        if found.changes(_fork.at_import):
            _become(_fork, f"{found.file.name}, line {found.line}, sets {found.name}")


def _source(words: Sequence[str]) -> tuple[Path, Path]:
    """Return the file of a script or a module, and the folder of the modules that it imports."""
    if words[0] != MODULE:
        file = Path(words[0]).resolve()
        return file, file.parent
    folder = Path.cwd()
    base = folder.joinpath(*words[1].split("."))
    return base / "__main__.py" if base.is_dir() else base.with_suffix(".py"), folder


def watch(script: str) -> None:
    """Watch the variables that a script sets from now on, until it has imported TensorFlow."""
    if _fork is None:
        return
    _fork.script, _fork.modules = script, set(sys.modules) - {"__main__"}
    _note_output(_fork)
    sys.addaudithook(_on_event)


def _note_output(fork: _Restart) -> None:
    write = sys.stdout.write

    def noted(text: str) -> int:
        fork.has_acted = True
        sys.stdout.__dict__.pop("write", None)
        return write(text)

    setattr(sys.stdout, "write", noted)  # noqa: B010 - of this one object


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Take an audit event. Such a hook stays for the life of a process."""
    if _fork is None:
        return
    if event in _REPEATED:
        _fork.has_acted = True
    elif event == "open":
        _fork.has_acted = _fork.has_acted or _is_for_writing(*arguments)
    elif event == "os.putenv":
        _on_set(_fork, os.fsdecode(arguments[0]), os.fsdecode(arguments[1]))
    elif event == "os.unsetenv":
        _on_set(_fork, os.fsdecode(arguments[0]), None)


def _is_for_writing(path: object, mode: object, flags: object) -> bool:
    if path == os.devnull or isinstance(path, int):
        return False
    return bool(flags & _WRITES) if isinstance(flags, int) else isinstance(mode, str) and bool(set(mode) & set("wax+"))


def _on_set(fork: _Restart, name: str, value: str | None) -> None:
    global _fork
    if not import_variables.changes_import(name) or fork.at_import.get(name) == value:
        return
    if _uses_tensorflow(fork):  # a new interpreter would not see the change either
        _fork = None
    elif not fork.has_acted:
        _become(fork, f"{Path(fork.script).name} sets {name}")
    else:
        _fork = None
        _say(
            f"{name} has no effect: TensorFlow was imported before {Path(fork.script).name} set it; "
            f"set {name} at the top of the script or in its environment, or add --fresh"
        )


def _uses_tensorflow(fork: _Restart) -> bool:
    """Return whether a module that was imported since the fork has something of TensorFlow or Keras."""
    new = [module for name, module in list(sys.modules.items()) if name not in fork.modules]
    return any(_is_of_library(value) for module in new for value in list(getattr(module, "__dict__", {}).values()))


def _is_of_library(value: object) -> bool:
    if isinstance(value, types.ModuleType):
        name = value.__dict__.get("__name__")
    elif isinstance(value, type | types.FunctionType):
        name = value.__module__
    else:
        return False
    return isinstance(name, str) and name.split(".")[0] in _LIBRARIES


def _become(fork: _Restart, reason: str) -> None:
    global _fork
    _fork = None
    _say(f"{reason}, so it runs in an interpreter of its own")
    try:
        os.execve(sys.executable, list(fork.command), dict(fork.environment))
    except OSError as error:
        _say(f"the interpreter can't start: {error.strerror}")


def _say(text: str) -> None:
    print(f"tfk8s: {text}", file=sys.stderr, flush=True)
