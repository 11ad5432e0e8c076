"""Images with TensorFlow: their names, and the Docker engine (or podman) that builds and pushes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.features.images import package_data
from tfk8s.log import log
from tfk8s.render import pod_volumes
from tfk8s.version import __version__

if TYPE_CHECKING:
    import docker

# The purpose of each image, by its folder in images/.
KINDS = {
    "cpu": "tasks and session scripts on CPUs",
    "gpu": "tasks and session scripts on NVIDIA GPUs",
    "server": "tasks on CPUs, in the smallest image: only TensorFlow's C library",
}

_PING_TIMEOUT = 10
_READ_TIMEOUT = 1200  # a step may download gigabytes without output
_SMOKE_TIMEOUT = 300.0
_LAST_LINES = 15
_DENIED = re.compile(r"denied|unauthorized|authentication|credentials", re.IGNORECASE)


def reference(kind: str) -> str:
    """Return the name of an image with the versions of TensorFlow and tfk8s: `tfk8s/cpu:2.21.0-0.1.0`.

    Raises:
        InvalidInput: the kind is not one of `KINDS`.
    """
    if kind not in KINDS:
        raise InvalidInput(f'there is no image "{kind}"', help=f"the images are {', '.join(KINDS)}")
    return f"tfk8s/{kind}:{tensorflow_version(kind)}-{__version__}"


def named(word: str) -> str:
    """Return the name of an image from a kind or a name."""
    return reference(word) if word in KINDS else word


def built(kind: str) -> str | None:
    """Return the name of an image if a Docker engine has the image, else None."""
    name = reference(kind)
    try:
        return name if Engine().has(name) else None
    except ClusterError:
        return None


def tensorflow_version(kind: str) -> str:
    """Return the version of TensorFlow in an image, from its requirements."""
    requirements = (_folder() / kind / "requirements.txt").read_text()
    match = re.search(r"^tensorflow\S*==(\S+)", requirements, re.MULTILINE)
    assert match is not None
    return match[1]


def _folder() -> Path:
    return package_data.path("images")


class Engine:
    """The Docker engine that `DOCKER_HOST` names, or the engine of this machine.

    Raises:
        ClusterError: the engine does not respond.
    """

    def __init__(self) -> None:
        import docker

        self._errors = docker.errors
        with self._translated(), contextlib.closing(docker.from_env(timeout=_PING_TIMEOUT)) as client:
            client.ping()
        self._client: docker.DockerClient = docker.from_env(timeout=_READ_TIMEOUT)

    def has(self, image: str) -> bool:
        """Return whether the engine has an image."""
        try:
            with self._translated():
                self._client.images.get(image)
        except NoSuchImage:
            return False
        return True

    def size(self, image: str) -> int:
        """Return the size of an unpacked image in bytes.

        Raises:
            NoSuchImage: the engine does not have the image.
        """
        with self._translated(image):
            return int(self._client.images.get(image).attrs["Size"])

    def build(self, kind: str, tag: str, *, base: str | None, network: str | None) -> None:
        """Build an image, and log the output.

        Args:
            kind: one of `KINDS`.
            tag: the image's name.
            base: the base image with Python; None is the Dockerfile's.
            network: the network of the build steps; None is the engine's default.

        Raises:
            ClusterError: a step fails; the message has the last lines of the output.
        """
        arguments = {"VERSION": tag.rpartition(":")[2]} | ({"BASE_IMAGE": base} if base else {})
        lines: list[str] = []
        with self._translated(tag):
            for event in self._client.api.build(
                path=str(_folder()), dockerfile=f"{kind}/Dockerfile", tag=tag, buildargs=arguments, rm=True,
                forcerm=True, network_mode=network, decode=True,
            ):  # fmt: skip
                if "error" in event:
                    last = "\n".join(lines[-_LAST_LINES:])
                    raise ClusterError(f'image "{tag}" can\'t be built: {event["error"].strip()}\n{last}')
                for line in filter(str.strip, event.get("stream", "").splitlines()):
                    lines.append(line)
                    log.info("%s", line)

    def smoke_test(self, image: str) -> str:
        """Run the image's own test under the restrictions of a pod, and return its output.

        Raises:
            ClusterError: the test fails.
        """
        with self._translated(image):
            container = self._client.containers.run(
                image, detach=True, read_only=True, tmpfs={pod_volumes.SCRATCH_FOLDER: ""}, network_mode="none",
                cap_drop=["ALL"], security_opt=["no-new-privileges"],
            )  # fmt: skip
            try:
                code = container.wait(timeout=_SMOKE_TIMEOUT)["StatusCode"]
                output: str = container.logs(stdout=True, stderr=bool(code)).decode(errors="replace").strip()
            finally:
                container.remove(force=True)
        if code:
            raise ClusterError(f'image "{image}" does not work:\n{output}')
        return output

    def save(self, image: str, file: IO[bytes]) -> None:
        """Write an image to a file as an archive.

        Raises:
            NoSuchImage: the engine does not have the image.
        """
        with self._translated(image):
            self._client.images.get(image)
            for block in self._client.api.get_image(image, chunk_size=1 << 20):
                file.write(block)

    def push(self, image: str, repository: str) -> str:
        """Push an image to a repository, by default with the image's tag, and return the pushed name.

        Raises:
            NoSuchImage: the engine does not have the image.
            ClusterError: the registry rejects the image.
        """
        name, tag = split(repository)
        tag = tag or split(image)[1]
        with self._translated(image):
            self._client.images.get(image).tag(name, tag)
            for event in self._client.api.push(name, tag, stream=True, decode=True):
                if "error" in event:
                    login = f"docker login {name.partition('/')[0]}" if _DENIED.search(event["error"]) else None
                    raise ClusterError(f'"{name}:{tag}" can\'t be pushed: {event["error"]}', help=login)
                if event.get("status") in ("Pushed", "Layer already exists"):
                    log.info("layer %s: %s", event["id"], event["status"])
        return f"{name}:{tag}"

    @contextlib.contextmanager
    def _translated(self, image: str = "") -> Iterator[None]:
        """Translate errors of Docker's library."""
        import requests

        try:
            yield
        except self._errors.ImageNotFound as error:
            raise NoSuchImage(f'the Docker engine has no image "{image}"', help=_get_advice(image)) from error
        except self._errors.APIError as error:
            raise ClusterError(f"the Docker engine rejected the request: {error.explanation or error}") from error
        except (self._errors.DockerException, requests.RequestException) as error:
            raise ClusterError(f"no Docker engine responds: {_cause(error)}", help=_START_ADVICE) from error


def _cause(error: BaseException) -> str:
    """Return the system's message if a system error caused an error of Docker's library."""
    first = error
    while first.__context__ is not None:
        first = first.__context__
    return (isinstance(first, OSError) and first.strerror) or str(error)


class NoSuchImage(InvalidInput):
    """The Docker engine does not have an image."""


_START_ADVICE = (
    "start Docker (Docker Desktop, or systemctl start docker), or set DOCKER_HOST; for podman, run "
    "`systemctl --user start podman.socket` and set DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock"
)


def _get_advice(image: str) -> str:
    kind = image.removeprefix("tfk8s/").partition(":")[0]
    return f"tfk8s image build {kind}" if kind in KINDS else f"docker pull {image}"


def split(image: str) -> tuple[str, str]:
    """Return an image's name without the tag, and the tag or "". A registry's port is not a tag."""
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "")


def in_pods(image: str) -> str:
    """Return the full name of an image, which nodes use for a loaded image."""
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"
