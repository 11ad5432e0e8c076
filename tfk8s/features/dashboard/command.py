"""The command that opens the live page: dashboard."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from tfk8s.cli import completion, options
from tfk8s.cli.browser import in_browser
from tfk8s.cli.output import note, say
from tfk8s.cli.signals import Once


def dashboard(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="The cluster's name, or its job file; default: all clusters, of this machine and of Kubernetes.",
            show_default=False,
            autocompletion=completion.clusters,
        ),
    ] = None,
    port: Annotated[int, options.port_option("The page's port; default: a free one.")] = 0,
    no_browser: options.NoBrowser = False,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Open a live page of your clusters, until Ctrl-C.

    Shows tasks, what they use, curves of their progress, logs, events, the history. The page can change nothing. Only
    who has the printed address can open the page.

    Examples:
        tfk8s dashboard
        tfk8s dashboard --local mnist
        tfk8s dashboard mnist --no-browser --port 8000
    """
    from tfk8s.features.dashboard.here import serve

    with Once(), serve(name, local, context, namespace, port) as page:
        say(page.url)
        note("the page shows your clusters, until Ctrl-C")
        with nullcontext() if no_browser else in_browser(page.url):
            page.wait()
