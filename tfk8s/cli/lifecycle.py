"""Commands that start, change and remove clusters: up, restart, down, scale."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s import api
from tfk8s.backends.options import BackendOptions
from tfk8s.cli import completion, json_output, options
from tfk8s.cli.diff import show
from tfk8s.cli.options import TIMEOUT, NoWait
from tfk8s.cli.output import ask, can_ask, document, note, say
from tfk8s.cli.signals import leaving
from tfk8s.cli.start_progress import Progress
from tfk8s.cluster.handle import Cluster
from tfk8s.core.job_kinds import program_jobs
from tfk8s.core.plan import Plan, Scaling
from tfk8s.core.task_names import parse_counts
from tfk8s.errors import InvalidInput

_RESTARTS = "a restart that has begun continues; `tfk8s status` shows its progress"

_SCALES = "tasks that start or end already continue; `tfk8s status` shows their progress"


def up(
    file: options.FileOrDefault = None,
    settings: options.Settings = None,
    variables: options.Variables = None,
    avoided: options.Avoided = None,
    timeout: options.Timeout = TIMEOUT,
    no_wait: NoWait = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, without changing anything.")
    ] = False,
    allow_exposed_ports: options.ExposedPorts = False,
    python: options.Python = None,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Start a cluster, and wait until every task is ready.

    Leaves a cluster that already runs with this job file unchanged. On failure, leaves everything in place for
    inspection.

    Examples:
        tfk8s up --local
        tfk8s up --context kind-test --timeout 5m cluster.yaml
        tfk8s up --dry-run cluster.yaml

    JSON: the fields of `status`, and changed; with --dry-run those of `diff`.
    """
    spec = options.load_job_file(options.file_or_default(file), settings, variables, avoided)
    if dry_run:
        plan = api.plan(spec, BackendOptions(local or None, context, namespace, allow_exposed_ports, python))
        _show_plan(plan, as_json=output is not None)
        return
    advice = "a cluster that starts already continues; `tfk8s up` waits for the cluster, `tfk8s down` removes it"
    with leaving(advice), Progress() as progress:
        cluster = api.up(
            spec, local=local or None, context=context, namespace=namespace, timeout=None if no_wait else timeout,
            keep=True, allow_exposed_ports=allow_exposed_ports, python=python, on_change=progress.update,
        )  # fmt: skip
    if output is not None:
        _print_cluster(cluster, changed=cluster.changed)
        return
    state = "is started" if no_wait else "is up"
    say(
        f'cluster "{cluster.name}" {state}' if cluster.changed else f'cluster "{cluster.name}" {state}: nothing changed'
    )
    status = cluster.status()
    facts = {
        "history": status.record,
        "python": status.interpreter,
        "isolation": status.isolation,
        "way out": status.way_out,
    }
    for fact in (f"{name}: {text}" for name, text in facts.items() if text):
        note(fact)
    if program_jobs(spec):
        note(f"wait for its programs: tfk8s wait{cluster.backend.flags} {cluster.name}")
    else:
        note(f"run a script in it: tfk8s submit{cluster.backend.flags} {cluster.name} SCRIPT")


def _print_cluster(cluster: Cluster, *, changed: bool) -> None:
    """Print the document of a command that may have changed a cluster."""
    document({**json_output.cluster(cluster.status()), "changed": changed})


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        document(json_output.plan(plan))
        return
    show(plan)
    if plan.refusal:
        raise InvalidInput(plan.refusal)
    result = "would change as shown" if plan else "would not change"
    say(f'dry run: cluster "{plan.name}" {result}')


def restart(
    name: options.Name,
    task: Annotated[str | None, options.argument("TASK", "JOB/INDEX; default: all tasks.", completion.tasks)] = None,
    timeout: options.Timeout = TIMEOUT,
    no_wait: NoWait = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Restart a task, or all tasks.

    Waits until every task is ready. Variables on restarted servers are lost. A program runs again from its beginning,
    together with the other programs of its run's restart_scope.

    Examples:
        tfk8s restart --local mnist worker/1
        tfk8s restart mnist

    JSON: the fields of `status`, and changed.
    """
    cluster = options.find_cluster(name, local, context, namespace)
    with leaving(_RESTARTS), Progress() as progress:
        cluster.restart(task, timeout=None if no_wait else timeout, on_change=progress.update)
    if output is not None:
        _print_cluster(cluster, changed=True)
        return
    say(f'restarted {task or "all tasks"} of cluster "{cluster.name}"')


def down(
    name: options.NameOrDefault = None,
    save_logs: Annotated[
        str | None,
        typer.Option("--save-logs", metavar="DIR", help="First write the logs of tasks and scripts to this folder."),
    ] = None,
    delete_claims: Annotated[
        bool, typer.Option("--delete-claims", help="Also delete the claims that `up` made, with their data.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the cluster of ./cluster.yaml without a question.")
    ] = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Remove a cluster: all that `tfk8s up` created, but claims.

    Without NAME, asks before it removes the cluster of ./cluster.yaml. With --save-logs, removes nothing if a log can't
    be read or written. With --delete-claims, the cluster may be gone already.

    Examples:
        tfk8s down --local mnist
        tfk8s down --yes
        tfk8s down --save-logs logs mnist
        tfk8s down --delete-claims mnist

    JSON: name, kept_claims.
    """
    cluster = options.find_cluster(options.file_or_default(name), local, context, namespace)
    if name is None and not yes:
        _require_confirmation(cluster)
    with leaving("parts of the cluster may remain; `tfk8s down` again removes them"):
        kept = cluster.down(save_logs=save_logs, delete_claims=delete_claims)
    if output is not None:
        document({"name": cluster.name, "kept_claims": list(kept)})
        return
    say(f'cluster "{cluster.name}" is down')
    if kept:
        names = f"claim{'s' * (len(kept) > 1)} {', '.join(kept)}"
        note(f"kept: {names}; the next `up` finds the data, `down --delete-claims` deletes it")


def _require_confirmation(cluster: Cluster) -> None:
    """Ask whether to remove the cluster of the default job file.

    Raises:
        InvalidInput: the user does not want that, or there is no terminal to ask at.
    """
    locator = cluster.backend.locator(cluster.name)
    if locator is None:  # servers that somebody else started: `down` refuses them
        return
    place = (
        "this machine" if locator.local else f"context {locator.context or '(in a pod)'}, namespace {locator.namespace}"
    )
    what = f'cluster "{cluster.name}" of {options.DEFAULT_FILE} ({place})'
    if not can_ask():
        raise InvalidInput(
            f"this would remove {what}, and there is no terminal to ask at",
            help=f"tfk8s down --yes, or name the cluster: tfk8s down{cluster.backend.flags} {cluster.name}",
        )
    if not ask(f"remove {what}?"):
        raise InvalidInput(f"{what} was not removed")


def scale(
    name: options.Name,
    tasks: Annotated[
        list[str], options.argument("JOB=TASKS", "The new number of tasks of a job.", completion.task_counts)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Remove tasks even if they may hold variables.")] = False,
    timeout: options.Timeout = TIMEOUT,
    no_wait: NoWait = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Change the number of tasks of jobs.

    The other tasks continue with their variables, and new sessions see the new cluster. In a cluster with programs, all
    tasks restart. Waits until every task is ready. Does not change the job file.

    Examples:
        tfk8s scale mnist worker=8
        tfk8s scale --local mnist worker=8 ps=2

    JSON: the fields of `status`, and changed.
    """
    task_counts = parse_counts(tasks)
    cluster = options.find_cluster(name, local, context, namespace)
    with leaving(_SCALES), Progress() as progress:
        changed = cluster.scale(
            task_counts, lose_variables=yes, timeout=None if no_wait else timeout, on_change=progress.update
        )
    if output is not None:
        _print_cluster(cluster, changed=bool(changed))
        return
    numbers = ", ".join(f"{job}={count}" for job, count in task_counts.items())
    if changed:
        has_restarted = changed is Scaling.RESTARTED
        say(f'scaled cluster "{cluster.name}" to {numbers}{" and restarted all its tasks" if has_restarted else ""}')
        note(f"change the job file, too: `tfk8s up{cluster.backend.flags}` goes by the numbers in it")
    else:
        say(f'cluster "{cluster.name}" already has {numbers}: nothing changed')
