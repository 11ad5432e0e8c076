"""What may stand in a job file, key by key; `json_schema` says it to editors and to Helm.

Only these two, `kinds` and `load` import pydantic, which takes longer than all else that a command needs. What concerns
several keys at once is in `checks`.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from tfk8s import spec
from tfk8s.jobfile import fields
from tfk8s.jobfile.kinds import (
    Accelerator,
    Address,
    Cidr,
    ClusterName,
    Count,
    Cpu,
    Duration,
    Env,
    GpuResource,
    Gpus,
    Id,
    Image,
    JobName,
    Label,
    LabelKey,
    LabelValue,
    Module,
    MountPath,
    Name,
    OwnLabelKey,
    Port,
    QueueName,
    Seconds,
    Size,
)

MAX_JOBS = 100
_SOURCES = ("claim", "secret", "config_map", "size")


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


class Volume(_Model):
    """Something mounted into tasks: exactly one of claim, secret, config_map and size."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in _SOURCES]})

    path: MountPath = Field(description="Where it is mounted, an absolute path.", examples=["/data"])
    claim: Name | None = Field(None, description="The name of a PersistentVolumeClaim.", examples=["datasets"])
    secret: Name | None = Field(None, description="The name of a Secret.", examples=["storage-key"])
    config_map: Name | None = Field(None, description="The name of a ConfigMap.", examples=["vocabulary"])
    size: Size | None = Field(
        None, description="An empty folder of at most this size, which goes with the pod.", examples=["10Gi"]
    )
    read_only: bool = Field(False, description="Tasks can't write to it.", examples=[True])

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [kind for kind in _SOURCES if getattr(self, kind) is not None]
        if len(given) != 1:
            message = f"a volume can't have {' and '.join(given)} at once" if given else "this volume has no source"
            raise fields.Refused("bad-volume", message, "expected exactly one of claim, secret, config_map and size")
        return self


class Toleration(_Model):
    """A Kubernetes toleration, as it stands in a pod's spec."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["key"]},
                {"required": ["operator"], "properties": {"operator": {"const": "Exists"}}},
            ],
            "not": {
                "required": ["operator", "value"],
                "properties": {"operator": {"const": "Exists"}, "value": {"minLength": 1}},
            },
            "if": {"required": ["tolerationSeconds"]},
            "then": {"required": ["effect"], "properties": {"effect": {"const": "NoExecute"}}},
        }
    )

    key: LabelKey | None = Field(None, description="The taint's key; all taints where absent.", examples=["dedicated"])
    operator: Literal["Equal", "Exists"] = Field("Equal", description="How value is compared.", examples=["Exists"])
    value: LabelValue | None = Field(None, description="The taint's value, for Equal.", examples=["training"])
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Only taints of this effect; any where absent.", examples=["NoSchedule"]
    )
    seconds: Seconds | None = Field(
        None, alias="tolerationSeconds", description="For how long; for ever where absent.", examples=[300]
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise fields.Refused("bad-toleration", "a toleration without key needs operator: Exists")
        if self.value and self.operator == "Exists":
            raise fields.Refused("bad-toleration", "a toleration with operator: Exists has no value")
        if self.seconds is not None and self.effect != "NoExecute":
            raise fields.Refused("bad-toleration", "tolerationSeconds needs effect: NoExecute")
        return self


class Source(_Model):
    """Who may connect to the cluster: pods, or a range of addresses."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}, {"required": ["cidr"]}],
            "not": {"required": ["cidr"], "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}]},
        }
    )

    namespace: Label | None = Field(
        None, description="Pods of that namespace; the cluster's own where absent.", examples=["notebooks"]
    )
    pods: dict[LabelKey, LabelValue] = Field(
        {}, min_length=1, description="Only pods with these labels.", examples=[{"app": "jupyter"}]
    )
    cidr: Cidr | None = Field(None, description="A range of addresses, alone.", examples=["10.0.0.0/8"])

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.cidr is not None and (self.namespace is not None or self.pods):
            raise fields.Refused("bad-peer", "cidr can't be combined with namespace or pods", "expected one of them")
        if self.cidr is None and self.namespace is None and not self.pods:
            raise fields.Refused("bad-peer", "this says nobody", "expected namespace, pods or cidr")
        return self


class Destination(Source):
    """What tasks and session scripts may connect to: pods, or a range of addresses."""

    ports: list[Port] = Field([], min_length=1, description="Only these ports; all where absent.", examples=[[443]])


class Network(_Model):
    """Exceptions from the default, which is that only the cluster's own pods talk to each other."""

    allow_from: list[Source] = Field(
        [], description="Who else may connect to the tasks.", examples=[[{"namespace": "notebooks"}]]
    )
    allow_to: list[Destination] = Field(
        [],
        description="What tasks and session scripts may connect to, besides the cluster and DNS.",
        examples=[[{"cidr": "0.0.0.0/0", "ports": [443]}]],
    )


class Security(_Model):
    """Who the processes in a pod are."""

    user: Id = Field(65532, description="The user that processes run as; never 0 (root).", examples=[1000])
    group: Id = Field(65532, description="The group that processes run as; never 0 (root).", examples=[1000])
    service_account: Name | None = Field(
        None, description="The pods' ServiceAccount; its token is not mounted.", examples=["trainer"]
    )


class Job(_Model):
    """A named group of like tasks."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["accelerator"]},
            "then": {"required": ["gpus"], "properties": {"gpus": {"minimum": 1}}},
        }
    )

    tasks: Count = Field(1, description="How many tasks the job has.", examples=[4])
    image: Image | None = Field(
        None,
        description="What this job's tasks run in; overrides the cluster's.",
        examples=["registry.example/tf:2.21"],
    )
    cpu: Cpu | None = Field(None, description="Cores of a task: request and limit.", examples=[2, "500m"])
    memory: Size | None = Field(None, description="Memory of a task: request and limit.", examples=["4Gi"])
    gpus: Gpus = Field(0, description="How many GPUs a task gets.", examples=[1])
    gpu_resource: GpuResource = Field(
        "nvidia.com/gpu", description="The resource that GPUs are counted as.", examples=["amd.com/gpu"]
    )
    accelerator: Accelerator | None = Field(
        None, description="The kind of GPU, as GKE's node label names it.", examples=["nvidia-l4"]
    )
    node_selector: dict[LabelKey, LabelValue] = Field(
        {}, description="Labels that a node must have.", examples=[{"disktype": "ssd"}]
    )
    tolerations: list[Toleration] = Field(
        [], description="Taints of nodes that do not matter.", examples=[[{"key": "dedicated", "operator": "Exists"}]]
    )
    env: Env = Field({}, description="Environment variables, over the cluster's.", examples=[{"OMP_NUM_THREADS": "4"}])
    labels: dict[OwnLabelKey, LabelValue] = Field(
        {}, description="Labels for the pods, besides tfk8s' own.", examples=[{"team": "ads"}]
    )
    annotations: dict[OwnLabelKey, str] = Field(
        {}, description="Annotations for the pods.", examples=[{"example.com/owner": "ads@example.com"}]
    )
    volumes: list[Volume] = Field(
        [], description="Volumes besides the cluster's.", examples=[[{"path": "/data", "claim": "datasets"}]]
    )
    preload: list[Module] = Field(
        [],
        description="Python modules that a task imports before it starts its server, for operations of their own.",
        examples=[["tensorflow_text"]],
    )
    port: Port | None = Field(
        None, description="The port of this job's tasks; overrides the cluster's.", examples=[2300]
    )
    spot: bool = Field(False, description="Run on spot capacity.", examples=[True])
    priority: Name | None = Field(None, description="The name of a PriorityClass.", examples=["training"])


def _form(value: object) -> str | None:
    if isinstance(value, dict):
        return "map"
    if isinstance(value, list):
        return "addresses"
    return "count" if isinstance(value, int) and not isinstance(value, bool) else None


JobForm = Annotated[
    Annotated[Count, Tag("count")]
    | Annotated[list[Address], Field(min_length=1, max_length=spec.MAX_TASKS), Tag("addresses")]
    | Annotated[Job, Tag("map")],
    Discriminator(_form, custom_error_type="job_type", custom_error_message="a job"),
]


class JobFile(_Model):
    """One cluster of TensorFlow servers, for tfk8s."""

    model_config = ConfigDict(title="tfk8s job file")

    api_version: Literal["tfk8s.dev/v1"] = Field(
        alias="apiVersion", description="The version of this format.", examples=[spec.API_VERSION]
    )
    name: ClusterName = Field(description="The cluster's name; Kubernetes' names begin with it.", examples=["mnist"])
    jobs: dict[JobName, JobForm] = Field(
        min_length=1,
        max_length=MAX_JOBS,
        description="The ClusterSpec: for each job a number of tasks, more about them, or the addresses of servers "
        "that run already.",
        examples=[{"chief": 1, "ps": {"tasks": 2, "cpu": 2, "memory": "4Gi"}}, {"worker": ["10.0.0.5:2222"]}],
    )
    image: Image | None = Field(
        None,
        description="What tasks run in: any image with TensorFlow in it. Needed on Kubernetes only.",
        examples=["tensorflow/tensorflow:2.21.0"],
    )
    master: str | None = Field(
        None,
        description="The job whose task 0 sessions connect to. Where absent: master, else chief, else worker, else the "
        "first by name.",
        examples=["chief"],
    )
    namespace: Label | None = Field(
        None, description="The namespace in Kubernetes; the context's where absent.", examples=["training"]
    )
    port: Port = Field(
        spec.DEFAULT_PORT,
        description="The port of every task in Kubernetes, and of the first task on this machine.",
        examples=[2222],
    )
    env: Env = Field({}, description="Environment variables of every task.", examples=[{"TF_CPP_MIN_LOG_LEVEL": "1"}])
    volumes: list[Volume] = Field(
        [], description="Volumes of every task.", examples=[[{"path": "/data", "claim": "datasets", "read_only": True}]]
    )
    queue: QueueName | None = Field(None, description="The name of a Kueue LocalQueue.", examples=["team-a"])
    network: Network | None = Field(None, description="Which other connections are allowed.")
    security: Security | None = Field(None, description="Which user and group they run as in a pod.")
    ttl: Duration = Field(
        spec.DEFAULT_TTL, description="How long a finished submit stays, with its log.", examples=["2h", 600]
    )
