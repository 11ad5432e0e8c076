"""Rows about the API server: down for a while, behind a dead network, restarted, or with expired credentials."""

from __future__ import annotations

import functools
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence

import yaml
from harness import node
from harness.command import PATIENCE, Ended
from harness.kube import NAME, KubeEnvironment
from harness.row import VERDICT, Row

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.script import Script

_API_SERVER = {"labelSelector": "component=kube-apiserver"}
_NAP = 20


def nap_while(
    seconds: float, fault: Callable[[KubeEnvironment], None], *flags: str
) -> Callable[[KubeEnvironment], Ended]:
    """Break the connection to the API server for a while, in which a script continues."""

    def run(environment: KubeEnvironment) -> Ended:
        script = environment.submit("nap.py", seconds, flags=flags)
        script.until_says("naps")
        script.now()
        fault(environment)
        threading.Timer(seconds, environment.proxy.mend).start()
        ended = script.end(2 * PATIENCE)
        assert "done" in ended.out, ended
        return ended

    return run


def cut_while_files_are_copied(*flags: str) -> Callable[[KubeEnvironment], Ended]:
    """Cut the connection to the API server for a second when a script has left 100 MB of files."""

    def run(environment: KubeEnvironment) -> Ended:
        place = environment.folder / "results"
        place.unlink(missing_ok=True)
        script = environment.submit("results.py", 100, flags=(*flags, "--get", f"results:{place}"))
        script.until_says("leaves files")
        script.now()
        environment.proxy.cut()
        threading.Timer(1.0, environment.proxy.mend).start()
        ended = script.end(2 * PATIENCE)
        assert place.stat().st_size == 100 << 20, ended
        return ended

    return run


def cut(environment: KubeEnvironment) -> None:
    environment.proxy.cut()


def go_dead(environment: KubeEnvironment) -> None:
    environment.proxy.go_dead()


def gone_in(*words: str, until: str) -> Callable[[KubeEnvironment], Ended]:
    """Take the API server down for good, after a command has printed something."""

    def run(environment: KubeEnvironment) -> Ended:
        command = environment.start(words[0], environment.cluster(), *words[1:])
        command.until_says(until)
        command.now()
        environment.proxy.cut()
        return command.end(PATIENCE)

    return run


def absent(*words: str) -> Callable[[KubeEnvironment], Ended]:
    def run(environment: KubeEnvironment) -> Ended:
        name = environment.cluster()
        environment.proxy.cut()
        return environment.start(words[0], name, *words[1:]).end(PATIENCE)

    return run


# ---- credentials ---------------------------------------------------------------------------------------------------


def kubeconfig_of_token(environment: KubeEnvironment) -> str:
    """Return a kubeconfig whose credentials are valid until their account is deleted."""
    accounts = f"/api/v1/namespaces/{environment.namespace}/serviceaccounts"
    environment.client.send("POST", accounts, body={"metadata": {"name": "user"}})
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": environment.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{environment.namespace}/rolebindings"
    environment.client.send(
        "POST", bindings, body={"metadata": {"name": "user"}, "roleRef": role, "subjects": [subject]}
    )
    environment.at_end(lambda: environment.client.send("DELETE", f"{bindings}/user"))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = environment.client.send("POST", f"{accounts}/user/token", body=request)["status"]["token"]
    config = yaml.safe_load(environment.proxy.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    return str(environment.file("token", yaml.safe_dump(config)))


def expire(environment: KubeEnvironment) -> None:
    environment.client.send("DELETE", f"/api/v1/namespaces/{environment.namespace}/serviceaccounts/user")


def expires_in(*words: object, until: str, flags: Sequence[str] = ()) -> Callable[[KubeEnvironment], Ended]:
    """Let the credentials of a command expire; the fault begins when the API server refuses them.

    The API server caches for ten seconds that a token was valid.
    """

    def run(environment: KubeEnvironment) -> Ended:
        name = environment.cluster()
        config = kubeconfig_of_token(environment)
        try:
            command = environment.start(str(words[0]), *flags, name, *words[1:], KUBECONFIG=config)
            command.until_says(until)
        finally:
            expire(environment)
        polling.wait_until(lambda: is_refused(config), "the API server to refuse the credentials", PATIENCE)
        command.now()
        return command.end(PATIENCE)

    return run


def is_refused(config: str) -> bool:
    words = ["kubectl", "--kubeconfig", config, "get", "--raw", "/version"]
    asked = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return "Unauthorized" in asked.stderr


def expires_in_submit(environment: KubeEnvironment) -> Ended:
    return expires_in("submit", environment.alone("nap.py"), 3 * _NAP, until="naps", flags=("--fresh",))(environment)


def expires_in_warm_submit(environment: KubeEnvironment) -> Ended:
    """Let the credentials of a `submit` expire, whose connection to the warm pod lasts."""
    ended = expires_in("submit", environment.alone("nap.py"), 2 * _NAP, until="naps")(environment)
    assert "done" in ended.out, ended
    return ended


def rows() -> Iterator[Row]:
    for fault, name, seconds in ((cut, "API server away for 6 s", 6), (go_dead, "network dead for 12 s", 12)):
        yield Row(
            fault=name, when="while a script runs", run=nap_while(seconds, fault), limit=seconds + 2 * VERDICT,
            thorough=fault is go_dead,
        )  # fmt: skip
    yield Row(
        fault="API server away for 6 s", when="while a script with a pod of its own runs",
        run=nap_while(6, cut, "--fresh"), limit=6 + 2 * VERDICT,
    )  # fmt: skip
    for flags in ((), ("--fresh",)):
        yield Row(
            fault="API server away for 1 s",
            when=f"in `{' '.join(('submit', *flags, '--get'))}`, when the script has ended",
            run=cut_while_files_are_copied(*flags), limit=3 * VERDICT, thorough=True,
        )  # fmt: skip
    for command in ("status", "down"):
        yield Row(
            fault="API server away", when=f"before `{command}`", run=absent(command), code=1,
            words=("does not answer",),
        )  # fmt: skip
    yield Row(
        fault="API server goes away", when="in `status --watch`", run=gone_in("status", "--watch", until="worker/1"),
        code=1, words=("does not answer",),
    )  # fmt: skip
    yield Row(
        fault="credentials expire", when="in `status --watch`, from the API server's first refusal on",
        run=expires_in("status", "--watch", until="worker/1"), code=1, words=("refuses your credentials",),
    )  # fmt: skip
    yield Row(
        fault="credentials expire", when="in `submit --fresh`, likewise", run=expires_in_submit, code=1, thorough=True,
        words=("lost sight of script-",),
    )  # fmt: skip
    yield Row(
        fault="credentials expire", when="in `submit`, likewise", run=expires_in_warm_submit, limit=3 * _NAP,
    )  # fmt: skip


# ---- a real restart ------------------------------------------------------------------------------------------------


def kill_api_server(environment: KubeEnvironment) -> None:
    (pod,) = environment.client.get(paths.collection("Pod", "kube-system"), _API_SERVER)["items"]
    node.Process(pod).send(signal.SIGKILL)


@functools.cache
def under_restart(environment: KubeEnvironment) -> dict[str, Ended]:
    """Run several commands while the API server is killed and restarted."""
    name, script = environment.cluster(), environment.alone("nap.py")
    here = environment.start("submit", "--here", name, script, _NAP)
    here.until_says("naps")
    beside = environment.start("submit", name, script, _NAP)
    beside.until_says("naps")
    running = environment.backend.detached.start(name, Script(path=script, arguments=(str(_NAP),)))
    follows = environment.start("logs", "--follow", name, running)
    follows.until_says("naps")
    up = environment.start(
        "up", environment.file("second.yaml", environment.text.replace(f"name: {NAME}", "name: second"))
    )
    up.until_says("worker/1")
    commands = {"up": up, "submit": beside, "logs --follow": follows, "submit --here": here}
    for command in commands.values():
        command.now()
    kill_api_server(environment)
    ended = {words: command.end(2 * PATIENCE) for words, command in commands.items()}
    environment.backend.delete("second")
    return ended


def restarts() -> Iterator[Row]:
    for words in ("up", "submit", "logs --follow", "submit --here"):
        yield Row(
            fault="API server killed, and started again", when=f"in `{words}`", limit=_NAP + 2 * VERDICT,
            run=lambda environment, words=words: under_restart(environment)[words],
        )  # fmt: skip
