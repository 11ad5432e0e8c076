"""kind clusters for trying tfk8s: made from kind-config.yaml by the program `kind`, on Docker or podman."""

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
from tfk8s.errors import ClusterError, InvalidInput, there_are
from tfk8s.log import log
from tfk8s.tools import package_data
from tfk8s.tools.images import Engine, in_pods

if TYPE_CHECKING:  # most commands need no API server
    from tfk8s.backends.kubernetes.client import Client

OLDEST = (0, 24)  # the first whose own network enforces NetworkPolicy (kubernetes-sigs/kind#842)
GPU = "nvidia.com/gpu"

_QUICK_SECONDS = 180.0
_CREATE_SECONDS = 900.0  # a node image may have to be pulled
_LOAD_SECONDS = 900.0
_READY = "120s"
_GPU_SECONDS = 60.0


def context(name: str) -> str:
    """Return the kubeconfig's context of a kind cluster."""
    return f"kind-{name}"


def up(name: str, *, gpus: int = 0, image: str | None = None) -> None:
    """Make a cluster; after a failure or an interruption nothing of it is left.

    Args:
        name: its own.
        gpus: how many each node pretends to have.
        image: one of the Docker engine's, to be loaded into the nodes.

    Raises:
        InvalidInput: it can't be made, and nothing was done.
        ClusterError: kind fails, or no engine answers.
    """
    engine = Engine() if image else None
    if image and engine:
        engine.size(image)
    require_version()
    if name in clusters():
        raise InvalidInput(
            f'there is a kind cluster "{name}" already',
            help=f"use it (kubectl config use-context {context(name)}), remove it (tfk8s kind down --name {name}), "
            "or give the new one another --name",
        )
    with _removed_on_failure(name):
        _create(name)
        if gpus:
            from tfk8s.backends.kubernetes.client import Client

            pretend_gpus(Client(context(name)), gpus)
            log.info("each node pretends to have %d %s", gpus, GPU)
        if image and engine:
            load(name, image, engine)


def down(name: str) -> None:
    """Remove a cluster.

    Raises:
        InvalidInput: there is none of that name.
    """
    require(name)
    _run(["delete", "cluster", "--name", name], _QUICK_SECONDS)


def advice(name: str, image: str | None) -> list[str]:
    """Return what to know of a new cluster, and the next command."""
    where = f"--context {context(name)}"
    if image is None:
        return [
            "its nodes pull images themselves; `tfk8s image build` and `tfk8s image load` give them one of your own",
            f"whether NetworkPolicy is enforced: tfk8s doctor {where} --image IMAGE",
            f"start a cluster in it: tfk8s up {where} FILE",
        ]
    from tfk8s.backends.kubernetes.client import Client
    from tfk8s.tools.doctor import kubernetes

    policy = kubernetes.network_policy(Client(context(name)), "default", image)
    return [
        f"NetworkPolicy: {policy.detail}",
        f"its nodes have the image; for job files: image: {in_pods(image)}",
        f"start a cluster in it: tfk8s up {where} FILE",
    ]


def require(name: str) -> None:
    """Raise an InvalidInput if there is no cluster of that name."""
    there = clusters()
    if name not in there:
        raise InvalidInput(
            f'there is no kind cluster "{name}"; {there_are(there)}',
            help="tfk8s kind up makes one",
        )


def load(name: str, image: str, engine: Engine) -> None:
    """Copy an image from the Docker engine into all nodes of a cluster."""
    with tempfile.TemporaryDirectory(prefix="tfk8s-") as folder:
        archive = Path(folder, "image.tar")
        with archive.open("wb") as file:
            engine.save(image, file)
        log.info('loading %s (%.2f GB) into the nodes of "%s"', image, archive.stat().st_size / 1e9, name)
        _run(["load", "image-archive", str(archive), "--name", name], _LOAD_SECONDS)


def clusters() -> list[str]:
    """Return the names of all kind clusters."""
    return [line for line in _run(["get", "clusters"], _QUICK_SECONDS).splitlines() if line]


def require_version() -> None:
    """Raise an InvalidInput if kind is so old that its clusters don't enforce NetworkPolicy."""
    said = _run(["version"], _QUICK_SECONDS).strip()
    found = re.search(r"\bv(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise InvalidInput(
            f"{said or 'this kind'} makes clusters that don't enforce NetworkPolicy: everybody would reach every task",
            help=f"install kind {'.'.join(map(str, OLDEST))} or newer: {_INSTALLING}",
        )


def pretend_gpus(client: Client, count: int) -> None:
    """Have each node say that it has GPUs: for scheduling only, no device is behind them; restarts of nodes end it."""
    from tfk8s.backends.kubernetes.client import MERGE

    names = [node["metadata"]["name"] for node in client.get("/api/v1/nodes")["items"]]
    status = {"status": {"capacity": {GPU: str(count)}, "allocatable": {GPU: str(count)}}}
    for name in names:
        client.send("PATCH", f"/api/v1/nodes/{name}/status", body=status, content_type=MERGE)
    polling.wait_until(
        lambda: all(
            node["status"]["allocatable"].get(GPU) == str(count) for node in client.get("/api/v1/nodes")["items"]
        ),
        f"every node to show {count} {GPU}",
        _GPU_SECONDS,
    )


# ---- the program ---------------------------------------------------------------------------------------------------

_INSTALLING = "https://kind.sigs.k8s.io/docs/user/quick-start/#installation"


def _create(name: str) -> None:
    """Have kind make the cluster; it tells of its progress on standard error."""
    image = os.environ.get("KIND_NODE_IMAGE")
    command = [
        _program(), "create", "cluster", "--name", name, "--config", str(package_data.path("kind-config.yaml")),
        "--wait", _READY, *(["--image", image] if image else []),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=_CREATE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f'kind did not make cluster "{name}" within {_CREATE_SECONDS:g} s') from error
    if done.returncode:
        raise ClusterError(f'kind could not make cluster "{name}": what it said is above')


@contextlib.contextmanager
def _removed_on_failure(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(ClusterError):
            _run(["delete", "cluster", "--name", name], _QUICK_SECONDS)
        raise


def _run(arguments: list[str], timeout: float) -> str:
    """Run kind and return what it prints.

    Raises:
        ClusterError: it fails.
    """
    words = " ".join(["kind", *arguments[:2]])
    try:
        done = subprocess.run(
            [_program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{words}` did not end within {timeout:g} s") from error
    if done.returncode:
        raise ClusterError(
            f"`{words}` fails: {done.stderr.strip()}",
            help="is Docker or podman running? `docker info` or `podman info` must work; KIND_EXPERIMENTAL_PROVIDER "
            "says which kind takes",
        )
    return done.stdout


def _program() -> str:
    found = shutil.which("kind")
    if found is None:
        raise InvalidInput("the program `kind` is not installed here", help=f"install it: {_INSTALLING}")
    return found
