"""Fixtures: this checkout in containers with Docker's default profile, as root and as an ordinary user."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BASE_IMAGE = os.environ.get("TFK8S_TEST_BASE", "python:3.11")
STAGE = os.environ.get("TFK8S_TEST_STAGE", "readme")  # of the Dockerfile
IMAGE = f"tfk8s/foreign:{STAGE}"
USERS = {"root": ["--env=HOME=/root"], "user": ["--user=1000:1000", "--cap-drop=ALL", "--env=HOME=/home/user"]}
TIMEOUT = 300


class Container:
    """A container on Docker's bridge, in which the checkout is as a user has cloned it."""

    def __init__(self, name: str) -> None:
        self.name = name
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.Gateway}}{{end}}"
        self.address, self.gateway = docker("inspect", "--format", template, name).split()

    def run(self, command: str, options: Sequence[str] = (), code: int = 0, timeout: float = TIMEOUT) -> str:
        """Run a shell's command, which must end with this exit code; return all that it prints."""
        ended = subprocess.run(self.command(command, options), capture_output=True, text=True, timeout=timeout)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        subprocess.run(self.command(f"cat > {path}", ()), input=text, text=True, timeout=TIMEOUT, check=True)

    def start(self, command: str, options: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start a shell's command, with pipes for its standard streams."""
        return subprocess.Popen(
            self.command(command, options), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def command(self, command: str, options: Sequence[str]) -> list[str]:
        """Return the command of Docker; tfk8s and its Python are on the path."""
        path = "PATH=/home/user/tfk8s/.venv/bin:$PATH"
        return ["docker", "exec", "--interactive", *options, self.name, "sh", "-c", f"{path}; {command}"]


def docker(*arguments: str, stdin: bytes | None = None) -> str:
    """Run Docker's command line; return what it prints."""
    ended = subprocess.run(["docker", *arguments], input=stdin, capture_output=True, timeout=900)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode().strip()


@pytest.fixture(scope="session")
def image() -> str:
    """Build the image; its packages come through the network of this machine."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            if (REPOSITORY / name).is_file():
                archive.add(REPOSITORY / name, name)
    own = Path(__file__).with_name("Dockerfile").relative_to(REPOSITORY)
    options = [
        "--quiet", "--network=host", f"--file={own}", f"--build-arg=BASE_IMAGE={BASE_IMAGE}", f"--tag={IMAGE}",
        f"--target={STAGE}",
    ]  # fmt: skip
    docker("build", *options, "-", stdin=packed.getvalue())
    return IMAGE


@pytest.fixture(scope="session", params=USERS)
def container(image: str, request: pytest.FixtureRequest) -> Iterator[Container]:
    name = docker("run", "--detach", "--rm", "--init", *USERS[request.param], image, "sleep", "infinity")
    yield Container(name)
    docker("kill", name)
