"""One task: a TensorFlow server in this process, without `import tensorflow`.

TensorFlow's C API starts a server from a serialized `tensorflow.ServerDef` (TF_NewServer, TF_ServerStart in
tensorflow/c/c_api_experimental.h and c_api.h). The wheel has that API in `libtensorflow_cc.so.2`. So a server listens
0.3 s after its process starts, while `import tensorflow` alone takes seconds. A build of TensorFlow without that
library, or with modules to import first (custom operations), gets a `tf.distribute.Server` instead.

A TensorFlow server listens on every interface and runs any graph for any client. Its network must keep others away,
as tfk8s' backends do. Standard library only: this file runs in any image that has TensorFlow.

Imports of this file and its neighbours cost time. Pods have no compiled files, and the servers of a cluster on a small
machine start at the same time.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfk8s.task import eager_context, probe
from tfk8s.task.config import TaskConfig, listening_line
from tfk8s.task.server_options import ServerOptions, config_from, parse_options

BAD_INPUT = 2  # the exit code for what another start can't mend


class ServerError(Exception):
    """The server can't start; the text has the reason."""


class PreloadError(ServerError):
    """A module to preload can't be imported; the text has the reason."""


# ---- TensorFlow's library ------------------------------------------------------------------------------------------


class Library:
    """TensorFlow's C API, as far as a server needs it.

    Attributes:
        folder: the folder of the package `tensorflow`.
    """

    def __init__(self, folder: str) -> None:
        """Load the library from the folder of the package `tensorflow`.

        Raises:
            OSError: the folder lacks the library, as in builds for other platforms.
            AttributeError: the library lacks a function, as in old versions.
        """
        self.folder = folder
        # The library needs libtensorflow_framework, and names it itself. If that library were opened first, all
        # 400,000 symbols would be looked up there first, mostly in vain. That would take a tenth of the whole start.
        library = open_library(f"{folder}/libtensorflow_cc.so.2")
        pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        self._version = function(library, "TF_Version", text)
        self._new_status = function(library, "TF_NewStatus", pointer)
        self._code = function(library, "TF_GetCode", ctypes.c_int, pointer)
        self._message = function(library, "TF_Message", text, pointer)
        self._new_server = function(library, "TF_NewServer", pointer, text, size, pointer)
        self._start = function(library, "TF_ServerStart", None, pointer, pointer)

    @property
    def version(self) -> str:
        """TensorFlow's version."""
        return str(self._version().decode())

    def start(self, config: TaskConfig) -> None:
        """Start the task's server in this process, on other threads; return once it listens.

        Raises:
            ServerError: TensorFlow refuses.
        """
        status = self._new_status()
        definition = config.server_def()
        server = self._new_server(definition, len(definition), status)
        if not self._code(status):
            self._start(server, status)
        if self._code(status):
            raise ServerError(f"TensorFlow can't start {config.name}: {self._message(status).decode(errors='replace')}")
        eager_context.create(config)


def open_library(path: str) -> ctypes.CDLL:
    """Load a library whose functions are looked up at their first calls.

    ctypes looks all functions up at once (RTLD_NOW), which takes as long again as the rest. libtensorflow_cc calls
    150,000 functions by name, and a server needs few of them.
    """
    process = ctypes.CDLL(None)  # has dlopen
    dlopen = function(process, "dlopen", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
    dlerror = function(process, "dlerror", ctypes.c_char_p)  # looked up first, since a lookup clears the error
    handle = dlopen(os.fsencode(path), os.RTLD_LAZY | os.RTLD_GLOBAL)
    if not handle:
        raise OSError(dlerror().decode(errors="replace"))
    return ctypes.CDLL(path, handle=handle)


def function(library: ctypes.CDLL, name: str, result: type | None, *arguments: type) -> Any:
    """Return a function of a library, with the types of its result and its arguments."""
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


def find_tensorflow() -> str | None:
    """Return the folder of the package `tensorflow` that this interpreter would import, or None."""
    spec = importlib.util.find_spec("tensorflow")
    return spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None


def require_tensorflow() -> str:
    """Return the folder of the package `tensorflow`.

    Raises:
        ServerError: TensorFlow is missing.
    """
    folder = find_tensorflow()
    if folder is None:
        raise ServerError(f"no TensorFlow for {sys.executable}; install it with: pip install tensorflow-cpu")
    return folder


def start_by_import(config: TaskConfig, preload: Sequence[str]) -> str:
    """Import TensorFlow and `preload`, start a `tf.distribute.Server`, and return TensorFlow's version.

    Raises:
        PreloadError: a module to preload can't be imported.
    """
    for module in preload:
        try:
            importlib.import_module(module)
        except Exception as error:
            folders = ", ".join(path for path in sys.path if path.endswith("-packages") or "/lib/python" not in path)
            reason = f"{type(error).__name__}: {error} (searched: {folders})"
            raise PreloadError(f"{config.name} can't import {module} of preload: {reason}") from error
    import tensorflow as tf

    tasks, job, index = config.server
    cluster = tf.train.ClusterSpec({name: dict(addresses) for name, addresses in tasks.items()})
    global _server  # lives as long as the process
    session_config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=config.threads)
    _server = tf.distribute.Server(cluster, job, index, config=session_config)
    eager_context.create(config)
    return str(tf.__version__)


_server: object = None


def start(config: TaskConfig, preload: Sequence[str] = ()) -> str:
    """Start the task's server in the quickest possible way, and return the first lines of its log.

    Raises:
        ServerError: TensorFlow is missing, the port is in use, or TensorFlow refuses.
    """
    folder = require_tensorflow()
    check_port(config)
    note = ""
    try:
        if preload:
            raise ImportError(f"to preload {', '.join(preload)}")
        library = Library(folder)
    except (ImportError, OSError, AttributeError) as reason:
        version = start_by_import(config, preload)
        note = f" (by importing TensorFlow: {reason})"
    else:
        if "_tfk8s_listening" in sys.modules:  # of a cluster whose ports must be bound to loopback
            sys.modules["_tfk8s_listening"].hook_libraries()
        library.start(config)
        version = library.version
    return first_lines(config, version, folder, os.environ) + note


def check_port(config: TaskConfig) -> None:
    """Raise a ServerError if the task's port is in use; TensorFlow's error would be just "Could not start"."""
    try:
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("", config.port))
    except OSError as error:
        raise ServerError(f"{config.name} can't listen on port {config.port}: {error.strerror}") from error


def first_lines(config: TaskConfig, version: str, tensorflow: str, environment: Mapping[str, str]) -> str:
    """Return the first lines of a task's log: the GPUs that the server lacks, and the devices that it reports.

    Args:
        config: the task.
        version: TensorFlow's.
        tensorflow: the folder of the package `tensorflow`.
        environment: the variables of the process.
    """
    with socket.create_connection(("localhost", config.port), timeout=10) as stream:
        devices = probe.get_status(stream, timeout=10)
    kinds = [device.kind for device in devices]
    listed = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    line = listening_line(config, version, listed)
    required = int(environment.get("TFK8S_GPUS", "0"))
    if kinds.count("GPU") >= required:
        return line
    from tfk8s.task import gpus

    reason = gpus.why_unseen(required, tensorflow, environment)
    return f"{gpus.unseen_line(config.name, kinds.count('GPU'), required, reason)}\n{line}"


# ---- the command ---------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one task with a TensorFlow server until SIGTERM or Ctrl-C; return the exit code."""
    return run(parse_options(sys.argv[1:] if arguments is None else arguments), start)


def run(options: ServerOptions, start: Callable[[TaskConfig, Sequence[str]], str]) -> int:
    """Run one task until SIGTERM or Ctrl-C; the exit code is `BAD_INPUT`, or 1 if TensorFlow refuses.

    Args:
        options: the flags.
        start: starts what the task runs on other threads, and returns the first lines of its log.
    """
    try:
        config = config_from(options, os.environ)
    except ValueError as error:
        print(f"error: {error}\n  = help: tfk8s server --help shows the forms", file=sys.stderr)
        return BAD_INPUT
    if options.preload_folder:
        sys.path.append(options.preload_folder)
    stop = threading.Thread(target=_exit_on_signal, daemon=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    stop.start()
    if "TFK8S_METRICS_PORT" in os.environ:
        importlib.import_module("tfk8s.features.metrics.pod").start(config.port).write(True)
    try:
        lines = start(config, options.preload)
    except ServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT if isinstance(error, PreloadError) else 1
    print(lines, flush=True)
    if port := os.environ.get("TFK8S_ACTIVITY_PORT"):
        from tfk8s.task import activity  # few clusters need it

        threading.Thread(target=activity.serve, args=(int(port), config.port), daemon=True).start()
    if options.ready_fd is not None:
        os.write(options.ready_fd, b"1")
        os.close(options.ready_fd)
    stop.join()
    return 0


def _exit_on_signal() -> None:
    # This is a separate thread, since a handler would wait for the main thread's C call. Process 1 of a container
    # gets only the signals that it waits for.
    number = signal.sigwait((signal.SIGTERM, signal.SIGINT))
    os._exit(130 if number == signal.SIGINT else 0)


if __name__ == "__main__":
    sys.exit(main())
