"""Which interpreter runs what of tfk8s, and how it finds it.

Scripts run with the interpreter of the active virtual environment (`VIRTUAL_ENV`), else with tfk8s' own. It need
not have tfk8s installed: the package is given to it by its folder, and nothing beside that folder with it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tfk8s.errors import InvalidInput
from tfk8s.task.server import find_tensorflow

# What TensorFlow and its libraries read once, while they are loaded or imported: a process that was forked from one
# which loaded them earlier does not see a change of these.
_READ_AT_IMPORT = (
    "ABSL_", "CUDA_", "DNNL_", "GRPC_", "KERAS_", "KMP_", "LD_", "MKL_", "NUMEXPR_", "NVIDIA_", "OMP_", "ONEDNN_",
    "OPENBLAS_", "PYTHON", "TF_", "XLA_",
)  # fmt: skip

NO_NAMESPACE = "it can't have a network of its own"  # so begins what a supervisor says that may not have one

_PACKAGE = Path(__file__).parents[2]
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
    """Return the command that runs one of tfk8s' modules; the current folder is not on its path."""
    return [python, "-P", "-c", _BOOTSTRAP, module, *arguments]


def script_python(environment: Mapping[str, str]) -> str:
    """Return the interpreter that runs scripts for somebody with this environment."""
    folder = environment.get("VIRTUAL_ENV")
    candidate = Path(folder) / "bin" / "python" if folder else None
    if candidate is not None and Path(folder or "").resolve() != Path(sys.prefix).resolve() and candidate.exists():
        return str(candidate)
    return sys.executable


def tensorflow_folder(python: str) -> Path | None:
    """Return the folder of the package `tensorflow` that `python` would import, or None."""
    if python == sys.executable:
        folder = find_tensorflow()
        return Path(folder) if folder else None
    return next(Path(python).parents[1].glob("lib/python3*/site-packages/tensorflow"), None)


def require_tensorflow(python: str) -> None:
    """Raise an InvalidInput where `python` has no TensorFlow to import."""
    if tensorflow_folder(python) is None:
        raise InvalidInput(
            f"TensorFlow is not installed for {python}",
            help="pip install 'tfk8s[local]', or pip install tensorflow-cpu",
        )


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that TensorFlow reads once, while it is imported."""
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}
