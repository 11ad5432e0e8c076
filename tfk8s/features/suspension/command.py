"""The commands `tfk8s suspend` and `tfk8s resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s.cli import json_output, options
from tfk8s.cli.options import TIMEOUT, NoWait
from tfk8s.cli.output import ask, can_ask, document, note, say
from tfk8s.cli.signals import leaving
from tfk8s.cli.start_progress import Progress
from tfk8s.cluster.handle import Cluster
from tfk8s.cluster.suspending import what_is_lost
from tfk8s.errors import InvalidInput

_HALF = "the cluster counts as suspended; `tfk8s suspend` again ends the rest, `tfk8s resume` starts all"


def suspend(
    name: options.Name,
    yes: Annotated[
        bool, typer.Option("--yes", help="Lose variables of sessions, and end scripts, without a question.")
    ] = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """End all tasks of a cluster, and keep the rest until `resume`.

    Gives nodes back, or the memory of this machine. Addresses, claims, files, limits and the scripts that have ended
    stay. Programs get SIGTERM, and go on from their checkpoints after `resume`. Sessions lose their variables, and
    scripts end: this asks before, or needs --yes.

    Examples:
        tfk8s suspend mnist
        tfk8s suspend --local --yes mnist

    JSON: the fields of `status`, and changed.
    """
    cluster = options.find_cluster(name, local, context, namespace)
    with leaving(_HALF):
        changed = cluster.suspend(lose_variables=yes or _may_lose(cluster))
    if output is not None:
        document({**json_output.cluster(cluster.status()), "changed": changed})
        return
    say(f'cluster "{cluster.name}" is suspended' + ("" if changed else ": nothing changed"))
    note(f"resume it: tfk8s resume{cluster.backend.flags} {cluster.name}")


def _may_lose(cluster: Cluster) -> bool:
    """Ask, at a terminal, whether to lose what a suspension loses; False without a terminal.

    Raises:
        InvalidInput: the user does not want that.
    """
    if not can_ask():
        return False
    status = cluster.status()
    losses = "" if status.suspended else what_is_lost(status)
    if losses and not ask(f'a suspension of "{cluster.name}" {losses}. Suspend it?'):
        raise InvalidInput(f'cluster "{cluster.name}" was not suspended')
    return bool(losses)


def resume(
    name: options.Name,
    timeout: options.Timeout = TIMEOUT,
    no_wait: NoWait = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Start a suspended cluster again, and wait until all is ready.

    Tasks have the addresses of before. Programs begin again, from their checkpoints.

    Examples:
        tfk8s resume mnist
        tfk8s resume --local --no-wait mnist

    JSON: the fields of `status`, and changed.
    """
    cluster = options.find_cluster(name, local, context, namespace)
    advice = f"tasks start already; `tfk8s resume{cluster.backend.flags} {cluster.name}` waits for them"
    with leaving(advice), Progress() as progress:
        changed = cluster.resume(timeout=None if no_wait else timeout, on_change=progress.update)
    if output is not None:
        document({**json_output.cluster(cluster.status()), "changed": changed})
        return
    state = "is resumed" if changed else "is not suspended: nothing changed"
    say(f'cluster "{cluster.name}" {state}')
