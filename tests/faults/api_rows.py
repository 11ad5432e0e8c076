"""Rows about the API server: away for a while, behind a dead network, restarted, or done with who asks."""

from __future__ import annotations

import functools
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator

import node
import yaml
from commands import PATIENCE, Ended
from kube_place import NAME, Kube
from rows import VERDICT, Row

from tfk8s import polling
from tfk8s.backends.kubernetes import paths

_API_SERVER = {"labelSelector": "component=kube-apiserver"}
_NAP = 20


def nap_while(seconds: float, fault: Callable[[Kube], None]) -> Callable[[Kube], Ended]:
    """The way to the API server is broken for a while, in which a script goes on."""

    def act(place: Kube) -> Ended:
        script = place.submit("nap.py", seconds)
        script.until_says("naps")
        script.now()
        fault(place)
        threading.Timer(seconds, place.way.mend).start()
        ended = script.end(2 * PATIENCE)
        assert "done" in ended.out, ended
        return ended

    return act


def cut(place: Kube) -> None:
    place.way.cut()


def go_dead(place: Kube) -> None:
    place.way.go_dead()


def gone_in(*words: str, until: str) -> Callable[[Kube], Ended]:
    """The API server goes, and stays away, after a command has said something."""

    def act(place: Kube) -> Ended:
        command = place.start(words[0], place.cluster(), *words[1:])
        command.until_says(until)
        command.now()
        place.way.cut()
        return command.end(PATIENCE)

    return act


def absent(*words: str) -> Callable[[Kube], Ended]:
    def act(place: Kube) -> Ended:
        name = place.cluster()
        place.way.cut()
        return place.start(words[0], name, *words[1:]).end(PATIENCE)

    return act


# ---- credentials ---------------------------------------------------------------------------------------------------


def kubeconfig_of_token(place: Kube) -> str:
    """Return a kubeconfig whose credentials are worth something until their account is deleted."""
    accounts = f"/api/v1/namespaces/{place.namespace}/serviceaccounts"
    place.client.send("POST", accounts, body={"metadata": {"name": "user"}})
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": place.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/rolebindings"
    place.client.send("POST", bindings, body={"metadata": {"name": "user"}, "roleRef": role, "subjects": [subject]})
    place.at_end(lambda: place.client.send("DELETE", f"{bindings}/user"))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = place.client.send("POST", f"{accounts}/user/token", body=request)["status"]["token"]
    config = yaml.safe_load(place.way.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    return str(place.file("token", yaml.safe_dump(config)))


def expire(place: Kube) -> None:
    place.client.send("DELETE", f"/api/v1/namespaces/{place.namespace}/serviceaccounts/user")


def expires_in(*words: object, until: str) -> Callable[[Kube], Ended]:
    """The credentials of a command expire; the fault is there when the API server refuses them.

    It remembers for ten seconds whose token was good.
    """

    def act(place: Kube) -> Ended:
        name = place.cluster()
        config = kubeconfig_of_token(place)
        try:
            command = place.start(str(words[0]), name, *words[1:], KUBECONFIG=config)
            command.until_says(until)
        finally:
            expire(place)
        polling.wait_until(lambda: is_refused(config), "the API server to refuse the credentials", PATIENCE)
        command.now()
        return command.end(PATIENCE)

    return act


def is_refused(config: str) -> bool:
    words = ["kubectl", "--kubeconfig", config, "get", "--raw", "/version"]
    asked = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return "Unauthorized" in asked.stderr


def expires_in_submit(place: Kube) -> Ended:
    return expires_in("submit", place.alone("nap.py"), 3 * _NAP, until="naps")(place)


def rows() -> Iterator[Row]:
    for fault, name, seconds in ((cut, "API server away for 6 s", 6), (go_dead, "network dead for 12 s", 12)):
        yield Row(
            fault=name, when="while a script runs", act=nap_while(seconds, fault), limit=seconds + 2 * VERDICT,
            thorough=fault is go_dead,
        )  # fmt: skip
    for command in ("status", "down"):
        yield Row(
            fault="API server away", when=f"before `{command}`", act=absent(command), code=1,
            words=("does not answer",),
        )  # fmt: skip
    yield Row(
        fault="API server goes away", when="in `status --watch`", act=gone_in("status", "--watch", until="worker/1"),
        code=1, words=("does not answer",),
    )  # fmt: skip
    yield Row(
        fault="credentials expire", when="in `status --watch`, from the API server's first refusal on",
        act=expires_in("status", "--watch", until="worker/1"), code=1, words=("refuses your credentials",),
    )  # fmt: skip
    yield Row(
        fault="credentials expire", when="in `submit`, likewise", act=expires_in_submit, code=1, thorough=True,
        words=("lost sight of script-",),
    )  # fmt: skip


# ---- a real restart ------------------------------------------------------------------------------------------------


def kill_api_server(place: Kube) -> None:
    (pod,) = place.client.get(paths.collection("Pod", "kube-system"), _API_SERVER)["items"]
    node.Process(pod).send(signal.SIGKILL)


@functools.cache
def under_restart(place: Kube) -> dict[str, Ended]:
    """Several commands at once while the API server is killed and started again."""
    name, script = place.cluster(), place.alone("nap.py")
    here = place.start("submit", "--here", name, script, _NAP)
    here.until_says("naps")
    beside = place.start("submit", name, script, _NAP)
    beside.until_says("naps")
    (running,) = (one.name for one in place.status().scripts)
    follows = place.start("logs", "--follow", name, running)
    follows.until_says("naps")
    up = place.start("up", place.file("second.yaml", place.text.replace(f"name: {NAME}", "name: second")))
    up.until_says("worker/1")
    commands = {"up": up, "submit": beside, "logs --follow": follows, "submit --here": here}
    for command in commands.values():
        command.now()
    kill_api_server(place)
    ended = {words: command.end(2 * PATIENCE) for words, command in commands.items()}
    place.backend.delete("second")
    return ended


def restarts() -> Iterator[Row]:
    for words in ("up", "submit", "logs --follow", "submit --here"):
        yield Row(
            fault="API server killed, and started again", when=f"in `{words}`", limit=_NAP + 2 * VERDICT,
            act=lambda place, words=words: under_restart(place)[words],
        )  # fmt: skip
