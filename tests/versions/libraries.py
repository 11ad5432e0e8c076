"""`make test-libraries`: a virtual environment for each library on top of TensorFlow, and its program on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from versions import environments, features, results

_OVERRIDES = Path(__file__).parents[1] / "libraries" / "overrides.txt"
# By the names in `features.LIBRARIES`: TensorFlow's version, and other packages. tf-agents pins a typing-extensions
# that tfk8s can't have.
_PACKAGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "tf-slim": ("2.15", []),
    "tensorflow-recommenders": ("2.15", []),
    "tensorflow-ranking": ("2.15", []),
    "tf-agents": ("2.15", []),
    "tensorflow-hub": ("2.15", ["setuptools<81"]),
    "deepctr": ("2.15", []),
    "tensorflow-probability": ("2.21", ["tf_keras==2.21.*"]),
    "keras-tuner": ("2.21", ["tensorboard"]),
    "gpflow": ("2.21", ["tf_keras==2.21.*"]),
    "dm-sonnet": ("2.21", []),
    "spektral": ("2.21", ["tf_keras==2.21.*"]),
    "tensorflow-text": ("2.21", []),
}


def test(selected: Sequence[str]) -> Iterator[tuple[str, results.Result]]:
    """Yield the results of libraries with the names of their runs; no selected library means all."""
    for library in selected or _PACKAGES:
        yield f"library {library}", _test(library, *_PACKAGES[library])


def _test(library: str, minor: str, packages: Sequence[str]) -> results.Result:
    wanted = [f"tensorflow-cpu=={minor}.*", library, *packages, "--overrides", str(_OVERRIDES)]
    try:
        with environments.environment(environments.PYTHON, *wanted) as folder:
            found = environments.versions(folder, [library, "tensorflow-cpu"])
            found = {"library": f"{library} {found.pop(library)}", **found}
            shown = {library: features.LIBRARIES[library]}
            variables = {"LIBRARIES_PYTHON": str(folder / "bin" / "python")}
            return environments.run(folder, shown, found, variables, python=sys.executable)
    except environments.Unavailable as reason:
        return results.missing({"library": library, "TensorFlow": minor}, str(reason))
