"""The status of clusters: clusters from their workloads, tasks from their pods, reasons from events and logs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tfk8s import concurrency
from tfk8s.backends import suspended
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import containers, image_pull, pod_events, pod_status, queues
from tfk8s.backends.kubernetes.pods.total_requests import billed_workloads, requested
from tfk8s.backends.kubernetes.workloads import (
    bad_nodes,
    deployed,
    gangs,
    lifetime,
    log_progress,
    program_status,
    script_status,
    task_pods,
    warm_status,
)
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.backends.kubernetes.workloads.log_progress import ProgressByPod
from tfk8s.backends.kubernetes.workloads.warm_status import WarmScripts
from tfk8s.core import naming
from tfk8s.core.environment import DATA_SERVICE
from tfk8s.core.output.task_notes import BadNode
from tfk8s.core.progress import StepProgress
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, ScriptStatus, TaskStatus
from tfk8s.errors import TaskUnreachable, Tfk8sError
from tfk8s.render import script_job
from tfk8s.render.pods import Object
from tfk8s.task.config import is_listening_line

_MAX_LOGS = 3  # of crashed tasks, for one status
_MAX_LISTENING_CHECKS = 8  # for one status, whose cost then does not grow with the cluster

IsListening = Callable[[Reader, Object], bool]
ReadScripts = Callable[[Reader, Sequence[Object]], Mapping[str, WarmScripts]]
ReadProgress = Callable[[Reader, Sequence[Object]], ProgressByPod]


def clusters(client: Reader, namespace: str | None) -> list[ClusterStatus]:
    """Return the clusters of a namespace or, with None, of all namespaces that the user may read."""
    return [read(client, cluster) for cluster in deployed.clusters(client, namespace)]


def is_listening(client: Reader, pod: Object) -> bool:
    """Return whether the beginning of a pod's log says that the server listens."""
    try:
        text = client.text(containers.log_path(pod), {"limitBytes": 1 << 16})
    except Tfk8sError:
        return False
    return any(map(is_listening_line, text.splitlines()))


def read(
    client: Reader, cluster: DeployedCluster, is_listening: IsListening = is_listening,
    read_progress: ReadProgress = log_progress.read, read_scripts: ReadScripts = warm_status.read_scripts,
) -> ClusterStatus:  # fmt: skip
    """Return the status of a cluster.

    Args:
        client: the API server, or a view of it.
        is_listening: called for started servers that kubelet has not probed yet.
        read_progress: returns the progress of pods with programs and scripts, by the names of the pods.
        read_scripts: returns the scripts that run in warm pods, by the names of the pods.
    """
    pods = client.get(paths.collection("Pod", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    by_task = task_pods.by_task(cluster, pods)
    jobs = cluster.other_jobs
    scripts = _scripts(jobs, pods)
    warm = warm_status.warm_pods(jobs, pods)
    keepers = lifetime.keepers(jobs, pods)
    has_waiting = any(map(needs_events, (*by_task.values(), *(pod for _, pod in [*scripts, *warm, *keepers]))))
    master = cluster.workload(cluster.master.job)
    list_events = functools.cache(functools.partial(pod_events.read, client, cluster.namespace))
    sources = [*pods, *jobs, *cluster.workloads.values()]
    events = _grouped(client, cluster.namespace, sources, list_events) if has_waiting else {}
    given = {DATA_SERVICE: cluster.data_service or None, naming.GRACE: cluster.grace}
    error_lines = _error_lines(client, [pod for pod in by_task.values() if pod and pod_status.is_explained_by_log(pod)])
    programs = [pod for task, pod in by_task.items() if pod and cluster.program_job(task.job)]
    progress = read_progress(client, [*programs, *(pod for _, pod in scripts if pod)])
    bad = bad_nodes.read(pods, cluster.workloads.values(), list_events)
    tasks = [
        dataclasses.replace(
            _task(cluster, task, pod, events, error_lines),
            progress=_of(pod, progress),
            bad_node=BadNode(task, *fault)
            if (fault := bad.get(naming.pod(cluster.name, task.job, task.index)))
            else None,
        )
        for task, pod in by_task.items()
    ]
    return ClusterStatus(
        name=cluster.name,
        backend="kubernetes",
        location=f"context {client.context}, namespace {cluster.namespace}",
        namespace=cluster.namespace,
        target=cluster.target if cluster.has_servers else "",
        master=cluster.master,
        tasks=tuple(_with_listening(client, tasks, by_task, is_listening)),
        created=min(pod_status.seconds(item["metadata"]["creationTimestamp"]) for item in cluster.workloads.values()),
        reason=suspended.reason(cluster.name, cluster.suspended, "")
        if cluster.suspended
        else _why_hopeless(cluster, tasks, by_task),
        suspended=cluster.suspended,
        requests=requested(cluster.workloads.values(), warm_status.running(warm)),
        billed=billed_workloads(cluster.workloads.values()),
        scripts=(
            *_in_warm_pods(client, cluster.master.job, warm, events, read_scripts),
            *(
                script_status.status(job, pod, pod_events.of(pod or job, events), _of(pod, progress))
                for job, pod in scripts
            ),
        ),
        limits=lifetime.limits(jobs),
        limits_problem=lifetime.limits_problem(keepers, events),
        record=lifetime.record(keepers, events),
        variables={
            **script_job.own_variables(containers.template_variables(master) if master else {}),
            **{name: str(value) for name, value in given.items() if value is not None},
        },
        success=cluster.success,
        is_elastic=cluster.is_elastic,
        gang=gangs.kind(cluster.workloads.values(), cluster.name),
    )


@contextlib.contextmanager
def naming_state(client: Reader, cluster: DeployedCluster, task: Task) -> Iterator[None]:
    """Name a task's state for a command that its container can't run; the API server's error names the container only.

    Raises:
        TaskUnreachable: the task has ended, or does not run yet.
    """
    try:
        yield
    except (ApiError, TaskUnreachable) as error:
        if isinstance(error, ApiError) and error.code == 403:
            raise
        found = next((status for status in read(client, cluster).tasks if status.task == task), None)
        if found is None or found.phase in (Phase.READY, Phase.RUNNING):
            raise
        if found.is_program and found.phase in (Phase.SUCCEEDED, Phase.FAILED):
            code = "" if found.exit_code is None else f" with exit code {found.exit_code}"
            help_ = f"`tfk8s logs {cluster.name} {task}` shows its output; a command needs a task that runs"
            raise TaskUnreachable(f"{task} has ended{code}", help=help_) from error
        raise TaskUnreachable(f"{task} does not run: it is {found.state}") from error


def _scripts(jobs: Sequence[Object], pods: Sequence[Object]) -> list[tuple[Object, Object | None]]:
    """Return the Jobs of a cluster's scripts, the latest first, each with its pod."""
    by_job = script_status.pods_by_job(pods)
    scripts = [job for job in jobs if script_job.is_script(job)]
    scripts.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]), reverse=True)
    return [(job, by_job.get(job["metadata"]["name"])) for job in scripts]


def _in_warm_pods(
    client: Reader, master: str, warm: Sequence[tuple[Object, Object | None]], events: pod_events.Events,
    read_scripts: ReadScripts,
) -> Iterator[ScriptStatus]:  # fmt: skip
    found = read_scripts(client, [pod for _, pod in warm if pod])
    for job, pod in warm:
        running = found.get(pod["metadata"]["name"], ()) if pod else ()
        yield from warm_status.status(master, (job, pod), running, pod_events.of(pod or job, events))


def _of(pod: Object | None, progress: ProgressByPod) -> StepProgress | None:
    return progress.get(pod["metadata"]["name"]) if pod else None


def _task(
    cluster: DeployedCluster, task: Task, pod: Object | None, events: pod_events.Events, error_lines: Mapping[str, str]
) -> TaskStatus:
    workload, program = cluster.workload(task.job), cluster.program_job(task.job)
    restarts = sum(item["restartCount"] for item in containers.statuses(pod)) if pod else 0
    is_starting, is_pulling, exit_code = False, False, None
    if not (source := pod or workload):
        phase, reason = Phase.PENDING, "its StatefulSet or Job is missing: `tfk8s up` creates it again"
    elif pod and workload and not program and pod_status.is_outdated(pod, workload):
        phase, reason = Phase.PENDING, "waits for its restart with the new settings"
    else:
        found = pod_events.of(source, events)
        is_starting = pod_status.waits_for_node(pod, found)
        is_pulling = image_pull.is_under_way(pod, found.pull)
        if program:
            phase, reason, exit_code, restarts = program_status.read(program, task, pod, found)
        else:
            phase, reason = pod_status.phase_and_reason(task.job, pod, found)
    if cluster.suspended and pod is None and phase is Phase.PENDING:
        phase, reason = Phase.SUSPENDED, ""
    reason = gangs.why_it_waits(reason, cluster.workloads.values())
    if reason and pod and (line := error_lines.get(pod["metadata"]["name"])):
        reason += f": {line}"
    return TaskStatus(
        task=task,
        phase=phase,
        address=cluster.address(task),
        runs_on=pod_status.runs_on(pod) if pod else "",
        restarts=restarts,
        since=pod_status.since(pod) if pod else None,
        reason=reason,
        required_gpus=cluster.required_gpus.get(naming.dns_label(task.job), 0),
        node_is_starting=is_starting,
        is_pulling=is_pulling,
        is_program=program is not None,
        is_data=cluster.is_data(task.job),
        exit_code=exit_code,
    )


def _why_hopeless(cluster: DeployedCluster, tasks: Sequence[TaskStatus], pods: Mapping[Task, Object | None]) -> str:
    """Return why a task can never start without another job file: it failed before it ran. Else return ""."""
    for task in tasks:
        job, pod = cluster.program_job(task.task.job), pods[task.task]
        has_ended = job is not None and program_status.end(job) is not None
        if task.phase is Phase.FAILED and not (has_ended or (pod and pod_status.has_run(pod))):
            return f"{task.task} can't start: {task.reason}"
    return ""


def _with_listening(
    client: Reader, tasks: Sequence[TaskStatus], pods: Mapping[Task, Object | None], is_listening: IsListening
) -> list[TaskStatus]:
    """Return the tasks. Those whose servers listen are ready already; kubelet reports it a second later."""

    def is_ready(task: Task) -> bool:
        pod = pods[task]
        return pod is not None and pod_status.was_never_ready(pod) and is_listening(client, pod)

    starting = [task.task for task in tasks if task.phase is Phase.STARTING]
    if len(starting) > _MAX_LISTENING_CHECKS:
        return list(tasks)
    answers = concurrency.map_parallel(is_ready, starting, _MAX_LISTENING_CHECKS)
    ready = {task for task, answer in zip(starting, answers, strict=True) if answer}
    return [dataclasses.replace(task, phase=Phase.READY) if task.task in ready else task for task in tasks]


def needs_events(pod: Object | None) -> bool:
    """Return whether only events can explain why a pod does not run."""
    if pod is None or pod_status.is_unscheduled(pod):
        return True
    waiting = (item["state"].get("waiting", {}) for item in containers.statuses(pod))
    return any(state.get("reason") in containers.STARTING for state in waiting)


def read_events(client: Reader, namespace: str, sources: Iterable[Object]) -> pod_events.Events:
    """Return the events that explain why pods and Jobs of a namespace wait, and what Kueue says of them."""
    return _grouped(client, namespace, sources, lambda: pod_events.read(client, namespace))


def _grouped(
    client: Reader, namespace: str, sources: Iterable[Object], list_events: Callable[[], Sequence[Object]]
) -> pod_events.Events:  # fmt: skip
    said = queues.read(client, namespace) if any(map(queues.is_waiting, sources)) else {}
    return pod_events.group(list_events(), client.context, said)


def _error_lines(client: Reader, crashed: Sequence[Object]) -> dict[str, str]:
    """Return the lines that say why the first few crashed pods ended, by the pods' names."""
    lines = {}
    for pod in crashed[:_MAX_LOGS]:
        running = "waiting" not in containers.statuses(pod)[0]["state"]
        try:
            text = client.text(containers.log_path(pod), {"tailLines": 50, "previous": not running})
        except ApiError:  # the container is gone, and its log with it
            continue
        lines[pod["metadata"]["name"]] = containers.telling_line(text)
    return lines
