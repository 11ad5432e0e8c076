"""The command that opens JupyterLab: notebook."""

from __future__ import annotations

from typing import Annotated

from tfk8s.cli import options
from tfk8s.cli.output import note, say
from tfk8s.cli.signals import Once
from tfk8s.cluster.removal_notice import RemovalNotice
from tfk8s.features.notebook import server
from tfk8s.features.notebook.kernel import KernelSettings
from tfk8s.sessions.forward import listen


def notebook(
    name: options.Name,
    file: Annotated[str | None, options.argument("NOTEBOOK", "A notebook, FILE.ipynb.")] = None,
    tf1: options.Tf1 = False,
    port: Annotated[int, options.port_option("JupyterLab's port; default: 8888, or the next one that is free.")] = 0,
    no_browser: options.NoBrowser = False,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Open JupyterLab with the cluster's sessions, until Ctrl-C.

    JupyterLab and its kernels run on this machine. In a cell, tfk8s.session() opens a session on the cluster, and
    `cluster` shows the tasks. Interrupting the kernel ends a step. Only who has the printed address can open the page.

    Examples:
        tfk8s notebook --local mnist
        tfk8s notebook mnist explore.ipynb
        tfk8s notebook --no-browser --port 8900 mnist
    """
    path = server.require_notebook(file) if file is not None else None
    server.require_jupyter()
    listen(port).close()  # Jupyter would say the same with a traceback
    cluster = options.find_cluster(name, local, context, namespace)
    server.require_master(cluster)
    settings = KernelSettings.of(cluster, name, tf1=tf1)
    with Once(), server.jupyter(cluster, settings, path, port, browser=not no_browser) as jupyter:
        say(jupyter.url)
        note(f'notebooks have the sessions of cluster "{cluster.name}", until Ctrl-C')
        with RemovalNotice(cluster.backend, cluster.name):
            return jupyter.wait()
