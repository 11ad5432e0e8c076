"""Entries as tables, and as JSON documents."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Sequence

from tfk8s.cli import json_output
from tfk8s.cli.output import age, moment, one_line, table
from tfk8s.core.history.entry import Entry, PastScript, PastTask, Row, Verb
from tfk8s.core.price.rates import money
from tfk8s.core.progress import PREFIX, duration, parse

_HEAD = ("ENTRY", "STATE", "EXIT", "AGE", "LASTED", "COST", "PROGRESS", "COMMIT", "LOCATION", "REASON")
_OPTIONAL = ("COST", "PROGRESS", "COMMIT", "EXIT", "REASON")
_COMMANDS = ("COMMAND", "EXIT", "AGE", "LASTED", "WHO", "COMMIT", "ARGUMENTS", "REASON")
_TASKS = ("TASK", "PHASE", "RESTARTS", "EXIT", "PROGRESS", "REASON")
_SCRIPTS = ("SCRIPT", "EXIT", "AGE", "PROGRESS", "COMMAND")
_COMMIT = 10  # characters of git's commit in a table


def rows(listed: Sequence[Row]) -> str:
    """Return the table of entries."""
    return table(_HEAD, map(_row, listed), sys.stdout, _OPTIONAL)


def text(entry: Entry) -> str:
    """Return all that is known of an entry."""
    return "\n\n".join(_parts(entry))


def document(row: Row) -> json_output.Document:
    """Return the document of an entry in a list."""
    values = dataclasses.asdict(row)
    hours = {name: round(values.pop(name), 4) for name in ("cpu", "memory", "gpus")}
    times = {name: moment(values[name]) for name in ("started", "ended")}
    cost = {"amount": round(values.pop("cost"), 4), "currency": values.pop("currency")}
    return {
        "entry": row.id, **values, **times, "hours": hours, "cost": cost if row.currency else None,
        "progress": _progress(row.progress),
    }  # fmt: skip


def whole_document(entry: Entry) -> json_output.Document:
    """Return the document of an entry."""
    commands = [
        {**dataclasses.asdict(verb), "time": moment(verb.time), "ended": moment(verb.ended)} for verb in entry.verbs
    ]
    tasks = [{**dataclasses.asdict(task), "progress": _progress(task.progress)} for task in entry.tasks]
    scripts = [
        {**dataclasses.asdict(script), "time": moment(script.time), "progress": _progress(script.progress)}
        for script in entry.scripts
    ]
    return {
        **document(entry.row), "commands": commands, "tasks": tasks, "scripts": scripts, "digest": entry.digest,
        "job_file": entry.job_file, "timeline": entry.timeline, "missing": entry.missing,
    }  # fmt: skip


def facts(entry: Entry) -> dict[str, str]:
    """Return what is known of an entry as a whole, by name; "" for what is unknown."""
    row = entry.row
    last = entry.verbs[-1] if entry.verbs else None
    hours = {"CPU": row.cpu, "GiB": row.memory, "GPU": row.gpus}
    return {
        "who": row.who, "image": row.image, "commit": row.commit, "remote": last.remote if last else "",
        "job file": entry.digest and f"SHA-256 {entry.digest}",
        "cost": _cost(row),
        "requested": ", ".join(f"{amount:.3g} {name} hours" for name, amount in hours.items() if amount),
        "progress": row.progress, "timeline": entry.timeline,
        "missing": f"{entry.missing} facts of commands: nothing wrote the shared history" if entry.missing else "",
    }  # fmt: skip


def _parts(entry: Entry) -> Iterator[str]:
    yield rows([entry.row])
    known = facts(entry)
    yield "\n".join(f"{name}: {one_line(value)}" for name, value in known.items() if value)
    if entry.tasks:
        yield table(_TASKS, map(_task, entry.tasks), sys.stdout, ("PROGRESS", "EXIT", "REASON"))
    if entry.scripts:
        yield table(_SCRIPTS, map(_script, entry.scripts), sys.stdout, ("PROGRESS", "EXIT"))
    if entry.verbs:
        yield table(_COMMANDS, map(_verb, entry.verbs), sys.stdout, ("COMMIT", "ARGUMENTS", "REASON"))


def _row(row: Row) -> tuple[str, ...]:
    lasted = "" if row.ended is None else duration(row.ended - row.started)
    return (
        row.id, row.state, _code(row.exit_code), age(row.started), lasted, _cost(row), row.progress,
        _commit(row.commit), row.location, " ".join(row.reason.split()),
    )  # fmt: skip


def _task(task: PastTask) -> tuple[str, ...]:
    reason = " ".join(task.reason.split())
    return task.task, task.phase, str(task.restarts), _code(task.exit_code), task.progress, reason


def _script(script: PastScript) -> tuple[str, ...]:
    return script.name, _code(script.exit_code), age(script.time), script.progress, script.command


def _verb(verb: Verb) -> tuple[str, ...]:
    lasted = "" if verb.ended is None else duration(verb.ended - verb.time)
    return (
        verb.verb, _code(verb.exit_code), age(verb.time), lasted, verb.who, _commit(verb.commit),
        shlex.join(verb.words), " ".join(verb.reason.split()),
    )  # fmt: skip


def _cost(row: Row) -> str:
    return row.currency and money(row.cost, row.currency)


def _commit(commit: str) -> str:
    digest, dirty, _ = commit.partition("-")
    return digest[:_COMMIT] + ("*" if dirty else "")


def _code(code: int | None) -> str:
    return "" if code is None else str(code)


def _progress(line: str) -> json_output.Document | None:
    return json_output.progress(parse(PREFIX + line)) if line else None
