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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfk8s.log import log

_TIMEOUT = 2.0  # for the collector, at the end of the command
_CARRIERS = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}


@contextlib.contextmanager
def of_command(names: Sequence[str]) -> Iterator[Callable[[int], None]]:
    """Make a span in a `with`, and export the span at the end. Without the packages, there is none.

    Args:
        names: the command without its arguments, which may be secret: "image", "build".

    Yields:
        A function to be called with the exit code.
    """
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.trace import StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        exporter = _exporter_module().OTLPSpanExporter(timeout=_TIMEOUT)
    except ImportError:
        yield _ignore
        return
    failures = _Failures()
    resource = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or "tfk8s"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    propagator = TraceContextTextMapPropagator()
    outside = propagator.extract({key: os.environ.get(name, "") for key, name in _CARRIERS.items()})
    with provider.get_tracer("tfk8s").start_as_current_span(
        " ".join(("tfk8s", *names)), outside, record_exception=False, set_status_on_exception=False
    ) as span:
        inside = dict[str, str]()
        propagator.inject(inside)
        os.environ |= {name: inside[key] for key, name in _CARRIERS.items() if key in inside}

        def end(code: int) -> None:
            span.set_attribute("process.exit.code", code)
            span.set_status(StatusCode.ERROR if code else StatusCode.OK)

        end(130)  # until the command has ended
        yield end
    if failures.count:
        log.warning("the collector that OTEL_EXPORTER_OTLP_ENDPOINT names did not take the command's span")


def _ignore(code: int) -> None:
    del code


def _exporter_module() -> Any:
    """Return the module of the exporter; the default is that of the specification."""
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or general
    return importlib.import_module(
        f"opentelemetry.exporter.otlp.proto.{'grpc' if protocol == 'grpc' else 'http'}.trace_exporter"
    )


class _Failures(logging.Handler):
    """Counts the messages of the packages, which would print a line for each attempt."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        packages = logging.getLogger("opentelemetry")
        packages.addHandler(self)
        packages.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Count a message."""
        del record
        self.count += 1
