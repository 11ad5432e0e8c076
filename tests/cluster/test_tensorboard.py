"""TensorBoard in a pod: what a script has written to a volume, and a package that pip installs for the pod."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from event_files import LOSSES, WRITE, losses
from kube_api import KubeApi
from on_cluster import IMAGE, make_job, make_job_file, open_claim, start_tfk8s, write_wheel

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ScriptStatus
from tfk8s.core.storage.volumes import Volume

# TensorBoard, and what it needs besides the packages of TensorFlow.
PACKAGES = ("tensorboard", "werkzeug", "markupsafe", "markdown")
KEEP_WHEELS = "import shutil; shutil.copytree('wheels', '/logs/wheels')"


def write_wheels(folder: Path) -> None:
    """Write wheels of the TensorBoard that is installed here: pods may reach no index."""
    folder.mkdir()
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        files = [path for path in package.rglob("*") if path.is_file() and path.suffix in (".py", ".zip")]
        write_wheel(folder, name, {str(path.relative_to(package.parent)): path.read_bytes() for path in files})
    # TensorBoard imports this module, and needs it for images only.
    write_wheel(folder, "pillow", {"PIL/__init__.py": b"", "PIL/Image.py": b""})


@pytest.fixture
def claim(client: KubeApi, namespace: str) -> str:
    """A claim that every user can write to, also where the provisioner of volumes leaves them to root."""
    core = f"/api/v1/namespaces/{namespace}"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "logs"}, "spec": spec}
    client.send("POST", f"{core}/persistentvolumeclaims", body=body)
    open_claim(client, namespace, "logs")
    return "logs"


def test_page_shows_what_a_script_writes_to_a_volume(
    up: Callable[[JobFile], str], backend: KubernetesBackend, namespace: str, claim: str, tmp_path: Path
) -> None:
    volumes = (Volume(path="/logs", claim=claim),)
    name = up(make_job_file("board", make_job(tasks=1), volumes=volumes))
    write_wheels(tmp_path / "wheels")
    (tmp_path / "write.py").write_text(WRITE + KEEP_WHEELS)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n".join(["--no-index", "--find-links wheels", *PACKAGES, "pillow"]))
    # `tf.summary.scalar` needs TensorBoard, too.
    script = Script(path=tmp_path / "write.py", arguments=["/logs"], requirements=requirements)
    assert backend.scripts.run(name, script).code == 0

    command = ["tensorboard", "--no-browser", "--namespace", namespace, name]
    without = start_tfk8s(*command)
    assert without.communicate(timeout=240)[1].endswith(
        f'error: image "{IMAGE}" has no TensorBoard\n'
        "  = help: install it for this pod by --requirements FILE; the file needs the line: tensorboard\n"
    )
    assert without.returncode == 2

    requirements.write_text(requirements.read_text().replace("links wheels", "links /logs/wheels"))
    process = start_tfk8s(*command, "/logs/train", "--requirements", requirements)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert losses(url, run=".") == LOSSES

        def running() -> list[ScriptStatus]:
            return [script for script in backend.observe(name).scripts if script.exit_code is None]

        polling.wait_until(lambda: len(running()) == 1, "the status to have the end of the first command", 60)
        (board,) = running()
        assert board.command == "tfk8s.sessions.pod.tensorboard /logs/train"
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    polling.wait_until(
        lambda: board.name not in [left.name for left in backend.observe(name).scripts], "the Job to be deleted", 60
    )
