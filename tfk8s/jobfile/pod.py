"""The key `pod` of a job file: a part of a pod's spec, without what tfk8s needs and what security forbids."""

from __future__ import annotations

from typing import Any

from tfk8s.core import naming
from tfk8s.jobfile import types
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.kubernetes_values import OpenStruct
from tfk8s.jobfile.types import Choice, Constant
from tfk8s.jobfile.validation import Container, Key, List, Map, Struct, Validator
from tfk8s.jobfile.values import RESTRICTED

_SET_BY_TFK8S = "tfk8s sets it"
_NO_CREDENTIALS = "the pods get no token of their ServiceAccount"
_NAMES = "tasks find each other by their pods' names"

CAPABILITIES = Struct(
    "Capabilities",
    "The Linux capabilities of a container.",
    {
        "add": Key(List(Choice("NET_BIND_SERVICE")), "The added capabilities.", ["NET_BIND_SERVICE"]),
        "drop": Key(List(Choice("ALL"), minimum=1), "The dropped capabilities.", ["ALL"]),
    },
)

SECCOMP_PROFILE = Struct(
    "SeccompProfile",
    "The seccomp profile.",
    {
        "type": Key(Choice("RuntimeDefault", "Localhost"), "The kind of profile.", "Localhost", required=True),
        "localhostProfile": Key(types.TEXT, "The path of a profile on the node.", "profiles/audit.json"),
    },
)

CONTAINER_SECURITY = Struct(
    "ContainerSecurity",
    "The securityContext of a container, within the pod security standard `restricted`.",
    {
        "readOnlyRootFilesystem": Key(types.BOOLEAN, "Forbid writes to the image's folders.", False),
        "runAsUser": Key(types.ID, "The user ID.", 1000),
        "runAsGroup": Key(types.ID, "The group ID.", 1000),
        "runAsNonRoot": Key(Constant(True), "The user is not root.", True),
        "allowPrivilegeEscalation": Key(Constant(False), "Processes can't gain privileges.", False),
        "privileged": Key(Constant(False), "The container is not privileged.", False),
        "capabilities": Key(CAPABILITIES, "The Linux capabilities."),
        "seccompProfile": Key(SECCOMP_PROFILE, "The seccomp profile."),
    },
)

POD_SECURITY = Struct(
    "PodSecurity",
    "The securityContext of a pod, within the pod security standard `restricted`.",
    {
        "runAsNonRoot": Key(Constant(True), "The user is not root.", True),
        "fsGroupChangePolicy": Key(Choice("Always", "OnRootMismatch"), "The check of volumes' owners.", "Always"),
        "supplementalGroups": Key(List(types.ID), "Additional group IDs of the processes.", [2000]),
        "seccompProfile": Key(SECCOMP_PROFILE, "The seccomp profile."),
    },
)
POD_SECURITY.misplaced = dict.fromkeys(("runAsUser",), "write security: {user: …}")
POD_SECURITY.misplaced |= dict.fromkeys(("runAsGroup", "fsGroup"), "write security: {group: …}")

_HOST_VOLUMES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume",
    "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip

_PROJECTED_SOURCE = OpenStruct(
    "ProjectedSource",
    "A source of files of a projected volume, with the keys that it has in a pod's spec.",
    {},
    reserved={"serviceAccountToken": _NO_CREDENTIALS},
)
_PROJECTED = OpenStruct(
    "ProjectedVolume",
    "Files of several sources in one volume, with the keys that it has in a pod's spec.",
    {"sources": Key(List(_PROJECTED_SOURCE), "The sources.", [{"secret": {"name": "keys"}}])},
)
POD_VOLUME = OpenStruct(
    "PodVolume",
    "A volume of the pods, with the keys that it has in a pod's spec.",
    {
        "name": Key(types.VOLUME_NAME, "The volume's name.", "model", required=True),
        "projected": Key(_PROJECTED, "Files of several sources.", {"sources": [{"secret": {"name": "keys"}}]}),
    },
    reserved=dict.fromkeys(_HOST_VOLUMES, f"{RESTRICTED}; use a PersistentVolumeClaim"),
)

_AMOUNTS = Map(types.RESOURCE, types.AMOUNT)
RESOURCES = OpenStruct(
    "Resources",
    "The resources of a container, with the keys that they have in a pod's spec.",
    {
        "requests": Key(_AMOUNTS, "The requested amounts.", {"cpu": "50m"}),
        "limits": Key(_AMOUNTS, "The limits.", {"rdma/hca": 1}),
    },
)

_VARIABLE = OpenStruct(
    "ServerVariable",
    "A variable of the server, with the keys that it has in a pod's spec.",
    {"name": Key(types.POD_ENV_NAME, "The variable's name.", "NODE_NAME", required=True)},
)
_MOUNT = OpenStruct(
    "ServerMount",
    "A mounted volume of the server, with the keys that it has in a pod's spec.",
    {"mountPath": Key(types.MOUNT_PATH, "The path at which the server mounts the volume.", "/model", required=True)},
)
_REQUEST = OpenStruct("Request", "A connection to the container.", {}, reserved={"host": RESTRICTED})
_REQUESTS = {
    "httpGet": Key(_REQUEST, "A request by HTTP.", {"port": 8080}),
    "tcpSocket": Key(_REQUEST, "A connection by TCP.", {"port": 8080}),
}
_PROBE = OpenStruct("Probe", "A probe, with the keys that it has in a pod's spec.", _REQUESTS)
_HOOK = OpenStruct("Hook", "A lifecycle hook, with the keys that it has in a pod's spec.", _REQUESTS)
_LIFECYCLE = OpenStruct(
    "Lifecycle",
    "What happens at a container's start and end, with the keys that it has in a pod's spec.",
    {
        "postStart": Key(_HOOK, "The hook after the start.", {"httpGet": {"port": 8080}}),
        "preStop": Key(_HOOK, "The hook before the end.", {"httpGet": {"port": 8080}}),
    },
)
_LIVENESS = {
    "livenessProbe": Key(_PROBE, "The probe whose failure restarts the container.", {"httpGet": {"port": 8080}}),
    "lifecycle": Key(_LIFECYCLE, "The hooks of the container.", {"preStop": {"httpGet": {"port": 8080}}}),
}
SERVER_CONTAINER = OpenStruct(
    "ServerContainer",
    "The container of a task's server.",
    {
        "name": Key(Choice(naming.SERVER_CONTAINER), "The container's name.", naming.SERVER_CONTAINER, required=True),
        "env": Key(List(_VARIABLE, unique="name"), "Variables.", [{"name": "NODE_NAME"}]),
        "volumeMounts": Key(
            List(_MOUNT, unique="mountPath"), "Mounted volumes.", [{"name": "model", "mountPath": "/model"}]
        ),
        "resources": Key(RESOURCES, "The resources, besides those that have fields."),
        "securityContext": Key(CONTAINER_SECURITY, "The container's security."),
        **_LIVENESS,
    },
    reserved={
        "image": "write image as a key of the job",
        "command": _SET_BY_TFK8S,
        "args": _SET_BY_TFK8S,
        "ports": "write port as a key of the job",
        "readinessProbe": _SET_BY_TFK8S,
        "startupProbe": _SET_BY_TFK8S,
        "terminationMessagePath": _SET_BY_TFK8S,
    },
)

_PORT = OpenStruct(
    "SidecarPort",
    "A port of an additional container, with the keys that it has in a pod's spec.",
    {"containerPort": Key(types.PORT, "The port.", 9100, required=True)},
    reserved={"hostPort": RESTRICTED},
)
SIDECAR = OpenStruct(
    "Sidecar",
    "An additional container, with the keys that it has in a pod's spec.",
    {
        "name": Key(types.CONTAINER_NAME, "The container's name.", "proxy", required=True),
        "ports": Key(List(_PORT), "The ports.", [{"containerPort": 9100}]),
        "resources": Key(RESOURCES, "The container's resources."),
        "securityContext": Key(CONTAINER_SECURITY, "The container's security."),
        "readinessProbe": Key(_PROBE, "The probe whose failure makes the pod unready.", {"httpGet": {"port": 8080}}),
        "startupProbe": Key(_PROBE, "The probe before the others.", {"httpGet": {"port": 8080}}),
        **_LIVENESS,
    },
)


class _ContainerForm(Container):
    """The container of a task's server, by its name, or an additional container."""

    accepts = (dict,)
    expected = "a mapping"
    json_schema: dict[str, Any] = {  # noqa: RUF012 - nobody changes it
        "if": {"type": "object", "properties": {"name": {"const": naming.SERVER_CONTAINER}}, "required": ["name"]},
        "then": SERVER_CONTAINER.json_schema,
        "else": SIDECAR.json_schema,
    }

    def read_entries(self, entries: Any, path: Path, validator: Validator, /) -> Any:
        """Return the container."""
        struct = SERVER_CONTAINER if entries.get("name") == naming.SERVER_CONTAINER else SIDECAR
        return struct.read_entries(entries, path, validator)


POD_TOLERATION = OpenStruct(
    "PodToleration",
    "A toleration, with the keys that it has in a pod's spec.",
    {
        "key": Key(types.TEXT, "The key of the taint.", "dedicated"),
        "operator": Key(types.TEXT, "The comparison with the taint's value.", "Exists"),
        "value": Key(types.TEXT, "The value of the taint.", "training"),
        "effect": Key(types.TEXT, "The effect of the taint.", "NoSchedule"),
    },
)

_TOPOLOGY_RULE = OpenStruct(
    "TopologyRule",
    "A rule about the pods in a part of the topology, with the keys that it has in a pod's spec.",
    {"topologyKey": Key(types.TEXT, "The label of nodes that names the part.", "topology.kubernetes.io/zone")},
)
_POD_AFFINITY = OpenStruct(
    "PodAffinity",
    "The affinity to other pods, with the keys that it has in a pod's spec.",
    {
        "requiredDuringSchedulingIgnoredDuringExecution": Key(
            List(_TOPOLOGY_RULE), "The required rules.", [{"topologyKey": "topology.kubernetes.io/zone"}]
        )
    },
)
AFFINITY = OpenStruct(
    "Affinity",
    "The affinity of the pods, with the keys that it has in a pod's spec.",
    {"podAffinity": Key(_POD_AFFINITY, "The affinity to other pods.")},
)

POD = OpenStruct(
    "Pod",
    "A part of a pod's spec, which is merged into the spec of the pods as `kubectl patch` does.",
    {
        "containers": Key(
            List(_ContainerForm(), unique="name"),
            "Changes of the container `server`, and additional containers of tasks.",
            [{"name": "proxy", "image": "registry.example/proxy:1"}],
        ),
        "initContainers": Key(
            List(SIDECAR, unique="name"),
            "Containers that end before the task starts or, with restartPolicy: Always, run beside it.",
            [{"name": "download", "image": "registry.example/download:1"}],
        ),
        "volumes": Key(List(POD_VOLUME, unique="name"), "Additional volumes.", [{"name": "model", "emptyDir": {}}]),
        "securityContext": Key(POD_SECURITY, "The pod's security."),
        "nodeSelector": Key(
            Map(types.LABEL_KEY, types.LABEL_VALUE), "Additional labels that a node must have.", {"disktype": "ssd"}
        ),
        "tolerations": Key(List(POD_TOLERATION), "Additional tolerations.", [{"key": "dedicated"}]),
        "affinity": Key(AFFINITY, "The affinity."),
        "topologySpreadConstraints": Key(
            List(_TOPOLOGY_RULE), "The constraints.", [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1}]
        ),
        "resources": Key(RESOURCES, "The resources of the pod as a whole."),
    },
    reserved={
        "metadata": "write labels and annotations as keys beside pod",
        "spec": "write the keys of the pod's spec below pod",
        "restartPolicy": _SET_BY_TFK8S,
        "enableServiceLinks": _SET_BY_TFK8S,
        "terminationGracePeriodSeconds": "programs and scripts have a top-level key for it, as in grace: 30s",
        "activeDeadlineSeconds": "tasks run until `tfk8s down`",
        "shareProcessNamespace": "the server must be process 1 of its container",
        "ephemeralContainers": "Kubernetes adds them to running pods only",
        "automountServiceAccountToken": _NO_CREDENTIALS,
        "serviceAccount": "write security: {service_account: …}",
        "serviceAccountName": "write security: {service_account: …}",
        "hostname": _NAMES,
        "subdomain": _NAMES,
        "setHostnameAsFQDN": _NAMES,
        "hostNetwork": RESTRICTED,
        "hostPID": RESTRICTED,
        "hostIPC": RESTRICTED,
    },
)
