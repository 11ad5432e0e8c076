"""A TFJob of Kubeflow's training-operator: its replicas, and the rules of its run.

Fields and their meaning are those of training-operator 1.8; before v1, the fields of `runPolicy` were those of `spec`.
"""

from __future__ import annotations

from typing import Any

from tfk8s.core import programs
from tfk8s.core.roles import EVALUATOR
from tfk8s.errors import JobFileError
from tfk8s.features.init.kubeflow import pod
from tfk8s.features.init.kubeflow.located_fields import Fields
from tfk8s.features.init.kubeflow.pod import Replica
from tfk8s.jobfile import syntax, types

VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v1beta2", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha2")
KIND = "TFJob"

_MAX_RESTARTS = 1000  # of a job file
_TYPES = {"Chief": "chief", "Master": "master", "Worker": "worker", "PS": "ps", "Evaluator": EVALUATOR}
_JOBS = {kind.lower(): job for kind, job in _TYPES.items()}
_RESTART_ON = {
    "ExitCode": programs.EXIT_CODE,
    "OnFailure": programs.FAILURE,
    "Never": programs.NEVER,
    "Always": programs.FAILURE,
}
_SUCCESS_POLICIES = ("", "AllWorkers")
_DECIDING = ("chief", "master", "worker")


def read(job: Fields, notes: list[str]) -> tuple[dict[str, Any], list[Replica]]:
    """Return the keys of the job file and the replicas of its jobs, in the order of the file.

    Args:
        job: the TFJob.
    """
    spec = job.fields("spec")
    policy = spec.fields("runPolicy") if "runPolicy" in spec else spec
    keys: dict[str, Any] = {}
    restarts: dict[str, str] = {}
    replicas = _replicas(spec.fields("tfReplicaSpecs"), restarts, notes)
    if not replicas:
        raise spec.error("tfReplicaSpecs", "this TFJob has no replicas", "expected tfReplicaSpecs with a Worker")
    run = _restarts(restarts, policy, notes)
    _read_run_policy(policy, keys, run, replicas, notes)
    success_policy = spec.text("successPolicy")
    if success_policy not in _SUCCESS_POLICIES:
        label = f"expected {_SUCCESS_POLICIES[-1]}, or no successPolicy"
        raise spec.error("successPolicy", f'successPolicy can\'t be "{success_policy}"', label)
    if success := _success(replicas, success_policy):
        run["success"] = success
    if spec.flag("enableDynamicWorker"):
        notes.append("enableDynamicWorker: the TF_CONFIG of each task names all workers")
    for fields, path in ((spec, "spec"), (policy, "spec.runPolicy")):
        known = fields.taken
        for key in fields.left():
            near = syntax.nearest(key, known, 0.8)
            notes.append(f"{path}.{key} has no counterpart" + (f"; did you mean {near}?" if near else ""))
    return {**keys, **({"run": run} if run else {})}, replicas


def _replicas(specs: Fields, restarts: dict[str, str], notes: list[str]) -> list[Replica]:
    """Return the jobs of the replica types; raises one error with the problems of all of them."""
    replicas: list[Replica | None] = []
    errors: list[JobFileError] = []
    for kind in specs.keys:
        try:
            replicas.append(_replica(specs, kind, restarts, notes))
        except JobFileError as error:
            errors.append(error)
    if errors:
        raise JobFileError(errors[0].file, [problem for error in errors for problem in error.problems])
    return [replica for replica in replicas if replica is not None]


def _replica(specs: Fields, kind: str, restarts: dict[str, str], notes: list[str]) -> Replica | None:
    """Return the job of a replica type, or None if it has no replicas."""
    name = _JOBS.get(kind.lower())
    if name is None:
        label = f"expected {', '.join(_TYPES)}"
        raise specs.key_error(kind, f'"{kind}" is no replica type of a TFJob', label)
    if name in restarts:
        raise specs.key_error(kind, f'the replica type "{kind}" is given twice', "expected each type once")
    spec = specs.fields(kind)
    policy = restarts[name] = spec.text("restartPolicy", "Never")
    if policy not in _RESTART_ON:
        message = f'restartPolicy can\'t be "{policy}"'
        raise spec.error("restartPolicy", message, f"expected {', '.join(_RESTART_ON)}")
    if spec.number("replicas") == 0:
        notes.append(f"{name}: the replica type has 0 replicas, and is no job of the job file")
        del restarts[name]
        return None
    replica = Replica(name, {"tasks": spec.value("replicas", types.COUNT, 1)})
    pod.read(spec.fields("template"), replica, notes)
    notes += [f"{name}: {key} has no counterpart" for key in spec.left()]
    return replica


def _restarts(policies: dict[str, str], policy: Fields, notes: list[str]) -> dict[str, Any]:
    """Return the keys of `run` about restarts."""
    deciding = next((name for name in _DECIDING if name in policies), next(iter(policies)))
    chosen = policies[deciding]
    for name, other in policies.items():
        if _RESTART_ON[other] != _RESTART_ON[chosen]:
            rule = f"restartPolicy {other} is {chosen}, as for {deciding}: a job file has one rule for all"
            notes.append(f"{name}: {rule}")
    if chosen == "Always":
        notes.append("restartPolicy Always: a program that ends with exit code 0 is not run again")
    limit = policy.value("backoffLimit", types.RESTARTS)
    restart_on = _RESTART_ON[chosen]
    if restart_on == programs.NEVER:
        return {"restart_on": restart_on}
    if limit is None:
        notes.append(f"without backoffLimit, a TFJob restarts programs for ever; max_restarts is {_MAX_RESTARTS}")
    return {"restart_on": restart_on, "max_restarts": _MAX_RESTARTS if limit is None else limit}


def _read_run_policy(
    policy: Fields, keys: dict[str, Any], run: dict[str, Any], replicas: list[Replica], notes: list[str]
) -> None:
    if (deadline := policy.value("activeDeadlineSeconds", types.DURATION)) is not None:
        run["timeout"] = deadline
    ttl = policy.number("ttlSecondsAfterFinished")
    if ttl is not None:
        keys["ttl"] = policy.value("ttlSecondsAfterFinished", types.DURATION) if ttl else 1
    if policy.text("cleanPodPolicy") == "None":
        notes.append(
            "cleanPodPolicy None: the programs that still run after the success are ended; `run --keep` keeps pods"
        )
    if policy.flag("suspend"):
        notes.append("suspend: a job file can't be suspended; `tfk8s run` starts it")
    scheduling = policy.fields("schedulingPolicy")
    if priority_class := scheduling.text("priorityClass"):
        for replica in replicas:
            replica.keys.setdefault("priority_class", priority_class)
    if name := scheduling.text("queue"):
        notes.append(f'schedulingPolicy.queue "{name}" is no queue of Kueue; write queue: … for a LocalQueue')
    for key in scheduling.left():
        notes.append(f"schedulingPolicy.{key} has no counterpart; a queue of Kueue starts all tasks together")


def _success(replicas: list[Replica], policy: str) -> str:
    """Return `run.success`, or "" if the job file's default is the same."""
    names = [replica.job for replica in replicas]
    if "worker" not in names or "chief" in names or "master" in names:
        return ""
    is_default = set(names) <= {"worker", EVALUATOR}
    tasks = next(replica.keys["tasks"] for replica in replicas if replica.job == "worker")
    if policy == "AllWorkers" or tasks == 1:
        return "" if is_default else "worker"
    return "worker/0"
