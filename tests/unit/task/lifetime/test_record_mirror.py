"""The copy of a record in a bucket, with a pretended bucket."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.task.lifetime.test_record_writer import CREATED, OBJECTS, UID, RecordedCluster, verb
from tfk8s.core.history.facts import MAX_AGE, MAX_ENTRIES
from tfk8s.core.history.shared import FOLDER, INDEX, marker_name, record_name, to_notes
from tfk8s.polling import wait_until
from tfk8s.task.buckets.bucket_client import ListedObject
from tfk8s.task.buckets.bucket_server import BucketFailure
from tfk8s.task.lifetime.record.record_files import RecordFiles
from tfk8s.task.lifetime.record.record_mirror import RecordMirror
from tfk8s.task.lifetime.record.record_writer import RecordWriter

RECORD = record_name("demo", UID)
MARKER = marker_name(RECORD, CREATED)
NEVER = threading.Event()


class KeptObjects:
    """A bucket in memory, which may refuse."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.changed: dict[str, float] = {}
        self.put_names: list[str] = []
        self.lists, self.refuses, self.left = 0, False, float("inf")
        self.now = CREATED

    def _check(self) -> None:
        self.left -= 1
        if self.refuses or self.left < 0:
            raise BucketFailure("PUT s3://team/x: 403 AccessDenied")

    def get(self, name: str, most: int, *, is_cut: bool = False) -> bytes | None:
        self._check()
        content = self.objects.get(name)
        return content[:most] if content is not None else None

    def put(self, name: str, content: bytes) -> None:
        self._check()
        self.objects[name], self.changed[name] = content, self.now
        self.put_names.append(name)

    def delete(self, name: str) -> None:
        self._check()
        self.objects.pop(name, None)

    def list(self, prefix: str, most: int) -> Iterator[ListedObject]:
        self._check()
        self.lists += 1
        names = sorted(name for name in self.objects if name.startswith(prefix))[:most]
        yield from [ListedObject(name, len(self.objects[name]), self.changed.get(name, self.now)) for name in names]

    def close(self) -> None:
        pass


@pytest.fixture
def bucket() -> KeptObjects:
    return KeptObjects()


def mirror(bucket: KeptObjects, volume: Path, said: list[str] | None = None) -> RecordMirror:
    say = ([] if said is None else said).append
    return RecordMirror(lambda: bucket, volume, say, lambda: bucket.now)  # type: ignore[arg-type, return-value]


def begun(bucket: KeptObjects, volume: Path) -> tuple[RecordFiles, RecordMirror]:
    files = RecordFiles(volume, "demo", UID)
    files.make()
    copy = mirror(bucket, volume)
    copy.restore(RECORD, CREATED)
    return files, copy


def names(bucket: KeptObjects) -> list[str]:
    """Return the names of the objects that were sent last, without their folder."""
    sent = [name.removeprefix(f"{FOLDER}/{RECORD}/") for name in bucket.put_names]
    bucket.put_names.clear()
    return ["marker" if name == MARKER else name for name in sent]


def test_what_has_changed_is_sent_and_the_marker_says_so(bucket: KeptObjects, tmp_path: Path) -> None:
    files, copy = begun(bucket, tmp_path)
    copy.send(NEVER)
    assert names(bucket) == []  # an empty record has no marker
    files.add({"kind": "start", "time": 1.0})
    files.add_log("worker-0", [b"2026 0 a"])
    copy.send(NEVER)
    assert names(bucket) == ["facts.jsonl", "marker", "logs/worker-0.gz", "marker"]
    first = json.loads(bucket.objects[MARKER])
    assert first["parts"] == [[name, len(bucket.objects[f"{FOLDER}/{RECORD}/{name}"])] for name, _ in first["parts"]]
    bucket.now += 100
    copy.send(NEVER)
    assert names(bucket) == []
    files.add_events([{"id": "a"}])
    copy.send(NEVER)
    assert names(bucket) == ["events.jsonl", "marker"]
    assert json.loads(bucket.objects[MARKER])["state"] != first["state"]


def test_a_part_is_sent_at_intervals_that_grow_with_its_size(bucket: KeptObjects, tmp_path: Path) -> None:
    files, copy = begun(bucket, tmp_path)

    def sent(seconds: int, size: int) -> int:
        bucket.put_names.clear()
        for _ in range(seconds // 10):
            files.add({"kind": "verb", "time": bucket.now, "words": "x" * size}, is_last=True)
            copy.send(NEVER)
            bucket.now += 10
        return names(bucket).count("facts.jsonl")

    assert sent(300, 10) == 10  # each thirty seconds
    files.add({"kind": "verb", "time": 1.0, "words": "x" * (2 << 20)})
    assert sent(1200, 10) <= 1200 / (2 << 20) * (8 << 10) + 2


def test_the_last_step_sends_all_that_has_changed(bucket: KeptObjects, tmp_path: Path) -> None:
    files, copy = begun(bucket, tmp_path)
    files.add({"kind": "start", "time": 1.0})
    copy.send(NEVER)
    files.add({"kind": "end", "time": 2.0}, is_last=True)
    for index in range(50):
        files.add_log(f"worker-{index}", [b"2026 0 a"])
    names(bucket)
    stopped = threading.Event()
    stopped.set()
    copy.send(stopped)
    assert names(bucket) == []
    copy.send(None)
    found = names(bucket)
    assert found[:2] == ["facts.jsonl", "marker"]  # the end is there before the logs are
    assert len(found) == 53


def test_another_pod_brings_back_what_was_sent(bucket: KeptObjects, tmp_path: Path) -> None:
    files, copy = begun(bucket, tmp_path / "a")
    files.add({"kind": "start", "time": 1.0})
    files.add_log("worker-0", [b"2026 0 a"])
    copy.send(NEVER)
    names(bucket)
    prefix = f"{FOLDER}/{RECORD}"
    for name in ("../x", "logs/../../x.gz", "logs/.gz", "logs/\x1b.gz", "other"):
        bucket.objects[f"{prefix}/{name}"] = b"hostile"
    bucket.objects[f"{prefix}/events.jsonl"] = b"x" * (9 << 20)  # more than a part may have
    other, copy = begun(bucket, tmp_path / "b")
    assert [fact["kind"] for fact in other.facts()] == ["start"]
    kept = sorted(path.name for path in (tmp_path / "b").rglob("*") if path.is_file())
    assert kept == ["facts.jsonl", "worker-0.gz"]
    copy.send(NEVER)
    assert names(bucket) == []  # nothing has changed
    other.add({"kind": "verb", "time": 2.0})
    copy.send(NEVER)
    assert b'"start"' in bucket.objects[f"{prefix}/facts.jsonl"]


def test_a_container_that_begins_again_keeps_what_its_volume_has(bucket: KeptObjects, tmp_path: Path) -> None:
    files, copy = begun(bucket, tmp_path)
    files.add({"kind": "start", "time": 1.0})
    copy.send(NEVER)
    files.add({"kind": "verb", "time": 2.0})
    again, copy = begun(bucket, tmp_path)
    assert [fact["kind"] for fact in again.facts()] == ["start", "verb"]
    copy.send(NEVER)
    assert b'"verb"' in bucket.objects[f"{FOLDER}/{RECORD}/facts.jsonl"]


def told(bucket: KeptObjects) -> list[float]:
    """Return the times of the facts in the bucket."""
    lines = bucket.objects[f"{FOLDER}/{RECORD}/facts.jsonl"].splitlines()
    return [json.loads(line)["time"] for line in lines]


def test_two_pods_that_write_at_once_lose_no_facts(bucket: KeptObjects, tmp_path: Path) -> None:
    """The node of the first one is cut off, and comes back after the second one has told the end."""
    first, cut_off = begun(bucket, tmp_path / "a")
    first.add({"kind": "start", "time": 1.0})
    cut_off.send(NEVER)
    second, successor = begun(bucket, tmp_path / "b")
    first.add({"kind": "verb", "time": 2.0})
    cut_off.send(None)
    second.add({"kind": "verb", "time": 3.0})
    second.add({"kind": "end", "time": 4.0})
    successor.send(None)
    assert sorted(told(bucket)) == [1.0, 2.0, 3.0, 4.0]
    first.add({"kind": "end", "time": 5.0, "lost": True})
    cut_off.send(None)
    assert sorted(told(bucket)) == [1.0, 2.0, 3.0, 4.0, 5.0]
    second.add({"kind": "verb", "time": 6.0})
    successor.send(None)
    assert sorted(told(bucket)) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize(("size", "kept"), [(7 << 20, 6 << 20), (9 << 20, 0)])
def test_facts_of_others_have_a_limit(bucket: KeptObjects, tmp_path: Path, size: int, kept: int) -> None:
    files, copy = begun(bucket, tmp_path)
    files.add({"kind": "start", "time": 1.0})
    name = f"{FOLDER}/{RECORD}/facts.jsonl"
    bucket.objects[name] = b"".join(b"%01023d\n" % number for number in range(size >> 10))
    copy.send(None)
    assert 0 <= len(bucket.objects[name]) - kept + 1024 <= 1100


@pytest.mark.parametrize("volume", ["a", "b"])
def test_an_end_that_another_pod_takes_back_does_not_come_again(
    bucket: KeptObjects, tmp_path: Path, volume: str
) -> None:
    files, copy = begun(bucket, tmp_path / "a")
    files.add({"kind": "start", "time": 1.0})
    files.add({"kind": "end", "time": 2.0})
    copy.send(None)
    files, copy = begun(bucket, tmp_path / volume)
    files.reopen()
    files.add({"kind": "verb", "time": 3.0})
    copy.send(None)
    assert told(bucket) == [1.0, 3.0]


def parts(bucket: KeptObjects) -> list[str]:
    """Return the parts that the marker names."""
    (marker,) = (content for name, content in bucket.objects.items() if name.startswith(f"{INDEX}/"))
    return [part for part, _ in json.loads(marker)["parts"]]


def test_the_marker_of_a_container_that_begins_again_names_what_is_in_the_bucket(
    bucket: KeptObjects, tmp_path: Path
) -> None:
    files, copy = begun(bucket, tmp_path)
    files.add({"kind": "start", "time": 1.0})
    files.add_log("worker-0", [b"2026 0 a"])
    copy.send(NEVER)
    files.add({"kind": "verb", "time": 2.0})
    _, copy = begun(bucket, tmp_path)
    stopped = threading.Event()
    stopped.set()
    copy.send(stopped)
    assert parts(bucket) == ["facts.jsonl", "logs/worker-0.gz"]


def test_a_quiet_record_is_marked_each_day(bucket: KeptObjects, tmp_path: Path) -> None:
    files, copy = begun(bucket, tmp_path)
    files.add({"kind": "start", "time": 1.0})
    copy.send(NEVER)
    names(bucket)
    copy.send(NEVER)
    assert names(bucket) == []
    bucket.now += 90_000
    copy.send(NEVER)
    assert len(names(bucket)) == 1


def old_records(bucket: KeptObjects, number: int, changed: float) -> list[str]:
    """Put records into a bucket; return their names, the newest first."""
    made = [f"old.{index:08x}-0000-4000-8000-00000000000a" for index in range(number)]
    for index, name in enumerate(made):
        for key in (f"{FOLDER}/{name}/facts.jsonl", marker_name(name, CREATED - 10 - index)):
            bucket.objects[key], bucket.changed[key] = b"x", changed
    return made


def test_old_records_go_some_at_a_time(bucket: KeptObjects, tmp_path: Path) -> None:
    old_records(bucket, 120, CREATED - MAX_AGE - 1)
    files, copy = begun(bucket, tmp_path)
    files.add({"kind": "start", "time": 1.0})
    copy.prune()
    copy.send(NEVER)
    assert len(bucket.objects) == 240 - 100 + 2
    bucket.now += 10
    copy.send(NEVER)
    copy.send(NEVER)
    assert sorted(bucket.objects) == [MARKER, f"{FOLDER}/{RECORD}/facts.jsonl"]
    lists = bucket.lists
    copy.send(NEVER)
    assert bucket.lists == lists


@pytest.mark.parametrize(("surplus", "days", "gone"), [(2, 4, 2), (2, 2, 0), (MAX_ENTRIES + 2, 2, 2)])
def test_the_oldest_of_too_many_records_go(
    bucket: KeptObjects, tmp_path: Path, surplus: int, days: int, gone: int
) -> None:
    """A cluster that runs writes each day. Twice as many records go even so."""
    made = old_records(bucket, MAX_ENTRIES + surplus, CREATED)
    bucket.now += days * 86_400
    _, copy = begun(bucket, tmp_path)
    copy.prune()
    copy.send(NEVER)
    left = [name for name in made if f"{FOLDER}/{name}/facts.jsonl" in bucket.objects]
    assert left == made[: len(made) - gone]


def test_a_bucket_that_lets_nobody_remove_keeps_its_old_records(bucket: KeptObjects, tmp_path: Path) -> None:
    old_records(bucket, 1, 0.0)
    said: list[str] = []
    files = RecordFiles(tmp_path, "demo", UID)
    files.make()
    copy = mirror(bucket, tmp_path, said)
    copy.restore(RECORD, CREATED)
    copy.prune()
    bucket.refuses = True
    copy.send(NEVER)
    copy.send(NEVER)
    assert said == ["error: old records of the history stay: PUT s3://team/x: 403 AccessDenied"]


def test_nobody_removes_other_objects(bucket: KeptObjects, tmp_path: Path) -> None:
    for name in (f"{INDEX}/00000000000-../../x", f"{INDEX}/x", "other", f"{INDEX}/{'0' * 11}-{RECORD}"):
        bucket.objects[name], bucket.changed[name] = b"x", 0.0
    _, copy = begun(bucket, tmp_path)
    before = set(bucket.objects)
    copy.prune()
    copy.send(NEVER)
    assert set(bucket.objects) == before


# ---- with the writer -----------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedCluster:
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.GONE_TIMEOUT", 0.0)
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.LAST_LOOK", 1.0)
    return RecordedCluster(tmp_path)


def writer(cluster: RecordedCluster, bucket: KeptObjects, volume: Path) -> RecordWriter:
    cluster.volume = volume
    copy = mirror(bucket, volume, cluster.said)
    return RecordWriter(
        cluster,  # type: ignore[arg-type]
        OBJECTS, volume, True, cluster.said.append, lambda: cluster.now, copy,
    )  # fmt: skip


def note_end(cluster: RecordedCluster) -> None:
    """Leave the word that the Job of the limits leaves before it ends the pod."""
    cluster.notes |= to_notes([{"kind": "end", "time": cluster.now, "reason": "removed, idle for 1h"}])


def kinds(bucket: KeptObjects) -> list[str]:
    content = bucket.objects.get(f"{FOLDER}/{RECORD}/facts.jsonl", b"")
    return [json.loads(line)["kind"] for line in content.splitlines()]


def test_the_end_is_in_the_bucket(cluster: RecordedCluster, bucket: KeptObjects, tmp_path: Path) -> None:
    cluster.notes = to_notes([verb()])
    made = writer(cluster, bucket, tmp_path)
    note_end(cluster)
    made.end()
    assert kinds(bucket) == ["start", "verb", "end"]
    assert cluster.said == []


def test_a_bucket_that_refuses_is_told_once_and_so_is_its_return(
    cluster: RecordedCluster, bucket: KeptObjects, tmp_path: Path
) -> None:
    made, bucket.refuses = writer(cluster, bucket, tmp_path), True
    for _ in range(3):
        made.step()
    assert cluster.said == ["error: the history is not written: PUT s3://team/x: 403 AccessDenied"]
    bucket.refuses = False
    made.step()
    assert cluster.said[1:] == ["the history is written again"]
    assert kinds(bucket) == ["start"]


def test_a_bucket_that_refuses_from_the_beginning_ends_the_pod(
    cluster: RecordedCluster, bucket: KeptObjects, tmp_path: Path
) -> None:
    made, bucket.refuses = writer(cluster, bucket, tmp_path), True
    made.start()
    assert made.wait() == "PUT s3://team/x: 403 AccessDenied"


def test_an_outage_after_the_first_success_ends_no_pod_and_loses_nothing(
    cluster: RecordedCluster, bucket: KeptObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.INTERVAL", 0.01)
    made = writer(cluster, bucket, tmp_path)
    made.start()
    wait_until(lambda: "start" in kinds(bucket), "the first facts", 10)
    bucket.refuses = True
    cluster.notes = to_notes([verb()])
    bucket.now += 7200
    wait_until(lambda: cluster.said, "the failure", 10)
    cluster.now += 7200
    looks = cluster.gets
    wait_until(lambda: cluster.gets > looks + 9, "more looks", 10)
    bucket.refuses = False
    wait_until(lambda: cluster.said[1:] == ["the history is written again"], "the bucket", 10)
    note_end(cluster)
    made.end()
    assert kinds(bucket) == ["start", "verb", "end"]


def test_a_bucket_that_refuses_at_the_end_keeps_no_limit_from_being_reached(
    cluster: RecordedCluster, bucket: KeptObjects, tmp_path: Path
) -> None:
    made = writer(cluster, bucket, tmp_path)
    made.step()
    bucket.refuses = True
    note_end(cluster)
    made.end()
    assert cluster.said == ["error: the history is not written: PUT s3://team/x: 403 AccessDenied"]


def test_a_bucket_that_hangs_at_the_end_keeps_no_limit_from_being_reached(
    cluster: RecordedCluster, bucket: KeptObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, test_ends = writer(cluster, bucket, tmp_path), threading.Event()
    made.step()
    monkeypatch.setattr(bucket, "put", lambda *_: test_ends.wait(60))
    begin = time.monotonic()
    note_end(cluster)
    made.end()
    assert time.monotonic() - begin < 10
    test_ends.set()


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=5))
def test_pods_that_die_at_any_request_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[int, bool]]
) -> None:
    """Each writer dies after some requests; the next goes on, in an empty volume of another pod or in the same one."""
    base = tmp_path_factory.mktemp("pods")
    cluster, bucket = RecordedCluster(base), KeptObjects()
    told, volume = [], base / "first"
    for number, (requests, is_other_pod) in enumerate(itertools.chain(deaths, [(1000, False)])):
        told.append(verb(token=f"{number:08x}", time=CREATED + number))
        cluster.notes |= to_notes(told[-1:])
        volume = base / str(number) if is_other_pod else volume
        made = writer(cluster, bucket, volume)
        bucket.left = requests
        made.step()
        made.step()
        cluster.now += 100
    cluster.now += 1
    note_end(cluster)
    made.end()
    found = kinds(bucket)
    assert (found[0], found[-1], found.count("verb"), found.count("start")) == ("start", "end", len(told), 1)
