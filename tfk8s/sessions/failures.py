"""Reports the failure of a script: the error in words, and a hint what to type instead.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfk8s.core.programs import INTERRUPTED
from tfk8s.errors import TaskError, Tfk8sError
from tfk8s.sessions import error_names
from tfk8s.sessions.eager import hints
from tfk8s.task.programs import hints as program_hints
from tfk8s.task.programs import main_script

if TYPE_CHECKING:
    from tfk8s.sessions.diagnosis import ClusterProbe

_PACKAGE = str(Path(__file__).parents[1]) + os.sep

_ADD_TF1 = "add --tf1 before SCRIPT: tfk8s submit … --tf1 … SCRIPT"
_USAGE_ERRORS = (1, 2)  # the exit codes of absl's flags and of argparse for an option that they do not know

# The packages of modules; a package of another name may hold a module that is not here.
_SAME_NAMES = (
    "deepctr h5py keras_hub keras_tuner matplotlib numpy pandas pydot requests scipy seaborn spektral tensorboard "
    "tensorflow_datasets tensorflow_hub tensorflow_io tensorflow_probability tensorflow_text tf_agents tf_slim tqdm"
)
_PACKAGES = {
    "PIL": "pillow", "absl": "absl-py", "cv2": "opencv-python-headless", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "yaml": "pyyaml", "official": "tf-models-official", "tf_keras": "tf_keras",
    **{name: name.replace("_", "-") for name in _SAME_NAMES.split()},
}  # fmt: skip
_OWN_MODULE = "a module of your own belongs beside SCRIPT"

_SIGHUP = 1  # Windows does not name it
_EXPECTED_SIGNALS = (_SIGHUP, signal.SIGINT, signal.SIGTERM)  # of users, and of tfk8s itself

Note = Callable[[str], None]  # notes `error_names.A_TASK_FAILED` or `A_TASK_FAILED_JUST_NOW`


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A script, and how it runs.

    Attributes:
        script: its path.
        arguments: its own arguments.
        tf1: whether `import tensorflow` gives TensorFlow 1.
        in_pod: whether it runs in a pod of the cluster.
        requirements: the file of packages that were installed for it, or "".
    """

    script: str
    arguments: Sequence[str] = ()
    tf1: bool = False
    in_pod: bool = False
    requirements: str = ""


# ---- hints ---------------------------------------------------------------------------------------------------------


def hint(error: BaseException, run: ScriptRun, is_tf1_name: program_hints.IsTf1Name) -> str | None:
    """Return what the user may type instead, or None.

    Args:
        error: the error that ended the script.
        run: how the script ran.
        is_tf1_name: returns whether TensorFlow 1 has a name in a module, such as "tensorflow._api.v2.train".
    """
    if text := program_hints.removed_part(str(error)) or program_hints.leftover(str(error)):
        return text
    if text := hints.hint(error):
        return text
    if program_hints.needs_keras_2(error):
        return _missing_package("tf_keras", run)
    for origin in (error, error.__cause__):  # `tf.summary.scalar` without TensorBoard raises an error of its own
        if isinstance(origin, ModuleNotFoundError):
            return _missing_package(origin.name or "", run)
    if run.tf1:
        return None
    is_misplaced = "--tf1" in run.arguments
    if isinstance(error, SystemExit):
        return _misplaced() if is_misplaced and error.code in _USAGE_ERRORS else None
    cause = program_hints.tf1_cause(error, is_tf1_name)
    if cause is None:
        return None
    return _misplaced() if is_misplaced else f"{cause}; {_ADD_TF1}"


def _misplaced() -> str:
    return f"--tf1 after SCRIPT is an argument of the script; {_ADD_TF1}"


def _missing_package(module: str, run: ScriptRun) -> str | None:
    """Return how to install a module's package; None for a part of a package, and for a module of Python."""
    if not module or "." in module or module in sys.stdlib_module_names:
        return None
    package = _PACKAGES.get(module, "")
    if not run.in_pod:
        command = f"{sys.executable} -m pip install {package or 'PACKAGE'}"
        named = "" if package else f" that has the module {module}, whose name may differ"
        return f"install the package{named}: {command}; {_OWN_MODULE}"
    package = package or f"the package that has the module {module}"
    if run.requirements:
        return f"the image has no {module}; add {package} to {run.requirements}; {_OWN_MODULE}"
    return (
        f"the image has no {module}; write {package} into a file, and add --requirements before SCRIPT: "
        f"tfk8s submit … --requirements FILE … SCRIPT; {_OWN_MODULE}"
    )


def print_hint(error: BaseException, run: ScriptRun) -> None:
    """Print the hint about the error that ended a script, if there is one."""
    if text := hint(error, run, program_hints.is_tf1_name):
        print(f"hint: {text}", file=sys.stderr, flush=True)


# ---- errors --------------------------------------------------------------------------------------------------------


def fail(error: BaseException, run: ScriptRun, cluster: ClusterProbe, note: Note) -> int:
    """Print the error that ended a script, with a hint; return the exit code."""
    meaning: Tfk8sError | None = None
    if isinstance(error, Tfk8sError):
        meaning = error
    elif isinstance(error, Exception) and _is_tensorflows(error):
        meaning = cluster.explain(error)
    if meaning is None or os.environ.get("TFK8S_DEBUG"):
        main_script.print_traceback(error)
    else:
        _print_briefly(error)
    if meaning is not None:
        return report(meaning, note, error_names.A_TASK_FAILED_JUST_NOW)
    print_hint(error, run)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _print_briefly(error: BaseException) -> None:
    """Print the script's frames, and the first sentence of TensorFlow's message, which has a page of C++ after it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_inside(frame.filename)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    cause = error.__cause__ if isinstance(error, Tfk8sError) else error
    if cause is not None:
        lines.append(
            f"{type(cause).__name__}: {error_names.first_sentence(str(cause))} (TFK8S_DEBUG=1 shows the rest)\n"
        )
    print("".join(lines), end="", file=sys.stderr, flush=True)


def _is_tensorflows(error: Exception) -> bool:
    """Return whether TensorFlow raised an error: one of its own, or one about its arguments."""
    raised_at = traceback.extract_tb(error.__traceback__)[-1].filename
    return type(error).__module__.startswith("tensorflow.") or is_inside(raised_at)


def is_inside(file: str) -> bool:
    """Return whether a file belongs to tfk8s, or to the Python part of TensorFlow."""
    return file.startswith(_PACKAGE) or f"{os.sep}tensorflow{os.sep}python{os.sep}" in file


def report(error: Tfk8sError, note: Note, text: str) -> int:
    """Print an error, and note the failure of a task; return the exit code."""
    if isinstance(error, TaskError):
        note(text)
    print(f"error: {error}" + (f"\n  = help: {error.help}" if error.help else ""), file=sys.stderr, flush=True)
    return error.exit_code


# ---- signals -------------------------------------------------------------------------------------------------------


def ended_by_signal(script: str, code: int) -> str | None:
    """Return the message about a script that a signal ended; None for signals that users or tfk8s send.

    Args:
        script: its path.
        code: the return code, as in `subprocess`.
    """
    if code >= 0 or -code in _EXPECTED_SIGNALS:
        return None
    names = {number.value: number.name for number in signal.Signals}
    return f"{script} was ended by signal {names.get(-code, -code)}"
