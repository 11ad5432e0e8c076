"""The command that opens TensorBoard: tensorboard."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

from tfk8s.cli import options
from tfk8s.cli.browser import in_browser
from tfk8s.cli.output import note, say
from tfk8s.cli.signals import Once
from tfk8s.features.tensorboard.here import serve


def tensorboard(
    name: options.Name,
    folder: Annotated[
        str | None,
        options.argument(
            "FOLDER", "The folder of event files; default: logs, or on Kubernetes the only volume of the job file."
        ),
    ] = None,
    requirements: options.Requirements = None,
    port: Annotated[int, options.port_option("The page's port; default: 6006, or a free one.")] = 0,
    no_browser: options.NoBrowser = False,
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
    cluster = options.find_cluster(name, local, context, namespace)
    with Once(), serve(cluster, folder, requirements, port) as page:
        say(page.url)
        note(f'TensorBoard shows the event files below "{page.folder}", until Ctrl-C')
        with nullcontext() if no_browser else in_browser(page.url):
            page.wait()
