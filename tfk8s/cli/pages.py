"""Commands that open a page in the browser: notebook, tensorboard."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s.cli import options
from tfk8s.cli.output import note, say
from tfk8s.cli.signals import Once

NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser.")]


def notebook(
    name: options.Name,
    file: Annotated[
        str | None, typer.Argument(metavar="NOTEBOOK", help="A notebook, FILE.ipynb.", show_default=False)
    ] = None,
    tf1: options.Tf1 = False,
    port: Annotated[int, options.port_option("JupyterLab's port; default: 8888, or the next one that is free.")] = 0,
    no_browser: NoBrowser = False,
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
    from tfk8s.cluster.notebook import server
    from tfk8s.cluster.notebook.kernel import KernelSettings
    from tfk8s.sessions.forward import listen

    path = server.require_notebook(file) if file is not None else None
    server.require_jupyter()
    listen(port).close()  # Jupyter would say the same with a traceback
    cluster = options.find_cluster(name, local, context, namespace)
    server.require_master(cluster)
    settings = KernelSettings.of(cluster, name, tf1=tf1)
    with Once(), server.jupyter(cluster, settings, path, port, browser=not no_browser) as jupyter:
        say(jupyter.url)
        note(f'notebooks have the sessions of cluster "{cluster.name}", until Ctrl-C')
        return jupyter.wait()


def tensorboard(
    name: options.Name,
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="FOLDER",
            help="The folder of event files; default: logs, or on Kubernetes the only volume of the job file.",
            show_default=False,
        ),
    ] = None,
    requirements: options.Requirements = None,
    port: Annotated[int, options.port_option("The page's port; default: 6006, or a free one.")] = 0,
    no_browser: NoBrowser = False,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Open TensorBoard with what scripts write, until Ctrl-C.

    Shows the event files of programs, too. On Kubernetes, TensorBoard runs in a pod that reads the volumes of the job
    file, and a forward leads to the pod. Only who has the printed address can open the page.

    Examples:
        tfk8s tensorboard --local mnist
        tfk8s tensorboard mnist /logs/run-1
        tfk8s tensorboard --requirements tensorboard.txt mnist
    """
    from contextlib import nullcontext

    from tfk8s.cluster.tensorboard import in_browser, serve

    cluster = options.find_cluster(name, local, context, namespace)
    with Once(), serve(cluster, folder, requirements, port) as page:
        say(page.url)
        note(f'TensorBoard shows the event files below "{page.folder}", until Ctrl-C')
        with nullcontext() if no_browser else in_browser(page.url):
            page.wait()
