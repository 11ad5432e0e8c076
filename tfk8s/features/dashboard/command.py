"""The command that opens the live page: dashboard."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from tfk8s.cli import options
from tfk8s.cli.browser import in_browser
from tfk8s.cli.output import note, say
from tfk8s.cli.signals import Once


def dashboard(
    name: options.NameOrAll = None,
    port: Annotated[int, options.port_option("The page's port; default: a free one.")] = 0,
    no_browser: options.NoBrowser = False,
    local: options.Local = False,
    context: options.Context = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="Default: that of the context; repeatable."),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show the clusters of all namespaces that you may read.")
    ] = False,
) -> None:
    """Open a live page of your clusters, until Ctrl-C.

    Shows tasks, what they use, curves of their progress, logs, events, the history: of this machine, and of the
    current namespace of Kubernetes, or of others. The page can change nothing. Only who has the printed address can
    open the page.

    Examples:
        tfk8s dashboard
        tfk8s dashboard --local mnist
        tfk8s dashboard mnist --no-browser --port 8000
        tfk8s dashboard -n team-a -n team-b
        tfk8s dashboard --all-namespaces
    """
    from tfk8s.features.dashboard.here import serve

    chosen = serve(name, local, context, namespace or (), port, all_namespaces=all_namespaces)
    with Once(), chosen as page:
        say(page.url)
        note("the page shows your clusters, until Ctrl-C")
        with nullcontext() if no_browser else in_browser(page.url):
            page.wait()
