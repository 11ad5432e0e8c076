"""A cluster on Kubernetes to break, in its own namespace, behind a proxy to the API server that can be cut."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import node, row
from harness.command import PATIENCE, Command
from harness.proxy import Proxy
from kube_api import MERGE, KubeApi
from kubernetes.client import ApiException

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.status import ClusterStatus, Phase, ScriptPhase, ScriptStatus
from tfk8s.errors import NoSuchCluster
from tfk8s.jobfile.loader import load
from tfk8s.render import manifests, warm_job
from tfk8s.render.pods import Object

SCRIPTS = Path(__file__).parents[1] / "scripts"
NAME = "faults"
BUSY_TICKS = 20


NOW = {"gracePeriodSeconds": 0}


def job_file(image: str) -> str:
    """Return a job file whose tasks fit on a small node."""
    task = "cpu: 50m, memory: 1Gi"
    return f"""\
apiVersion: tfk8s.dev/v1
name: {NAME}
image: {image}
jobs: {{chief: {{{task}}}, ps: {{{task}}}, worker: {{tasks: 2, {task}}}}}
"""


def pod_of(task: str) -> str:
    return f"{NAME}-{task.replace('/', '-')}"


class KubeEnvironment:
    """One cluster of four tasks that rows share while it is usable.

    Attributes:
        image: of the tasks.
        namespace: made for it.
        client: straight to the API server.
        proxy: the commands' connection to the API server.
    """

    def __init__(self, folder: Path, image: str) -> None:
        self.folder, self.image, self.client = folder, image, KubeApi()
        self.namespace = f"tfk8s-faults-{secrets.token_hex(3)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.client.send("POST", "/api/v1/namespaces", body=body)
        self.backend = KubernetesBackend(namespace=self.namespace)
        self.text = job_file(image)
        self.job_file = self.file("job.yaml", self.text)
        self.proxy = Proxy(self.client.url, folder)
        self._commands: list[Command] = []
        self._undo: list[Callable[[], object]] = []
        self._pods: dict[str, str] = {}  # of the cluster when all were new

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, verb: str, *words: object, **variables: str) -> Command:
        """Start a command of tfk8s."""
        return self._start(verb, "--namespace", self.namespace, *words, **variables)

    def start_program(self, *words: object) -> Command:
        """Start any program, which finds the API server behind the proxy."""
        return self._start(*words, program=True)

    def _start(self, *words: object, program: bool = False, **variables: str) -> Command:
        variables = {"KUBECONFIG": str(self.proxy.kubeconfig), **variables}
        command = Command(*words, program=program, **variables)
        self._commands.append(command)
        return command

    # ---- the cluster ----

    def status(self) -> ClusterStatus:
        return self.backend.observe(NAME)

    def cluster(self, to_kill: str = "") -> str:
        """Return the name of a cluster that is ready, all of whose tasks were made together.

        A pod that was made later has an address that the others learn late, and a task that is to be killed must not
        have been killed before, since kubelet would then wait until it starts it again.
        """
        pods = self.pods()
        killed = pods.get(pod_of(to_kill), {}).get("status", {}).get("containerStatuses", [{}])[0].get("restartCount")
        if killed or {name: pod["metadata"]["uid"] for name, pod in pods.items()} != self._pods:
            self.delete_pods()
        self.backend.apply(load(self.job_file))
        wait_until_ready(self.backend, NAME, 2 * PATIENCE)
        self._pods = {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}
        return NAME

    def pods(self) -> dict[str, Object]:
        """Return the pods of tasks, by name."""
        query = paths.of_cluster(NAME)
        query["labelSelector"] += f",{manifests.COMPONENT} notin ({manifests.SCRIPT},{warm_job.COMPONENT})"
        found = self.client.get(paths.collection("Pod", self.namespace), query)["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def delete_pods(self) -> None:
        self.client.send("DELETE", paths.collection("Pod", self.namespace), {**paths.of_cluster(NAME), **NOW})

    def remove(self) -> None:
        try:
            self.backend.delete(NAME)
        except NoSuchCluster:
            return

    # ---- one task ----

    def process(self, task: str) -> node.Process:
        return node.Process(self.pods()[pod_of(task)])

    def in_pod(self, task: str, *command: str) -> str:
        """Run a command in a task's pod; return what it prints."""
        words = ["kubectl", "exec", "-n", self.namespace, pod_of(task), "--", *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout

    # ---- scripts ----

    def submit(
        self, script: str, *words: object, to_kill: str = "", flags: Sequence[object] = (), **variables: str
    ) -> Command:
        return self.start("submit", *flags, self.cluster(to_kill), self.alone(script), *words, **variables)

    def alone(self, script: str) -> Path:
        """Return a script in a folder of its own, since its folder travels with it."""
        (self.folder / "script").mkdir(exist_ok=True)
        return self.file(f"script/{script}", (SCRIPTS / script).read_text())

    def steps(self, moment: str, *, to_kill: str = "") -> Command:
        """Return a script that is at this moment."""
        command = self.submit("steps.py", moment, to_kill=to_kill)
        command.until_says(moment)
        if moment == "during":
            self._until_busy()
        return command

    def steps_here(self) -> Command:
        """Return a script on this machine that is in a step."""
        command = self.start("submit", "--here", self.cluster(), self.alone("steps.py"), "during")
        command.until_says("during")
        self._until_busy()
        return command

    def join(self, *, to_kill: str = "") -> Command:
        """Return a script that joins the server of ps/0."""
        command = self.submit("join.py", to_kill=to_kill)
        command.until_says("joins")
        return command

    def notebook(self, where: str = "") -> Command:
        """Return a user's program that is in a step; `where` is an address, or ""."""
        self.cluster()
        command = self.start_program(sys.executable, SCRIPTS / "notebook.py", where or self.namespace)
        command.until_says("during")
        self._until_busy()
        return command

    def _until_busy(self) -> None:
        before = self._ticks()
        polling.wait_until(lambda: self._ticks() > before + BUSY_TICKS, "the step to be under way", PATIENCE)

    def _ticks(self) -> int:
        fields = self.in_pod("worker/1", "cat", "/proc/1/stat").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12]) if fields else 0

    # ---- what is left ----

    def objects(self) -> list[str]:
        return [
            f"{kind} {one['metadata']['name']}"
            for kind in (*paths.GROUPS, "Pod")
            for one in self.client.get(paths.collection(kind, self.namespace), paths.of_cluster(NAME))["items"]
        ]

    def require_left(self, left: str) -> None:
        """Check what is left behind."""
        if left == row.USABLE:
            polling.wait_until(self._is_usable, lambda: f"the cluster to be usable: {self.status()}", 2 * PATIENCE)
        elif left == row.NOTHING:
            polling.wait_until(lambda: not self.objects(), lambda: f"nothing to be left: {self.objects()}", PATIENCE)
        elif left == row.STARTED:
            self.cluster()
        else:
            raise AssertionError(left)

    def _is_usable(self) -> bool:
        return self.status().phase is Phase.READY and not self.running_scripts()

    # ---- what keeps clusters from coming up, or going ----

    def quota(self, pods: int) -> None:
        """Allow at most `pods` pods in the namespace, until the end of the row."""
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {}}}
        body["spec"] = {"hard": {"pods": str(pods)}}
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        self.client.send("POST", path, body=body)
        self._undo.append(lambda: self.client.send("DELETE", f"{path}/small"))

    def keep(self, task: str) -> None:
        """Keep a task's pod by a finalizer, until the end of the row."""
        self._finalizers(task, ["example.com/kept"])
        self._undo.append(lambda: self._finalizers(task, None))

    def _finalizers(self, task: str, names: list[str] | None) -> None:
        with contextlib.suppress(ApiException):  # it may be gone
            body = {"metadata": {"finalizers": names}}
            self.client.send("PATCH", paths.pod(self.namespace, pod_of(task)), body=body, content_type=MERGE)

    def until_made(self, kind: str) -> None:
        path = paths.collection(kind, self.namespace)
        polling.wait_until(lambda: self.client.get(path)["items"], f"a {kind} to be made", PATIENCE)

    def until_deleted(self, task: str) -> None:
        """Wait until a task's pod is being deleted."""
        polling.wait_until(
            lambda: "deletionTimestamp" in self.pods()[pod_of(task)]["metadata"], f"{task} to be deleted", PATIENCE
        )

    def running_scripts(self) -> list[ScriptStatus]:
        return [one for one in self.status().scripts if one.phase is ScriptPhase.RUNNING]

    def script_pod(self) -> str:
        """Return the name of the pod of the script that runs."""
        (running,) = self.running_scripts()
        return running.runs_on.partition(" ")[0]

    def cordon(self) -> None:
        """Cordon all nodes, at most until the end of the row."""
        self._undo.append(self.uncordon)
        self._cordon(is_closed=True)

    def uncordon(self) -> None:
        self._cordon(is_closed=None)

    def _cordon(self, *, is_closed: bool | None) -> None:
        for one in self.client.get("/api/v1/nodes")["items"]:
            path, body = f"/api/v1/nodes/{one['metadata']['name']}", {"spec": {"unschedulable": is_closed}}
            self.client.send("PATCH", path, body=body, content_type=MERGE)

    def at_end(self, action: Callable[[], object]) -> None:
        """Call `action` at the end of the row."""
        self._undo.append(action)

    def undo(self) -> None:
        """Undo the changes of a row."""
        while self._undo:
            self._undo.pop()()

    # ---- the end ----

    def close(self) -> None:
        """End the commands of a row, and undo its changes."""
        self.proxy.mend()
        self.undo()
        for command in self._commands:
            command.close()
        self._commands.clear()
        for job in self.client.get(paths.collection("Job", self.namespace))["items"]:
            path = f"{paths.collection('Job', self.namespace)}/{job['metadata']['name']}"
            self.client.send("DELETE", path, {"propagationPolicy": "Background"})

    def discard(self) -> None:
        self.proxy.close()
        self.client.send("DELETE", f"/api/v1/namespaces/{self.namespace}")
