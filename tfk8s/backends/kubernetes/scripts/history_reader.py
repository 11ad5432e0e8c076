"""Brings records of a shared history into this user's own, by a pod that mounts the claim."""

from __future__ import annotations

import contextlib
import io
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfk8s import polling
from tfk8s.backends import history as own_history
from tfk8s.backends.history import index
from tfk8s.backends.history.merging import Merger, Pulled
from tfk8s.backends.kubernetes import claims
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.commands import Output, RemoteCommand
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import image_pull, pod_events, pod_status
from tfk8s.backends.kubernetes.scripts.inside_containers import RUN
from tfk8s.core import naming
from tfk8s.core.history import records
from tfk8s.core.history.records import RecordStream
from tfk8s.core.history.shared import FOLDER
from tfk8s.errors import ClusterError, InvalidInput, quoted
from tfk8s.render import history_pod, lifetime, manifests
from tfk8s.render.pods import Object

_PROGRAM = Path(own_history.__path__[0], "claim_reader.py")  # it is for Linux alone
START_TIMEOUT = 60.0
_PULL_TIMEOUT = 300.0  # for a node that starts, or pulls the image
_TIMEOUT = 60.0  # without a word from the pod; the first comes when all records are listed
_BLOCK = 1 << 16  # bytes of one message
_OWN_ROWS = 200  # of the own history, which may name an image
_FAILURES = ("Image", "CreateContainer", "RunContainer")
_IMAGE_ADVICE = "--image IMAGE names an image with Python 3 that the nodes can pull"


def pull(client: Client, namespace: str, claim: str, *, cluster: str | None, last: int, image: str | None) -> Pulled:
    """Bring the newest records of a claim into the history of this user.

    Args:
        client: the API server.
        namespace: the claim's.
        claim: the claim.
        cluster: only records of clusters of this name; None for all.
        last: the number of records.
        image: of the pod; None is that of a cluster that writes to the claim, else of this user's last one there.

    Raises:
        InvalidInput: there is no such claim.
        ClusterError: the pod can't run, or its answer can't be read.
        WaitTimeout: the pod does not start in time.
    """
    _require_claim(client, namespace, claim)
    result = Pulled()
    with Merger(claim, claims.location(client, namespace)) as merger, _pod(client, namespace, claim, image) as pod:
        index.prune_daily()  # before, so that what is asked for stays
        with _answer(client, namespace, pod, claim, records.request(last, cluster, None)) as stream:
            listed = list(stream.records(last))
            result.older = stream.left_out
        wanted = [record.name for record in listed if not merger.has(record.name, record.mark)]
        result.same = len(listed) - len(wanted)
        if wanted:
            with _answer(client, namespace, pod, claim, records.request(last, cluster, wanted)) as stream:
                _take(merger, stream, set(wanted), result)
    return result


def _take(merger: Merger, stream: RecordStream, wanted: set[str], result: Pulled) -> None:
    for record in stream.records(len(wanted)):
        if record.name not in wanted:
            raise ValueError("it has a record that nobody asked for")
        merger.take_into(record, result)
    result.left_out += stream.left_out


def _require_claim(client: Client, namespace: str, claim: str) -> None:
    try:
        found = client.find(f"{paths.collection(claims.KIND, namespace)}/{claim}")
    except ApiError as error:
        if error.code != 403:  # else the pod says what is missing
            raise
        return
    if found is None:
        raise InvalidInput(
            f'there is no PersistentVolumeClaim {quoted(claim)} in namespace "{namespace}"',
            help=f"kubectl get pvc -n {namespace} lists the claims",
        )


@contextlib.contextmanager
def _answer(client: Client, namespace: str, pod: str, claim: str, request: bytes) -> Iterator[RecordStream]:
    """Give what the program in the pod answers, in a `with`.

    Raises:
        ClusterError: the program fails, or its answer has a wrong form.
    """
    program = _PROGRAM.read_bytes()
    words = ["python3", "-I", "-c", RUN, f"{history_pod.FOLDER}/{FOLDER}", str(len(request)), str(len(program))]
    sent = program + request
    container = history_pod.CONTAINER
    try:
        with RemoteCommand(client, namespace, pod, words, container=container, timeout=_TIMEOUT) as command:
            for start in range(0, len(sent), _BLOCK):
                command.send(sent[start : start + _BLOCK])
            yield RecordStream(io.BufferedReader(Output(command)))
    except ApiError:
        raise
    except ValueError as error:
        raise ClusterError(f'the answer of the pod that reads claim "{claim}" has a wrong form: {error}') from error
    except ClusterError as error:
        reason = str(error).rpartition("\n")[2]
        raise ClusterError(f'claim "{claim}" can\'t be read: {reason}', help=error.help) from error


# ---- the pod -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _pod(client: Client, namespace: str, claim: str, image: str | None) -> Iterator[str]:
    """Run a pod that mounts the claim, in a `with`; give its name."""
    name = f"tfk8s-history-{secrets.token_hex(4)}"
    path = paths.pod(namespace, name)
    found = _listed(client, namespace)
    model = None if image else _newest_writer(found, claim)
    chosen = image or (_image(model) if model else _own_image(claims.location(client, namespace)))
    pull_secrets = model["spec"].get("imagePullSecrets", ()) if model else ()
    for left in filter(_is_left, found):  # by a command that was killed
        client.send("DELETE", paths.pod(namespace, left["metadata"]["name"]))
    try:
        _create(client, namespace, history_pod.render(name, claim, chosen, pull_secrets))
        _wait_for_start(client, path, claim)
        yield name
    finally:
        with contextlib.suppress(ClusterError):
            client.send("DELETE", path, {"gracePeriodSeconds": 0})


def _create(client: Client, namespace: str, pod: Object) -> None:
    """Create the pod.

    Raises:
        ApiError: the API server refuses.
    """
    try:
        client.send("POST", paths.collection("Pod", namespace), body=pod)
    except ApiError as error:
        if error.help or error.code != 403:
            raise
        raise ApiError(error.code, str(error), help=history_pod.ROOM_ADVICE) from error  # of a quota or a LimitRange


def _listed(client: Client, namespace: str) -> list[Object]:
    """Return the pods that may write to claims, and those that read them."""
    components = f"{manifests.COMPONENT} in ({lifetime.COMPONENT},{history_pod.COMPONENT})"
    query = {"labelSelector": f"{manifests.NAME}=tfk8s,{components}"}
    items: list[Object] = client.get(paths.collection("Pod", namespace), query)["items"]
    return items


def _component(pod: Object) -> object:
    return pod["metadata"].get("labels", {}).get(manifests.COMPONENT)


def _is_left(pod: Object) -> bool:
    return _component(pod) == history_pod.COMPONENT and pod["status"].get("phase") in ("Failed", "Succeeded")


def _newest_writer(found: Iterable[Object], claim: str) -> Object | None:
    """Return the newest pod that writes to the claim; None without one."""
    writers = (
        pod
        for pod in found
        if _component(pod) == lifetime.COMPONENT
        and any(volume.get("persistentVolumeClaim", {}).get("claimName") == claim
                for volume in pod["spec"].get("volumes", ()))
    )  # fmt: skip
    return max(writers, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)


def _image(pod: Object) -> str:
    own = (one.get("image") for one in pod["spec"]["containers"] if one["name"] == naming.LIFETIME_CONTAINER)
    return next(own, None) or history_pod.DEFAULT_IMAGE


def _own_image(location: str) -> str:
    """Return the image of this user's newest cluster at a place, which the nodes there may still have."""
    images = (row.image.partition(", ")[0] for row in index.rows(None, _OWN_ROWS) if row.location == location)
    return next(filter(None, images), history_pod.DEFAULT_IMAGE)


def _wait_for_start(client: Client, path: str, claim: str) -> None:
    """Wait until the pod runs.

    Raises:
        ClusterError: it can't run; says why.
        WaitTimeout: it does not run in time; says what it waits for.
    """
    reason, is_slow, begin = "", False, time.monotonic()

    def poll() -> bool:
        nonlocal reason, is_slow
        pod = client.get(path)
        phase = pod["status"].get("phase")
        if phase == "Running":
            return True
        failure = _failure(pod)
        if failure or phase in ("Failed", "Succeeded"):
            raise ClusterError(
                f'the pod that reads claim "{claim}" can\'t run: {failure or "it has ended"}', help=_IMAGE_ADVICE
            )
        if time.monotonic() - begin >= polling.TELL_SECONDS:  # the events need requests of their own
            reason, is_slow = _waits(client, path, pod)
        return False

    polling.wait_until(
        poll,
        lambda: f'the pod that reads claim "{claim}" to start{": " * bool(reason)}{reason}',
        lambda: _PULL_TIMEOUT if is_slow else START_TIMEOUT,
        announce=True,
        least_interval=0.1,
    )


def _failure(pod: Object) -> str:
    """Return why the pod's container does not run, and won't; "" if it may."""
    for container in pod["status"].get("containerStatuses", ()):
        state = container["state"].get("waiting") or container["state"].get("terminated") or {}
        reason, message = str(state.get("reason", "")), str(state.get("message", ""))
        if any(word in reason for word in _FAILURES) or "exitCode" in state:
            return ": ".join(filter(None, (reason, message)))
    return str(pod["status"].get("message", "")) if pod["status"].get("phase") == "Failed" else ""


def _waits(client: Client, path: str, pod: Object) -> tuple[str, bool]:
    """Return why the pod does not run yet, and whether that may take longer."""
    namespace = path.split("/")[4]
    query = {"fieldSelector": f"{pod_events.QUERY['fieldSelector']},involvedObject.uid={pod['metadata']['uid']}"}
    try:
        items = client.get(paths.collection("Event", namespace), query)["items"]
    except ApiError:  # of a user who may not read events
        items = []
    events = pod_events.of(pod, pod_events.group(items, client.context))
    if pod_status.is_unscheduled(pod):
        scheduled = pod_status.condition(pod, "PodScheduled") or {}
        said = events.node.reason if events.node else str(scheduled.get("message", ""))
        return said or "it waits for the scheduler", pod_status.waits_for_node(pod, events)
    if image_pull.is_under_way(pod, events.pull):
        return image_pull.describe(pod, events.pull), True
    return events.warnings[-1] if events.warnings else "", False
