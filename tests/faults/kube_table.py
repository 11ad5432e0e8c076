"""The rows of the table on Kubernetes: what becomes of tasks, and of clusters that come up."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import api_rows
import command_rows
from commands import PATIENCE, Ended
from kube_place import NOW, Kube, pod_of
from rows import CONNECTED, NOTHING, OWN_SESSION, VERDICT, Row, both_said

from tfk8s import waiting
from tfk8s.backends.kubernetes import paths
from tfk8s.backends.kubernetes.client import MERGE

MOMENTS = {"before": "before a step", "during": "in a step", "after": "between steps"}
TASKS = ("worker/1", "ps/0", "chief/0")
DEADLINE = 8  # what `up` is given where nothing but time ends it

Fault = Callable[[Kube], None]


# ---- tasks ---------------------------------------------------------------------------------------------------------


def lost(moment: str, fault: Fault) -> Callable[[Kube], Ended]:
    """A fault at some moment of a script."""

    def act(place: Kube) -> Ended:
        script = place.steps(moment)
        script.now()
        fault(place)
        if moment == "after":  # a server may go on for a moment, and the next step with it
            script.until_says("was lost")
        script.go_on()
        ended = script.end(PATIENCE)
        place.undo()
        return ended

    return act


def hit(task: str, number: int, moment: str) -> Callable[[Kube], Ended]:
    """A signal to a task's process at some moment of a script."""

    def act(place: Kube) -> Ended:
        script = place.steps(moment, to_kill=task if number == signal.SIGKILL else "")
        process = place.process(task)
        script.now()
        process.send(number)
        script.go_on()
        try:
            return script.end(PATIENCE)
        finally:
            if number == signal.SIGSTOP:
                process.send(signal.SIGCONT)

    return act


def delete(task: str, **options: int) -> Fault:
    return lambda place: place.client.send("DELETE", paths.pod(place.namespace, pod_of(task)), options)


def evict(task: str) -> Fault:
    def fault(place: Kube) -> None:
        metadata = {"name": pod_of(task), "namespace": place.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        place.client.send("POST", paths.pod(place.namespace, pod_of(task), "eviction"), body=body)

    return fault


def drain(place: Kube) -> None:
    """Drain the node of a task that its disruption budget lets go."""
    place.cordon()
    evict("worker/1")(place)


def network_gone(place: Kube) -> Ended:
    """The pod of a task is taken from the network without a word to anybody; it is replaced when the row is over."""
    script = place.steps("during")
    process = place.process("worker/1")
    place.at_end(lambda: delete("worker/1", **NOW)(place))
    script.now()
    process.cut_network()
    return script.end(PATIENCE)


def eats(place: Kube) -> Ended:
    """A script that brings its fault along."""
    command = place.submit("eater.py")
    command.until_says("a step")
    command.now()
    return command.end(PATIENCE)


def signals() -> Iterator[Row]:
    for number, name, words, limit in (
        (signal.SIGKILL, "SIGKILL", "{}: killed (exit code 137)", VERDICT),
        (signal.SIGSTOP, "SIGSTOP", "{} was lost: does not answer: its server is stopped", 1.5 * VERDICT),
    ):
        for index, (moment, when) in enumerate(MOMENTS.items()):
            for other, task in enumerate(TASKS):
                yield Row(
                    fault=f"{name} of {task}", when=when, act=hit(task, number, moment), code=3,
                    words=(words.format(task),), limit=limit, thorough=index != other,
                )  # fmt: skip
    yield Row(
        fault="network of worker/1 gone (half-open TCP)", when="in a step", act=network_gone, code=3,
        limit=1.5 * VERDICT, thorough=True,
        words=("worker/1 was lost: does not answer: its server is stopped, or its machine or the network is gone",),
    )  # fmt: skip


def pods() -> Iterator[Row]:
    deleted = "{}: its pod was deleted"
    for task, moment in (("worker/1", "during"), ("worker/1", "before"), ("ps/0", "during"), ("chief/0", "after")):
        yield Row(
            fault=f"pod of {task} deleted", when=MOMENTS[moment], act=lost(moment, delete(task)), code=3,
            words=(deleted.format(task),), thorough=(task, moment) != ("worker/1", "during"),
        )  # fmt: skip
    for task, moment in (("worker/1", "during"), ("chief/0", "during"), ("chief/0", "after")):
        yield Row(
            fault=f"pod of {task} deleted by force", when=MOMENTS[moment], act=lost(moment, delete(task, **NOW)),
            code=3, words=(deleted.format(task),), thorough=(task, moment) != ("chief/0", "after"),
        )  # fmt: skip
    yield Row(
        fault="pod of worker/1 evicted", when="in a step", act=lost("during", evict("worker/1")), code=3,
        words=("worker/1: evicted from its node",), thorough=True,
    )  # fmt: skip
    yield Row(
        fault="worker/1 needs more memory than it may use", when="in a step", act=eats, code=3,
        words=("worker/1: killed at its memory limit of 1Gi (OOMKilled): raise jobs.worker.memory",),
    )  # fmt: skip


def drained() -> Iterator[Row]:
    yield Row(
        fault="node drained, so that worker/1 has no place", when="in a step", act=lost("during", drain), code=3,
        words=("worker/1: evicted from its node",),
    )  # fmt: skip


# ---- sessions that no script of tfk8s' opens ----------------------------------------------------------------------


def own(fault: Fault) -> Callable[[Kube], Ended]:
    """A fault while a program is in a step."""

    def act(place: Kube) -> Ended:
        program = place.notebook()
        program.now()
        fault(place)
        return program.end(PATIENCE)

    return act


def connected(fault: Fault) -> Callable[[Kube], Ended]:
    """Likewise, where the program knows nothing but the address that `connect` has printed."""

    def act(place: Kube) -> Ended:
        connect = place.start("connect", place.cluster())
        connect.until_says("until Ctrl-C")
        program = place.notebook(connect.out.strip())
        program.now()
        fault(place)
        return both_said(program.end(PATIENCE), connect)

    return act


def here(fault: Fault) -> Callable[[Kube], Ended]:
    """A fault while a script on this machine is in a step."""

    def act(place: Kube) -> Ended:
        script = place.steps_here()
        script.now()
        fault(place)
        return script.end(PATIENCE)

    return act


def freeze(task: str) -> Fault:
    """Stop a task's process until the row is over."""

    def fault(place: Kube) -> None:
        process = place.process(task)
        place.at_end(lambda: process.send(signal.SIGCONT))
        process.send(signal.SIGSTOP)

    return fault


def sessions() -> Iterator[Row]:
    deleted = "{} was lost: its pod was deleted"
    yield Row(
        fault="pod of worker/1 deleted", when=OWN_SESSION, act=own(delete("worker/1")), code=3,
        words=(deleted.format("worker/1"),),
    )  # fmt: skip
    yield Row(
        fault="pod of chief/0 deleted by force", when=CONNECTED, act=connected(delete("chief/0", **NOW)), code=1,
        words=(deleted.format("chief/0"), "AbortedError"), thorough=True,
    )  # fmt: skip
    yield Row(
        fault="pod of worker/1 deleted", when="in a step of `submit --here`", act=here(delete("worker/1")), code=3,
        words=(deleted.format("worker/1"),),
    )  # fmt: skip


def frozen_sessions() -> Iterator[Row]:
    stopped = "worker/1 was lost: does not answer: its server is stopped"
    yield Row(
        fault="SIGSTOP of worker/1", when=OWN_SESSION, act=own(freeze("worker/1")), code=3,
        words=(stopped, f"TaskLost: {stopped}"), limit=1.5 * VERDICT, thorough=True,
    )  # fmt: skip
    yield Row(
        fault="SIGSTOP of worker/1", when=CONNECTED, act=connected(freeze("worker/1")), code=1,
        words=(stopped, "AbortedError", stopped), limit=1.5 * VERDICT,
    )  # fmt: skip


# ---- clusters that can't come up -----------------------------------------------------------------------------------


def up_of(text: Callable[[str], str], before: Fault = lambda place: None) -> Callable[[Kube], Ended]:
    """`up` of a changed job file, with a deadline; what it leaves is removed."""

    def act(place: Kube) -> Ended:
        place.remove()
        before(place)
        up = place.start("up", "--timeout", f"{DEADLINE}s", place.file("changed.yaml", text(place.text)))
        ended = up.end(DEADLINE + PATIENCE)
        place.remove()
        return ended

    return act


def image(name: str) -> Callable[[str], str]:
    return lambda text: "".join(
        f"image: {name}\n" if line.startswith("image:") else line for line in text.splitlines(keepends=True)
    )


def unready() -> Iterator[Row]:
    limit, within = DEADLINE + VERDICT, f"in `up`, with a deadline of {DEADLINE} s"
    yield Row(
        fault="an image that is none", when="in `up`", act=up_of(image('"no image"')), code=2,
        words=("no image",), left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="an image that can't be pulled", when=within, act=up_of(image("registry.invalid/none:1")), code=124,
        words=(f"waited {DEADLINE} s", "registry.invalid/none:1"), left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="no node has what a task asks for", when="in `up`",
        act=up_of(lambda text: text.replace("ps: {cpu: 50m", "ps: {cpu: 4k")), code=2, words=("task of ps",),
        left=NOTHING, limit=limit,
    )  # fmt: skip
    yield Row(
        fault="a quota that is used up", when=within, code=124, left=NOTHING,
        words=(f"waited {DEADLINE} s", 'quota "small" is used up'),
        act=up_of(lambda text: text, lambda place: place.quota(pods=1)), limit=limit,
    )  # fmt: skip
    yield Row(
        fault="a task that ends again and again", when="in `up`",
        act=up_of(lambda text: text.replace("ps: {", "ps: {preload: [no_such_module], ")), code=1,
        words=("can't come up: ps/0", "no_such_module"), left=NOTHING, limit=limit,
    )  # fmt: skip


# ---- names that can't be looked up ---------------------------------------------------------------------------------

_DNS = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
_DNS_PODS = "/api/v1/namespaces/kube-system/pods"


@contextlib.contextmanager
def no_dns(place: Kube) -> Iterator[None]:
    """The cluster's DNS is away meanwhile."""
    before = place.client.get(_DNS)["spec"]["replicas"]

    def scale(replicas: int) -> None:
        place.client.send("PATCH", _DNS, body={"spec": {"replicas": replicas}}, content_type=MERGE)

    def pods() -> list[object]:
        return list(place.client.get(_DNS_PODS, {"labelSelector": "k8s-app=kube-dns"})["items"])

    scale(0)
    try:
        waiting.wait_until(lambda: not pods(), "DNS to be gone", PATIENCE)
        yield
    finally:
        scale(before)
        waiting.wait_until(
            lambda: place.client.get(_DNS)["status"].get("readyReplicas", 0) == before, "DNS to be back", PATIENCE
        )


def submit_without_dns(place: Kube) -> Ended:
    name, script = place.cluster(), place.alone("steps.py")
    with no_dns(place):
        return place.start("submit", name, script, "none").end(PATIENCE)


def up_without_dns(place: Kube) -> Ended:
    place.remove()
    with no_dns(place):
        return place.start("up", "--timeout", f"{DEADLINE}s", place.job_file).end(DEADLINE + PATIENCE)


def dns() -> Iterator[Row]:
    yield Row(
        fault="DNS down", when="before `submit`", act=submit_without_dns, code=3, limit=2 * VERDICT,
        words=("chief/0, ps/0, worker/0, worker/1 do not answer", "name resolution", "cluster's DNS"),
    )  # fmt: skip
    yield Row(
        fault="DNS down", when=f"in `up`, with a deadline of {DEADLINE} s", act=up_without_dns, code=124,
        words=("chief/0 does not reach",), limit=DEADLINE + VERDICT, thorough=True,
    )  # fmt: skip


ROWS = [*pods(), *sessions(), *command_rows.rows(), *api_rows.rows(), *unready()]
# These need a node's own processes, or break what all of the cluster needs, for a while.
ON_KIND = [*signals(), *frozen_sessions(), *drained(), *dns(), *api_rows.restarts()]
