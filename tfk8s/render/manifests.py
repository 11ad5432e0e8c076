"""The Kubernetes objects of a cluster: a constant number, and two more for each job.

The same input gives the same objects, in the same order. The module reads and writes nothing. The backend applies the
result of `render`, `tfk8s render` prints it, and tests compare the Helm chart with it.
"""

from __future__ import annotations

import base64
import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence

from tfk8s.core import compact, job_kinds, naming, roles
from tfk8s.core.addresses import script_ports
from tfk8s.core.job_file.mappings import Destination, Source
from tfk8s.core.job_kinds import program_jobs
from tfk8s.core.lifetime import SUSPENDED
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.storage import claims
from tfk8s.core.storage.volumes import Volume
from tfk8s.render import gang, kueue, package_files, placement, pod_volumes, pods, program_job
from tfk8s.render.pods import Object

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
TTL = "tfk8s.dev/script-ttl"
JOBS = "tfk8s.dev/jobs"
WARM = "tfk8s.dev/warm"
SCRIPT_RESOURCES = "tfk8s.dev/script-resources"
_OF_SETS = (TTL, JOBS, WARM, SCRIPT_RESOURCES, pods.GRACE)  # annotations of StatefulSets
WARM_VALUES = {True: "true", False: "false", None: "on-demand"}
SUCCESS = "tfk8s.dev/run-success"
DIGEST = "tfk8s.dev/zip-sha256"

SCRIPT = "session-script"  # the component of scripts' pods; no job's DNS name is this, as it would end in a hash

_DNS_PORT = 53
# The DNS servers run in this namespace, or on the node at one of these addresses, which no selector matches: NodeLocal
# DNSCache, and GKE's Cloud DNS.
_DNS_NAMESPACE = "kube-system"
_NODE_DNS = ("169.254.20.10/32", "169.254.169.254/32")


def render(job_file: JobFile, package: bytes, namespace: str | None = None, parts: Sequence[str] = ()) -> list[Object]:
    """Return the objects in the order in which they are applied: policies and volumes first.

    Args:
        job_file: the cluster. Each job must have an image, and no job may have addresses.
        package: the zip that tasks run.
        namespace: overrides the namespace of the job file. If both are None, the objects have no namespace.
        parts: program_secrets of `render.objects`.
    """
    servers = [job for job in job_file.jobs if not job.program]
    workloads = [_stateful_set(job_file, job) for job in servers]
    workloads += (_program_job(job_file, job, parts) for job in program_jobs(job_file))
    objects = [
        *(_claim(job_file, volume) for volume in claims.claims_to_make(job_file)),
        _network_policy(job_file),
        _config_map(job_file, package),
        _headless_service(job_file),
        *([_master_service(job_file)] if job_kinds.has_target(job_file) else ()),
        *([pod_group(job_file.name, workloads)] if job_file.gang else ()),
        *workloads,
        # A budget before its pods causes a warning.
        *(_disruption_budget(job_file, job) for job in servers if job_file.drain != roles.ALLOW),
    ]
    if namespace := namespace or job_file.namespace:
        for item in objects:
            item["metadata"]["namespace"] = namespace
    return objects


def selector(cluster: str) -> dict[str, str]:
    """Return the labels of all objects and pods of a cluster, which do not depend on the program that applies them."""
    return {NAME: "tfk8s", INSTANCE: cluster}


def job_selector(cluster: str, job: str) -> dict[str, str]:
    """Return the labels of one job's pods."""
    return {**selector(cluster), COMPONENT: naming.dns_label(job)}


def new_object(kind: str, version: str, name: str, cluster: str, component: str | None = None) -> Object:
    """Return the head of an object of a cluster."""
    labels = selector(cluster) | ({COMPONENT: component} if component else {}) | {MANAGED_BY: "tfk8s"}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}}


def _claim(job_file: JobFile, volume: Volume) -> Object:
    claim = new_object("PersistentVolumeClaim", "v1", volume.claim or "", job_file.name)
    claim["metadata"]["annotations"] = dict(pod_volumes.KEEP)
    return claim | {"spec": pod_volumes.claim_spec(volume)}


def _config_map(job_file: JobFile, package: bytes) -> Object:
    made = new_object("ConfigMap", "v1", job_file.name, job_file.name)
    made["metadata"]["annotations"] = {DIGEST: hashlib.sha256(package).hexdigest()}
    return made | {"binaryData": {package_files.KEY: base64.b64encode(package).decode()}}


def _headless_service(job_file: JobFile) -> Object:
    return new_object("Service", "v1", job_file.name, job_file.name) | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # tasks find each other before they are ready
            "selector": selector(job_file.name),
            "ports": [{"name": f"grpc-{port}", "port": port, "targetPort": port} for port in pods.ports(job_file)],
        }
    }


def _master_service(job_file: JobFile) -> Object:
    port = pods.port(job_file, job_file.job(job_file.master))
    return new_object("Service", "v1", naming.master_service(job_file.name), job_file.name) | {
        "spec": {
            "selector": selector(job_file.name) | {"statefulset.kubernetes.io/pod-name": pods.master_pod(job_file)},
            "ports": [{"name": "grpc", "port": port, "targetPort": port}],
        }
    }


def pod_group(cluster: str, workloads: Sequence[Object]) -> Object:
    """Return the PodGroup of a cluster's StatefulSets and Jobs of programs: all their tasks start together."""
    return new_object(gang.KIND, gang.VERSION, cluster, cluster) | {
        "spec": gang.spec(map(task_count, workloads), workloads[0])
    }


def _stateful_set(job_file: JobFile, job: Job) -> Object:
    labels = job_selector(job_file.name, job.name)
    name = naming.stateful_set(job_file.name, job.name)
    stateful_set = new_object("StatefulSet", "apps/v1", name, job_file.name, naming.dns_label(job.name))
    stateful_set["metadata"]["annotations"] = {TTL: str(job_file.ttl)}
    if job_kinds.is_elastic(job_file):
        stateful_set["metadata"]["annotations"][JOBS] = compact.format_ports(pods.sizes(job_file))
    stateful_set["metadata"]["annotations"][WARM] = WARM_VALUES[job_file.warm]
    if job_file.script:
        stateful_set["metadata"]["annotations"][SCRIPT_RESOURCES] = str(job_file.script)
    if job_file.grace is not None:
        stateful_set["metadata"]["annotations"][pods.GRACE] = str(job_file.grace)
    stateful_set["spec"] = {
        "replicas": job.tasks,
        "serviceName": job_file.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": dict(labels)},
        "template": kueue.in_queue(job_file, job, pods.template(job_file, job, labels)),
    }
    return stateful_set


def _program_job(job_file: JobFile, job: Job, secret_names: Sequence[str]) -> Object:
    labels = job_selector(job_file.name, job.name)
    name = naming.stateful_set(job_file.name, job.name)
    made = new_object("Job", "batch/v1", name, job_file.name, naming.dns_label(job.name))
    if job_file.run.success:
        made["metadata"]["annotations"] = {SUCCESS: job_file.run.success}
    template = pods.template(job_file, job, labels, secret_names or [program_job.secret_name(job_file.name)])
    return made | {"spec": program_job.spec(job_file, job, kueue.in_queue(job_file, job, template))}


def is_program(item: Object) -> bool:
    """Return whether an object is the Job of a program, and not of a script or of the limits."""
    return bool(item["kind"] == "Job" and item["spec"].get("completionMode") == "Indexed")


def has_tasks(item: Object) -> bool:
    """Return whether an object is a StatefulSet or the Job of a program, whose pods are tasks."""
    return item["kind"] == "StatefulSet" or is_program(item)


def task_count(workload: Object) -> int:
    """Return the number of tasks of a StatefulSet or of a program's Job."""
    spec = workload["spec"]
    return int(spec["replicas"] if "replicas" in spec else spec["completions"])


def scaled(workload: Object, tasks: Mapping[str, int]) -> Object:
    """Return a job's StatefulSet or its program's Job, ready to be applied, with new numbers of tasks.

    Args:
        workload: the object from the API server.
        tasks: the new numbers of tasks of some of the cluster's jobs; empty for the same object again.
    """
    metadata = workload["metadata"]
    is_job = workload["kind"] == "Job"
    of_others = (program_job.CONTROLLER_PREFIX, naming.RUN_END, SUSPENDED)
    annotations = {
        name: value
        for name, value in metadata.get("annotations", {}).items()
        if name in _OF_SETS or (is_job and not name.startswith(of_others))
    }
    spec = program_job.own_spec(workload) if is_job else copy.deepcopy(workload["spec"])
    spec["template"] = placement.anywhere(spec["template"])
    variables = {variable["name"]: variable for variable in spec["template"]["spec"]["containers"][0]["env"]}
    if "TFK8S_JOBS" in variables:
        variables["TFK8S_JOBS"]["value"] = compact.scale_jobs(variables["TFK8S_JOBS"]["value"], tasks)
    job = variables["TFK8S_JOB"]["value"]
    if job in tasks:
        spec |= dict.fromkeys(("completions", "parallelism") if is_job else ("replicas",), tasks[job])
    return {
        "apiVersion": "batch/v1" if is_job else "apps/v1",
        "kind": workload["kind"],
        "metadata": {"name": metadata["name"], "labels": metadata["labels"]}
        | ({"annotations": annotations} if annotations else {}),
        "spec": spec,
    }


def _disruption_budget(job_file: JobFile, job: Job) -> Object:
    """Return the budget of a job: no pod that keeps state, and one pod at a time of other jobs.

    The cluster's own Job sets the number of the budgets that it opens while the cluster idles. Kubernetes allows no
    eviction as long as a budget has no number. An `up` leaves what it does not set.
    """
    name = naming.stateful_set(job_file.name, job.name)
    spec: Object = {"selector": {"matchLabels": job_selector(job_file.name, job.name)}}
    if job not in job_kinds.drained_while_idle(job_file):
        spec["maxUnavailable"] = 0 if roles.keeps_state(job.name, job_file.master) else 1
    return new_object("PodDisruptionBudget", "policy/v1", name, job_file.name, naming.dns_label(job.name)) | {
        "spec": spec
    }


# ---- allowed connections -------------------------------------------------------------------------------------------


def _network_policy(job_file: JobFile) -> Object:
    def cluster() -> Object:
        return {"podSelector": {"matchLabels": selector(job_file.name)}}

    def ports() -> list[Object]:
        return [port_rule(number) for number in pods.ports(job_file)]

    readers = job_file.metrics.readers if job_file.metrics else ()
    scripts = script_ports(pods.port(job_file, job_file.job(job_file.master)))
    of_scripts = {**port_rule(scripts.start), "endPort": scripts.stop - 1}
    of_restarts = [port_rule(port) for port in [pods.restarts_port(job_file)] if port]
    between_pods = [*ports(), *of_restarts, of_scripts]
    # NCCL connects the GPUs of a strategy's replicas, and listens on ports that the kernel chooses.
    own_ports = {} if any(job.program and job.gpus for job in job_file.jobs) else {"ports": between_pods}
    spec: Object = {
        "podSelector": {"matchLabels": selector(job_file.name)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [cluster()], **copy.deepcopy(own_ports)},
            *({"from": [_peer(peer)], "ports": ports()} for peer in job_file.network.allow_from),
            *({"from": [_peer(peer)], "ports": [port_rule(pods.metrics_port(job_file))]} for peer in readers),
        ],
    }
    # Policies add up: a rule that allows every destination would also open what an administrator's policy closes.
    if job_file.network.allow_to is not None:
        spec["policyTypes"].append("Egress")
        spec["egress"] = [
            {"to": [cluster()], **copy.deepcopy(own_ports)},
            dns_rule(),
            *_allowed_out(job_file.network.allow_to),
        ]
    return new_object("NetworkPolicy", "networking.k8s.io/v1", job_file.name, job_file.name) | {"spec": spec}


def dns_rule() -> Object:
    """Return the rule of a NetworkPolicy that allows connections to DNS."""
    return {
        "to": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": _DNS_NAMESPACE}}},
            *({"ipBlock": {"cidr": address}} for address in _NODE_DNS),
        ],
        "ports": [port_rule(_DNS_PORT, "UDP"), port_rule(_DNS_PORT)],
    }


def _allowed_out(peers: Sequence[Destination]) -> Iterator[Object]:
    for peer in peers:
        rule: Object = {"to": [_peer(peer)]}
        if peer.ports:
            rule["ports"] = [port_rule(number) for number in peer.ports]
        yield rule


def _peer(peer: Source) -> Object:
    if peer.cidr:
        return {"ipBlock": {"cidr": peer.cidr} | ({"except": list(peer.except_)} if peer.except_ else {})}
    selectors: Object = {}
    if peer.namespace:
        selectors["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": peer.namespace}}
    if peer.pods:
        selectors["podSelector"] = {"matchLabels": dict(peer.pods)}
    return selectors


def port_rule(number: int, protocol: str = "TCP") -> Object:
    """Return a port of a NetworkPolicy's rule."""
    return {"protocol": protocol, "port": number}
