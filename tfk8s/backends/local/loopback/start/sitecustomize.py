"""Confines the ports of this Python process to the loopback device; Python imports this module at its start (site).

The folder is on the PYTHONPATH of all processes of a cluster, so that their children are confined too. Other code of
the process does not see the folder, and a `sitecustomize` of the user still runs. Standard library only: the
interpreter may be another one than that of tfk8s.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent
_FIRST_MODULE = "tensorflow.python.pywrap_tensorflow"  # loads all libraries of TensorFlow


def _confine() -> None:
    listening = importlib.import_module("listening")  # the folder comes first in the path
    sys.modules["_tfk8s_listening"] = sys.modules.pop("listening")
    imports = listening.load("_tfk8s_imports", _FOLDER.parents[3] / "task/programs/imports.py")
    listening.patch_sockets()
    imports.when_imported(_FIRST_MODULE, listening.hook_libraries)


def _run_others() -> None:
    """Import the `sitecustomize` that this module hides, if there is one."""
    sys.path[:] = [folder for folder in sys.path if folder != str(_FOLDER)]
    own = sys.modules.pop(__name__)
    with contextlib.suppress(ImportError):
        importlib.import_module(__name__)
    sys.modules.setdefault(__name__, own)


if __name__ == "sitecustomize":
    _confine()
    _run_others()
