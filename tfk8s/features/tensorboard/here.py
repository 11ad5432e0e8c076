"""TensorBoard for the event files of a cluster's scripts and programs, at a loopback address of this machine."""

from __future__ import annotations

import contextlib
import http.client
import secrets
from collections.abc import Iterator

from tfk8s import polling
from tfk8s.backends.parts import TensorBoard
from tfk8s.cluster.handle import Cluster
from tfk8s.cluster.scripts import find_requirements
from tfk8s.errors import InvalidInput
from tfk8s.sessions.cluster.socket_users import require_own_listener
from tfk8s.sessions.forward import listen
from tfk8s.sessions.pod import tensorboard

_START_TIMEOUT = 300.0  # pip may install TensorBoard meanwhile
START_INTERVAL = 0.3  # each request takes a stream through the API server
_ASK_INTERVAL = 5.0
_ASK_TIMEOUT = 10.0


class Page:
    """The page of TensorBoard.

    Args:
        server: what serves the page.
        port: the page's port on this machine.
        token: the page's path.
    """

    def __init__(self, server: TensorBoard, port: int, token: str) -> None:
        self._server, self._port, self._token = server, port, token
        self.folder = server.folder

    @property
    def url(self) -> str:
        """The address of the page, which nobody can guess."""
        return f"http://{tensorboard.ADDRESS}:{self._port}/{self._token}/"

    def wait_until_ready(self) -> None:
        """Wait until the page can be opened.

        Raises:
            Tfk8sError: the server has ended, or another user's process has taken the port.
            WaitTimeout: the server does not answer.
        """
        polling.wait_until(
            self._poll, "TensorBoard to start", _START_TIMEOUT, announce=True, least_interval=START_INTERVAL
        )
        self._server.show_messages()

    def wait(self) -> None:
        """Wait until the server ends, and ask for the page meanwhile: a server that nobody asks ends.

        Raises:
            Tfk8sError: the server has ended, or another user's process has taken the port.
        """
        for _ in polling.every(_ASK_INTERVAL):
            self._poll()

    def _poll(self) -> bool:
        self._server.require_running()
        require_own_listener(self._port)  # before another user's process is told the secret path
        with contextlib.closing(http.client.HTTPConnection(tensorboard.ADDRESS, self._port, _ASK_TIMEOUT)) as server:
            try:
                server.request("GET", f"/{self._token}/data/runs")
                return server.getresponse().status == http.HTTPStatus.OK
            except (OSError, http.client.HTTPException):  # it starts, or can't be reached for a while
                return False


@contextlib.contextmanager
def serve(cluster: Cluster, folder: str | None, requirements: str | None, port: int) -> Iterator[Page]:
    """Serve TensorBoard in a `with`; at its end, no process and no pod is left.

    Args:
        folder: the folder of event files; None is "logs" on this machine, and the only volume on Kubernetes.
        requirements: a file for `pip install -r` in the pod.
        port: the port; 0 is 6006, or a free one.

    Raises:
        InvalidInput: TensorBoard is missing, there is no such folder, or the port is in use.
        ClusterError: the pod can't start.
    """
    port, token = choose_port(port), secrets.token_hex(24)
    file = find_requirements(requirements)
    scripts = cluster.backend.scripts
    with scripts.tensorboard(cluster.name, folder=folder, requirements=file, token=token, port=port) as server:
        page = Page(server, port, token)
        page.wait_until_ready()
        yield page


def choose_port(port: int) -> int:
    """Return a port that nobody listens on: `port`, or for 0, TensorBoard's own or any other.

    Raises:
        InvalidInput: the port is in use.
    """
    try:
        listener = listen(port or tensorboard.PORT)
    except InvalidInput:
        if port:
            raise
        listener = listen(0)
    with listener:
        return int(listener.getsockname()[1])
