"""Sessions bring the ClusterSpec: clusters on Kubernetes change their size while sessions and variables stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from on_cluster import make_job, make_job_file, start_tfk8s
from scaling import scale_under_a_session

from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.spec import JobFile


def test_variables_and_sessions_stay_while_workers_come_and_go(
    up: Callable[[JobFile], str], backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    name = up(make_job_file("elastic", make_job(tasks=2), make_job("ps")))
    scale_under_a_session(
        backend,
        name,
        3,
        tmp_path,
        lambda script: start_tfk8s("submit", "--namespace", namespace, "--tf1", name, script),
    )
