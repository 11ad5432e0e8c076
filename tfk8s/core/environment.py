"""The environment of session scripts, and the table of all `TFK8S_*` variables.

    variable            set by                            read by                     meaning
    TFK8S_NAME          render/pods                       task/config                 the cluster's name
    TFK8S_NAMESPACE     render/pods                       task/config                 the cluster's namespace
    TFK8S_JOBS          render/pods, kubernetes/          task/config, kubernetes/    the ClusterSpec (core/compact)
    TFK8S_PORT          render/pods                       task/config, kubernetes/    the server's port, or a default
    TFK8S_JOB           render/pods, core/environment     task/, kubernetes/          the job of this task
    TFK8S_INDEX         render/pods, core/environment     task/                       the index of this task
    TFK8S_PRELOAD       render/pods                       task/server                 modules to import first
    TFK8S_GPUS          render/pods, local/               task/, status                GPUs that TensorFlow must see
    TFK8S_ACTIVITY_PORT render/pods                       task/                       the port of the list of clients
    TFK8S_METRICS_PORT  render/pods                       task/                       the port of metrics
    TFK8S_MAX_DURATION  render/lifetime                   task/lifetime               max_duration in seconds
    TFK8S_IDLE          render/lifetime, render/warm_job  task/lifetime, warm/        idle in seconds
    TFK8S_SUSPEND       render/lifetime                   task/lifetime               the same until a suspension
    TFK8S_LIFETIME_JOB  render/lifetime                   task/lifetime               the cluster's own Job
    TFK8S_LEASE         render/lifetime                   task/lifetime               the lease of `run` in seconds
    TFK8S_DRAIN         render/lifetime                   task/lifetime               the jobs of `drain: idle`
    TFK8S_SERVERS       render/lifetime                   task/lifetime               the jobs with servers
    TFK8S_GANG          render/lifetime                   task/lifetime               1 if the cluster has a PodGroup
    TFK8S_HISTORY       render/record_place               task/lifetime               with `logs`, or `events` alone
    TFK8S_BUCKET        render/record_place               task/lifetime               the bucket of the history, a URL
    TFK8S_ENDPOINT      render/record_place               task/lifetime               its server, if one is named
    TFK8S_SECRET        render/record_place               task/lifetime               the Secret with its keys
    TFK8S_QUEUE         render/lifetime                   task/lifetime               the queue that gets quota back
    TFK8S_RECORD_JOB    render/lifetime                   task/lifetime               the Job that writes the record
    TFK8S_PROGRAMS      render/lifetime                   task/lifetime               the jobs with programs
    TFK8S_TARGET        core/environment, kubernetes/     session, programs           the master, "grpc://host:port"
                        features/notebook
    TFK8S_CLUSTER       core/environment, pod/entrypoint  preflight, programs         the ClusterSpec as JSON
    TFK8S_FORWARDED     core/environment                  sessions, strategy          forwards to tf.data's service
                                                                                  as JSON, with `--here` alone
    TFK8S_DATA_SERVICE  core/environment                  programs, task/config       tf.data's dispatcher, "grpc://…"
    TFK8S_WITHOUT       cluster/scripts                   preflight, local/, retries  tasks that sessions leave out
    TFK8S_VERDICT       foreground_scripts, kubernetes/   runner, pod/entrypoint      the file for a failure's name, or
                        render/program_job                task/programs/pod           for a program's exit code
    TFK8S_ARCHIVE       kubernetes/, render/program_job   pod/entrypoint, task/       the archive of the script's folder
    TFK8S_REQUIREMENTS  kubernetes/                       pod/entrypoint, runner      the file for `pip install -r`
    TFK8S_DOWNLOADS     kubernetes/                       pod/entrypoint, left_files  the files of `--get`, as JSON
    TFK8S_CLIENT        kubernetes/                       pod/entrypoint, pod_link    a client connects: "input" or ""
    TFK8S_TOKEN         local_tensorboard, kubernetes/    pod/tensorboard             the path of TensorBoard's page
    TFK8S_SCRIPT        warm/script_relay                 strategy, programs/stacks   the name of a script in a warm pod
    TFK8S_GRACE         core/environment, render/         programs, sessions          the seconds after SIGTERM
    TFK8S_TF1           core/environment, render/         programs                    1: give TensorFlow 1's API
                        program_job
    TFK8S_TRACE         features/timeline                 sessions/runner             interval and file of `--trace`
    TFK8S_PROGRESS      local/, warm/script_relay         training/progress           the file for `tfk8s.progress`
                        features/metrics
    TFK8S_OUTPUT        local/                            sessions/runner             the log of what a script prints
    TFK8S_PORTS         local/                            programs/                   other ports of tasks, as JSON
    TFK8S_FOLDERS       core/environment                  training/paths              folders of volumes, as JSON
    TFK8S_WAY_OUT       local/way_out                     programs/, sessions/runner  why the network is closed
    TFK8S_CLUSTER_ID    local/                            local/state                 the cluster of a local process
    TFK8S_LOCAL         the user                          backends/options            1: `--local` is the default
    TFK8S_GET_LIMIT     the user                          task/files                  the most bytes of `--get`
    TFK8S_GET_FILES     the user                          task/files                  the most files of `--get`
    TFK8S_GET_PROBLEMS  the user                          task/files                  the most files that are named
    TFK8S_DEBUG         the user                          cli/, sessions/runner       1: errors show their traceback

`render/pods` sets its variables in tasks' pods. Scripts' pods inherit the first four but TFK8S_JOBS
from the master's pod.
`kubernetes/` and `local/` are the folders of `backends/`.
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from tfk8s.core import job_kinds, naming
from tfk8s.core.addresses import LOOPBACK, SCHEME, host_and_port
from tfk8s.core.cluster_spec import cluster_spec, tf_config
from tfk8s.core.storage import claims

if TYPE_CHECKING:
    from tfk8s.core.job_file.mappings import Env
    from tfk8s.core.script import Script
    from tfk8s.core.spec import ClusterSpec, JobFile, Task

DATA_SERVICE = "TFK8S_DATA_SERVICE"
SCRIPT_DEFAULTS = {"TF_CPP_MIN_LOG_LEVEL": "1"}
# A program may look for another task before that task listens. gRPC then pauses for a second before it connects again.
# TensorFlow reads channel arguments from this variable (xla/tsl/distributed_runtime/rpc/grpc_channel.cc).
PROGRAM_DEFAULTS = {**SCRIPT_DEFAULTS, "TF_GRPC_DEFAULT_OPTIONS": "grpc.initial_reconnect_backoff_ms=100"}


def cluster_variables(cluster: ClusterSpec, target: str) -> dict[str, str]:
    """Return the variables with which sessions find their cluster."""
    return {"TFK8S_CLUSTER": cluster_spec(cluster), "TFK8S_TARGET": target}


def data_variables(job_file: JobFile, address: Callable[[Task], str]) -> dict[str, str]:
    """Return the variable with the address of tf.data's dispatcher; empty without tf.data's service.

    Args:
        address: a function from a task to its address, "host:port".
    """
    job = job_kinds.data_job(job_file)
    return {DATA_SERVICE: f"{SCHEME}{address(next(iter(job)))}"} if job else {}


def folder_variables(job_file: JobFile) -> dict[str, str]:
    """Return the variable by which `tfk8s.path` finds the folders of volumes on this machine; empty without folders."""
    folders = {posixpath.normpath(one.path): one.folder for one in claims.volumes(job_file) if one.folder}
    return {"TFK8S_FOLDERS": json.dumps(folders)} if folders else {}


def program_variables(job_file: JobFile, task: Task, address: Callable[[Task], str]) -> dict[str, str]:
    """Return the variables with which a program finds its cluster and its place there.

    Args:
        task: the program's task.
        address: a function from a task to its address, "host:port".
    """
    cluster = job_file.cluster_spec(address, seen_by=task.job)
    variables = {
        "TF_CONFIG": tf_config(cluster, task.job, task.index), "TFK8S_CLUSTER": cluster_spec(cluster),
        "TFK8S_NAME": job_file.name, "TFK8S_JOB": task.job, "TFK8S_INDEX": str(task.index),
    }  # fmt: skip
    if job_kinds.has_target(job_file):
        variables["TFK8S_TARGET"] = f"{SCHEME}{address(job_file.master_task)}"
    if job_file.job(task.job).tf1:
        variables["TFK8S_TF1"] = "1"
    return variables | grace_variables(job_file)


def grace_variables(job_file: JobFile) -> dict[str, str]:
    """Return the variable by which programs and scripts know how long they may save; empty without `grace`."""
    return {} if job_file.grace is None else {naming.GRACE: str(job_file.grace)}


def script_environment(
    script: Script, cluster: ClusterSpec, target: str, base: Mapping[str, str], more: Mapping[str, str],
    *, forwards: Mapping[str, str] | None = None,
) -> dict[str, str]:  # fmt: skip
    """Return the whole environment of a script on this machine.

    Args:
        script: the script, whose own variables override `base`.
        cluster: the ClusterSpec that sessions see.
        target: the master, "grpc://host:port".
        base: the environment of the caller, overridden by the variables of the cluster's master. It overrides the
            defaults.
        more: variables that override all others.
        forwards: if the addresses are those of forwards, which tasks can't use: the forwards to the tasks of tf.data's
            service, by the addresses there.
    """
    hosts = [host_and_port(address)[0] for addresses in cluster.values() for address in addresses]
    own = {**without_proxy(base, (*LOOPBACK, *hosts)), **cluster_variables(cluster, target)}
    environment = {**SCRIPT_DEFAULTS, **base, **own, **script.environment, **more}
    environment.pop(naming.FORWARDED, None)  # of a script that started this one
    return environment if forwards is None else {**environment, naming.FORWARDED: json.dumps(forwards)}


def texts(env: Env) -> dict[str, str]:
    """Return the variables of a job file without those from Secrets and ConfigMaps."""
    return {name: value for name, value in env.items() if isinstance(value, str)}


def environment_lines(environment: Mapping[str, str]) -> str:
    """Return variables as lines that a POSIX shell reads."""
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())


def without_proxy(environment: Mapping[str, str], hosts: Iterable[str] = LOOPBACK) -> dict[str, str]:
    """Return the variables that make clients connect to `hosts` directly.

    Args:
        environment: the environment of the clients; the hosts that its `no_proxy` lists come first.
        hosts: the hosts to add.
    """
    before = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    value = ",".join(dict.fromkeys(filter(None, (*before.split(","), *hosts))))
    return {"no_proxy": value, "NO_PROXY": value, "no_grpc_proxy": value}
