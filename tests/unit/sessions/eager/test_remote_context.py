"""The request that frees what a process has made on tasks; tests/local has real servers."""

from __future__ import annotations

from tfk8s.sessions.eager import remote_context


def test_the_request_on_the_wire() -> None:
    assert remote_context.close_request(0x0102030405060708).hex(" ", 9) == "090807060504030201 11ffffffffffffff7f"


def test_a_process_without_tensorflow_has_made_nothing() -> None:
    remote_context.close()
