"""The task that a process is, from its command line or its environment.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfk8s.task.config import (
    TaskConfig,
    check_config,
    derive_cluster,
    derive_elastic,
    parse_cluster,
    parse_tf_config,
)


class ServerOptions:
    """The flags of the command line. Tasks in pods have none, and read the environment instead."""

    cluster_spec: str | None = None
    job_name: str | None = None
    task_index: str | None = None
    elastic = False
    ready_fd: int | None = None

    def __init__(self) -> None:
        self.preload: list[str] = []
        self.preload_folder = ""


def parse_options(arguments: Sequence[str]) -> ServerOptions:
    """Read the command line; `--help` and errors exit."""
    options = ServerOptions()
    if not arguments:
        return options
    import argparse  # takes as long as all other imports of this file

    parser = argparse.ArgumentParser(
        prog="tfk8s server",
        description="Run one task's TensorFlow server in the foreground, until SIGTERM or Ctrl-C. It listens on every "
        "interface and runs any graph for any client: start it only in a network that others can't reach.",
        epilog="example: tfk8s server --cluster-spec 'ps|a:2222,worker|b:2222' --job-name worker --task-index 0",
    )
    parser.add_argument(
        "--cluster-spec", "--cluster_spec", metavar="SPEC",
        help='the cluster: JSON as {"JOB": ["HOST:PORT", …]}, or JOB|HOST:PORT;HOST:PORT,JOB|…; default: TF_CONFIG',
    )  # fmt: skip
    parser.add_argument("--job-name", "--job_name", metavar="JOB", help="this task's job")
    parser.add_argument(
        "--task-index", "--task_index", "--task-id", "--task_id", metavar="INDEX", help="this task's index in its job"
    )
    parser.add_argument(
        "--preload", action="append", metavar="MODULE", help="a Python module to import first (may repeat)"
    )
    parser.add_argument("--preload-folder", help=argparse.SUPPRESS)  # is searched for these modules last
    parser.add_argument("--elastic", action="store_true", help=argparse.SUPPRESS)  # each session brings the ClusterSpec
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)  # gets a byte when the server answers
    return parser.parse_args(arguments, options)


def config_from(options: ServerOptions, environment: Mapping[str, str]) -> TaskConfig:
    """Return the task that the flags, tfk8s' own variables or TF_CONFIG describe, in this order.

    Raises:
        ValueError: no description is there, or it is malformed.
    """
    job: str | None
    index: str | int | None
    if options.cluster_spec is not None:
        cluster, job, index = parse_cluster(options.cluster_spec), options.job_name, options.task_index
    elif "TFK8S_JOBS" in environment:
        cluster, job, index = derive_cluster(environment), environment["TFK8S_JOB"], environment["TFK8S_INDEX"]
        options.preload += _preload(environment)
    elif "TFK8S_JOB" in environment:
        options.preload += _preload(environment)
        return derive_elastic(environment)
    elif "TF_CONFIG" in environment:
        cluster, job, index = parse_tf_config(environment["TF_CONFIG"])
        job, index = options.job_name or job, options.task_index or index
    else:
        raise ValueError("no cluster: give --cluster-spec, --job-name and --task-index, or set TF_CONFIG")
    return check_config(cluster, job, index, elastic=options.elastic)


def _preload(environment: Mapping[str, str]) -> list[str]:
    return [*filter(None, environment.get("TFK8S_PRELOAD", "").split(","))]
