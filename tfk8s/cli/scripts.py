"""Commands that run session scripts, or let others open sessions: submit, stop, run, connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfk8s.cli import completion, options
from tfk8s.cli.options import TIMEOUT
from tfk8s.cli.output import note, say
from tfk8s.cli.signals import Once

_LOOK_SECONDS = 2.0

if TYPE_CHECKING:
    from tfk8s.cluster.handle import Cluster
    from tfk8s.core.status import ClusterStatus


def submit(
    name: options.Name,
    script: options.Script,
    arguments: options.ScriptArguments = None,
    tf1: options.Tf1 = False,
    fresh: options.Fresh = False,
    isolate: options.Isolate = False,
    requirements: options.Requirements = None,
    gpus: options.Gpus = 0,
    without: options.Without = None,
    retries: options.Retries = 0,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the script's name, and leave it to itself.")
    ] = False,
    here: Annotated[bool, typer.Option("--here", help="On this machine, whose ports 2222… lead to the tasks.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="TIME", callback=options.seconds, help="Wait so long for the cluster first."),
    ] = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Run a session script beside the master.

    Its output and its exit code are the command's. What follows SCRIPT is the script's own. It finds the master in
    TFK8S_TARGET. On Kubernetes it outlives a command that is cut off; Ctrl-C ends it.

    Examples:
        tfk8s submit --local mnist train.py --steps 1000
        tfk8s submit --tf1 mnist old_script.py
        tfk8s submit --detach mnist train.py
        tfk8s submit --retries 3 --without worker/3 mnist train.py
    """
    from tfk8s.api import find
    from tfk8s.backends.options import BackendOptions
    from tfk8s.cli.progress import Progress
    from tfk8s.cluster.scripts import make_script, run_here
    from tfk8s.errors import InvalidInput

    if here and detach:
        raise InvalidInput("--here and --detach exclude each other: a script on this machine ends with its command")
    if retries and (here or detach):
        raise InvalidInput("--retries is for scripts that run beside the master, and that this command stays with")
    wanted = make_script(
        script, arguments or (), tf1=tf1, fresh=fresh, isolate=isolate, requirements=requirements, gpus=gpus,
        without=without or (),
    )  # fmt: skip
    cluster = find(name, BackendOptions(local or None, context, namespace))
    if timeout is not None:
        with Progress() as progress:
            cluster.wait(timeout, progress.update, without=without or ())
    if here:
        return run_here(cluster.backend, cluster.name, wanted)
    if not detach:
        return cluster.run(wanted, retries=retries)
    started = cluster.start(wanted)
    say(started)
    which = f"{cluster.backend.flags} {cluster.name} {started}"
    note(f"follow it: tfk8s logs -f{which}; end it: tfk8s stop{which}")
    return 0


def stop(
    name: options.Name,
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT",
            help="Its name, as in `tfk8s status`.",
            show_default=False,
            autocompletion=completion.scripts,
        ),
    ],
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """End a script that `tfk8s submit` started, and remove its log.

    Examples:
        tfk8s stop mnist script-4e9c21
    """
    from tfk8s.api import find
    from tfk8s.backends.options import BackendOptions

    cluster = find(name, BackendOptions(local or None, context, namespace))
    cluster.stop(script)
    say(f'stopped {script} of cluster "{cluster.name}"')


def run(
    file: options.File,
    script: options.Script,
    arguments: options.ScriptArguments = None,
    tf1: options.Tf1 = False,
    fresh: options.Fresh = False,
    isolate: options.Isolate = False,
    requirements: options.Requirements = None,
    gpus: options.Gpus = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running.")] = False,
    timeout: options.Timeout = TIMEOUT,
    allow_exposed_ports: options.ExposedPorts = False,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Start a cluster, run a session script, and remove the cluster.

    A cluster that runs already with the same job file is used, and kept. What follows SCRIPT is the script's own.

    Examples:
        tfk8s run --local cluster.yaml train.py --steps 1000
        tfk8s run --local --tf1 cluster.yaml old_script.py
    """
    from tfk8s.api import find
    from tfk8s.backends.options import BackendOptions
    from tfk8s.cli.progress import Progress
    from tfk8s.cluster.scripts import make_script
    from tfk8s.jobfile.loader import load

    wanted = make_script(
        script, arguments or (), tf1=tf1, fresh=fresh, isolate=isolate, requirements=requirements, gpus=gpus
    )
    spec = load(file)
    cluster = find(spec, BackendOptions(local or None, context, namespace, allow_exposed_ports), keep=keep)

    with Once() as signals, Progress() as progress, cluster:

        def changed(status: ClusterStatus) -> None:
            signals.check()
            progress.update(status)

        try:
            cluster.apply(spec)
            cluster.wait(timeout, changed)
            signals.check()
            progress.close()
            if not cluster.created:
                state = "was there, and is now as the job file says" if cluster.changed else "runs already"
                note(f'cluster "{cluster.name}" {state}: it is used, and kept')
            return cluster.run(wanted)
        finally:
            signals.hold()


def connect(
    name: options.Name,
    port: Annotated[
        int,
        typer.Option("--port", metavar="PORT", callback=options.port, show_default=False, help="Default: a free one."),
    ] = 0,
    without: options.Without = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Give a loopback address for sessions of this machine.

    It is there for notebooks and the like, until Ctrl-C, and stays when tasks are restarted. Only your own processes
    can connect to it.

    Examples:
        tfk8s connect --local mnist
        tfk8s connect --port 2222 mnist
    """
    from tfk8s.api import find
    from tfk8s.backends.options import BackendOptions

    cluster = find(name, BackendOptions(local or None, context, namespace))
    with cluster.forward(port, without or ()) as forward:
        say(forward.target)
        note(f'sessions on it reach cluster "{cluster.name}", until Ctrl-C')
        until_gone(cluster)


def until_gone(cluster: Cluster) -> None:
    """Wait for as long as a cluster is there.

    Raises:
        ClusterError: it has ended, or was removed.
    """
    from tfk8s import polling
    from tfk8s.errors import BackendUnreachable, ClusterError, NoSuchCluster

    for _ in polling.every(_LOOK_SECONDS):
        try:
            status = cluster.status()
        except BackendUnreachable:  # it may come back
            continue
        except NoSuchCluster as error:
            raise ClusterError(f'cluster "{cluster.name}" was removed') from error
        if status.reason:
            raise ClusterError(status.reason)
