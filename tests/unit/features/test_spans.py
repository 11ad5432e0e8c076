"""Spans of commands, at a collector on loopback."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tfk8s import spans
from tfk8s.cli.app import command_names, main
from tfk8s.cluster.scripts import make_script
from tfk8s.errors import InvalidInput
from tfk8s.features.spans.here import of_command
from tfk8s.log import log
from tfk8s.testing import FakeBackend, use_backend

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OK, ERROR = 1, 2  # of opentelemetry.proto.trace.v1.Status


class Collector:
    """Keeps the spans that it is sent.

    Attributes:
        url: its address.
        spans: the spans so far.
        services: the service of each request.
        head: the answer, which is sent slowly if it has no end.
        closing: set when the test ends.
    """

    def __init__(self) -> None:
        self.head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        self.closing = threading.Event()
        self.spans: list[Span] = []
        self.services: list[str] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
                for part in request.resource_spans:
                    values = {item.key: item.value.string_value for item in part.resource.attributes}
                    collector.services.append(values["service.name"])
                    collector.spans += [span for scope in part.scope_spans for span in scope.spans]
                self.wfile.write(collector.head)
                while not (collector.head.endswith(b"\r\n\r\n") or collector.closing.wait(0.2)):
                    self.wfile.write(b"x")

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "handlers", [])
    for name in ("TRACEPARENT", "TRACESTATE"):
        monkeypatch.setenv(name, "")  # so that the end of the test restores what a span sets
        monkeypatch.delenv(name)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    yield collector
    collector.closing.set()
    collector.server.shutdown()
    collector.server.server_close()
    thread.join()


def attributes(span: Span) -> dict[str, int | str]:
    values = ((item.key, item.value) for item in span.attributes)
    return {key: value.string_value or value.int_value for key, value in values}


def exit_code(span: Span) -> int:
    return int(attributes(span)["process.exit.code"])


def parents(collected: list[Span]) -> dict[str, str]:
    """Return the name of each span's parent, by the span's name."""
    names = {span.span_id: span.name for span in collected}
    return {span.name: names.get(span.parent_span_id, "") for span in collected}


@pytest.mark.parametrize(("code", "status"), [(0, OK), (3, ERROR)])
def test_a_command_is_a_span_with_its_exit_code(collector: Collector, code: int, status: int) -> None:
    with of_command(["image", "build"]) as end:
        end(code)
    (span,) = collector.spans
    assert (span.name, exit_code(span), span.status.code) == ("tfk8s image build", code, status)
    assert collector.services == ["tfk8s"]


def test_a_span_has_what_the_conventions_for_command_lines_require(collector: Collector) -> None:
    with of_command(["ls"]) as end:
        end(0)
    own = {"process.executable.name": Path(sys.executable).name, "process.pid": os.getpid(), "process.exit.code": 0}
    assert attributes(collector.spans[0]) == own


def test_the_parts_of_a_command_are_spans(collector: Collector) -> None:
    with of_command(["run"]) as end:
        with spans.part("run script") as part, spans.part("pack folder") as inner:
            part[spans.EXIT_CODE], inner[spans.FOLDER_SIZE] = 3, 1000
        with spans.part("remove cluster"):
            pass
        end(3)
    by_name = {span.name: span for span in collector.spans}
    assert parents(collector.spans) == {
        "pack folder": "run script", "run script": "tfk8s run", "remove cluster": "tfk8s run", "tfk8s run": "",
    }  # fmt: skip
    assert attributes(by_name["run script"]) == {"process.exit.code": 3, "error.type": "3"}
    assert attributes(by_name["pack folder"]) == {"tfk8s.folder.size": 1000}
    assert [by_name[name].status.code for name in ("run script", "pack folder", "tfk8s run")] == [ERROR, OK, ERROR]


def test_a_part_that_fails_names_the_kind_of_error_and_no_text(collector: Collector) -> None:
    with pytest.raises(InvalidInput), of_command(["up"]), spans.part("apply job file"):
        raise InvalidInput("SECRET")
    part = collector.spans[0]
    assert (attributes(part), part.status.code, part.status.message) == ({"error.type": "InvalidInput"}, ERROR, "")
    assert not part.events


def test_a_part_on_another_thread_belongs_to_the_command(collector: Collector) -> None:
    def work() -> None:
        with spans.part("wait for pod"):
            pass

    with of_command(["ls"]), spans.part("run script"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert parents(collector.spans)["wait for pod"] == "tfk8s ls"


def test_a_part_may_end_on_another_thread(collector: Collector) -> None:
    errors: list[BaseException] = []

    def lines() -> Iterator[int]:
        with spans.part("run script"):
            yield 1

    def close() -> None:
        try:
            begun.close()
        except ValueError as error:
            errors.append(error)

    with of_command(["run"]) as end:
        begun = lines()
        next(begun)
        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
        end(0)
    assert errors == []
    (part,) = (span for span in collector.spans if span.name == "run script")
    assert attributes(part) == {"error.type": "GeneratorExit"}


def test_a_command_has_a_limited_number_of_spans(collector: Collector) -> None:
    with of_command(["submit"]) as end:
        for _ in range(1000):
            with spans.part("run script"):
                pass
        end(0)
    assert len(collector.spans) == 257


def test_without_a_collector_nothing_listens_to_parts() -> None:
    with spans.part("run script") as part:
        part[spans.EXIT_CODE] = 1


def test_a_run_is_a_trace_of_its_parts(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: {tasks: 3}}\n")
    (tmp_path / "train.py").write_text("")
    with of_command(["run"]) as end, use_backend(FakeBackend()), pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        end(main(["run", "cluster.yaml", "train.py", "--env", "KEY=SECRET", "SECRET"]))
    assert parents(collector.spans) == dict.fromkeys(
        ["read job file", "apply job file", "wait for tasks", "run script", "remove cluster"], "tfk8s run"
    ) | {"tfk8s run": ""}
    numbers = {span.name: attributes(span).get("tfk8s.tasks") for span in collector.spans}
    assert (numbers["apply job file"], numbers["wait for tasks"]) == (3, 3)
    assert "SECRET" not in str(collector.spans)


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143), (SystemExit(129), 129)]
)
def test_a_signal_ends_the_span(collector: Collector, error: BaseException, code: int) -> None:
    with pytest.raises(type(error)), of_command(["up"]):
        raise error
    (span,) = collector.spans
    assert (exit_code(span), span.status.code, len(span.events)) == (code, ERROR, 0)


def test_a_trace_goes_on_in_a_script(collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    (tmp_path / "train.py").touch()
    with of_command(["submit"]):
        carried = make_script(tmp_path / "train.py", (), environment={"A": "b"}).environment
    (span,) = collector.spans
    _, trace, parent, _ = PARENT.split("-")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace, parent)
    assert carried == {"TRACEPARENT": f"00-{trace}-{span.span_id.hex()}-01", "A": "b"}


def test_a_parent_that_is_none_begins_a_trace(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "\x1b[2J" * 1000)
    with of_command(["ls"]) as end:
        end(0)
    assert collector.spans[0].parent_span_id == b""


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_collector_that_is_gone_costs_a_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    with of_command(["ls"]) as end:
        end(0)
    assert capfd.readouterr().err == f"tfk8s: the collector that {variable} names did not take the command's spans\n"


def test_a_slow_collector_costs_two_seconds(collector: Collector, capfd: pytest.CaptureFixture[str]) -> None:
    collector.head = b"HTTP/1.1 200 OK\r\nslow: "
    start = time.monotonic()
    with of_command(["ls"]) as end:
        end(0)
    assert 1 < time.monotonic() - start < 10
    assert "did not take the command's spans" in capfd.readouterr().err


def test_a_collector_that_refuses_costs_a_line(collector: Collector, capfd: pytest.CaptureFixture[str]) -> None:
    collector.head = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"
    with of_command(["ls"]) as end:
        end(0)
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("variable", "value"), [
    ("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer SECRET"), ("OTEL_RESOURCE_ATTRIBUTES", "foo"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "none at all"),
])  # fmt: skip
def test_warnings_of_the_packages_are_not_shown(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with of_command(["ls"]) as end:
        end(0)
    assert (len(collector.spans), capfd.readouterr().err) == (1, "")


@pytest.mark.parametrize(("variable", "value", "reason"), [
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "a\x1b[31m\nb",
     "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got a^[[31m b"),
    ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER", "SECRET",
     "Requested component '…' not found in entry point 'opentelemetry_otlp_credential_provider'"),
])  # fmt: skip
def test_a_variable_that_is_not_valid_costs_a_line(
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    reason: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20SECRET")
    monkeypatch.setenv(variable, value)
    with of_command(["ls"]) as end:
        end(0)
    assert capfd.readouterr().err == f"tfk8s: there is no span of this command: {reason}\n"
    assert collector.spans == []


@pytest.mark.parametrize(("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_SAMPLER", "always_off")])
def test_a_span_that_nobody_wants_costs_no_line(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with of_command(["ls"]) as end:
        end(0)
    assert (collector.spans, capfd.readouterr().err) == ([], "")


def test_without_the_packages_there_is_no_span(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with of_command(["ls"]) as end:
        end(0)
    assert collector.spans == []
    assert "TRACEPARENT" not in os.environ


@pytest.mark.parametrize(("arguments", "names"), [
    (["submit", "--env", "KEY=secret", "mnist"], ["submit"]), (["image", "build", "cpu"], ["image", "build"]),
    (["submit", "up"], ["submit"]), (["secret"], []), ([], []), (["kind", "secret"], ["kind"]),
])  # fmt: skip
def test_arguments_are_no_part_of_the_name(arguments: list[str], names: list[str]) -> None:
    assert command_names(arguments) == names


@pytest.mark.programs
@pytest.mark.parametrize(("variable", "count"), [({}, 1), ({"OTEL_TRACES_EXPORTER": "none"}, 0)])
def test_the_command_line_makes_a_span(collector: Collector, variable: dict[str, str], count: int) -> None:
    command = [sys.executable, "-m", "tfk8s", "validate", "no-such-file.yaml"]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variable}, check=False)
    assert (ended.returncode, "no-such-file.yaml" in ended.stderr) == (2, True)
    whole = [span for span in collector.spans if span.name == "tfk8s validate"]
    assert [exit_code(span) for span in whole] == [2] * count
    assert parents(collector.spans) == ({"read job file": "tfk8s validate", "tfk8s validate": ""} if count else {})


@pytest.mark.programs
def test_completion_makes_no_span(collector: Collector) -> None:
    words = {"_TFK8S_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "tfk8s va", "COMP_WORDS": "tfk8s va"}
    subprocess.run([sys.executable, "-m", "tfk8s"], capture_output=True, env=os.environ | words, check=False)
    assert collector.spans == []
