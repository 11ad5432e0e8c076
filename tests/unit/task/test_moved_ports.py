"""The addresses that scripts know, and the ports that tasks have."""

from __future__ import annotations

import sys

import pytest

from tfk8s.task.programs import moved_ports

PORTS = {"2222": 20_001, "2223": 20_002}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:2222", "127.0.0.1:20001"),
        ("127.0.0.1:2223", "127.0.0.1:20002"),
        ("[::1]:2223", "127.0.0.1:20002"),
        ("localhost:20001", "localhost:20001"),
        ("localhost:2224", "localhost:2224"),
        ("10.0.0.1:2222", "10.0.0.1:2222"),
        ("", ""),
    ],
)
def test_addresses_of_tasks_that_have_moved(address: str, expected: str) -> None:
    assert moved_ports.moved(address, PORTS) == expected


def test_nothing_is_patched_where_no_task_has_moved() -> None:
    before = list(sys.meta_path)
    moved_ports.lead({})
    assert sys.meta_path == before
