"""A span of OpenTelemetry for a command, where its packages are installed and a collector is named.

The collector is named by the variables of opentelemetry.io/docs/specs/otel/protocol/exporter. `TRACEPARENT` and
`TRACESTATE` are those of opentelemetry.io/docs/specs/otel/context/env-carriers: a command continues the trace of what
started the command, and what the command starts goes on with it.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from tfk8s.log import log

_TIMEOUT = 2.0  # for the collector, at the end of the command
_CARRIERS = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}
_LONGEST_REASON = 200
_SECRET = re.compile("OTEL_.*(HEADERS|ENDPOINT)")  # an address may have a password


@contextlib.contextmanager
def of_command(names: Sequence[str]) -> Iterator[Callable[[int], None]]:
    """Make a span in a `with`, and export the span at the end. Without the packages, there is none.

    Args:
        names: the command without its arguments, which may be secret: "image", "build".

    Yields:
        A function to be called with the exit code, unless SystemExit has the code.
    """
    started = _start(" ".join(("tfk8s", *names)))
    if started is None:
        yield lambda _: None
        return
    span, exporter = started

    def end(code: int) -> None:
        from opentelemetry.trace import StatusCode

        span.set_attribute("process.exit.code", code)
        span.set_status(StatusCode.ERROR if code else StatusCode.OK)

    end(130)  # until the command has ended
    try:
        yield end
    except SystemExit as error:  # of SIGTERM, for example
        end(int(error.code or 0))
        raise
    finally:
        if span.is_recording():  # neither the sampler nor OTEL_SDK_DISABLED has refused it
            span.end()
            _export(span, exporter)


def _start(name: str) -> tuple[Any, Any] | None:
    """Return a span that has begun, and its exporter; None without the packages, or if they fail."""
    try:
        # Their messages show headers, which are secret, and come at each attempt.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        exporter = _exporter_module().OTLPSpanExporter(timeout=_TIMEOUT)
        resource = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or "tfk8s"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        propagator = TraceContextTextMapPropagator()
        outside = propagator.extract({key: os.environ.get(variable, "") for key, variable in _CARRIERS.items()})
        span = provider.get_tracer("tfk8s").start_span(name, outside)
        inside = dict[str, str]()
        propagator.inject(inside, set_span_in_context(span))
        os.environ |= {variable: inside[key] for key, variable in _CARRIERS.items() if key in inside}
    except ModuleNotFoundError:
        return None
    except Exception as error:  # a variable that is not valid, or versions that do not match
        _warn(f"there is no span of this command: {_reason(error)}")
        return None
    return span, exporter


def _exporter_module() -> Any:
    """Return the module of the exporter; the default is that of the specification."""
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or general
    return importlib.import_module(
        f"opentelemetry.exporter.otlp.proto.{'grpc' if protocol == 'grpc' else 'http'}.trace_exporter"
    )


def _export(span: Any, exporter: Any) -> None:
    """Send a span, on a thread: the exporter's timeout is for each read, and a collector may send byte after byte."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    results = []

    def send() -> None:
        with contextlib.suppress(Exception):
            results.append(exporter.export([span]))

    thread = threading.Thread(target=send, name="tfk8s-span", daemon=True)
    with contextlib.suppress(RuntimeError):  # the system starts no more threads
        thread.start()
        thread.join(_TIMEOUT)
    if results != [SpanExportResult.SUCCESS]:
        own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        name = own if os.environ.get(own) else "OTEL_EXPORTER_OTLP_ENDPOINT"
        _warn(f"the collector that {name} names did not take the command's span")


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
