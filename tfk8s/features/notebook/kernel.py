"""A notebook's kernel whose sessions run on a cluster: IPython's kernel, prepared as a session script is.

A session script has its own connections to the tasks. A kernel has the connection of `Cluster.session`: each kernel has
a forward of its own, so that Ctrl-C and the loss of a task end the calls of this kernel alone, and the kernel goes on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from tfk8s.api import find
from tfk8s.backends import devices, interpreter
from tfk8s.backends.options import BackendOptions
from tfk8s.cluster.handle import Cluster
from tfk8s.core.addresses import SCHEME
from tfk8s.core.environment import folder_variables
from tfk8s.core.storage import claims
from tfk8s.errors import Tfk8sError
from tfk8s.features.notebook import cell_errors
from tfk8s.log import log
from tfk8s.sessions import patch, runner, session
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.task.programs import imports, strategies, tensorflow_1


@dataclasses.dataclass(frozen=True, slots=True)
class KernelSettings:
    """The settings of a kernel.

    Attributes:
        name: the cluster's name.
        options: they choose the cluster's backend.
        job_file: the path of the job file with the addresses of the tasks; "" for other clusters.
        tf1: make `import tensorflow` give `tensorflow.compat.v1`, without eager execution.
    """

    name: str
    options: BackendOptions
    job_file: str = ""
    tf1: bool = False

    @classmethod
    def of(cls, cluster: Cluster, job_file: str, *, tf1: bool) -> KernelSettings:
        """Return the settings for a cluster.

        Args:
            job_file: the path of its job file, which kernels need if it has the addresses of the tasks.
            tf1: as of the class.
        """
        if (options := cluster.backend.locator(cluster.name)) is not None:
            return cls(cluster.name, options, tf1=tf1)
        return cls(cluster.name, BackendOptions(), str(Path(job_file).resolve()), tf1)

    def command(self) -> list[str]:
        """Return the command of a kernel, for Jupyter, which fills in the path of the connection file."""
        settings = json.dumps(dataclasses.asdict(self))
        return interpreter.command(sys.executable, "tfk8s.features.notebook.kernel", settings, "{connection_file}")

    @classmethod
    def parse(cls, text: str) -> KernelSettings:
        """Return the settings in a kernel's command."""
        values = json.loads(text)
        return cls(**{**values, "options": BackendOptions(**values["options"])})

    def cluster(self) -> Cluster:
        """Return the kernel's cluster."""
        from tfk8s.jobfile.loader import load

        return find(load(self.job_file) if self.job_file else self.name, self.options)


def prepare(cluster: Cluster, *, tf1: bool) -> None:
    """Prepare this process as a session script's is: the environment, TensorFlow's sessions and `tfk8s.session`."""
    session.use_cluster(cluster.session)
    try:
        target = os.environ["TFK8S_TARGET"] = cluster.target
        view = _view(cluster, target)
    except Tfk8sError as error:  # the cluster may be gone; then sessions say so
        log.warning("%s", error)
        view = ClusterView({})

    def check(target: object) -> None:  # only the master has an address here; the sidecar is no server's process
        patch.check_target(target, {task: view.addresses[task] for task in [view.master] if task}, timeout=0.0)

    runner.prepare_import()
    imports.when_imported(patch.SESSION_MODULE, lambda: patch.patch_sessions(view, check, isolate=False))
    strategies.refuse_without_cluster()
    if tf1:
        tensorflow_1.give()


def _view(cluster: Cluster, target: str) -> ClusterView:
    """Return the tasks as sessions at the forward see them, which brings the ClusterSpec of an elastic cluster."""
    status = cluster.status()
    addresses = devices.view(cluster.backend, status).addresses
    addresses[str(status.master)] = target.removeprefix(SCHEME)
    return ClusterView(addresses, forwarded=True, is_elastic=status.is_elastic)


def _see_volumes(name: str) -> None:
    """Mount the folders of a local cluster's volumes for this process, and let `tfk8s.path` find them.

    The network of a kernel is not the cluster's.
    """
    from tfk8s.backends.local import mounts, state

    try:
        if (record := state.folder(name).read()) is not None:
            os.environ |= folder_variables(record.job_file)
            mounts.enter(claims.volumes(record.job_file))
    except mounts.MountError as error:
        log.warning("this kernel %s; tfk8s.path finds the folder", error)


def main(settings: str, connection_file: str) -> None:
    """Run a kernel until Jupyter ends it.

    Args:
        settings: the text of `KernelSettings`.
        connection_file: the file with the kernel's ports, which Jupyter writes.
    """
    from ipykernel.kernelapp import IPKernelApp

    chosen = KernelSettings.parse(settings)
    if chosen.options.local:
        _see_volumes(chosen.name)  # now: a process with threads can't
    cluster = chosen.cluster()
    application: Any = IPKernelApp.instance()
    application.initialize([f"--IPKernelApp.connection_file={connection_file}", "--log-level=ERROR"])
    runner.install_log_handler()  # now, since the standard streams lead to the notebook
    prepare(cluster, tf1=chosen.tf1)
    cell_errors.install(application.shell)
    application.shell.push({"cluster": cluster})
    sys.path.insert(0, "")  # the notebook's folder, as IPython has it
    application.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
