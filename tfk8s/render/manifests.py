"""The Kubernetes objects of a cluster: a constant number, and two more for each job, however many tasks it has.

The same input gives the same objects, in the same order; nothing is read or written here. `render` is the truth that
the backend applies, `tfk8s render` prints, and the Helm chart is compared with.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tfk8s.core import compact, naming
from tfk8s.core.spec import Job, JobFile, Peer
from tfk8s.render import package_files, pods
from tfk8s.render.pods import Object

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
TTL = "tfk8s.dev/script-ttl"
QUEUE = "kueue.x-k8s.io/queue-name"

SCRIPT = "session-script"  # the component of pods that run one; no job has it, for its DNS name would end in a hash

# A ps or master that restarts loses variables or sessions: nodes are not drained under it. Of others, one may go.
_KEPT = ("chief", "master", "ps")
_DNS_PORT = 53
# The cluster's DNS runs in this namespace, or on the node itself at one of these addresses, which no selector finds:
# NodeLocal DNSCache, and GKE's Cloud DNS.
_DNS_NAMESPACE = "kube-system"
_NODE_DNS = ("169.254.20.10/32", "169.254.169.254/32")


def render(job_file: JobFile, files: Mapping[str, str], namespace: str | None = None) -> list[Object]:
    """Return the objects, in the order in which they are applied: what restricts and what is mounted comes first.

    Args:
        job_file: the cluster; its jobs have no addresses, and an image each.
        files: the text of each file that tasks run, by its path in the package.
        namespace: overrides the job file's; with neither, the objects name none and go where they are applied.
    """
    objects = [
        _network_policy(job_file),
        _config_map(job_file, files),
        _headless_service(job_file),
        _master_service(job_file),
        *(_stateful_set(job_file, job, files) for job in job_file.jobs),
        *(_disruption_budget(job_file, job) for job in job_file.jobs),  # before its pods it would warn of none
    ]
    if where := namespace or job_file.namespace:
        for made in objects:
            made["metadata"]["namespace"] = where
    return objects


def selector(cluster: str) -> dict[str, str]:
    """Return the labels that all objects and pods of a cluster have, whoever applied them."""
    return {NAME: "tfk8s", INSTANCE: cluster}


def job_selector(cluster: str, job: str) -> dict[str, str]:
    """Return the labels of one job's pods."""
    return {**selector(cluster), COMPONENT: naming.dns_label(job)}


def _object(kind: str, version: str, name: str, cluster: str, component: str | None = None) -> Object:
    labels = selector(cluster)
    if component:
        labels[COMPONENT] = component
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "labels": {**labels, MANAGED_BY: "tfk8s"}},
    }


def _config_map(job_file: JobFile, files: Mapping[str, str]) -> Object:
    data = {package_files.key(path): text for path, text in files.items()}
    return _object("ConfigMap", "v1", job_file.name, job_file.name) | {"data": data}


def _headless_service(job_file: JobFile) -> Object:
    return _object("Service", "v1", job_file.name, job_file.name) | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # tasks find each other before they are ready
            "selector": selector(job_file.name),
            "ports": [{"name": f"grpc-{port}", "port": port, "targetPort": port} for port in pods.ports(job_file)],
        }
    }


def _master_service(job_file: JobFile) -> Object:
    port = pods.port(job_file, job_file.job(job_file.master))
    return _object("Service", "v1", naming.master_service(job_file.name), job_file.name) | {
        "spec": {
            "selector": {
                **selector(job_file.name),
                "statefulset.kubernetes.io/pod-name": pods.master_pod(job_file),
            },
            "ports": [{"name": "grpc", "port": port, "targetPort": port}],
        }
    }


def _stateful_set(job_file: JobFile, job: Job, files: Iterable[str]) -> Object:
    labels = job_selector(job_file.name, job.name)
    name = naming.stateful_set(job_file.name, job.name)
    made = _object("StatefulSet", "apps/v1", name, job_file.name, naming.dns_label(job.name))
    made["metadata"]["annotations"] = {TTL: str(job_file.ttl)}
    if job_file.queue:
        made["metadata"]["labels"][QUEUE] = job_file.queue
    made["spec"] = {
        "replicas": job.tasks,
        "serviceName": job_file.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": dict(labels)},
        "template": pods.template(job_file, job, labels, files),
    }
    return made


def scaled(stateful_set: Object, tasks: Mapping[str, int]) -> Object:
    """Return what to apply to a job's StatefulSet, as it was found, so that the cluster's jobs have so many tasks."""
    found = stateful_set["metadata"]
    annotations = {name: value for name, value in found.get("annotations", {}).items() if name == TTL}
    made: Object = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": found["name"], "labels": found["labels"], "annotations": annotations},
        "spec": copy.deepcopy(stateful_set["spec"]),
    }
    template = made["spec"]["template"]
    variables = {variable["name"]: variable for variable in template["spec"]["containers"][0]["env"]}
    variables["TFK8S_JOBS"]["value"] = compact.scaled_cluster(variables["TFK8S_JOBS"]["value"], tasks)
    job = variables["TFK8S_JOB"]["value"]
    if job in tasks:
        made["spec"]["replicas"] = tasks[job]
        template["spec"].pop("affinity", None)
        template["spec"] |= pods.spread(tasks[job], made["spec"]["selector"]["matchLabels"])
    return made


def _disruption_budget(job_file: JobFile, job: Job) -> Object:
    name = naming.stateful_set(job_file.name, job.name)
    kept = job.name in _KEPT or job.name == job_file.master
    return _object("PodDisruptionBudget", "policy/v1", name, job_file.name, naming.dns_label(job.name)) | {
        "spec": {
            "maxUnavailable": 0 if kept else 1,
            "selector": {"matchLabels": job_selector(job_file.name, job.name)},
        }
    }


# ---- who may connect to whom ---------------------------------------------------------------------------------------


def _network_policy(job_file: JobFile) -> Object:
    def own() -> Object:
        return {"podSelector": {"matchLabels": selector(job_file.name)}}

    def ports() -> list[Object]:
        return [_port(number) for number in pods.ports(job_file)]

    return _object("NetworkPolicy", "networking.k8s.io/v1", job_file.name, job_file.name) | {
        "spec": {
            "podSelector": {"matchLabels": selector(job_file.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [own()], "ports": ports()},
                *({"from": [_peer(peer)], "ports": ports()} for peer in job_file.network.allow_from),
            ],
            "egress": [
                {"to": [own()], "ports": ports()},
                _dns(),
                *_allowed_out(job_file.network.allow_to),
            ],
        }
    }


def _dns() -> Object:
    return {
        "to": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": _DNS_NAMESPACE}}},
            *({"ipBlock": {"cidr": address}} for address in _NODE_DNS),
        ],
        "ports": [_port(_DNS_PORT, "UDP"), _port(_DNS_PORT)],
    }


def _allowed_out(peers: Sequence[Peer]) -> Iterator[Object]:
    for peer in peers:
        rule: Object = {"to": [_peer(peer)]}
        if peer.ports:
            rule["ports"] = [_port(number) for number in peer.ports]
        yield rule


def _peer(peer: Peer) -> Object:
    if peer.cidr:
        return {"ipBlock": {"cidr": peer.cidr}}
    found: Object = {}
    if peer.namespace:
        found["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": peer.namespace}}
    if peer.pods:
        found["podSelector"] = {"matchLabels": dict(peer.pods)}
    return found


def _port(number: int, protocol: str = "TCP") -> Object:
    return {"protocol": protocol, "port": number}
