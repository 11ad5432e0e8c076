"""What a user reads below the traceback of a script. The messages are TensorFlow's and Python's own: 2.21, 3.11."""

from __future__ import annotations

import signal
import sys

import pytest

from tfk8s.sessions import failures
from tfk8s.sessions.failures import ScriptRun

TF1_NAMES = {("tensorflow", "placeholder"), ("tensorflow._api.v2.train", "AdamOptimizer"), ("tensorflow", "Session")}

ADD = "add --tf1 before SCRIPT: tfk8s submit … --tf1 … SCRIPT"
MISPLACED = f"--tf1 after SCRIPT is an argument of the script; {ADD}"
EAGER = f"this is TensorFlow 1's code, which TensorFlow 2 runs eagerly; {ADD}"
REQUIREMENTS = (
    "write pandas into a file, and add --requirements before SCRIPT: tfk8s submit … --requirements FILE … SCRIPT"
)
DIFFERS = f"whose name may differ: {sys.executable} -m pip install PACKAGE"
OWN = "a module of your own belongs beside SCRIPT"

PLACEHOLDER = AttributeError("module 'tensorflow' has no attribute 'placeholder'")
OPTIMIZER = AttributeError("module 'tensorflow._api.v2.train' has no attribute 'AdamOptimizer'")
UNKNOWN = AttributeError("module 'tensorflow' has no attribute 'sessoin'")
SESSION = ImportError("cannot import name 'Session' from 'tensorflow' (/lib/tensorflow/__init__.py)")
DEVICE = ValueError("/job:worker/replica:0/task:1/device:CPU:0 unknown device.")
EMPTY = RuntimeError("The Session graph is empty. Add operations to the graph before calling run().")
FED = RuntimeError("tf.placeholder() is not compatible with eager execution.")

FLAG = Exception("The flag 'log_dir' is defined twice. First from absl.logging, Second from train.py.")
CLOSED = Exception("From /job:ps/replica:0/task:1:\nFIFOQueue 'sync_token_q' is closed.")
LEFTOVER = (
    "the queues and accumulators of an earlier synchronous training are left on ps/1; remove them: "
    "tfk8s restart NAME ps/1"
)


def run(*arguments: str, tf1: bool = False, in_pod: bool = False, requirements: str = "") -> ScriptRun:
    return ScriptRun("train.py", arguments, tf1, in_pod, requirements)


HINTS = [
    (PLACEHOLDER, run(), f"only TensorFlow 1 has placeholder; {ADD}"),
    (OPTIMIZER, run("--steps", "5"), f"only TensorFlow 1 has AdamOptimizer; {ADD}"),
    (SESSION, run(), f"only TensorFlow 1 has Session; {ADD}"),
    (DEVICE, run(), EAGER),
    (EMPTY, run(), EAGER),
    (FED, run(), EAGER),
    (PLACEHOLDER, run("--tf1"), MISPLACED),
    (SystemExit(2), run("--tf1"), MISPLACED),  # argparse does not know the option
    (SystemExit(0), run("--tf1"), None),
    (SystemExit(2), run(), None),
    (PLACEHOLDER, run(tf1=True), None),
    (SystemExit(2), run("--tf1", tf1=True), None),
    (UNKNOWN, run(), None),
    (FLAG, run(), f"absl has a flag log_dir, which TensorFlow 1's programs replace; give the flag another name; {ADD}"),
    (FLAG, run(tf1=True), None),
    (CLOSED, run(tf1=True), LEFTOVER),
    (ValueError("shapes"), run("--tf1"), None),
]


def test_a_script_for_tensorflow_1() -> None:
    for error, how, expected in HINTS:
        assert failures.hint(error, how, lambda *name: name in TF1_NAMES) == expected, error


@pytest.mark.parametrize("tf1", [False, True])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModuleNotFoundError("No module named 'tensorflow.contrib'", name="tensorflow.contrib"), "contrib"),
        (ImportError("cannot import name 'contrib' from 'tensorflow.compat.v1' (/v1/__init__.py)"), "contrib"),
        (AttributeError("module 'tensorflow' has no attribute 'contrib'"), "contrib"),
        (AttributeError("module 'tensorflow' has no attribute 'estimator'"), "estimator"),
        (ModuleNotFoundError("No module named 'tensorflow.examples'", name="tensorflow.examples"), "examples"),
    ],
)
def test_a_part_that_only_tensorflow_1_had(error: BaseException, expected: str, tf1: bool) -> None:
    advice = {
        "contrib": "packages such as tf-slim and tensorflow-probability have parts of it",
        "estimator": "TensorFlow 2.15 has it, the last version that does",
        "examples": "tf.keras.datasets has its MNIST",
    }
    assert failures.hint(error, run(tf1=tf1), lambda *name: False) == (
        f"TensorFlow 2 has no tensorflow.{expected}, and --tf1 does not bring it back; {advice[expected]}"
    )


PACKAGES = [
    ("pandas", run(), f"install the package: {sys.executable} -m pip install pandas; {OWN}"),
    ("sklearn", run(tf1=True), f"install the package: {sys.executable} -m pip install scikit-learn; {OWN}"),
    (
        "pandas",
        run(in_pod=True),
        f"the image has no pandas; {REQUIREMENTS}; {OWN}",
    ),
    (
        "yaml",
        run(in_pod=True, requirements="needs.txt"),
        f"the image has no yaml; add pyyaml to needs.txt; {OWN}",
    ),
    (
        "official_models",
        run(),
        f"install the package that has the module official_models, {DIFFERS}; {OWN}",
    ),
    (
        "official_models",
        run(in_pod=True, requirements="needs.txt"),
        f"the image has no official_models; add the package that has the module official_models to needs.txt; {OWN}",
    ),
    ("tensorflow.contrub", run(in_pod=True), None),  # the image has the package, and not this part of it
    ("tkinter", run(), None),  # Python's own
]


def test_a_package_that_is_missing() -> None:
    for module, how, expected in PACKAGES:
        error = ModuleNotFoundError(f"No module named '{module}'", name=module)
        assert failures.hint(error, how, lambda *name: False) == expected, module


def test_a_package_that_a_function_of_tensorflow_misses() -> None:
    error = Exception("TensorBoard is not installed, missing implementation for tf.summary.scalar")
    error.__cause__ = ModuleNotFoundError("No module named 'tensorboard'", name="tensorboard")
    expected = f"install the package: {sys.executable} -m pip install tensorboard; {OWN}"
    assert failures.hint(error, run(), lambda *name: False) == expected


SIGNALS = [
    (-signal.SIGSEGV, "train.py was ended by signal SIGSEGV"),
    (-signal.SIGKILL, "train.py was ended by signal SIGKILL"),
    (-40, "train.py was ended by signal 40"),
    (-signal.SIGINT, None),
    (-signal.SIGTERM, None),
    (139, None),
]


def test_a_signal_is_named() -> None:
    for code, expected in SIGNALS:
        assert failures.ended_by_signal("train.py", code) == expected, code
