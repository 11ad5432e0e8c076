"""Spans of OpenTelemetry for a command and its parts, where its packages are installed and a collector is named.

The collector is named by the variables of opentelemetry.io/docs/specs/otel/protocol/exporter. `TRACEPARENT` and
`TRACESTATE` are those of opentelemetry.io/docs/specs/otel/context/env-carriers: a command continues the trace of what
started the command, and what the command starts goes on with it.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tfk8s import spans
from tfk8s.log import log
from tfk8s.version import __version__

_TIMEOUT = 2.0  # for the collector, at the end of the command
_CARRIERS = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}
_LONGEST_REASON = 200
_MOST_PARTS = 256  # of a command that never ends, such as `submit --watch`, the first ones
_SECRET = re.compile("OTEL_.*(HEADERS|ENDPOINT)")  # an address may have a password


@contextlib.contextmanager
def of_command(names: Sequence[str]) -> Iterator[Callable[[int], None]]:
    """Make a span in a `with`, and export the span at the end. Without the packages, there is none.

    Args:
        names: the command without its arguments, which may be secret: "image", "build".

    Yields:
        A function to be called with the exit code, unless SystemExit has the code.
    """
    trace = _start(" ".join(("tfk8s", *names)))
    if trace is None:
        yield lambda _: None
        return
    stop_listening = spans.listen(trace.part)
    try:
        yield trace.set_exit_code
    except SystemExit as error:  # of SIGTERM, for example
        trace.set_exit_code(int(error.code or 0))
        raise
    finally:
        stop_listening()
        trace.export()


def _start(name: str) -> _CommandTrace | None:
    """Return the trace of a command that begins; None without the packages, or if they fail."""
    try:
        # Their messages show headers, which are secret, and come at each attempt.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        exporter = _exporter_module().OTLPSpanExporter(timeout=_TIMEOUT)
        service = {SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or "tfk8s", SERVICE_VERSION: __version__}
        provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
        propagator = TraceContextTextMapPropagator()
        outside = propagator.extract({key: os.environ.get(variable, "") for key, variable in _CARRIERS.items()})
        trace = _CommandTrace(provider.get_tracer("tfk8s", __version__), name, outside, exporter)
        inside = dict[str, str]()
        propagator.inject(inside, set_span_in_context(trace.root))
        os.environ |= {variable: inside[key] for key, variable in _CARRIERS.items() if key in inside}
    except ModuleNotFoundError:
        return None
    except Exception as error:  # a variable that is not valid, or versions that do not match
        _warn(f"there is no span of this command: {_reason(error)}")
        return None
    return trace


class _CommandTrace:
    """The spans of one command, which the exporter gets at the end.

    Attributes:
        root: the span of the whole command.
    """

    def __init__(self, tracer: Any, name: str, outside: Any, exporter: Any) -> None:
        self._tracer, self._exporter = tracer, exporter
        self.root = tracer.start_span(name, outside)
        self.root.set_attributes({"process.executable.name": Path(sys.executable).name, "process.pid": os.getpid()})
        self._current = contextvars.ContextVar("span", default=self.root)  # another thread begins with the root
        self._ended: list[Any] = []
        self._exit_code = 130  # until the command has ended

    def set_exit_code(self, code: int) -> None:
        """Take the exit code of the command."""
        self._exit_code = code

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[spans.Attributes]:
        """Make a span of a part of the command, in a `with`."""
        from opentelemetry.trace import set_span_in_context

        attributes: spans.Attributes = {}
        if len(self._ended) >= _MOST_PARTS:
            yield attributes
            return
        span = self._tracer.start_span(name, set_span_in_context(self._current.get()))
        token = self._current.set(span)
        error_type = ""
        try:
            yield attributes
        except BaseException as error:
            error_type = type(error).__qualname__  # its text may have what is secret
            raise
        finally:
            with contextlib.suppress(ValueError):  # a generator that began the part is closed on another thread
                self._current.reset(token)
            _set_end(span, attributes, error_type)
            span.end()
            self._ended.append(span)

    def export(self) -> None:
        """End the trace, and send its spans, unless the sampler or OTEL_SDK_DISABLED has refused them."""
        if self.root.is_recording():
            _set_end(self.root, {spans.EXIT_CODE: self._exit_code})
            self.root.end()
            _export([*self._ended, self.root], self._exporter)


def _set_end(span: Any, attributes: Mapping[str, int], error_type: str = "") -> None:
    """Set the attributes and the status of a span, by the semantic conventions of programs of a command line."""
    from opentelemetry.trace import StatusCode

    code = attributes.get(spans.EXIT_CODE, 0)
    error_type = error_type or (str(code) if code else "")
    span.set_attributes({**attributes, **({"error.type": error_type} if error_type else {})})
    span.set_status(StatusCode.ERROR if error_type else StatusCode.OK)


def _exporter_module() -> Any:
    """Return the module of the exporter; the default is that of the specification."""
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or general
    return importlib.import_module(
        f"opentelemetry.exporter.otlp.proto.{'grpc' if protocol == 'grpc' else 'http'}.trace_exporter"
    )


def _export(ended: Sequence[Any], exporter: Any) -> None:
    """Send spans, on a thread: the exporter's timeout is for each read, and a collector may send byte after byte."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    results = []

    def send() -> None:
        with contextlib.suppress(Exception):
            results.append(exporter.export(ended))

    thread = threading.Thread(target=send, name="tfk8s-span", daemon=True)
    with contextlib.suppress(RuntimeError):  # the system starts no more threads
        thread.start()
        thread.join(_TIMEOUT)
    if results != [SpanExportResult.SUCCESS]:
        own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        name = own if os.environ.get(own) else "OTEL_EXPORTER_OTLP_ENDPOINT"
        _warn(f"the collector that {name} names did not take the command's spans")


def _reason(error: Exception) -> str:
    """Return the reason of a failure as one short line, without the words of headers and addresses."""
    values = " ".join(value for name, value in os.environ.items() if _SECRET.fullmatch(name))
    secret = {*re.findall(r"\w+", f"{values} {unquote(values)}")}
    line = " ".join(f"{error}".split()) or type(error).__name__
    return re.sub(r"\w+", lambda word: "…" if word[0] in secret else word[0], line)[:_LONGEST_REASON]


def _warn(message: str) -> None:
    from tfk8s.cli import log_handler

    log_handler.install()  # a command does so later, and `--help` not at all
    log.warning("%s", message)
