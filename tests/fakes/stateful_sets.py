"""The StatefulSets of a cluster, as tfk8s renders them."""

from __future__ import annotations

from tfk8s import render
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.render.pods import Object

JOB_FILE = JobFile(
    name="demo", image="tf:1", master="chief", queue="gold", ttl=60, namespace="ns",
    jobs=(
        Job(
            name="chief", gpus=1, accelerator="nvidia-l4", cpu=Quantity.parse("2"), memory=Quantity.parse("8Gi"),
            preload=("ops",),
        ),
        Job(name="My_ps", tasks=2, port=2300),
    ),
)  # fmt: skip


def stateful_sets() -> list[Object]:
    """Return them, the master's first."""
    found = [item for item in render.objects(JOB_FILE) if item["kind"] == "StatefulSet"]
    for item in found:
        item["metadata"]["uid"] = f"uid of {item['metadata']['name']}"
    return found
