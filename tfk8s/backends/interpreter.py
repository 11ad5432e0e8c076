"""The interpreter for scripts and tasks, and its TensorFlow.

Scripts run with the interpreter of the active virtual environment (`VIRTUAL_ENV`), else with the interpreter of tfk8s.
The interpreter needs no tfk8s, because a bootstrap program loads the package from its folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tfk8s.errors import InvalidInput
from tfk8s.task.server import find_tensorflow

_PACKAGE = Path(__file__).parents[1]
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


def script_python(environment: Mapping[str, str]) -> str:
    """Return the interpreter for the scripts of a user with this environment."""
    folder = environment.get("VIRTUAL_ENV")
    candidate = Path(folder) / "bin" / "python" if folder else None
    if candidate is not None and Path(folder or "").resolve() != Path(sys.prefix).resolve() and candidate.exists():
        return str(candidate)
    return sys.executable


def tensorflow_folder(python: str) -> Path | None:
    """Return the folder of the package `tensorflow` of an interpreter, or None."""
    if python == sys.executable:
        folder = find_tensorflow()
        return Path(folder) if folder else None
    return next(Path(python).parents[1].glob("lib/python3*/site-packages/tensorflow"), None)


def require_tensorflow(python: str) -> None:
    """Raise an InvalidInput if an interpreter has no TensorFlow."""
    if tensorflow_folder(python) is None:
        raise InvalidInput(
            f"TensorFlow is not installed for {python}",
            help="pip install 'tfk8s[local]', or pip install tensorflow-cpu",
        )
