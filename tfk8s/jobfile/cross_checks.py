"""Checks that compare several values of a job file: names, addresses and paths that must differ."""

from __future__ import annotations

from collections.abc import Iterator

from tfk8s.core import naming
from tfk8s.core.job_file.gangs import shared
from tfk8s.errors import Problem, quoted
from tfk8s.jobfile.document import Document, Path
from tfk8s.jobfile.role_checks import (
    addresses_of_unknown_jobs,
    runs_without_programs,
    server_keys_of_programs,
    tf1_without_python,
    wrong_data_jobs,
    wrong_master,
)
from tfk8s.jobfile.valid_values import ValidValues
from tfk8s.jobfile.volumes import differing_claims, duplicate_paths, one_pod_claims

# The kernel starts no program with a longer "NAME=VALUE" (MAX_ARG_STRLEN, which counts the NUL at its end).
MAX_ENV = 131_071
# The pod sets of a Workload: MaxPodSets in pkg/controller/jobframework/constants.go of Kueue 0.19.
MAX_JOBS_IN_QUEUE = 18


def check(document: Document, bad: set[Path]) -> list[Problem]:
    """Return the problems between values; `bad` has the paths of values that are invalid by themselves."""
    values = ValidValues(document, bad)
    checks = (
        wrong_master,
        duplicate_names,
        long_names,
        mixed_addresses,
        limits_without_tasks,
        queues_of_many_jobs,
        gangs_of_different_pods,
        gangs_in_queues,
        replaced_avoidance,
        duplicate_addresses,
        exceptions_outside_range,
        duplicate_paths,
        differing_claims,
        one_pod_claims,
        accelerators_without_gpus,
        long_variables,
        python_paths_from_sources,
        server_keys_of_programs,
        tf1_without_python,
        addresses_of_unknown_jobs,
        runs_without_programs,
        wrong_data_jobs,
    )
    return [problem for check in checks for problem in check(values)]


def _jobs_with_names(values: ValidValues) -> list[str]:
    """Return the jobs that have valid names in Kubernetes."""
    return [job for job in values.jobs if naming.is_job_name(job) and values.tasks(job)]


def duplicate_names(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each pair of jobs with the same name in Kubernetes."""
    labels: dict[str, str] = {}
    for job in _jobs_with_names(values):
        first = labels.setdefault(naming.dns_label(job), job)
        if first != job:
            message = f'jobs "{first}" and "{job}" would have the same name in Kubernetes'
            label = f'the name is "{naming.dns_label(job)}"'
            yield values.problem(
                "names-meet", message, ("jobs", job), key=True, label=label, advice="rename one of them"
            )


def long_names(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each StatefulSet's name that is too long.

    If none is, the names of pods and Services fit too, with at most 10,000 tasks a job.
    """
    cluster = values.get("name")
    if not isinstance(cluster, str) or not naming.is_dns_label(cluster):
        return
    limit = naming.MAX_STATEFUL_SET
    longest: dict[Path, str] = {}
    for job in _jobs_with_names(values):
        blamed: Path = ("name",) if len(cluster) >= len(naming.dns_label(job)) else ("jobs", job)
        longest[blamed] = max(longest.get(blamed, ""), naming.stateful_set(cluster, job), key=len)
    for path, stateful_set in longest.items():
        excess = len(stateful_set) - limit
        if excess > 0:
            is_key = path != ("name",)
            name = str(path[-1]) if is_key else cluster
            message = f"{quoted(name)} is {excess} character{'s' * (excess > 1)} too long"
            label = (
                f'StatefulSet "{stateful_set}" would have {len(stateful_set)} characters; at most {limit} are allowed'
            )
            advice = (
                f"shorten it to {len(name) - excess} characters"
                if excess < len(name)
                else "shorten the names of the cluster and the job"
            )
            yield values.problem("name-too-long", message, path, key=is_key, label=label, advice=advice)


def mixed_addresses(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem if only some jobs have addresses."""
    addressed = [job for job in values.jobs if isinstance(values.get("jobs", job), list)]
    started = [job for job in values.jobs if isinstance(values.get("jobs", job), (int, dict))]
    if addressed and started:
        message = f'job "{addressed[0]}" has addresses, and job "{started[0]}" has none'
        label = "either all jobs have addresses, or none"
        yield values.problem("mixed-addresses", message, ("jobs", started[0]), key=True, label=label)


def replaced_avoidance(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each `pod` with rules about nodes that would replace those of `avoid`."""
    for path in (("pod",), *(("jobs", job, "pod") for job in values.jobs)) if values.get("avoid") else ():
        affinity = (*path, "affinity", "nodeAffinity")
        if values.get(*affinity) is not None:
            message = "a nodeAffinity would replace the rules of avoid"
            advice = "write the nodes into its matchFields instead"
            yield values.problem("avoid-replaced", message, affinity, key=True, label="this replaces it", advice=advice)


def limits_without_tasks(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each limit and the warm pods of a cluster that tfk8s does not start."""
    addressed = [job for job in values.jobs if isinstance(values.get("jobs", job), list)]
    for key in ("max_duration", "idle", "grace", "drain", "gang", "warm", "script", "metrics", "history"):
        if addressed and values.get(key) is not None:
            message = f'"{key}" has no effect on servers that already run'
            label = f'job "{addressed[0]}" has addresses'
            yield values.problem("needs-tasks", message, (key,), key=True, label=label, advice=f"remove {key}")


def queues_of_many_jobs(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem if a cluster in a queue has more jobs than Kueue takes."""
    if len(values.jobs) > MAX_JOBS_IN_QUEUE and values.get("queue"):
        message = f"Kueue takes a cluster of at most {MAX_JOBS_IN_QUEUE} jobs"
        label = f"there are {len(values.jobs)} jobs"
        yield values.problem("too-large", message, ("queue",), label=label, advice="remove queue, or join jobs")


def gangs_in_queues(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem if a cluster in a queue asks for a gang of its own."""
    if values.get("queue") and values.get("gang"):
        message = "gang: true has no effect in a queue"
        label = "Kueue admits all tasks of a cluster together"
        yield values.problem("gang-in-queue", message, ("gang",), label=label, advice="remove gang, or queue")


def gangs_of_different_pods(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem if the tasks of a gang differ in what the scheduler wants the same."""
    if not values.get("gang"):
        return
    pod = values.get("pod")
    kinds = {
        job: shared(values.get("jobs", job, "priority_class"), pod, values.get("jobs", job, "pod"))
        for job in values.jobs
        if isinstance(values.get("jobs", job), (int, dict))
    }
    first = next(iter(kinds), "")
    if other := next((job for job, kind in kinds.items() if kind != kinds[first]), None):
        message = f'jobs "{first}" and "{other}" differ in priority or scheduler'
        label = "the scheduler starts no gang of such tasks"
        yield values.problem("gang-differs", message, ("gang",), label=label, advice="make them equal, or remove gang")


def duplicate_addresses(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each pair of tasks with the same address."""
    seen: dict[str, Path] = {}
    for job in values.jobs:
        if not isinstance(values.get("jobs", job), list):
            continue
        for path, address in values.entries("jobs", job):
            if seen.setdefault(address, path) != path:
                place = values.document.place(values.document.values[seen[address]])
                message = f"{quoted(address)} is the address of two tasks"
                yield values.problem("duplicate-address", message, path, label=f"it is also {place}")


def exceptions_outside_range(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each `except` that is not a part of its `cidr`, which Kubernetes refuses."""
    import ipaddress

    for direction in ("allow_from", "allow_to"):
        for peer, _ in values.entries("network", direction):
            if not (cidr := values.get(*peer, "cidr")):
                continue
            network = ipaddress.ip_network(cidr)
            for path, exception in values.entries(*peer, "except"):
                part = ipaddress.ip_network(exception)
                outside = part.version != network.version or not part.subnet_of(network)  # type: ignore[arg-type]
                if outside or part == network:
                    message = f"{quoted(exception)} is {'not in' if outside else 'all of'} {cidr}"
                    yield values.problem("bad-except", message, path, label="expected a part of cidr")


def accelerators_without_gpus(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each job with an accelerator but no GPUs."""
    for job, value in values.jobs.items():
        path = ("jobs", job, "accelerator")
        if isinstance(value, dict) and values.get(*path) is not None and value.get("gpus", 0) == 0:
            message = f'job "{job}" requests an accelerator but no GPUs'
            yield values.problem("needs-gpus", message, path, advice="add gpus: 1, or remove accelerator")


def _environments(values: ValidValues) -> list[Path]:
    """Return the paths of the cluster's variables and of each job's variables."""
    return [("env",), *(("jobs", job, "env") for job in values.jobs if isinstance(values.get("jobs", job), dict))]


def python_paths_from_sources(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each PYTHONPATH with a source, as tfk8s writes its own folder before the value."""
    for env in _environments(values):
        path = (*env, "PYTHONPATH")
        if isinstance(values.get(*path), dict):
            message = "PYTHONPATH can't come from a Secret or ConfigMap, because tfk8s adds its own files to it"
            yield values.problem("bad-variable", message, path, label="expected text")


def long_variables(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each environment variable that is too long for the kernel."""
    for env in _environments(values):
        for path, value in values.entries(*env):
            size = len(f"{path[-1]}={value}".encode())
            if isinstance(value, str) and size > MAX_ENV:
                message = f"variable {quoted(str(path[-1]))} has {size} bytes"
                yield values.problem("too-large", message, path, label=f"at most {MAX_ENV} bytes, including the name")
