"""A notebook's kernel on this machine, with sessions in a cluster on Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kube_api import KubeApi
from notebooks import BUSY, GRAPH, kernel
from on_cluster import make_job, make_job_file

from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.spec import JobFile


def test_cells_compute_on_the_cluster_and_the_kernel_outlives_a_task(
    up: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str, tmp_path: Path
) -> None:
    name = up(make_job_file("notebook", make_job(tasks=2), make_job("ps", tasks=1), master="worker"))
    with kernel(tmp_path, name, namespace=namespace) as notebook:
        assert notebook.run(GRAPH).text == "238.0\n"
        assert f"<caption>{name} (kubernetes): Ready, 3/3 tasks ready</caption>" in notebook.run("cluster").html
        assert "KeyboardInterrupt: " in notebook.run(BUSY, notebook.interrupt).error
        assert notebook.run("session.run(total)").text == "np.float32(238.0)"

        pod = f"/api/v1/namespaces/{namespace}/pods/{name}-worker-1"
        lost = notebook.run(BUSY, lambda: client.send("DELETE", pod))
        assert lost.error.splitlines()[2:4] == ["Cell In[*], line 1", f"----> 1 {BUSY}"]
        # A loaded machine judges the step when the task is back.
        assert re.search(r"TaskLost: worker/1 was lost: |TaskRestarted: worker/1 was restarted", lost.error), lost.error
        wait_until_ready(backend, name, 120)
        again = notebook.run("with tfk8s.session(graph=graph) as session: print(session.run(total))")
        assert (again.text[-6:], again.error) == ("238.0\n", "")
