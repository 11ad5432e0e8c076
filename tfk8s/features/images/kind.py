"""kind clusters for trials of tfk8s, created from kind-config.yaml by the program `kind` on Docker or podman."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfk8s import polling
from tfk8s.errors import ClusterError, InvalidInput, Tfk8sError, there_are
from tfk8s.features.images import package_data
from tfk8s.features.images.here import Engine, in_pods
from tfk8s.log import log

if TYPE_CHECKING:  # most commands need no API server
    from tfk8s.backends.kubernetes.api_server.client import Client

OLDEST = (0, 24)  # the first version with a network that enforces NetworkPolicy (kubernetes-sigs/kind#842)
GPU = "nvidia.com/gpu"

_COMMAND_TIMEOUT = 180.0
_ENDED_MEANWHILE = "container state improper"  # Podman's words
_CREATE_TIMEOUT = 900.0  # includes the time to pull a node image
_LOAD_TIMEOUT = 900.0
_READY_TIMEOUT = "120s"
_GPU_TIMEOUT = 60.0


def context(name: str) -> str:
    """Return the kubeconfig context of a kind cluster."""
    return f"kind-{name}"


def up(name: str, *, gpus: int = 0, image: str | None = None) -> None:
    """Create a cluster, or delete what was created after a failure or an interruption.

    Args:
        gpus: the number of GPUs that each node pretends to have.
        image: an image of the Docker engine that is loaded into the nodes.

    Raises:
        InvalidInput: the cluster can't be created; nothing was changed.
        ClusterError: kind fails, or no Docker engine responds.
    """
    engine = Engine() if image else None
    if image and engine:
        engine.size(image)
    require_version()
    if name in clusters():
        raise InvalidInput(
            f'kind cluster "{name}" already exists',
            help=f"use it (kubectl config use-context {context(name)}), remove it (tfk8s kind down --name {name}), "
            "or choose another --name",
        )
    with _delete_on_failure(name):
        _create(name)
        if gpus:
            from tfk8s.backends.kubernetes.api_server.client import Client

            pretend_gpus(Client(context(name)), gpus)
            log.info("each node pretends to have %d %s", gpus, GPU)
        if image and engine:
            load(name, image, engine)


def down(name: str) -> None:
    """Delete a cluster.

    Podman refuses to remove a container that ends while Podman stops it, so that kind fails. A second attempt finds the
    container stopped.

    Raises:
        InvalidInput: the cluster does not exist.
        ClusterError: kind fails.
    """
    require(name)
    command = ["delete", "cluster", "--name", name]
    try:
        _run(command, _COMMAND_TIMEOUT)
    except ClusterError as error:
        if _ENDED_MEANWHILE not in str(error):
            raise
        _run(command, _COMMAND_TIMEOUT)


def advice(name: str, image: str | None) -> list[str]:
    """Return notes on a new cluster, with the next command."""
    option = f"--context {context(name)}"
    if image is None:
        return [
            "the nodes pull images from registries; to use your own: tfk8s image build, then tfk8s image load",
            f"test whether NetworkPolicy is enforced: tfk8s doctor {option} --image IMAGE",
            f"start a cluster: tfk8s up {option} FILE",
        ]
    from tfk8s.backends.kubernetes.api_server.client import Client
    from tfk8s.cluster import network_policy

    try:
        policy = network_policy.test(Client(context(name)), "default", image).isolation
    except Tfk8sError as error:
        policy = f"could not be tested: {error}"
    return [
        f"NetworkPolicy: {policy}",
        f"the nodes have the image; for job files: image: {in_pods(image)}",
        f"start a cluster: tfk8s up {option} FILE",
    ]


def require(name: str) -> None:
    """Raise an InvalidInput if a cluster does not exist."""
    existing = clusters()
    if name not in existing:
        raise InvalidInput(
            f'there is no kind cluster "{name}"; {there_are(existing, "kind cluster")}',
            help=f"create it with: tfk8s kind up --name {name}",
        )


def load(name: str, image: str, engine: Engine) -> None:
    """Copy an image from the Docker engine into all nodes of a cluster."""
    with tempfile.TemporaryDirectory(prefix="tfk8s-") as folder:
        archive = Path(folder, "image.tar")
        with archive.open("wb") as file:
            engine.save(image, file)
        log.info('loading %s (%.2f GB) into the nodes of "%s"', image, archive.stat().st_size / 1e9, name)
        _run(["load", "image-archive", str(archive), "--name", name], _LOAD_TIMEOUT)


def clusters() -> list[str]:
    """Return the names of all kind clusters."""
    return [line for line in _run(["get", "clusters"], _COMMAND_TIMEOUT).splitlines() if line]


def require_version() -> None:
    """Raise an InvalidInput if the clusters of this version of kind don't enforce NetworkPolicy."""
    version = _run(["version"], _COMMAND_TIMEOUT).strip()
    match = re.search(r"\bv(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        raise InvalidInput(
            f"{version or 'this kind'} does not enforce NetworkPolicy: every pod could connect to every task",
            help=f"install kind {'.'.join(map(str, OLDEST))} or newer: {_INSTALL_URL}",
        )


def pretend_gpus(client: Client, count: int) -> None:
    """Make each node report GPUs that do not exist, to try scheduling. A restart of a node removes them."""
    from tfk8s.backends.kubernetes.api_server.client import MERGE

    names = [node["metadata"]["name"] for node in client.get("/api/v1/nodes")["items"]]
    status = {"status": {"capacity": {GPU: str(count)}, "allocatable": {GPU: str(count)}}}
    for name in names:
        client.send("PATCH", f"/api/v1/nodes/{name}/status", body=status, content_type=MERGE)
    polling.wait_until(
        lambda: all(
            node["status"]["allocatable"].get(GPU) == str(count) for node in client.get("/api/v1/nodes")["items"]
        ),
        f"every node to show {count} {GPU}",
        _GPU_TIMEOUT,
    )


# ---- the program ---------------------------------------------------------------------------------------------------

_INSTALL_URL = "https://kind.sigs.k8s.io/docs/user/quick-start/#installation"


def _create(name: str) -> None:
    """Create a cluster; kind prints its progress on standard error."""
    image = os.environ.get("KIND_NODE_IMAGE")
    command = [
        _program(), "create", "cluster", "--name", name, "--config", str(package_data.path("kind-config.yaml")),
        "--wait", _READY_TIMEOUT, *(["--image", image] if image else []),
    ]  # fmt: skip
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=_CREATE_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f'kind did not create cluster "{name}" within {_CREATE_TIMEOUT:g} s') from error
    if process.returncode:
        raise ClusterError(f'kind could not create cluster "{name}"; its messages are above')


@contextlib.contextmanager
def _delete_on_failure(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(ClusterError):
            _run(["delete", "cluster", "--name", name], _COMMAND_TIMEOUT)
        raise


def _run(arguments: list[str], timeout: float) -> str:
    """Run kind and return its output.

    Raises:
        ClusterError: kind fails, or takes too long.
    """
    command = " ".join(["kind", *arguments[:2]])
    try:
        process = subprocess.run(
            [_program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{command}` did not end within {timeout:g} s") from error
    if process.returncode:
        raise ClusterError(
            f"`{command}` failed: {process.stderr.strip()}",
            help="start Docker or podman: `docker info` or `podman info` must work; KIND_EXPERIMENTAL_PROVIDER "
            "selects one of them",
        )
    return process.stdout


def _program() -> str:
    program = shutil.which("kind")
    if program is None:
        raise InvalidInput("the program `kind` is not installed", help=f"install it: {_INSTALL_URL}")
    return program
