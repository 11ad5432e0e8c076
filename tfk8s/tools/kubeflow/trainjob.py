"""A TrainJob of Kubeflow Trainer, with the training runtime that it names.

Fields and their meaning are those of trainer.kubeflow.org/v1alpha1 (pkg/apis/trainer/v1alpha1 of kubeflow/trainer) and
of JobSet. Trainer has no runtime of its own for TensorFlow, so a TrainJob for TensorFlow has a runtime without a policy
for another framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfk8s.core import programs
from tfk8s.jobfile import types
from tfk8s.render import overlay, pods
from tfk8s.tools.kubeflow import container, pod
from tfk8s.tools.kubeflow.draft import Draft, Notes
from tfk8s.tools.kubeflow.fields import Fields

KIND = "TrainJob"
VERSIONS = ("trainer.kubeflow.org/v1alpha1",)
DEFAULT_RUNTIME, _ = RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")

_NODE = "node"  # the JobSet's job with the trainer, and its container
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_BACKOFF_LIMIT = 6  # of a Job without backoffLimit


def read(job: Fields, runtimes: Mapping[tuple[str, str], Fields], notes: Notes) -> tuple[dict[str, Any], list[Draft]]:
    """Return the keys of the job file and the draft of its job, `worker`.

    Args:
        job: the TrainJob.
        runtimes: the runtimes in the file, by kind and name.
        notes: what gets lost.
    """
    spec = job.fields("spec")
    trainer = spec.fields("trainer")
    draft = Draft("worker", {"tasks": 1})
    runtime = _runtime(spec, trainer, runtimes, notes)
    keys = {}
    if runtime is None:
        draft.spec = {"containers": [container.read(trainer, draft, notes)]}
    else:
        keys = _read_runtime(runtime.fields("spec"), trainer, draft, notes)
    if (nodes := trainer.value("numNodes", types.COUNT)) is not None:
        draft.keys["tasks"] = nodes
    _override(spec, draft, notes)
    if spec.flag("suspend"):
        notes.add("suspend: a job file can't be suspended; `tfk8s run` starts it")
    for key in spec.rest():
        notes.add(f"spec.{key} has no counterpart")
    for key in trainer.rest():
        notes.add(f"spec.trainer.{key} has no counterpart")
    notes.add("Trainer sets no TF_CONFIG; tfk8s sets it, with the nodes as workers")
    return keys, [draft]


def _runtime(spec: Fields, trainer: Fields, runtimes: Mapping[tuple[str, str], Fields], notes: Notes) -> Fields | None:
    """Return the runtime, or None if the file does not have it and the TrainJob has a program of its own."""
    reference = spec.fields("runtimeRef")
    reference.drop("apiGroup")
    kind, name = reference.text("kind", DEFAULT_RUNTIME), reference.text("name")
    if (kind, name) in runtimes:
        return runtimes[kind, name]
    if "image" not in trainer or "command" not in trainer:
        raise reference.error(
            "name",
            f'{kind} "{name}" is not in the file',
            "the TrainJob has its image or its command from there",
            f"add it as another document: kubectl get {kind.lower()} {name} -o yaml",
        )
    notes.add(f'{kind} "{name}" is not in the file: its settings are not in the job file')
    return None


def _read_runtime(runtime: Fields, trainer: Fields, draft: Draft, notes: Notes) -> dict[str, Any]:
    """Read a runtime into a draft; return the keys of the job file."""
    policy = runtime.fields("mlPolicy")
    if (nodes := policy.value("numNodes", types.COUNT)) is not None:
        draft.keys["tasks"] = nodes
    for key in policy.rest():
        raise runtime.error("mlPolicy", f"mlPolicy.{key} is for another framework than TensorFlow", "expected numNodes")
    jobs = runtime.fields("template").fields("spec")
    node = None
    for entry in jobs.each("replicatedJobs"):
        name, template = entry.text("name"), entry.fields("template")
        step = template.fields("metadata").fields("labels").text(_STEP)
        if step == "trainer" or (not step and name == _NODE):
            node = template
            entry.drop("replicas")
            for key in entry.rest():
                notes.add(f'the {key} of the runtime\'s job "{name}" has no counterpart')
        else:
            notes.add(f'the job "{name}" of the runtime has no counterpart')
    if node is None:
        raise jobs.error("replicatedJobs", "no job of this runtime is the trainer's", f'expected a job "{_NODE}"')
    job = node.fields("spec")
    pod.read(job.fields("template"), draft, _NODE, notes, trainer)
    keys = {"run": _run(jobs, job)}
    if ttl := jobs.value("ttlSecondsAfterFinished", types.DURATION):
        keys["ttl"] = ttl
    job.drop("parallelism", "completions", "completionMode")
    for key in (*runtime.rest(), *jobs.rest(), *job.rest()):
        notes.add(f"the runtime's {key} has no counterpart")
    return keys


def _run(jobs: Fields, job: Fields) -> dict[str, Any]:
    """Return the rules of a run: a JobSet's restart is one of all nodes, a Job's is one of a node."""
    together = jobs.fields("failurePolicy").value("maxRestarts", types.RESTARTS, 0)
    alone = job.value("backoffLimit", types.RESTARTS, _BACKOFF_LIMIT)
    timeout = job.value("activeDeadlineSeconds", types.DURATION)
    limit = {} if timeout is None else {"timeout": timeout}
    if not together and not alone:
        return {"restart_on": programs.NEVER, **limit}
    scope = programs.CLUSTER if together else programs.TASK
    return {"restart_on": programs.FAILURE, "max_restarts": together or alone, "restart_scope": scope, **limit}


def _override(spec: Fields, draft: Draft, notes: Notes) -> None:
    """Merge the overrides of the trainer's pods into a draft's spec."""
    for entry in spec.each("podTemplateOverrides"):
        names = [job.text("name") for job in entry.each("targetJobs")]
        if names and _NODE not in names:
            notes.add(f"the podTemplateOverrides of {', '.join(names)} have no counterpart")
            continue
        found = entry.fields("spec")
        found.check_names(overlay.MERGE_KEYS)
        part = found.rest()
        for one in part.get("containers", ()):
            one["name"] = "server" if one.get("name") == _NODE else one.get("name")
        draft.spec = overlay.apply(draft.spec, part, pods.container_security)
        for key in entry.rest():
            notes.add(f"podTemplateOverrides.{key} has no counterpart")
