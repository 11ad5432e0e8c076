"""The interpreter for scripts and tasks, and its TensorFlow.

Scripts run with the interpreter that `--python` names, else with the one of the active environment (`VIRTUAL_ENV`, then
conda's `CONDA_PREFIX`), else with the interpreter of tfk8s. The interpreter needs no tfk8s, because a bootstrap program
loads the package from its folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tfk8s.errors import InvalidInput, quoted
from tfk8s.task.server import find_tensorflow

OLDEST = (3, 11)  # the first Python with all that tfk8s uses in tasks and scripts

OTHERS = "or activate the environment that has TensorFlow, or name its Python with --python"

_PACKAGE = Path(__file__).parents[1]
_TIMEOUT = 60.0  # seconds for an interpreter that says what it has
# Matches tensorflow-2.21.0.dist-info and tensorflow_cpu-2.21.0.dist-info, but not tensorflow_datasets-….
_DIST_INFO = re.compile(r"tensorflow(?:_cpu|_gpu|_intel|_macos|_rocm)?-([0-9][^-]*)\.dist-info", re.ASCII)
_ASK = """
import importlib.util, sys
spec = importlib.util.find_spec("tensorflow")
print(*sys.version_info[:2], *(spec.submodule_search_locations or [""] if spec else [""]), sep="\\n")
"""
_BOOTSTRAP = f"""
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location(
    "tfk8s", {str(_PACKAGE / "__init__.py")!r}, submodule_search_locations=[{str(_PACKAGE)!r}])
package = sys.modules["tfk8s"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def command(python: str, module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of tfk8s, without the current folder on its path."""
    return [python, "-P", "-c", _BOOTSTRAP, module, *arguments]


def named(python: str) -> str:
    """Return the path of the interpreter that a user names: a path, a program in PATH, or an environment's folder.

    Raises:
        InvalidInput: there is no such interpreter.
    """
    folder = Path(python).expanduser()
    found = shutil.which(folder / "bin" / "python" if folder.is_dir() else os.path.expanduser(python))  # noqa: PTH111
    if found is None:
        raise InvalidInput(
            f"--python: there is no interpreter {quoted(python)}",
            help="name a program such as .venv/bin/python, or the folder of an environment",
        )
    return str(Path(found).absolute())  # a link stays: an environment is found by the link's folder


def active(environment: Mapping[str, str]) -> str | None:
    """Return the interpreter of the environment that is active for a user; None without an interpreter there.

    Shells activate conda's environment `base` by themselves. So `base` counts only if tfk8s' own Python lacks
    TensorFlow.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = environment.get(variable)
        if not folder or not (candidate := Path(folder) / "bin" / "python").exists():
            continue
        if Path(folder).resolve() == Path(sys.prefix).resolve():
            return sys.executable
        is_base = variable == "CONDA_PREFIX" and environment.get("CONDA_DEFAULT_ENV") == "base"
        if not is_base or find_tensorflow() is None:
            return str(candidate)
    return None


def script_python(environment: Mapping[str, str]) -> str:
    """Return the interpreter for the scripts of a user with this environment."""
    return active(environment) or sys.executable


def tensorflow_folder(python: str) -> Path | None:
    """Return the folder of the package `tensorflow` of an interpreter, or None."""
    return _examine(python)[1]


def tensorflow_version(folder: Path) -> str:
    """Return the version of an installed TensorFlow, from the metadata that pip wrote beside its folder."""
    names = (_DIST_INFO.fullmatch(path.name) for path in sorted(folder.parent.glob("tensorflow*.dist-info")))
    return next((match[1] for match in names if match), "of an unknown version")


def description(python: str) -> str:
    """Return an interpreter and its TensorFlow, such as "/opt/venv/bin/python, TensorFlow 2.21.0"."""
    folder = tensorflow_folder(python)
    return f"{python}, {f'TensorFlow {tensorflow_version(folder)}' if folder else 'without TensorFlow'}"


def require_tensorflow(python: str, advice: str = "") -> None:
    """Raise an InvalidInput if an interpreter has no TensorFlow, or is too old for tfk8s.

    Args:
        python: the interpreter.
        advice: more ways to TensorFlow than its installation.
    """
    version, folder = _examine(python)
    if version and version < OLDEST:
        raise InvalidInput(
            f"{python} is Python {'.'.join(map(str, version))}, and tfk8s needs {'.'.join(map(str, OLDEST))} or later",
            help=f"use an environment with a later Python{advice and f'; {advice}'}",
        )
    if folder is None:
        raise InvalidInput(
            f"TensorFlow is not installed for {python}",
            help=f"pip install 'tfk8s[local]', or pip install tensorflow-cpu{advice and f'; {advice}'}",
        )


def _examine(python: str) -> tuple[tuple[int, int] | None, Path | None]:
    """Return an interpreter's version and its folder of TensorFlow, each None if unknown.

    Environments of venv and conda have both in a path. Other interpreters, such as those of Debian and of pyenv, are
    asked, and so are environments that see the packages of another one.
    """
    if python == sys.executable:
        folder = find_tensorflow()
        return sys.version_info[:2], Path(folder) if folder else None
    root = Path(python).parent.parent
    if (root / "pyvenv.cfg").exists() or (root / "conda-meta").exists():
        for path in root.glob("lib/python3.*/site-packages/tensorflow"):
            return (3, int(path.parts[-3].removeprefix("python3.").rstrip("t"))), path  # "t": without the global lock
    try:  # in / and with -E, lest a folder of the user's be taken for the package
        done = subprocess.run(
            [python, "-E", "-c", _ASK], cwd=os.sep, capture_output=True, text=True, timeout=_TIMEOUT, check=True
        )
        major, minor, name = done.stdout.splitlines()[-3:]
        return (int(major), int(minor)), Path(name) if name else None
    except (OSError, subprocess.SubprocessError, ValueError):
        return None, None
