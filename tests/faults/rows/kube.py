"""The table of faults on Kubernetes: rows about tasks and about clusters that can not start."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from harness.command import PATIENCE, Ended
from harness.kube import NOW, SCRIPTS, KubeEnvironment
from harness.row import CONNECTED, DEADLINE, MOMENTS, NOTHING, OWN_SESSION, VERDICT, Row, both_said
from harness.signals import send_signal
from kube_api import post_event
from rows import (
    api_server,
    commands,
    data_service,
    dns,
    hostile,
    leases,
    mirrored,
    preemptions,
    records,
    removals,
    scaling,
    scripts,
)
from rows.removals import Fault, delete, lost
from rows.scripts import script

from tfk8s import polling

TASKS = ("worker/1", "ps/0", "chief/0")
REGISTRY_PORT = 31599
SLOW_IMAGE = f"localhost:{REGISTRY_PORT}/slow:1"


# ---- tasks ---------------------------------------------------------------------------------------------------------


def busy(environment: KubeEnvironment) -> Ended:
    """Run a script that keeps a worker, its transport and its node's processors busy."""
    ended = environment.submit("heavy.py", 20).end(2 * PATIENCE)
    assert "was lost" not in ended.err, ended
    return ended


def network_gone(environment: KubeEnvironment) -> Ended:
    """Cut the pod of a task from the network; replace the pod after the row."""
    script = environment.steps("during")
    process = environment.process("worker/1")
    environment.at_end(lambda: delete("worker/1", **NOW)(environment))
    script.now()
    process.cut_network()
    return script.end(PATIENCE)


def signals() -> Iterator[Row]:
    for number, name, words, limit in (
        (signal.SIGKILL, "SIGKILL", "{}: killed (exit code 137)", VERDICT),
        (signal.SIGSTOP, "SIGSTOP", "{} was lost: does not answer: its server is stopped", VERDICT),
    ):
        for index, (moment, when) in enumerate(MOMENTS.items()):
            for other, task in enumerate(TASKS):
                yield Row(
                    fault=f"{name} of {task}", when=when, run=send_signal(task, number, moment), code=3,
                    words=(words.format(task),), limit=limit, thorough=index != other,
                )  # fmt: skip
    yield Row(
        fault="a server, its transport and its node kept busy", when="in steps, for 20 s", run=busy,
        thorough=True, limit=6 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="network of worker/1 gone (half-open TCP)", when="in a step", run=network_gone, code=3,
        thorough=True,
        words=("worker/1 was lost: does not answer: its server is stopped, or its machine or the network is gone",),
    )  # fmt: skip


def pods() -> Iterator[Row]:
    deleted = "{}: its pod was deleted"
    for task, moment in (("worker/1", "during"), ("worker/1", "before"), ("ps/0", "during"), ("chief/0", "after")):
        yield Row(
            fault=f"pod of {task} deleted", when=MOMENTS[moment], run=lost(moment, delete(task)), code=3,
            words=(deleted.format(task),), thorough=(task, moment) != ("worker/1", "during"),
        )  # fmt: skip
    for task, moment in (("worker/1", "during"), ("chief/0", "during"), ("chief/0", "after")):
        yield Row(
            fault=f"pod of {task} deleted by force", when=MOMENTS[moment], run=lost(moment, delete(task, **NOW)),
            code=3, words=(deleted.format(task),), thorough=(task, moment) != ("chief/0", "after"),
        )  # fmt: skip
    yield Row(
        fault="worker/1 needs more memory than it may use", when="in a step", run=script("eater.py"), code=3,
        words=("worker/1: killed at its memory limit of 1Gi (OOMKilled): raise jobs.worker.memory",),
    )  # fmt: skip
    yield from scripts.failures("faults-chief-0.faults.")


# ---- sessions that no script of tfk8s' opens ----------------------------------------------------------------------


def own(fault: Fault) -> Callable[[KubeEnvironment], Ended]:
    """Inject a fault while a program is in a step."""

    def run(environment: KubeEnvironment) -> Ended:
        program = environment.notebook()
        program.now()
        fault(environment)
        return program.end(PATIENCE)

    return run


def connected(fault: Fault) -> Callable[[KubeEnvironment], Ended]:
    """Do the same to a program that has only the address of `connect`."""

    def run(environment: KubeEnvironment) -> Ended:
        connect = environment.start("connect", environment.cluster())
        connect.until_says("until Ctrl-C")
        program = environment.notebook(connect.out.strip())
        program.now()
        fault(environment)
        return both_said(program.end(PATIENCE), connect)

    return run


def here(fault: Fault) -> Callable[[KubeEnvironment], Ended]:
    """Inject a fault while a script on this machine is in a step."""

    def run(environment: KubeEnvironment) -> Ended:
        script = environment.steps_here()
        script.now()
        fault(environment)
        return script.end(PATIENCE)

    return run


def freeze(task: str) -> Fault:
    """Stop a task's process until the end of the row."""

    def fault(environment: KubeEnvironment) -> None:
        process = environment.process(task)
        environment.at_end(lambda: process.send(signal.SIGCONT))
        process.send(signal.SIGSTOP)

    return fault


def sessions() -> Iterator[Row]:
    deleted = "{} was lost: its pod was deleted"
    yield Row(
        fault="pod of worker/1 deleted", when=OWN_SESSION, run=own(delete("worker/1")), code=3,
        words=(deleted.format("worker/1"),),
    )  # fmt: skip
    yield Row(
        fault="pod of chief/0 deleted by force", when=CONNECTED, run=connected(delete("chief/0", **NOW)), code=1,
        words=(deleted.format("chief/0"), "AbortedError"), thorough=True,
    )  # fmt: skip
    yield Row(
        fault="pod of worker/1 deleted", when="in a step of `submit --here`", run=here(delete("worker/1")), code=3,
        words=(deleted.format("worker/1"),),
    )  # fmt: skip


def frozen_sessions() -> Iterator[Row]:
    stopped = "worker/1 was lost: does not answer: its server is stopped"
    yield Row(
        fault="SIGSTOP of worker/1", when=OWN_SESSION, run=own(freeze("worker/1")), code=3,
        words=(stopped, f"TaskLost: {stopped}"), limit=1.5 * VERDICT, thorough=True,
    )  # fmt: skip
    yield Row(
        fault="SIGSTOP of worker/1", when=CONNECTED, run=connected(freeze("worker/1")), code=1,
        words=(stopped, "AbortedError", stopped), limit=1.5 * VERDICT,
    )  # fmt: skip


# ---- clusters that can't come up -----------------------------------------------------------------------------------


def up_of(
    text: Callable[[str], str], before: Fault = lambda environment: None, deadline: float = DEADLINE
) -> Callable[[KubeEnvironment], Ended]:
    """Run `up` of a changed job file with a deadline; remove what remains."""

    def run(environment: KubeEnvironment) -> Ended:
        environment.remove()
        before(environment)
        up = environment.start(
            "up", "--timeout", f"{deadline:g}s", environment.file("changed.yaml", text(environment.text))
        )
        ended = up.end(deadline + PATIENCE)
        environment.remove()
        return ended

    return run


def slow_autoscaler(environment: KubeEnvironment) -> Ended:
    """Run `up` of a task without a node, for which an autoscaler starts a node that never comes."""
    environment.remove()
    text = environment.text.replace("ps: {", "ps: {volumes: [{path: /data, claim: absent}], ")
    up = environment.start("up", "--timeout", f"{DEADLINE}s", environment.file("changed.yaml", text))
    pod = polling.wait_until(lambda: environment.pods().get("faults-ps-0"), "the pod of ps/0 to exist", PATIENCE)
    message = "pod triggered scale-up: [{aks-l4-12345678-vmss 0->1 (max: 4)}]"
    post_event(environment.client, pod, "TriggeredScaleUp", message)
    ended = up.end(DEADLINE + PATIENCE)
    environment.remove()
    return ended


def slow_registry(environment: KubeEnvironment) -> Ended:
    """Run `up` with an image whose registry, on the node's loopback address, never answers."""
    pod = f"/api/v1/namespaces/{environment.namespace}/pods"
    server = {
        "name": "registry", "image": environment.image,
        "command": ["python3", "-c", (SCRIPTS / "stalling_registry.py").read_text(), str(REGISTRY_PORT)],
        "readinessProbe": {"tcpSocket": {"host": "127.0.0.1", "port": REGISTRY_PORT}, "periodSeconds": 1},
    }  # fmt: skip
    body = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "registry"},
        "spec": {"hostNetwork": True, "restartPolicy": "Never", "containers": [server]},
    }  # fmt: skip
    environment.client.send("POST", pod, body=body)
    environment.at_end(lambda: environment.client.send("DELETE", f"{pod}/registry", NOW))
    polling.wait_until(
        lambda: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in environment.client.get(f"{pod}/registry")["status"].get("conditions", ())
        ),
        "the registry to listen",
        2 * PATIENCE,
    )
    # Of one task: kubelet ends such pods one after the other, 30 s each.
    return up_of(lambda text: text.replace("ps: {", f"ps: {{image: {SLOW_IMAGE}, "))(environment)


def image(name: str) -> Callable[[str], str]:
    return lambda text: "".join(
        f"image: {name}\n" if line.startswith("image:") else line for line in text.splitlines(keepends=True)
    )


def unready() -> Iterator[Row]:
    limit, within = DEADLINE + VERDICT, f"in `up`, with a deadline of {DEADLINE} s"
    yield Row(
        fault="an image that is none", when="in `up`", run=up_of(image('"no image"'), deadline=PATIENCE), code=2,
        words=("no image",), left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="an image that can't be pulled", when=within, run=up_of(image("registry.invalid/none:1")), code=124,
        words=(f"waited {DEADLINE} s", "registry.invalid/none:1"), left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="no node has what a task asks for", when="in `up`",
        run=up_of(lambda text: text.replace("ps: {cpu: 50m", "ps: {cpu: 4k")), code=2, words=("task of job ps",),
        left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="all nodes together have less than all tasks ask for", when="in `up`",
        run=up_of(lambda text: text.replace("tasks: 2", "tasks: 1000")), code=2, words=("50100m cpu", "in sum"),
        left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="a node that an autoscaler starts does not come", when=within, run=slow_autoscaler, code=124,
        words=(f"waited {DEADLINE} s", "ps/0 is pending (a node of pool l4 is being started)"), left=NOTHING,
        limit=limit,
    )  # fmt: skip
    yield Row(
        fault="a quota that is used up", when=within, code=124, left=NOTHING,
        words=(f"waited {DEADLINE} s", 'quota "small" is used up'),
        run=up_of(lambda text: text, lambda environment: environment.quota(pods=1)), limit=limit,
    )  # fmt: skip
    yield Row(
        fault="a task that ends again and again", when="in `up`",
        run=up_of(lambda text: text.replace("ps: {", "ps: {env: {PYTHONHASHSEED: none}, "), deadline=PATIENCE), code=1,
        words=("can't come up: ps/0 was started again and ended again", "PYTHONHASHSEED"), left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="a module of `preload` is missing", when="in `up`",
        run=up_of(lambda text: text.replace("ps: {", "ps: {preload: [no_such_module], "), deadline=PATIENCE), code=1,
        words=("can't come up: ps/0", "no_such_module"), left=NOTHING, limit=limit,
    )  # fmt: skip


def pulls() -> Iterator[Row]:
    yield Row(
        fault="a registry stalls in the pull of an image", when=f"in `up`, with a deadline of {DEADLINE} s",
        run=slow_registry, code=124, words=(f"waited {DEADLINE} s", f'pulling image "{SLOW_IMAGE}" on '), left=NOTHING,
        limit=DEADLINE + VERDICT,
    )  # fmt: skip


ROWS = [
    *pods(),
    *removals.rows(),
    *removals.files(),
    *sessions(),
    *commands.rows(),
    *leases.rows(),
    *records.rows(),
    *api_server.rows(),
    *scripts.removals(),
    *unready(),
]
# These need a node's own processes, or break what all of the cluster needs, for a while.
ON_KIND = [
    *mirrored.rows(), *preemptions.rows(), *signals(), *scripts.losses("ps/0: killed (exit code 137)"),
    *scripts.coordinators("does not answer: its server is stopped"), *frozen_sessions(), *removals.on_kind(),
    *scaling.on_kind(), *data_service.rows(), *dns.rows(), *hostile.rows(), *api_server.restarts(), *pulls(),
    *records.on_kind(),
]  # fmt: skip
