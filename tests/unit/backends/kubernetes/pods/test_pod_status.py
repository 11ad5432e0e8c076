"""The phase of a pod, and its reason in words. The messages are those of a real cluster (Kubernetes 1.36)."""

import pytest

from tfk8s.backends.kubernetes.pods import disruptions, pod_status
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.core.spec import Job
from tfk8s.core.status import Phase
from tfk8s.render import placement

RESOURCES = {"requests": {"nvidia.com/gpu": "4", "memory": "9Ti"}, "limits": {"memory": "1Gi"}}
SPEC = {"containers": [{"name": "server", "resources": RESOURCES}], "nodeName": "a"}
METADATA = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}


def pod(*, state=None, last=None, ready=False, conditions=(), sidecars=(), **status):
    if state is not None:
        last_state = {"terminated": last} if last else {}
        container = {"name": "server", "state": state, "lastState": last_state, "ready": ready, "image": "tf:1"}
        status["containerStatuses"] = [*sidecars, container]
    return {"metadata": dict(METADATA), "spec": SPEC, "status": {"conditions": list(conditions), **status}}


def unscheduled(message):
    return pod(
        conditions=[{"type": "PodScheduled", "status": "False", "message": f"0/1 nodes are available: {message}"}]
    )


def avoiding(*nodes):
    kept = unscheduled("1 node(s) didn't match Pod's node affinity/selector" + TAIL)
    kept["spec"] = {**SPEC, **placement.rules(Job(name="worker"), {}, nodes)}
    return kept


def gated(*gates):
    held = unscheduled("")
    held["spec"] = {**SPEC, "schedulingGates": [{"name": gate} for gate in gates]}
    return held


def waiting(reason, message="", **more):
    return pod(state={"waiting": {"reason": reason, "message": message}}, **more)


SILENT = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
TAIL = ". no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful."
UNMOUNTED = {
    "exitCode": 128, "reason": "StartError",
    "message": (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        'unable to start container process: error during container init: error mounting "/var/lib/kubelet/pods/'
        '116f56f0-6579-4e1b-8db9-188fed0cbaf7/volume-subpaths/tfk8s/server/0" to rootfs at "/opt/tfk8s/tfk8s.zip": '
        "mount /var/lib/kubelet/pods/116f56f0-6579-4e1b-8db9-188fed0cbaf7/volume-subpaths/tfk8s/server/0:"
        "/opt/tfk8s/tfk8s.zip (via /proc/self/fd/6), flags: 0x5001: no such file or directory"
    ),
}  # fmt: skip
REPLACED = "its node replaced the files of tfk8s while it started"
CASES = [
    (None, (), Phase.PENDING, ""),
    (pod(), (), Phase.PENDING, ""),
    (pod(state={"running": {}}), (), Phase.STARTING, ""),
    (pod(state={"running": {}}, ready=True), (), Phase.READY, ""),
    (
        pod(state={"running": {}}, ready=True, last={"exitCode": 137, "reason": "Error"}), (),
        Phase.READY, "killed (exit code 137): by its node, or by someone with rights on it",
    ),
    (
        gated("kueue.x-k8s.io/admission"), (), Phase.PENDING,
        "its queue has not admitted it yet",
    ),
    (
        {**pod(), "spec": {"containers": [], "schedulingGroup": {"podGroupName": "demo"}}}, (), Phase.PENDING,
        "it waits until all pods of its gang are there",
    ),
    (
        unscheduled(
            "pod group is unschedulable, minCount (4) cannot be satisfied: 1 scheduled, 2 remaining, pod group "
            "preemption: No preemption victims found for incoming preemptor"
        ), (), Phase.PENDING,
        ("all tasks start together or none, and not all find a node (minCount (4) cannot be satisfied: 1 scheduled, "
        "2 remaining)"),
    ),
    (gated("a.b/c", "d"), (), Phase.PENDING, "held back by its scheduling gate a.b/c and d"),
    (
        unscheduled("1 Insufficient nvidia.com/gpu" + TAIL), (), Phase.PENDING,
        ("no node has 4 nvidia.com/gpu free (0/1 nodes are available: 1 Insufficient nvidia.com/gpu): "
        "lower jobs.worker.gpus, or add nodes"),
    ),
    (
        unscheduled("1 Insufficient memory" + TAIL), (), Phase.PENDING,
        ("no node has 9Ti memory free (0/1 nodes are available: 1 Insufficient memory): "
        "lower jobs.worker.memory, or add nodes"),
    ),
    (
        unscheduled("1 Insufficient ephemeral-storage" + TAIL), (), Phase.PENDING,
        ("no node has ephemeral-storage free (0/1 nodes are available: 1 Insufficient ephemeral-storage): "
        "free space on the nodes' disks, or add nodes"),
    ),
    (
        unscheduled("1 node(s) had untolerated taint(s)" + TAIL), (), Phase.PENDING,
        ("every node has a taint that it does not tolerate (0/1 nodes are available: 1 node(s) had untolerated "
        "taint(s)): `kubectl describe nodes` shows which is short of disk or not ready; other taints belong in "
        "jobs.worker.tolerations"),
    ),
    (
        avoiding("n"), (),
        Phase.PENDING,
        ("no node has the labels it asks for (0/1 nodes are available: 1 node(s) didn't match Pod's node "
        "affinity/selector): change jobs.worker.accelerator or node_selector, or shorten avoid"),
    ),
    (
        unscheduled("1 node(s) didn't match pod topology spread constraints (missing required label)" + TAIL), (),
        Phase.PENDING,
        ("no node suits its topology (0/1 nodes are available: 1 node(s) didn't match pod topology "
        "spread constraints (missing required label)): change jobs.worker.topology, or add nodes"),
    ),
    (
        unscheduled('persistentvolumeclaim "data" not found. not found'), (), Phase.PENDING,
        'there is no PersistentVolumeClaim "data": create it, or change volumes or jobs.worker.volumes',
    ),
    (
        waiting("ErrImagePull", 'failed to resolve reference: docker.io/library/tf:1: not found'),
        (), Phase.FAILED,
        ('image "tf:1" is not found: '
        "change jobs.worker.image (or image, for all jobs), or make it available to the nodes"),
    ),
    (
        waiting("ImagePullBackOff", "failed to do request: Head https://r: dial tcp: lookup r: no such host"), (),
        Phase.PENDING,
        ('image "tf:1" can\'t be pulled: Head https://r: dial tcp: lookup r: no such host; '
        "change jobs.worker.image (or image, for all jobs), or make it available to the nodes"),
    ),
    (
        waiting("InvalidImageName"), (), Phase.FAILED,
        '"tf:1" is not the name of an image: change jobs.worker.image (or image, for all jobs)',
    ),
    (waiting("CrashLoopBackOff", last={"exitCode": 2}), (), Phase.FAILED, "ended with exit code 2"),
    (waiting("CrashLoopBackOff", last={"exitCode": 0}), (), Phase.PENDING, "ended as requested, and restarts"),
    (waiting("CrashLoopBackOff", last=UNMOUNTED), (), Phase.PENDING, REPLACED),
    (pod(state={"terminated": UNMOUNTED}), (), Phase.PENDING, REPLACED),
    (
        waiting("CrashLoopBackOff", last={**UNMOUNTED, "message": 'exec: "python3": executable file not found'}), (),
        Phase.FAILED, "ended with exit code 128",
    ),
    (waiting("CrashLoopBackOff", last={**UNMOUNTED, "reason": "Error"}), (), Phase.FAILED, "ended with exit code 128"),
    (
        waiting("CrashLoopBackOff", last={"exitCode": 137, "reason": "OOMKilled"}), (), Phase.FAILED,
        "killed at its memory limit of 1Gi (OOMKilled): raise jobs.worker.memory",
    ),
    (
        waiting("CreateContainerConfigError", 'secret "keys" not found'), (), Phase.PENDING,
        'there is no Secret "keys": create it, or change env or jobs.worker.env',
    ),
    (
        waiting("CreateContainerConfigError", "couldn't find key api in Secret ns/keys"), (), Phase.PENDING,
        'Secret "keys" has no key "api": add the key, or change env or jobs.worker.env',
    ),
    (
        waiting("ContainerCreating"), ('Error: secret "keys" not found',), Phase.PENDING,
        'there is no Secret "keys": create it, or change env or jobs.worker.env',
    ),
    (
        waiting("ContainerCreating"), ('MountVolume.SetUp failed for volume "volume-0" : secret "keys" not found',),
        Phase.PENDING, 'there is no Secret "keys": create it, or change volumes or jobs.worker.volumes',
    ),
    (
        waiting("ContainerCreating"), ('MountVolume.SetUp failed for volume "tfk8s" : configmap "demo" not found',),
        Phase.PENDING, 'its ConfigMap "demo", which tfk8s created, is gone: `tfk8s up` creates it again',
    ),
    (
        waiting("ContainerCreating"), ('MountVolume.SetUp failed for volume "tfk8s" : secret "demo-s" not found',),
        Phase.PENDING, 'its Secret "demo-s", which tfk8s created, is gone: run the script again',
    ),
    (
        waiting("ContainerCreating"), ('MountVolume.SetUp failed for volume "program" : secret "p-program" not found',),
        Phase.PENDING,
        'there is no Secret "p-program" with the folder of the programs: `tfk8s up` creates it',
    ),
    (
        waiting("ContainerCreating"), ("old", 'MountVolume.SetUp failed for volume "v" : configmap "c" not found'),
        Phase.PENDING, 'there is no ConfigMap "c": create it, or change volumes or jobs.worker.volumes',
    ),
    (waiting("ContainerCreating"), ("Multi-Attach error",), Phase.PENDING, "Multi-Attach error"),
    (
        waiting("ContainerCreating"),
        ('Failed to pull image "tf:1": failed to do request: Head https://r: no such host', "Error: ErrImagePull"),
        Phase.PENDING,
        ('image "tf:1" can\'t be pulled: Head https://r: no such host; '
        "change jobs.worker.image (or image, for all jobs), or make it available to the nodes"),
    ),
    (waiting("ContainerCreating"), ("Error: ErrImagePull",), Phase.PENDING, ""),
    (
        None, ('pods "a-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1',),
        Phase.PENDING,
        ('the namespace\'s quota "small" is used up (requested: pods=1, used: pods=1, limited: pods=1): '
        "lower what jobs.worker asks"),
    ),
    (
        None,
        ("[minimum cpu usage per Pod is 2, but request is 1, maximum cpu usage per Pod is 3, but limit is 4]",),
        Phase.PENDING,
        ("the namespace's LimitRange refuses its pod (maximum cpu usage per Pod is 3, but limit is 4; "
        "minimum cpu usage per Pod is 2, but request is 1): "
        "change jobs.worker.cpu or memory (a task's CPU limit is a core at least), or have it changed"),
    ),
    (
        None, ('pods "a-0" is forbidden: failed quota: small: must specify limits.cpu for: server',), Phase.PENDING,
        'the namespace\'s quota "small" needs limits.cpu for: server: set jobs.worker.cpu and memory',
    ),
    (
        None,
        ('requests: Invalid value: "512Mi": must be less than or equal to memory limit of 256Mi',), Phase.PENDING,
        ("the namespace's LimitRange gives its pod a memory limit of 256Mi, less than its request: "
        "set jobs.worker.memory"),
    ),
    (
        None, ('a-0 is forbidden: violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)',),
        Phase.FAILED,
        'the namespace\'s pod security "restricted:latest" refuses its pod: host namespaces (hostNetwork=true)',
    ),
    (
        None, ('error looking up service account a/me: serviceaccount "me" not found',), Phase.PENDING,
        'there is no ServiceAccount "me": create it, or change security.service_account',
    ),
    (
        pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."), (), Phase.FAILED,
        "evicted by its node a (The node was low on resource: memory): let it ask for what it needs, in jobs.worker",
    ),
    (
        pod(phase="Failed", reason="UnexpectedAdmissionError", message="no GPU"), (), Phase.FAILED,
        "its pod failed: UnexpectedAdmissionError no GPU",
    ),
    (
        pod(state={"running": {}}, ready=True, conditions=SILENT), (), Phase.FAILED,
        "its node a does not answer: `kubectl describe node a` shows since when",
    ),
]  # fmt: skip


def test_phase_and_reason():
    for seen, warnings, phase, reason in CASES:
        assert pod_status.phase_and_reason("worker", seen, PodEvents(list(warnings))) == (phase, reason), seen


def test_a_terminating_pod_is_pending():
    stopped = pod(state={"running": {}}, ready=True)
    stopped["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_status.phase_and_reason("worker", stopped, PodEvents()) == (
        Phase.PENDING,
        "its previous pod is terminating",
    )


DISRUPTED = [
    (
        "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod",
        "preempted by a pod of higher priority: raise jobs.worker.priority_class, or add nodes",
    ),
    (
        "EvictionByEvictionAPI", "Eviction API: evicting",
        "evicted from its node a, as by `kubectl drain`: it restarts where a node has room",
    ),
    (
        "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint",
        ("evicted from its node a, which is not ready or was tainted (Taint manager: deleting due to NoExecute taint): "
        "`kubectl describe node a` shows why"),
    ),
    ("DeletionByPodGC", "PodGC: node no longer exists", "its node a is gone: it restarts on another node"),
    ("Other", "by another controller.", "disrupted (by another controller)"),
]  # fmt: skip


def test_a_pod_that_kueue_takes_away_comes_back():
    condition = {
        "type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted", "message": "Preempted to help.",
    }  # fmt: skip
    words = "taken away by Kueue (Preempted to help): it comes back when Kueue admits its cluster again"
    assert disruptions.why_removed("worker", {**pod(), "status": {"conditions": [condition]}}) == words


@pytest.mark.parametrize(("reason", "message", "words"), DISRUPTED)
def test_disruptions(reason, message, words):
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    gone = pod(state={"running": {}}, ready=True, conditions=[condition])
    assert disruptions.why_removed("worker", gone) == words
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_status.phase_and_reason("worker", gone, PodEvents()) == (
        Phase.PENDING,
        f"its previous pod is terminating: {words}",
    )


ENDED = {"terminated": {"exitCode": 143, "reason": "Error"}}


def test_a_failed_pod_without_a_reason_has_that_of_its_container():
    assert disruptions.why_removed("worker", pod(phase="Failed", state=ENDED)) == ""
    for state, words in ((ENDED, "ended with exit code 143"), (None, "its pod failed")):
        failed = pod(phase="Failed", state=state)
        assert pod_status.phase_and_reason("worker", failed, PodEvents()) == (Phase.FAILED, words)


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_pod_that_was_deleted_did_not_fail(phase):
    """The pod of a program keeps its ended container, and its log, until its Job has counted the pod."""
    deleted = pod(phase=phase, state=ENDED)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert disruptions.why_removed("worker", deleted) == "its pod was deleted"
    assert not pod_status.is_explained_by_log(deleted)
    seen = pod_status.phase_and_reason("worker", deleted, PodEvents())
    assert seen == (Phase.PENDING, "its previous pod is terminating")


def test_a_deleted_pod():
    deleted = pod(state={"running": {}}, ready=True)
    assert disruptions.why_removed("worker", deleted) == ""
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert disruptions.why_removed("worker", deleted) == "its pod was deleted"


@pytest.mark.parametrize(
    ("seen", "explained", "has_run"),
    [
        (waiting("InvalidImageName"), False, False),
        (waiting("CrashLoopBackOff", last={"exitCode": 1}), True, True),
        (waiting("CrashLoopBackOff", last={"exitCode": 137, "reason": "OOMKilled"}), False, True),
        (pod(state={"terminated": {"exitCode": 1}}), True, True),
        (pod(state={"running": {}}, last={"exitCode": 1}), False, True),
    ],
)
def test_ends_that_logs_explain(seen, explained, has_run):
    assert (pod_status.is_explained_by_log(seen), pod_status.has_run(seen)) == (explained, has_run)


def test_times_are_seconds():
    assert pod_status.since(pod(state={"running": {"startedAt": "1970-01-01T00:01:00Z"}})) == 60
    assert pod_status.since(pod()) == pod_status.seconds("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, False),
        ({"observedGeneration": 1, "updateRevision": "new"}, True),
        ({"observedGeneration": 2, "updateRevision": "new"}, True),
        ({"observedGeneration": 2, "updateRevision": "old"}, False),
    ],
)
def test_a_pod_is_outdated_after_a_change_of_its_stateful_set(status, expected):
    old = {"metadata": {"labels": {"controller-revision-hash": "old"}}}
    stateful_set = {"metadata": {"generation": 2}, "spec": {}, "status": status}
    assert pod_status.is_outdated(old, stateful_set) is expected
    stateful_set["spec"] = {"updateStrategy": {"type": "OnDelete"}}  # while another pod starts away from its node
    assert not pod_status.is_outdated(old, stateful_set)


def test_a_task_without_a_limit_that_its_node_had_no_memory_for():
    pod = {"spec": {"containers": [{"name": "server", "resources": {"requests": {"memory": "512Mi"}}}]}}
    end = {"exitCode": 137, "reason": "OOMKilled"}
    words = "killed because its node ran out of memory (OOMKilled): set jobs.worker.memory"
    assert pod_status.why_ended("worker", pod, end) == words
