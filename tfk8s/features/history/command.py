"""The command that lists what ran, and removes old entries: history."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s.backends.history import index
from tfk8s.backends.options import BackendOptions
from tfk8s.cli import options
from tfk8s.cli.output import document, note, say
from tfk8s.core.history.facts import MAX_AGE, MAX_ENTRIES
from tfk8s.errors import InvalidInput
from tfk8s.features.history import show
from tfk8s.features.history.here import SHOWN, is_shared, rows

_DAY = 86400.0


def history(
    name: Annotated[str | None, options.argument("NAME", "Only the clusters of this name; default: all.")] = None,
    last: Annotated[int, options.number_option("--last", "N", 1, "List the last N entries; default: 30.")] = SHOWN,
    claim: Annotated[
        str | None,
        typer.Option("--claim", metavar="CLAIM", help="First bring the last N of the history in this claim."),
    ] = None,
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="URL", help="The same for s3://NAME/PREFIX or gs://NAME/PREFIX.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="The same for the claim or bucket that the namespace names.")
    ] = False,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="IMAGE",
            help="Of the pod that reads the claim, with Python; default: that of a cluster that writes there.",
        ),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove entries, by --older and --keep.")] = False,
    older: Annotated[
        int | None,
        options.number_option("--older", "DAYS", 0, "With --prune: those that ended over DAYS ago; default: 180."),
    ] = None,
    keep: Annotated[
        int | None, options.number_option("--keep", "N", 0, "With --prune: all but the last N; default: 10000.")
    ] = None,
    output: options.Output = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:  # fmt: skip
    """List the clusters that ran, the newest first.

    An entry NAME@NUMBER stays after `down`, a limit or a crash. `status`, `logs`, `events` and `diff` take an entry in
    place of a cluster. A commit with * had changes. The history is in files of this user on this machine.

    Examples:
        tfk8s history
        tfk8s history --last 5 mnist
        tfk8s status mnist@3
        tfk8s logs mnist@3 worker/1
        tfk8s history --claim tfk8s-history mnist
        tfk8s history --bucket s3://team/tfk8s mnist
        tfk8s history --prune --older 30

    JSON: a list of entries, each with entry, name, number, started, state (open, ended, lost), location, who, ended,
    exit_code, reason, progress, commit, image, size, hours (cpu, memory in GiB, gpus: as requested). With --prune, the
    entries that were removed.
    """
    is_from_others = is_shared(claim, context or namespace or image, bucket=bucket, shared=shared)
    if prune:
        if is_from_others:
            raise InvalidInput("--prune concerns your own files only", help="leave out --claim, --bucket and --shared")
        _prune(name, older, keep, output)
        return
    if older is not None or keep is not None:
        raise InvalidInput("--older and --keep need --prune", help="--last N lists the last N entries")
    if is_from_others:
        from tfk8s.api import pull_history  # a list alone needs no backend

        place = BackendOptions(False, context, namespace)
        pulled = pull_history(place, claim, bucket=bucket, name=name, last=last, image=image)
        if output is None:
            count = f"{pulled.older}{' or more' * pulled.has_more}"
            rest = f"; --last brings more: {count} are older" if pulled.older else ""
            note(f"of the shared history: {pulled.new} new, {pulled.changed} changed, {pulled.same} as before{rest}")
    listed = rows(name, last)
    if output is not None:
        document([show.document(row) for row in listed])
    elif listed:
        say(show.rows(listed))
    else:
        note(f'nothing named "{name}" ran' if name else "nothing ran yet")


def _prune(name: str | None, older: int | None, keep: int | None, output: str | None) -> None:
    if name is not None:
        raise InvalidInput("--prune concerns the entries of all names", help="leave out NAME")
    rows(None, None)
    age = MAX_AGE if older is None else older * _DAY
    removed = index.prune(older=age, most=MAX_ENTRIES if keep is None else keep)
    if output is not None:
        document([show.document(row) for row in removed])
    else:
        say(f"removed {len(removed)} entr{'y' if len(removed) == 1 else 'ies'} of the history")
