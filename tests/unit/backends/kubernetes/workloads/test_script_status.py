"""The status of a script's Job."""

from fakes.stateful_sets import stateful_sets

from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.workloads import script_status
from tfk8s.core.status import ScriptPhase
from tfk8s.render import script_job


def make_job(**spec):
    run = script_job.PodSettings(arguments=["--tf1", "train.py", "a b"], environment={"TFK8S_JOBS": "chief=1"})
    made = script_job.job("demo-script-0a1b2c", stateful_sets()[0], run)
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    made["spec"].update(spec)
    return {**made, "status": {}}


def make_pod(state=None, phase="Running", **status):
    containers = [{"name": "script", "state": state, "ready": True, "image": "tf:1"}] if state else []
    return {
        "metadata": {"name": "demo-script-0a1b2c-xyz", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "node", "containers": [{"name": "script", "resources": {"limits": {"memory": "4Gi"}}}]},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


def ended(code, reason="Error"):
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:01:00Z"}}


def test_names():
    assert script_job.object_name("demo", "script-0a1b2c") == "demo-script-0a1b2c"
    assert len(script_job.object_name("d" * 60, "script-0a1b2c")) <= 63
    assert script_job.name(make_job()) == "script-0a1b2c"
    assert all(map(script_job.is_name, ("script-0a1b2c", "script-mistyped")))
    assert not any(map(script_job.is_name, ("script", "script/0", "worker/1")))


def test_command_of_tensorboard():
    run = script_job.PodSettings(
        arguments=["/logs"],
        environment={"TFK8S_JOBS": "chief=1"},
        command=script_job.TENSORBOARD_COMMAND,
    )
    made = script_job.job("demo-script-0a1b2c", stateful_sets()[0], run)
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert script_status.status({**made, "status": {}}, None).command == "tfk8s.sessions.pod.tensorboard /logs"


OUTCOMES = [
    (make_pod({"running": {"startedAt": "2026-01-01T00:00:30Z"}}), "Running", None, ""),
    (make_pod(ended(0, "Completed"), "Succeeded"), "Succeeded", 0, ""),
    (make_pod(ended(7), "Failed"), "Failed", 7, ""),
    (make_pod(ended(137, "OOMKilled"), "Failed"), "Failed", 137, "killed at its memory limit of 4Gi"),
    (
        make_pod(None, "Failed", reason="Evicted", message="The node was low on resource: memory. "),
        "Failed",
        None,
        "evicted by its node node (The node was low on resource: memory)",
    ),
    (make_pod(None, "Failed", reason="NodeAffinity"), "Failed", None, "its pod failed: NodeAffinity"),
    (make_pod(None, "Failed"), "Failed", None, "its pod failed"),
    (None, "Pending", None, ""),
    (
        make_pod({"waiting": {"reason": "InvalidImageName"}}, "Pending"),
        "Failed",
        None,
        '"tf:1" is not the name of an image: change jobs.chief.image (or image, for all jobs)',
    ),
]


def test_outcomes():
    for pod, phase, code, reason in OUTCOMES:
        status = script_status.status(make_job(), pod)
        assert (status.phase, status.exit_code, status.reason) == (ScriptPhase(phase), code, reason), pod
        assert status.command == "--tf1 train.py 'a b'", pod


def test_a_job_without_a_pod():
    assert script_status.status(make_job(suspend=True), None).reason == 'queue "gold" has not admitted it yet'
    gone = {**make_job(), "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    assert script_status.status(gone, None).reason == "its pod was deleted"
    message = "exceeded quota: q, requested: cpu=1, used: cpu=2, limited: cpu=2"
    assert script_status.status(make_job(), None, PodEvents([message])).reason == (
        'the namespace\'s quota "q" is used up (requested: cpu=1, used: cpu=2, limited: cpu=2): '
        "change script.cpu or memory in the job file, or --cpu and --memory: the script requests 50m cpu and "
        "512Mi memory, with limits of 2 cpu and 8Gi memory"
    )
    foreign = make_job()
    foreign["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert script_status.status(foreign, None, PodEvents([message])).reason.endswith("the script requests nothing")
