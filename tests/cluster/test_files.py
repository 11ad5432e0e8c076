"""Files on their way between this machine and tasks."""

from __future__ import annotations

import pytest
from on_cluster import make_job, make_job_file

from tfk8s.cluster.handle import Cluster
from tfk8s.core.spec import Task
from tfk8s.errors import ClusterError
from tfk8s.features.file_copies import here as files


def test_files_are_copied_both_ways(up, backend, tmp_path):
    cluster = Cluster(backend, up(make_job_file("copied", make_job(tasks=2))))
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/sub/big").write_bytes(bytes(20_000_000))
    (tmp_path / "in/run.sh").write_text("echo runs")
    (tmp_path / "in/run.sh").chmod(0o755)
    files.copy(cluster, str(tmp_path / "in"), "worker/1:/tmp/copy")
    assert backend.inside.execute(cluster.name, Task("worker", 1), ["test", "-x", "/tmp/copy/run.sh"]) == 0
    assert backend.inside.execute(cluster.name, Task("worker", 0), ["test", "-e", "/tmp/copy"]) == 1
    files.copy(cluster, str(tmp_path / "in/run.sh"), "worker/1:/tmp/copy/sub")
    files.copy(cluster, "worker/1:/tmp/copy/sub", str(tmp_path / "out"))
    assert (tmp_path / "out/big").stat().st_size == 20_000_000
    assert (tmp_path / "out/run.sh").read_text() == "echo runs"
    with pytest.raises(ClusterError, match=r'^"/tmp/none" was not copied: there is no such file or folder'):
        files.copy(cluster, "worker/1:/tmp/none", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match=r"its files can't be stored in \"/proc/copy\""):
        files.copy(cluster, str(tmp_path / "in"), "worker/1:/proc/copy")
