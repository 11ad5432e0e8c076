"""The objects that keep a cluster's limits: a Job, and a ServiceAccount that may remove this cluster alone.

With `drain: idle`, the Job also opens and closes the cluster's disruption budgets. With `history`, another Job of the
same ServiceAccount keeps the cluster's record in a claim or a bucket: one that can't be mounted or reached keeps no
limit from being kept.

The Jobs' pods are made from the master's, as the pods of scripts are: they have the master's image and node settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tfk8s.core import job_kinds, naming
from tfk8s.core.history.shared import MOUNT_PATH
from tfk8s.core.job_kinds import program_jobs
from tfk8s.core.lifetime import RECORD_GRACE, queue_workload, removable_objects
from tfk8s.core.spec import JobFile
from tfk8s.render import manifests, other_pods, pod_volumes, pods, record_place, script_job
from tfk8s.render.pods import Object

COMPONENT = "cluster-lifetime"  # no job's DNS name is this, as it would end in a hash
MAX_DURATION = "tfk8s.dev/max-duration"
IDLE = "tfk8s.dev/idle"
LEASE = "tfk8s.dev/lease"
SUSPEND = "tfk8s.dev/idle-suspend"

_HISTORY = "history"  # the name of the volume
_CREDENTIALS_FOLDER = "/var/run/secrets/tfk8s"
REQUESTS = {"cpu": "10m", "memory": "32Mi"}
LIMITS = {"cpu": "500m", "memory": "128Mi"}
AMOUNTS = f"{REQUESTS['cpu']} of a core and {REQUESTS['memory']}, with limits of {LIMITS['cpu']} and {LIMITS['memory']}"
QUOTA_ADVICE = f"ask for higher limits: the Job requests {AMOUNTS}"
_MAX_RETRIES = 1_000_000  # the Job lasts as long as the cluster
# API servers listen on these ports. A NetworkPolicy sees the port of the server, not the Service's.
_API_PORTS = (443, 6443, 8443, 16443)
_OF_OTHERS = ("initContainers", "preemptionPolicy", "priority", "priorityClassName")  # may keep a pod from its start
_OWN_JOB = {  # its name has a hash of this template
    "name": "TFK8S_LIFETIME_JOB",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{script_job.JOB_NAME}']"}},
}
_VARIABLES = ("TFK8S_NAME", "TFK8S_NAMESPACE", "TFK8S_ACTIVITY_PORT")


def add(job_file: JobFile, objects: Sequence[Object]) -> list[Object]:
    """Return a cluster's objects together with those that remove the cluster at its limits, and keep its record.

    The ServiceAccount and its rights come first: without them, nothing should be created. The Jobs are the last.

    Args:
        job_file: the cluster, which `job_kinds.has_own_jobs`.
        objects: the objects of `manifests.render`, which get a rule for the pod of the limits.
    """
    master = naming.stateful_set(job_file.name, job_file.master)
    workloads = (item for item in objects if item["kind"] in ("StatefulSet", "Job"))
    template = next(item for item in workloads if item["metadata"]["name"] == master)["spec"]["template"]
    if job_kinds.watches_use(job_file):
        policy = next(item for item in objects if item["kind"] == "NetworkPolicy")
        port = manifests.port_rule(pods.activity_port(job_file))
        policy["spec"]["ingress"].append({"from": [_own_pod(job_file)], "ports": [port]})
    record = _record_job(job_file, template) if job_file.history else None
    limits = _limits_job(job_file, template, record) if job_kinds.keeps_limits(job_file) else None
    jobs = [*filter(None, (record, limits))]
    role = _role(job_file, record, limits)
    rights = [_account(job_file), role, _role_binding(job_file), _network_policy(job_file)]
    if namespace := objects[0]["metadata"].get("namespace"):
        for item in (*rights, *jobs):
            item["metadata"]["namespace"] = namespace
    return [*rights, *objects, *jobs]


def _labels(job_file: JobFile) -> dict[str, str]:
    return {**manifests.selector(job_file.name), manifests.COMPONENT: COMPONENT}


def _own_pod(job_file: JobFile) -> Object:
    return {"podSelector": {"matchLabels": _labels(job_file)}}


def _object(kind: str, version: str, job_file: JobFile) -> Object:
    return manifests.new_object(kind, version, naming.lifetime(job_file.name), job_file.name, COMPONENT)


def _account(job_file: JobFile) -> Object:
    return _object("ServiceAccount", "v1", job_file) | {"automountServiceAccountToken": False}


def _role(job_file: JobFile, record: Object | None, limits: Object | None) -> Object:
    names: dict[tuple[str, str], list[str]] = {}
    for item in removable_objects(job_file.name, _servers(job_file), _programs(job_file), gang=bool(job_file.gang)):
        names.setdefault((item.group, item.resource), []).append(item.name)
    rules = [
        {"apiGroups": [group], "resources": [resource], "resourceNames": found, "verbs": ["get", "delete"]}
        for (group, resource), found in names.items()
    ]
    if drained := _drained(job_file):
        names_of_budgets = [naming.stateful_set(job_file.name, job) for job in drained]
        rules.append(
            {
                "apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "resourceNames": names_of_budgets,
                "verbs": ["patch"],
            }
        )  # fmt: skip
    if limits and job_file.limits.suspend is not None:
        rules += _rights_to_suspend(job_file, limits["metadata"]["name"])
    if record and limits:
        own, account = record["metadata"]["name"], naming.lifetime(job_file.name)
        rules += [
            {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": [own], "verbs": ["get", "delete"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [account], "verbs": ["patch"]},
        ]
    if record:
        rules += [
            {"apiGroups": [""], "resources": ["events", "pods"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        ]
    return _object("Role", "rbac.authorization.k8s.io/v1", job_file) | {"rules": rules}


def _rights_to_suspend(job_file: JobFile, own_job: str) -> list[Object]:
    """Return the rules for the wish on the own Job, the numbers of tasks, the Jobs of programs, and the quota.

    Who may patch a StatefulSet can run any image. `statefulsets/scale` has the number alone, and the API server lets
    nobody change the containers of a Job.
    """
    servers = [naming.stateful_set(job_file.name, job) for job in _servers(job_file)]
    programs = [naming.stateful_set(job_file.name, job) for job in _programs(job_file)]
    workload = queue_workload(job_file.name)
    rules = (
        ("batch", "jobs", [own_job], ["get", "patch"]),
        ("batch", "jobs", programs, ["patch"]),
        ("apps", "statefulsets/scale", servers, ["patch"]),
        (workload.group, workload.resource, [workload.name] if job_file.queue else [], ["get", "delete"]),
    )
    return [
        {"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs}
        for group, resource, names, verbs in rules
        if names
    ]


def _drained(job_file: JobFile) -> list[str]:
    return [job.name for job in job_kinds.drained_while_idle(job_file)]


def _servers(job_file: JobFile) -> list[str]:
    return [job.name for job in job_file.jobs if not job.program]


def _programs(job_file: JobFile) -> list[str]:
    return [job.name for job in program_jobs(job_file)]


def _role_binding(job_file: JobFile) -> Object:
    name = naming.lifetime(job_file.name)
    subject = {"kind": "ServiceAccount", "name": name}
    return _object("RoleBinding", "rbac.authorization.k8s.io/v1", job_file) | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [subject],
    }


def _network_policy(job_file: JobFile) -> Object:
    egress = [{"ports": [manifests.port_rule(port) for port in _API_PORTS]}, manifests.dns_rule()]
    if job_kinds.watches_use(job_file):
        tasks = {"podSelector": {"matchLabels": manifests.selector(job_file.name)}}
        egress.append({"to": [tasks], "ports": [manifests.port_rule(pods.activity_port(job_file))]})
    egress += record_place.egress(job_file.history, _API_PORTS)
    return _object("NetworkPolicy", "networking.k8s.io/v1", job_file) | {
        "spec": {"podSelector": {"matchLabels": _labels(job_file)}, "policyTypes": ["Egress"], "egress": egress}
    }


def _record_job(job_file: JobFile, master: Object) -> Object:
    history = job_file.history
    assert history
    template = _template(job_file, master, _variables(job_file) | record_place.variables(history))
    spec = template["spec"]
    spec["terminationGracePeriodSeconds"] = RECORD_GRACE
    spec["volumes"].append({"name": _HISTORY, **record_place.volume(history)})
    container = spec["containers"][0]
    container["volumeMounts"].append({"name": _HISTORY, "mountPath": MOUNT_PATH})
    container["env"] += record_place.keys(history)
    return _job(job_file, template)


def _limits_job(job_file: JobFile, master: Object, record: Object | None) -> Object:
    values = _variables(job_file) | {
        "TFK8S_DRAIN": ",".join(_drained(job_file)) or None, "TFK8S_IDLE": job_file.limits.idle,
        "TFK8S_LEASE": job_file.lease, "TFK8S_MAX_DURATION": job_file.max_duration,
        "TFK8S_QUEUE": None if job_file.limits.suspend is None else job_file.queue,
        "TFK8S_RECORD_JOB": record and record["metadata"]["name"], "TFK8S_SUSPEND": job_file.limits.suspend,
    }  # fmt: skip
    template = _template(job_file, master, values)
    if job_file.limits.suspend is not None:
        template["spec"]["containers"][0]["env"].append(_OWN_JOB)
    job = _job(job_file, template)
    limits = {MAX_DURATION: job_file.max_duration, IDLE: job_file.limits.idle, LEASE: job_file.lease,
              SUSPEND: job_file.limits.suspend}  # fmt: skip
    if annotations := {key: str(value) for key, value in limits.items() if value is not None}:
        job["metadata"]["annotations"] = annotations
    return job


def _variables(job_file: JobFile) -> dict[str, object]:
    """Return the variables that tell the pod of either Job the cluster's objects."""
    return {
        "TFK8S_GANG": "1" if job_file.gang else None, "TFK8S_PROGRAMS": ",".join(_programs(job_file)) or None,
        "TFK8S_SERVERS": ",".join(_servers(job_file)) or None,
    }  # fmt: skip


def _job(job_file: JobFile, template: Object) -> Object:
    job = manifests.new_object("Job", "batch/v1", job_name(job_file.name, template), job_file.name, COMPONENT)
    job["spec"] = {
        "backoffLimit": _MAX_RETRIES,
        "ttlSecondsAfterFinished": job_file.ttl,
        "template": template,
    }
    return job


def job_name(cluster: str, template: Object) -> str:
    """Return the name of a Job. Another pod template gets another Job, because a Job's can't be changed."""
    import hashlib  # both imports take 10 ms, and few clusters have limits
    import json

    text = json.dumps(template, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":  # as Helm writes JSON
        text = text.replace(char, f"\\u{ord(char):04x}")
    words = re.sub("[^A-Za-z0-9]+", "-", text)
    return _name_prefix(cluster) + hashlib.sha256(words.encode()).hexdigest()[:8]


def _name_prefix(cluster: str) -> str:
    return f"{cluster[:40].rstrip('-')}-lifetime-"


def is_job_name(cluster: str, name: str) -> bool:
    """Return whether a name is that of one of the cluster's own Jobs, or of such a Job's pod."""
    return re.fullmatch(rf"{_name_prefix(cluster)}[0-9a-f]{{8}}(-\w+)?", name) is not None


def _template(job_file: JobFile, master: Object, values: Mapping[str, object]) -> Object:
    """Return the pod template of a Job whose program gets these variables."""
    metadata = other_pods.metadata(master, _labels(job_file))
    if metadata.get("annotations", {}).pop(pod_volumes.BUCKET_ANNOTATION, None) and not metadata["annotations"]:
        del metadata["annotations"]
    spec = {key: value for key, value in other_pods.spec(master["spec"]).items() if key not in _OF_OTHERS}
    credentials = {
        "name": "credentials",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ]
        },
    }
    pod = {
        "restartPolicy": "OnFailure",
        "serviceAccountName": naming.lifetime(job_file.name),
        "containers": [_container(job_file, spec["containers"][0], values)],
        "volumes": [next(volume for volume in spec["volumes"] if volume["name"] == "tfk8s"), credentials],
    }
    return {"metadata": metadata, "spec": spec | pod}


def _container(job_file: JobFile, master: Object, values: Mapping[str, object]) -> Object:
    storage = pods.storage(job_file.queue)
    return {
        "name": naming.LIFETIME_CONTAINER,
        **{key: master[key] for key in ("image", "imagePullPolicy") if key in master},
        "command": ["python3", "-m", "tfk8s.task.lifetime"],
        "env": [
            {"name": "PYTHONPATH", "value": pod_volumes.python_path()},
            *(variable for variable in master["env"] if variable["name"] in _VARIABLES),
            *({"name": name, "value": str(value)} for name, value in sorted(values.items()) if value is not None),
        ],
        "resources": {"requests": REQUESTS | storage["requests"], "limits": LIMITS | storage["limits"]},
        "securityContext": master["securityContext"],
        "volumeMounts": [
            next(mount for mount in master["volumeMounts"] if mount["name"] == "tfk8s"),
            {"name": "credentials", "mountPath": _CREDENTIALS_FOLDER, "readOnly": True},
        ],
    }
