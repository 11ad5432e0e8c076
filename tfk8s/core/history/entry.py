"""One entry of the history, from its facts: what happened to a cluster from its start to its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfk8s.core import naming
from tfk8s.core.history.facts import (
    MAX_TEXT,
    REMOVED,
    Fact,
    cost,
    hours,
    in_order,
    is_number,
    is_time,
    parse,
    text,
    whole,
)
from tfk8s.errors import InvalidInput

OPEN, ENDED, LOST = "open", "ended", "lost"
_STARTERS = ("up", "run", "submit", "resume")  # a refused `scale` says nothing about the cluster
_GIB = float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The line of an entry in the index, which looks for rows by the first four fields.

    Attributes:
        name, number: the cluster's name, and the number of the entry; NAME@NUMBER for commands.
        started, ended: seconds since the epoch; `ended` is None while the entry is open.
        state: open, ended, or lost if nobody saw the end: then `ended` is the time of the last fact.
        location: "this machine", or the context and namespace.
        who: the user and the machine.
        exit_code: of the run of programs, else of the last script; None without one.
        reason: why its last run, script or command failed, else why the cluster ended.
        progress: the last line of `tfk8s.progress`; "" if none.
        commit: git's, with "-dirty" after changes; "" if unknown.
        image: of the tasks; "" if none is named.
        cpu, memory, gpus: the requests, in hours of cores, GiB and GPUs.
        cost, currency: what the requests have cost by the rates of their time, in the last rates' currency; 0 and ""
            without rates.
        size: the bytes of the entry's files.
    """

    name: str
    number: int
    started: float = 0.0
    state: str = OPEN
    location: str
    who: str = ""
    ended: float | None = None
    exit_code: int | None = None
    reason: str = ""
    progress: str = ""
    commit: str = ""
    image: str = ""
    cpu: float = 0.0
    memory: float = 0.0
    gpus: float = 0.0
    cost: float = 0.0
    currency: str = ""
    size: int = 0

    @property
    def id(self) -> str:
        """The name for commands, "mnist@3"."""
        return f"{self.name}@{self.number}"


_FIELDS = tuple(item.name for item in dataclasses.fields(Row))
_NUMBERS = ("started", "cpu", "memory", "gpus", "cost")
_TEXTS = ("currency", "name", "location", "who", "state", "reason", "progress", "commit", "image")


def parse_row(line: bytes) -> Row | None:
    """Return the row in a line of the index; None if the line is damaged."""
    plain = parse(line)
    if plain is None:
        return None
    values: dict[str, Any] = {name: plain.get(name) for name in _FIELDS}
    whole = (values["number"], values["size"], values["exit_code"] or 0)
    is_row = (
        all(isinstance(values[name], str) for name in _TEXTS)
        and all(is_number(values[name]) for name in _NUMBERS)
        and all(type(number) is int and abs(number) < 1 << 60 for number in whole)
        and naming.is_dns_label(values["name"])
        and values["number"] > 0
        and is_time(values["started"])
        and (values["ended"] is None or is_time(values["ended"]))
    )
    return Row(**values) if is_row else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One command on the cluster.

    Attributes:
        verb: "up", "run", "submit", "scale", "restart", "suspend", "resume" or "down".
        words: its arguments.
        time, ended: seconds since the epoch; `ended` is None if the command runs, or did not live to tell its end.
        who: the user and the machine.
        exit_code, reason: how the command ended; None and "" until then.
        folder, commit, remote: the folder that it ran in, git's commit there, and the address of git's "origin".
    """

    verb: str
    time: float
    words: Sequence[str] = ()
    who: str = ""
    ended: float | None = None
    exit_code: int | None = None
    reason: str = ""
    folder: str = ""
    commit: str = ""
    remote: str = ""

    @property
    def is_refused(self) -> bool:
        """True if the command was bad input, and so says nothing about the cluster; a script's exit has no reason."""
        return self.exit_code == InvalidInput.exit_code and bool(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTask:
    """A task as it was at the end, or when a command saw the task last; fields as `core.status.TaskStatus` has them."""

    task: str
    phase: str
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    progress: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastScript:
    """A script that has ended, or that a command saw last; its name is that of its log, if that was kept."""

    name: str
    command: str
    time: float
    exit_code: int | None = None
    progress: str = ""


@dataclass(slots=True, kw_only=True)
class Entry:
    """An entry.

    Attributes:
        row: its line in the index.
        digest: SHA-256 of the job file as it is kept here.
        job_file: the job file's plain data, without values of variables.
        verbs: the commands, in the order of time.
        tasks: the tasks.
        scripts: the scripts with a name, in the order of time.
        timeline: the path of the compressed page of `submit --trace`; "" without one.
        missing: the number of facts of commands that a shared history may lack.
    """

    row: Row
    digest: str = ""
    timeline: str = ""
    missing: int = 0
    job_file: Mapping[str, Any] = field(default_factory=dict)
    verbs: list[Verb] = field(default_factory=list)
    tasks: list[PastTask] = field(default_factory=list)
    scripts: list[PastScript] = field(default_factory=list)


def fold(facts: Iterable[Fact], name: str, number: int, size: int = 0) -> Entry:
    """Return the entry that facts tell.

    Args:
        facts: those of the file. Several of them may tell the start; one with the job file says most.
        name, number: those of the entry.
        size: the bytes of its files.

    Raises:
        ValueError: no fact tells the start.
    """
    known = in_order(facts)
    starts = [fact for fact in known if fact["kind"] == "start"]
    if not starts:
        raise ValueError("nothing tells its start")
    start = next((fact for fact in starts if fact.get("job_file")), starts[0])
    job_file, verbs = start.get("job_file"), _verbs(known)
    seen = [fact for fact in known if fact["kind"] in ("tasks", "script")]
    row = Row(
        name=name, number=number, location=text(start, "location"), who=text(start, "who"),
        started=starts[0]["time"],
        image=text(start, "image"), size=size,
        progress=_last(text(fact, "progress") for fact in seen), commit=_last(verb.commit for verb in verbs),
    )  # fmt: skip
    return Entry(
        row=_with_end(row, known, seen, verbs), digest=text(start, "digest"), verbs=verbs,
        job_file=job_file if isinstance(job_file, dict) else {},
        tasks=next((tasks for fact in reversed(seen) if (tasks := _tasks(fact))), []), scripts=_scripts(seen),
        missing=sum(max(0, whole(fact, "count") or 0) for fact in known if fact["kind"] == "missing"),
    )  # fmt: skip


def _with_end(row: Row, facts: Sequence[Fact], seen: Sequence[Fact], verbs: Sequence[Verb]) -> Row:
    """Return the row with the end, the outcome and the totals."""
    ends = [fact for fact in facts if fact["kind"] == "end"]
    end = next((fact for fact in ends if fact.get("lost") is not True), ends[0] if ends else None)
    until = end["time"] if end else max(fact["time"] for fact in facts)
    accepted = [verb for verb in verbs if not verb.is_refused]
    ran = [(verb.ended or 0.0, verb.exit_code) for verb in accepted if verb.verb in ("run", "submit")]
    known = sorted((*((fact["time"], whole(fact, "exit_code")) for fact in seen), *ran), key=lambda pair: pair[0])
    codes = [code for _, code in known if code is not None]
    cpu, memory, gpus = (hours(facts, name, until) for name in ("cpu", "memory", "gpus"))
    spent, currency = cost(facts, until)
    row = dataclasses.replace(
        row, cpu=cpu, memory=memory / _GIB, gpus=gpus, cost=spent, currency=currency, reason=_failure(seen, accepted),
        exit_code=codes[-1] if codes else None,
    )  # fmt: skip
    if end is None:
        return row
    why, used = text(end, "reason"), {verb.verb for verb in verbs}
    if why == REMOVED and "run" in used and "down" not in used:
        why = "was removed at the end of its `run`"
    state = LOST if end.get("lost") is True else ENDED
    return dataclasses.replace(row, ended=until, state=state, reason=row.reason or why)


def _failure(seen: Sequence[Fact], verbs: Sequence[Verb]) -> str:
    """Return why the last start, script or run has failed; "" after a success."""
    told = [(fact["time"], whole(fact, "exit_code"), text(fact, "reason")) for fact in seen]
    told += ((verb.ended or verb.time, verb.exit_code, verb.reason) for verb in verbs if verb.verb in _STARTERS)
    failure = ""
    for _, code, reason in sorted(told, key=lambda one: one[0]):
        failure = "" if code == 0 else reason or failure  # the end of `run` comes after its program's
    return failure


def _last(texts: Iterable[str]) -> str:
    return next(filter(None, reversed(list(texts))), "")


def _verbs(facts: Iterable[Fact]) -> list[Verb]:
    begun: dict[str, Verb] = {}
    for fact in facts:
        token = text(fact, "token")
        if fact["kind"] == "verb":
            words = fact.get("words")
            texts = [word[:MAX_TEXT] for word in words if isinstance(word, str)] if isinstance(words, list) else []
            begun[token] = Verb(
                verb=text(fact, "verb"), time=fact["time"], words=texts, who=text(fact, "who"),
                folder=text(fact, "folder"),
            )  # fmt: skip
        elif fact["kind"] == "verb_end" and token in begun:
            begun[token] = dataclasses.replace(
                begun[token], ended=fact["time"], exit_code=whole(fact, "exit_code"), reason=text(fact, "reason"),
                commit=text(fact, "commit"), remote=text(fact, "remote"),
            )  # fmt: skip
    return list(begun.values())


def _scripts(facts: Iterable[Fact]) -> list[PastScript]:
    """Return the scripts that facts name, each as the last fact has it."""
    named = {text(fact, "name"): fact for fact in facts if fact["kind"] == "script"}
    return [
        PastScript(
            name=name, command=text(fact, "command"), time=fact["time"], exit_code=whole(fact, "exit_code"),
            progress=text(fact, "progress"),
        )
        for name, fact in named.items() if name
    ]  # fmt: skip


def _tasks(fact: Fact) -> list[PastTask]:
    listed = fact.get("tasks")
    return [
        PastTask(
            task=text(task, "task"), phase=text(task, "phase"), restarts=whole(task, "restarts") or 0,
            exit_code=whole(task, "exit_code"), reason=text(task, "reason"), progress=text(task, "progress"),
        )
        for task in (listed if isinstance(listed, list) else ()) if isinstance(task, dict)
    ]  # fmt: skip
