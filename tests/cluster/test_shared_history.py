"""The history that a claim has for all, read by a pod."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kube_api import KubeApi
from on_cluster import IMAGE, make_claim, start_tfk8s

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.cli import error_report
from tfk8s.cli.app import main
from tfk8s.core.job_file.mappings import Security
from tfk8s.render import pods

CLAIM = "tfk8s-history"
# Begins each program that writes records: `root` is the folder of all of them.
WRITE = """
import gzip, json, os, pathlib, sys
root = pathlib.Path("/history/tfk8s-history")
root.mkdir(exist_ok=True)
def record(name, number, moment, *more):
    folder = root / f"{name}.{number:08x}-0000-0000-0000-000000000000"
    folder.mkdir()
    facts = [{"kind": "start", "time": moment, "location": "elsewhere", "who": "ada@laptop", "image": "x"}, *more]
    (folder / "facts.jsonl").write_text("".join(json.dumps(fact) + "\\n" for fact in facts))
    os.utime(folder / "facts.jsonl", (moment, moment))
    return folder
def end(moment):
    return {"kind": "end", "time": moment, "reason": "was removed by `tfk8s down`", "lost": False}
"""
THREE = """
for number, name in enumerate(("mnist", "toy", "mnist")):
    folder = record(name, number, 1.7e9 + number, *[end(1.7e9 + 60)] * (number < 2))
    (folder / "logs").mkdir()
    (folder / "logs" / "worker-0.gz").write_bytes(gzip.compress(b"2026-11-22T10:17:03.120395Z 0 hello %d\\n" % number))
    event = dict(id="a", time=1.7e9, about="worker/0", warning=False, reason="Scheduled", message="on node", count=1)
    (folder / "events.jsonl").write_text(json.dumps(event) + "\\n")
"""
MANY = "for number in range(10_000):\n    record('many', number, 1.6e9 + number, end(1.6e9 + number + 60))\n"
HOSTILE = r"""
import shutil
moment = 1.75e9
for number, damage in enumerate((
    lambda folder: os.mkfifo(folder / "facts.jsonl"),
    lambda folder: (folder / "facts.jsonl").symlink_to("/etc/passwd"),
    lambda folder: os.truncate(folder / "facts.jsonl", 1 << 40),
    lambda folder: (folder / "facts.jsonl").write_text('[]\n{"kind": "start", "time": "x"}\n"' + "[" * 100_000),
    lambda folder: (folder / "facts.jsonl").write_bytes(os.urandom(1 << 20)),
    lambda folder: (folder / "facts.jsonl").mkdir(),
    lambda folder: (shutil.rmtree(folder), folder.symlink_to("/etc")),
)):
    folder = record("hostile", number, moment + number)
    if number not in (2, 3, 4, 6):
        (folder / "facts.jsonl").unlink()
    damage(folder)
folder = record("hostile", 99, moment, {
    "kind": "end", "time": moment + 1, "reason": "\x1b]0;title\x07\x1b[2J", "lost": "x"
})
(folder / "logs").mkdir()
os.mkfifo(folder / "logs" / "worker-0.gz")
(folder / "logs" / "worker-1.gz").write_bytes(gzip.compress(b"0 " * (100 << 20), 9))
(folder / "logs" / "worker-2.gz").write_bytes(b"nothing")
(folder / "logs" / "\x1b[31m.gz").write_bytes(b"")
(folder / "events.jsonl").symlink_to("/dev/zero")
for name in ("hostile", "../x", "\x1b[31m.00000000-0000-0000-0000-000000000000", "x" * 200):
    if "/" not in name:
        (root / name).mkdir()
"""


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def team(make_namespace: Callable[[], str], client: KubeApi) -> str:
    """A namespace with an empty claim."""
    name = make_namespace()
    make_claim(client, name, CLAIM)
    return name


@pytest.fixture
def write(client: KubeApi, team: str) -> Any:
    """Runs a program that writes to the claim, as a cluster's own Job may."""
    made = []

    def write(program: str) -> None:
        container = {
            "name": "writer", "image": IMAGE, "command": ["python3", "-c", WRITE + program],
            "securityContext": pods.container_security(),
            "volumeMounts": [{"name": "history", "mountPath": "/history"}],
        }  # fmt: skip
        spec = {
            "restartPolicy": "Never", "securityContext": pods.pod_security(Security()), "containers": [container],
            "volumes": [{"name": "history", "persistentVolumeClaim": {"claimName": CLAIM}}],
        }  # fmt: skip
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"writer-{len(made)}"}, "spec": spec}
        made.append(paths.path({"kind": "Pod", **body}, team))
        client.send("POST", paths.collection("Pod", team), body=body)
        phase = polling.wait_until(
            lambda: {"Succeeded": "ok", "Failed": "no"}.get(client.get(made[-1])["status"]["phase"]), "the writer", 120
        )
        assert phase == "ok", client.text(f"{made[-1]}/log")

    yield write
    for path in made:
        client.send("DELETE", path, {"gracePeriodSeconds": 0})
    polling.wait_until(lambda: not any(map(client.find, made)), "the writers to be gone", 60)
    container = "import shutil; shutil.rmtree(root)"
    made.clear()
    write(container)
    client.send("DELETE", made[-1], {"gracePeriodSeconds": 0})


@pytest.fixture
def tfk8s(capfd: pytest.CaptureFixture[str], team: str) -> Callable[..., tuple[str, str]]:
    def tfk8s(*words: str, code: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        try:
            found = main(list(words))
        except Exception as error:
            found = error_report.report(error)
        out, err = capfd.readouterr()
        assert found == code, out + err
        return out, err

    return tfk8s


def readers(client: KubeApi, team: str) -> list[str]:
    items = client.get(paths.collection("Pod", team), {"labelSelector": "app.kubernetes.io/component=history-reader"})
    return [item["metadata"]["name"] for item in items["items"] if "deletionTimestamp" not in item["metadata"]]


def test_a_colleague_reads_what_clusters_have_written(write: Any, tfk8s: Any, client: KubeApi, team: str) -> None:
    write(THREE)
    pull = ("history", "--claim", CLAIM, "-n", team, "--image", IMAGE)
    out, err = tfk8s(*pull)
    assert "of the shared history: 3 new, 0 changed, 0 as before" in err
    listed = {line.split()[0]: line.split()[1] for line in out.splitlines()[1:]}
    assert listed == {"mnist@1": "open", "toy@1": "ended", "mnist@2": "ended"}
    assert readers(client, team) == []
    assert tfk8s("logs", "mnist@1", "worker/0")[0] == "hello 2\n"
    assert "Scheduled" in tfk8s("events", "mnist@2")[0]
    assert "ada@laptop" in tfk8s("status", "toy@1")[0]
    again, err = tfk8s(*pull)
    assert "0 new, 0 changed, 3 as before" in err
    assert again == out
    config_map = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tfk8s-history"},
        "data": {"history.yaml": f"claim: {CLAIM}\nlogs: true\n"},
    }  # fmt: skip
    error = tfk8s("history", "--shared", "-n", team, code=2)[1]
    assert f'error: namespace "{team}" names no shared history' in error
    client.send("POST", paths.collection("ConfigMap", team), body=config_map)
    assert "1 as before" in tfk8s("history", "--shared", "-n", team, "--image", IMAGE, "toy")[1]


def test_the_first_page_of_ten_thousand_records_comes_soon(write: Any, tfk8s: Any, team: str) -> None:
    write(MANY)
    begin = time.monotonic()
    out, err = tfk8s("history", "--claim", CLAIM, "-n", team, "--image", IMAGE)
    seconds = time.monotonic() - begin
    print(f"{seconds:.1f} s for the first page")  # noqa: T201 - with `pytest -s`
    assert "30 new, 0 changed, 0 as before; --last brings more: 9970 are older" in err
    assert len(out.splitlines()) == 31
    assert seconds < 5


def test_what_hostile_writers_leave_is_named_and_harms_nothing(
    write: Any, tfk8s: Any, team: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(HOSTILE + "record('good', 500, 1.7e9, end(1.7e9 + 5))\n")
    out, err = tfk8s("history", "--claim", CLAIM, "-n", team, "--image", IMAGE)
    assert "\x1b" not in out + err
    assert "2 new" in err
    assert {line.split()[0] for line in out.splitlines()[1:]} == {"good@1", "hostile@1"}
    assert "facts.jsonl is a link" in err
    assert "facts.jsonl has more than 6,291,456 bytes" in err
    assert "\x1b" not in "".join(tfk8s("status", "hostile@1"))
    assert "\x1b" not in "".join(tfk8s("logs", "hostile@1", code=2))


def test_a_claim_that_is_missing_is_one_error(tfk8s: Any, client: KubeApi, team: str) -> None:
    out, err = tfk8s("history", "--claim", "none", "-n", team, code=2)
    assert (out, err.splitlines()[0]) == (
        "", f'error: there is no PersistentVolumeClaim "none" in namespace "{team}"'
    )  # fmt: skip
    assert readers(client, team) == []


def test_a_pod_that_can_not_start_says_why(tfk8s: Any, client: KubeApi, team: str) -> None:
    err = tfk8s("history", "--claim", CLAIM, "-n", team, "--image", "registry.invalid/none:1", code=1)[1]
    assert f'error: the pod that reads claim "{CLAIM}" can\'t run: ErrImagePull: ' in err
    assert "--image IMAGE names an image with Python 3" in err
    polling.wait_until(lambda: readers(client, team) == [], "the pod to be gone", 30)


def test_a_wait_says_why_and_ctrl_c_leaves_no_pod(client: KubeApi, team: str) -> None:
    make_claim(client, team, "unbound", is_open=False, storage_class="none")
    process = start_tfk8s("history", "--claim", "unbound", "-n", team, "--image", IMAGE)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith('tfk8s: waiting for the pod that reads claim "unbound" to start: ')
    assert "unbound immediate PersistentVolumeClaims" in line
    assert len(readers(client, team)) == 1
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    polling.wait_until(lambda: readers(client, team) == [], "the pod to be gone", 30)
