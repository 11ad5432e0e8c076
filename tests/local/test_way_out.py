"""Tests of the ways out of a local cluster's network, with a server for each kind of client in another network."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from clusters import output, start_tfk8s, tfk8s
from elsewhere import HERE, LATER, THERE, Elsewhere, elsewhere, later_address, missing

from tfk8s import polling
from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.network.way_out import Way
from tfk8s.core.spec import Task
from tfk8s.sessions.forks import processes

MAY_SKIP = "CI" not in os.environ  # CI installs all that the tests need, so a missing part fails there
pytestmark = pytest.mark.skipif(MAY_SKIP and bool(missing()), reason=missing())

JOB_FILE = "{{apiVersion: tfk8s.dev/v1, name: {name}, jobs: {{worker: 1}}{more}}}\n"
CLIENTS = {
    "Keras": """
        import hashlib, pathlib
        import tensorflow as tf
        # Keras knows the hash of the real file, which only the Internet has. The check itself stays.
        names = tf.keras.datasets.mnist.load_data.__globals__
        get_file, data = names["get_file"], pathlib.Path("MNIST").read_bytes()
        names["get_file"] = lambda fname, origin, file_hash: get_file(
            fname, origin=origin, file_hash=hashlib.sha256(data).hexdigest())
        (images, _), _ = tf.keras.datasets.mnist.load_data()
        print(images.tolist())
    """,
    "pip": """
        import subprocess, sys
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--index-url", "https://packages.example/simple", "tiny"], check=True)
        print(__import__("glob").glob("tiny*"))
    """,
    "requests": """
        import requests
        print(requests.get("https://packages.example/hello", timeout=20).text,
              requests.get("http://packages.example/hello", timeout=20).text)
    """,
    "gs://": """
        import tensorflow as tf
        print(tf.io.gfile.GFile("gs://bucket/hello").read())
    """,
    "s3://": """
        import boto3, botocore.config
        config = botocore.config.Config(signature_version=botocore.UNSIGNED, s3={"addressing_style": "path"})
        client = boto3.client("s3", "us-east-1", endpoint_url="http://s3.example", config=config)
        print(client.get_object(Bucket="bucket", Key="hello")["Body"].read().decode())
    """,
    "Hugging Face": """
        import huggingface_hub
        print(open(huggingface_hub.hf_hub_download("team/model", "hello")).read())
    """,
    "a task": """
        import os
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        with tf.device("/job:worker/task:0"):
            text = tf.io.read_file("gs://bucket/hello")
        with tf.Session(os.environ["TFK8S_TARGET"]) as session:
            print(session.run(text).decode())
    """,
}
OUTPUT = {"Keras": "[[1, 2]]", "pip": "['tiny-1.0-py3-none-any.whl']", "requests": "hello hello"}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with elsewhere(tmp_path_factory.mktemp("elsewhere")) as found:
        (found.folder / "hello").write_text("hello")
        arrays = {name: np.array([[1, 2]]) for name in ("x_train", "y_train", "x_test", "y_test")}
        np.savez(found.folder / "mnist.npz", **arrays)
        (found.folder / "tiny").write_text("<a href='/files/tiny-1.0-py3-none-any.whl'>tiny-1.0-py3-none-any.whl</a>")
        with zipfile.ZipFile(found.folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
            wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr("tiny-1.0.dist-info/RECORD", "")
        yield found


@dataclass(frozen=True)
class Cluster:
    name: str
    environment: dict[str, str]
    folder: Path

    def run(self, text: str) -> tuple[str, str]:
        """Run a script; return its output, and its errors."""
        script = self.folder / "script.py"
        script.write_text(textwrap.dedent(text))
        own = {"env": self.environment, "cwd": self.folder, "timeout": 120}
        ended = tfk8s("submit", "--local", self.name, str(script), **own)
        return ended.stdout.strip(), ended.stderr


@pytest.fixture(scope="module")
def start(there: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Starts a cluster that knows the server's names; `path` replaces the programs that `up` finds."""
    started: list[str] = []

    def start(
        name: str, more: str = "", path: str | None = None, prefix: Sequence[str] = (), **variables: str
    ) -> Cluster:
        folder = tmp_path_factory.mktemp(name)
        file = folder / "cluster.yaml"
        file.write_text(JOB_FILE.format(name=name, more=more))
        trusted = dict.fromkeys(
            ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CERT"), str(there.authority)
        )
        own = {"NO_GCE_CHECK": "true", "KERAS_HOME": str(folder), "HF_HOME": str(folder), "PIP_CONFIG_FILE": os.devnull,
               "HF_ENDPOINT": "https://models.example", "HF_HUB_DISABLE_XET": "1"}  # fmt: skip
        inherited = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        environment = {**inherited, **trusted, **own, **variables}
        starting = {**environment, "PATH": path} if path else environment
        up = start_tfk8s("up", "--local", str(file), env=starting, prefix=[*prefix, *there.wrapped([])])
        out, err = up.communicate(timeout=120)
        assert up.returncode == 0, out + err
        started.append(name)
        return Cluster(name, environment, folder)

    yield start
    for name in started:
        tfk8s("down", "--local", name)


@pytest.fixture(scope="module")
def path_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Makes a path with the programs that the tests need, and with some more."""

    def path_with(*more: str) -> str:
        folder = tmp_path_factory.mktemp("programs")
        for program in ("unshare", "sh", "mount", "env", *more):
            (folder / program).symlink_to(str(shutil.which(program)))
        return str(folder)

    return path_with


@pytest.fixture(scope="module", params=[Way.SLIRP, Way.PASTA, Way.PROXY])
def cluster(request: pytest.FixtureRequest, start: Callable[..., Cluster], path_with: Callable[..., str]) -> Cluster:
    way = request.param
    if way is Way.PROXY:
        return start("by-proxy", path=path_with())
    if MAY_SKIP and not shutil.which(way):
        pytest.skip(f"{way} is not installed")
    # For the machine's root, pasta does nothing.
    prefix = ["unshare", "--user", "--map-root-user"] if way is Way.PASTA else []
    started = start(f"by-{way}", path=path_with(way), prefix=prefix)
    said = tfk8s("status", "--local", started.name).stdout
    if way is Way.PASTA and Way.PROXY.text in said:  # Debian 12's can't enter the namespace of another process as root
        pytest.skip("this pasta does not work here, and the proxy has replaced it")
    assert f"way out: {way.text}" in said
    return started


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_reach_their_servers(cluster: Cluster, there: Elsewhere, client: str) -> None:
    out, err = cluster.run(CLIENTS[client].replace("MNIST", str(there.folder / "mnist.npz")))
    assert out.splitlines()[-1:] == [OUTPUT.get(client, "hello")], err


TENSORFLOW_IO = """
import os
import tensorflow as tf, tensorflow_io
os.environ.update(S3_ENDPOINT="http://s3.example", S3_USE_HTTPS="0", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b",
                  AWS_REGION="us-east-1")
print(tf.io.read_file("s3://bucket/hello").numpy().decode(), flush=True)
os._exit(0)  # the AWS library may abort at the end: "pure virtual method called"
"""


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_io") is None,
    reason="the newest TensorFlow has no tensorflow-io: `make test-versions VERSIONS=io` has both",
)
def test_tensorflow_io_reads_from_s3(cluster: Cluster) -> None:
    if cluster.name == "by-proxy":
        pytest.skip("tensorflow-io's library for S3 reads no variables of proxies")
    out, err = cluster.run(TENSORFLOW_IO)
    assert out == "hello", err


REACH = """
    import socket, sys, urllib.request
    for host in {hosts}:
        try:
            print(urllib.request.urlopen(f"http://{{host}}:{port}/", timeout=20).read().decode())
        except OSError as error:
            print(host, "is out of reach")
"""


def test_this_machine_stays_out_of_reach(cluster: Cluster) -> None:
    hosts = [HERE, "127.0.0.1", "10.0.2.2", "169.254.169.254", "[::ffff:127.0.0.1]", socket.gethostname()]
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        out, _ = cluster.run(REACH.format(hosts=hosts, port=port))
        assert out.splitlines() == [f"{host} is out of reach" for host in hosts]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_an_address_that_this_machine_gets_later_is_closed(cluster: Cluster) -> None:
    with later_address(), socket.create_server((LATER, 0)) as server:
        out, _ = cluster.run(REACH.format(hosts=[LATER], port=server.getsockname()[1]))
    assert out == f"{LATER} is out of reach"


def test_a_closed_way_names_address_and_field(start: Callable[..., Cluster]) -> None:
    cluster = start("no-way", more=", network: {allow_to: []}")
    _, err = cluster.run("import urllib.request; urllib.request.urlopen('https://packages.example/hello')")
    assert "network.allow_to of the job file is empty: packages.example:443 stays out of reach" in err
    _, err = cluster.run(
        "import threading, tensorflow as tf;"
        "threading.Thread(target=tf.io.gfile.exists, args=['gs://bucket/hello'], daemon=True).start();"
        "threading.Event().wait(10)"  # TensorFlow tries again for longer
    )
    line = "tfk8s: network.allow_to of the job file is empty: www.googleapis.com:443 stays out of reach"
    assert line in err.splitlines()
    out, err = cluster.run(f"import socket; print(socket.socket().connect_ex(({THERE!r}, 80)))")
    assert out == "101"  # Network is unreachable
    assert f"tfk8s: network.allow_to of the job file is empty: {THERE}:80 stays out of reach" in err.splitlines()


TRIES = """
import contextlib, socket, urllib.request
with contextlib.suppress(OSError):
    urllib.request.urlopen("https://packages.example/hello")
for server in (("{there}", 5432), ("database.example", 5432)):
    with contextlib.suppress(OSError):
        socket.create_connection(server)
"""


def test_the_log_of_a_program_names_what_it_does_not_reach(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "tries.py").write_text(TRIES.format(there=THERE))
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "{apiVersion: tfk8s.dev/v1, name: tries, jobs: {worker: {program: [tries.py]}}, network: {allow_to: []}}"
    )
    assert tfk8s("up", "--local", file).returncode == 0
    assert tfk8s("wait", "--local", "tries").returncode == 0
    servers = ("packages.example:443", f"{THERE}:5432", "database.example:5432")
    assert output(backend, "tries", Task("worker", 0)).splitlines() == [
        f"tfk8s: network.allow_to of the job file is empty: {server} stays out of reach" for server in servers
    ]
    assert tfk8s("down", "--local", "tries").returncode == 0


def test_the_failure_of_a_command_names_address_and_field(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    raw = f"exec 3<>/dev/tcp/{THERE}/5432"
    file.write_text(
        f"{{apiVersion: tfk8s.dev/v1, name: raw, jobs: {{worker: {{program: [bash, -c, {raw!r}]}}}},"
        " network: {allow_to: []}}"
    )
    ended = tfk8s("run", "--local", file)
    assert ended.returncode == 1
    field = "network.allow_to of the job file is empty"
    assert f"exited with 1: tfk8s: {field}: bash: line 1: /dev/tcp/{THERE}/5432: Network is unreachable" in ended.stderr


def test_a_list_is_kept(start: Callable[..., Cluster]) -> None:
    cluster = start("listed", more=f", network: {{allow_to: [{{cidr: {THERE}/32, ports: [443]}}]}}")
    out, err = cluster.run(
        "import requests; print(requests.get('https://packages.example/hello').text);"
        "print(requests.get('http://packages.example/hello').text)"
    )
    refused = f"tfk8s: packages.example:80: network.allow_to of the job file does not have {THERE} port 80"
    assert out.splitlines() == ["hello", refused], err


def test_the_way_out_ends_with_its_cluster(start: Callable[..., Cluster]) -> None:
    cluster = start("short")
    folder = state.folder(cluster.name)
    supervisor, identity = folder.supervisor(), folder.id()
    assert supervisor is not None
    assert identity is not None
    os.kill(supervisor, 9)
    polling.wait_until(lambda: not processes.marked("TFK8S_CLUSTER_ID", identity), "all processes to end", 60)
