"""Images with TensorFlow: their names, and how a Docker engine makes and moves them; podman is one, too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.log import log
from tfk8s.render import pods
from tfk8s.tools import package_data
from tfk8s.version import __version__

if TYPE_CHECKING:
    import docker

# What each is for; the folders of images/.
KINDS = {
    "cpu": "tasks and session scripts on CPUs",
    "gpu": "tasks and session scripts on NVIDIA GPUs",
    "server": "tasks on CPUs, in the smallest image: TensorFlow's C library alone",
}

_ANSWER_SECONDS = 10
_SILENCE_SECONDS = 1200  # the longest that a step says nothing: a download of gigabytes
_SMOKE_SECONDS = 300.0
_LAST_LINES = 15
_REFUSED = re.compile(r"denied|unauthorized|authentication|credentials", re.IGNORECASE)


def reference(kind: str) -> str:
    """Return the name of an image: `tfk8s/cpu:2.21.0-0.1.0`, TensorFlow's version and tfk8s'.

    Raises:
        InvalidInput: there is no such kind.
    """
    if kind not in KINDS:
        raise InvalidInput(f'there is no image "{kind}"', help=f"there are {', '.join(KINDS)}")
    return f"tfk8s/{kind}:{tensorflow_version(kind)}-{__version__}"


def named(word: str) -> str:
    """Return the name of the image that a word means: a kind, or the name itself."""
    return reference(word) if word in KINDS else word


def built(kind: str) -> str | None:
    """Return the name of an image if the Docker engine has it; None where there is no engine."""
    name = reference(kind)
    try:
        return name if Engine().has(name) else None
    except ClusterError:
        return None


def tensorflow_version(kind: str) -> str:
    """Return which TensorFlow is in an image, from its requirements."""
    requirements = (_folder() / kind / "requirements.txt").read_text()
    found = re.search(r"^tensorflow\S*==(\S+)$", requirements, re.MULTILINE)
    assert found is not None
    return found[1]


def _folder() -> Path:
    return package_data.path("images")


class Engine:
    """The Docker engine that `DOCKER_HOST` names, or this machine's.

    Raises:
        ClusterError: none answers.
    """

    def __init__(self) -> None:
        import docker

        self._errors = docker.errors
        with self._translated(), contextlib.closing(docker.from_env(timeout=_ANSWER_SECONDS)) as client:
            client.ping()
        self._client: docker.DockerClient = docker.from_env(timeout=_SILENCE_SECONDS)

    def has(self, image: str) -> bool:
        """Return whether the engine has an image."""
        try:
            with self._translated():
                self._client.images.get(image)
        except NoSuchImage:
            return False
        return True

    def size(self, image: str) -> int:
        """Return how many bytes an image takes, unpacked.

        Raises:
            NoSuchImage: there is none of that name.
        """
        with self._translated(image):
            return int(self._client.images.get(image).attrs["Size"])

    def build(self, kind: str, tag: str, *, base: str | None, network: str | None) -> None:
        """Build an image; log what the build writes.

        Args:
            kind: one of `KINDS`.
            tag: its name.
            base: the image with Python to build it on; None is the Dockerfile's.
            network: of the build steps; None is the engine's default.

        Raises:
            ClusterError: a step fails; has the last lines.
        """
        arguments = {"VERSION": tag.rpartition(":")[2]} | ({"BASE_IMAGE": base} if base else {})
        said: list[str] = []
        with self._translated(tag):
            for event in self._client.api.build(
                path=str(_folder()), dockerfile=f"{kind}/Dockerfile", tag=tag, buildargs=arguments, rm=True,
                forcerm=True, network_mode=network, decode=True,
            ):  # fmt: skip
                if "error" in event:
                    last = "\n".join(said[-_LAST_LINES:])
                    raise ClusterError(f'image "{tag}" can\'t be built: {event["error"].strip()}\n{last}')
                for line in filter(str.strip, event.get("stream", "").splitlines()):
                    said.append(line)
                    log.info("%s", line)

    def smoke_test(self, image: str) -> str:
        """Run an image's own test, as restricted as a pod is; return what it says.

        Raises:
            ClusterError: something in it does not work.
        """
        with self._translated(image):
            container = self._client.containers.run(
                image, detach=True, read_only=True, tmpfs={pods.SCRATCH_FOLDER: ""}, network_mode="none",
                cap_drop=["ALL"], security_opt=["no-new-privileges"],
            )  # fmt: skip
            try:
                code = container.wait(timeout=_SMOKE_SECONDS)["StatusCode"]
                said: str = container.logs(stdout=True, stderr=bool(code)).decode(errors="replace").strip()
            finally:
                container.remove(force=True)
        if code:
            raise ClusterError(f'image "{image}" does not work:\n{said}')
        return said

    def save(self, image: str, file: IO[bytes]) -> None:
        """Write an image as an archive.

        Raises:
            NoSuchImage: there is none of that name.
        """
        with self._translated(image):
            self._client.images.get(image)
            for block in self._client.api.get_image(image, chunk_size=1 << 20):
                file.write(block)

    def push(self, image: str, repository: str) -> str:
        """Push an image under another name; return that name, with the image's tag unless it has one of its own.

        Raises:
            NoSuchImage: there is no such image.
            ClusterError: the registry refuses.
        """
        name, tag = split(repository)
        tag = tag or split(image)[1]
        with self._translated(image):
            self._client.images.get(image).tag(name, tag)
            for event in self._client.api.push(name, tag, stream=True, decode=True):
                if "error" in event:
                    login = f"docker login {name.partition('/')[0]}" if _REFUSED.search(event["error"]) else None
                    raise ClusterError(f'"{name}:{tag}" can\'t be pushed: {event["error"]}', help=login)
                if event.get("status") in ("Pushed", "Layer already exists"):
                    log.info("layer %s: %s", event["id"], event["status"])
        return f"{name}:{tag}"

    @contextlib.contextmanager
    def _translated(self, image: str = "") -> Iterator[None]:
        """Have errors of Docker's library leave as tfk8s' own."""
        import requests

        try:
            yield
        except self._errors.ImageNotFound as error:
            raise NoSuchImage(f'the Docker engine has no image "{image}"', help=_making(image)) from error
        except self._errors.APIError as error:
            raise ClusterError(f"the Docker engine refuses: {error.explanation or error}") from error
        except (self._errors.DockerException, requests.RequestException) as error:
            raise ClusterError(f"no Docker engine answers here: {_cause(error)}", help=_STARTING) from error


def _cause(error: BaseException) -> str:
    """Return what the system said, where an error of Docker's library goes back to that."""
    first = error
    while first.__context__ is not None:
        first = first.__context__
    return (isinstance(first, OSError) and first.strerror) or str(error)


class NoSuchImage(InvalidInput):
    """The Docker engine has no image of that name."""


_STARTING = (
    "start one (Docker Desktop, or systemctl start docker), or have DOCKER_HOST name one; podman is one after "
    "`systemctl --user start podman.socket`: DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock"
)


def _making(image: str) -> str:
    kind = image.removeprefix("tfk8s/").partition(":")[0]
    return f"tfk8s image build {kind}" if kind in KINDS else f"docker pull {image}"


def split(image: str) -> tuple[str, str]:
    """Return an image's name without its tag, and its tag or ""; a registry's port is no tag."""
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "")


def in_pods(image: str) -> str:
    """Return the full name of an image, by which nodes know one that was loaded into them."""
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"
