"""A dry run of the pods that a change replaces: what the namespace refuses is known before a running task ends."""

from __future__ import annotations

from collections.abc import Iterable

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import admission, containers
from tfk8s.errors import InvalidInput
from tfk8s.render.pods import Object
from tfk8s.render.script_job import OWNERS


def refusal(client: Client, namespace: str, workloads: Iterable[tuple[Object, Object]]) -> InvalidInput | None:
    """Return the error about the first pod that the API server refuses for good; None if it takes all of them.

    Nothing is known of the pods if the user may not create pods, or if a webhook has no dry run. A quota that other
    pods use up says nothing either, because the pods that run now count there too.

    Args:
        workloads: the StatefulSets and the Jobs of programs, before and after the change.
    """
    for before, item in workloads:
        try:
            client.send(
                "POST", paths.collection("Pod", namespace), {"dryRun": "All"}, _pod(before["metadata"]["uid"], item)
            )
        except ApiError as error:
            if admission.is_final(str(error)):
                job = containers.template_variables(item)["TFK8S_JOB"]
                reason = admission.phase_and_reason(job, str(error))[1]
                return InvalidInput(f"new pods of job {job} can't be created: {reason}", help="nothing was changed")
    return None


def _pod(uid: str, item: Object) -> Object:
    """Return a pod of a workload. Policies may refuse pods that no controller owns."""
    name, template = item["metadata"]["name"], item["spec"]["template"]
    owner = {"apiVersion": OWNERS[item["kind"]], "kind": item["kind"], "name": name, "controller": True}
    metadata = {**template["metadata"], "generateName": f"{name}-"}
    metadata["ownerReferences"] = [{**owner, "uid": uid}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
