"""A script of one version of TensorFlow with servers of another.

`VERSIONS_SERVERS` and `VERSIONS_SCRIPT` are the virtual environments of both. TensorFlow promises nothing for such a
pair, and tfk8s warns of it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from own_state import own_state

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
KERAS = """
import keras, numpy as np, tensorflow as tf, tfk8s
strategy = tfk8s.strategy()
x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy")
losses = model.fit(x, x.sum(1) > 0, 64, 4, verbose=0).history["loss"]
print(losses[-1] < losses[0])
"""

Submit = Callable[..., str]


def tfk8s(environment: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command whose tasks or scripts get TensorFlow from a virtual environment."""
    command = [sys.executable, "-m", "tfk8s", *map(str, arguments)]
    variables = {**os.environ, "VIRTUAL_ENV": os.environ[environment]}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=180, check=False)


@pytest.fixture(scope="module")
def submit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submit]:
    """Runs a script on servers of another version, and returns its output."""
    file = tmp_path_factory.mktemp("mixed") / "cluster.yaml"
    file.write_text("{apiVersion: tfk8s.dev/v1, name: mixed, jobs: {ps: 1, worker: 2}}")

    def submit(*arguments: object) -> str:
        done = tfk8s("VERSIONS_SCRIPT", "submit", "--local", "mixed", *arguments)
        assert done.returncode == 0, done.stderr
        assert re.search(
            r"TensorFlow here is \S+, the tasks have \S+: TensorFlow does not support different", done.stderr
        )
        return done.stdout

    with own_state(tmp_path_factory):
        up = tfk8s("VERSIONS_SERVERS", "up", "--local", file)
        assert up.returncode == 0, up.stderr
        yield submit
        tfk8s("VERSIONS_SERVERS", "down", "--local", "mixed")


def test_session(submit: Submit) -> None:
    assert "step 399: cost 0.00" in submit("--tf1", EXAMPLES / "data_parallel" / "fused.py")


def test_parameter_server_strategy(submit: Submit) -> None:
    assert "200 steps, loss 0.0000\n" in submit(EXAMPLES / "parameter_server" / "train.py")


def test_strategy_of_tfk8s(submit: Submit, tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(KERAS)
    assert submit(script).endswith("True\n")
