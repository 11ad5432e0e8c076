"""A notebook's kernel for tests, as Jupyter starts it: cells go in, and what a page would show comes out."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tfk8s.api import connect
from tfk8s.features.notebook.kernel import KernelSettings
from tfk8s.features.notebook.server import write_kernel

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"In\[\d+\]")
_TIMEOUT = 120

# A cell with a variable on ps/0, a tensor on worker/1, and a step that would take hours there.
GRAPH = """
import threading
import tensorflow as tf, tfk8s

graph = tf.Graph()
with graph.as_default():
    with tf.device("/job:ps/task:0"):
        variable = tf.compat.v1.get_variable("v", initializer=236.0, use_resource=True)
    with tf.device("/job:worker/task:1"):
        total = variable + 2
        busy = tf.compat.v1.while_loop(lambda i, x: i < 2_000_000_000, lambda i, x: (i + 1, tf.sin(x)), (0, 1.0))[1]
    start = tf.compat.v1.global_variables_initializer()

session = tfk8s.session(graph=graph)
session.run(start)
print(session.run(total))
"""
BUSY = "threading.Timer(1, print, ['the step runs']).start(); session.run(busy)"


class Cell:
    """The output of a cell.

    Attributes:
        text: what it printed, and the text of its result.
        html: its result as a page shows it.
        error: the error as a page shows it, without colours and the number of the cell.
    """

    def __init__(self) -> None:
        self.text = self.html = self.error = ""

    def add(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            self.text += content["text"]
        elif message["msg_type"] == "execute_result":
            self.text += content["data"]["text/plain"]
            self.html += content["data"].get("text/html", "")
        elif message["msg_type"] == "error":
            self.error = _NUMBER.sub("In[*]", _COLOUR.sub("", "\n".join(content["traceback"])))


class Kernel:
    """A kernel that runs."""

    def __init__(self, manager: KernelManager) -> None:
        self._client = manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(_TIMEOUT)
        self.interrupt = manager.interrupt_kernel

    def run(self, source: str, during: Callable[[], object] | None = None) -> Cell:
        """Run a cell; call `during` when the cell prints something."""
        cell = Cell()

        def add(message: dict[str, Any]) -> None:
            nonlocal during
            cell.add(message)
            if during and cell.text:
                during()
                during = None

        self._client.execute_interactive(source, output_hook=add, timeout=_TIMEOUT)
        return cell

    def close(self) -> None:
        self._client.stop_channels()


@contextlib.contextmanager
def kernel(folder: Path, name: str, *, tf1: bool = False, **where: Any) -> Iterator[Kernel]:
    """Run a kernel of a cluster."""
    cluster = connect(name, **where)
    write_kernel(folder, KernelSettings.of(cluster, "", tf1=tf1), cluster.status().variables)
    kernels = KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    manager = KernelManager(kernel_name="python3", kernel_spec_manager=kernels)
    manager.start_kernel(cwd=str(folder))
    running = Kernel(manager)
    try:
        yield running
    finally:
        running.close()
        manager.shutdown_kernel()
        manager.cleanup_resources()
