"""Hints about operations of other libraries, which a task's server does not know. Standard library only."""

from __future__ import annotations

import re
import sys
import types

from tfk8s.task.programs import main_script

# TensorFlow's words: of a server that gets a graph, and of one that gets a function.
_UNKNOWN = re.compile(
    r"Op type not registered '(?P<op>[^']+)' in binary running on (?P<host>\S+?)[.\s]*(?:\s|$)"
    r"|'(?P<function>[^']+)' is neither a type of a primitive operation nor a name of a function"
)
_DEVICE = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")

# The beginnings of the names of operations, by the module that registers them.
_MODULES = {
    "Addons>": "tensorflow_addons", "IO>": "tensorflow_io", "SimpleML": "tensorflow_decision_forests",
    "TFRA>": "tensorflow_recommenders_addons", "TFText>": "tensorflow_text",
}  # fmt: skip

_LIBRARY = "_IS_TENSORFLOW_PLUGIN"  # `tf.load_op_library` sets this name in the module that it returns


def hint(error: BaseException) -> str | None:
    """Return the line of the job file that a task lacks, if an error says that it does not know an operation."""
    for cause in main_script.causes(error):
        if match := _UNKNOWN.search(str(cause)):
            operation = match["op"] or match["function"]
            module = _module_of(operation)
            return (
                f"{_task(cause, match['host'])} has not loaded the library of {operation}; write into its job in "
                f"the job file: preload: [{module}], and start the cluster again (tfk8s down, tfk8s up)"
            )
    return None


def _task(error: BaseException, host: str | None) -> str:
    """Return the task that an error is about: by its text or by the device of the operation; else its host."""
    device = getattr(getattr(error, "op", None), "device", "")
    for text in (str(error), device):
        if isinstance(text, str) and (match := _DEVICE.search(text)):
            return f"{match[1]}/{match[2]}"
    return f"a task at {host}" if host else "a task"


def _module_of(operation: str) -> str:
    """Return the module that registers an operation, as far as that is known: it is imported here."""
    for beginning, known in _MODULES.items():
        if operation.startswith(beginning):
            return known
    wanted = _plain(operation)
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package in ("tensorflow", "tfk8s") or not isinstance(module, types.ModuleType):
            continue
        for value in list(module.__dict__.values()):
            is_library = isinstance(value, types.ModuleType) and _LIBRARY in value.__dict__
            if is_library and any(_plain(each) == wanted for each in value.__dict__):
                return "MODULE" if package == "__main__" else package
    return "MODULE"


def _plain(name: str) -> str:
    """Return a name as its operation and its function have it: `Zero>OutOp` has the function `zero_out_op`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
