"""The history that people share, in a volume of Kubernetes or a bucket: its files, and the way of facts into them.

tfk8s-history/NAME.UID/      the record of one cluster; its ConfigMap has the UID
    facts.jsonl              as in a user's own history
    events.jsonl             the last events, an object of `core.events.Event` a line
    logs/NAME.gz             the end of the log of a task ("worker-1") or a script, with `logs: true`: several gzip
                             members, of which a kill may tear the last

In a bucket, the same paths are objects below the prefix, and each record has a marker:

tfk8s-history-index/REVERSED-NAME.UID    REVERSED falls with the time of the start: a bucket lists the newest first. The
                                         content has "parts", a list of [PATH, BYTES], and
                                         "state", a text that differs after each change

The pod of the cluster's own Job writes the record. Commands can't reach the volume: they leave their facts as
annotations of the Job's ServiceAccount, where the pod finds them. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tfk8s.core.history.facts import Fact, is_time, parse, whole

FOLDER = "tfk8s-history"  # at the root of the volume
INDEX = "tfk8s-history-index"  # of a bucket
FACTS, EVENTS, LOGS = "facts.jsonl", "events.jsonl", "logs"
MOUNT_PATH = "/var/lib/tfk8s-history"  # of the volume, in the pod that writes
WITH_LOGS, WITHOUT_LOGS = "logs", "events"  # values of TFK8S_HISTORY there
MAX_NOTES = 128 << 10  # bytes of annotations with facts: the API server takes 256 KiB of all annotations
NO_REQUESTS = {"cpu": 0.0, "memory": 0.0, "gpus": 0}  # of a suspended cluster
_MAX_NOTE = 2000  # characters of a fact
_MAX_START = 40_000  # of one with the job file
_NOTE = "fact.tfk8s.dev/"
_KINDS = ("start", "requests", "verb", "verb_end", "script", "missing", "end")
_BULKY = ("words", "job_file", "reason")  # parts that a fact can do without
LOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
RECORD = re.compile(r"([a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)\.([0-9a-f-]{36})")
_MARKER = re.compile(rf"{INDEX}/\d{{11}}-({RECORD.pattern})")
_LAST_SECOND = 99_999_999_999
_BUCKET = re.compile(r"(s3|gs)://([a-z0-9][a-z0-9_.-]*[a-z0-9])(?:/(.*))?", re.DOTALL)


class BucketPlace(NamedTuple):
    """The place of a history in a bucket.

    Attributes:
        scheme: "s3" or "gs".
        name: the bucket's.
        prefix: before the names of all objects; "" or one with "/" at its end.
    """

    scheme: str
    name: str
    prefix: str


def parse_bucket(url: str) -> BucketPlace:
    """Return the place that s3://NAME/PREFIX or gs://NAME/PREFIX names.

    Raises:
        ValueError: the text names none.
    """
    match = _BUCKET.fullmatch(url)
    if match is None:
        raise ValueError("it is no s3://NAME/PREFIX or gs://NAME/PREFIX")
    prefix = (match[3] or "").strip("/")
    return BucketPlace(match[1], match[2], f"{prefix}/" if prefix else "")


def marker_name(record: str, begin: float) -> str:
    """Return the name of a record's marker in a bucket.

    Args:
        record: the name of the record.
        begin: the time of the cluster's start, in seconds since the epoch.
    """
    return f"{INDEX}/{_LAST_SECOND - int(begin):011}-{record}"


def marked_record(name: str) -> str | None:
    """Return the name of the record that a marker is of; None for the name of another object."""
    match = _MARKER.fullmatch(name)
    return match[1] if match else None


class RecordStatus(NamedTuple):
    """The record of a cluster in a shared history.

    Attributes:
        place: such as "claim past" or "bucket s3://team/past".
        problem: what keeps the record from being written; "" if nothing.
    """

    place: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.place}; it is not written: {self.problem}" if self.problem else self.place


def record_name(cluster: str, uid: str) -> str:
    """Return the name of a record's folder."""
    return f"{cluster}.{uid}"


def is_log(part: str) -> bool:
    """Return whether a path in a record's folder is that of a log."""
    folder, _, name = part.rpartition("/")
    return folder == LOGS and name.endswith(".gz") and LOG_NAME.fullmatch(name.removesuffix(".gz")) is not None


def parse_record_name(name: str) -> tuple[str, str] | None:
    """Return the cluster's name and the UID; None for another name."""
    match = RECORD.fullmatch(name)
    return (match[1], match[2]) if match else None


def to_notes(facts: Iterable[Fact]) -> dict[str, str]:
    """Return the annotations that bring a command's facts to the pod. A fact that is too long loses its longest parts.

    Args:
        facts: of an entry. The pod sees the tasks by itself, but for the progress of warm scripts and the requests.
    """
    known = (fact for fact in facts if is_time(fact.get("time")))
    wanted = (_without_tasks(fact) if fact.get("kind") == "tasks" else fact for fact in known)
    return {_key(fact): _to_note(fact) for fact in wanted if fact.get("kind") in _KINDS}


def _without_tasks(fact: Fact) -> Fact:
    kept = {name: fact[name] for name in ("progress", "requests") if fact.get(name)}
    return {"kind": "script", "time": fact["time"], **kept}


def of_notes(annotations: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the facts in annotations, in the order of time; what is no fact is left out."""
    texts = (text for key, text in annotations.items() if key.startswith(_NOTE) and isinstance(text, str))
    facts = filter(None, (parse(text.encode(errors="replace")) for text in texts if len(text) <= _MAX_START))
    return sorted(
        (fact for fact in facts if fact.get("kind") in _KINDS and is_time(fact.get("time"))),
        key=lambda fact: float(fact["time"]),
    )


def surplus_notes(annotations: Mapping[str, Any]) -> list[str]:
    """Return the names of the oldest annotations with facts, if all together have more than `MAX_NOTES` bytes.

    Half of these bytes are left, and with them the newest fact of a start, which has the job file.
    """
    sizes = {
        key: len(key) + len(str(note).encode(errors="replace"))
        for key, note in annotations.items() if key.startswith(_NOTE)
    }  # fmt: skip
    if sum(sizes.values()) <= MAX_NOTES:
        return []
    keys = sorted(sizes)
    start = next((key for key in reversed(keys) if "-start-" in key), None)
    left, kept = MAX_NOTES // 2 - sizes.get(start, 0), {start}  # type: ignore[arg-type]  # None has no size
    for key in reversed(keys):
        left -= 0 if key in kept else sizes[key]
        if left < 0:
            break
        kept.add(key)
    return [key for key in keys if key not in kept]


def missing_note(annotations: Mapping[str, Any], surplus: Iterable[str]) -> dict[str, str]:
    """Return the annotation that tells how many facts go with others, which nobody has written."""
    gone = of_notes({key: annotations[key] for key in surplus})
    count = sum((whole(fact, "count") or 0) if fact["kind"] == "missing" else 1 for fact in gone)
    return to_notes([{"kind": "missing", "time": gone[-1]["time"], "count": count}] if gone else [])


def _key(fact: Fact) -> str:
    return f"{_NOTE}{int(fact['time'] * 1000):014}-{fact['kind'].replace('_', '-')}-{_token(fact)}"


def _token(fact: Fact) -> str:
    token = fact.get("token")
    return token if isinstance(token, str) and re.fullmatch("[0-9a-f]{1,16}", token) else "0"


def _to_note(fact: Fact) -> str:
    kept = dict(fact)
    for part in (None, *_BULKY):
        kept.pop(part, None)  # type: ignore[arg-type]  # None is no part
        text = json.dumps(kept, separators=(",", ":"))
        if len(text) <= (_MAX_START if fact["kind"] == "start" else _MAX_NOTE):
            return text
    return json.dumps({key: fact[key] for key in ("kind", "time")})
