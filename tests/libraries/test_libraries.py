"""Programs of libraries on top of TensorFlow, on a cluster of two workers and a ps: they print what one process prints.

`LIBRARIES_PYTHON` is the interpreter of an environment with one of the libraries. `make test-libraries` makes the
environments. tfk8s is not in them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from own_state import own_state

SCRIPTS = Path(__file__).with_name("scripts")
SERVERS = "{apiVersion: tfk8s.dev/v1, name: libraries, jobs: {ps: 1, worker: {tasks: 2, preload: [%s]}}}"
TUNERS = """
apiVersion: tfk8s.dev/v1
name: libraries
jobs:
  chief: {program: [keras_tuner_.py]}
  worker: {tasks: 2, program: [keras_tuner_.py]}
"""
_NUMBER = re.compile(r"-?\d+\.\d+")
_CLOSE = 2e-5  # the relative rounding of float32 in another order


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_state(tmp_path_factory):
        yield


def output(*command: object, **variables: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    done = subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def on_cluster(job_file: Path, *script: object, **variables: str) -> str:
    python = os.environ["LIBRARIES_PYTHON"]
    return output(sys.executable, "-m", "tfk8s", "run", "--local", "--python", python, job_file, *script, **variables)


def assert_same(here: str, there: str) -> None:
    assert here
    assert _NUMBER.sub("0.0", there) == _NUMBER.sub("0.0", here)
    numbers = [[float(text) for text in _NUMBER.findall(printed)] for printed in (there, here)]
    assert numbers[0] == pytest.approx(numbers[1], rel=_CLOSE)


def compare(library: str, tmp_path: Path, preload: str = "", **variables: str) -> None:
    """Compare what a library's script prints in one process with what it prints on the cluster."""
    script = SCRIPTS / f"{library}_.py"
    (tmp_path / "cluster.yaml").write_text(SERVERS % preload)
    here = output(os.environ["LIBRARIES_PYTHON"], script, **variables)
    assert_same(here, on_cluster(tmp_path / "cluster.yaml", script, **variables))


OTHERS: Mapping[str, str] = {"tensorflow_text": "tensorflow_text"}  # modules to preload


@pytest.mark.parametrize("library", sorted({path.stem[:-1] for path in SCRIPTS.glob("*_.py")} - {"keras_tuner"}))
def test_a_script(library: str, tmp_path: Path) -> None:
    compare(library, tmp_path, OTHERS.get(library, ""))


def test_keras_tuner(tmp_path: Path) -> None:
    script = SCRIPTS / "keras_tuner_.py"
    here = output(os.environ["LIBRARIES_PYTHON"], script, LIBRARIES_FOLDER=str(tmp_path))
    for name in (script.name, "where.py"):
        (tmp_path / name).write_text((SCRIPTS / name).read_text())
    (tmp_path / "cluster.yaml").write_text(TUNERS)
    there = on_cluster(tmp_path / "cluster.yaml", LIBRARIES_FOLDER=str(tmp_path))
    chief = [line.partition("| ")[2] for line in there.splitlines() if line.startswith("chief/0 ")]
    assert_same(here, "".join(f"{line}\n" for line in chief))
