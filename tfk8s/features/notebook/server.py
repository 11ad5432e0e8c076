"""JupyterLab on this machine, for the notebooks of one cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import socket
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfk8s import platforms, polling
from tfk8s.backends import child_process, devices, interpreter
from tfk8s.cluster.connection import require_access
from tfk8s.cluster.handle import Cluster
from tfk8s.core.environment import SCRIPT_DEFAULTS
from tfk8s.core.programs import exit_code
from tfk8s.errors import InvalidInput, Tfk8sError
from tfk8s.features.notebook.kernel import KernelSettings
from tfk8s.log import log
from tfk8s.sessions import preflight

_ADDRESS = "127.0.0.1"
# The path of a Unix socket has at most 107 bytes on Linux, and 103 on macOS (sys/un.h).
_SHORT_FOLDER = "/tmp"  # noqa: S108 (a folder of a random name, for this user alone)
_START_TIMEOUT = 120.0
_CONNECT_TIMEOUT = 1.0
_STOP_TIMEOUT = 30.0  # Jupyter gives each kernel 5 s

# The name of Jupyter's own kernel, which nearly all notebooks name. This kernel replaces it.
_KERNEL = "python3"


def require_jupyter() -> None:
    """Raise an InvalidInput without Linux, JupyterLab or TensorFlow, which kernels need."""
    platforms.require_linux("notebooks")
    if any(importlib.util.find_spec(module) is None for module in ("jupyterlab", "ipykernel")):
        raise InvalidInput(f"JupyterLab is not installed for {sys.executable}", help="pip install 'tfk8s[notebook]'")
    interpreter.require_tensorflow(sys.executable)


def require_notebook(path: str) -> Path:
    """Return the whole path of a notebook.

    Raises:
        InvalidInput: the path is no notebook's.
    """
    notebook = Path(path).resolve()
    if notebook.suffix != ".ipynb":
        raise InvalidInput(f'"{path}" is not a notebook: its name does not end in .ipynb')
    if not notebook.is_file():
        raise InvalidInput(f'there is no notebook "{path}"', help="leave it out to create one in JupyterLab")
    return notebook


def require_master(cluster: Cluster) -> None:
    """Check that kernels will reach a cluster's master; log what keeps sessions from opening now.

    Raises:
        InvalidInput: the cluster does not exist, or has no servers.
        ClusterError: this user may not connect to the master.
    """
    status = cluster.status()
    view = devices.view(cluster.backend, status)
    require_access(cluster.backend, cluster.name, status.master)
    answers = view.probe_all()
    try:
        preflight.require(answers)
    except Tfk8sError as error:
        log.warning("%s", error)
    if text := preflight.warning(answers, preflight.own_version()):
        log.warning("%s", text)


@contextlib.contextmanager
def jupyter(
    cluster: Cluster, settings: KernelSettings, notebook: Path | None, port: int, *, browser: bool
) -> Iterator[Jupyter]:
    """Run JupyterLab in a `with`; at its end, no kernel and no file is left.

    Args:
        settings: the settings of the kernels.
        notebook: a notebook to open.
        port: the port; 0 is 8888, or the next one that is free.
        browser: open the page in the user's browser.

    Raises:
        Tfk8sError: JupyterLab does not start.
    """
    with tempfile.TemporaryDirectory(prefix="tfk8s-", dir=_SHORT_FOLDER, ignore_cleanup_errors=True) as folder:
        write_kernel(Path(folder), settings, cluster.status().variables)
        server = Jupyter(Path(folder), notebook, port, browser=browser)
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.stop()


def write_kernel(folder: Path, settings: KernelSettings, variables: Mapping[str, str]) -> None:
    """Write the specification of a kernel into a folder that `JUPYTER_PATH` can name.

    Args:
        settings: the settings of the kernel.
        variables: the variables of the cluster's master, which override those of this process.
    """
    defaults = {name: value for name, value in SCRIPT_DEFAULTS.items() if name not in os.environ}
    # Jupyter replaces $VARIABLE in these values.
    environment = {name: value.replace("$", "$$") for name, value in {**defaults, **variables}.items()}
    specification = {
        "argv": settings.command(), "display_name": f"Python 3 on {settings.name}", "language": "python",
        "env": environment,
    }  # fmt: skip
    place = folder / "kernels" / _KERNEL
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(specification))


class Jupyter:
    """A JupyterLab that ends with this process.

    Args:
        folder: for its files; a kernel is there.
        notebook, port, browser: as of `jupyter`.
    """

    def __init__(self, folder: Path, notebook: Path | None, port: int, *, browser: bool) -> None:
        self._runtime, self._notebook = folder / "runtime", notebook
        root = notebook.parent if notebook else Path.cwd()
        command = [
            sys.executable, "-P", "-m", "jupyterlab", "--log-level=ERROR", "--LabApp.log_level=ERROR",
            f"--ServerApp.ip={_ADDRESS}", f"--ServerApp.root_dir={root}", f"--ServerApp.open_browser={browser}",
            "--ServerApp.allow_root=True",  # root may run TensorFlow's graphs, too
            f"--MultiKernelManager.default_kernel_name={_KERNEL}",
            "--KernelManager.transport=ipc",  # over TCP, every user of the machine could read what cells print
        ]  # fmt: skip
        if port:
            command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
        if notebook:
            command.append(str(notebook))
        environment = {
            **os.environ, "JUPYTER_TOKEN": secrets.token_hex(24), "JUPYTER_RUNTIME_DIR": str(self._runtime),
            "JUPYTER_PATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("JUPYTER_PATH")))),
        }  # fmt: skip
        self._process = child_process.start(command, environment)

    def wait_until_ready(self) -> None:
        """Wait until JupyterLab listens.

        Raises:
            Tfk8sError: it has ended.
            WaitTimeout: it does not listen.
        """
        polling.wait_until(lambda: self._listens() or self._has_ended(), "JupyterLab to start", _START_TIMEOUT)
        if self._has_ended():
            code = self._process.returncode
            raise Tfk8sError(f"JupyterLab ended with exit code {code} before it listened: its messages are above")

    @property
    def url(self) -> str:
        """The address of the page, with the token that opens it."""
        info = self._info()
        page = f"lab/tree/{urllib.parse.quote(self._notebook.name)}" if self._notebook else "lab"
        token = f"?token={info['token']}" if info["token"] else ""
        return f"{info['url']}{page}{token}"

    def wait(self) -> int:
        """Wait until JupyterLab ends, for which its menu has an entry; return the exit code."""
        return exit_code(self._process.wait())

    def stop(self) -> None:
        """End JupyterLab and its kernels, which end by themselves if JupyterLab is killed."""
        child_process.stop(self._process, _STOP_TIMEOUT)

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _listens(self) -> bool:
        """Return whether the page can be opened: Jupyter Server 2.21 writes its file before it listens."""
        try:
            socket.create_connection((_ADDRESS, int(self._info()["port"])), _CONNECT_TIMEOUT).close()
        except (OSError, LookupError, TypeError, ValueError):
            return False
        return True

    def _info(self) -> dict[str, Any]:
        """Return what JupyterLab says of itself; empty before it does."""
        for path in self._runtime.glob("jpserver-*.json"):
            with contextlib.suppress(OSError, ValueError):  # it is being written
                info: dict[str, Any] = json.loads(path.read_text())
                return info
        return {}
