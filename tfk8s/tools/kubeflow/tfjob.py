"""A TFJob of Kubeflow's training-operator: its replicas, and the rules of its run.

Fields and their meaning are those of training-operator 1.8; before v1, the fields of `runPolicy` were those of `spec`.
"""

from __future__ import annotations

from typing import Any

from tfk8s.core import programs
from tfk8s.core.roles import EVALUATOR
from tfk8s.errors import JobFileError
from tfk8s.jobfile import syntax, types
from tfk8s.render import tfjob
from tfk8s.tools.kubeflow import pod
from tfk8s.tools.kubeflow.draft import Draft, Notes
from tfk8s.tools.kubeflow.fields import Fields

VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v1beta2", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha2")
KIND = "TFJob"

_MAX_RESTARTS = 1000  # of a job file
_JOBS = {kind.lower(): job for job, kind in tfjob.REPLICA_TYPES.items()}
_RESTART_ON = {policy: ends for ends, policy in tfjob.RESTART_POLICIES.items()} | {"Always": programs.FAILURE}
_SUCCESS_POLICIES = ("", "AllWorkers")
_DECIDING = ("chief", "master", "worker")


def read(job: Fields, notes: Notes) -> tuple[dict[str, Any], list[Draft]]:
    """Return the keys of the job file and the drafts of its jobs, in the order of the file.

    Args:
        job: the TFJob.
        notes: what gets lost.
    """
    spec = job.fields("spec")
    policy = spec.fields("runPolicy") if "runPolicy" in spec else spec
    keys: dict[str, Any] = {}
    restarts: dict[str, str] = {}
    drafts = _drafts(spec.fields("tfReplicaSpecs"), restarts, notes)
    if not drafts:
        raise spec.error("tfReplicaSpecs", "this TFJob has no replicas", "expected tfReplicaSpecs with a Worker")
    run = _restarts(restarts, policy, notes)
    _read_run_policy(policy, keys, run, drafts, notes)
    success_policy = spec.text("successPolicy")
    if success_policy not in _SUCCESS_POLICIES:
        label = f"expected {_SUCCESS_POLICIES[-1]}, or no successPolicy"
        raise spec.error("successPolicy", f'successPolicy can\'t be "{success_policy}"', label)
    if success := _success(drafts, success_policy):
        run["success"] = success
    if spec.flag("enableDynamicWorker"):
        notes.add("enableDynamicWorker: the TF_CONFIG of each task names all workers")
    for fields, path in ((spec, "spec"), (policy, "spec.runPolicy")):
        known = fields.taken
        for key in fields.rest():
            near = syntax.nearest(key, known, 0.8)
            notes.add(f"{path}.{key} has no counterpart" + (f"; did you mean {near}?" if near else ""))
    return {**keys, **({"run": run} if run else {})}, drafts


def _drafts(replicas: Fields, restarts: dict[str, str], notes: Notes) -> list[Draft]:
    """Return the drafts of the replica types; raises one error with the problems of all of them."""
    drafts: list[Draft | None] = []
    errors: list[JobFileError] = []
    for kind in replicas.keys:
        try:
            drafts.append(_replica(replicas, kind, restarts, notes))
        except JobFileError as error:
            errors.append(error)
    if errors:
        raise JobFileError(errors[0].file, [problem for error in errors for problem in error.problems])
    return [draft for draft in drafts if draft is not None]


def _replica(replicas: Fields, kind: str, restarts: dict[str, str], notes: Notes) -> Draft | None:
    """Return the draft of a replica type's job, or None if it has no replicas."""
    name = _JOBS.get(kind.lower())
    if name is None:
        label = f"expected {', '.join(tfjob.REPLICA_TYPES.values())}"
        raise replicas.key_error(kind, f'"{kind}" is no replica type of a TFJob', label)
    if name in restarts:
        raise replicas.key_error(kind, f'the replica type "{kind}" is given twice', "expected each type once")
    replica = replicas.fields(kind)
    policy = restarts[name] = replica.text("restartPolicy", "Never")
    if policy not in _RESTART_ON:
        raise replica.error(
            "restartPolicy", f'restartPolicy can\'t be "{policy}"', f"expected {', '.join(_RESTART_ON)}"
        )
    if replica.number("replicas") == 0:
        notes.add(f"{name}: the replica type has 0 replicas, and is no job of the job file")
        del restarts[name]
        return None
    draft = Draft(name, {"tasks": replica.value("replicas", types.COUNT, 1)})
    pod.read(replica.fields("template"), draft, tfjob.CONTAINER, notes)
    if draft.keys["program"] == ["python3", "-c", tfjob.SERVER]:  # `render --format tfjob` has written it for a server
        del draft.keys["program"]
    for key in replica.rest():
        notes.add(f"{name}: {key} has no counterpart")
    return draft


def _restarts(policies: dict[str, str], policy: Fields, notes: Notes) -> dict[str, Any]:
    """Return the keys of `run` about restarts."""
    deciding = next((name for name in _DECIDING if name in policies), next(iter(policies)))
    chosen = policies[deciding]
    for name, other in policies.items():
        if _RESTART_ON[other] != _RESTART_ON[chosen]:
            notes.add(f"{name}: restartPolicy {other} is {chosen}, as for {deciding}: a job file has one rule for all")
    if chosen == "Always":
        notes.add("restartPolicy Always: a program that ends with exit code 0 is not run again")
    limit = policy.value("backoffLimit", types.RESTARTS)
    restart_on = _RESTART_ON[chosen]
    if restart_on == programs.NEVER:
        return {"restart_on": restart_on}
    if limit is None:
        notes.add(f"without backoffLimit, a TFJob restarts programs for ever; max_restarts is {_MAX_RESTARTS}")
    run = {"restart_on": restart_on, "max_restarts": _MAX_RESTARTS if limit is None else limit}
    return {**run, "restart_scope": programs.TASK}


def _read_run_policy(
    policy: Fields, keys: dict[str, Any], run: dict[str, Any], drafts: list[Draft], notes: Notes
) -> None:
    if (deadline := policy.value("activeDeadlineSeconds", types.DURATION)) is not None:
        run["timeout"] = deadline
    ttl = policy.number("ttlSecondsAfterFinished")
    if ttl is not None:
        keys["ttl"] = policy.value("ttlSecondsAfterFinished", types.DURATION) if ttl else 1
    if policy.text("cleanPodPolicy") == "None":
        notes.add(
            "cleanPodPolicy None: the programs that still run after the success are ended; `run --keep` keeps pods"
        )
    if policy.flag("suspend"):
        notes.add("suspend: a job file can't be suspended; `tfk8s run` starts it")
    scheduling = policy.fields("schedulingPolicy")
    if priority_class := scheduling.text("priorityClass"):
        for draft in drafts:
            draft.keys.setdefault("priority_class", priority_class)
    if name := scheduling.text("queue"):
        notes.add(f'schedulingPolicy.queue "{name}" is no queue of Kueue; write queue: … for a LocalQueue')
    for key in scheduling.rest():
        notes.add(f"schedulingPolicy.{key} has no counterpart; a queue of Kueue starts all tasks together")


def _success(drafts: list[Draft], policy: str) -> str:
    """Return `run.success`, or "" if the job file's default is the same."""
    names = [draft.name for draft in drafts]
    if "worker" not in names or "chief" in names or "master" in names:
        return ""
    is_default = set(names) <= {"worker", EVALUATOR}
    tasks = next(draft.keys["tasks"] for draft in drafts if draft.name == "worker")
    if policy == "AllWorkers" or tasks == 1:
        return "" if is_default else "worker"
    return "worker/0"
