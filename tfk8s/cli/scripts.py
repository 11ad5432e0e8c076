"""Commands for session scripts and other sessions: submit, stop, run, connect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk8s import api, polling
from tfk8s.backends.options import BackendOptions
from tfk8s.cli import completion, options
from tfk8s.cli.options import TIMEOUT
from tfk8s.cli.output import document, note, say
from tfk8s.cli.programs import follow
from tfk8s.cli.result_file import Result
from tfk8s.cli.signals import Once
from tfk8s.cli.start_progress import Progress
from tfk8s.cluster.handle import Cluster
from tfk8s.cluster.removal_notice import RemovalNotice
from tfk8s.cluster.scripts import describe_use, make_script, require_combination, require_order
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import BackendUnreachable, ClusterError, InvalidInput, NoSuchCluster

POLL_INTERVAL = 2.0


def submit(
    name: options.Name,
    script: options.Script,
    arguments: options.ScriptArguments = None,
    tf1: options.Tf1 = False,
    fresh: options.Fresh = False,
    isolate: options.Isolate = False,
    on_master: options.OnMaster = False,
    requirements: options.Requirements = None,
    gpus: options.Gpus = None,
    cpu: options.Cpu = None,
    memory: options.Memory = None,
    get: options.Get = None,
    trace: options.Trace = None,
    trace_every: options.TraceEvery = None,
    without: options.Without = None,
    retries: options.Retries = 0,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the script's name and return; the script continues.")
    ] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Run on this machine; forward localhost:2222 and up to the tasks.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Run again when a file of the script's folder changes, until Ctrl-C.")
    ] = False,
    timeout: options.StartTimeout = None,
    result: Result = None,
    python: options.Python = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Run a session script next to the master.

    Prints the script's output and returns its exit code. Arguments after SCRIPT go to the script. TFK8S_TARGET holds
    the master's address. On Kubernetes, --detach lets the script run without this command. Ctrl-C stops the script.
    --get copies PATH from the script's folder to LOCAL (default: the same path here), whatever the exit code.
    --trace shows what the tasks did in a step of the sessions, and what the step waited for.

    Examples:
        tfk8s submit --local mnist train.py --steps 1000
        tfk8s submit --tf1 mnist old_script.py
        tfk8s submit --get model mnist train.py
        tfk8s submit --trace steps.html mnist train.py
        tfk8s submit --detach mnist train.py
        tfk8s submit --watch mnist train.py
        tfk8s submit --retries 3 --without worker/3 mnist train.py
    """
    del result  # `Command.invoke` writes the file
    require_order("submit", name, script)
    if watch and detach:
        raise InvalidInput("--watch can't be combined with --detach: each run ends with this command")
    if watch:
        api.feature("watch").run_again(sys.argv[1:], Path(script))
    recording = _recording(trace, trace_every)
    require_combination(detach=detach, here=here, get=bool(get), trace=recording is not None, retries=bool(retries))
    session_script = make_script(
        script, arguments or (), tf1=tf1, fresh=fresh, isolate=isolate, requirements=requirements, gpus=gpus,
        cpu=cpu, memory=memory, without=without or (), get=get or (), start_timeout=timeout, on_master=on_master,
    )  # fmt: skip
    cluster = options.find_cluster(name, local, context, namespace, python)
    if timeout is not None:
        with Progress() as progress:
            cluster.wait(timeout, progress.update, without=without or ())
    if not detach:
        return cluster.run(session_script, retries=retries, here=here, recording=recording)
    started = cluster.start(session_script)
    say(started.name)
    which = f"{cluster.backend.flags} {cluster.name} {started.name}"
    note(f"follow it: tfk8s logs -f{which}; stop it: tfk8s stop{which}")
    return 0


def stop(
    name: options.Name,
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT",
            help="The script's name, from `tfk8s status`.",
            show_default=False,
            autocompletion=completion.scripts,
        ),
    ],
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Stop a script that `tfk8s submit` started, and delete its log.

    Examples:
        tfk8s stop mnist script-4e9c21

    JSON: name, script.
    """
    cluster = options.find_cluster(name, local, context, namespace)
    cluster.stop(script)
    if output is not None:
        document({"name": cluster.name, "script": script})
        return
    say(f'stopped {script} of cluster "{cluster.name}"')


def run(
    file: options.File,
    script: Annotated[
        str | None,
        typer.Argument(metavar="SCRIPT", help="A Python file; default: the job file's programs.", show_default=False),
    ] = None,
    arguments: options.ScriptArguments = None,
    tf1: options.Tf1 = False,
    fresh: options.Fresh = False,
    isolate: options.Isolate = False,
    on_master: options.OnMaster = False,
    requirements: options.Requirements = None,
    gpus: options.Gpus = None,
    cpu: options.Cpu = None,
    memory: options.Memory = None,
    get: options.Get = None,
    trace: options.Trace = None,
    trace_every: options.TraceEvery = None,
    settings: options.Settings = None,
    variables: options.Variables = None,
    all_lines: options.AllLines = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running.")] = False,
    timeout: options.Timeout = TIMEOUT,
    result: Result = None,
    allow_exposed_ports: options.ExposedPorts = False,
    python: options.Python = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Start a cluster, run its programs or a script, and remove it.

    Without SCRIPT, prints the output of the job file's programs, and returns the exit code of their run: 0, or that of
    the program that failed. With SCRIPT, uses and keeps a cluster that already runs with this job file. Arguments after
    SCRIPT go to the script. --get copies PATH from the script's folder to LOCAL (default: the same path here) before
    the cluster is removed. Without SCRIPT, it is [TASK:]PATH[:LOCAL], copied when TASK's program ends (default: the
    first task of the master's job). Unless --keep is given, the cluster is removed after SIGKILL of this command, too:
    on Kubernetes after 15 minutes.

    Examples:
        tfk8s run --local cluster.yaml
        tfk8s run --local cluster.yaml train.py --steps 1000
        tfk8s run --get evaluator/0:model cluster.yaml
        tfk8s run --local --tf1 cluster.yaml old_script.py
    """
    del result  # `Command.invoke` writes the file
    recording, session_script = _recording(trace, trace_every), None
    if script is not None:
        require_order("run", file, script)
        session_script = make_script(
            script, arguments or (), tf1=tf1, fresh=fresh, isolate=isolate, on_master=on_master, get=get or (), cpu=cpu,
            requirements=requirements, gpus=gpus, memory=memory, start_timeout=None if timeout == TIMEOUT else timeout,
        )  # fmt: skip
    elif tf1 or fresh or isolate or on_master or requirements or gpus or cpu or memory or trace:
        flags = "--tf1, --fresh, --isolate, --on-master, --requirements, --gpus, --cpu, --memory and --trace"
        raise InvalidInput(f"{flags} need a SCRIPT")
    where = BackendOptions(local or None, context, namespace, allow_exposed_ports, python)
    spec = options.load_job_file(file, settings, variables)
    with Once() as signals, Progress() as progress:
        events = _Run(signals, progress, all_lines=all_lines)
        files = () if script else get or ()  # those of a script are the script's
        return api.run(spec, where, events, session_script, get=files, recording=recording, timeout=timeout, keep=keep)


class _Run:
    """The part of the terminal in `run`: panels, lines and signals."""

    def __init__(self, signals: Once, progress: Progress, *, all_lines: bool) -> None:
        self._signals, self._progress, self._all_lines = signals, progress, all_lines
        self.ends = signals.hold

    def changed(self, status: ClusterStatus) -> None:
        self._signals.check()
        self._progress.update(status)

    def is_up(self, cluster: Cluster, status: ClusterStatus) -> None:
        self._signals.check()
        self._progress.close()
        if not cluster.created:
            note(describe_use(status, changed=cluster.changed))

    def follow(self, cluster: Cluster, on_end: Callable[[], None]) -> int:
        return follow(cluster, self._signals, on_end, all_lines=self._all_lines)


def _recording(page: str | None, every: int | None) -> Any:
    """Return the timeline that `--trace` and `--trace-every` ask for; None if they ask for none."""
    return None if page is None and every is None else api.feature("timeline").parse(page, every)


def connect(
    name: options.Name,
    port: Annotated[int, options.port_option("The local port; default: a free port.")] = 0,
    without: options.Without = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Forward a local port to the master, until Ctrl-C.

    Serves notebooks and other programs. The port stays the same if tasks restart. Only your own processes can connect.

    Examples:
        tfk8s connect --local mnist
        tfk8s connect --port 2222 mnist
    """
    cluster = options.find_cluster(name, local, context, namespace)
    with cluster.forward(port, without or ()) as forward:
        say(forward.target)
        note(f'forwarding sessions to cluster "{cluster.name}", until Ctrl-C')
        note("the strategies of tf.distribute find no cluster at this address: use a program, or submit the script")
        with RemovalNotice(cluster.backend, cluster.name):
            until_gone(cluster)


def until_gone(cluster: Cluster) -> None:
    """Wait until a cluster ends or is removed.

    Raises:
        ClusterError: the cluster has ended, or was removed.
    """
    for _ in polling.every(POLL_INTERVAL):
        try:
            status = cluster.status()
        except BackendUnreachable:  # the backend may recover
            continue
        except NoSuchCluster as error:
            raise ClusterError(f'cluster "{cluster.name}" was removed') from error
        if status.reason:
            raise ClusterError(status.reason)
