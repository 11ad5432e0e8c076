"""The metrics of a task: the text, as Prometheus' own parser reads it, and the process that serves the text."""

from __future__ import annotations

import http.client
import math
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tfk8s import polling
from tfk8s.backends import meter
from tfk8s.core.status import Phase
from tfk8s.features.metrics import pod
from tfk8s.features.metrics.pod import MeasuredTask, Notes

LABELS = {"tfk8s_cluster": "mnist", "task": "worker/1"}
UNITS = ("_total", "_bytes", "_cores", "_ratio", "_per_second", "state", "connections", "step", "steps", "progress")
LISTENS = "   0: 00000000:08AE 00000000:0000 0A 0:0 0:0 0  1000        0 20 1\n"
CONNECTED = "   1: 0100007F:08AE 0700000A:C000 01 0:0 0:0 0  1000        0 21 1\n"
OTHERS = "   2: 0100007F:C000 0700000A:08AE 01 0:0 0:0 0  1000        0 22 1\n"


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the values by name, and by the label that only some samples have."""
    found = {}
    for family in parse(text):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        for sample in family.samples:
            more = dict(sample.labels)
            assert {name: more.pop(name) for name in LABELS} == LABELS
            found[sample.name, next(iter(more.values()), "")] = sample.value
    return found


def shown(*, numbers: Mapping[str, float | None] | None = None, metrics: Mapping[str, str] | None = None) -> str:
    return pod.text(LABELS, "Ready", numbers or {}, metrics or {})


def test_prometheus_reads_each_number_with_its_type_and_unit() -> None:
    values = {name: number + 0.5 for number, (name, _, _) in enumerate(pod.NUMBERS)}
    text = shown(numbers=values)
    read = samples(text)
    assert {name: read[f"tfk8s_task_{name}", ""] for name in values} == values
    assert all(name.endswith(UNITS) for name, _ in read)
    kinds = {family.name: family.type for family in parse(text)}
    assert kinds["tfk8s_task_restarts"] == "counter"  # the parser leaves _total out
    assert all((kind == "counter") == name.endswith("_total") for name, kind, _ in pod.NUMBERS)


def test_what_nobody_knows_is_left_out() -> None:
    assert "memory" not in shown(numbers={"memory_bytes": None})
    assert samples(shown()).keys() == {("tfk8s_task_state", state) for state in pod.STATES}


def test_one_state_is_1_and_states_are_phases() -> None:
    states = {state: value for (_, state), value in samples(shown()).items()}
    assert states == dict.fromkeys(pod.STATES, 0) | {"Ready": 1}
    assert {*pod.STATES} <= {*Phase}


def test_names_of_metrics_are_any_text() -> None:
    name = 'a"b\\n\\{c="d"}\n# TYPE x\u2028é'
    read = samples(shown(metrics={name: "0.25", "nan": "nan", "inf": "-inf", "big": "1e+300", "text": "so so"}))
    found = {metric: value for (family, metric), value in read.items() if family == "tfk8s_task_progress"}
    assert math.isnan(found.pop("nan"))
    assert found == {name: 0.25, "inf": -math.inf, "big": 1e300}


def test_a_program_makes_a_bounded_number_of_series_with_bounded_names() -> None:
    metrics = {f"m{number}{'x' * 1000}": "1" for number in range(1000)}
    found = [metric for family, metric in samples(shown(metrics=metrics)) if family == "tfk8s_task_progress"]
    assert len(found) == pod.MAX_METRICS
    assert {len(name) for name in found} == {pod.MAX_NAME}
    assert len(shown(metrics=metrics)) < 64 << 10


def test_board_shows_each_metric_of_a_task() -> None:
    shown = set(re.findall(r"tfk8s_task_(\w+)", (Path(__file__).parents[3] / "helm/tfk8s/board.json").read_text()))
    assert shown == {"state", "progress", *(name for name, _, _ in pod.NUMBERS)}


# ---- the task ------------------------------------------------------------------------------------------------------


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """The notes of a task without GPUs."""
    monkeypatch.setattr(meter, "gpus", dict)
    return Notes(tmp_path / "notes")


def read(notes: Notes, kind: str = "server", tables: str = "") -> dict[tuple[str, str], float]:
    return samples(MeasuredTask(LABELS, 2222, kind, notes).scrape(tables, 0))


def state(found: Mapping[tuple[str, str], float]) -> str:
    return next(state for (name, state), value in found.items() if name == "tfk8s_task_state" and value)


def test_a_server_is_ready_once_it_listens(notes: Notes) -> None:
    assert state(read(notes, tables=CONNECTED)) == "Starting"
    assert state(read(notes, tables=LISTENS)) == "Ready"
    found = read(notes, tables=LISTENS + CONNECTED + OTHERS)
    assert state(found) == "Ready"
    assert found["tfk8s_task_connections", ""] == 1
    assert found["tfk8s_task_cpu_seconds_total", ""] >= 0
    assert found["tfk8s_task_memory_bytes", ""] >= 0


def test_a_program_runs_until_its_end_is_noted(notes: Notes) -> None:
    for restarts in range(3):
        notes.write(True)
        found = read(notes, "program", LISTENS)
        assert (state(found), found["tfk8s_task_restarts_total", ""]) == ("Running", restarts)
        notes.write(False)
        found = read(notes, "program", LISTENS)
        assert (state(found), found["tfk8s_task_restarts_total", ""]) == ("Failed", restarts)


def test_progress_of_the_run(notes: Notes) -> None:
    notes.write(True)
    notes.progress.write_text("tfk8s: step 120/1000 (12%), 35.1 steps/s, 25s left, loss=0.31")
    found = read(notes, "program")
    names = ("step", "steps", "steps_per_second")
    assert [found[f"tfk8s_task_{name}", ""] for name in names] == [120, 1000, 35.1]
    assert found["tfk8s_task_progress", "loss"] == 0.31
    notes.write(True)
    assert ("tfk8s_task_step", "") not in read(notes, "program")


@pytest.mark.parametrize("text", ["", "\0" * 100, "tfk8s: step 1/", "tfk8s: step 1, 1..2 steps/s", "x" * (1 << 20)])
def test_a_program_may_write_anything_into_the_files(notes: Notes, text: str) -> None:
    notes.write(True)
    notes.progress.write_text(text)
    (notes.progress.parent / "starts").write_text(text)
    assert ("tfk8s_task_step", "") not in read(notes, "program")


def test_a_pipe_in_the_place_of_the_progress_delays_nobody(notes: Notes) -> None:
    notes.write(True)
    os.mkfifo(notes.progress)
    assert ("tfk8s_task_step", "") not in read(notes, "program")


def test_nothing_in_the_place_of_a_file_costs_a_descriptor_or_a_wait(notes: Notes) -> None:
    notes.progress.parent.mkdir()
    notes.progress.mkdir()
    os.mkfifo(notes.progress.with_name("starts"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        assert (notes.read(), notes.read_progress()) == ((0, False), None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_full_disk_does_not_harm_the_task(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notes = Notes(tmp_path / "file" / "folder")
    notes.write(True)
    assert notes.read() == (0, False)


def test_gpus_are_looked_at_every_ten_seconds(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    amounts = iter((64.0, 128.0))
    monkeypatch.setattr(meter, "gpus", lambda: {"gpu_memory": next(amounts)})
    task = MeasuredTask(LABELS, 2222, "server", notes)
    found = [samples(task.scrape("", now))["tfk8s_task_gpu_memory_bytes", ""] for now in (0.0, 9.0, 10.0)]
    assert found == [64, 64, 128]


# ---- the answers ---------------------------------------------------------------------------------------------------


def answered(*parts: bytes) -> bytes:
    client, server = socket.socketpair()
    with client, server:
        for part in parts:
            client.sendall(part)
        client.shutdown(socket.SHUT_WR)
        pod.answer(server, lambda: "é 1\n")
        server.close()
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_an_answer_has_its_type_and_its_length_in_bytes() -> None:
    head, _, body = answered(b"GET /metrics?a=b HTTP/1.1\r\nHost: a\r", b"\n\r\n").partition(b"\r\n\r\n")
    assert body.decode() == "é 1\n"
    assert head.decode().split("\r\n") == [
        "HTTP/1.1 200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8", "Content-Length: 5",
        "Connection: close",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/1.1", b"POST /metrics HTTP/1.1", b"GET /metrics/x HTTP/1.1", b"GET /metricsx HTTP/1.1", b"",
        b"\0\xff", b"GET //metrics HTTP/1.1", b"HEAD /metrics HTTP/1.1",
    ],
)  # fmt: skip
def test_only_get_metrics_has_an_answer(request_line: bytes) -> None:
    found = answered(request_line + b"\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert found.endswith(b"\r\n\r\n")


def test_a_long_request_has_no_answer() -> None:
    assert answered(b"GET /metrics HTTP/1.1\r\n", b"a: b\r\n" * (pod.MAX_HEAD // 6), b"\r\n") == b""
    assert answered(b"GET /metrics") == b""


@pytest.mark.parametrize(
    "request_text", [b"GET /metrics", b"GET /metrics HTTP/1.1\r\n\r\n"], ids=["silent", "reads nothing"]
)
def test_a_slow_client_has_its_time(monkeypatch: pytest.MonkeyPatch, request_text: bytes) -> None:
    monkeypatch.setattr(pod, "TIMEOUT", 0.01)
    client, server = socket.socketpair()
    with client, server:
        client.sendall(request_text)
        with pytest.raises(TimeoutError):
            pod.answer(server, lambda: "x" * (1 << 24))


# ---- the process ---------------------------------------------------------------------------------------------------


@pytest.fixture
def parent() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that has started the one that serves metrics, and their port."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    named = {"TFK8S_JOB": "worker", "TFK8S_INDEX": "1", "TFK8S_NAME": "mnist", "TFK8S_METRICS_PORT": str(port)}
    command = [sys.executable, "-c", "from tfk8s.features.metrics import pod; pod.start(1); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, **named}, **pipes) as process:  # type: ignore[call-overload]
        yield process, port


def scrape(port: int) -> str | None:
    connection = http.client.HTTPConnection("localhost", port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except ConnectionError:
        return None
    finally:
        connection.close()


@pytest.mark.programs
def test_process_serves_one_client_after_the_other_until_its_parent_ends(
    parent: tuple[subprocess.Popen[bytes], int],
) -> None:
    process, port = parent
    first = polling.wait_until(lambda: scrape(port), lambda: "metrics", 60)
    assert state(samples(first)) == "Starting"
    with socket.create_connection(("localhost", port)) as stuck:
        stuck.sendall(b"GET")
        texts: list[str | None] = []
        threads = [threading.Thread(target=lambda: texts.append(scrape(port))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [state(samples(text or "")) for text in texts] == ["Starting"] * 3
    process.communicate(b"\n", timeout=60)  # returns once nobody holds the standard output
